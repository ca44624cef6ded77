"""Kinds of pieces, read by `ast` from their declaration, a Protocol in the `__init__.py` of the kind's package.

The Protocol's name is that of the kind followed by `Piece` (`policy_loss`: `PolicyLossPiece`). Its `__call__` has the
arguments of every piece of the kind, its docstring describes them (`Args`, `Returns`) and says what a recipe's check
may give and expect (`Check gives`, `Check expects`). The documentation, the contract tests and the checks read it here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasks.core.at_rest import once_at_rest
from tasks.core.errors import UserError
from tasks.core.paths import CODE, KINDS, package_of
from tasks.planning import code
from tasks.planning.pieces import files

NO_PIECES = {"flow", "profiles", "recipes", "stage"}  # found by folder too, but recipes do not choose them


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of pieces.

    about       one sentence
    arguments   name -> annotation of the positional arguments, in order
    open        whether a piece may ask for more than these: `*columns`, `**columns`, `**args`
    result      annotation of what a piece returns
    meaning     argument -> what it is, with shape and unit
    returns     what the result is
    gives       what a check may give: name -> what it is; `**name` stands for names that are not listed here
    expects     what a check may expect, likewise; both are empty where recipes have no checks of this kind
    """

    name: str
    package: str
    about: str
    arguments: Mapping[str, str]
    open: bool
    result: str
    meaning: Mapping[str, str]
    returns: str
    gives: Mapping[str, str]
    expects: Mapping[str, str]

    @property
    def signature(self) -> str:
        """`f(groups, rewards, state, rng)`, as the documentation shows it."""
        return f"f({', '.join(self.arguments)})"


def piece_kinds() -> list[str]:
    """The kinds of pieces that a recipe, a problem or a source can name, in alphabetical order."""
    return [k for k in KINDS if k not in NO_PIECES]


def variants(kind: str) -> list[str]:
    """The variants that a kind declares: "" first, then the prefixes of its name in other Protocols of its package."""
    end = _protocol(kind)
    names = [n.name for n in code.source(_home(kind)).tree.body if isinstance(n, ast.ClassDef)]
    return sorted(n.removesuffix(end).lower() for n in names if n.endswith(end))


@cache
def declared(kind: str, variant: str = "") -> Kind:
    """The declaration of a kind, or of a variant of it (an observation of problems). Raises UserError if its package
    has none."""
    path, name = _home(kind), variant.capitalize() + _protocol(kind)
    tree = code.source(path).tree if path.is_file() else ast.Module(body=[], type_ignores=[])
    protocol = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if protocol is None:
        raise UserError(f"{path} declares no Protocol {name}: every kind of pieces is declared in its package")
    call = next(n for n in protocol.body if isinstance(n, ast.FunctionDef) and n.name == "__call__")
    doc = ast.get_docstring(protocol) or ""
    return Kind(
        name=kind,
        package=package_of(kind),
        about=" ".join(doc.split("\n\n")[0].split()),
        arguments={a.arg: ast.unparse(a.annotation) if a.annotation else "" for a in call.args.args[1:]},
        open=bool(call.args.vararg or call.args.kwarg),
        result=ast.unparse(call.returns) if call.returns else "",
        meaning=code.entries(doc, "Args"),
        returns=" ".join(code.section(doc, "Returns").split()),
        gives=code.entries(doc, "Check gives"),
        expects=code.entries(doc, "Check expects"),
    )


def _home(kind: str) -> Path:
    return CODE.joinpath(*package_of(kind).split("."), "__init__.py")


def _protocol(kind: str) -> str:
    return "".join(word.capitalize() for word in kind.split("_")) + "Piece"


def settled(stage: str, knobs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every knob that a layer of a stage sets, nested ones field by field."""
    known = code.knobs(files("stage")[stage])
    for name, value in knobs.items():
        if name in known and known[name].fields and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in value.items())
            continue
        yield name, value
        if name in known and known[name].own:
            for who, given in value.items():
                yield from ((f"{name}.{who}.{own}", given[own]) for own in known[name].own if own in given)


def slot_kind(stage: str, knob: str) -> str:
    """The kind of pieces that a knob of a stage holds, by its dotted name as `settled` gives it; "" if it holds none."""
    known = code.knobs(files("stage")[stage])
    first, last = knob.partition(".")[0], knob.rpartition(".")[2]
    one = known[last] if first in known and last in known[first].own else dict(code.leaves(known)).get(knob)
    return one.piece if one else ""


@once_at_rest
def slots() -> dict[str, dict[str, str]]:
    """Stage -> its knobs that are pieces (`critic.loss`: a field of a nested one) -> their kind, from the annotations of
    the stages."""
    return {
        stage: {name: knob.piece for name, knob in code.leaves(code.knobs(path)) if knob.piece}
        for stage, path in files("stage").items()
    }
