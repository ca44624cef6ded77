"""F1 of the answer's words against the reference's: a reward for search agents whose answers are phrases.

Token F1 as in SQuAD, Rajpurkar et al. 2016 (arXiv 1606.05250); as a reward with a gate for the format: Gao et al. 2025,
"Beyond Ten Turns: Unlocking Long-Horizon Agentic Search with Large-Scale Asynchronous RL" (ASearcher, arXiv
2508.07976).

    P = common / words of the answer, R = common / words of the reference, F1 = 2 P R / (P + R)      (common with
    multiplicity) r <- the largest F1 over the reference and its aliases; 0 without an answer

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. Words are those of `synth.verify.exact`; the
answer is the text between the tags of the rollout's last turn. A list of guesses loses precision. Leaves out the judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from synth.types import Problem
from synth.verify import extract_answer
from synth.verify.exact import normalise
from training.types import Group, Rewards


def answer_f1(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = [best_f1(rollout.problem, extract_answer(rollout.text)) for rollout in group.rollouts]
        out.append(np.where(np.isnan(r), np.nan, np.array(paid)))
    return out


def best_f1(problem: Problem, answer: str | None) -> float:
    """The largest token F1 with the reference or an alias; 0 without an answer."""
    if answer is None:
        return 0.0
    return max(f1(answer, reference) for reference in (problem.answer, *problem.args.get("aliases", ())))


def f1(answer: str, reference: str) -> float:
    """Token F1 of two texts, 0 if they share no word."""
    given, wanted = (Counter(normalise(t).split()) for t in (answer, reference))
    common = (given & wanted).total()
    return 2 * common / (given.total() + wanted.total()) if common else 0.0
