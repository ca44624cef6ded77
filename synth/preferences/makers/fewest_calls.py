"""A right sample with the fewest tool calls over a wrong one, or over a right one with more calls: pairs for a model
that calls too often, or too seldom.

Tool-Light, 2025, "Toward Effective Tool-Integrated Reasoning via Self-Evolved Preference Learning" (arXiv 2509.23285).

    chosen     the right sample with the fewest calls, of these the shortest
    rejected   prefer "wrong": a wrong sample (the one with the fewest calls: it stopped too early), else the right one
               with the most calls prefer "overuse": the right sample with the most calls, if it has more than the
               chosen one, else a wrong one

A call is a `<search>`, `<python>` or `<tool>` tag. Entropy-guided branching, which makes the samples cheaper, is left
out: they are drawn whole. The criteria are our reading of summaries.
"""

from __future__ import annotations

import re
from typing import Literal

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, PreferencePair, Problem, Quarantined

_CALL = re.compile(r"<(?:search|python|tool)>")


def fewest_calls(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    samples: int = 8,
    prefer: Literal["wrong", "overuse"] = "wrong",
) -> PreferencePair | Quarantined:
    """Quarantined as all_wrong, unscorable, or no_contrast (all right with as many calls). Raises ValueError for another
    preference."""
    if prefer not in ("wrong", "overuse"):
        raise ValueError(f"fewest_calls has no preference {prefer!r}: write wrong or overuse")
    drawn = ask(generate, problem.prompt, samples, seed, "fewest_calls", problem.id, index)
    verdicts = [right(problem, t) for t in drawn]
    good = sorted((t for t, v in zip(drawn, verdicts, strict=True) if v), key=lambda t: (calls(t), len(t)))
    bad = sorted((t for t, v in zip(drawn, verdicts, strict=True) if v is False), key=lambda t: (calls(t), len(t)))
    if not good:
        return quarantined(
            problem, index, "all_wrong" if bad else "unscorable", f"none of {samples} samples is right: {drawn[0]!r}"
        )
    more = [t for t in good if calls(t) > calls(good[0])][-1:]
    rejected = (bad[:1] + more) if prefer == "wrong" else (more + bad[:1])
    if not rejected:
        return quarantined(
            problem, index, "no_contrast", f"all {samples} samples are right with {calls(good[0])} calls"
        )
    return made(
        problem,
        "fewest_calls",
        good[0],
        rejected[0],
        rate=len(good) / samples,
        calls=[calls(good[0]), calls(rejected[0])],
    )


def calls(text: str) -> int:
    """How often a text calls a tool."""
    return len(_CALL.findall(text))
