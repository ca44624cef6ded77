"""Preference optimisation and reward models: pairs, losses, reward heads, rounds."""
