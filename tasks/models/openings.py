"""The opening messages of stored conversations in a stage that learns from them: those that begin an episode of their
problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from synth.types import Problem
from tasks.models.tools import bound, hosts
from tasks.runtime.stage import Stage
from tasks.storage import tables
from training.rollout.opening import Opening


def opening(stage: Stage, envs: Sequence[Any], search: Callable[..., str]) -> Opening:
    """The opening messages of the problems of artifacts/questions and artifacts/problems in these environments;
    `search` is the search tool."""
    environments = hosts(envs)
    return Opening(environments, bound(search, environments.values()), tables.ById(problem_tables(stage), Problem))


def problem_tables(stage: Stage) -> list[Path]:
    """The tables of problems that this stage reads."""
    return [
        stage.input(name, "problems.parquet")
        for name in ("questions", "problems")
        if stage.reads(name) and (stage.root / "artifacts" / name / "problems.parquet").exists()
    ]
