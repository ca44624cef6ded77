"""Guesses from the columns which method can learn from rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from synth.demonstrations.imported import conversation
from synth.preferences.imported import Reader
from synth.testsets.layouts.plain import plain
from synth.types import Quarantined
from tasks.core.errors import UserError
from tasks.rows import files

LOOKED_AT = 1000  # one of this many first rows must be usable
SHORT = 80  # most characters of an answer that a verifier compares


def first(data: str) -> tuple[Mapping[str, Any], int]:
    """The first row that a stage can learn from (else the first of all), and how many rows there are (of a data set on the
    Hub: 10,000 are taken for granted)."""

    row, n, wrong, fits = None, 0, "", False
    for item in files.rows(data):
        n += 1
        if isinstance(item, Quarantined):
            wrong = wrong or f"{item.id}: {item.evidence}"
        elif isinstance(item[1], Mapping) and not fits and n <= LOOKED_AT:
            fits = bool(fits_of(item[1]))
            row = item[1] if fits or row is None else row
        if n == 10_000 and not Path(data).exists():
            break
    if row is None:
        raise UserError(f"{data} has no row to learn from: {wrong or 'it is empty'}")
    return row, n


def fits_of(row: Mapping[str, Any]) -> list[str]:
    """The stages that can learn from rows like this one, the most likely first."""

    stages = []
    try:
        Reader(name="").layout(list(row))
        stages.append("prefer")
    except ValueError:
        pass
    try:
        messages = conversation(row)
        stages.append("sft")
    except ValueError:
        messages = ()
    try:
        problem = plain(row, 0)
        short = len(problem.answer) <= SHORT and "\n" not in problem.answer
        talk = any(k in row for k in ("messages", "conversations", "completion", "response", "instruction", "output"))
        stages.insert(0 if short and not stages[:1] == ["prefer"] and not talk else len(stages), "rl")
    except ValueError:
        pass
    return stages if messages or stages else []


def unusable(data: str, stage: str) -> tuple[int, list[Quarantined]]:
    """How many of the first rows were looked at, and those of them that the stage that learns (sft, prefer, rl) will not
    get: a missing cell, a line that is not JSON, equal sides."""
    looked = list(islice(files.rows(data), LOOKED_AT))
    if stage == "prefer":
        made: Iterable[Any] = Reader(name=Path(data).name).pairs(iter(looked))
        return len(looked), [item for item in made if isinstance(item, Quarantined)]
    bad = []
    for index, item in enumerate(looked):
        if isinstance(item, Quarantined):
            bad.append(item)
            continue
        place, row = item
        try:
            if not isinstance(row, Mapping):
                raise ValueError(f"not_an_object: {row!r:.200}")
            conversation(row) if stage == "sft" else plain(row, index)
        except ValueError as e:
            reason, _, evidence = str(e).partition(": ")
            bad.append(Quarantined(id=place, stage=stage, reason=reason, evidence=evidence or reason))
    return len(looked), bad


def fault_of(row: Mapping[str, Any]) -> str:
    """Why a row with the columns of a layout cannot be used; "" if no layout has its columns."""
    for read in (conversation, lambda r: plain(r, 0)):
        try:
            read(row)
        except ValueError as e:
            if not str(e).startswith("missing_"):
                return str(e)
    return ""
