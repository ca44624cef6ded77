"""Statements about one whole number, read of a text and checked without running anything: comparisons of sums, products,
powers and remainders, joined by and, or, not."""

from __future__ import annotations

import ast
import re

STATED = re.compile(r"\bsuch that\s+([^?\n]+?)\s*(?:[?\n]|\.\s|\.$|$)")
MOST = 10**12  # size of a number on the way; exponents and statements are bounded likewise


def stated(text: str) -> str | None:
    """The statement behind "such that" in a text, where it is one about x that can be checked; None else."""
    match = STATED.search(text)
    if not match or len(match[1]) > 200:
        return None
    try:
        holds(match[1], 0)
    except ValueError:
        return None
    return match[1]


def holds(statement: str, x: int) -> bool:
    """Whether the statement is true of x. Raises ValueError for one that says something else; what has no value for this x
    (a remainder by 0, a number too large) is not true."""
    try:
        tree = ast.parse(statement.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        raise ValueError(f"{statement!r} is no statement about x") from e
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    if names != {"x"}:
        raise ValueError(f"{statement!r} is no statement about x")
    try:
        return _truth(tree, x)
    except ArithmeticError:
        return False


def _truth(node: ast.AST, x: int) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = [_truth(v, x) for v in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _truth(node.operand, x)
    if isinstance(node, ast.Compare):
        sides = [_number(v, x) for v in (node.left, *node.comparators)]
        return all(_compared(op, a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    raise ValueError(f"a {type(node).__name__} is no comparison")


def _compared(op: ast.cmpop, a: int, b: int) -> bool:
    known = {ast.Eq: a == b, ast.NotEq: a != b, ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}
    if type(op) not in known:
        raise ValueError(f"{type(op).__name__} compares no numbers")
    return known[type(op)]


def _number(node: ast.AST, x: int) -> int:
    if isinstance(node, ast.Name):
        return x
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _small(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, x)
    if isinstance(node, ast.BinOp):
        a, b = _number(node.left, x), _number(node.right, x)
        if isinstance(node.op, ast.Add):
            return _small(a + b)
        if isinstance(node.op, ast.Sub):
            return _small(a - b)
        if isinstance(node.op, ast.Mult):
            return _small(a * b)
        if isinstance(node.op, ast.Mod):
            return a % b
        if isinstance(node.op, ast.FloorDiv):
            return a // b
        if isinstance(node.op, ast.Pow):
            if not 0 <= b <= 12:
                raise OverflowError
            return _small(a**b)
    raise ValueError(f"a {type(node).__name__} is no whole number")


def _small(value: int) -> int:
    if abs(value) > MOST:
        raise OverflowError
    return value
