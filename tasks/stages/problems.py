"""The stage `problems`: verifiable families, every problem certified by two routes, no normal form in two splits."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations, repeat
from typing import Any

import numpy as np

from synth.external.parent import opened, problem
from synth.lookup import Lookup
from synth.types import ListDigest, Problem, Quarantined, Scored, Split
from synth.verify import extract_answer, verify
from tasks.core.errors import UserError
from tasks.rows import read
from tasks.rows.problems import problems as own_problems
from tasks.planning.families import sandbox
from tasks.planning.pieces import Piece, Pieces, Place
from tasks.runtime.stage import Stage
from tasks.storage import tables
from tasks.storage.finished import Finished

ONLY_WITH = {
    "tasks.problems.selfplay": "rounds",
    "tasks.problems.trained": "model",
}  # imported only where this knob is set: read by the plan


def problems(
    stage: Stage,
    *,
    families: Pieces("family") = [  # noqa: B006 (read by ast)
        {"piece": "linear_equations", "levels": [1]},
        {"piece": "countdown", "levels": [1]},
        {"piece": "list_sorting", "levels": [1]},
    ],
    n_train: int = 1000,
    n_valid: int = 100,
    n_test: int = 150,
    env: str = "",
    rounds: int = 0,
    proposals: int = 64,
    attempts: int = 8,
    held: int = 0,
    model: str = "",
    stop: bool = True,
    proposer: Piece("proposer") = None,
    solver: Piece("solver") = None,
    curriculum: Piece("curriculum") = None,
    pay: Piece("reward") = None,
    files: list = [],  # noqa: B006
    external: list = [],  # noqa: B006
    mix: bool = False,
    protect: list = [],  # noqa: B006
    rows_per_shard: Place() = 50_000,
    ray: Place() = "",
) -> None:
    """A family that has too few different problems gives up after three tries per wanted problem; the card says so.

    With `rounds`, self-play (docs/selfplay.md) makes the problems of the split train in place of `n_train`: a
    `proposer` proposes specs for the cells that `curriculum` wants, `solver` attempts the certified problems, and `pay`
    gives each proposal its reward.

    Args:
        families: families and their levels
        n_train: wanted problems of each family for the split train
        n_valid: the same for the split valid
        n_test: the same for the split test
        env: environment in which all are played; empty: each problem keeps its own
        rounds: rounds of self-play; 0: none
        proposals: number of specs proposed in a round
        attempts: number of attempts at each certified problem
        held: problems of each family that measure the success rate; they are never proposed
        model: folder of the model that attempts; used if there is no solver
        stop: whether self-play ends once it stops improving
        proposer: proposes problems
        solver: attempts problems; none: the model does
        curriculum: chooses the next cells of family and level
        pay: the reward of a proposal
        files: problems of your own: files, folders or data sets of the Hub (tasks/rows/problems.py has the keys)
        external: third-party environments, each an `adapter` with its options, and `python`, the interpreter that it
            runs under (docs/environments.md)
        mix: whether problems of `families` are also made, in addition to those of `files` and `external`
        protect: files whose texts must not be trained on
        rows_per_shard: rows of `files` that are in memory at once, and that a run which was ended need not read again
            (docs/scaling.md)
        ray: address of a Ray cluster whose machines draw problems of `families`: HOST:PORT, or auto (docs/scaling.md); empty: this
            machine does
    """
    own = own_problems(stage, files, protect, rows_per_shard) if files else None
    if (own or external) and not mix:
        families = []
    short: dict[str, int] = {}
    finished = stage.finished("problems", Problem, Quarantined)
    told: list[dict[str, Any]] = []
    with _kept(stage, env) as kept, _drawing(stage, families, ray, finished) as draw:
        if rounds:
            n_train = 0
            told = played(stage, kept)
        others = [External(entry) for entry in external]
        sizes: dict[Split, int] = {"train": n_train, "valid": n_valid, "test": n_test}
        for number, family in enumerate(stage.progress([*families, *others], "families")):
            for split, n in sizes.items():
                wanted, keys = n, zip(repeat(number), repeat(split), range(3 * n))
                drawn = draw(family, keys)
                while wanted and (item := next(drawn, None)) is not None:
                    wanted -= kept.add(admit(item, kept.known))
                if wanted:
                    short[f"{family.func.__name__ if isinstance(family, partial) else family.name}, {split}"] = wanted
        if own:
            for q in own.quarantined:
                kept.add(q)
            for p in own.rows:
                key = p.seen if p.env == "single" else p.id  # other environments show more than the prompt
                kept.add(_twice(p, known) if (known := kept.known.get(key)) else p, key)
        kept.check()
    card: dict[str, Any] = {
        "produced": kept.accepted.n + kept.aside.n,
        "accepted": kept.accepted.n,
        "quarantined": dict(sorted(kept.reasons.items())),
        "cells": dict(sorted(kept.cells.items())),
        "short": short,
        "gates": {
            "certificate": "two routes agree",
            "solution": "scored 1 by the verifier",
            "splits": "disjoint by normal form, and no prompt twice",
        },
        **(read.write(stage, own) if own else {}),
        **({"external": {e.name: e.version for e in others}} if others else {}),
        "problems": kept.ids.name(),
    }
    if kept.python:
        card["sandbox"] = sandbox()
        print(f"problems: Python answers run in the sandbox layer {card['sandbox']}", file=sys.stderr)
    if rounds:
        card["rounds"] = [
            {k: s[k] for k in ("success", "held", "validity", "duplicates", "reward", "weak", "stop")} for s in told
        ]
    stage.card(card)
    stage.log({"accepted": kept.accepted.n, "quarantined": kept.aside.n})


class _Kept:
    """The tables of the stage: a row is written as it comes. Of a problem 8 bytes of its root stay in memory; the key by which others
    must differ, with its split and id, is on disk.

    known: key -> split and id; ids, cells: of accepted problems; reasons: of quarantined ones; python: whether an answer is code."""

    def __init__(self, accepted: tables.Writer[Problem], aside: tables.Writer[Quarantined], env: str) -> None:
        self.accepted, self.aside, self.env = accepted, aside, env
        self.known, self.ids, self.python = Lookup[str](), ListDigest(), False
        self.cells, self.reasons = Counter[str](), Counter[str]()
        self._roots: dict[Split, array[int]] = {"train": array("q"), "valid": array("q"), "test": array("q")}

    def add(self, item: Problem | Quarantined, key: str = "") -> bool:
        """Whether it is accepted. key: of a problem, `_key` unless given."""
        if isinstance(item, Quarantined):
            self.aside.add(item)
            self.reasons[item.reason] += 1
            return False
        self.accepted.add(replace(item, env=self.env) if self.env else item)
        self.known[key or _key(item)] = f"{item.split} {item.id}"
        self.ids.add(item.id)
        self.cells[_cell(item)] += 1
        self.python |= item.verifier == "python_function"
        self._roots[item.split].append(hash(item.lineage["root"]))
        return True

    def check(self) -> None:
        """Raises UserError if there is no problem, AssertionError if a normal form is in two splits."""
        if not self.accepted.n:
            raise UserError(
                f"problems: every problem was quarantined ({dict(sorted(self.reasons.items()))}): choose other families or levels"
            )
        for one, other in combinations(self._roots.values(), 2):
            if len(np.intersect1d(np.array(one), np.array(other))):
                raise AssertionError("a normal form lies in two splits")


@contextmanager
def _kept(stage: Stage, env: str) -> Iterator[_Kept]:
    """env: in which all problems are played; empty: each keeps its own."""
    with (
        tables.Writer(stage.out / "problems.parquet", Problem) as accepted,
        tables.Writer(stage.out / "quarantine.parquet", Quarantined) as aside,
    ):
        yield _Kept(accepted, aside, env)


def _families(families: Sequence[Callable[..., Problem | Quarantined]], seed: int) -> Callable[..., Any]:
    """What a worker of a Ray cluster draws of: (number of the family, split, index) -> problem."""
    return lambda number, split, index: families[number](seed, split, index)


@contextmanager
def _drawing(
    stage: Stage, families: Sequence[Callable[..., Problem | Quarantined]], ray: str, finished: Finished
) -> Iterator[Callable[..., Iterator[Problem | Quarantined]]]:
    """What draws of a family, which one of `families` may do on the cluster `ray`: (family, keys (number, split, index)) -> problems."""

    def here(family: Callable[..., Problem | Quarantined], keys: Iterable[tuple[int, Any, int]]) -> Iterator[Any]:
        for number, split, index in keys:
            try:
                yield finished(f"{number}/{split}/{index}", lambda s=split, i=index: family(stage.seed, s, i))
            except Exhausted:
                return

    if not ray or not families:
        yield here
        return
    from tasks.runtime.ray_tasks import away, mapping

    with mapping(stage, ray) as imap:
        there = partial(away, imap, _families, (families, stage.seed), finished=finished)
        yield lambda family, keys: here(family, keys) if isinstance(family, External) else there(keys)


class Exhausted(Exception):
    """Raised when an environment has no more problems of a split."""


class External:
    """An environment of the knob `external`, used as a family of problems. Raises UserError if it does not start."""

    def __init__(self, entry: Any) -> None:
        if not isinstance(entry, dict):
            raise UserError(
                f"problems.external: {entry!r} is no entry: write {{adapter: reasoning_gym, task: chain_sum}} in its place"
            )
        try:
            self.entry, started = entry, opened(entry)
        except UserError as e:
            raise UserError(f"problems.external: {e}") from e
        self.name, self.version = started.name, started.version

    def __call__(self, seed: int, split: Split, index: int) -> Problem | Quarantined:
        if (drawn := problem(self.entry, seed, split, index)) is None:
            raise Exhausted
        return drawn


def _key(p: Problem) -> str:
    """The key by which problems must differ: the prompt or, for episodes, which may all begin alike, the whole
    problem."""
    return p.id if p.lineage.get("turns") else p.seen


def _cell(p: Problem) -> str:
    level = f", level {p.difficulty['level']:g}" if "level" in p.difficulty else ""
    return f"{p.family}{level}, {p.split}"


def _twice(p: Problem, known: str, place: str = "") -> Quarantined:
    """known: of `_Kept`."""
    split, _, name = known.partition(" ")
    return Quarantined(
        id=place or str(p.lineage.get("place", p.id)),
        stage="problems",
        reason="duplicate",
        evidence=f"{p.question} is shown by problem {name} of the split {split} too",
    )


def played(stage: Stage, kept: _Kept) -> list[dict[str, Any]]:
    """Plays the rounds of self-play, and adds what they certified and quarantined. The ledger is in the work folder, so
    that a killed run resumes from it."""
    from tasks.problems import selfplay as loop

    solver = None
    if model := stage.params["model"]:
        from tasks.problems.trained import model_solver

        solver = model_solver(model)
    stage.out.mkdir(parents=True, exist_ok=True)
    running = loop.loop(stage.params, seed=stage.seed, ledger=stage.work / "ledger.db", solver=solver)
    told = []
    for summary, line in loop.played(running):
        told.append(summary)
        stage.log({k: v for k, v in summary.items() if isinstance(v, float)}, step=summary["round"])
        print(line, file=sys.stderr)
    for p in running.accepted.values():
        kept.add(admit(p, kept.known))
    for number, place, body in running.ledger.rows("certificate"):
        if "quarantined" in body:
            kept.add(Quarantined(**{**body["quarantined"], "id": f"round {number}/{place}"}))
    with (stage.out / "rounds.jsonl").open("w", encoding="utf-8") as f:
        f.writelines(json.dumps(s, sort_keys=True) + "\n" for s in told)
    target = getattr(stage.params["curriculum"], "keywords", {}).get("target", 0.5)
    (stage.out / "rounds.svg").write_text(loop.plot(told, target), encoding="utf-8")
    running.ledger.close()
    return told


def admit(item: Problem | Quarantined, known: Mapping[str, str]) -> Problem | Quarantined:
    """The item; quarantined if its prompt is known (`known`: of `_Kept`), or if its own
    answer or worked solution does not score 1."""
    if isinstance(item, Quarantined):
        return item
    name = f"{item.family}/{item.split}/{item.lineage['index']}"
    if earlier := known.get(_key(item)):
        return _twice(item, earlier, name)
    if item.verifier == "external" and not item.lineage["solution"]:
        return item  # an environment without reference answers
    for what, answer in (("answer", item.answer), ("solution", extract_answer(item.lineage["solution"]))):
        verdict = verify(item, answer)
        if not isinstance(verdict, Scored) or verdict.value != 1.0:
            return Quarantined(
                id=name,
                stage="problems",
                reason=f"wrong_{what}",
                evidence=f"{item.question} {what} {answer!r}: {verdict}",
            )
    return item
