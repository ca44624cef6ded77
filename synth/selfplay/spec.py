"""Proposals: a machine-checkable spec in, a certified problem out. The proposer's own answer is never used.

A spec is one JSON object:

    {"family": "countdown", "level": 2, "draw": 17}                      item `draw` of a family at a level
    {"family": "integer_arithmetic", "level": 3, "question": "Compute 3 + 4 * 2."}    a question in the family's own
    words

The second form is for families that can read their own text back into values (`posed`): the answer is computed from
those values and, by the family's other algorithm, from the text; the text written from the values must be the text that
was given. A spec comes from a program or a model, so all of it is hostile: size, depth and every field are checked, and
what fails is quarantined with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from synth.families._sample import Refused, finish, refuted
from synth.types import Problem, Quarantined, digest, split_of

MAX_SPEC, MAX_QUESTION, MAX_DRAW = 1000, 300, 10**9
FIELDS = {"family", "level", "draw", "question"}


@dataclass(frozen=True)
class Family:
    """make: f(seed, split, index, *, levels); levels: length of the ladder; solve and posed: the two routes for a given
    question (`posed` None: the family cannot read questions); agree: what compares the two, None for the problem's
    verifier."""

    make: Callable[..., Problem | Quarantined]
    levels: int
    solve: Callable[[str], str]
    posed: Callable[[str], Mapping[str, Any]] | None = None
    agree: Callable[[Problem, str], bool] | None = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A proposal that is well-formed. Exactly one of draw and question is given."""

    family: str
    level: int
    draw: int | None = None
    question: str | None = None

    def text(self) -> str:
        """The JSON that `read` takes."""
        return json.dumps({k: v for k, v in vars(self).items() if v is not None}, ensure_ascii=False)


def read(text: str, families: Mapping[str, Family]) -> Spec:
    """The spec of a proposal. Raises ValueError that says what is wrong with it."""
    if len(text) > MAX_SPEC:
        raise ValueError(f"a spec of {len(text)} characters is over the limit of {MAX_SPEC}")
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"no JSON: {str(e)[:80]}") from e
    if not isinstance(spec, dict) or set(spec) - FIELDS:
        raise ValueError(f"a spec is one object with the fields {', '.join(sorted(FIELDS))}")
    family, level, draw, question = (spec.get(k) for k in ("family", "level", "draw", "question"))
    if not isinstance(family, str) or family not in families:
        raise ValueError(f"there is no family {str(family)[:40]!r}")
    if type(level) is not int or not 1 <= level <= families[family].levels:
        raise ValueError(f"level {str(level)[:20]} of {family} is none of 1 to {families[family].levels}")
    if (draw is None) == (question is None):
        raise ValueError("a spec has either draw or question")
    if draw is not None and (type(draw) is not int or not 0 <= draw < MAX_DRAW):
        raise ValueError(f"draw {str(draw)[:20]} is no integer from 0 to {MAX_DRAW - 1}")
    if question is not None and (
        not isinstance(question, str) or len(question) > MAX_QUESTION or families[family].posed is None
    ):
        raise ValueError(
            f"{family} takes no question"
            if families[family].posed is None
            else f"a question has up to {MAX_QUESTION} characters"
        )
    return Spec(family=family, level=level, draw=draw, question=question)


def certify(text: str, families: Mapping[str, Family], seed: int) -> Problem | Quarantined:
    """The certified problem of a proposal, of the split train.

    Quarantined as spec_invalid, as contaminated (its normal form belongs to valid or test), or for what its certificate
    says: not_unique, impossible, roundtrip, routes_disagree.
    """
    name = digest("spec", text[:MAX_SPEC])[:20]
    try:
        spec = read(text, families)
    except ValueError as e:
        return Quarantined(id=name, stage="problems", reason="spec_invalid", evidence=f"{e}: {text[:200]!r}")
    family = families[spec.family]
    if spec.draw is not None:
        return family.make(seed, "train", spec.draw, levels=[spec.level])
    try:
        posed = dict(family.posed(spec.question))  # type: ignore[misc, arg-type]
    except (Refused, ValueError, ArithmeticError) as e:
        code, _, evidence = str(e).partition(": ")
        code = code if isinstance(e, Refused) else "impossible"
        return Quarantined(id=name, stage="problems", reason=code, evidence=f"{spec.question[:200]!r}: {evidence or e}")  # type: ignore[index]
    root = f"{spec.family}:{posed.pop('form')}"
    if split_of(root) != "train":
        return Quarantined(
            id=name, stage="problems", reason="contaminated", evidence=f"{root} belongs to the split {split_of(root)}"
        )
    working = posed.pop("working", "")
    rest = {
        "seed": seed,
        "index": -1,
        "root": root,
        "split": "train",
        "family": spec.family,
        "lineage": {"spec": spec.text()},
    }
    problem = finish(
        None,
        solution=f"{working}{' ' if working else ''}<answer>{posed['answer']}</answer>",
        difficulty={"level": spec.level},
        **rest,
        **posed,
    )
    if problem.question != spec.question:  # type: ignore[union-attr]
        return Quarantined(
            id=name,
            stage="problems",
            reason="roundtrip",
            evidence=f"{spec.question!r} was read as {problem.question!r}",  # type: ignore[union-attr]
        )
    reason = refuted(problem, family.solve, family.agree)  # type: ignore[arg-type]
    return problem if reason is None else finish(reason, solution="", **rest)
