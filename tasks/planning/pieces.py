"""The folder is the registry: a piece is a file, its function has the file's name, its keyword-only arguments are its
knobs.

`find("advantage", "quantile")` imports `training/rl/advantage/quantile.py` and returns its function `quantile`. A
`-` in a name is a `_` in the file. A user's own pieces live in folders of the same names on ESPALIER_PATH or in
`pieces/` of the project; a name that two of these folders define is refused, because a name in a recipe must be
unambiguous.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tasks.core.at_rest import once_at_rest
from tasks.core.errors import UserError, nearest
from tasks.core.paths import CODE, folders, own, package_of
from tasks.planning.former import hint, kind_now


@dataclass(frozen=True)
class Piece:
    """Annotation of a stage's knob that is one piece of `folder`; its default is a literal such as {"piece":
    "group_mean", "eps": 1e-6}. If None is a sensible value (no curriculum), the default may be None."""

    folder: str


@dataclass(frozen=True)
class Pieces(Piece):
    """Annotation of a knob that is a list of pieces of `folder`, applied in order."""


@dataclass(frozen=True)
class Own:
    """Annotation of a stage's knob that maps names (of policies) to settings of their own. Each may name pieces of its
    own for these `knobs` of the same stage, which then replace the stage's."""

    knobs: tuple[str, ...]

    def __init__(self, *knobs: str) -> None:
        object.__setattr__(self, "knobs", knobs)


@dataclass(frozen=True)
class Place:
    """Annotation of a stage's knob that says in how many parts it runs, a whole number from 1 on, or, where its default
    is a text, where. It is left out of the stage's plan and identity, so changing it re-runs nothing."""


@once_at_rest
def files(folder: str) -> dict[str, Path]:
    """Name -> file of every piece of a folder. Raises UserError if two folders define one name, or if the folder does
    not exist."""
    out: dict[str, Path] = {}
    places = folders(folder)
    if not places:
        now = kind_now(folder)
        raise UserError(
            f"there is no folder of pieces called {folder!r}: "
            + (f"it is the kind {now} now: write {now}" if now else "name a kind of pieces, such as advantage")
        )
    for place in places:
        for name, path in _modules(place, tuple(os.listdir(place))):
            if name in out:
                raise UserError(
                    f"the piece {name!r} of {folder} is defined twice, in {out[name]} and {path}: rename yours"
                )
            out[name] = path
    return out


@cache
def _modules(place: Path, names: tuple[str, ...]) -> list[tuple[str, Path]]:
    """(name, file) of the pieces among the `names` of a folder, in order. A plan asks for the same folders hundreds of
    times."""
    return sorted((n[:-3], place / n) for n in names if n.endswith(".py") and not n.startswith("_"))


def locate(folder: str, name: str) -> Path:
    """The file of a piece. Raises UserError that lists the folder and the nearest spelling."""
    known = files(folder)
    path = known.get(name.replace("-", "_"))
    if path is None:
        raise UserError(
            f"there is no piece {name!r} in {folder}: {hint(kind_now(folder), name, known) or nearest(name, known)}"
        )
    return path


def open_own() -> None:
    """Lets the packages of pieces import from the user's own folders too, so that `synth.verify` finds a user's
    verifier by name."""
    for root in own():
        for folder in sorted(p for p in root.iterdir() if p.is_dir() and any(p.glob("*.py"))):
            if not (CODE / Path(*package_of(folder.name).split(".")) / "__init__.py").exists():
                continue
            package = importlib.import_module(package_of(folder.name))
            if str(folder) not in package.__path__:
                package.__path__.append(str(folder))
                importlib.invalidate_caches()


def module(folder: str, name: str) -> ModuleType:
    """The imported module of a piece."""
    path = locate(folder, name)
    if not path.is_relative_to(CODE):
        open_own()
    return importlib.import_module(f"{package_of(folder)}.{path.stem}")


