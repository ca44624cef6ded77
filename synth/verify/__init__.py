"""Verifiers, one file each, function named as its file. `Problem.args` are the knobs.

A verdict is about the answer alone: an answer that is malformed, too long or empty is *wrong* (value 0, with
`parts["parsed"]` 0), because that is the model's fault. `Unscorable` is for other failures: a reference that does not
parse, or a machine that is too slow or not safe enough. No verifier evaluates or imports its input. A verifier spends
linear time on it, or names `SECONDS` of CPU time, and then runs in a process of the pool (`synth.verify._pool`), which
is killed beyond them.

`verdict` reads the word from a score: correct, wrong, unparsable, timeout, truncated, or the code of an Unscorable.

A file's `FORM` names the reading that its answers get first (`synth.verify._spelling`): wrapping and spelling are
normalised in one place, for all verifiers. Each file also holds `EXAMPLE`, the keyword arguments of a Problem that it
verifies, on which the contract test runs its negative controls: new files are tested automatically. A file may
hold `explain(problem, answer, **args)`: a sentence that says what is wrong with an answer, for environments that tell
the model; and `drawn(answer)`: pictures (uint8 [H, W, 3]) of what an answer makes, for people.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify._pool import shared
from synth.verify._spelling import plain


class VerifierPiece(Protocol):
    """Scores one answer.

    Args:
        problem: its reference answer is `problem.answer`
        answer: the model's answer, without its tags
        **args: `problem.args`: aliases, numbers, tolerance

    Returns:
        `Scored` with a value in [0, 1] and parts, or `Unscorable` with the reason if it is not the model's fault

    Check gives:
        problem: prompt, answer, args
        answers: the answers that are scored

    Check expects:
        values: per answer, null where it could not be scored
        verdicts: per answer its word: correct, wrong, unparsable, ...
        parts: per answer the parts of its score
    """

    def __call__(self, problem: Problem, answer: str, **args: Any) -> Score: ...


OPEN, CLOSE = "<answer>", "</answer>"
WRONG = Scored(value=0.0, parts={"parsed": 1.0})
UNPARSABLE = Scored(value=0.0, parts={"parsed": 0.0})
RIGHT = Scored(value=1.0, parts={"parsed": 1.0})
TIMEOUT = Scored(value=0.0, parts={"parsed": 1.0, "timeout": 1.0})
TRUNCATED = Scored(value=0.0, parts={"parsed": 0.0, "truncated": 1.0})


def extract_answer(text: str) -> str | None:
    """The stripped text of the last complete `<answer>...</answer>` in `text`; None if there is none. Linear time."""
    end = text.rfind(CLOSE)
    start = text.rfind(OPEN, 0, end) if end >= 0 else -1
    if start < 0:
        return None
    start += len(OPEN)
    return text[start : text.find(CLOSE, start)].strip()


def verifier(name: str) -> tuple[ModuleType, VerifierPiece]:
    """The file of a verifier and its function. Raises LookupError where there is none of that name."""
    piece = name.replace("-", "_")
    try:
        module = import_module(f"synth.verify.{piece}")
    except ModuleNotFoundError as e:
        if e.name != f"synth.verify.{piece}":  # the verifier exists; something that it imports does not
            raise
        raise LookupError(f"verifier {name!r}, which synth/verify does not hold") from e
    return module, getattr(module, piece)


def verify(problem: Problem, answer: str | None) -> Score:
    """Score one answer by the problem's own verifier; None (no answer was given) is unparsable.

    Raises LookupError for an unknown verifier: that is a broken problem set, not a bad answer.
    """
    try:
        module, score = verifier(problem.verifier)
    except LookupError as e:
        raise LookupError(f"problem {problem.id} names the {e}") from e
    if answer is None:
        return UNPARSABLE
    answer = _as_read(module, problem, answer)
    if hasattr(module, "SECONDS"):
        return shared().score(problem, answer, module.SECONDS)
    return score(problem, answer, **problem.args)


def explained(problem: Problem, answer: str) -> str:
    """What the problem's verifier finds wrong with an answer, in a sentence.

    Raises LookupError for a verifier without `explain`.
    """
    module, _ = verifier(problem.verifier)
    if not hasattr(module, "explain"):
        raise LookupError(
            f"the verifier {problem.verifier} of problem {problem.id} explains nothing: do without `checker`"
        )
    return module.explain(problem, _as_read(module, problem, answer), **problem.args)


def drawn(problem: Problem, answer: str) -> list[np.ndarray]:
    """Pictures of what an answer makes, as its verifier sees it; none where the verifier draws nothing, and of an answer that makes nothing."""
    try:
        module, _ = verifier(problem.verifier)
    except LookupError:
        return []
    if not hasattr(module, "drawn"):
        return []
    try:
        return module.drawn(_as_read(module, problem, answer))
    except ValueError:
        return []


def _as_read(module: ModuleType, problem: Problem, answer: str) -> str:
    """The answer as a verifier's file reads it, by its FORM."""
    form = getattr(module, "FORM", None)
    if form is None:
        return answer
    return plain(answer, form, problem.question if form == "literal" else "", problem.answer)


def missing(text: str) -> Scored:
    """The verdict on a turn without a complete answer: truncated where one was begun, else unparsable."""
    return TRUNCATED if text.rfind(OPEN) > text.rfind(CLOSE) else UNPARSABLE


def verdict(score: Score) -> str:
    """correct, wrong, unparsable, timeout or truncated; the reason's code for an Unscorable. Partial credit below 1 is
    wrong."""
    if isinstance(score, Unscorable):
        return score.reason.partition(":")[0]
    if score.value == 1.0:
        return "correct"
    flags = [name for name in ("timeout", "truncated") if score.parts.get(name)]
    return flags[0] if flags else "wrong" if score.parts.get("parsed", 1.0) else "unparsable"
