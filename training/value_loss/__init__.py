"""Losses of a critic: `f(value [T], batch, *, knobs) -> Terms`, of columns "returns" and "value" (what it said before the step)."""
