"""Differences between two states: parameters, code, data, scores, and the questions that only one of them answers.

Scores are compared problem by problem, on the problems that both attempted: mean difference of pass@1 with its paired
bootstrap interval, the p-value of a sign-flip test, and that value after Holm's correction for all comparisons of the
table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tasks.planning.plan import changes
from tasks.results.snapshots import Snapshot

TABLES = {  # output -> what its rows are
    "artifacts/kb/facts.parquet": "facts",
    "artifacts/questions/problems.parquet": "questions",
    "artifacts/problems/problems.parquet": "problems of families",
    "artifacts/demonstrations/demonstrations.parquet": "demonstrations",
    "artifacts/preferences/pairs.parquet": "pairs",
    "artifacts/clean/pairs.parquet": "pairs after cleaning",
}
RIGHT = 0.999


def compare(a: Snapshot, b: Snapshot, *, flips: int = 10) -> dict[str, Any]:
    """Everything as plain values: {"a", "b", "parameters", "code", "data", "quarantined", "scores", "flips", "missing"}.

    `missing` names files that could not be read, so that an empty list elsewhere always means "no difference".
    """
    before, after = a.plans(), b.plans()
    missing = sorted({f"{s.name}: artifacts/plan" for s, p in ((a, before), (b, after)) if not p})
    return {
        "a": _about(a, before),
        "b": _about(b, after),
        "parameters": parameters(before, after) if before and after else [],
        "code": code(before, after) if before and after else [],
        **data(a, b, missing),
        **scores(a, b, flips, missing),
        "missing": missing,
    }


def _about(s: Snapshot, plans: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": s.name,
        "is": s.about,
        "commit": s.commit,
        **{k: plans.get("_run", {}).get(k, "") for k in ("recipe", "profile", "seed")},
    }


def parameters(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"knob": "rl.optimizer.lr", "a", "b"} of every value that differs; None if one side lacks the knob."""
    out = [{"knob": at, "a": old, "b": new} for at, old, new in changes(before.get("_run", {}), after.get("_run", {}))]
    for stage in sorted((before.keys() | after.keys()) - {"_run"}):
        params = (plans.get(stage, {}).get("params", {}) for plans in (before, after))
        out += [{"knob": f"{stage}.{at}", "a": old, "b": new} for at, old, new in changes(*params)]
    return out


