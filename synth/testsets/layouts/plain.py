"""Plain rows: a question and a reference answer, under the names that people use for them, or those that are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.testsets.layouts import ASK, field, problem
from synth.types import Problem
from synth.verify.number import parse

QUESTIONS = ("question", "prompt", "problem", "input", "instruction", "query")
ANSWERS = ("answer", "reference", "target", "output", "solution", "ground_truth", "label")


def plain(
    row: Mapping[str, Any],
    index: int,
    *,
    name: str = "plain",
    ask: str = ASK,
    question: str = "",
    answer: str = "",
    verifier: str = "",
) -> Problem:
    """`question`, `answer`: names of the fields. `verifier`: a file of synth/verify; without one, `number` for numbers
    and `exact` for the rest, where a list of answers gives the aliases, and a field `args` the verifier's arguments."""
    question_text = field(row, *((question,) if question else QUESTIONS))
    key = answer or next((a for a in ANSWERS if a in row), "answer")
    given = row.get(key)
    aliases = [str(a) for a in given[1:]] if isinstance(given, list) else []
    reference = str(given[0]) if isinstance(given, list) and given else field(row, key)
    chosen = verifier or ("number" if parse(reference) is not None and not aliases else "exact")
    args = row.get("args") if isinstance(row.get("args"), dict) else {"aliases": aliases} if chosen == "exact" else {}
    return problem(name, index, question=question_text, answer=reference, verifier=chosen, ask=ask, args=args)
