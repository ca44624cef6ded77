"""A reward without labels: agree with the most frequent answer of the group.

Wei et al. 2025, "Unsupervised Post-Training for Multi-Modal LLM Reasoning via GRPO" (MM-UPT, arXiv 2505.22453).

    r_i <- 1 if answer_i is the most frequent answer of the group, else 0

Answers are read from the rollouts' texts (`<answer>...</answer>`) and compared as numbers if they are numbers, else as
normalised text; a rollout without an answer has no vote and gets 0. With a tie, or a share of the votes below
`min_share`, all get 0. Shapes: one reward per rollout in and out; unscorable stays NaN and has no vote. It reinforces
what the model already believes: if the plurality is wrong, it makes the model worse. `state` keeps the share of votes
of each call and the agreement with the given rewards, so that this can be seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from synth.verify import extract_answer
from synth.verify._spelling import plain
from synth.verify.exact import normalise
from synth.verify.number import parse
from training.types import Group, Rewards


def majority(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, min_share: float = 0.0
) -> Rewards:
    out, shares, right = [], [], []
    for group, given in zip(groups, rewards, strict=True):
        answers = [canonical(r.text) if not math.isnan(x) else "" for r, x in zip(group.rollouts, given, strict=True)]
        votes = Counter(a for a in answers if a).most_common(2)
        clear = bool(votes) and (len(votes) == 1 or votes[0][1] > votes[1][1])
        share = votes[0][1] / sum(bool(a) for a in answers) if votes else 0.0
        label = votes[0][0] if clear and share >= min_share else None
        paid = np.array([float(label is not None and a == label) for a in answers])
        out.append(np.where(np.isnan(given), np.nan, paid))
        shares.append(share)
        right += [x for a, x in zip(answers, given, strict=True) if label is not None and a == label]
    state["vote_share"] = [*state.get("vote_share", ()), float(np.mean(shares))][-100:]
    state["agreement"] = [*state.get("agreement", ()), float(np.mean(right)) if right else 0.0][-100:]
    return out


def canonical(text: str) -> str:
    """The last answer of a text in the form in which answers are compared; "" without one."""
    answer = plain(extract_answer(text) or "", "number")
    number = parse(answer) if answer else None
    return str(number[0]) if number else normalise(answer) if answer else ""
