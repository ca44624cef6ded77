"""Guesses from the columns which method can learn from rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
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
TEMPLATE = 64  # tokens that a chat template may put around a row
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
    with suppress(ValueError):
        Reader(name="").layout(list(row))
        stages.append("prefer")
    if not fault(row, "sft"):
        stages.append("sft")
    with suppress(ValueError):
        problem = plain(row, 0)
        short = len(problem.answer) <= SHORT and "\n" not in problem.answer
        talk = any(k in row for k in ("messages", "conversations", "completion", "response", "instruction", "output"))
        stages.insert(0 if short and not stages[:1] == ["prefer"] and not talk else len(stages), "rl")
    return stages


def fault(row: Any, stage: str = "") -> str:
    """What is wrong with a row for the stage that learns (sft or rl), as "reason: evidence"; "" if it can be used. Without a
    stage: of the first whose columns the row has; "" if it has those of none."""
    if not stage:
        return next((reason for s in READ if (reason := fault(row, s)) and not reason.startswith("missing_")), "")
    try:
        if not isinstance(row, Mapping):
            raise ValueError(f"not_an_object: {row!r:.200}")
        READ[stage](row)
    except ValueError as e:
        return str(e)
    return ""


def unusable(data: str, stage: str) -> tuple[int, list[Quarantined]]:
    """How many of the first rows were looked at, and those of them that the stage that learns (sft, prefer, rl) will not
    get: a missing cell, a line that is not JSON, equal sides."""
    looked = list(islice(files.rows(data), LOOKED_AT))
    if stage == "prefer":
        pairs: Iterable[Any] = Reader(name=Path(data).name).pairs(iter(looked))
        return len(looked), [item for item in pairs if isinstance(item, Quarantined)]
    bad = []
    for item in looked:
        if isinstance(item, Quarantined):
            bad.append(item)
        elif why := fault(item[1], stage):
            reason, _, evidence = why.partition(": ")
            bad.append(Quarantined(id=item[0], stage=stage, reason=reason, evidence=evidence or reason))
    return len(looked), bad


def tokens(root: Path, plans: Mapping[str, Any]) -> dict[str, float]:
    """Stage that learns from the user's rows alone -> the most tokens that their first rows have in the mean, since a
    token takes a byte or more; without the stages whose files are not here."""
    out: dict[str, float] = {}
    for reads, learns in (("demonstrations", ["sft"]), ("preferences", ["reward", "prefer"])):
        knobs = plans.get(reads, {}).get("params", {})
        named = [root / (one["path"] if isinstance(one, Mapping) else one) for one in knobs.get("files") or ()]
        if not named or knobs.get("mix") or not all(path.exists() for path in named):
            continue
        means = [_bytes(str(path)) + TEMPLATE for path in named]
        out |= dict.fromkeys(learns, max(means))
    return out


def _bytes(data: str) -> float:
    """Bytes of a row, in the mean of the first ones."""
    looked = [item[1] for item in islice(files.rows(data), LOOKED_AT) if not isinstance(item, Quarantined)]
    return sum(len(json.dumps(row, ensure_ascii=False, default=str).encode()) for row in looked) / max(1, len(looked))


READ = {"sft": conversation, "rl": lambda row: plain(row, 0)}
