"""A small preview of a stage: its first rows with their proofs, and how long the whole will take, before anything runs
at full size.

The stage's own function runs with the current parameters of params.yaml, scaled down, in a temporary folder; nothing
below artifacts/ is touched. Its inputs are taken from artifacts/ if they were made with the current parameters, and are
otherwise made in small too.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from synth.knowledge.kb import Fact
from synth.types import Demonstration, PreferencePair, Problem, Quarantined
from tasks.core import errors
from tasks.core.errors import UserError, nearest
from tasks.knowledge.knowledge import read_kb
from tasks.planning import pieces, plan
from tasks.results.proofs import Proof, Proofs, talk
from tasks.runtime.stage import Stage, graph
from tasks.storage import commit, tables

Small = Callable[
    [Mapping[str, Any], int], dict[str, Any]
]  # (parameters of the whole, rows wanted) -> parameters of the preview


def _each(n: int, parts: int) -> int:
    return max(1, math.ceil(n / max(1, parts)))


SMALL: dict[str, Small] = {
    "kb": lambda p, n: {},
    "questions": lambda p, n: {"n_train": n, "n_valid": 0, "n_test": 0},
    "problems": lambda p, n: {"n_train": _each(n, len(p["families"])), "n_valid": 0, "n_test": 0},
    "demonstrations": lambda p, n: {"n": n - n // 4, "n_valid": 0, "n_family": max(1, n // 12)},
    "preferences": lambda p, n: {"n_family": max(1, n // 6), "n_valid": 0, "sampled_problems": 0},  # no model is asked
    "clean": lambda p, n: {},
}
ROWS: dict[str, tuple[str, type]] = {  # stage -> its table, and what a row is
    "kb": ("facts", Fact),
    "questions": ("problems", Problem),
    "problems": ("problems", Problem),
    "demonstrations": ("demonstrations", Demonstration),
    "preferences": ("pairs", PreferencePair),
    "clean": ("pairs", PreferencePair),
}
ENOUGH = {
    "clean": 400,
    "preferences": 3,
    "demonstrations": 2,
}  # the upstream stages are made with this many times the rows of the preview


@dataclass(frozen=True)
class Preview:
    """rows: (text lines, proof) of each row shown. made, quarantined: numbers of rows, and of those quarantined by reason, with
    examples.

    seconds: of the stage alone; whole: seconds that the stage at full size takes at this rate, None if it was run
    whole.
    """

    stage: str
    rows: tuple[tuple[tuple[str, ...], Proof], ...]
    made: int
    quarantined: Mapping[str, int]
    examples: tuple[str, ...]
    seconds: float
    whole: float | None
    reused: tuple[str, ...]
    seed: int


def preview(
    root: Path, stage: str, n: int = 20, changed: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> Preview:
    """The first `n` rows of a data stage. changed: as of `plan.plans`. Raises UserError for a stage without rows, and whatever the stage itself
    refuses."""
    if stage not in SMALL:
        raise UserError(
            f"`preview` shows rows of the stages that make data, and {stage!r} is none: {nearest(stage, SMALL)}"
        )
    if n < 1:
        raise UserError(f"preview -n {n}: ask for at least one row")
    plans, known = plan.plans(root, changed), plan.written(root)
    folder = Path(tempfile.mkdtemp(prefix="espalier-preview-"))
    try:
        if (root / "data").exists():
            (folder / "data").symlink_to((root / "data").resolve())
        reused: list[str] = []
        for other in _above(root, stage):
            here = root / "artifacts" / other
            if known.get(other) == plans[other] and (here / commit.MANIFEST).exists():
                (folder / "artifacts").mkdir(exist_ok=True)
                (folder / "artifacts" / other).symlink_to(here.resolve())
                reused.append(other)
            else:
                _run(folder, other, plans[other], n * ENOUGH.get(stage, 1) if stage != "clean" else ENOUGH["clean"])
        seconds = _run(folder, stage, plans[stage], n)
        whole = _whole(folder, stage, plans[stage], n)
        return _read(folder, stage, plans[stage], n, seconds, whole, tuple(reused))
    finally:
        shutil.rmtree(folder)


def _above(root: Path, stage: str) -> list[str]:
    """The stages that a stage reads, directly or not, in the order of the graph."""
    edges = graph(root)
    if stage not in edges:
        raise UserError(f"{root} holds no dvc.yaml with the stage {stage}: change to a project")
    wanted = {stage}
    for name in reversed(list(edges)):
        if name in wanted:
            wanted |= {
                d.split("/")[1]
                for d in edges[name].get("deps", [])
                if d.startswith("artifacts/") and not d.startswith("artifacts/plan")
            }
    return [n for n in edges if n in wanted & SMALL.keys() - {stage}]


def _whole(folder: Path, stage: str, full: Mapping[str, Any], n: int) -> float | None:
    """Predicted seconds of the stage at full size: a fixed cost plus a cost per row. The rate is measured on larger
    runs, because the first rows fill caches that later rows use. None if the preview was the whole. The preview itself
    is made last, so that its files remain."""
    if not SMALL[stage](full["params"], n):
        return None
    sizes, took = [n * 10, n * 30], []
    for size in sizes:
        took.append(_run(folder, stage, full, size))
        if took[-1] > 1.5:
            break
    less = _run(folder, stage, full, n)
    at = [
        (_wanted({**full["params"], **SMALL[stage](full["params"], m)}), t)
        for m, t in zip([n, *sizes], [less, *took], strict=False)
    ]
    (few, fast), (many, slow) = at[-2:]
    return slow + max(0.0, slow - fast) / max(1, many - few) * max(0, _wanted(full["params"]) - many)


def _wanted(params: Mapping[str, Any]) -> int:
    """The number of rows that a stage is asked for; rows per family are counted for every family."""
    families = len(
        params.get("families", "111")
    )  # the stage `problems` has three families by default, and other stages read its table
    return sum(
        v * (families if k == "n_family" or "families" in params else 1)
        for k, v in params.items()
        if k == "n" or k.startswith("n_")
    )


def _run(folder: Path, name: str, full: Mapping[str, Any], n: int) -> float:
    """The seconds of the stage's own work."""
    less = {**full, "params": {**full["params"], **SMALL[name](full["params"], n)}}
    stage = Stage(name, plan=less, root=folder)
    with stage.running():
        pieces.open_own()
        params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
        function = getattr(import_module(f"tasks.stages.{name}"), name)
        begin = time.monotonic()
        try:
            function(stage, **params)
        except Exception as e:
            if message := errors.sentence(name, e):
                raise UserError(message) from e
            raise
        return time.monotonic() - begin


