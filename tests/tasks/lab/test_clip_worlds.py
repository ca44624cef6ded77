"""Worlds of clips and screens: demonstrations say what their world says they do, and are understood by its environment."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from synth.types import Scored
from synth.verify import boxes
from tasks.lab import clip_worlds, picture_worlds
from tasks.lab.picture_worlds import SHOWN


@pytest.fixture(scope="module")
def pointing():
    return clip_worlds.pointing(replace(clip_worlds.SIZES["pointing"], demonstrations=80))


def test_a_move_follows_where_the_cursor_is_and_has_to_go(pointing):
    """The places told are those of the screen, and most moves lead from the one to the other."""
    env, right, moves = pointing.envs["point"], 0, 0
    problems = picture_worlds.made(
        clip_worlds.screen_tasks, "train", 80, seed=1, env="point", asks=("point",), levels=(1,)
    )
    for problem, talk in zip(problems, pointing.shown, strict=True):
        state, _ = env.start(problem, pointing.tools)
        target = [v // 8 for v in boxes.read(problem.answer)[0][:2]]
        for turn in (m.content for m in talk if m.role == "assistant"):
            told = [int(v) for v in re.match(r"from (\d) (\d) to (\d) (\d)<", turn).groups()]
            assert told == [*state["screen"].cursor, *target]
            _, over, score = env.step(state, turn)
            if "<move>" in turn:
                moves, right = moves + 1, right + (list(state["screen"].cursor) == target)
        assert over and isinstance(score, Scored) and not score.parts["malformed"]
    assert 0.4 < right / moves < 0.9


def test_places_are_those_of_what_is_shown():
    """A lesson's cell has something in it, which a blank cell of the same picture has not."""
    for talk in picture_worlds.places(Random(0), 12):
        shown = SHOWN.of(talk[0].media[0]).astype(int)
        ground = np.median(shown.reshape(-1, 3), axis=0)
        for told in (m.content for m in talk if m.role == "assistant"):
            x, y = (int(v) for v in re.fullmatch(r"<(?:answer|box)>(\d) (\d)</(?:answer|box)>", told).groups())
            cell = shown[8 * y : 8 * y + 8, 8 * x : 8 * x + 8]
            assert abs(cell - ground).sum() > 0


def test_requests_of_one_part_are_filled_as_often_as_said():
    """No request has a second part; six in ten actions are the next one, so most but not all conversations fulfil theirs."""
    task = clip_worlds.filling(replace(clip_worlds.SIZES["filling"], demonstrations=80))
    env, done = task.envs["screen"], 0
    problems = picture_worlds.made(clip_worlds.one_part, "train", 80, seed=1, env="screen", levels=(1,))
    assert {len(p.answer.split("; ")) for p in problems} == {1, 2} and not any("then" in p.question for p in problems)
    assert {p.split for p in task.held} == {"test"} and not {p.id for p in task.held} & {p.id for p in task.train}
    assert len(task.held) == clip_worlds.HELD and len(task.train) == clip_worlds.TRAIN
    for problem, talk in zip(problems, task.shown, strict=True):
        state, _ = env.start(problem, task.tools)
        for turn in (m.content for m in talk if m.role == "assistant"):
            _, over, score = env.step(state, turn)
        assert over and isinstance(score, Scored) and not score.parts["malformed"]
        done += score.value
    assert 0.5 < done / 80 < 0.95
