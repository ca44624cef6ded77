"""Stages: `<stage>(stage, *, knobs)` in a file of its name. The keyword-only arguments and their defaults are the
stage's configuration."""
