"""The lineage of a model: the stages above it, their data, cleaning decisions, parameters and code, back to the user's
files.

Everything is read from one state (tasks/results/snapshots.py): dvc.lock says which stage read what, the cards count
rows, the plans hold parameters and the digest of every source file. If the rows are available, the digest in the
model's own card (`trained_on`) is recomputed from them, which verifies that these are the problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from synth.types import digest
from tasks.core.errors import UserError, nearest
from tasks.results.snapshots import Snapshot
from tasks.runtime.stage import OUT

ROWS = {  # stage that trains -> the table of another stage that its card's `trained_on` names
    "sft": "artifacts/demonstrations/demonstrations.parquet",
    "reward": "artifacts/clean/pairs.parquet",
    "prefer": "artifacts/clean/pairs.parquet",
}
TRAINED = ("rl", "prefer", "reward", "sft")


def lineage(s: Snapshot, stage: str) -> dict[str, Any]:
    """{"model", "stages": [what each stage above read, made, dropped], "problems", "cleaning", "sources", "missing"} of
    one model.

    Raises UserError for a stage that trains no model, or that has not run in this state.
    """
    if stage not in TRAINED:
        raise UserError(f"the stage {stage!r} trains no model: {nearest(stage, TRAINED)}")
    if stage not in s.lock:
        raise UserError(f"{s.name} ({s.about}) has no model of the stage {stage}: it had not been run")
    missing: list[str] = []
    plans, names = s.plans(), upstream(s.lock, stage)
    places = plans.get("_run", {}).get("place", {})
    stages = [_stage(s, name, plans.get(name, {}), places.get(name, {}), missing) for name in names]
    return {
        "model": {
            "stage": stage,
            "state": s.name,
            "is": s.about,
            "commit": s.commit,
            "md5": s.digests.get(stage),
            **{k: plans.get("_run", {}).get(k) for k in ("recipe", "profile", "seed")},
        },
        "stages": stages,
        "problems": problems(s, names, plans, missing),
        "cleaning": cleaning(s) if "clean" in names else None,
        "sources": sources(s, names),
        "missing": missing,
    }


def upstream(lock: Mapping[str, Any], stage: str) -> list[str]:
    """The stage and all stages whose outputs it reads, directly or not, in the order of their dependencies. `plan` is
    left out, because all read it."""
    producers = {out["path"]: name for name, entry in lock.items() for out in entry.get("outs", [])}

    def above(name: str) -> list[str]:
        deps = [d["path"] for d in lock[name].get("deps", [])]
        return [
            by
            for out, by in producers.items()
            if by != "plan" and any(d == out or d.startswith(out + "/") for d in deps)
        ]

    seen: dict[str, None] = {}

    def visit(name: str) -> None:
        for other in above(name):
            if other not in seen:
                visit(other)
        seen[name] = None

    visit(stage)
    return list(seen)


def _stage(
    s: Snapshot, name: str, plan: Mapping[str, Any], place: Mapping[str, Any], missing: list[str]
) -> dict[str, Any]:
    """place: where it runs by the plan of this state, {} for one process of this machine; no result depends on it."""
    card = s.json(f"{OUT.get(name, f'artifacts/{name}')}/card.json")
    if card is None:
        missing.append(f"artifacts/{name}/card.json")
    entry = s.lock[name]
    return {
        "stage": name,
        "command": entry.get("cmd", ""),
        "reads": [d["path"] for d in entry.get("deps", []) if not d["path"].startswith("artifacts/plan")],
        "md5": s.digests.get(name),
        "parameters": plan.get("params", {}),
        "place": dict(place),
        "code": plan.get("sources", {}),
        "card": card or {},
    }


def problems(s: Snapshot, names: list[str], plans: Mapping[str, Any], missing: list[str]) -> dict[str, Any]:
    """How many problems of the split train the model saw, by family, by stage; `checked`: whether their digest equals
    the one in the model's card, None without a card."""
    out: dict[str, Any] = {}
    for stage in (n for n in names if n in TRAINED):
        card = s.json(f"artifacts/{stage}/card.json") or {}
        ids = dict(trained_on(s, stage, plans))
        if not ids:
            missing.append(f"the rows that {stage} was trained on")
            continue
        out[stage] = {
            "rows": len(ids),
            "by_family": dict(sorted(Counter(ids.values()).items())),
            "trained_on": card.get("trained_on"),
            "checked": digest(list(ids)) == card["trained_on"] if "trained_on" in card else None,
        }
    return out


def trained_on(s: Snapshot, stage: str, plans: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(id, family or source) of every row that a stage of this state was trained on, in order; empty if the rows are
    gone."""
    if stage == "rl":
        knobs = plans.get("rl", {}).get("params", {})
        tables = ["questions"] * knobs.get("include_questions", True) + ["problems"] * knobs.get(
            "include_families", False
        )
        for table in tables:
            for r in s.rows(f"artifacts/{table}/problems.parquet", ["id", "family", "split"]) or ():
                if r["split"] == "train":
                    yield r["id"], r["family"]
        return
    rows = s.rows(ROWS[stage]) or ()
    for r in rows:
        if stage != "sft" or r["split"] == "train":
            yield r["id"], r.get("source") or ("demonstrations with searches" if r["calls"] else "worked answers")


def sources(s: Snapshot, names: list[str]) -> list[dict[str, Any]]:
    """The user's files that the stages above read: what dvc.lock records of them and, for files that became rows, how
    many were read and kept."""
    out: dict[str, dict[str, Any]] = {}
    for name in names:
        for d in s.lock.get(name, {}).get("deps", []):
            if not d["path"].startswith("artifacts/"):
                out[d["path"]] = {"path": d["path"], "md5": d["md5"], "files": d.get("nfiles", 1)}
    for name in names:
        card = s.json(f"artifacts/{name}/card.json") or {}
        for file, n in (card.get("files") or {}).items():
            out[f"{name}: {file}"] = {"path": file, "stage": name, "rows": n}
    return list(out.values())


def cleaning(s: Snapshot) -> dict[str, Any]:
    """What the cleaners decided about the pairs, and the counts of their card."""
    card = s.json("artifacts/clean/card.json") or {}
    return {
        k: card.get(k)
        for k in ("produced", "accepted", "quarantined", "actions", "estimated_noise", "against_truth")
        if card.get(k) is not None
    }
