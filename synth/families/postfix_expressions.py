"""The value of an expression in postfix notation.

Certificate: a tree of the operations on the values against a stack over the text. Difficulty axes: operations, size of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"operations": 3, "size": 9},
    {"operations": 5, "size": 12},
    {"operations": 8, "size": 15},
    {"operations": 12, "size": 20},
)
CERTIFICATE = ("a tree of the operations", "a stack over the text")
WORDINGS = Wordings(
    "What is the value of the postfix expression {text}? Operators act on the two values before them.",
    "Evaluate {text}, which is written in reverse Polish notation.",
    "A stack machine reads {text}: a number is pushed, an operator replaces the top two values by its result. What is left at the end?",
    "In reverse Polish notation {text} stands for one number. Which?",
    "Compute the postfix expression {text}, where an operator follows its two operands.",
    answer="Answer with one integer.",
    text=r"[-+*\d ]+",
)
Tree = int | tuple[str, Any, Any]


def postfix_expressions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="postfix_expressions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, operations: int, size: int) -> tuple[str, Tree]:
    def tree(n: int) -> Tree:
        if n == 0:
            return rng.randint(1, size)
        left = rng.randint(0, n - 1)
        return rng.choice("+-*" if n < 4 else "+-"), tree(left), tree(n - 1 - left)

    expression = tree(operations)
    return said(expression), expression


def said(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"{said(tree[1])} {said(tree[2])} {tree[0]}"


def value(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    x, y = value(tree[1]), value(tree[2])
    return x + y if tree[0] == "+" else x - y if tree[0] == "-" else x * y


def pose(spec: Tree) -> dict[str, Any]:
    return {
        "prompt": WORDINGS.write(text=said(spec)),
        "answer": str(value(spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    stack: list[int] = []
    for word in WORDINGS.read(question)["text"].split():
        if word.isdigit():
            stack.append(int(word))
        else:
            y = stack.pop()
            stack[-1] = {"+": stack[-1] + y, "-": stack[-1] - y, "*": stack[-1] * y}[word]
    return str(stack[0])
