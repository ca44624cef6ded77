"""The overlong penalty by the budget of each turn."""

from dataclasses import replace

import numpy as np
import pytest

from synth.types import Sampling
from tasks.lab.toy import groups
from training.rl.reward.overlong import overlong


def test_the_slope_is_the_last_fifth_of_a_turn():
    played = groups([[1.0, 1.0, 1.0, 0.0]], lengths=[[80, 90, 100, 100]])
    with_budget = [
        replace(
            g,
            rollouts=[
                replace(
                    r,
                    segments=tuple(
                        replace(s, sampling=Sampling(max_tokens=100)) if s.role == "model" else s for s in r.segments
                    ),
                )
                for r in g.rollouts
            ],
        )
        for g in played
    ]
    (rewards,) = overlong(
        with_budget, [np.array([1.0, 1.0, 1.0, 0.0])], {}, np.random.default_rng(0), max_length=0, scale=0.5
    )
    np.testing.assert_allclose(rewards, [1.0, 0.75, 0.5, -0.5])


def test_a_share_that_is_none():
    with pytest.raises(ValueError, match="share is 0"):
        overlong([], [], {}, np.random.default_rng(0), max_length=0, share=0)
