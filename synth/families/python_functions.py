"""Write a Python function for a description; hidden inputs decide.

Certificate: the outputs expected are computed by comprehensions on the values and by loops over the phrases of the
text, and the reference source is evaluated by an interpreter of its own small language, without running it as Python;
all must agree on every hidden input. The inputs tell the program from at least four in five of its mutants (a number
moved by one, a step left out, another last step), which is checked for every item. Difficulty axes: steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._lists import PHRASES, PLAIN, Step, apply, draw_step, phrase, replay
from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split, seed_for

LADDER = (
    {"steps": 1, "ends": True},
    {"steps": 2, "ends": False},
    {"steps": 2, "ends": True},
    {"steps": 3, "ends": True},
)
CERTIFICATE = ("comprehensions on the values", "loops over the text", "interpreted reference source")
TESTS, KILLED = 10, 0.8  # hidden inputs; share of mutants that they must tell apart
ENDS = {
    "sum": "the sum",
    "len": "the number of items",
    "max": "the largest item, 0 if none",
    "first": "the first item, 0 if none",
}
SOURCES = {
    "reverse": "xs = xs[::-1]",
    "sort": "xs = sorted(xs)",
    "sums": "xs = [sum(xs[:i + 1]) for i in range(len(xs))]",
    "distinct": "xs = [xs[i] for i in range(len(xs)) if xs[i] not in xs[:i]]",
    "add": "xs = [x + {} for x in xs]",
    "times": "xs = [x * {} for x in xs]",
    "above": "xs = [x for x in xs if x > {}]",
    "below": "xs = [x for x in xs if x < {}]",
    "multiples": "xs = [x for x in xs if x % {} == 0]",
    "take": "xs = xs[:{}]",
    "drop": "xs = xs[{}:]",
    "rotate": "xs = xs[{0}:] + xs[:{0}]",
}
RETURNS = {"": "xs", "sum": "sum(xs)", "len": "len(xs)", "max": "max(xs + [0])", "first": "(xs + [0])[0]"}
WORDINGS = Wordings(
    "Write a Python function f(xs) of a list of integers 0 or above: {steps}, then return {end}.",
    "Define f(xs) in Python for a list xs of integers 0 or above: {steps}, then return {end}.",
    "A Python function f gets a list of integers 0 or above and has to {steps}, then return {end}. Write it.",
    "Implement f(xs) in Python. For a list xs of integers 0 or above, {steps}, then return {end}.",
    "Which Python function f(xs) does this with a list of integers 0 or above: {steps}, then return {end}?",
    answer="Answer with its source.",
    steps="[a-z0-9 ,]+",
    end="it|" + "|".join(ENDS.values()),
)
Spec = tuple[tuple[Step, ...], str, list[list[int]]]


def python_functions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: source of `f`. `levels` are the levels to draw from."""
    return item(
        *(seed, split, index, levels),
        family="python_functions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        agree=agree,
    )


def outcome(steps: Sequence[Step], end: str, xs: Sequence[int]) -> Any:
    """What the program returns, by comprehensions."""
    values = tuple(xs)
    for step in steps:
        values = apply(step, values)
    if not end:
        return list(values)
    return {"sum": sum(values), "len": len(values), "max": max((*values, 0)), "first": (*values, 0)[0]}[end]


def mutants(steps: Sequence[Step], end: str) -> list[tuple[Sequence[Step], str]]:
    """Programs one edit away."""
    out: list[tuple[Sequence[Step], str]] = [((*steps[:i], *steps[i + 1 :]), end) for i in range(len(steps))]
    for i, (name, k) in enumerate(steps):
        out += [((*steps[:i], (name, k + d), *steps[i + 1 :]), end) for d in (1, -1) if name not in PLAIN and k + d > 0]
    return out + [(steps, other) for other in ENDS if end and other != end]


def draw(rng: Random, *, steps: int, ends: bool) -> tuple[str, Spec]:
    while True:
        chosen = tuple(draw_step(rng) for _ in range(steps))
        end = rng.choice(tuple(ENDS)) if ends else ""
        own = Random(seed_for("python_functions", chosen, end))  # a program always has the same set of inputs
        inputs = [
            [],
            [own.randint(1, 9)],
            *([own.randint(0, 20) for _ in range(own.randint(3, 9))] for _ in range(TESTS - 2)),
        ]
        wanted = [outcome(chosen, end, xs) for xs in inputs]
        wrong = mutants(chosen, end)
        killed = sum(any(outcome(s, e, xs) != w for xs, w in zip(inputs, wanted, strict=True)) for s, e in wrong)
        if killed >= KILLED * len(wrong):
            return f"{chosen} {end}", (chosen, end, inputs)


