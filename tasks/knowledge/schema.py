"""schema.yaml: the sources of a knowledge base and what is stated about its relations, for a person to edit."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from synth.knowledge.kb import Relation
from tasks.core.errors import UserError, nearest


INVERSE = "inverse_of"  # a field of a relation that is noticed, and no field of `Relation`


def read_names(path: Path) -> dict[str, dict[str, str]]:
    """`names` of a schema.yaml: type -> name -> the name that it stands for (itself where it stands alone). Raises
    UserError for another form."""
    names = _mapping(path).get("names") or {}
    fits = isinstance(names, dict) and all(
        isinstance(some, dict) and all(isinstance(v, str) for pair in some.items() for v in pair)
        for some in names.values()
    )
    if not fits:
        raise UserError(f"{path}: `names` must say {{type: {{name: the name that it stands for}}}}: fix it")
    return names


def read_inverses(path: Path) -> dict[str, str]:
    """`inverse_of` of the relations of a schema.yaml: relation -> the one that says the same turned round, "" for none."""
    relations = _mapping(path).get("relations") or {}
    return {n: str(given[INVERSE] or "") for n, given in relations.items() if INVERSE in (given or {})}


def _mapping(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read ({' '.join(str(error).split())[:300]}): fix it") from error
    if not isinstance(data, dict) or set(data) - {"sources", "relations", "names"}:
        raise UserError(
            f"{path} must hold `sources` and `relations`, perhaps `names`, and nothing else: `espalier kb build` writes one to "
            "begin with"
        )
    return data


def read_schema(path: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """(sources, relations) of a schema.yaml. Raises UserError where it is none."""
    data = _mapping(path)
    sources, relations = data.get("sources") or [], data.get("relations") or {}
    for i, source in enumerate(sources):
        if (
            not isinstance(source, dict)
            or not isinstance(source.get("path"), str)
            or not isinstance(source.get("kind"), str)
        ):
            raise UserError(f"{path}: sources[{i}] must say {{kind: ..., path: ...}}: fix it")
    known = {f.name for f in fields(Relation)} - {"name"} | {INVERSE}
    for name, given in relations.items():
        unknown = sorted(set(given) - known) if isinstance(given, dict) else []
        if not isinstance(given, dict) or unknown:
            what = f"has no field {unknown[0]!r}: {nearest(unknown[0], known)}" if unknown else "must be a mapping"
            raise UserError(f"{path}: the relation {name!r} {what}")
    return sources, {name: {k: v for k, v in given.items() if k != INVERSE} for name, given in relations.items()}
