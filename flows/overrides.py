"""What `--recipe` and `--set` change in params.yaml, as dotted keys and as the merged file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError


def overrides(recipe: str | None, settings: list[str]) -> dict[str, Any]:
    """Dotted key of params.yaml -> value. `rl.steps=50` means `set.rl.steps`; keys of the top level stay. Raises
    UserError."""
    from tasks.core.config import parse
    from tasks.planning.resolve import PARAMS

    out: dict[str, Any] = {"recipe": recipe} if recipe is not None else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not all(part.isidentifier() for part in key.split(".")):
            raise UserError(f"--set {setting}: write STAGE.KNOB=VALUE, e.g. --set rl.steps=50")
        out[key if key.split(".")[0] in PARAMS else f"set.{key}"] = parse(value, f"--set {key}")
    return out


def overrides_of(path: Path, recipe: str | None, settings: list[str]) -> dict[str, Any]:
    """`overrides`, and the sizes of a profile that is among them (`of_profile`), of the project whose params.yaml is
    `path`."""
    changes = overrides(recipe, settings)
    return changes | of_profile(path, changes)


@contextmanager
def blamed(changes: Mapping[str, Any], swept: Collection[str] = ()) -> Iterator[None]:
    """What is wrong with a value of `--set` is said of `--set`, not of params.yaml, which does not hold it; of the keys
    `swept`, as a person writes them, of `sweep`."""
    try:
        yield
    except UserError as e:
        raise UserError(_blamed(str(e), changes, swept)) from None


def _blamed(text: str, changes: Mapping[str, Any], swept: Collection[str] = ()) -> str:
    """A sentence that begins with params.yaml and a key that `--set` gave, or with one above it and the part of it that
    is unknown there, begins with `--set` instead, and gives a knob's new name as `--set` takes it."""
    refusal = re.match(r"\S*params\.yaml: (.*)", text, re.DOTALL)
    for key in changes if refusal else ():
        parts = key.split(".")
        for n in range(len(parts), 0, -1):
            at = re.escape(".".join(parts[:n]))
            unknown = "|".join(
                re.escape(part) for part in parts[n - 1 : n + 1]
            )  # the last of the key, or what it lacks
            then = r"[:.\[ ]" if n == len(parts) else rf": unknown \w+ '({unknown})'"
            if refusal and (blamed_part := re.match(rf"{at}({then}.*)", refusal[1], re.DOTALL)):
                said = key.removeprefix("set.")
                then = re.sub(r"^(: (\w+)\.\w+ is (\2\.[\w.]+) now): write .*", r"\1: write \3", blamed_part[1])
                return f"{'sweep' if said in swept else '--set'} {said}{then}"
    return text


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


def of_profile(path: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """The values of a profile named by `changes` where `path`, params.yaml, sets another one: who asks for a profile wants its
    sizes, and not those that params.yaml was written with. Dotted key -> value; what `changes` name stays theirs."""
    from tasks.core.config import read_yaml
    from tasks.planning.resolve import yaml_files

    params = read_yaml(path) if path.exists() else {}
    name = changes.get("profile")
    known = yaml_files("profiles")
    if not name or name == params.get("profile", "cpu") or name not in known:
        return {}
    out: dict[str, Any] = {}

    def meet(mine: Any, theirs: Any, at: str) -> None:
        if isinstance(mine, dict) and isinstance(theirs, dict):
            for key in mine.keys() & theirs.keys():
                meet(mine[key], theirs[key], f"{at}.{key}")
        elif mine != theirs and not any(f"{k}.".startswith(f"{at}.") for k in changes):
            out[at] = mine

    meet(read_yaml(known[name]).get("stages") or {}, params.get("set") or {}, "set")
    return dict(sorted(out.items()))
