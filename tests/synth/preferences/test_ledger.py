"""What is kept of each pair while it is cleaned, and that it is little."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from traced import traced
from hypothesis import given
from hypothesis import strategies as st

from synth.preferences.cleaners import intransitive
from synth.preferences.cleaners._grams import frequencies
from synth.preferences.cleaners._ranks import dense
from synth.preferences.ledger import Ledger, Verdicts, _Column, _Said, each
from synth.types import Decision, Message, PreferencePair

N = 200_000


def most(work: Callable[[], Any]) -> float:
    """Bytes of each of N pairs that `work` holds at most."""
    return traced(work)[1] / N


def decided(n: int, kinds: int, scores: int) -> list[Decision]:
    return [
        Decision(
            step="s", action="keep", reason=f"{(i * 7) % kinds}", score=(i // kinds % scores) / 4 + (i * 7) % kinds
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("kinds, dtype", [(1, "u1"), (255, "u1"), (256, "u2"), (257, "u2"), (65_600, "u4")])
@pytest.mark.parametrize("scores", [1, 3])
def test_verdicts_are_the_decisions_that_were_added(kinds, dtype, scores):
    want = decided(66_000, kinds, scores)
    got = Verdicts(want)
    assert list(got) == want and got[-1] == want[-1] and got[:300] == want[:300]
    told, code, score = got.arrays()
    assert len(told) == kinds and code.dtype == dtype and code.min() == 1 and code.max() == kinds
    assert (score is None) == (scores == 1) and (score is None or score.tolist() == [d.score for d in want])
    assert [told[c - 1][2] for c in code[:900].tolist()] == [d.reason for d in want[:900]]
    assert all(score is not None or told[c - 1][3] == d.score for c, d in zip(code.tolist(), want, strict=True))


def test_verdicts_of_few_kinds_take_a_byte_of_a_pair():
    one = Decision(step="s", action="keep", reason="r", score=0.5)
    assert most(lambda: Verdicts(one for _ in range(N))) < 3


def some_ahead(make, jobs):
    """`map` that takes three jobs ahead, as a pool does."""
    running = deque()
    for job in jobs:
        running.append(job)
        if len(running) > 3:
            yield make(running.popleft())
    yield from map(make, running)


@pytest.mark.parametrize("mapped", [map, some_ahead])
@pytest.mark.parametrize("kept", ["", "0", "012", "6789", "14579", "0123456789"])
def test_what_an_earlier_run_left_is_not_made_again_unless_it_is_of_another_job(kept, mapped):
    left, jobs_done = {name: {"of": int(name) if name != "4" else -1, "run": 1} for name in kept}, []

    def once(name, make):
        return left[name] if name in left else left.setdefault(name, make())

    def make(job):
        jobs_done.append(job)
        return {"of": job // 10, "run": 2}

    jobs, same = ((f"{i}", i) for i in range(10)), lambda told, job: told["of"] == job
    told = list(each(once, jobs, make, mapped, load=lambda job: 10 * job, fits=same))
    wanted = [i for i in range(10) if f"{i}" not in kept or i == 4]
    assert jobs_done == [10 * i for i in wanted]
    assert told == [{"of": i, "run": 2 if i in wanted else 1} for i in range(10)]


def test_numbers_and_scores_of_a_ledger_lie_on_disk():
    ledger = Ledger([None] * N)  # type: ignore[list-item]
    rows, values = np.arange(0, N, 2), np.random.default_rng(1).random(N // 2)
    code = np.ones(N // 2, np.uint8)

    def noted() -> None:
        for k in range(6):
            ledger.column(rows, f"{k}", values)
            ledger.said(rows, ([("s", "keep", "r", None)], code, values), carried_out=False)

    assert most(noted) < 15  # in a process of its own
    noted()
    column, decisions = ledger._came[:2]
    assert isinstance(column, _Column) and isinstance(decisions, _Said)
    assert np.array_equal(column.values[:][::2, 0], values) and np.isnan(column.values[:][1::2]).all()
    at = np.array([40, 2, 7, 2])
    assert [d and d.score for d in decisions.of(at)] == [values[20], values[1], None, values[1]]


def test_pairs_of_one_prompt_are_compared_some_prompts_at_a_time(monkeypatch):
    rng = Random(1)
    prompts = [(Message(role="user", content=f"{i}"),) for i in range(N // 5)]
    pairs = [
        PreferencePair(id="", prompt=prompts[i % len(prompts)], chosen=good, rejected=bad, source="s", split="train")
        for i in range(N)
        for good, bad in (rng.sample("abcde", 2),)
    ]
    monkeypatch.setattr(intransitive, "TOGETHER", 10_000)
    whole = intransitive.intransitive(pairs)
    assert most(lambda: intransitive.intransitive(pairs)) < 40
    monkeypatch.setattr(intransitive, "TOGETHER", 1 << 30)
    assert whole == intransitive.intransitive(pairs) and len({d.score for d in whole}) > 1


def test_counting_grams_makes_no_second_table():
    sets = [np.array([1, 1 << 31, 3 << 30], np.uint32)] * 3
    total = 1 << 20  # a table of 2 ** 21 cells

    def counted() -> np.ndarray:
        return frequencies(iter([sets, sets[:1]]), total, 26)

    often = counted()
    assert len(often) == 1 << 21 and often[[0, 1 << 20, 3 << 19]].tolist() == [4, 4, 4] and often.sum() == 12
    assert most(counted) * N < 5 * len(often)


@given(st.lists(st.integers(0, 40), max_size=50))
def test_dense_places_are_those_among_the_distinct(numbers):
    got = np.array(numbers, np.int32)
    assert dense(got).tolist() == np.unique(got, return_inverse=True)[1].tolist()
