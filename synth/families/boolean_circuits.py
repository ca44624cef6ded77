"""The values on the wires of a circuit of gates, or the truth table of its last wire.

Certificate: every row is evaluated gate by gate on the values; from the text all rows are evaluated at once, a wire
being an integer whose bits are its rows. Difficulty axes: inputs, gates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"inputs": 2, "gates": 3, "table": False},
    {"inputs": 3, "gates": 6, "table": False},
    {"inputs": 3, "gates": 5, "table": True},
    {"inputs": 4, "gates": 9, "table": True},
)
CERTIFICATE = ("row by row, gate by gate, on the values", "all rows at once in the bits of integers, over the text")
GATES = {"AND": (0, 0, 0, 1), "OR": (0, 1, 1, 1), "XOR": (0, 1, 1, 0), "NAND": (1, 1, 1, 0), "NOR": (1, 0, 0, 0)}
_WIRES = re.compile(r"([a-z]\d?=[01](?: [a-z]\d?=[01])*)\. (.+)\. Give the bits ([a-z0-9 ]+)\.")
_TABLE = re.compile(r"Inputs ([a-z ]+)\. (.+)\. Give the (\d+) bits of ([a-z]\d?), one for each row from 0+ to 1+\.")
_GATE = re.compile(r"([a-z]\d?) = ([a-z]\d?) ([A-Z]+) ([a-z]\d?)")
Gate = tuple[str, str, str, str]  # (out, in, operation, in)
Spec = tuple[tuple[str, ...], list[Gate], tuple[int, ...] | None]


def boolean_circuits(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: bits without spaces. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="boolean_circuits",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, inputs: int, gates: int, table: bool) -> tuple[str, Spec]:
    names = tuple("abcd"[:inputs])
    wires, drawn = list(names), []
    for i in range(gates):
        left, right = rng.sample(wires[-5:], 2)
        drawn.append((f"w{i + 1}", left, rng.choice(tuple(GATES)), right))
        wires.append(f"w{i + 1}")
    values = None if table else tuple(rng.randint(0, 1) for _ in names)
    return f"{drawn} {values}", (names, drawn, values)


def run(gates: Sequence[Gate], values: dict[str, int]) -> dict[str, int]:
    values = dict(values)
    for out, left, operation, right in gates:
        values[out] = GATES[operation][2 * values[left] + values[right]]
    return values


def pose(spec: Spec) -> dict[str, Any]:
    names, gates, values = spec
    text = ", ".join(f"{out} = {left} {operation} {right}" for out, left, operation, right in gates)
    if values is None:
        rows = [
            run(gates, dict(zip(names, row, strict=True)))[gates[-1][0]] for row in product((0, 1), repeat=len(names))
        ]
        n = len(names)
        prompt = f"Inputs {' '.join(names)}. {text}. Give the {2**n} bits of {gates[-1][0]}, one for each row from {'0' * n} to {'1' * n}."
        answer, working = "".join(map(str, rows)), ""
    else:
        known = run(gates, dict(zip(names, values, strict=True)))
        given = " ".join(f"{n}={v}" for n, v in zip(names, values, strict=True))
        prompt = f"{given}. {text}. Give the bits {' '.join(g[0] for g in gates)}."
        answer = "".join(str(known[g[0]]) for g in gates)
        working = ", ".join(f"{g[0]} = {known[g[0]]}" for g in gates)
    return {"prompt": prompt, "answer": answer, "verifier": "grid", "working": working}


def solve(question: str) -> str:
    if match := _WIRES.fullmatch(question):
        rows, wires = 1, {n: int(v) for n, v in (pair.split("=") for pair in match[1].split())}
        wanted = match[3].split()
    else:
        match = parsed(_TABLE, question)
        names = match[1].split()
        rows = 1 << len(names)
        wires = {n: sum(((row >> (len(names) - 1 - i)) & 1) << row for row in range(rows)) for i, n in enumerate(names)}
        wanted = [match[4]]
    every = (1 << rows) - 1
    for out, left, operation, right in _GATE.findall(match[2]):
        a, b = wires[left], wires[right]
        value = a & b if operation.endswith("AND") else a ^ b if operation == "XOR" else a | b
        wires[out] = every ^ value if operation in ("NAND", "NOR") else value
    return "".join(str((wires[name] >> row) & 1) for name in wanted for row in range(rows))
