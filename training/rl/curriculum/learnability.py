"""Draws problems so that the success rate stays at a target, and otherwise prefers those with the highest learnability.

Learnability p(1 - p) is that of Foster et al. 2025, "Learning to Reason at the Frontier of Learnability" (arXiv
2502.12272); weak
skills are those of SwS (Liang et al. 2025, arXiv 2506.08989). Over cells c (a family at a level) with Beta posteriors
of mean p_c:

    w_c ~ (floor + p_c (1 - p_c)) * (boost if the family is weak) * exp(lambda p_c),   lambda such that sum_c w_c p_c
    = target

which of all distributions with that expected success is the one nearest (in KL) to the learnability weights. Posteriors
lag behind a solver that learns, so the aim is corrected: aim <- aim + gain (target - observed success) after each call
with evidence, at most 0.2 away from the target, and lambda is that of the aim. A family is open up to its *frontier*:
the next level opens when the hardest open level is solved more often than the target, with `certainty`; it closes again
when the level below is solved less often, with the same certainty. Posteriors forget by `discount` per call with
evidence, so they follow a solver that learns.

Returns n indices into `problems` (distinct where n allows); problems of a cell share its weight. Reads state["scores"];
keeps in `state` the posteriors per cell and axis, the frontier, the weak families and the weights
(training/rl/curriculum/_cells.py). target 0 leaves lambda at 0. Leaves out transfer between families.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from synth.types import Problem
from training.rl.curriculum._cells import cell_of, fold, posterior
from training.rl.curriculum._weakness import weak


def learnability(
    problems: Sequence[Problem],
    state: dict,
    rng: np.random.Generator,
    n: int,
    *,
    target: float = 0.5,
    floor: float = 0.02,
    gain: float = 0.4,
    certainty: float = 0.9,
    discount: float = 0.8,
    samples: int = 8,
    boost: float = 1.0,
    weak_errors: float = 2.0,
    all_open: bool = False,
) -> list[int]:
    if not problems:
        raise ValueError(
            "the curriculum was given no problem to choose from: check the split and the filters of the stage before"
        )
    if not 0 <= target < 1:
        raise ValueError(
            f"learnability: target is {target}; it is a rate of success, at least 0 (no target) and below 1"
        )
    new = fold(problems, state, samples=samples, discount=discount)
    cells, frontier = state["cells"], state.setdefault("frontier", {})
    names = [cell_of(p) for p in problems]
    ladders = _ladders(problems)
    state["weak"] = [
        f for f, rungs in ladders.items() if weak(cells.get(rungs[0], {}).get("means", ())[-8:], errors=weak_errors)
    ]
    for family, rungs in ladders.items():
        now = min(frontier.get(family, 1), len(rungs))
        moved = (
            _frontier(rungs, cells, now, target or 0.5, certainty) if new.intersection(rungs) else now
        )  # one step for each new evidence
        frontier[family] = len(rungs) if all_open else moved
    allowed = {name: f for f, rungs in ladders.items() for name in rungs[: frontier[f]]}
    open_cells = sorted(allowed)
    p = np.array([a / (a + b) for a, b in (posterior(cells.get(c)) for c in open_cells)])
    weights = (floor + p * (1 - p)) * np.array([boost if allowed[c] in state["weak"] else 1.0 for c in open_cells])
    total, count = state["latest"]
    if count:
        aim = state.get("aim", target) + gain * (target - total / count)
        state["aim"] = float(np.clip(aim, max(0.01, target - 0.2), min(0.99, target + 0.2)))
    weights = tilt(weights / weights.sum(), p, state.get("aim", target)) if target else weights / weights.sum()
    state["weights"] = {c: float(w) for c, w in zip(open_cells, weights, strict=True)}
    size = Counter(names)
    each = np.array([state["weights"].get(c, 0.0) / size[c] for c in names])
    if np.count_nonzero(each) < n <= len(problems):
        each = each + 1e-9  # more problems are requested than are open
    return [int(i) for i in rng.choice(len(problems), size=n, replace=n > len(problems), p=each / each.sum())]


def tilt(weights: np.ndarray, p: np.ndarray, target: float, most: float = 50.0) -> np.ndarray:
    """`weights` [C] times exp(lambda p), normalised, with the lambda in [-most, most] that makes the expected p the
    target (or as near as can be). Bisection: the expectation grows with lambda."""
    low, high = -most, most
    out = weights
    for _ in range(60):
        middle = (low + high) / 2
        logs = np.log(weights) + middle * p
        out = np.exp(logs - logs.max())
        out = out / out.sum()
        low, high = (middle, high) if out @ p < target else (low, middle)
    return out


def _ladders(problems: Sequence[Problem]) -> dict[str, list[str]]:
    """Family -> its cells, easiest first."""
    levels: dict[str, dict[str, tuple]] = {}
    for q in problems:
        rank = (
            (q.difficulty["level"],) if "level" in q.difficulty else tuple(v for _, v in sorted(q.difficulty.items()))
        )
        levels.setdefault(q.family, {})[cell_of(q)] = rank
    return {f: sorted(rungs, key=lambda c: (rungs[c], c)) for f, rungs in sorted(levels.items())}


def _frontier(rungs: Sequence[str], cells: Mapping[str, dict], now: int, target: float, certainty: float) -> int:
    """How many levels are open next."""
    if now < len(rungs) and below(target, *posterior(cells.get(rungs[now - 1]))) < 1 - certainty:
        return now + 1
    if now > 1 and below(target, *posterior(cells.get(rungs[now - 2]))) > certainty:
        return now - 1
    return now


def below(x: float, alpha: float, beta: float) -> float:
    """P(success < x) of Beta(alpha, beta)."""
    from scipy.special import betainc

    return float(betainc(alpha, beta, x))
