"""Which clauses of a policy does a case break?

Certificate: the drawn case is judged clause by clause on the values; from the text, the facts of the case and the
limits of the clauses are read back and compared. Difficulty axes: clauses, exceptions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"clauses": 3, "exceptions": 0},
    {"clauses": 4, "exceptions": 1},
    {"clauses": 6, "exceptions": 2},
    {"clauses": 8, "exceptions": 4},
)
CERTIFICATE = ("judged on the values", "facts and limits read from the text")
LIMITS = {"cost": 900, "days": 60, "guests": 40, "weight": 90, "pages": 200, "hours": 48}
FLAGS = ("member", "insured", "urgent", "local", "signed", "paid")
_CLAUSE, _STATED = r"\d+ (?:at (?:most|least) \d+|must be|must not be) \w+(?: unless \w+)?", r"(?:\w+ \d+|(?:not )?\w+)"
WORDINGS = Wordings(
    "Rules: {rules}. Case: {case}. Which rules are broken?",
    "Case: {case}. Which of these rules does it break: {rules}?",
    "These rules apply: {rules}. Which of them are not kept by the case {case}?",
    "Check the case {case} against the rules {rules}. Which of them does it break?",
    "A form says: {case}. The office has these rules: {rules}. Against which of them is the form?",
    answer="Answer with the numbers of the rules, or none.",
    rules=f"{_CLAUSE}(?:; {_CLAUSE})*",
    case=f"{_STATED}(?:, {_STATED})*",
)
_RULE = re.compile(r"(\d+) (?:(at most|at least) (\d+) (\w+)|must be (\w+)|must not be (\w+))(?: unless (\w+))?")
_FACT = re.compile(r"(?:(\w+) (\d+)|(not )?(\w+))")
Rule = tuple[str, str, int, str]  # (at most | at least | must be | must not be, subject, limit, exception or "")


def clause_compliance(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: numbers of rules in any order, or "none". `levels` are the rungs of the ladder to
    draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="clause_compliance",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(
    rng: Random, *, clauses: int, exceptions: int
) -> tuple[str, tuple[list[Rule], dict[str, int], dict[str, bool]]]:
    numbers = {n: rng.randint(1, top) for n, top in LIMITS.items()}
    flags = {f: rng.random() < 0.5 for f in FLAGS}
    rules: list[Rule] = []
    subjects = rng.sample([*LIMITS, *FLAGS], clauses)
    for i, subject in enumerate(subjects):
        if subject in LIMITS:  # a limit near the value, so that both verdicts are about as likely
            limit = max(1, numbers[subject] + rng.randint(-LIMITS[subject] // 6, LIMITS[subject] // 6))
            kind = rng.choice(("at most", "at least"))
        else:
            limit, kind = 0, rng.choice(("must be", "must not be"))
        other = rng.choice([f for f in FLAGS if f != subject]) if i < exceptions else ""
        rules.append((kind, subject, limit, other))
    rng.shuffle(rules)
    used = {s for _, s, _, _ in rules} | {e for *_, e in rules}
    case = {n: v for n, v in numbers.items() if n in used}, {f: v for f, v in flags.items() if f in used}
    return f"{sorted(rules)} {case}", (rules, *case)


def pose(spec: tuple[list[Rule], dict[str, int], dict[str, bool]]) -> dict[str, Any]:
    rules, numbers, flags = spec
    broken = []
    for i, (kind, subject, limit, exception) in enumerate(rules, 1):
        kept = {
            "at most": lambda s, n: numbers[s] <= n,
            "at least": lambda s, n: numbers[s] >= n,
            "must be": lambda s, n: flags[s],
            "must not be": lambda s, n: not flags[s],
        }[kind](subject, limit)
        if not kept and not (exception and flags[exception]):
            broken.append(i)
    clauses = [
        f"{i} {kind} {f'{limit} ' if kind.startswith('at') else ''}{subject}{f' unless {exception}' if exception else ''}"
        for i, (kind, subject, limit, exception) in enumerate(rules, 1)
    ]
    facts = [f"{n} {v}" for n, v in numbers.items()] + [f if v else f"not {f}" for f, v in flags.items()]
    return {
        "prompt": WORDINGS.write(rules="; ".join(clauses), case=", ".join(facts)),
        "answer": " ".join(map(str, broken)) or "none",
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    facts: dict[str, int] = {}
    for fact in read["case"].split(", "):
        name, number, negated, flag = parsed(_FACT, fact).groups()
        facts[name or flag] = int(number) if name else int(not negated)
    broken = []
    for rule in read["rules"].split("; "):
        at, kind, limit, subject, wanted, unwanted, exception = parsed(_RULE, rule).groups()
        if exception and facts[exception]:
            continue
        if subject and subject not in facts:
            raise Refused(f"roundtrip: the case says nothing of {subject}")
        value = facts[subject or wanted or unwanted]
        span = (
            range(int(limit) + 1)
            if kind == "at most"
            else range(int(limit), 10_000)
            if kind
            else (1,)
            if wanted
            else (0,)
        )
        if value not in span:
            broken.append(at)
    return " ".join(broken) or "none"
