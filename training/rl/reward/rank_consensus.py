"""Scores of a document, compared within the document and with other documents: they should be stable on the right side,
and in the right order.

"Retro*: Optimizing LLMs for Reasoning-Intensive Document Retrieval", 2025 (arXiv 2509.24869).

    a group is one (query, document) pair; its rollouts give scores s_i from 0 to 100; groups of one query share the
    problem's family
    r_intra = 1 - |s_i - c| / 100,    c = the mean of the group's scores on the right side of 50; 0 if there are none
    r_inter = share of the documents of the other label whose mean score lies on the right side of s_i (equal scores
    count one half) r <- a r_intra + b r_inter

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. `score` and `relevant` (0 or 1) are parts of
the score; without a document of the other label r_inter is 0. The abstract names the two rewards; their formulas are
our reading.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("score", "relevant")


def rank_consensus(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, a: float = 0.5, b: float = 0.5
) -> Rewards:
    scores = [part(g, r, "score") for g, r in zip(groups, rewards, strict=True)]
    labels = [bool(np.nanmax(part(g, r, "relevant"), initial=0.0) > 0) for g, r in zip(groups, rewards, strict=True)]
    queries = [g.rollouts[0].problem.family for g in groups]
    means = [float(np.nanmean(s)) if not np.isnan(s).all() else np.nan for s in scores]
    out = []
    for s, relevant, query in zip(scores, labels, queries, strict=True):
        side = s[(s >= 50) if relevant else (s < 50)]
        intra = 1 - np.abs(s - side.mean()) / 100 if len(side) else np.zeros(len(s))
        others = [
            m
            for m, label, q in zip(means, labels, queries, strict=True)
            if label != relevant and q == query and not math.isnan(m)
        ]
        inter = np.mean([_before(s, m, relevant) for m in others], axis=0) if others else np.zeros(len(s))
        out.append(np.where(np.isnan(s), np.nan, a * intra + b * inter))
    return out


def _before(s: np.ndarray, other: float, relevant: bool) -> np.ndarray:
    """1 [n] where the document is ranked on the right side of another, 1/2 where they are equal."""
    gap = s - other if relevant else other - s
    return np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0))
