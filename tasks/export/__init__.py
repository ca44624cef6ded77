"""Exports models to folders and files that other programs load; each export is checked by reading it back."""
