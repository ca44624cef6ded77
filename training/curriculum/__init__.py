"""Curricula: `f(problems, state, rng, n, *, knobs) -> n indices`; `state["scores"]` maps a problem's id to its past mean scores."""
