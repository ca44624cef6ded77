"""How well programs are written, preference by preference, and how often they are right: after CODAL-Bench.

Weyssow et al. 2024, "CodeUltraFeedback: An LLM-as-a-Judge Dataset for Aligning Large Language Models to Coding Preferences"
(arXiv 2403.09032).

    rating of a preference = mean over problems of the mean rating of the samples, 1 to 10, each graded alone beside the reference
    function               = mean score by the hidden tests

explanation, complexity, readability and style are rated by rules over the syntax tree (synth/verify/_code_rules.py), where the paper asks
a language model; what is no program is rated 1. Input: per problem scores, answers and references; problems whose reference is no
Python function are left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.verify._code_rules import RULES, function_of, rate
from training.metrics import Metric, interval, scored_samples


def code_ratings(
    scored: Sequence[Sequence[float]],
    answers: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    programs = [
        (s, a, r[0])
        for s, a, r in scored_samples(scored, answers, references)
        if len(r) and function_of(r[0]) is not None
    ]
    out = {
        what: interval(
            [float(np.mean([rate(what, x, r) or 1.0 for x in a])) for _, a, r in programs],
            level=level,
            resamples=resamples,
            seed=seed,
        )
        for what in RULES
    }
    function = [float(np.mean(s)) for s, _, _ in programs]
    return out | {"function": interval(function, level=level, resamples=resamples, seed=seed, shares=True)}
