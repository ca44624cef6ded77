"""A plan of typed tools, executed: tools one after another, each fed what the one before gives, on every sample.

How near the results come to those of the reference is a mean m over the samples: of a number 1 - |a - b| / max(|a|, |b|, 1),
of a text or of words the longest common subsequence over the longer (both not below 0). Two texts of one kind are alike without any
work, as are two small numbers, and a plan that ignores the question would be paid for that. So m is rescaled as BERTScore is
(Zhang et al. 2020, arXiv 1904.09675), by which OpenAGI pays for texts: the score is (m - b) / (1 - b), not below 0, where b is how near what
the reference gives for one sample comes to what it gives for another, a mean over all pairs. What is no nearer than a right
result for another text earns 0, a plan that gives what the reference gives earns 1, however it is written, and every other one between,
in proportion, and at most ALMOST. With one sample b is 0; where b is 1, only a right plan is paid. A plan that does not fit (a tool that there is
not, a type that the tool does not take) earns 0. Tools are pure functions of this file; part `fits`.

`explain` says where a plan does not fit, or what it gives for the first sample that it gets wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from synth.types import Problem, Score, Scored, Unscorable

FORM = "text"
GIVES = ("fits",)
EXAMPLE = {
    "prompt": "From a text: split it into words, then count them.",
    "answer": "split count",
    "args": {"samples": ["ab cd ef", "ab"]},
}
MAX_CHARS, MAX_TOOLS, ALMOST = 200, 8, 0.95
# name -> (type it takes, type it gives, function); types: text, words, numbers, number
TOOLS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "upper": ("text", "text", str.upper),
    "mirror": ("text", "text", lambda x: x[::-1]),
    "devowel": ("text", "text", lambda x: "".join(c for c in x if c not in "aeiouAEIOU")),
    "split": ("text", "words", str.split),
    "length": ("text", "number", len),
    "sort": ("words", "words", sorted),
    "unique": ("words", "words", lambda x: list(dict.fromkeys(x))),
    "reverse": ("words", "words", lambda x: x[::-1]),
    "initials": ("words", "words", lambda x: [w[:1] for w in x]),
    "join": ("words", "text", " ".join),
    "first": ("words", "text", lambda x: x[0] if x else ""),
    "longest": ("words", "text", lambda x: max(x, key=len, default="")),
    "count": ("words", "number", len),
    "sizes": ("words", "numbers", lambda x: [len(w) for w in x]),
    "total": ("numbers", "number", sum),
    "largest": ("numbers", "number", lambda x: max(x, default=0)),
    "smallest": ("numbers", "number", lambda x: min(x, default=0)),
}
_BETWEEN = re.compile(r"\s*(?:,|->|→|\||;|\s)\s*")


def steps(text: str) -> list[str]:
    """The names of a plan, written with spaces, commas, semicolons, bars or arrows between them."""
    return [x for x in _BETWEEN.split(text.strip()) if x]


def misfit(plan: Sequence[str]) -> str:
    """Where a plan for a text does not fit, in a sentence; "" where it does."""
    if not plan:
        return "There is no plan."
    if len(plan) > MAX_TOOLS:
        return f"A plan has at most {MAX_TOOLS} tools."
    now = "text"
    for k, name in enumerate(plan, 1):
        if name not in TOOLS:
            return f"Step {k}: there is no tool {name[:20]}."
        takes, gives, _ = TOOLS[name]
        if takes != now:
            return f"Step {k}: {name} takes {takes}, not {now}."
        now = gives
    return ""


def run(plan: Sequence[str], sample: str) -> Any:
    """What a plan that fits gives for a text."""
    value: Any = sample
    for name in plan:
        value = TOOLS[name][2](value)
    return value


def likeness(a: Any, b: Any) -> float:
    """In [0, 1], 1 where equal; 0 for values of two types."""
    if type(a) is not type(b):
        return 0.0
    if isinstance(a, int):
        return max(0.0, 1 - abs(a - b) / max(abs(a), abs(b), 1))
    return _common(a, b) / max(len(a), len(b)) if a or b else 1.0


def _common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], before + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def chance(results: Sequence[Any]) -> float:
    """How alike two of these are, a mean over all pairs: what a result earns that is right for another sample. 0 for a single one."""
    alike = [likeness(a, b) for a, b in combinations(results, 2)]
    return sum(alike) / len(alike) if alike else 0.0


def pipeline(problem: Problem, answer: str, *, samples: Sequence[str]) -> Score:
    """How much nearer the results of a plan come to the reference's on these samples than chance does."""
    gold, plan = steps(problem.answer), steps(answer[:MAX_CHARS])
    if misfit(gold) or not samples:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} does not run on {len(samples)} samples")
    if len(answer) > MAX_CHARS or not plan or misfit(plan):
        named = bool(plan) and all(x in TOOLS for x in plan)
        return Scored(value=0.0, parts={"parsed": float(named), "fits": 0.0})
    meant = [run(gold, s) for s in samples]
    near = [likeness(run(plan, s), m) for s, m in zip(samples, meant, strict=True)]
    value = 1.0 if min(near) == 1.0 else _above(sum(near) / len(near), chance(meant))
    return Scored(value=value, parts={"parsed": 1.0, "fits": 1.0})


def _above(near: float, base: float) -> float:
    """What lies above the base, as a share of what can lie there."""
    return min(ALMOST, max(0.0, (near - base) / (1 - base))) if base < 1.0 else 0.0


def explain(problem: Problem, answer: str, *, samples: Sequence[str]) -> str:
    """What is wrong with a plan."""
    plan = steps(answer[:MAX_CHARS])
    if told := misfit(plan):
        return told
    gold = steps(problem.answer)
    return next((f"{s!r} gives {run(plan, s)!r}." for s in samples if likeness(run(plan, s), run(gold, s)) < 1.0), "")
