"""Samples of one request for a screen, rendered: what renders before what does not, then the better of two that do.

Yang et al. 2025, "UI-UG: A Unified MLLM for UI Understanding and Generation" (arXiv 2509.24361), read from the abstract: people
and judges preferred one render there; the verifier `screen_tree` stands for them.

The chosen side is the sample with the highest value that renders, the rejected one that with the lowest value, which need not
render. Of equal values the one that was drawn first.
"""

from __future__ import annotations

from synth.preferences.makers._made import ask, made, quarantined
from synth.types import Generate, PreferencePair, Problem, Quarantined, Scored
from synth.verify import extract_answer, verify


def by_render(
    seed: int, problem: Problem, index: int, generate: Generate, *, samples: int = 8, least: float = 0.1
) -> PreferencePair | Quarantined:
    """Quarantined as not_drawn (another verifier), none_valid or no_contrast: the best renders to no more than `least` above
    the worst. Raises ValueError for fewer than two samples."""
    if samples < 2:
        raise ValueError(f"by_render: samples is {samples}: a pair needs at least 2")
    if problem.verifier != "screen_tree":
        return quarantined(problem, index, "not_drawn", f"the verifier {problem.verifier} renders nothing")
    texts = ask(generate, problem.prompt, samples, seed, "by_render", problem.id, index)
    scores = [verify(problem, extract_answer(t) or "") for t in texts]
    values = [s.value if isinstance(s, Scored) else 0.0 for s in scores]
    best = max(range(len(texts)), key=lambda i: (values[i], -i))
    worst = min(range(len(texts)), key=lambda i: (values[i], i))
    if values[best] <= 0:
        return quarantined(problem, index, "none_valid", f"none of {samples} renders: {texts[0]!r}")
    if values[best] - values[worst] < least:
        return quarantined(
            problem, index, "no_contrast", f"all of {samples} are worth {values[worst]:.2f} to {values[best]:.2f}"
        )
    return made(problem, "by_render", texts[best], texts[worst], margin=values[best] - values[worst])
