"""`problems` and `questions` write a row as it is made, and keep none."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from traced import traced

from synth.questions.entity_tree import each_question, entity_tree
from synth.types import Problem, Quarantined, Split
from tasks.core.errors import UserError
from tasks.planning.pieces import bind
from tasks.runtime.stage import Stage
from tasks.stages.problems import _Kept, admit, problems
from tasks.stages.questions import _Chains
from tasks.storage import tables
from tasks.storage.finished import Finished

FAMILY = bind("synth.families", {"piece": "list_sorting", "levels": [1, 2]})


class Alive:
    """Calls `make`; most: of the values that it gave how many were alive at once when the next was wanted."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make, self.made, self.most = make, list[weakref.ref[Any]](), 0

    def __call__(self, *of: Any) -> Any:
        self.most = max(self.most, sum(one() is not None for one in self.made))
        item = self.make(*of)
        self.made.append(weakref.ref(item))
        return item


def drawn(seed, split, index) -> Problem | Quarantined:
    """Every fifth problem of a split is its first again."""
    return FAMILY(seed, split, 0 if index % 5 == 4 else index)


def test_of_problems_none_is_held(tmp_path):
    family, stage = Alive(drawn), Stage("problems", plan={"seed": 1, "params": {}}, root=tmp_path, deps=[])
    with stage.running():
        problems(stage, families=[partial(family)], n_train=60, n_valid=4, n_test=4)
    kept = tables.read(stage.target / "problems.parquet", Problem)
    assert [p.split for p in kept] == ["train"] * 60 + ["valid"] * 4 + ["test"] * 4 and family.most <= 2
    again = [q for q in tables.read(stage.target / "quarantine.parquet", Quarantined) if q.reason == "duplicate"]
    assert len(family.made) >= 68 + len(again) > 80
    first = kept[0]
    assert again[0].evidence == f"{first.question} is shown by problem {first.id} of the split train too"


def test_a_normal_form_in_two_splits_is_found(tmp_path):
    def twice(seed, split, index) -> Problem | Quarantined:
        p = FAMILY(seed, split, index)
        return replace(p, lineage={**p.lineage, "root": f"{index}"}) if isinstance(p, Problem) else p

    stage = Stage("problems", plan={"seed": 1, "params": {}}, root=tmp_path, deps=[])
    with pytest.raises(AssertionError, match="two splits"), stage.running():
        problems(stage, families=[partial(twice)], n_train=9, n_valid=4, n_test=4)


def question(split, hops, i) -> Problem | Quarantined | None:
    if i % 4 == 3:
        return Quarantined(id=f"{i}", stage="questions", reason="too_long", evidence="")
    lineage = {"structure": f"{split}{hops}{i % 5}"}
    return Problem.make(
        prompt=f"{split} {hops} {i}?", answer="a", verifier="exact", family="entity_tree", split=split, lineage=lineage
    )


def test_of_many_questions_some_are_searched_for(monkeypatch):
    """The share of the card is of the first of each number of hops, and the cells count all."""
    asked = []
    monkeypatch.setattr("tasks.stages.questions.SEARCHED", 3)
    chains = _Chains(lambda text: asked.append(text) or ("a" if len(asked) % 2 else "nothing found"))  # type: ignore[arg-type]
    for split, hops in (("train", 1), ("train", 2), ("test", 1)):
        for i in (0, 1, 2, 4):
            item = question(split, hops, i)
            assert isinstance(item, Problem)
            chains.seen(replace(item, difficulty={"hops": hops, "clues": 1}, args={"aliases": ()}))
    assert asked == [f"train {hops} {i}?" for hops in (1, 2) for i in (0, 1, 2)]
    assert chains.one_search_answers() == {"1 hops": 0.6667, "2 hops": 0.3333}
    assert chains.cells == {("train", 1): 4, ("train", 2): 4, ("test", 1): 4}


def test_of_questions_none_is_held():
    trees = Alive(question)
    counts: dict[tuple[Split, int], int] = {("train", 1): 5, ("test", 2): 5}
    rows = [(x.id, type(x)) for x in each_question(trees, counts)]
    assert trees.most <= 2 and len(rows) == 18
    accepted, quarantined = entity_tree(question, counts)
    assert [name for name, kind in rows if kind is Problem] == [p.id for p in accepted] and len(accepted) == 10
    assert [name for name, kind in rows if kind is Quarantined] == [q.id for q in quarantined]
    twice = [q for q in quarantined if q.reason == "duplicate"]
    assert twice[0].evidence == f"train 1 5? | as {accepted[0].id}: train 1 0?"


def test_of_finished_rows_none_is_held(tmp_path):
    for _ in range(2):  # the second time they are read
        finished, make = Finished(tmp_path / "rows.jsonl", Problem, Quarantined), Alive(question)
        read = Alive(lambda i, finished=finished, make=make: finished(f"{i}", lambda: make("train", 1, i)))
        for i in range(20):
            assert read(i) == question("train", 1, i)
        assert read.most <= 1 and set(finished.keys()) == {f"{i}" for i in range(20)}
    assert not make.made


def held(run: Callable[[int], Any]) -> float:
    """Bytes of Python's objects that stay for each further row; run(n) makes n rows and gives what must stay."""
    run(10)  # what is imported late is there
    few, many = (traced(lambda n=n: run(n))[0] for n in (500, 1500))
    return (many - few) / 1000


def test_keys_of_rows_are_on_disk(tmp_path):
    def finished(n):
        rows = Finished(tmp_path / f"{n}.jsonl", Problem, Quarantined)
        for i in range(n):
            rows(f"train/1/{i}", lambda i=i: question("train", 1, i))
        return rows

    def different(split, hops, i):
        p = question(split, hops, 4 * i)
        assert isinstance(p, Problem)
        return replace(p, lineage={"structure": f"{i:020d}"})

    def asked(n):
        rows = each_question(different, {("train", 1): n + 1})
        for _ in range(n):
            next(rows)
        return rows  # with what it knows

    def shown(n):
        sink: Any = Sink()
        kept = _Kept(sink, sink, "")
        for i in range(n):
            p = replace(different("train", 1, i), lineage={"root": f"{i}"})
            assert kept.add(
                admit(replace(p, verifier="external", lineage={**p.lineage, "index": i, "solution": ""}), kept.known)
            )
        return kept

    for run in (finished, asked, shown):
        assert held(run) < 60, run.__name__


class Sink:
    """A table that is not written."""

    n = 0

    def add(self, value: Any) -> None:
        self.n += 1


def test_rows_that_are_damaged_while_they_are_in_use(tmp_path):
    path = tmp_path / "rows.jsonl"
    finished = Finished(path, Problem, Quarantined)
    finished("a", lambda: question("train", 1, 1))
    path.write_bytes(path.read_bytes().replace(b"train", b"brain"))
    with pytest.raises(UserError, match=r"rows.jsonl was damaged while it was in use: run the stage again"):
        finished("a", lambda: question("train", 1, 1))
