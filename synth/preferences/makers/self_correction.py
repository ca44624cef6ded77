"""A correction over the model's own wrong attempt: the second stage of MedCritical (arXiv:2509.23368, 2025), a reading
of its abstract.

The model answers; where it is wrong, the same model gets the right answer as a hint, finds the wrong step and rewrites
the solution. The correction is kept where the verifier calls it right and it does not mention the hint; no teacher is
asked.
"""

from __future__ import annotations

import re

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined

REQUEST = (
    "This is not right. The correct answer is {answer}. Find the first step that went wrong, then write the whole solution again. "
    "Do not mention that you were told the answer."
)
_LEAK = re.compile(
    r"\b(hint|you (?:said|told)|as (?:given|told)|the correct answer (?:is|was) given|my (?:mistake|earlier))\b",
    re.IGNORECASE,
)


def self_correction(
    seed: int, problem: Problem, index: int, generate: Generate, *, samples: int = 4, attempts: int = 3
) -> PreferencePair | Quarantined:
    """Quarantined: all_right, not_corrected (no correction was right), mentions_the_hint."""
    key = (seed, "self_correction", problem.id, index)
    wrong = next((t for t in ask(generate, problem.prompt, samples, *key) if right(problem, t) is False), None)
    if wrong is None:
        return quarantined(problem, index, "all_right", f"none of {samples} attempts is wrong")
    again = Message(role="user", content=REQUEST.format(answer=problem.answer))
    prompt = (*problem.prompt, Message(role="assistant", content=wrong), again)
    corrected = [t for t in ask(generate, prompt, attempts, *key, "again") if right(problem, t)]
    clean = [t for t in corrected if not _LEAK.search(t)]
    if not clean:
        return quarantined(
            problem, index, "mentions_the_hint" if corrected else "not_corrected", corrected[0] if corrected else wrong
        )
    return made(problem, "self_correction", clean[0], wrong)
