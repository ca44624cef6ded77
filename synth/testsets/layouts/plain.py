"""Plain rows: a question and a reference answer, under the names that people use for them, or those that are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from synth.preferences.imported import messages_of
from synth.testsets.layouts import ASK, field, problem
from synth.types import Message, Problem
from synth.verify import CLOSE, OPEN
from synth.verify.number import parse

QUESTIONS = ("question", "prompt", "problem", "input", "instruction", "query", "messages")
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
    env: str = "",
) -> Problem:
    """`question`, `answer`: names of the fields; a question may be chat messages. `verifier`: a file of synth/verify;
    without one the row's own, else `number` for numbers and `exact` for the rest, where a list of answers gives the
    aliases, and a field `args` the verifier's arguments. Where a verifier is named, a row needs no answer. `env`: where
    the row names none. A field `solution` beside the answer is a worked answer, to be learned from."""
    key = question or _named(row, QUESTIONS)
    talk = messages_of({"messages": row[key]}) if isinstance(row.get(key), list) else ()
    text = next((m.content for m in reversed(talk) if m.role == "user"), "") if talk else field(row, key)
    named = str(row.get("verifier") or verifier)
    key = answer or _named(row, ANSWERS)
    given = row.get(key)
    unanswered = given is None and bool(named)
    aliases = [str(a) for a in given[1:]] if isinstance(given, list) else []
    if unanswered:
        reference = f"(whatever {named} scores 1)"
    else:
        reference = str(given[0]) if isinstance(given, list) and given else field(row, key)
    chosen = named or ("number" if parse(reference) is not None and not aliases else "exact")
    args = row.get("args") if isinstance(row.get("args"), dict) else {"aliases": aliases} if chosen == "exact" else {}
    built = problem(name, index, question=text, answer=reference, verifier=chosen, ask=ask, args=args)
    if len(talk) > 1:
        last = max(i for i, m in enumerate(talk) if m.role == "user")
        prompt = (*talk[:last], Message(role="user", content=built.question))
        built = Problem.make(
            prompt=prompt,
            answer=built.answer,
            verifier=chosen,
            args=args,
            family=name,
            lineage=built.lineage,
            split="test",
        )
    lineage = {**built.lineage, **({"unanswered": True} if unanswered else {"solution": _worked(row, key, reference)})}
    return replace(built, lineage=lineage, env=str(row.get("env") or env or "single"))


def _named(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first of the names under which the row has something; else the first that it has, be it empty."""
    filled = next((n for n in names if row.get(n) is not None), "")
    return filled or next((n for n in names if n in row), names[0])


def _worked(row: Mapping[str, Any], key: str, reference: str) -> str:
    """The worked answer of a row, which ends in the answer between its tags."""
    text = row.get("solution") if key != "solution" and isinstance(row.get("solution"), str) else ""
    return text if text and OPEN in text else f"{text}\n{OPEN}{reference}{CLOSE}".strip()
