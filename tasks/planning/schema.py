"""JSON schemas (draft-07) of params.yaml and of recipes, from the signatures that the plan itself reads: with them an
editor completes keys and marks mistakes.

Nothing is imported: stages and pieces are read by `ast`. `plan` checks what the schema cannot express (pieces that
exclude each other, a file that must exist).
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from tasks.planning import code
from tasks.planning.pieces import files
from tasks.planning.resolve import DOOR_KNOBS, DOORS, yaml_files

KINDS = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "tuple": {"type": "array"},
}


def schema() -> dict[str, Any]:
    """The schema of params.yaml of the project in the working directory, its own pieces and recipes included."""
    pieces: dict[str, Any] = {}
    stages = _stages(pieces)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "params.yaml of an Espalier project",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "recipe": {
                "enum": ["", *yaml_files("recipes"), None],
                "description": "a published method (`espalier recipes`)",
            },
            "profile": {"enum": list(yaml_files("profiles")), "description": "the machine"},
            "seed": {"type": "integer", "description": "of the whole run; all others are hashed from it"},
            "instructions": {
                "type": ["object", "null"],
                "additionalProperties": {"type": "string"},
                "description": "environment -> what a model is told before each of its problems, in every stage",
            },
            "tracking": {"enum": ["local", "off"], "description": "whether runs are recorded in MLflow"},
            "disk_gb": {"type": "integer", "minimum": 1, "description": "budget that `espalier gc` keeps"},
            "set": {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": stages,
                "description": "knobs of stages",
            },
        },
        "definitions": pieces,
    }


def recipe_schema() -> dict[str, Any]:
    """The schema of a recipe: its description of a method, and the knobs of stages that it sets."""
    pieces: dict[str, Any] = {}
    stages = _stages(pieces)
    text, known = {"type": "string"}, yaml_files("recipes")
    check = {name: {} for name in ("given", "expect", "knobs")} | {
        "name": text,
        "piece": {"type": "string", "pattern": "^[a-z_]+/[A-Za-z0-9_-]+$", "description": "kind/name"},
        "atol": {"type": "number", "description": "how far a float may be off (1e-6)"},
    }
    described = {
        "id": {**text, "description": "the name of the file"},
        "title": text,
        "extends": {"enum": ["", *known], "description": "the recipe that it starts from"},
        "citation": {"type": "object", "required": ["title", "year"]},
        "source": {"enum": ["paper", "secondary", "abstract"], "description": "where the formula was read"},
        "mechanism": {**text, "description": "what the method does, in one paragraph"},
        "leaves_out": {"description": "what the paper has and this has not"},
        "stages": {"type": "object", "additionalProperties": False, "properties": stages},
        "checks": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "piece", "given", "expect"],
                "additionalProperties": False,
                "properties": check,
            },
            "description": "numbers that the pieces must give",
        },
        "behaviour": {"type": "object", "description": "the protocol of a comparison in a small world"},
        "on_task": {"type": "object", "description": "the protocol of a comparison on a task of the project's own"},
        "asks": {"type": "object", "description": "what the user has to bring: knob -> what it is"},
        "shown": {"type": "object", "description": "what tests show, and which"},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "a recipe of Espalier",
        "type": "object",
        "additionalProperties": False,
        "required": ["id"],
        "properties": described,
        "definitions": pieces,
    }


def _stages(pieces: dict[str, Any]) -> dict[str, Any]:
    """The schema of every stage; a stage that learns from the user's rows also accepts the knobs of the stage that
    reads them."""
    stages = {name: _stage(path, pieces) for name, path in files("stage").items()}
    for learner, reader in DOORS.items():
        for knob in DOOR_KNOBS:
            stages[learner]["properties"][knob] = stages[reader]["properties"][knob]
    return stages


def _stage(path: Path, pieces: dict[str, Any]) -> dict[str, Any]:
    knobs = {name: _knob(knob, pieces) for name, knob in code.knobs(path).items()}
    return {"type": ["object", "null"], "additionalProperties": False, "properties": knobs, "description": _first(path)}


def _knob(knob: code.Knob, pieces: dict[str, Any]) -> dict[str, Any]:
    if knob.fields:
        fields = {name: _knob(one, pieces) for name, one in knob.fields.items()}
        schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": fields}
    elif knob.piece:
        name = _definition(knob.piece, pieces)
        one = {"$ref": f"#/definitions/{name}"}
        schema = (
            {"type": "array", "items": one}
            if knob.many
            else {"anyOf": [one, {"type": "null"}] if knob.default is None else [one]}
        )
    elif knob.own:
        every = {name: k for name, k in code.knobs(knob.home).items() if name in knob.own}
        each = {"type": "object", "properties": {name: _knob(k, pieces) for name, k in every.items()}}
        for shape in each["properties"].values():
            shape.pop("default")  # an entry without it has the stage's
        schema = {"type": "object", "additionalProperties": each}
    else:
        schema = _type(knob.annotation, knob.home)
        schema |= {"minimum": int(knob.place)} if code.counts(knob.annotation) else {}
        if knob.default is None:
            schema = {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "default": knob.default, **({"description": knob.about} if knob.about else {})}


def _definition(folder: str, pieces: dict[str, Any]) -> str:
    """The name of a folder's definition, which accepts a piece's name, a mapping of its name and knobs, or, without a
    name, changed knobs."""
    name = folder.replace(".", "_")
    if name not in pieces:
        pieces[name] = {}  # stops the recursion for a piece whose knobs are pieces of its own folder
        every, shapes = list(files(folder).items()), []
        for piece, path in every:
            knobs = {k: _knob(v, pieces) for k, v in code.knobs(path).items()}
            spelled = {"enum": sorted({piece, piece.replace("_", "-")})}
            shapes.append(
                {
                    "type": "object",
                    "required": ["piece"],
                    "additionalProperties": False,
                    "properties": {"piece": spelled, **knobs},
                    "description": _first(path),
                }
            )
        names = sorted({s for piece, _ in every for s in (piece, piece.replace("_", "-"))})
        changed = {"type": "object", "not": {"required": ["piece"]}}
        pieces[name] = {"anyOf": [{"enum": names}, *shapes, changed]}
    return name


def _type(annotation: ast.expr | None, path: Path) -> dict[str, Any]:
    """The schema of an annotation; {} (accepts everything) for one that is not spelled with built-in names."""
    wanted = code.alternatives(annotation, path)
    if wanted is None:
        return {}
    shapes = [_one(node, path) for node in wanted]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _one(node: ast.expr, path: Path) -> dict[str, Any]:
    if isinstance(node, ast.Constant):
        return {"const": node.value}
    head = node.value if isinstance(node, ast.Subscript) else node
    name = head.id if isinstance(head, ast.Name) else getattr(head, "attr", "")
    if name == "Literal" and isinstance(node, ast.Subscript):
        options = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return {"enum": [o.value for o in options if isinstance(o, ast.Constant)]}
    if name in ("list", "tuple", "Sequence") and isinstance(node, ast.Subscript):
        inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        return {"type": "array", "items": _type(inner, path)}
    return dict(KINDS.get({"Sequence": "list", "Mapping": "dict"}.get(name, name), {}))


def _first(path: Path) -> str:
    """The first sentence of a file's docstring."""
    doc = ast.get_docstring(code.source(path).tree) or ""
    return " ".join(doc.split("\n\n")[0].split())
