"""Cleaners: `f(pairs, *, knobs) -> list[Decision]`, one decision per pair in order, one file each, function named as its file.

A cleaner judges; it changes and removes nothing, and it reads only what a pair carries. `NEEDS` names the columns that it reads
from `pair.columns`; the stage `clean` computes them.
"""
