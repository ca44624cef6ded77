"""What `espalier run` and `espalier sweep` ask before anything runs: which stages are due, and whether what they name
beyond this process is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Due:
    """What would run. known: the plans of the last run; first: stages whose plan differs from it; missing: whose output is not there;
    data: stage -> what changed of what it reads; after: stages that read what these make."""

    known: dict[str, Any]
    first: set[str]
    missing: set[str]
    data: dict[str, list[str]]
    after: list[str]

    @property
    def stages(self) -> set[str]:
        return {*self.first, *self.missing, *self.data, *self.after}


def due(root: Path, plans: dict[str, Any], only: str = "", moved: dict[str, list[str]] | None = None) -> Due:
    """Of all stages, or of the stage `only` and what it reads. moved: dvc.changed_data, where it is known."""
    from tasks.planning import plan
    from tasks.runtime import dvc
    from tasks.runtime.stage import OUT, graph

    known = plan.written(root)
    first = {n for n in graph(root) if n in plans and plans[n] != known.get(n)}
    missing = {n for n in graph(root) if n != "plan" and not (root / OUT.get(n, f"artifacts/{n}")).exists()}
    data = {
        n: [w for w in why if "artifacts/plan" not in w]
        for n, why in (dvc.changed_data(root) if moved is None else moved).items()
        if n not in first | missing | {"plan"}
    }
    data = {n: why for n, why in data.items() if why}
    within = dvc.upstream(only, root) if only else set(graph(root))
    first, missing, data = first & within, missing & within, {n: why for n, why in data.items() if n in within}
    after = dvc.downstream(first | missing | set(data), root)
    return Due(known, first, missing, data, [n for n in after if n in within])


def check(root: Path, each: Iterable[dict[str, Any]], only: str = "", devices: int | None = None) -> None:
    """Of each of these runs, given as its plans: raises UserError for a stage that would run and cannot: on a Ray cluster or a vLLM server that does not answer, with
    a server of another model, without vLLM, or with more devices than this machine has (`devices`, if that is known).
    What a stage that is up to date names is not asked for."""
    from tasks.models import beforehand
    from tasks.runtime import dvc

    moved = None
    for plans in each:
        if not (wanted := beforehand.wanted(plans)):
            continue
        moved = dvc.changed_data(root) if moved is None else moved
        run = due(root, plans, only, moved).stages
        beforehand.check(root, plans, wanted & run, fresh="sft" in run, devices=devices)
