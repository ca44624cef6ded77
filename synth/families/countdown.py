"""Countdown: use each of the given numbers once, with + - * /, to make the target.

Certificate: a dynamic programme over subsets of the numbers finds the target among all values that can be made through
positive integers, and the stored expression, parsed by the verifier's own parser, evaluates to it from exactly these
numbers. Difficulty axes: how many numbers, how large, how large a target.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, finish, parsed, rung, sample
from synth.types import Problem, Quarantined, Split, seed_for
from synth.verify.expression import parse

LADDER = (
    {"numbers": 3, "size": 9, "target": 50},
    {"numbers": 3, "size": 20, "target": 100},
    {"numbers": 4, "size": 12, "target": 100},
    {"numbers": 4, "size": 50, "target": 200},
    {"numbers": 5, "size": 25, "target": 500},
)
CERTIFICATE = ("subset_dp", "evaluation")
_TEXT = re.compile(r"Make (\d+) from (\d+(?: \d+)*)\.")


def countdown(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), backtracks: int = 0
) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from, 1 the easiest.

    backtracks: how many dead-end first steps the worked solution contains, each followed by "back" (Cai et al.
    2025, "How Much Backtracking is Enough?", arXiv 2505.24273). Problem and answer do not depend on it.
    """

    def draw(rng: Random) -> tuple[str, tuple]:
        level, knobs = rung(LADDER, levels, rng, "countdown")
        while True:
            numbers = [rng.randint(1, knobs["size"]) for _ in range(knobs["numbers"])]
            target, text, steps = _combine(rng, numbers)
            if target <= knobs["target"] and target not in numbers:
                return f"countdown:{sorted(numbers)}:{target}", (level, numbers, target, text, steps)

    root, (level, numbers, target, text, steps) = sample(seed, "countdown", split, index, draw)
    return finish(
        certify(numbers, target, text),
        seed=seed,
        index=index,
        root=root,
        split=split,
        family="countdown",
        prompt=f"Make {target} from {' '.join(map(str, numbers))}.",
        answer=text,
        verifier="expression",
        args={"numbers": numbers, "target": target},
        difficulty={"level": level, "numbers": len(numbers), "target": target},
        solution=f"{', '.join([*_dead_ends(numbers, target, backtracks, root), *steps])} <answer>{text}</answer>",
        lineage={"certificate": list(CERTIFICATE)},
    )


def certify(numbers: Sequence[int], target: int, text: str) -> str | None:
    """None, or "code: evidence" of why `text` is no proof that `numbers` make `target`."""
    node = parse(text)
    by_value = Counter(node.leaves) == Counter(numbers) and node.value == target
    by_search = target in reachable(numbers)
    if by_value != by_search:
        return (
            f"routes_disagree: {text} = {node.value}, the search {'finds' if by_search else 'does not find'} {target}"
        )
    return None if by_value else f"impossible: {list(numbers)} cannot make {target}"


