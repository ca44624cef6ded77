"""Corrections: `f(old [T], behaviour [T], batch, *, knobs) -> weight [T]`, detached, where sampler and learner disagree."""
