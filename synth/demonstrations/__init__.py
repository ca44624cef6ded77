"""Demonstrations: search conversations, worked answers, pages of generated worlds, names made up anew. SFT learns from
them."""
