"""Fourteen simulated authors, each of which writes a program in its own style: a source of text without a model, for
makers that compare models.

An author is a set of habits, applied to the syntax tree of a reference program: it documents, comments, names or types
well; adds needless branches, puts everything on one line, writes names in capitals, or forgets the first step."""

from __future__ import annotations

import ast

HANDS: tuple[tuple[str, ...], ...] = (
    (),
    ("document",),
    ("comment",),
    ("name",),
    ("type",),
    ("document", "comment"),
    ("name", "type"),
    ("document", "type", "branch"),
    ("comment", "name", "branch"),
    ("branch",),
    ("line",),
    ("shout",),
    ("forget",),
    ("document", "name", "forget"),
)


def written(source: str, habits: tuple[str, ...]) -> str:
    """The program of a reference as a hand of these habits writes it. Raises ValueError for a source without a function."""
    tree = ast.parse(source)
    f = next((n for n in tree.body if isinstance(n, ast.FunctionDef)), None)
    if f is None:
        raise ValueError(f"there is no function in {source!r}")
    if "forget" in habits and (len(f.body) > 1 or f.args.args):
        f.body = f.body[1:] or [ast.Return(ast.Name(f.args.args[0].arg, ast.Load()))]
    for a in f.args.args if {"name", "shout"} & set(habits) else ():
        _Renamed(a.arg, "items" if "name" in habits else "XS").visit(f)
    if "type" in habits:
        for a in f.args.args:
            a.annotation = ast.Name("list", ast.Load())
        f.returns = ast.Name("object", ast.Load())
    if "branch" in habits:
        f.body = [ast.If(ast.Constant(True), f.body, [])]
    if "document" in habits:
        f.body = [ast.Expr(ast.Constant("Do it.")), *f.body]
    lines = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
    if "line" in habits:
        lines = [f"{lines[0]} {'; '.join(x.strip() for x in lines[1:])}"]
    if "comment" in habits:
        lines = [f"{x}  # now" if x.startswith("    ") and not x.endswith(('"""', ":")) else x for x in lines]
    return "\n".join(lines)


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str):
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new, node.ctx) if node.id == self.old else node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.new, node.annotation) if node.arg == self.old else node