def code(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"file", "change": added | removed | changed, "stages"}: files that a stage imports on one side only, or with
    other bytes."""
    changed: dict[tuple[str, str], list[str]] = {}
    for stage in sorted(before.keys() | after.keys()):
        old, new = (plans.get(stage, {}).get("sources", {}) for plans in (before, after))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                change = "added" if name not in old else "removed" if name not in new else "changed"
                changed.setdefault((name, change), []).append(stage)
    return [{"file": file, "change": change, "stages": stages} for (file, change), stages in sorted(changed.items())]


def data(a: Snapshot, b: Snapshot, missing: list[str]) -> dict[str, Any]:
    """Differences in the rows of every table (by id) and in quarantined rows (by reason)."""
    rows, quarantined = [], []
    for name, what in TABLES.items():
        stage = name.split("/")[1]
        same = a.digests.get(stage) is not None and a.digests.get(stage) == b.digests.get(stage)
        if not same:
            ids = [s.rows(name, ["id"]) for s in (a, b)]
            missing += [
                f"{s.name}: {name}" for s, rows in zip((a, b), ids, strict=True) if rows is None and stage in s.lock
            ]
            left, right = ({r["id"] for r in rows or ()} for rows in ids)
            if left != right and None not in ids:
                rows.append(
                    {
                        "rows": what,
                        "a": len(left),
                        "b": len(right),
                        "only_a": len(left - right),
                        "only_b": len(right - left),
                    }
                )
    for stage in dict.fromkeys(name.split("/")[1] for name in TABLES):
        old, new = ((s.json(f"artifacts/{stage}/card.json") or {}).get("quarantined") for s in (a, b))
        if isinstance(old, dict) and isinstance(new, dict):
            for reason in sorted(old.keys() | new.keys()):
                if old.get(reason, 0) != new.get(reason, 0):
                    quarantined.append(
                        {"stage": stage, "reason": reason, "a": old.get(reason, 0), "b": new.get(reason, 0)}
                    )
    return {"data": rows, "quarantined": quarantined}


def scores(a: Snapshot, b: Snapshot, flips: int, missing: list[str]) -> dict[str, Any]:
    """One row per run that both states evaluated, and the questions on which their last models differ most."""
    name = "artifacts/evaluate/scores.parquet"
    tables = [s.rows(name, ["run", "model", "problem", "score"]) for s in (a, b)]
    missing += [f"{s.name}: {name}" for s, table in zip((a, b), tables, strict=True) if table is None]
    known = [t for t in tables if t is not None]
    if len(known) < 2:
        return {"scores": [], "flips": []}
    from training.metrics._tests import holm, sign_flip
    from training.metrics.paired import paired

    left, right = map(_by_run, known)
    out, last = [], None
    for run in (r for r in left if r in right):
        common = sorted(left[run].keys() & right[run].keys())
        if not common:
            continue
        old, new = ([[float(x >= RIGHT) for x in side[run][p]] for p in common] for side in (left, right))
        per_problem = paired(new, old)["difference"]
        p = sign_flip([sum(n) / len(n) - sum(o) / len(o) for n, o in zip(new, old, strict=True)])
        out.append(
            {
                "run": run,
                "a": _mean(old),
                "b": _mean(new),
                "difference": dict(per_problem),
                "p": p,
                "only_a": len(left[run]) - len(common),
                "only_b": len(right[run]) - len(common),
            }
        )
        if "," not in run:
            last = run
    for row, adjusted in zip(out, holm([r["p"] for r in out]), strict=True):
        row["p_holm"] = adjusted
    return {"scores": out, "flips": _flips(a, b, last, left, right, flips) if last else []}


def _by_run(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Run -> problem -> scores of its samples; a problem without any score is left out."""
    out: dict[str, dict[str, list[float]]] = {}
    for r in rows:
        if r["score"] is not None and not math.isnan(r["score"]):
            out.setdefault(r["run"], {}).setdefault(r["problem"], []).append(r["score"])
    return out


def _mean(values: list[list[float]]) -> float:
    return sum(sum(v) / len(v) for v in values) / len(values)


def _flips(a: Snapshot, b: Snapshot, run: str, left: Mapping, right: Mapping, n: int) -> list[dict[str, Any]]:
    """The n questions of `run` whose share of right samples differs most, from both directions evenly as far as
    possible, with what was said."""
    share = lambda side, p: sum(x >= RIGHT for x in side[run][p]) / len(side[run][p])  # noqa: E731
    moved = [(share(right, p) - share(left, p), p) for p in left[run].keys() & right[run].keys()]
    better = sorted((m for m in moved if m[0] > 0), key=lambda m: (-m[0], m[1]))
    worse = sorted((m for m in moved if m[0] < 0), key=lambda m: (m[0], m[1]))
    half = n // 2
    chosen = better[: max(half, n - len(worse))] + worse[: max(n - half, n - len(better))]
    wanted = {p for _, p in chosen}
    episodes = [
        {
            e["problem"]: e
            for e in s.lines("artifacts/evaluate/episodes.jsonl")
            if e["run"] == run and e["problem"] in wanted
        }
        for s in (a, b)
    ]
    out = []
    for _, p in chosen:
        one = episodes[0].get(p) or episodes[1].get(p) or {"messages": [], "answer": ""}
        question = next((m["content"] for m in one["messages"] if m["role"] == "user"), p)
        last = [
            next(
                (m["content"] for m in reversed(s.get(p, {"messages": []})["messages"]) if m["role"] == "assistant"), ""
            )
            for s in episodes
        ]
        out.append(
            {
                "problem": p,
                "run": run,
                "question": question,
                "reference": one["answer"],
                "a": share(left, p),
                "b": share(right, p),
                "said_a": last[0],
                "said_b": last[1],
            }
        )
    return out
