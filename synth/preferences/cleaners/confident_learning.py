"""Label errors by confident learning (Northcutt, Jiang, Chuang 2021, arXiv:1911.00068), pruned by noise rate.

Given labels l_i and out-of-fold probabilities p_i[j] (each from a model that saw neither the row nor its siblings):
    threshold       t_j = mean of p_i[j] over rows labelled j                            (average self-confidence)
    confident joint C[k][j] = number of rows labelled k whose likeliest class among {j: p_i[j] >= t_j} is j   (row in
    none: not counted)
    calibrated      each row of C scaled to the number of rows labelled k; C / n estimates the joint of given and true
    label
    prune           for each k != j the C[k][j] rows labelled k with the largest p_i[j] - p_i[k]; where the label is the
    likeliest class
                    the row stays
A preference is a label of two classes after symmetrisation: every pair is shown in both orders, "first is better" and
"second is better", so the thresholds are equal and no order is preferred. Only label noise that the features behind the
probabilities can see is found.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from synth.preferences.ledger import Verdicts
from synth.types import Decision, PreferencePair

NEEDS = {"out_of_fold"}  # probability that the chosen side is better, by a model that saw no pair of the same group


def confident_learning(pairs: Sequence[PreferencePair], *, column: str = "out_of_fold") -> Sequence[Decision]:
    """Decision "remove" with reason label_error for pruned pairs, else "keep"; score = out-of-fold probability that the
    label is right.

    Raises ValueError where a pair lacks the column, or where it is no probability.
    """
    told = array("d")
    for pair in pairs:
        p = pair.columns.get(column)
        if not isinstance(p, float) or not 0 <= p <= 1:
            raise ValueError(
                f"pair {pair.id} has {p!r} in the column {column!r}: confident_learning needs a probability there, see NEEDS"
            )
        told.append(p)
    out = Verdicts()
    if told:
        for wrong, p in zip(prune_pairs(np.frombuffer(told)).tobytes(), told, strict=True):
            out.add(
                "confident_learning",
                "remove" if wrong else "keep",
                "label_error" if wrong else "label_plausible",
                p,
            )
    return out


def symmetric(right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(labels [2n], probabilities [2n, 2]) of n pairs shown in both orders; class 0 = the first side is better.

    right [n]: probability that the label is right.
    """
    shown = np.stack([right, 1 - right], axis=1)
    return np.repeat([0, 1], len(right)), np.concatenate([shown, shown[:, ::-1]])


def confident_joint(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """[K, K] float64 calibrated counts: row = given label, column = true label; sums to the number of rows.

    labels [n] ints below K; probabilities [n, K]. A class that no row bears gets a threshold that nothing reaches. The
    diagonal is at least 1 before calibration, so that a class is never estimated to be all wrong.
    """
    n, k = probabilities.shape
    thresholds = np.array([probabilities[labels == j, j].mean() if (labels == j).any() else 2.0 for j in range(k)])
    confident = probabilities >= thresholds - 1e-6  # the tolerance lets rows at the mean count when all are equal
    inside = np.where(confident, probabilities, -1.0)
    guess = np.where(
        inside[np.arange(n), labels] == inside.max(axis=1), labels, inside.argmax(axis=1)
    )  # a tie falls to the given label
    seen = confident.any(axis=1)
    counts = np.bincount(labels[seen] * k + guess[seen], minlength=k * k).reshape(k, k).astype(float)
    return _calibrated(counts, np.bincount(labels, minlength=k))


def _calibrated(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """counts [K, K], each of its rows scaled to the number of rows that bear the label."""
    np.fill_diagonal(counts, counts.diagonal().clip(min=1.0))
    counts *= (rows / counts.sum(axis=1))[:, None]
    return counts * (rows.sum() / counts.sum())


def prune_by_noise_rate(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """[n] bool, True for rows judged mislabelled. Ties in the margin fall to the earlier row."""
    joint = np.rint(confident_joint(labels, probabilities).round(9)).astype(int)
    wrong = np.zeros(len(labels), dtype=bool)
    for k in range(joint.shape[0]):
        rows = np.flatnonzero(labels == k)
        for j in range(joint.shape[0]):
            if j != k and len(rows) > 1:
                margin = probabilities[rows, j] - probabilities[rows, k]
                wrong[rows[np.argsort(-margin, kind="stable")[: joint[k, j]]]] = True
    return wrong & (probabilities[np.arange(len(labels)), labels] < probabilities.max(axis=1))


def noise_rate(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """The estimated share of rows whose given label is not the true one."""
    return _off_diagonal(confident_joint(labels, probabilities))


def noise_rate_of_pairs(right: np.ndarray) -> float:
    """`noise_rate(*symmetric(right))`, from the pairs alone: both classes have the same threshold and counts."""
    return _off_diagonal(_joint_of_pairs(right))


def prune_pairs(right: np.ndarray) -> np.ndarray:
    """[n] bool, `prune_by_noise_rate(*symmetric(right))` of the pairs as they are, in a fifth of its memory."""
    moved = int(np.rint(_joint_of_pairs(right)[0, 1].round(9)))
    wrong = np.zeros(len(right), dtype=bool)
    if len(right) > 1:
        margin = 1 - right
        margin -= right
        wrong[np.argsort(np.negative(margin, out=margin), kind="stable")[:moved]] = True
    return wrong & (right < 1 - right)


def _joint_of_pairs(right: np.ndarray) -> np.ndarray:
    n, least = len(right), right.mean() - 1e-6
    label, other = right >= least, 1 - right >= least
    moved = other & ~(label & (right >= 1 - right))
    stays = label & ~moved
    a, b = float(np.count_nonzero(stays)), float(np.count_nonzero(moved))
    return _calibrated(np.array([[a, b], [b, a]]), np.array([n, n]))


def _off_diagonal(joint: np.ndarray) -> float:
    return float(1 - np.trace(joint) / joint.sum())
