"""Rates how well a Python function is written, by rules over its syntax tree: ratings from 1 to 10 in place of a judge.

    explanation   1 + 9 (1/2 if there is a docstring + 1/2 min(1, 3 comments / statements))
    complexity    10 - 2 (branches beyond the reference's) - 3 (loops within loops beyond the reference's), at least 1
    readability   1 + 9 (1/2 share of parameters and variables whose names are words of three letters or more + 1/2 share of
                  lines that hold one statement)
    style         1 + 9 (1/2 share of parameters and results with a type + 1/2 share of names in lower case with underscores)

A branch is an if, a loop, a conditional expression, a filter of a comprehension or an operand of `and` and `or`. Nothing is run
or imported. The rules are ours; published judges are language models."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable

_SNAKE = re.compile(r"_*[a-z][a-z0-9_]*|_")


def rate(what: str, source: str, reference: str) -> float | None:
    """The rating under one of RULES; None where the source is no Python that holds a function. Raises LookupError for another
    name."""
    if what not in RULES:
        raise LookupError(f"no rule rates {what!r}: there are {', '.join(RULES)}")
    tree, known = function_of(source), function_of(reference)
    if tree is None:
        return None
    return float(min(10.0, max(1.0, RULES[what](tree, source, known or tree))))


def function_of(source: str) -> ast.FunctionDef | None:
    """The first function of a source; None where it has none or is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return next((n for n in tree.body if isinstance(n, ast.FunctionDef)), None)


def _statements(f: ast.FunctionDef) -> list[ast.stmt]:
    """Those of the body, a docstring left out."""
    held = [n for n in ast.walk(f) if isinstance(n, ast.stmt) and n is not f]
    return [n for n in held if not (n is f.body[0] and ast.get_docstring(f) is not None)]


def _explanation(f: ast.FunctionDef, source: str, reference: ast.FunctionDef) -> float:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        tokens = []
    comments = sum(t.type == tokenize.COMMENT for t in tokens)
    return 1 + 9 * (
        0.5 * (ast.get_docstring(f) is not None) + 0.5 * min(1.0, 3 * comments / max(1, len(_statements(f))))
    )


def _complexity(f: ast.FunctionDef, source: str, reference: ast.FunctionDef) -> float:
    return 10 - 2 * max(0, branches(f) - branches(reference)) - 3 * max(0, _depth(f) - _depth(reference))


def branches(f: ast.AST) -> int:
    out = 0
    for n in ast.walk(f):
        out += isinstance(n, (ast.If, ast.IfExp, ast.For, ast.While))
        out += len(n.ifs) if isinstance(n, ast.comprehension) else len(n.values) - 1 if isinstance(n, ast.BoolOp) else 0
    return out


def _depth(n: ast.AST) -> int:
    """Most loops that lie within one another, less the first."""
    return max(0, _loops(n) - 1)


def _loops(n: ast.AST) -> int:
    own = isinstance(n, (ast.For, ast.While)) or bool(getattr(n, "generators", None))
    return own + max((_loops(c) for c in ast.iter_child_nodes(n)), default=0)


def _readability(f: ast.FunctionDef, source: str, reference: ast.FunctionDef) -> float:
    names, lines = _names(f), [s.lineno for s in _statements(f)]
    words = sum(len(name.strip("_")) >= 3 and name.replace("_", "").isalpha() for name in names)
    alone = len(set(lines)) / max(1, len(lines))
    return 1 + 9 * (0.5 * words / max(1, len(names)) + 0.5 * alone)


def _style(f: ast.FunctionDef, source: str, reference: ast.FunctionDef) -> float:
    arguments, names = _arguments(f), [f.name, *_names(f)]
    typed = sum(a.annotation is not None for a in arguments) + (f.returns is not None)
    snake = sum(_SNAKE.fullmatch(name) is not None for name in names)
    return 1 + 9 * (0.5 * typed / (len(arguments) + 1) + 0.5 * snake / len(names))


def _arguments(f: ast.FunctionDef) -> list[ast.arg]:
    return [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]


def _names(f: ast.FunctionDef) -> list[str]:
    """Different names of parameters and variables, in order."""
    held = [n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return list(dict.fromkeys([*(a.arg for a in _arguments(f)), *held]))


RULES: dict[str, Callable[[ast.FunctionDef, str, ast.FunctionDef], float]] = {
    "explanation": _explanation,
    "complexity": _complexity,
    "readability": _readability,
    "style": _style,
}
