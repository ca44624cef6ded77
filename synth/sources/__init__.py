"""Readers of sources, one file and one function each; this folder is the list of kinds."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from pathlib import Path

from synth.ingest import Reading


def kinds() -> list[str]:
    """The kinds of sources there are: the files of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def read_source(path: Path, kind: str, *, name: str = "", **options: object) -> Reading:
    """Read one source. `kind` is a file of this folder, `options` its keyword-only arguments; `name` stands for the path in all messages.

    Raises ValueError for an unknown kind or option, and for a source that is missing, empty, not UTF-8, or not of its kind.
    """
    if kind not in kinds():
        near = difflib.get_close_matches(kind, kinds(), 1, 0.0)[0]
        raise ValueError(f"there is no kind of source {kind!r} (nearest: {near!r}): the kinds are {', '.join(kinds())}")
    reader = getattr(importlib.import_module(f"{__name__}.{kind}"), kind)
    allowed = [p.name for p in inspect.signature(reader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in allowed:
            raise ValueError(f"a source of kind {kind!r} has no option {option!r}: its options are {', '.join(allowed)}")
    return reader(Path(path), name or str(path), **options)
