"""Which of several annotators is right: majority, weighted vote, Dawid-Skene and GLAD for two classes, with anchors.

Votes V [n, A] hold 1 (first class), -1 (second) or 0 (none). Anchors t [n] hold 1 or -1 where the truth is proven, else
0. Every function gives P [n], the probability of the first class. Each pair could as well be shown with its sides
  swapped, so there is one accuracy a_j per
annotator instead of a table of errors, and before the votes both classes are equally likely:

    majority      P = (number for + 1/2 number of abstentions) / A
    weighted      log odds = sum_j V_ij log(a_j / (1 - a_j)), a_j from the anchors, without them from agreement with the
                  majority (Wawa)
    dawid_skene   the same, with a_j by EM: E-step the line above; M-step a_j = sum_i P(V_ij right) / number of votes
                  (1979, one coin)
    glad          P(V_ij right) = sigmoid(alpha_j * exp(beta_i)) by EM with gradient ascent, prior alpha ~ N(1, 1), beta
                  ~ N(0, 1) (Whitehill et al. 2009, "Whose vote should count more")

Accuracies are smoothed by one right and one wrong vote. Every likelihood stays the same when all truths and all
accuracies are turned around, so without anchors only the assumption that most annotators are right separates the two.
`dependence` measures whether they err independently; without independence that assumption is worthless.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Model = Callable[[np.ndarray, np.ndarray], np.ndarray]


def majority(votes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    cast = np.abs(votes).sum(axis=1)
    return clamp(0.5 + votes.sum(axis=1) / (2 * np.maximum(cast, 1)), anchors)


def weighted(votes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    return clamp(posterior(votes, accuracies(votes, start(votes, anchors), known=anchors)), anchors)


def dawid_skene(votes: np.ndarray, anchors: np.ndarray, *, rounds: int = 200) -> np.ndarray:
    p = weighted(votes, anchors)
    for _ in range(rounds):
        new = clamp(posterior(votes, accuracies(votes, p)), anchors)
        if np.abs(new - p).max(initial=0.0) < 1e-9:
            break
        p = new
    return p


def glad(votes: np.ndarray, anchors: np.ndarray, *, rounds: int = 50, steps: int = 10, rate: float = 0.5) -> np.ndarray:
    cast = np.abs(votes)
    skill = np.log(ratio := accuracies(votes, p := weighted(votes, anchors), known=anchors)) - np.log1p(-ratio)
    ease = np.zeros(len(votes))
    for _ in range(rounds):
        for _ in range(steps):  # gradient ascent on the expected log-likelihood, each coordinate by its number of votes
            right = np.where(votes > 0, p[:, None], 1 - p[:, None]) * cast
            error = right - cast * _sigmoid(skill * np.exp(ease)[:, None])
            skill = skill + rate * ((error * np.exp(ease)[:, None]).sum(axis=0) - (skill - 1)) / (cast.sum(axis=0) + 1)
            ease = np.clip(
                ease + rate * ((error * skill * np.exp(ease)[:, None]).sum(axis=1) - ease) / (cast.sum(axis=1) + 1),
                -3,
                3,
            )
        new = clamp(_sigmoid((votes * skill * np.exp(ease)[:, None]).sum(axis=1)), anchors)
        if np.abs(new - p).max(initial=0.0) < 1e-6:
            break
        p = new
    return p


MODELS: dict[str, Model] = {"majority": majority, "weighted": weighted, "dawid_skene": dawid_skene, "glad": glad}


def start(votes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """The truth to measure annotators by: the anchors where there are any, else the majority, a tie counting as
    half."""
    return (anchors + 1) / 2 if anchors.any() else (np.sign(votes.sum(axis=1)) + 1) / 2


def accuracies(votes: np.ndarray, truth: np.ndarray, *, known: np.ndarray | None = None) -> np.ndarray:
    """[A] smoothed share of right votes, `truth` [n] being P of the first class. known: only rows where it is not 0, if
    there are any."""
    if known is not None and known.any():
        votes, truth = votes[known != 0], truth[known != 0]
    right = (votes > 0) * truth[:, None] + (votes < 0) * (1 - truth[:, None])
    return (right.sum(axis=0) + 1) / (np.abs(votes).sum(axis=0) + 2)


def posterior(votes: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    return _sigmoid(votes @ (np.log(accuracy) - np.log1p(-accuracy)))


def clamp(p: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    return np.where(anchors > 0, 1.0, np.where(anchors < 0, 0.0, p))


def dependence(votes: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """(mean agreement of two annotators, what their accuracies against P imply if they erred independently), over rows
    both voted on.

    Implied: a_j a_k + (1 - a_j)(1 - a_k). (1, 1) where no two voted on one row.
    """
    a, cast = accuracies(votes, p), np.abs(votes)
    both = cast.T @ cast
    np.fill_diagonal(both, 0)
    if not both.any():
        return 1.0, 1.0
    implied = np.outer(a, a) + np.outer(1 - a, 1 - a)
    return float(((both + votes.T @ votes) / 2 * (both > 0)).sum() / both.sum()), float(
        (implied * both).sum() / both.sum()
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(x / 2))