def find(folder: str, name: str) -> Callable[..., Any]:
    """The function of a piece. Raises UserError for an unknown name, or for a file without a function of its own
    name."""
    source = module(folder, name)
    function = getattr(source, source.__name__.rpartition(".")[2], None)
    if not callable(function):
        raise UserError(
            f"{source.__file__} defines no function {source.__name__.rpartition('.')[2]!r}: a piece is a function named as its file"
        )
    return function


def bind(folder: str, spec: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of `spec["piece"]` with the other entries of `spec` bound as its knobs, as a `functools.partial`
    with these attributes: `piece` (its name), `needs` (its NEEDS), `alone` (its ALONE: a cleaner that judges each pair by itself), `rows_per_unit` and `unit` (its ROWS_PER_UNIT and UNIT, of
    preference losses), `several` (its SEVERAL: a group transform that works with several policies), `advantage_only` (its ADVANTAGE_ONLY: False for a policy loss that has a gradient without advantage),
    `prepare` (its `prepare` with the same knobs bound, or None), `fit` (of decoders: likewise), `observes` (its OBSERVES) and `observations` (those that
    its NEEDS name, bound in the same way, and its own function `observe` with the same knobs)."""
    knobs = {k: v for k, v in spec.items() if k != "piece"}
    function = find(folder, spec["piece"])
    source = module(folder, spec["piece"])
    bound = partial(function, **knobs)
    bound.rows_per_unit, bound.unit = getattr(source, "ROWS_PER_UNIT", 1), getattr(source, "UNIT", "pair")  # type: ignore[attr-defined]
    prepare = getattr(source, "prepare", None)
    bound.piece = f"{folder}/{spec['piece'].replace('-', '_')}"  # type: ignore[attr-defined]
    bound.needs = frozenset(getattr(source, "NEEDS", ()))  # type: ignore[attr-defined]
    bound.alone = getattr(source, "ALONE", False)  # type: ignore[attr-defined]
    bound.several = getattr(source, "SEVERAL", False)  # type: ignore[attr-defined]
    bound.advantage_only = getattr(source, "ADVANTAGE_ONLY", True)  # type: ignore[attr-defined]
    bound.prepare = partial(prepare, **knobs) if prepare is not None else None  # type: ignore[attr-defined]
    fit = getattr(source, "fit", None)
    bound.fit = partial(fit, **knobs) if fit is not None else None  # type: ignore[attr-defined]
    bound.observes = getattr(source, "OBSERVES", "groups")  # type: ignore[attr-defined]
    shared = [bind("observation", {"piece": name}) for name in observed(folder, bound.needs)]  # type: ignore[attr-defined]
    observe = getattr(source, "observe", None)
    if observe is not None:
        own_one = partial(observe, **knobs)
        own_one.piece, own_one.observes = bound.piece, bound.observes  # type: ignore[attr-defined]
        shared.append(own_one)
    bound.observations = tuple(shared)  # type: ignore[attr-defined]
    return bound


def observed(folder: str, needs: Iterable[str]) -> list[str]:
    """The NEEDS of a piece of `folder` that are observations. The NEEDS of a cleaner are columns of pairs: its `votes`
    are the annotators' votes."""
    return sorted(set(needs) & set(files("observation"))) if package_of(folder).startswith("training.") else []


def bind_all(
    pieces: Mapping[str, str], params: Mapping[str, Any], settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`params` with every knob named in `pieces` (knob -> folder) bound: a mapping becomes one function, a list of them
    a list. A knob named in `settings` (knob -> module:class) becomes an instance of that class; a dotted name is one of
    its fields, or is within a mapping (`policies.solver.advantage`)."""
    out = dict(params)
    for name, folder in pieces.items():
        *group, knob = name.split(".")
        inner = out
        for part in group:
            inner[part] = dict(inner[part])
            inner = inner[part]
        value = inner[knob]
        if isinstance(value, Mapping):
            inner[knob] = bind(folder, value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            inner[knob] = [bind(folder, one) for one in value]
    for name, kind in (settings or {}).items():
        where, _, called = kind.partition(":")
        out[name] = getattr(importlib.import_module(where), called)(**out[name])
    return out
