"""A classifier that learns against the generator, and pays it what its text costs the classifier.

Deng et al. 2025, "DuoGuard: A Two-Player RL-Driven Framework for Multilingual LLM Guardrails" (arXiv 2502.05163).

    r <- -log max(p, floor)     p: the classifier's probability of the true label (part `label`: 1 unsafe, 0 safe) of the text
    r <- 0                      where the text no longer has the label (part `keeps_label` is 0)

The classifier is a model of its own: logistic regression on the counts of a text's runs of three characters, hashed into
512 buckets. It learns from the questions as they are before it rates anything, and after each step from all texts with their label
so far, `keep` of them at most (the latest); a text that it had wrong weighs `hard`. So what fooled it once, it learns.

    w <- w - rate (sum_i c_i (sigma(w x_i) - y_i) x_i / sum_i c_i + decay w),   passes times;   x_i of length 1, and a 1 behind it

`state`: weights (those of the buckets, then that of the 1), texts, labels, costs. Our reading: the paper's classifier is a small language model with twelve categories. Shapes: one
reward per rollout in and out; unscorable stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from synth.verify import extract_answer
from training.rl.reward import part
from training.types import Group, Rewards

READS = ("label", "keeps_label")
BUCKETS = 512


def guard(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    floor: float = 1e-4,
    hard: float = 2.0,
    passes: int = 50,
    rate: float = 10.0,
    decay: float = 1e-4,
    keep: int = 4096,
) -> Rewards:
    if not state:
        state.update(weights=[], texts=[], labels=[], costs=[])
    first = {g.rollouts[0].problem.question: _label(g, r) for g, r in zip(groups, rewards, strict=True)}
    known = set(state["texts"])
    new = {q: y for q, y in first.items() if not math.isnan(y) and q not in known}
    _add(state, list(new), list(new.values()), [1.0] * len(new), keep)
    if not state["weights"]:
        _fit(state, passes, rate, decay)
    out, texts, labels, costs = [], [], [], []
    for group, r in zip(groups, rewards, strict=True):
        label, kept = part(group, r, "label"), part(group, r, "keeps_label") > 0
        answers = [extract_answer(rollout.text) or "" for rollout in group.rollouts]
        p = unsafe(state["weights"], answers)
        true = np.where(label > 0, p, 1 - p)
        paid = np.where(kept, -np.log(np.maximum(true, floor)), 0.0)
        out.append(np.where(np.isnan(r), np.nan, paid))
        for i in np.flatnonzero(kept & ~np.isnan(r)):
            texts.append(answers[i])
            labels.append(float(label[i] > 0))
            costs.append(hard if true[i] < 0.5 else 1.0)
    _add(state, texts, labels, costs, keep)
    _fit(state, passes, rate, decay)
    return out


def unsafe(weights: Sequence[float] | np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """[n] the classifier's probability that a text is unsafe."""
    return 1 / (1 + np.exp(-_counts(texts) @ _whole(weights)))


def _whole(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """[BUCKETS + 1]; fewer numbers are those of the last columns, the others are 0."""
    return np.concatenate([np.zeros(BUCKETS + 1 - len(weights)), np.asarray(weights, dtype=np.float64)])


def _label(group: Group, r: np.ndarray) -> float:
    known = part(group, r, "label")
    known = known[~np.isnan(known)]
    return float(known[0]) if len(known) else math.nan


def _counts(texts: Sequence[str]) -> np.ndarray:
    """[n, BUCKETS + 1]: counts of length 1, and a column of ones."""
    return np.array([_count(text) for text in texts]).reshape(len(texts), BUCKETS + 1)


@lru_cache(maxsize=8192)  # what was kept is read again at every step
def _count(text: str) -> np.ndarray:
    row, wide = np.zeros(BUCKETS + 1), f"  {text}  "
    for i in range(len(wide) - 2):
        row[crc32(wide[i : i + 3].encode()) % BUCKETS] += 1
    row[:-1] /= max(float(np.linalg.norm(row[:-1])), 1e-12)
    row[-1] = 1.0
    return row


def _add(state: dict, texts: list[str], labels: list[float], costs: list[float], keep: int) -> None:
    for name, more in (("texts", texts), ("labels", labels), ("costs", costs)):
        state[name] = [*state[name], *more][-keep:]


def _fit(state: dict, passes: int, rate: float, decay: float) -> None:
    if not state["texts"]:
        return
    x, y, c = _counts(state["texts"]), np.array(state["labels"]), np.array(state["costs"])
    w = _whole(state["weights"])
    for _ in range(passes):
        wrong = 1 / (1 + np.exp(-x @ w)) - y
        w -= rate * (x.T @ (c * wrong) / c.sum() + decay * w)
    state["weights"] = w.tolist()