def _read(
    folder: Path, stage: str, full: Mapping[str, Any], n: int, seconds: float, whole: float | None, reused: tuple
) -> Preview:
    at = folder / "artifacts"
    name, cls = ROWS[stage]
    table = tables.read(at / stage / f"{name}.parquet", cls)
    quarantined = tables.read(at / stage / "quarantine.parquet", Quarantined)
    problems = [
        p
        for t in ("questions", "problems")
        if (at / t / "problems.parquet").exists()
        for p in tables.read(at / t / "problems.parquet", Problem)
    ]
    kb = read_kb((at / "kb").joinpath) if (at / "kb").exists() else None
    proofs = Proofs(kb, {p.id: p for p in problems})
    shown = _spread(table, n)
    rows = tuple((tuple(_lines(row)), _proof(proofs, row)) for row in shown)
    seen: Counter[str] = Counter(q.reason for q in quarantined)
    examples = tuple(next(f"{q.reason}: {q.evidence}" for q in quarantined if q.reason == r) for r in sorted(seen))
    return Preview(stage, rows, len(table), dict(sorted(seen.items())), examples, seconds, whole, reused, full["seed"])


def _spread(rows: list[Any], n: int) -> list[Any]:
    """At most n rows, evenly spread over the table, so that every kind of row is shown."""
    return [rows[i * len(rows) // n] for i in range(n)] if len(rows) > n else rows


def _proof(proofs: Proofs, row: Any) -> Proof:
    kinds = {
        Problem: proofs.problem,
        Demonstration: proofs.demonstration,
        PreferencePair: proofs.pair,
        Fact: proofs.fact,
    }
    return kinds[type(row)](row)


def _lines(row: Any) -> list[str]:
    if isinstance(row, Problem):
        levels = ", ".join(f"{k} {v:g}" for k, v in row.difficulty.items())
        return [row.question, f"answer: {row.answer}   ({row.family}, {levels}, {row.split}, {row.id})"]
    if isinstance(row, Demonstration):
        return [*talk(row.messages), f"({row.split}, {row.id})"]
    if isinstance(row, PreferencePair):
        lines = [f"{d.step}: {d.action}, {d.reason}, score {d.score:.4g}" for d in row.decisions]
        return [
            *talk(row.prompt),
            f"chosen:   {row.chosen}",
            f"rejected: {row.rejected}   ({row.source}, {row.split}, {row.id})",
            *lines,
        ]
    return [f"{row.subject} {row.relation} {row.value}   ({row.id})"]
