"""Reliability of labels by expectation-maximisation: RE-PO, "Robust Preference Optimization" (arXiv:2509.24159, 2025),
as a cleaner.

With p_i the probability that the label is right by a model that did not see it, and eta_k the reliability of annotator
k:

    E-step   w_i = eta_k p_i / (eta_k p_i + (1 - eta_k)(1 - p_i))
    M-step   eta_k = mean of w_i over the labels of k, within [floor, 0.999]

until nothing moves. w_i is the weight of the pair as labelled, 1 - w_i that of the pair swapped. The fixed point is the
true reliability only where p is calibrated: a model that is too sure of the labels estimates eta too high. The paper's
own updates run inside training with a momentum; here p is given and the fixed point is reached.

A p that was *fitted to the noisy labels*, as `out_of_fold` is, is a probability of the observed order, p = eta q + (1 -
eta)(1 - q), with q that of the true one: the EM above takes it for q and trusts every label. With `fitted_to_labels`,
eta is one minus the noise rate that the confident joint of p gives (`confident_learning`; no fixed point can tell it),
q = (p - (1 - eta)) / (2 eta - 1) in [0, 1], and w = eta q / p.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from synth.preferences.cleaners._columns import probability
from synth.preferences.cleaners.confident_learning import noise_rate, symmetric
from synth.types import Decision, PreferencePair

NEEDS = {"out_of_fold"}


def rpo_em(
    pairs: Sequence[PreferencePair],
    *,
    fitted_to_labels: bool = False,
    start: float = 0.9,
    floor: float = 0.5,
    remove_below: float = 0.0,
    flip_below: float = 0.0,
) -> Sequence[Decision]:
    """Decision "weight" with score = w_i and reason em_weight; "remove" (em_unreliable) or "flip" (em_swapped) below
    the two limits.

    The column `annotator` names who labelled a pair; without it all labels share one eta. Raises ValueError where a
    pair lacks the probability, or where a knob is out of range.
    """
    if not 0 < floor < start < 1 or not 0 <= flip_below <= 1 or not 0 <= remove_below <= 1:
        raise ValueError(
            f"rpo_em: start = {start}, floor = {floor}: write 0 < floor < start < 1, and limits within [0, 1]"
        )
    rows: dict[str, list[int]] = defaultdict(list)
    for i in sorted(range(len(pairs)), key=lambda i: pairs[i].id):
        rows[str(pairs[i].columns.get("annotator", ""))].append(i)
    p = np.array([probability(pair, "out_of_fold") for pair in pairs])
    weight = np.ones(len(pairs))
    for mine in rows.values():
        weight[mine] = (
            unmixed(p[mine], floor=floor)
            if fitted_to_labels
            else expectation(p[mine], reliability(p[mine], start=start, floor=floor))
        )
    return [_decision(float(w), remove_below, flip_below) for w in weight]


def _decision(w: float, remove_below: float, flip_below: float) -> Decision:
    if w < flip_below:
        return Decision(step="rpo_em", action="flip", reason="em_swapped", score=w)
    acts = w < remove_below
    return Decision(
        step="rpo_em", action="remove" if acts else "weight", reason="em_unreliable" if acts else "em_weight", score=w
    )


def expectation(p: np.ndarray, eta: float) -> np.ndarray:
    """w [n]; p of exactly 0 or 1 is certain, whatever eta."""
    return eta * p / (eta * p + (1 - eta) * (1 - p))


def reliability(p: np.ndarray, *, start: float = 0.9, floor: float = 0.5, rounds: int = 2000) -> float:
    """The fixed point eta. 1 - eta estimates the noise rate of labels whose p is given."""
    eta = start
    for _ in range(rounds):
        new = float(np.clip(expectation(p, eta).mean(), floor, 0.999))
        if abs(new - eta) < 1e-10:
            break
        eta = new
    return eta


def unmixed(p: np.ndarray, *, floor: float = 0.5) -> np.ndarray:
    """w [n] from probabilities of the observed order; all ones where no noise is found, p where half of the labels
    are."""
    eta = float(np.clip(1 - noise_rate(*symmetric(p)), floor, 1.0))
    if eta <= 0.5:
        return p
    q = np.clip((p - (1 - eta)) / (2 * eta - 1), 0.0, 1.0)
    return np.minimum(eta * q / np.maximum(p, 1e-12), 1.0)


def reliability_interval(
    p: np.ndarray, groups: Sequence[str], *, seed: int = 0, draws: int = 200
) -> tuple[float, float, float]:
    """(eta, low, high): the fixed point with a 95 % bootstrap interval over whole groups of siblings; p [n], groups
    [n].

    It covers the sampling error alone, not the error of an uncalibrated p.
    """
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    members = [np.flatnonzero(index == k) for k in range(len(names))]
    rng = np.random.default_rng(seed)
    etas = [
        reliability(p[np.concatenate([members[k] for k in rng.integers(0, len(names), len(names))])])
        for _ in range(draws)
    ]
    return reliability(p), float(np.quantile(etas, 0.025)), float(np.quantile(etas, 0.975))
