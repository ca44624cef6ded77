"""Functions from lists of integers to lists, implemented twice: `apply` on values by comprehensions, `replay` by loops
over a phrase of the text."""

from __future__ import annotations

import re
from itertools import accumulate
from random import Random

from synth.families._sample import Refused

PHRASES = {  # name -> phrase; {} is the number argument of the function, if it takes one
    "reverse": "reverse it",
    "sort": "sort it ascending",
    "sums": "replace each item by the sum up to it",
    "distinct": "drop repeats",
    "add": "add {} to each",
    "times": "multiply each by {}",
    "above": "keep items above {}",
    "below": "keep items below {}",
    "multiples": "keep multiples of {}",
    "take": "keep the first {}",
    "drop": "drop the first {}",
    "rotate": "move the first {} to the end",
}
PLAIN = ("reverse", "sort", "sums", "distinct")
RANGE = {
    "add": (1, 9),
    "times": (2, 4),
    "above": (1, 9),
    "below": (4, 15),
    "multiples": (2, 3),
    "take": (1, 4),
    "drop": (1, 3),
    "rotate": (1, 3),
}
Step = tuple[str, int]  # (name, number; 0 if the function takes none)
STEPS: tuple[Step, ...] = tuple(
    [(name, 0) for name in PLAIN] + [(name, k) for name, (a, b) in RANGE.items() for k in range(a, b + 1)]
)
_PATTERNS = [(name, re.compile(phrase.replace("{}", r"(\d+)"))) for name, phrase in PHRASES.items()]


def draw_step(rng: Random) -> Step:
    name = rng.choice(tuple(PHRASES))
    return (name, 0) if name in PLAIN else (name, rng.randint(*RANGE[name]))


def phrase(step: Step) -> str:
    return PHRASES[step[0]].format(step[1])


def apply(step: Step, xs: tuple[int, ...]) -> tuple[int, ...]:
    """The function of a step, on values."""
    name, k = step
    match name:
        case "reverse":
            return xs[::-1]
        case "sort":
            return tuple(sorted(xs))
        case "sums":
            return tuple(accumulate(xs))
        case "distinct":
            return tuple(dict.fromkeys(xs))
        case "add":
            return tuple(x + k for x in xs)
        case "times":
            return tuple(x * k for x in xs)
        case "above":
            return tuple(x for x in xs if x > k)
        case "below":
            return tuple(x for x in xs if x < k)
        case "multiples":
            return tuple(x for x in xs if x % k == 0)
        case "take":
            return xs[:k]
        case "drop":
            return xs[k:]
        case _:
            return xs[k:] + xs[:k]


def replay(text: str, given: list[int]) -> list[int]:
    """The function that a phrase names, by loops. Raises Refused for an unknown phrase."""
    name, k = next(((n, int(m[1]) if m.groups() else 0) for n, p in _PATTERNS if (m := p.fullmatch(text))), ("", 0))
    if not name:
        raise Refused(f"roundtrip: {text!r} names no function")
    if name == "sort":
        rest, out = list(given), []
        while rest:
            out.append(rest.pop(rest.index(min(rest))))
        return out
    if name == "rotate":
        out = list(given)
        for _ in range(k if k < len(out) else 0):  # a shorter list stays as it is
            out.append(out.pop(0))
        return out
    out, total = [], 0
    for i, x in enumerate(given):
        total += x
        if name == "reverse":
            out.insert(0, x)
        elif name in ("sums", "add", "times"):
            out.append(total if name == "sums" else x + k if name == "add" else sum([x] * k))
        elif {
            "distinct": x not in out,
            "above": x > k,
            "below": x < k,
            "multiples": x / k == x // k if k else False,
            "take": i < k,
            "drop": i >= k,
        }[name]:
            out.append(x)
    return out
