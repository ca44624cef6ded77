"""Stages: `<stage>(stage, *, knobs)` in a file of its name. The keyword-only arguments with their defaults are its
configuration."""
