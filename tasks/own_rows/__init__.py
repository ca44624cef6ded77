"""Rows of the user's own as rows of the pipeline: pairs, conversations and problems out of files and data sets."""
