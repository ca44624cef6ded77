"""The list of environments: name, tools, budgets, what ends an episode. It includes the user's own (`pieces/`,
ESPALIER_PATH)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.planning.code import constant, source
from tasks.planning.code import knobs as knobs_of
from tasks.planning.pieces import files, locate

FOLDER = "env"


@dataclass(frozen=True)
class Environment:
    """tools: in words. budgets: the knobs that bound an episode, with their defaults. ends: what ends it, in words; ""
    if the file does not say. knobs: all of them with their defaults. about: the first line of its file."""

    name: str
    tools: str
    budgets: dict[str, Any]
    ends: str
    knobs: dict[str, Any]
    about: str


def environments() -> Iterator[Environment]:
    """Every environment, read without importing it: constants TOOLS, BUDGETS and ENDS of its file, and the signature of
    its function."""
    for name in sorted(files(FOLDER)):
        yield environment(name)


def environment(name: str) -> Environment:
    path = locate(FOLDER, name)
    knobs = {k: v.default for k, v in knobs_of(path).items()}
    tools = constant(path, "TOOLS", "")
    budgets = {k: knobs[k] for k in constant(path, "BUDGETS", ()) if k in knobs}
    return Environment(
        path.stem,
        tools if isinstance(tools, str) else ", ".join(tools),
        budgets,
        constant(path, "ENDS", ""),
        knobs,
        _about(path),
    )


def _about(path: Path) -> str:
    """The first paragraph of a file's docstring, on one line."""
    return " ".join((ast.get_docstring(source(path).tree) or "").partition("\n\n")[0].split())
