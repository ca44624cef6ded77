"""The only YAML loader: values as in YAML 1.2 (1e-4 is a number, `no` is a text), and a sentence for each error."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tasks.core.errors import UserError


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader with the YAML 1.2 core schema and without silent duplicate keys."""

    yaml_implicit_resolvers: dict[str, list] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            line = key.start_mark.line + 1
            if not isinstance(name, str):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {name!r} is not a text: put it in quotes", problem_mark=key.start_mark
                )
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {name!r} is given twice, in lines {seen[name]} and {line}: remove one",
                    problem_mark=key.start_mark,
                )
            seen[name] = line
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
# PyYAML reads a leading 0 as octal and an underscore as nothing; YAML 1.2 does neither.
_Loader.add_constructor(
    "tag:yaml.org,2002:int",
    lambda loader, node: int(node.value, 0) if node.value[:2] in ("0o", "0x") else int(node.value),
)


@lru_cache(maxsize=1024)
def _as_json(text: str) -> str | None:
    """The value as JSON, from which each reader quickly gets its own copy: one command resolves the same recipes and
    profiles many times. None if JSON cannot represent it (`!!binary`, an alias within itself)."""
    with suppress(TypeError, ValueError):
        return json.dumps(yaml.load(text, _Loader))
    return None


def parse(text: str, where: str) -> Any:
    """The value of a YAML text. Raises UserError with `where`, line and column for anything that is not one."""
    try:
        as_json = _as_json(text)
        return yaml.load(text, _Loader) if as_json is None else json.loads(as_json)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        line = mark.line if mark else 0
        rows = text.splitlines()
        if line < len(rows) and "\t" in rows[line][: len(rows[line]) - len(rows[line].lstrip())]:
            raise UserError(
                f"{where}, line {line + 1}: a tab indents this line; YAML allows spaces only: replace it"
            ) from None
        raise UserError(f"{where}, line {line + 1}: {' '.join(filter(None, (e.context, e.problem)))}") from None
    except yaml.reader.ReaderError as e:
        raise UserError(f"{where} holds the character {e.character!r}, which YAML does not allow: remove it") from None


def _as_dvc(node: yaml.Node | None, where: str, *, within: bool = False) -> None:
    """Raises UserError for something that DVC, which reads this file too, refuses and we would accept: a colon in a
    plain text within braces or brackets."""
    if isinstance(node, yaml.ScalarNode) and within and not node.style and ":" in node.value:
        raise UserError(
            f'{where}, line {node.start_mark.line + 1}: put "{node.value}" in quotes: DVC reads this file too, and takes no colon in a plain '
            "text within braces or brackets"
        )
    if isinstance(node, yaml.CollectionNode):
        parts = [x for pair in node.value for x in pair] if isinstance(node, yaml.MappingNode) else node.value
        for part in parts:
            _as_dvc(part, where, within=within or bool(node.flow_style))


def read_text(path: Path, what: str = "file") -> str:
    """The text of a file. Raises UserError if it is missing or not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if path.name == "params.yaml":
            raise UserError(
                f"{path} does not exist, and it says what a run is: `git checkout params.yaml` brings back the one that was "
                "committed, `espalier init DIR` makes a project with one"
            ) from None
        raise UserError(f"the {what} {path} does not exist") from None
    except UnicodeDecodeError as e:
        line = path.read_bytes()[: e.start].count(b"\n") + 1
        raise UserError(
            f"{path}, line {line}: not UTF-8 (byte 0x{e.object[e.start]:02x}): save it as UTF-8, e.g. `iconv -f LATIN1 -t UTF-8`"
        ) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping; an empty file is an empty one."""
    text = read_text(path)
    value = parse(text, str(path))
    if path.name == "params.yaml":
        _as_dvc(yaml.compose(text, _Loader), str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold keys and values, not a {type(value).__name__}")
    return value
