"""Runs cleaners over preference pairs: computes the columns that they need, applies or collects their decisions, and
estimates how many labels are wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from synth.preferences.cleaners._columns import anchor, drawn_anchor, swap_sides
from synth.preferences.cleaners._features import BLIND, Known, differences, kind
from synth.preferences.cleaners._length import style
from synth.preferences.cleaners._noise import estimate, ranks
from synth.preferences.cleaners._overlap import Protected
from synth.preferences.cleaners.confident_learning import noise_rate_of_pairs
from synth.types import Decision, PreferencePair, UserError


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One row of decisions.parquet: the decision of the cleaner `step` about the pair `id`."""

    id: str
    step: str
    action: str
    reason: str
    score: float


def run_cleaners(
    pairs: Sequence[PreferencePair],
    cleaners: Iterable[Callable[..., list[Decision]]],
    policy: Callable[..., list[Decision]] | None = None,
    *,
    folds: int = 5,
    c: float = 1.0,
    protected: Protected | None = None,
) -> tuple[list[PreferencePair], list[PreferencePair], dict[str, float]]:
    """(kept, removed, estimated noise rate by kind of prompt), each pair with its decisions.

    Raises UserError if a cleaner would remove all pairs, or needs a column that is missing and cannot be computed.
    """
    rest, removed, noise, known = list(pairs), [], {}, {}
    with no_collection():
        for cleaner in chain(cleaners, [policy] if policy else []):
            rest, rates = with_columns(rest, cleaner.needs, folds=folds, c=c, protected=protected, read=known)
            noise |= rates
            kept, gone = judge(rest, cleaner, advice=policy is not None and cleaner is not policy)
            if rest and not kept:
                raise UserError(
                    f"clean: {cleaner.piece} would remove all {len(rest)} training pairs: loosen its knobs or leave it out"
                )
            rest, removed = kept, removed + gone
    return rest, removed, noise


