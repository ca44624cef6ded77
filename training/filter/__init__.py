"""Filters: `f(groups, rewards, state, rng, *, knobs) ->` per group None (keep) or a reason code."""