def reachable(numbers: Sequence[int]) -> frozenset[int]:
    """Every positive integer that all the numbers make together through positive integers: a table over subsets, O(3^n)
    merges."""
    table: list[set[int]] = [set() for _ in range(1 << len(numbers))]
    for i, number in enumerate(numbers):
        table[1 << i].add(number)
    for subset in range(1, len(table)):
        part = (subset - 1) & subset
        while part > subset ^ part:  # each split once: the half with the highest bit first
            for a in table[part]:
                for b in table[subset ^ part]:
                    table[subset].update((a + b, a * b))
                    if a != b:
                        table[subset].add(abs(a - b))
                    if max(a, b) % min(a, b) == 0:
                        table[subset].add(max(a, b) // min(a, b))
            part = (part - 1) & subset
    return frozenset(table[-1])


def _combine(rng: Random, numbers: Sequence[int]) -> tuple[int, str, list[str]]:
    """(value, expression, steps) of joining two random parts until one is left, through positive integers only."""
    parts, steps = [(n, str(n)) for n in numbers], []
    while len(parts) > 1:
        rng.shuffle(parts)
        (a, left), (b, right) = parts.pop(), parts.pop()
        if a < b:
            (a, left), (b, right) = (b, right), (a, left)
        legal = ["+", "*"] + ["-"] * (a > b) + ["/"] * (b > 1 and a % b == 0)
        operator = rng.choice(legal)
        value = {"+": a + b, "*": a * b, "-": a - b, "/": a // b}[operator]
        steps.append(f"{a} {operator} {b} = {value}")
        parts.append((value, f"({left} {operator} {right})"))
    value, text = parts[0]
    return value, text[1:-1], steps


def _dead_ends(numbers: Sequence[int], target: int, n: int, root: str) -> list[str]:
    """`n` first steps after which the target cannot be made, each followed by "back"; repeated if there are fewer."""
    wrong = []
    for i, a in enumerate(numbers) if n else ():
        for j, b in enumerate(numbers):
            if i != j and a >= b:
                rest = [x for k, x in enumerate(numbers) if k not in (i, j)]
                values = (
                    {"+": a + b, "*": a * b}
                    | ({"-": a - b} if a > b else {})
                    | ({"/": a // b} if b > 1 and a % b == 0 else {})
                )
                wrong += [f"{a} {o} {b} = {v}, back" for o, v in values.items() if target not in reachable([*rest, v])]
    wrong = sorted(set(wrong))
    Random(seed_for("countdown", "dead ends", root)).shuffle(wrong)
    return (wrong * n)[:n] if wrong else []


def solve(question: str) -> str:
    """An expression from the text alone, by depth-first search over pairs. Raises Refused if there is none."""
    target, numbers = parsed(_TEXT, question).groups()
    solution = _search([(int(n), n) for n in numbers.split()], int(target))
    if solution is None:
        raise Refused(f"impossible: {numbers} cannot make {target}")
    return solution


def _search(parts: list[tuple[int, str]], target: int) -> str | None:
    if len(parts) == 1:
        return parts[0][1] if parts[0][0] == target else None
    for i, (a, left) in enumerate(parts):
        for j, (b, right) in enumerate(parts):
            if i == j or a < b:
                continue
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            joined = [(a + b, "+"), (a * b, "*")] + [(a - b, "-")] * (a > b) + [(a // b, "/")] * (a % b == 0)
            for value, operator in joined:
                if solution := _search([*rest, (value, f"({left} {operator} {right})")], target):
                    return solution
    return None


def posed(question: str) -> dict[str, Any]:
    """A question that was proposed: its normal form, text and an expression, found from the table over subsets. Raises
    Refused for another text, for more than five numbers or one above 999, and where the target cannot be made."""
    target, *numbers = map(int, re.findall(r"\d+", parsed(_TEXT, question)[0]))
    if len(numbers) > 5 or max(target, *numbers) > 999 or min(target, *numbers) < 1:
        raise Refused("roundtrip: countdown takes two to five numbers from 1 to 999")
    text = _rebuilt(numbers, target)
    if text is None:
        raise Refused(f"impossible: {numbers} cannot make {target}")
    return {
        "form": f"{sorted(numbers)}:{target}",
        "prompt": f"Make {target} from {' '.join(map(str, numbers))}.",
        "answer": text,
        "verifier": "expression",
        "args": {"numbers": numbers, "target": target},
    }


def _rebuilt(numbers: Sequence[int], target: int) -> str | None:
    """An expression for the target, going backwards through the sets that parts of the numbers can make; None if there
    is none."""
    if len(numbers) == 1:
        return str(target) if numbers[0] == target else None
    if target not in reachable(numbers):
        return None
    for chosen in range(1, (1 << len(numbers)) - 1):
        one = [n for i, n in enumerate(numbers) if chosen >> i & 1]
        two = [n for i, n in enumerate(numbers) if not chosen >> i & 1]
        right = reachable(two)
        for a in sorted(reachable(one)):
            factors = [("*", target // a)] * (target % a == 0) + [("/", a // target)] * (a % target == 0)
            for operator, b in [("+", target - a), ("-", a - target), *factors]:
                if b > 0 and b in right:
                    return f"({_rebuilt(one, a)}) {operator} ({_rebuilt(two, b)})"
    return None
