"""Ratios: `f(logp [T], old [T], batch, *, knobs) -> log-ratio [T]` of the policy to the one that sampled."""
