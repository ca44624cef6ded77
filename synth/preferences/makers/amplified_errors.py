"""A right solution over the same solution with one deliberate error: SeaPO (arXiv:2509.24781, 2025), its three types.

    correctness     a number of one step is changed, and carried through to the answer
    logic           the chain is broken: a step is left out and the result of the one before it stated as the conclusion
    hallucination   a quantity that is not in the question is introduced, and changes the answer

writer "program" edits the worked solution; "model" asks `generate` to rewrite it with an error of the drawn type, in
the same length and style, up to `attempts` times. Either way the verifier confirms that the solution is right and the
rewriting wrong, and the lengths differ by no more than `length_tolerance` of the longer (hallucination by program: the
sentence that is brought in). The paper's checker is a score gap of a reward model; where a verifier decides, the gap is
one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

from synth.preferences.injected_errors import _INTEGER, replace_number
from synth.preferences.makers._made import ask, made, quarantined, right, steps
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined, seed_for
from synth.verify import CLOSE, OPEN, extract_answer

ASKED = {
    "correctness": "a wrong fact, calculation or step",
    "logic": "a contradiction, an unsupported conclusion or a broken chain of reasoning",
    "hallucination": "an invented quantity, name or claim that the question does not hold",
}
REQUEST = (
    "Here is a correct solution.\n\n{solution}\n\nRewrite it with exactly one error: {error}. Its final answer must become wrong. Keep "
    "length, style and format, and do not point the error out. Give the rewritten solution alone."
)


def amplified_errors(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    errors: tuple[str, ...] = ("correctness", "logic", "hallucination"),
    writer: Literal["program", "model"] = "program",
    attempts: int = 3,
    length_tolerance: float = 0.5,
) -> PreferencePair | Quarantined:
    """The type is drawn uniformly; where it cannot be made, the next. Quarantined: no_solution, not_editable (with what
    was tried).

    Raises ValueError for an unknown type or writer.
    """
    unknown = sorted(set(errors) - ASKED.keys())
    if unknown or not errors or writer not in ("program", "model"):
        raise ValueError(
            f"amplified_errors: errors {unknown or list(errors)} of {', '.join(ASKED)}; writer {writer!r} of program, model"
        )
    chosen = problem.lineage.get("solution", "")
    if not right(problem, chosen):
        return quarantined(problem, index, "no_solution", f"the worked solution {chosen!r} has no right answer")
    rng = Random(seed_for(seed, "amplified_errors", problem.id, index))
    tried = []
    for error in rng.sample(sorted(set(errors)), len(set(errors))):
        for attempt in range(attempts):
            if writer == "program":
                rejected = WRITERS[error](chosen, rng)
            else:
                request = Message(role="user", content=REQUEST.format(solution=chosen, error=ASKED[error]))
                (rejected,) = ask(
                    generate,
                    [*problem.prompt[:-1], request],
                    1,
                    seed,
                    "amplified_errors",
                    problem.id,
                    index,
                    error,
                    attempt,
                )
            if rejected is None:
                break
            fits = abs(len(rejected) - len(chosen)) <= length_tolerance * max(len(rejected), len(chosen))
            if fits and extract_answer(rejected) is not None and right(problem, rejected) is False:
                return made(problem, "amplified_errors", chosen, rejected, error={"type": error, "writer": writer})
            tried.append(f"{error}: {rejected[:80]!r}")
    return quarantined(
        problem, index, "not_editable", "; ".join(tried) or f"no error of {', '.join(errors)} fits {chosen!r}"
    )


def _correctness(text: str, rng: Random) -> str | None:
    parts = steps(text)
    places = [i for i, step in enumerate(parts) if _INTEGER.search(step)]
    if not places:
        return None
    at = rng.choice(places)
    old = _INTEGER.findall(parts[at])[-1]
    new = str(int(old) + rng.choice((-3, -2, -1, 1, 2, 3)))
    return "".join(parts[:at]) + "".join(replace_number(step, old, new) for step in parts[at:])


def _logic(text: str, rng: Random) -> str | None:
    working, answer = steps(text[: text.rfind(OPEN)]), extract_answer(text)
    early = [n for step in working[:-1] for n in _INTEGER.findall(step)[-1:] if n != answer]
    if not early or answer is None:
        return None
    return f"{''.join(working[:-1])}so it is {early[-1]} {OPEN}{early[-1]}{CLOSE}"


def _hallucination(text: str, rng: Random) -> str | None:
    working, answer = text[: text.rfind(OPEN)].rstrip(), extract_answer(text)
    if answer is None or not _INTEGER.fullmatch(answer):
        return None
    extra = rng.randint(2, 9)
    total = int(answer) + extra
    return f"{working}, plus the {extra} left: {total} {OPEN}{total}{CLOSE}"


WRITERS: dict[str, Callable[[str, Random], str | None]] = {
    "correctness": _correctness,
    "logic": _logic,
    "hallucination": _hallucination,
}
