"""`espalier schema`: a JSON schema of params.yaml, or of recipes, for editors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tasks.core.paths import project

MODELINE = "# yaml-language-server: $schema={}"


def add(commands: Any) -> None:
    p = commands.add_parser(
        "schema", help="a JSON schema of params.yaml or of recipes, from which editors complete keys and mark slips"
    )
    p.add_argument(
        "--write",
        metavar="FILE",
        type=Path,
        help="write it there (for example .espalier/schema.json) instead of printing it",
    )
    p.add_argument("--recipe", action="store_true", help="the schema of a recipe instead of that of params.yaml")
    p.set_defaults(run=schema)


def schema(args: argparse.Namespace) -> int:
    from tasks.planning.schema import recipe_schema
    from tasks.planning.schema import schema as make

    text = json.dumps(recipe_schema() if args.recipe else make(), indent=1, ensure_ascii=False)
    if args.write is None:
        print(text)
        return 0
    args.write.parent.mkdir(parents=True, exist_ok=True)
    args.write.write_text(text + "\n", encoding="utf-8")
    where = args.write.resolve()
    shown = where.relative_to(project().resolve()) if where.is_relative_to(project().resolve()) else where
    print(
        f"{args.write} is written. First line of {'a recipe' if args.recipe else 'params.yaml'}, for an editor with a YAML language server:\n{MODELINE.format(shown)}"
    )
    return 0
