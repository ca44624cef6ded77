"""Decisions of a person about preference pairs, as `espalier review` writes them, and the pairs that they are about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synth.types import Message, PreferencePair
from tasks.errors import UserError
from tasks.storage import tables


def decisions(path: Path) -> dict[str, dict[str, Any]]:
    """Pair id -> the last decision about it; {} where there is no file. Raises UserError for a line that is no
    decision."""
    out: dict[str, dict[str, Any]] = {}
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n") if path.exists() and path.stat().st_size else []
    for n, line in enumerate(lines, 1):
        try:
            decision = json.loads(line)
            out.pop(decision["id"], None)
            if decision["verdict"] != "undone":
                out[decision["id"]] = {**decision, "label": decision["label"]}
        except (ValueError, KeyError, TypeError) as e:
            if n == len(lines):
                break  # a line that was being written when the machine went down
            raise UserError(f"{path}, line {n}, is no decision of `espalier review` ({e}): remove the line") from None
    return out


def anchors(path: Path) -> dict[str, int]:
    """Pair id -> 1 (the label is right) or -1 (it is wrong), of every pair that a person decided about."""
    return {i: d["label"] for i, d in decisions(path).items() if d["label"] in (1, -1)}


def read(path: Path) -> list[PreferencePair]:
    """The pairs of a Parquet table of pairs, or of a JSONL file whose objects have prompt, chosen and rejected."""
    if not path.exists():
        raise UserError(f"{path} does not exist: name a file of pairs, for example artifacts/clean/pairs.parquet")
    if path.suffix == ".parquet":
        return tables.read(path, PreferencePair)
    out = []
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            prompt = row["prompt"] if isinstance(row["prompt"], list) else [{"role": "user", "content": row["prompt"]}]
            messages = tuple(Message(role=m["role"], content=m["content"]) for m in prompt)
            sides = [s if isinstance(s, str) else s[-1]["content"] for s in (row["chosen"], row["rejected"])]
        except (ValueError, KeyError, TypeError, IndexError) as e:
            raise UserError(
                f'{path}, line {n}, is no pair ({e!r}): write {{"prompt": ..., "chosen": ..., "rejected": ...}}'
            ) from None
        out.append(
            PreferencePair.make(
                prompt=messages, chosen=sides[0], rejected=sides[1], source=row.get("source", path.name), split="train"
            )
        )
    return out
