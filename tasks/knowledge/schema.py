"""schema.yaml: the sources of a knowledge base and what is stated about its relations, for a person to edit."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from synth.knowledge.kb import Relation
from tasks.errors import UserError, nearest


def read_schema(path: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """(sources, relations) of a schema.yaml. Raises UserError where it is none."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read ({' '.join(str(error).split())[:300]}): fix it") from error
    if not isinstance(data, dict) or set(data) - {"sources", "relations"}:
        raise UserError(
            f"{path} must hold `sources` and `relations` and nothing else: `espalier kb build` writes one to begin with"
        )
    sources, relations = data.get("sources") or [], data.get("relations") or {}
    for i, source in enumerate(sources):
        if (
            not isinstance(source, dict)
            or not isinstance(source.get("path"), str)
            or not isinstance(source.get("kind"), str)
        ):
            raise UserError(f"{path}: sources[{i}] must say {{kind: ..., path: ...}}: fix it")
    known = {f.name for f in fields(Relation)} - {"name"}
    for name, given in relations.items():
        unknown = sorted(set(given) - known) if isinstance(given, dict) else []
        if not isinstance(given, dict) or unknown:
            what = f"has no field {unknown[0]!r}: {nearest(unknown[0], known)}" if unknown else "must be a mapping"
            raise UserError(f"{path}: the relation {name!r} {what}")
    return sources, relations
