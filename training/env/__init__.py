"""Environments: `f(*, knobs)` gives an object with `start(problem, tools) -> state, messages` and
`step(state, text) -> messages, over, score`.
"""
