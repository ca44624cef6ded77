"""Test sets of other people: their layouts, and whether training data contains their items."""
