"""Families of verifiable problems, one file each: generator, ladder of levels, scorer, and a certificate by two independent routes."""