def write(steps: Sequence[Step], end: str) -> str:
    lines = [SOURCES[name].format(k) for name, k in steps]
    return "\n    ".join(["def f(xs):", *lines, f"return {RETURNS[end]}"])


def pose(spec: Spec) -> dict[str, Any]:
    steps, end, inputs = spec
    text = ", then ".join(map(phrase, steps))
    return {
        "prompt": WORDINGS.write(steps=text, end=ENDS.get(end, "it")),
        "answer": write(steps, end),
        "verifier": "python_function",
        "args": {
            "function": "f",
            "inputs": [[xs] for xs in inputs],
            "expected": [outcome(steps, end, xs) for xs in inputs],
        },
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    end = next((name for name, text in ENDS.items() if text == read["end"]), "")
    return write([_step(text) for text in read["steps"].split(", then ")], end)


def _step(text: str) -> Step:
    for name, words in PHRASES.items():
        if match := re.fullmatch(words.replace("{}", r"(\d+)"), text):
            return name, int(match[1]) if match.groups() else 0
    raise Refused(f"roundtrip: {text!r} names no function")


def agree(problem: Problem, other: str) -> bool:
    """Whether stored outputs, loops over the text, and the interpreted sources of both answers agree on every hidden
    input."""
    read = WORDINGS.read(problem.question)
    phrases, ask = read["steps"], read["end"]
    for (xs,), wanted in zip(problem.args["inputs"], problem.args["expected"], strict=True):
        values = list(xs)
        for text in phrases.split(", then "):
            values = replay(text, values)
        looped: Any = values
        if ask != "it":
            looped = {"the sum": sum(values), "the number of items": len(values)}.get(ask)
            if looped is None:
                looped = 0 if not values else values[0] if "first" in ask else sorted(values)[-1]
        if not wanted == looped == interpret(problem.answer, xs) == interpret(other, xs):
            return False
    return True


def interpret(source: str, xs: list[int]) -> Any:
    """The value that a reference source returns, by walking its syntax tree. Raises Refused for syntax that no
    reference uses."""
    function = ast.parse(source).body[0]
    names: dict[str, Any] = {"xs": xs}
    for line in function.body:  # type: ignore[attr-defined]
        value = _value(line.value, names)
        if isinstance(line, ast.Return):
            return value
        names["xs"] = value
    raise Refused(f"impossible: {source!r} returns nothing")


def _value(node: Any, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.List():
            return [_value(e, names) for e in node.elts]
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, names)
        case ast.BinOp():
            a, b = _value(node.left, names), _value(node.right, names)
            return a + b if isinstance(node.op, ast.Add) else a * b if isinstance(node.op, ast.Mult) else a % b
        case ast.Compare():
            a, b = _value(node.left, names), _value(node.comparators[0], names)
            kind = type(node.ops[0])
            return a > b if kind is ast.Gt else a < b if kind is ast.Lt else a == b if kind is ast.Eq else a not in b
        case ast.Subscript(slice=ast.Slice() as s):
            return _value(node.value, names)[
                slice(*(_value(e, names) if e else None for e in (s.lower, s.upper, s.step)))
            ]
        case ast.Subscript():
            return _value(node.value, names)[_value(node.slice, names)]
        case ast.Call(func=ast.Name(id=name)) if name in ("sum", "len", "max", "sorted", "range"):
            return {"sum": sum, "len": len, "max": max, "sorted": sorted, "range": range}[name](
                _value(node.args[0], names)
            )
        case ast.ListComp(generators=[ast.comprehension(target=ast.Name(id=held)) as loop]):
            inner = [{**names, held: v} for v in _value(loop.iter, names)]
            return [_value(node.elt, n) for n in inner if all(_value(test, n) for test in loop.ifs)]
    raise Refused(f"roundtrip: {type(node).__name__} is no part of a reference")
