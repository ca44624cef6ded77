"""Which method can learn from rows like these, by their columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synth.demonstrations.imported import conversation
from synth.preferences.imported import Reader
from synth.testsets.layouts.plain import plain
from synth.types import Quarantined
from tasks.core.errors import UserError
from tasks.rows import files

SHORT = 80  # characters of an answer that a verifier may compare


def first(data: str) -> tuple[Mapping[str, Any], int]:
    """The first row that can be read, and how many there are (of a data set on the Hub: 10,000 are taken for granted)."""

    row, n, wrong = None, 0, ""
    for item in files.rows(data):
        n += 1
        if isinstance(item, Quarantined):
            wrong = wrong or f"{item.id}: {item.evidence}"
        elif row is None and isinstance(item[1], Mapping):
            row = item[1]
        if n == 10_000 and not Path(data).exists():
            break
    if row is None:
        raise UserError(f"{data} has no row to learn from: {wrong or 'it is empty'}")
    return row, n


def fits_of(row: Mapping[str, Any]) -> list[str]:
    """The stages that can learn from rows like this one, the likeliest first."""

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
