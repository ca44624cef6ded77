"""Problems on disk are the problems that were written, and what chooses among them chooses the same."""

import json
import math
import pickle
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from traced import traced

from synth.types import Message, Problem, seed_for, to_row

from tasks.planning import pieces
from tasks.stages.demonstrations import by_hash
from tasks.storage import problems as on_disk
from tasks.storage.problems import ByName, Problems


def some(n: int, *, families: int = 3, levels: int = 4) -> list[Problem]:
    rng = Random(5)
    return [
        Problem.make(
            prompt=[Message(role="user", content=f"question {i} é")],
            answer=str(i),
            verifier="exact_match",
            args={"aliases": [f"{i}"], "tolerance": 0.5},
            family=f"family {rng.randrange(families)}",
            difficulty={"level": rng.randrange(1, levels + 1)},
            lineage={"root": f"r{i}"},
            env=rng.choice(["single", "search"]),
            split="train",
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("kinds", [1 << 16, 2])
def test_a_problem_is_what_was_written(kinds, monkeypatch):
    monkeypatch.setattr(on_disk, "KINDS", kinds)
    known = some(30)
    disk = Problems(known)
    assert list(disk) == known == [disk[i] for i in range(30)] and disk[3:7] == known[3:7] and disk[-1] == known[-1]
    assert [p.difficulty for p in disk] == [p.difficulty for p in known], "gone through"
    assert [type(disk[3]), type(disk[3:4][0])] == [Problem] * 2, "one that is played is a plain one"
    assert list(disk.ids()) == [p.id for p in known]
    one = next(iter(disk))
    assert one == known[0] and known[0] == one and one != known[1]
    assert to_row(one) == to_row(known[0]) and replace(one, answer="x") == replace(known[0], answer="x")
    sent = pickle.loads(pickle.dumps(next(iter(disk))))
    assert type(sent) is Problem and sent == known[0]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = one.nothing
    with pytest.raises(IndexError):
        _ = disk[30]


def test_some_of_them():
    known = some(30)
    chosen = Problems(known).where(np.array([p.env == "search" for p in known]))
    mine = [p for p in known if p.env == "search"]
    assert list(chosen) == mine and len(chosen) == len(mine) and chosen[-2] == mine[-2]
    assert list(chosen.where(np.zeros(len(mine), bool))) == [] and not Problems()


@pytest.mark.parametrize("alike", [False, True])
def test_by_name_is_a_dict(alike, monkeypatch):
    if alike:  # two ids may have the same hash
        monkeypatch.setattr(on_disk, "hash", lambda name: len(name), raising=False)
    known = some(12)
    again = [
        *known,
        replace(known[3], lineage={"root": "other"}),
        replace(known[3], lineage={"root": "last"}),
        known[7],
    ]
    want, got = {p.id: p for p in again}, ByName(Problems(again))
    assert list(got) == list(want) and list(got.values()) == list(want.values()) and len(got) == 12
    assert list(got.problems) == list(want.values()) and got.get("none") is None and "none" not in got


@pytest.mark.parametrize("name", sorted(pieces.files("curriculum")))
def test_curricula_choose_the_same_from_disk(name):
    """Every curriculum, over steps whose scores it sees, with the state that a checkpoint keeps."""
    known = some(60)
    levels = {"attempt_levels": {p.id: 1 + i % 6 for i, p in enumerate(known)}}
    told = levels | {"concentration": {p.id: math.sin(i) for i, p in enumerate(known)}}

    def draws(problems):
        state, rng, out = dict(told), np.random.default_rng(4), []
        piece = pieces.find("curriculum", name)
        for step in range(12):
            chosen = piece(problems, state, rng, 9)
            out.append(chosen)
            for i in chosen:
                state.setdefault("scores", {}).setdefault(known[i].id, []).append((i * 7 + step) % 9 / 8)
            state["latest"] = {known[i].family: [0.1 * i] for i in chosen}
            state = json.loads(json.dumps(state))
        return out, state

    assert draws(Problems(known)) == draws(known)


def test_of_a_problem_few_bytes_are_in_memory():
    plain = some(1)[0]
    text = "word " * 500

    def made(n):
        for i in range(n):
            yield replace(plain, id=f"{i:020}", prompt=(Message(role="user", content=text),), lineage={"root": text})

    Problems(made(2))
    n = 4000
    size, _ = traced(lambda: Problems(made(n)))
    buffer = 1 << 20  # of the file
    assert size < 80 * n + buffer, (size - buffer) / n
    disk = Problems(made(n))
    _, most = traced(lambda: sum(p.difficulty["level"] for p in disk))
    assert most < 80 * n + on_disk.BLOCK * 40, most / n


def test_problems_of_a_split_in_the_order_of_their_hashes():
    known = [replace(p, split="valid" if i % 3 else "train") for i, p in enumerate(some(40))]
    order = sorted(
        (p for p in known if p.split == "valid"), key=lambda p: seed_for(3, "trajectories", p.family, p.split, p.id)
    )
    assert list(by_hash(Problems(known), "valid", 3)) == order and not by_hash(Problems(known), "test", 3)
