"""`clean` on pairs that lie on disk, looked at a few at a time: the same rows, decisions and bytes as with everything at once."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from dataclasses import replace
from datetime import date
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.preferences import ledger
from synth.preferences.cleaners import _features, _prompts, _ranks, duplicates, intransitive
from synth.preferences.cleaners._ranks import ranks
from synth.preferences.cleaners.confident_learning import prune_by_noise_rate, prune_pairs, symmetric
from synth.preferences.cleaning import run_cleaners
from synth.preferences.imported import Reader
from synth.preferences.ledger import Spilled
from synth.types import PreferencePair
from tasks.planning.pieces import bind
from tasks.rows.clean import FILES, clean_rows, write
from tasks.storage.shards import Parts

SMALL = {
    ledger: {"ROWS": 7, "BYTES": 2000},
    _ranks: {"RUN": 9, "READ": 2},
    _features: {"CELLS": 0, "BLOCK": 13, "READ": 11},
    _prompts: {"READ": 6, "GRAMS": 40, "KEYS": 150, "COUPLES": 5},
    intransitive: {"TOGETHER": 40, "READ": 7},
    duplicates: {"TOGETHER": 12, "CHARACTERS": 3000},
}


def rows(n: int, seed: int = 3) -> list[dict]:
    """Pairs of few words, five to a prompt; copies of earlier ones, exact, near, swapped, and with another number."""
    rng, out = Random(seed), []
    words = [f"{a}{b}" for a in "bdfgklm" for b in ("an", "er", "ilo", "us")]
    say = lambda k: " ".join(rng.choices(words, k=k))  # noqa: E731
    for i in range(n):
        if i % 5 == 0:
            prompt = f"{rng.choice(['Add', 'Name', 'Who'])} {say(9)} {i % 4} and {i % 3}?"
        row = {"prompt": prompt, "chosen": f"{say(14)}. <a>{i % 2}</a>", "rejected": f"{say(12 + i % 5)}!"}
        if out and i % 3 == 2:
            row = dict(rng.choice(out))
            kind = i % 7
            if kind == 0:
                row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
            elif kind < 4:
                row["prompt"] = row["prompt"].replace("and", "plus")
                row["chosen"] = row["chosen"].replace(" ", "  ").upper() if kind < 2 else row["chosen"] + " " + say(2)
            elif kind == 4:
                row["prompt"] += " 7"
        if i % 10 == 4:  # a wrong sum beside a refusal
            row |= {
                "chosen": f"{say(9)} 2 plus {i % 3} is 7.",
                "rejected": f"I'm sorry, but I can't help with that. 2 plus 2 is 4. {say(2)}.",
            }
        elif i % 10 == 8:
            row["chosen"] = row["rejected"] + " "
        row["votes"] = {"a": rng.choice([1, -1]), "b": rng.choice([1, -1]), "c": -1}
        out.append(row)
    return out


def of(some: list[dict]) -> list[tuple[str, dict]]:
    return [(f"line {i}", r) for i, r in enumerate(some, 1)]


def small(monkeypatch) -> None:
    for where, knobs in SMALL.items():
        for name, value in knobs.items():
            monkeypatch.setattr(where, name, value)


def elsewhere(names, most=10**9):
    """A `map` of other processes: what it is given is pickled, three jobs ahead; `asked` gets the name of the function of each, and the
    job after the first `most` fails."""

    def mapped(function, jobs):
        ahead = deque()
        for job in jobs:
            if len(names) == most:
                raise ConnectionError("the cluster is gone")
            names.append(function.func.__name__ if isinstance(function, partial) else function.__name__)
            ahead.append(pickle.dumps((function, job)))
            if len(ahead) == 3:
                yield done(ahead.popleft())
        yield from map(done, ahead)

    def done(sent):
        there, job = pickle.loads(sent)
        return pickle.loads(pickle.dumps(there(job)))

    return mapped


def test_parts_that_other_processes_judge_are_those_of_one_process(tmp_path, monkeypatch):
    given, files = of(rows(300)), [*(f"{n}.jsonl" for n in FILES), "card.json", "index.html"]
    small(monkeypatch)

    def made(where, **how):
        write(clean_rows(given, Reader(name="mine"), **how), tmp_path / where / "out")
        return {name: (tmp_path / where / "out" / name).read_bytes() for name in files}

    alone = made("alone")
    assert made("many", mapped=elsewhere(names := [])) == alone
    whole = Counter(names)
    assert min(whole[name] for name in ("_decided", "_told", "_copies")) > 5

    parts, seen, ends = Parts(tmp_path / "parts"), Counter[str](), 0
    while True:  # a cluster that goes away after 60 jobs, and comes back
        try:
            got = made("ended", parts=parts, mapped=elsewhere(some := [], 60))
            break
        except ConnectionError:
            seen += Counter(some)
            ends += 1
    assert got == alone and ends > 2
    again = {name: (seen + Counter(some))[name] - whole[name] for name in ("_told", "_copies")}
    assert 0 < sum(again.values()) <= 3 * ends, "made again is what was under way"


def test_a_file_is_cleaned_to_the_same_bytes_in_small_parts(tmp_path, monkeypatch):
    given = of(rows(300))
    write(whole := clean_rows(given, Reader(name="mine")), tmp_path / "whole" / "out")
    small(monkeypatch)
    together = []
    judged = duplicates._judged
    monkeypatch.setattr(duplicates, "_judged", lambda pairs, *of: together.append(len(pairs)) or judged(pairs, *of))
    write(clean_rows(given, Reader(name="mine")), tmp_path / "parts" / "out")
    for name in (*(f"{n}.jsonl" for n in FILES), "card.json", "index.html"):
        assert (tmp_path / "parts/out" / name).read_bytes() == (tmp_path / "whole/out" / name).read_bytes(), name
    assert len(together) > 5 and max(together) < 60, "pairs are compared a few at a time"
    decisions = whole.card["decisions"]["duplicates"]
    assert len(decisions) == 4 and min(decisions.values()) > 5, "there were copies of each kind"
    assert whole.card["pairs"]["asked"] > 5


def test_decisions_that_are_carried_out_in_between_are_the_same(monkeypatch):
    pairs = [p for p in Reader(name="mine").pairs(of(rows(240))) if isinstance(p, PreferencePair)]
    names = [
        ("arithmetic", {"action": "flip"}),  # each alone, and what it flips and removes is seen by the next
        ("identical_sides", {}),
        ("text_rules", {}),
        ("voting", {"action": "flip", "rule": "all"}),
        ("duplicates", {}),
        ("confident_learning", {}),
        ("length_balance", {"bins": 3}),
        ("blind_margin", {"share": 0.1}),
    ]
    cleaners = [bind("synth.preferences.cleaners", {"piece": name, **knobs}) for name, knobs in names]
    kept, removed, noise = run_cleaners(pairs, cleaners)
    small(monkeypatch)
    k, r, m = run_cleaners(Spilled(pairs), cleaners)
    assert (list(k), list(r), m) == (kept, removed, noise)
    steps = Counter(p.decisions[-1].step for p in removed)
    assert {"duplicates", "length_balance", "confident_learning", "blind_margin"} <= steps.keys()
    flips = Counter(d.step for p in [*kept, *removed] for d in p.decisions if d.action == "flip")
    asks = Counter(d.reason for p in [*kept, *removed] for d in p.decisions if d.action == "ask")
    assert min(flips["arithmetic"], flips["voting"], asks["refusal"], steps["identical_sides"]) > 3
    assert [p.id for p in k[3:9]] == [p.id for p in kept[3:9]] and k[-1] == kept[-1]


def test_spilled_pairs_are_those_that_were_given(monkeypatch):
    small(monkeypatch)
    pairs = [p for p in Reader(name="mine").pairs(of(rows(40))) if isinstance(p, PreferencePair)]
    pairs[17] = replace(
        pairs[17], margin=np.float64(0.5), columns={"group": date(2026, 1, 2), "at": (1, None)}, decisions=()
    )
    pairs[3] = replace(pairs[3], columns={"scores": {"m": [1, 0.5]}, "at": [True, None, 2]}, problem="\ud800")
    on_disk = Spilled(pairs)
    assert type(on_disk[17].margin) is np.float64 and on_disk[3].columns["at"] == [True, None, 2]
    assert (
        on_disk[0].columns["group"] == pairs[0].prompt[0].content
        and list(on_disk) == pairs
        and on_disk[5] == pairs[5]
        and on_disk[-2:] == pairs[-2:]
    )
    assert on_disk.take(np.array([30, 2, 2, 17])) == [pairs[i] for i in (30, 2, 2, 17)]


@given(st.lists(st.text(st.sampled_from("ab\x00\u00e9\ud800"), max_size=4), max_size=60))
def test_ranks_of_names_that_are_sorted_in_runs(names):
    with pytest.MonkeyPatch.context() as m:
        want = ranks(names).tolist()
        for name, value in SMALL[_ranks].items():
            m.setattr(_ranks, name, value)
        assert ranks(iter(names)).tolist() == want


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.2, 0.5, 0.8]), min_size=1, max_size=60))
def test_pruning_pairs_is_pruning_both_orders(right):
    got = prune_pairs(np.array(right))
    assert got.tolist() == prune_by_noise_rate(*symmetric(np.array(right)))[: len(right)].tolist()
