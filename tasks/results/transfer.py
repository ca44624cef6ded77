"""Train domain × test domain: how much models that were each trained on one domain gain on all domains.

Every state holds one model, trained on the domain that names the state; the first is the model before training. Test
domains are families and the user's test sets; the questions count as one domain. The numbers are those of
training/metrics/transfer.py, problem by problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tasks.core.errors import UserError
from tasks.results.snapshots import Snapshot
from training.metrics.transfer import transfer as metric


def transfer(base: Snapshot, trained: Sequence[Snapshot], model: str) -> dict[str, Any]:
    """{"domains", "trained", "cells": {"a->b": metric}, "own", "others", "ratio"}: a domain is the model's own if it
    has the name of the state.

    Raises UserError if a state has no scores of the model, or if no problem is common to all states.
    """
    tables = {"": _scores(base, model)} | {s.name: _scores(s, model) for s in trained}
    common = set.intersection(*(set(t) for t in tables.values()))
    if not common:
        raise UserError(
            f"no problem was asked in all of {', '.join([base.name, *(s.name for s in trained)])}: evaluate them on the same ones"
        )
    scored, models, tested = [], [], []
    for key in sorted(common):
        samples = [(name, x) for name, table in tables.items() for x in table[key]]
        scored.append([x for _, x in samples])
        models.append([name for name, _ in samples])
        tested.append([key[0]] * len(samples))
    measured = metric(scored, models, tested)
    return {
        "domains": sorted({domain for domain, _ in common}),
        "trained": [s.name for s in trained],
        "cells": {k: v for k, v in measured.items() if "->" in k},
        **{k: v for k, v in measured.items() if "->" not in k},
    }


def _scores(s: Snapshot, model: str) -> dict[tuple[str, str], list[float]]:
    """(domain, problem) -> scores of the model's samples, without the blanked search, decoders and merges."""
    rows = s.rows("artifacts/evaluate/scores.parquet", ["run", "model", "family", "problem", "score", "blanked"])
    if rows is None:
        raise UserError(f"{s.name} ({s.about}) has no scores that can be had: evaluate it, or `dvc fetch`")
    out: dict[tuple[str, str], list[float]] = {}
    for r in rows:
        if ", decoded by " in r["run"] or r["run"].startswith("merged by "):
            continue
        if r["model"] == model and not r["blanked"] and r["score"] is not None and not math.isnan(r["score"]):
            out.setdefault((r["family"], r["problem"]), []).append(r["score"])
    if not out:
        raise UserError(
            f"{s.name} ({s.about}) has no scores of the model {model!r}: it is not among evaluate.models there"
        )
    return out
