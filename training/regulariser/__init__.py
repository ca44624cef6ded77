"""Regularisers: `f(stats, batch, *, coef, knobs) -> Terms`, added to the surrogate."""
