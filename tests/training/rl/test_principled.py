"""Two signals for writing under clauses: a judge hardened against what deceives it, and a reward model from refined pairs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synth.families.constrained_writing import constrained_writing
from synth.types import Problem
from tasks.lab.toy import groups
from training.rl.reward.principled import KINDS, hardened, principled, read, refined


def rng(seed=0):
    return np.random.default_rng(seed)


def test_hardening_takes_the_judge_from_deceived_to_not():
    for seed in range(4):
        trail = hardened(rng(seed), 3, 400)[2]
        assert len(trail) == 4 and trail[0] <= 0.6 and trail[-1] >= 0.9, trail
        assert hardened(rng(seed), 0, 400)[2][0] == trail[0], "a judge that was not hardened"


def test_the_reward_model_of_refined_pairs_holds_every_broken_clause_against_a_text():
    w, b, _ = refined(rng(), 400, 0.1)
    assert b == 0.0 and (w < 0).all() and len(w) == len(KINDS)
    noisy = refined(rng(), 400, 0.45)[0]
    assert np.abs(noisy).mean() < np.abs(w).mean(), "critics who guess teach little"


def test_a_text_is_read_by_the_clauses_of_its_problem_and_length_counts():
    problem = next(p for i in range(20) if isinstance(p := constrained_writing(1, "train", i, levels=[2]), Problem))
    (group,) = groups([[1.0]], parts=[[{"c1": 1.0, "c2": 0.0, "c3": 1.0}]], texts=[["<answer>a b c</answer>"]])

    rollout = replace(group.rollouts[0], problem=problem)
    required, broken = read(rollout)
    kinds = [c["kind"] for c in problem.args["clauses"]]
    assert {KINDS[k] for k in np.flatnonzero(required)} == set(kinds)
    assert [KINDS[k] for k in np.flatnonzero(broken)] == [kinds[1]]


def test_unscorable_stays_and_what_is_refused():
    given = groups([[1.0, math.nan]], parts=[[{"c1": 1.0}, {}]])
    out = principled(given, [np.array([1.0, math.nan])], {}, rng())
    assert not math.isnan(out[0][0]) and math.isnan(out[0][1])
    refused: list[dict[str, Any]] = [
        {"signal": "none"},
        {"hardening": -1},
        {"pairs": 0},
        {"misread": 0.5},
        {"length": -1.0},
    ]
    for knobs in refused:
        with pytest.raises(ValueError, match="principled: signal"):
            principled(given, [np.zeros(2)], {}, rng(), **knobs)


def test_the_state_is_plain_and_is_learned_once():
    state, given = {}, groups([[1.0]], parts=[[{"c1": 1.0}]])
    principled(given, [np.ones(1)], state, rng())
    kept = [*state["weights"]]
    principled(given, [np.ones(1)], state, rng(7))
    assert state["weights"] == kept and isinstance(kept[0], float) and len(state["trail"]) == 4
