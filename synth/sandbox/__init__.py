"""Runs code that a model wrote in a process of its own with no files, no network and limits on time and memory."""
