"""What `--recipe` and `--set` change in params.yaml, as dotted keys and as the merged file."""

from __future__ import annotations

import json
from typing import Any

from tasks.errors import UserError


def overrides(recipe: str | None, settings: list[str]) -> dict[str, Any]:
    """Dotted key of params.yaml -> value. `rl.steps=50` means `set.rl.steps`; keys of the top level stay. Raises
    UserError."""
    from tasks.planning.config import parse
    from tasks.planning.resolve import PARAMS

    out: dict[str, Any] = {"recipe": recipe} if recipe is not None else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not all(part.isidentifier() for part in key.split(".")):
            raise UserError(f"--set {setting}: write STAGE.KNOB=VALUE, e.g. --set rl.steps=50")
        out[key if key.split(".")[0] in PARAMS else f"set.{key}"] = parse(value, f"--set {key}")
    return out


def merged(params: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """params.yaml as it will be when the overrides have been written into it."""
    out = json.loads(json.dumps(params))
    for key, value in changes.items():
        *path, last = key.split(".")
        inner = out
        for part in path:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[last] = value
    return out
