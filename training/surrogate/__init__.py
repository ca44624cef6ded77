"""Surrogates: `f(log_ratio [T], credit [T], stats, batch, *, knobs) -> Terms`, the policy's loss (lower is better)."""
