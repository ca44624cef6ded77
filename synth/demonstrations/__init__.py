"""Demonstrations for SFT: search conversations, worked answers, pages of generated worlds, and replacement of names by
made-up ones."""
