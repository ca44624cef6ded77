"""Shared by all families of problems: item `index` is a function of (seed, split, index), and splits never share a
normal form.

A family is a file with `LADDER` (the knobs of each level), `CERTIFICATE` (the names of its two routes), a function of
the file's name, and

    draw(rng, **knobs) -> (normal form, spec)     a random problem, as values
    pose(spec) -> dict                            its text and its answer, computed from the values: prompt, answer,
                                                  verifier, args, working
    solve(question) -> str                        an answer computed from the text alone, by another algorithm

`item` combines them into a problem, and the certificate is generic: the problem's verifier must give the answer of
`solve` full marks. So the two routes share neither code nor input, the text is proved to agree with the values, and any
process can prove a stored problem again from its text alone (`synth.questions.certify`). `solve` raises `Refused` if it
finds no answer, or more than one where one is promised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar, overload

from synth.types import Problem, Quarantined, Scored, Split, seed_for, split_of
from synth.verify import CLOSE, OPEN, verify

T = TypeVar("T")
DRAWS = 1000


def sample(seed: int, family: str, split: Split, index: int, draw: Callable[[Random], tuple[str, T]]) -> tuple[str, T]:
    """The first drawn (root, spec) whose root belongs to `split`, drawn with a generator of this index alone.

    `root` is the family's name and the normal form of the problem, so that two wordings of one problem are in the same
    split. Raises ValueError after 1000 draws: the family is too small for this split.
    """
    rng = Random(seed_for(seed, "problems", family, split, index))
    for _ in range(DRAWS):
        root, spec = draw(rng)
        if split_of(root) == split:
            return root, spec
    raise ValueError(
        f"{family}: none of {DRAWS} drawn problems belongs to the split {split!r}: choose levels with more different problems"
    )


def rung(
    ladder: Sequence[Mapping[str, Any]], levels: Sequence[int], rng: Random, family: str
) -> tuple[int, Mapping[str, Any]]:
    """One of `levels` (counted from 1) and its knobs. Raises ValueError for a level that the ladder lacks."""
    if not levels or any(not 1 <= level <= len(ladder) for level in levels):
        raise ValueError(f"{family}: levels {list(levels)} must name at least one of 1 to {len(ladder)}")
    level = rng.choice(list(levels))
    return level, ladder[level - 1]


@overload
def finish(reason: None, **row: Any) -> Problem: ...
@overload
def finish(reason: str, **row: Any) -> Quarantined: ...
@overload
def finish(reason: str | None, **row: Any) -> Problem | Quarantined: ...
def finish(
    reason: str | None,
    *,
    seed: int,
    index: int,
    root: str,
    solution: str,
    family: str,
    split: Split,
    lineage: Mapping[str, Any],
    **rest: Any,
) -> Problem | Quarantined:
    """The certified problem, or, if its certificate gives a `reason`, the same row quarantined."""
    if reason is not None:
        code, _, evidence = reason.partition(": ")
        return Quarantined(
            id=f"{family}/{split}/{index}", stage="problems", reason=code, evidence=f"{root}: {evidence}"
        )
    line = {"root": root, "solution": solution, "seed": seed, "index": index, **lineage}
    return Problem.make(family=family, split=split, lineage=line, **rest)


class Refused(ValueError):
    """The certificate of a problem fails: "code: evidence", the code one of not_unique, impossible, roundtrip,
    routes_disagree."""


def parsed(pattern: re.Pattern[str], question: str) -> re.Match[str]:
    """The match of a whole question. Raises Refused("roundtrip: ...") if the text does not have the family's form."""
    if not (match := pattern.fullmatch(question)):
        raise Refused(f"roundtrip: {question!r} is not of the form {pattern.pattern!r}")
    return match


def kind_of(question: str, kinds: Mapping[str, re.Pattern[str]], about: str) -> tuple[str, tuple[str, ...]]:
    """The kind of a question and the names in it: the first of `kinds` whose pattern is the whole text. Raises Refused for
    another text, which asks nothing `about` the thing shown."""
    for kind, pattern in kinds.items():
        if match := pattern.fullmatch(question):
            return kind, match.groups()
    raise Refused(f"roundtrip: {question!r} asks nothing about {about}")


def item(
    seed: int,
    split: Split,
    index: int,
    levels: Sequence[int],
    *,
    family: str,
    ladder: Sequence[Mapping[str, Any]],
    certificate: Sequence[str],
    draw: Callable[..., tuple[Any, T]],
    pose: Callable[[T], Mapping[str, Any]],
    solve: Callable[[str], str],
    agree: Callable[[Problem, str], bool] | None = None,
    env: str = "single",
) -> Problem | Quarantined:
    """Problem `index` of a split, drawn, posed and certified (see the docstring of this file), to be played in `env`.

    The numbers among a level's knobs are the axes of `difficulty`. agree: compares the two answers if the verifier is
    too slow to run for every item; by default the verifier.
    """

    def one(rng: Random) -> tuple[str, tuple[int, Mapping[str, Any], T]]:
        level, knobs = rung(ladder, levels, rng, family)
        form, spec = draw(rng, **knobs)
        return f"{family}:{form}", (level, knobs, spec)

    root, (level, knobs, spec) = sample(seed, family, split, index, one)
    posed = dict(pose(spec))
    working = posed.pop("working", "")
    problem = finish(
        None,
        seed=seed,
        index=index,
        root=root,
        split=split,
        family=family,
        difficulty={
            "level": level,
            **{k: v for k, v in knobs.items() if isinstance(v, int | float) and not isinstance(v, bool)},
        },
        solution=f"{working}{' ' if working else ''}{OPEN}{posed['answer']}{CLOSE}",
        lineage={"certificate": list(certificate)},
        env=env,
        **posed,
    )
    reason = refuted(problem, solve, agree)
    return (
        problem
        if reason is None
        else finish(reason, seed=seed, index=index, root=root, split=split, family=family, solution="", lineage={})
    )


def refuted(
    problem: Problem, solve: Callable[[str], str], agree: Callable[[Problem, str], bool] | None = None
) -> str | None:
    """None if the answer solved from the text is as right as the stored one; else "code: evidence"."""
    try:
        other = solve(problem.question)
    except Refused as e:
        return str(e)
    if agree is not None:
        return (
            None
            if agree(problem, other)
            else f"routes_disagree: {problem.answer!r} is stored, the text gives {other!r}"
        )
    verdict = verify(problem, other)
    if isinstance(verdict, Scored) and verdict.value == 1.0:
        return None
    return f"routes_disagree: {problem.answer!r} is stored, the text gives {other!r} ({verdict})"
