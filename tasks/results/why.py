"""Why a row was kept or dropped: everything that any stage recorded about it, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.errors import UserError
from tasks.results.snapshots import Snapshot

TABLES = {  # stage -> tables of rows with an id, in the order in which rows pass through them
    "kb": ("facts", "quarantine"),
    "questions": ("problems", "quarantine"),
    "problems": ("problems", "own", "quarantine"),
    "demonstrations": ("demonstrations", "own", "quarantine"),
    "preferences": ("pairs", "own", "quarantine", "truth"),
    "clean": ("decisions", "pairs", "removed", "quarantine"),
}
LEAST = 5  # least characters that count as the beginning of an id


@dataclass(frozen=True)
class Event:
    """The entry of one table about one row: its `columns`, with JSON parsed."""

    stage: str
    table: str
    id: str
    columns: Mapping[str, Any]


def why(s: Snapshot, row: str) -> list[Event]:
    """Every event about the one row whose id is `row` or begins with it, or whose question or evidence contains the
    text.

    Raises UserError if no row matches, or if several do: it then names their ids.
    """
    tables = dict(_tables(s))
    if not tables:
        raise UserError(f"{s.name} ({s.about}) holds no rows: no data stage has run there")
    ids = {i for rows in tables.values() for i in rows if i == row or (len(row) >= LEAST and i.startswith(row))}
    if row in ids:
        ids = {row}
    if not ids:
        ids = {i for rows in tables.values() for i, rows_at in rows.items() if any(_holds(r, row) for r in rows_at)}
    if not ids:
        raise UserError(
            f"no row of {s.name} has the id {row!r}, or that text in its question or evidence: ids stand in artifacts/<stage>/*.parquet"
        )
    if len(ids) > 1:
        some = [f"{i} ({_what(tables, i)})" for i in sorted(ids)[:10]]
        raise UserError(
            f"{len(ids)} rows match {row!r}: name one of {'; '.join(some)}{'; ...' if len(ids) > 10 else ''}"
        )
    one = ids.pop()
    return [Event(stage, table, one, r) for (stage, table), rows in tables.items() for r in rows.get(one, ())]


def relatives(s: Snapshot, problem: str) -> dict[str, list[dict[str, Any]]]:
    """The rows made from a problem: its demonstrations, its pairs, and its scores by run."""
    out: dict[str, list[dict[str, Any]]] = {}
    for stage, table in (("demonstrations", "demonstrations"), ("clean", "pairs"), ("clean", "removed")):
        rows = s.rows(f"artifacts/{stage}/{table}.parquet") or []
        if mine := [r for r in rows if r["problem"] == problem]:
            out[f"{stage}/{table}"] = mine
    scores = s.rows("artifacts/evaluate/scores.parquet", ["run", "problem", "score", "outcome"]) or []
    runs: dict[str, list[dict[str, Any]]] = {}
    for r in scores:
        if r["problem"] == problem:
            runs.setdefault(r["run"], []).append(r)
    if runs:
        out["scores"] = [
            {"run": run, "samples": len(rs), "right": sum(r["outcome"] == "right" for r in rs)}
            for run, rs in runs.items()
        ]
    return out


def _tables(s: Snapshot) -> Iterator[tuple[tuple[str, str], dict[str, list[dict[str, Any]]]]]:
    for stage, names in TABLES.items():
        for name in names:
            rows = s.rows(f"artifacts/{stage}/{name}.parquet")
            if rows is not None:
                by_id: dict[str, list[dict[str, Any]]] = {}
                for r in rows:
                    by_id.setdefault(r["id"], []).append(r)
                yield (stage, name), by_id


def _holds(row: Mapping[str, Any], text: str) -> bool:
    wanted = text.casefold()
    return any(wanted in str(row[c]).casefold() for c in ("prompt", "messages", "evidence", "span") if c in row)


def _what(tables: Mapping[tuple[str, str], Mapping[str, Any]], i: str) -> str:
    stage, table = next(at for at, rows in tables.items() if i in rows)
    r = tables[stage, table][i][0]
    text = question(r) or str(r.get("place") or r.get("evidence") or r.get("span") or "")
    return f"{stage}/{table}: {text[:70]}"


def question(row: Mapping[str, Any]) -> str:
    """The text of the last user message of a row, "" if it has none."""
    messages = json.loads(row.get("prompt") or row.get("messages") or "[]")
    return next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
