"""Reward programs of stages: which drafts are refused and why, and what a scripted play is paid by those that are not."""

from functools import partial

import numpy as np
import pytest

from tasks.lab import toy
from tasks.lab.checks import load
from training.env.control.key_door import NEXT, key_door, scripted
from training.rl.group_transform.stage_programs import DRAFTS, NAMES, chosen, read, stage_programs

DONE = (8, 9, 10)


@pytest.mark.parametrize("size", [5, 8, 12])
def test_a_scripted_play_reaches_the_goal(size):
    for seed in range(20):
        seen = scripted(seed, size)
        world = key_door(size=size, steps=10_000)
        assert (seen[0] == world.start(seed)[1]).all()
        stages = seen[:, NEXT : NEXT + 3].sum(1)
        assert (np.diff(stages) >= 0).all() and stages[-1] == 3 and len(seen) <= 6 * size


def test_accepted_programs_rise_along_every_scripted_play():
    """The check of the mechanism: all accepted programs rise at every step of plays that they were not tested on too."""
    drafts = load("robohorizon")["stages"]["rl"]["group_transforms"][0]["drafts"]
    accepted, refused = chosen(drafts, NAMES, 3, DONE, 8, 8)
    assert [accepted[str(k)] for k in range(3)] == [d.partition(": ")[2] for d in DRAFTS] and len(refused) == 4
    programs = [read(accepted[str(k)], NAMES) for k in range(3)]
    for seed in range(100, 140):
        seen = scripted(seed, 8)
        stages = seen[:, list(DONE)].sum(1).astype(int)
        worth = [k + (programs[k](s[None])[0] if k < 3 else 0.0) for k, s in zip(stages, seen, strict=True)]
        assert (np.diff(worth) > 0).all()


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        ("0: abs(key_x) + abs(key_y)", "does not rise"),
        ("0: 1 - abs(key_x)", "does not rise"),
        ("0: 2 - abs(key_x)", "leaves the numbers"),
        ("0: 1 / (held - held)", "leaves the numbers"),
        ("0: 1 - abs(kex_x)", "names 'kex_x'"),
        ("0: __import__('os')", "more than a formula"),
        ("0: held ** 9", "more than a formula"),
        ("0: key_x if held else 0", "more than a formula"),
        ("0: abs(key_x, key_y)", "gives abs 2 numbers"),
        ("0: 1 -", "is no formula"),
        ("0: " + "1 + " * 200 + "1", "is no formula"),
        ("7: 0.5", "is for no stage"),
        ("go to the key", "is for no stage"),
    ],
)
def test_a_draft_is_refused_with_a_reason(draft, says):
    accepted, refused = chosen([draft, *DRAFTS], NAMES, 3, DONE, 8, 8)
    assert len(accepted) == 3 and len(refused) == 1 and says in refused[0]
    with pytest.raises(ValueError, match="stage 0 has no program that passes its tests.*add a draft"):
        chosen([draft, *DRAFTS[1:]], NAMES, 3, DONE, 8, 8)


def test_an_episode_is_paid_by_what_it_reached():
    """The sum of what is paid is the difference of the ends, whatever the way; without programs it is the stages."""
    seen = scripted(3, 8)
    rows = toy.groups(
        [[1.0]], lengths=[[len(seen) - 1]], parts=[[{"stage": 3.0}]], extras=[[{"observation": seen[:-1].tolist()}]]
    )
    pay = partial(stage_programs, rows, toy.RolloutServices(), rng=np.random.default_rng(0))
    state = {}
    steps = [s.reward for s in pay(state=state)[0].rollouts[0].segments if s.role == "model"]
    first = read(DRAFTS[0].partition(": ")[2], NAMES)(seen[:1])[0]
    assert sum(steps) == pytest.approx(3 - first) and min(steps) > 0
    assert set(state["accepted"]) == {"0", "1", "2"} and state["refused"] == []
    sparse = [s.reward for s in pay(state={}, dense=False)[0].rollouts[0].segments if s.role == "model"]
    assert sum(sparse) == 3 and sorted(set(sparse)) == [0.0, 1.0]
    with pytest.raises(ValueError, match="name those that it has"):
        pay(state={}, variables=(*NAMES, *"abcdefghijklm"))
