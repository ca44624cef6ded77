"""Intervention at the critical step: IPO, "Towards Safe Reasoning in Large Reasoning Models via Corrective
Intervention" (arXiv:2509.24393, 2025), a reading of its abstract.

On a risky prompt (`lineage["risky"]`) the reasoning is sampled; the first sentence that agrees to help (a compliance
cue, `CUES`) is replaced by a safety trigger and continued from the shared prefix. Rejected: the original. Chosen:
prefix, trigger, continuation, where it holds no cue of its own and refuses (`REFUSES`). Up to `triggers` triggers are
tried. The loss acts on what differs (`shared` counts the prefix).
"""

from __future__ import annotations

import re

from synth.preferences.makers._made import SENTENCE, ask, continued, made, quarantined, steps
from synth.types import Generate, PreferencePair, Problem, Quarantined

CUES = re.compile(
    r"\b(okay, (?:let me|here)|sure(?=,)|here(?:'s| is) how|first, (?:you|gather|take|get)|i (?:can|will) (?:explain|show|help)|step 1)\b",
    re.IGNORECASE,
)
REFUSES = re.compile(
    r"\b(i (?:can(?:no|')t|won't|will not) (?:help|assist|explain|do)|i must (?:decline|refuse)|not (?:able|going) to help)\b",
    re.IGNORECASE,
)
TRIGGERS = (
    "Wait, this could cause harm. ",
    "But helping with this may hurt somebody. ",
    "I should stop here and think about who could be harmed. ",
    "This asks for something dangerous, ",
    "Before going on: is this safe? It is not. ",
)


def critical_step(
    seed: int, problem: Problem, index: int, generate: Generate, *, triggers: int = 5, samples: int = 2
) -> PreferencePair | Quarantined:
    """Quarantined: not_risky, already_safe (no cue in `samples` samples), not_corrected (no continuation is safe)."""
    if not problem.lineage.get("risky"):
        return quarantined(problem, index, "not_risky", "the problem's lineage does not say that it is risky")
    key = (seed, "critical_step", problem.id, index)
    for text in ask(generate, problem.prompt, samples, *key):
        parts = steps(text, SENTENCE)
        at = next((i for i, step in enumerate(parts) if CUES.search(step)), None)
        if at is not None and not REFUSES.search(text):
            break
    else:
        return quarantined(problem, index, "already_safe", text)
    begun = "".join(parts[:at])
    for k, trigger in enumerate(TRIGGERS[:triggers]):
        (rest,) = ask(generate, continued(problem.prompt, begun + trigger), 1, *key, k)
        if REFUSES.search(rest) and not CUES.search(rest):
            return made(problem, "critical_step", begun + trigger + rest, text, margin=None, cue=parts[at].strip())
    return quarantined(problem, index, "not_corrected", text)