@contextmanager
def no_collection() -> Iterator[None]:
    """Suspends the cyclic garbage collector: pairs and their decisions are millions of objects without cycles, and
    scanning them repeatedly takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def noise_interval(pairs: Sequence[PreferencePair]) -> dict[str, Any] | None:
    """The share of wrong labels with its interval, over the pairs whose label was judged by text
    (`synth.preferences.cleaners._noise`); None without."""
    judged = sorted((p for p in pairs if "out_of_fold" in p.columns), key=lambda p: p.id)
    if len(judged) < 30:
        return None
    flipped = np.array(
        [any(d.action == "flip" for d in p.decisions) for p in judged]
    )  # their columns were swapped with the sides
    right = np.array([p.columns["out_of_fold"] for p in judged])
    known = np.array([drawn_anchor(p) for p in judged]) * np.where(flipped, -1, 1)
    proven = int((np.array([anchor(p) for p in judged]) * np.where(flipped, -1, 1) < 0).sum())
    interval = estimate(np.where(flipped, 1 - right, right), [group_of(p) for p in judged], known, proven=proven)
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in interval.items()}


def judge(
    pairs: Sequence[PreferencePair], cleaner: Callable[..., list[Decision]], *, advice: bool = False
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """(kept, removed), the cleaner's decision appended to each; "flip" swaps the sides and the columns about them.
    advice: decisions are not applied.

    Raises ValueError where decisions are missing.
    """
    decisions = cleaner(pairs)
    if len(decisions) != len(pairs):
        raise ValueError(
            f"{cleaner.piece} made {len(decisions)} decisions about {len(pairs)} pairs: a cleaner returns one per pair, in order"
        )
    one: dict[tuple[str, str, str, float], Decision] = {}  # most pairs get the same decision, so they share one object
    judged = [
        _changed(p, decisions=(*p.decisions, one.setdefault((d.step, d.action, d.reason, d.score), d)))
        for p, d in zip(pairs, decisions, strict=True)
    ]
    if advice:
        return judged, []
    turned = [swap_sides(p) if p.decisions[-1].action == "flip" else p for p in judged]
    return [p for p in turned if p.decisions[-1].action != "remove"], [
        p for p in turned if p.decisions[-1].action == "remove"
    ]


def with_columns(
    pairs: Sequence[PreferencePair],
    needs: frozenset[str],
    *,
    folds: int,
    c: float,
    protected: Protected | None = None,
    read: Known | None = None,
) -> tuple[list[PreferencePair], dict[str, float]]:
    """The pairs with the columns that a cleaner needs and they lack, and the estimated noise rate by kind of prompt.

    Raises UserError for a column that this stage cannot compute.
    """
    missing = {name for name in needs if any(name not in p.columns for p in pairs)}
    provided = {"out_of_fold", "out_of_fold_blind"} | ({"overlap"} if protected else set())
    if unknown := sorted(missing - provided):
        raise UserError(
            f"clean: a cleaner needs the column {unknown[0]!r}, which pairs lack: add it to their `columns`, or leave the cleaner out"
        )
    known, noise = list(pairs), {}
    if protected and "overlap" in missing:
        known = _with(known, "overlap", [protected.of(p) for p in known])
    if "out_of_fold_blind" in missing:
        known = _with(known, "out_of_fold_blind", out_of_fold(known, folds=folds, c=c, blind=True, known=read))
    if "out_of_fold" in missing:
        right = out_of_fold(known, folds=folds, c=c, known=read)
        kinds = [kind(p.prompt) for p in known]
        place, named = ranks(kinds), sorted(set(kinds))
        many = np.flatnonzero(np.bincount(place) >= 30).tolist()
        groups = {"all": np.ones(len(known), dtype=bool)} | {named[k]: place == k for k in many}
        noise = {name: round(noise_rate_of_pairs(right[rows]), 4) for name, rows in groups.items()}
        known = _with(known, "out_of_fold", right)
    return known, noise


def _with(pairs: Sequence[PreferencePair], name: str, values: Iterable[float]) -> list[PreferencePair]:
    return [_changed(p, columns={**p.columns, name: round(float(x), 6)}) for p, x in zip(pairs, values, strict=True)]


def _changed(pair: PreferencePair, **fields: Any) -> PreferencePair:
    """`dataclasses.replace` in a tenth of its time: it is called for every pair and cleaner, and a pair checks nothing
    when it is made."""
    new = object.__new__(PreferencePair)
    new.__dict__.update(vars(pair), **fields)
    return new


def group_of(pair: PreferencePair) -> str:
    """The sibling group of a pair: `columns["group"]`, the root of its problem; else the problem, else itself."""
    return str(pair.columns.get("group", pair.problem or pair.id))


def out_of_fold(
    pairs: Sequence[PreferencePair], *, folds: int, c: float, blind: bool = False, known: Known | None = None
) -> np.ndarray:
    """[pairs] probability that the chosen side is better, by a logistic regression that saw no pair of the same group.

    Features are chosen minus rejected (`synth.preferences.cleaners._features`, which keeps in `known` what it read); each
    pair counts in both orders, so there is no intercept and no preferred order. Siblings never lie on both sides of a
    fold. blind: length and marks of style take part in the fit but not in the probability
    (`synth/preferences/cleaners/blind_margin.py`). Raises UserError where there are fewer groups than folds.
    """
    groups = [group_of(p) for p in pairs]
    if len(set(groups)) < folds:
        raise UserError(
            f"clean: {len(set(groups))} groups of pairs do not make {folds} folds: lower `folds`, or leave confident_learning out"
        )
    table, names = differences(pairs, style if blind else None, known)
    hidden = [i for i, name in enumerate(names) if blind and name.rpartition(": ")[2] in BLIND | style("").keys()]
    return margins(table, groups, folds=folds, c=c, hidden=hidden)


def margins(difference: Any, groups: Sequence[str], *, folds: int, c: float, hidden: Sequence[int] = ()) -> np.ndarray:
    """[n] out-of-fold probability of the label from feature differences [n, d], dense or sparse; `hidden` columns are
    fitted and then left out, and what is left of the margin is scaled to fit the labels of the other folds."""
    from scipy.special import expit
    from sklearn.model_selection import GroupKFold

    out = np.zeros(difference.shape[0])
    for seen, unseen in GroupKFold(folds).split(difference, groups=ranks(groups)):
        weight, scale = fitted(difference[seen], c), 1.0
        if len(hidden):
            weight[list(hidden)] = 0.0
            scale = fitted((difference[seen] @ weight)[:, None], np.inf)[0]
        out[unseen] = expit(scale * (difference[unseen] @ weight))
    return out


def fitted(x: Any, c: float) -> np.ndarray:
    """[d] weights w of the logistic regression that minimises |w|^2 / (2 c) + sum of log(1 + exp(-x w)) over the rows of x
    in both orders: x with the label 1, -x with the label 0.

    By L-BFGS on weights turned and scaled by the curvature at 0, so that features of large and of small numbers, and those
    that go together, converge alike; of a sparse table, which has too many features for that, by its diagonal alone.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    ridge = 1 / c
    sparse = hasattr(x, "multiply")
    if sparse:
        curvature = ridge + np.asarray(x.multiply(x).sum(axis=0)).ravel() / 2
        turn = 1 / np.sqrt(np.where(curvature > 0, curvature, 1.0))
    else:
        values, vectors = np.linalg.eigh(x.T @ x / 2)
        values = ridge + np.maximum(values, 0.0)
        turn = vectors / np.sqrt(np.where(values > 0, values, 1.0))

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        w = turn * v if sparse else turn @ v
        margin = x @ w
        value = 2 * np.logaddexp(0, -margin).sum() + ridge * (w @ w) / 2
        slope = ridge * w - 2 * (x.T @ expit(-margin))
        return value, turn * slope if sparse else turn.T @ slope

    optimum = minimize(
        loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-4, "ftol": 1e-13}
    )
    return turn * optimum.x if sparse else turn @ optimum.x
