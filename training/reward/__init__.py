"""Reward shaping: `f(groups, rewards, state, rng, *, knobs) -> rewards`, NaN where a rollout could not be scored."""
