"""Held-out pairs are scored some at a time, with the numbers of all at once."""

import dataclasses

import numpy as np
import pytest
import tiny

from tasks.stages import prefer
from training.learner import spilled
from training.learner.pack import Row
from training.preference import reward_rows
from training.preference.reward_rows import RewardRows


def rows_of(n, seed=1):
    lengths = np.random.default_rng(seed).integers(5, 20, n)
    return [
        Row(ids=ids, trainable=np.arange(len(ids)) >= 3, group=i // 2)
        for i, ids in enumerate(tiny.ids(*map(int, lengths), seed=seed))
    ]


@pytest.fixture
def packed(monkeypatch):
    """The number of rows of each batch."""
    sizes, pack = [], prefer.pack

    def counted(rows, **more):
        sizes.append(len(rows))
        return pack(rows, **more)

    for module in (prefer, reward_rows):
        monkeypatch.setattr(module, "pack", counted)
    return sizes


@pytest.mark.parametrize("reference", [None, 2])
def test_pair_accuracy(reference, packed, monkeypatch):
    model = tiny.build(seed=1)
    other = tiny.build(seed=reference) if reference else None
    rows = rows_of(26)
    whole = prefer.pair_accuracy(model, other, rows, "cpu", 64)
    assert 0 < whole < 1 and packed == [26]
    monkeypatch.setattr(prefer, "SCORED", 8)
    assert prefer.pair_accuracy(model, other, spilled.SpilledRows(rows), "cpu", 64) == whole
    assert packed == [26, 8, 8, 8, 2]


def test_rewards(packed, monkeypatch):
    rows = [dataclasses.replace(r, trainable=np.arange(len(r.ids)) == len(r.ids) - 1) for r in rows_of(26)]
    judge, model = RewardRows(None, None, 64, "cpu", 64), tiny.build(seed=1)  # type: ignore[arg-type]
    whole = judge.rewards(model, rows)
    monkeypatch.setattr(reward_rows, "SCORED", 8)
    np.testing.assert_allclose(judge.rewards(model, spilled.SpilledRows(rows)), whole, rtol=1e-4, atol=1e-5)
    assert packed == [26, 8, 8, 8, 2]
