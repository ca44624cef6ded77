"""The stage `problems`: verifiable families, every problem certified by two routes, no normal form in two splits."""

from __future__ import annotations

from collections import Counter
from typing import Any

from synth.types import Problem, Quarantined, Scored, digest
from synth.verify import extract_answer, verify
from tasks.disk import tables
from tasks.errors import UserError
from tasks.planning.pieces import Pieces
from tasks.stage import Stage


def problems(
    stage: Stage,
    *,
    families: Pieces("synth.make.families") = [  # noqa: B006 (read by ast)
        {"piece": "linear_equations", "levels": [1]},
        {"piece": "countdown", "levels": [1]},
        {"piece": "list_sorting", "levels": [1]},
    ],
    n_train: int = 1000,
    n_valid: int = 100,
    n_test: int = 150,
) -> None:
    """`n_*` problems of each family are wanted for each split; those that a certificate refuses or that were made before are set aside.

    A family that holds fewer different problems ends short after three tries for each wanted one; the card says so.
    """
    accepted: dict[str, Problem] = {}
    aside: list[Quarantined] = []
    short: dict[str, int] = {}
    finished = stage.finished("problems", Problem, Quarantined)
    for number, family in enumerate(stage.progress(families, "families")):
        for split, n in (("train", n_train), ("valid", n_valid), ("test", n_test)):
            wanted = n
            for index in range(3 * n):
                if not wanted:
                    break
                made = finished(f"{number}/{split}/{index}", lambda f=family, s=split, i=index: f(stage.seed, s, i))
                item = admit(made, accepted)
                if isinstance(item, Quarantined):
                    aside.append(item)
                else:
                    accepted[item.id] = item
                    wanted -= 1
            if wanted:
                short[f"{family.func.__name__}, {split}"] = wanted
    if not accepted:
        raise UserError(f"problems: every problem was set aside ({dict(tables.counts(aside))}): choose other families or levels")
    roots = {split: {p.lineage["root"] for p in accepted.values() if p.split == split} for split in ("train", "valid", "test")}
    if roots["train"] & roots["test"] or roots["train"] & roots["valid"] or roots["valid"] & roots["test"]:
        raise AssertionError("a normal form lies in two splits")
    tables.write(stage.out / "problems.parquet", accepted.values(), Problem)
    tables.write(stage.out / "quarantine.parquet", aside, Quarantined)
    card: dict[str, Any] = {
        "produced": len(accepted) + len(aside),
        "accepted": len(accepted),
        "quarantined": tables.counts(aside),
        "cells": dict(sorted(Counter(f"{p.family}, level {p.difficulty['level']:g}, {p.split}" for p in accepted.values()).items())),
        "short": short,
        "gates": {"certificate": "two routes agree", "solution": "scored 1 by the verifier", "splits": "disjoint by normal form"},
        "problems": digest(list(accepted)),
    }
    stage.card(card)
    stage.log({"accepted": len(accepted), "quarantined": len(aside)})


def admit(item: Problem | Quarantined, known: dict[str, Problem]) -> Problem | Quarantined:
    """The item, set aside where the same problem is known, or where its own answer or worked solution does not score 1."""
    if isinstance(item, Quarantined):
        return item
    name = f"{item.family}/{item.split}/{item.lineage['index']}"
    if item.id in known:
        return Quarantined(id=name, stage="problems", reason="duplicate", evidence=f"{item.question} is problem {item.id}, made before")
    for what, answer in (("answer", item.answer), ("solution", extract_answer(item.lineage["solution"]))):
        verdict = verify(item, answer)
        if not isinstance(verdict, Scored) or verdict.value != 1.0:
            return Quarantined(id=name, stage="problems", reason=f"wrong_{what}", evidence=f"{item.question} {what} {answer!r}: {verdict}")
    return item
