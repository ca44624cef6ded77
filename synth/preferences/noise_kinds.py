"""Which labels of verified pairs to swap: the kinds of noise of people and judges, at an exact rate.

Exactly k = round(rate * n) pairs are drawn without replacement with probabilities proportional to a weight (Gumbel
top-k), so that the true
rate is known:

    random        1
    instance      exp(-margin / sd(margin))                    close calls are got wrong
    length        sigmoid(4 z), z = (length of worse - of better) / sd      the longer side wins wrongly
    style         the same of marks of style
    adversarial   the k greatest margins, all of them          the clearest pairs are turned around
    mixture       annotators of their own: expert (right in .97), careless (.8), lazy (always the first side shown, .5),
                  malicious (.05); one of them labels each pair, in the shares that give the rate in expectation
    duplicate     none is swapped: round(rate * n / (1 - rate)) pairs come a second time with their sides swapped, so
                  that the share of wrong labels is the rate

margin > 0 is how much better the better side is; all arrays are [n], about better and worse, before any label is given.
"""

from __future__ import annotations

import numpy as np

KINDS = ("random", "instance", "length", "style", "adversarial", "mixture", "duplicate")
ANNOTATORS = {"expert": 0.97, "careless": 0.8, "lazy": 0.5, "malicious": 0.05}


def flips(
    kind: str, rate: float, rng: np.random.Generator, *, margin: np.ndarray, length: np.ndarray, style: np.ndarray
) -> np.ndarray:
    """[n] bool: whose sides to swap. length, style: of the better side minus those of the worse, in any unit.

    Raises ValueError for a kind that draws no flips here, or a rate outside [0, 1/2).
    """
    if not 0 <= rate < 0.5:
        raise ValueError(f"flips: the rate {rate} must lie in [0, 0.5): beyond it the labels say the opposite")
    n = len(margin)
    k = round(rate * n)
    if kind == "adversarial":
        return np.isin(np.arange(n), np.argsort(-margin, kind="stable")[:k])
    logs = {
        "random": lambda: np.zeros(n),
        "instance": lambda: -margin / max(margin.std(), 1e-12),
        "length": lambda: _log_sigmoid(-4 * length / max(length.std(), 1e-12)),
        "style": lambda: _log_sigmoid(-4 * style / max(style.std(), 1e-12)),
    }
    if kind not in logs:
        raise ValueError(f"flips draws no noise of the kind {kind!r}: it has {', '.join([*logs, 'adversarial'])}")
    order = np.argsort(-(logs[kind]() + rng.gumbel(size=n)), kind="stable")
    return np.isin(np.arange(n), order[:k])


def mixture(
    n: int, rate: float, rng: np.random.Generator, *, votes: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(flip [n] bool, labeller [n] index into ANNOTATORS, votes [n, A] in {1, -1, 0} about the better side).

    The labeller's vote is the label; `votes` annotators vote on each pair, the labeller among them. Two experts come to
    one careless, three lazy ones to one malicious, in the mixture of both groups that errs at the rate; below what the
    first group errs, experts take over.
    """
    accuracy = np.array(list(ANNOTATORS.values()))
    good, bad = np.array([2 / 3, 1 / 3, 0, 0]), np.array([0, 0, 3 / 4, 1 / 4])
    error = [float(share @ (1 - accuracy)) for share in (good, bad)]
    best = np.array([1.0, 0, 0, 0])
    low, high, ends = (best, good, (1 - accuracy[0], error[0])) if rate < error[0] else (good, bad, tuple(error))
    part = float(np.clip((rate - ends[0]) / (ends[1] - ends[0]), 0, 1))
    share = (1 - part) * low + part * high
    labeller = rng.choice(4, n, p=share)
    # whether the better side is shown first: the lazy annotator looks at nothing else
    shown_first = rng.random(n) < 0.5
    right = rng.random((n, 4)) < accuracy
    right[:, 2] = shown_first
    cast = np.zeros((n, 4), dtype=int)
    others = np.argsort(rng.random((n, 4)) - 2 * (np.arange(4) == labeller[:, None]), axis=1)[:, :votes]
    np.put_along_axis(cast, others, 1, axis=1)
    table = np.where(cast > 0, np.where(right, 1, -1), 0)
    return table[np.arange(n), labeller] < 0, labeller, table


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0.0, -x)
