"""Schedules of a number over training: `f(step, steps, *, knobs) -> int`, e.g. the tokens that a turn may have at step `step` of `steps`."""
