"""Decisions of a person about preference pairs, as `espalier review` writes them, and the pairs that they are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from synth.types import Decision, Message, PreferencePair, digest
from tasks.core.errors import UserError
from tasks.storage import tables


def decisions(path: Path) -> dict[str, dict[str, Any]]:
    """Pair id -> the last decision about it; {} if there is no file. Raises UserError for a line that is not a
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
                break  # a line that was being written when the machine crashed
            raise UserError(
                f"{path}, line {n}, is not a decision of `espalier review` ({e}): remove the line"
            ) from None
    return out


def anchors(path: Path) -> dict[str, int]:
    """Pair id -> 1 (the label is right) or -1 (it is wrong), for every pair that a person decided about."""
    return {i: d["label"] for i, d in decisions(path).items() if d["label"] in (1, -1)}


def is_flipped(pair: PreferencePair) -> bool:
    """Whether cleaners have swapped the pair's sides: if there is a policy, only its decision counts."""
    spoken = [d for d in pair.decisions if d.step == "policy"] or pair.decisions
    return sum(d.action == "flip" for d in spoken) % 2 == 1


def content(pair: PreferencePair) -> str:
    """A key made of what a person saw of a pair and of its original label, independent of file and line."""
    sides = [pair.rejected, pair.chosen] if is_flipped(pair) else [pair.chosen, pair.rejected]
    return digest([[m.role, m.content] for m in pair.prompt], *sides)[:20]


def anchored(path: Path, pairs: Sequence[PreferencePair]) -> tuple[list[PreferencePair], int]:
    """The pairs, those that a person decided about with the column `anchor` (and `anchor_asked` where a cleaner had
    asked), and their number. A decision is found by the id of its pair, or by its content: the same file cleaned by a
    command and by a pipeline gives other ids."""
    reviews = Reviews(path)
    return list(map(reviews.about, pairs)), reviews.n


class Reviews:
    """What a person decided about pairs; n: the pairs that `about` has found so far. path: None for no decisions."""

    def __init__(self, path: Path | None) -> None:
        decided = {i: d for i, d in decisions(path).items() if d["label"] in (1, -1)} if path else {}
        self.n, self._known = 0, {d["content"]: d for d in decided.values() if "content" in d} | decided

    def about(self, pair: PreferencePair) -> PreferencePair:
        """The pair, as `anchored` gives it."""
        known = self._known
        decision = (known.get(pair.id) or known.get(content(pair))) if known else None
        if not decision:
            return pair
        self.n += 1
        return replace(pair, columns={**pair.columns, **_anchor(decision)})


def _anchor(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {"anchor": decision["label"], **({"anchor_asked": True} if decision.get("drawn") == "asked" else {})}


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
            why = f"it has no {e}" if isinstance(e, KeyError) else str(e)
            raise UserError(
                f'{path}, line {n}, is no pair ({why}): write {{"prompt": ..., "chosen": ..., "rejected": ...}}'
            ) from None
        pair = PreferencePair.make(
            prompt=messages, chosen=sides[0], rejected=sides[1], source=row.get("source", path.name), split="train"
        )
        if isinstance(row.get("id"), str):  # of asked.jsonl and its neighbours: the id that the cleaned pair had
            pair = replace(pair, id=row["id"])
        if (reasons := row.get("reasons")) and reasons[-1].get("action") == "ask":
            pair = replace(pair, decisions=tuple(Decision(**d) for d in reasons))
        out.append(pair)
    return out
