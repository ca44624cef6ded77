"""Runs cleaners over preference pairs: computes the columns that they need, applies or collects their decisions, and
estimates how many labels are wrong."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from synth.preferences.cleaners._columns import anchor, drawn_anchor, swap_sides
from synth.preferences.cleaners._features import BLIND, Differences, Known, Part, differences
from synth.preferences.cleaners._length import style
from synth.preferences.cleaners._noise import estimate
from synth.preferences.cleaners._overlap import Protected
from synth.preferences.cleaners._ranks import Ranks, dense, ranks
from synth.preferences.cleaners.confident_learning import noise_rate_of_pairs
from synth.preferences.ledger import Ledger, Mapped, Once, Told, Verdicts, View, afresh, group_of
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
    cleaners: Iterable[Callable[..., Sequence[Decision]]],
    policy: Callable[..., Sequence[Decision]] | None = None,
    *,
    folds: int = 5,
    c: float = 1.0,
    protected: Protected | None = None,
    once: Once = afresh,
    mapped: Mapped = map,
) -> tuple[Sequence[PreferencePair], Sequence[PreferencePair], dict[str, float]]:
    """(kept, removed, estimated noise rate by kind of prompt), each pair with its decisions: lists of a list of pairs, else
    what is made anew each time it is gone through (`synth.preferences.ledger`). once: finds what an earlier run of the same
    pairs, cleaners and knobs got: each column, and the decisions of each cleaner or of those that go together. mapped: runs what
    is a function of some pairs alone, for several parts of them, in processes that have the code.

    Raises UserError if a cleaner would remove all pairs, or needs a column that is missing and cannot be computed.
    """
    kept, removed, noise = judged(
        pairs, cleaners, policy, folds=folds, c=c, protected=protected, once=once, mapped=mapped
    )
    return (list(kept), list(removed), noise) if isinstance(pairs, list) else (kept, removed, noise)


def judged(
    pairs: Sequence[PreferencePair],
    cleaners: Iterable[Callable[..., Sequence[Decision]]],
    policy: Callable[..., Sequence[Decision]] | None = None,
    *,
    folds: int,
    c: float,
    protected: Protected | None = None,
    once: Once = afresh,
    mapped: Mapped = map,
) -> tuple[View, View, dict[str, float]]:
    """As `run_cleaners`, whatever the pairs are."""
    ledger, rest, noise = Ledger(pairs, once, mapped), np.arange(len(pairs)), dict[str, float]()
    removed, columns = list[np.ndarray](), _Columns(ledger, folds, c, protected, once)
    with no_collection():
        for run in chain(_runs(cleaners), [[policy]] if policy else []):
            noise |= columns.add(rest, run[0].needs)  # type: ignore[attr-defined]
            carried_out = policy is None or run[0] is policy
            for cleaner, told in zip(run, _told(ledger.view(rest), run, carried_out=carried_out), strict=True):
                gone = ledger.said(rest, told, carried_out=carried_out)
                if not carried_out:
                    continue
                if len(rest) and gone.all():
                    name = cleaner.piece  # type: ignore[attr-defined]
                    raise UserError(
                        f"clean: {name} would remove all {len(rest)} training pairs: loosen its knobs or leave it out"
                    )
                removed.append(rest[gone])
                rest = rest[~gone]
    return ledger.view(rest), ledger.view(np.concatenate([rest[:0], *removed])), noise


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


def noise_interval(pairs: Iterable[PreferencePair], groups: np.ndarray | None = None) -> dict[str, Any] | None:
    """The share of wrong labels with its interval, over the pairs whose label was judged by text
    (`synth.preferences.cleaners._noise`); None without. groups [pairs]: what `ranks` says of their groups, if that is known."""
    seen = _by_name(pairs, groups)
    if seen is None:
        return None
    right, group, marks = seen
    flipped, drawn, proven = marks.T
    right[flipped != 0] = 1 - right[flipped != 0]
    sign = np.where(flipped, np.int8(-1), np.int8(1))
    interval = estimate(right, group, drawn * sign, proven=int((proven * sign < 0).sum()))
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in interval.items()}


def _by_name(
    pairs: Iterable[PreferencePair], groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Of the pairs whose label was judged by text, in the order of their ids: out_of_fold, the place of the group among all, and [n, 3]
    int8: flipped, drawn anchor, anchor; None of fewer than 30."""
    names, told, cast, at = Ranks(), array("d"), array("b"), array("B")

    def judged() -> Iterator[PreferencePair]:
        for p in pairs:
            at.append("out_of_fold" in p.columns)
            if at[-1]:
                names.add(p.id)
                told.append(p.columns["out_of_fold"])
                # columns of a pair that was flipped were swapped with its sides
                cast.extend((any(d.action == "flip" for d in p.decisions), drawn_anchor(p), anchor(p)))
                yield p

    if groups is None:
        group = ranks(map(group_of, judged()))
    else:
        for _ in judged():
            pass
        group = dense(groups[np.frombuffer(at, bool)])
    if len(told) < 30:
        return None
    order = np.argsort(names.whole(), kind="stable")
    return np.frombuffer(told)[order], group[order], np.frombuffer(cast, np.int8).reshape(-1, 3)[order]


def _runs(cleaners: Iterable[Callable[..., Any]]) -> Iterator[list[Callable[..., Any]]]:
    """The cleaners, those together that judge each pair by itself (ALONE), need no column and follow each other."""
    run = list[Callable[..., Any]]()
    for cleaner in cleaners:
        alone = getattr(cleaner, "alone", False) and not cleaner.needs  # type: ignore[attr-defined]
        if run and not alone:
            yield run
            run = []
        run.append(cleaner)
        if not alone:
            yield run
            run = []
    if run:
        yield run


def _told(pairs: View, cleaners: Sequence[Callable[..., Sequence[Decision]]], *, carried_out: bool) -> list[Told]:
    """`verdicts` as arrays, found again where an earlier run had them."""

    def made() -> dict[str, Any]:
        out: dict[str, Any] = {}
        for k, verdict in enumerate(verdicts(pairs, cleaners, carried_out=carried_out)):
            out[f"kinds{k}"], out[f"code{k}"], out[f"score{k}"] = verdict.arrays()
        return out

    told = pairs.once(getattr(cleaners[0], "piece", "cleaner").rpartition("/")[2], made)
    kinds = [
        [(step, action, reason, other) for step, action, reason, other in told[f"kinds{k}"]]
        for k in range(len(cleaners))
    ]
    return [(kinds[k], told[f"code{k}"], told[f"score{k}"]) for k in range(len(cleaners))]


def verdicts(
    pairs: View, cleaners: Sequence[Callable[..., Sequence[Decision]]], *, carried_out: bool
) -> list[Verdicts]:
    """What each cleaner says of the pairs that those before it leave: cleaners that judge each pair by itself (ALONE) get them a
    block at a time, and all look at one before the next is read. carried_out: pairs are removed and flipped in between.

    Raises ValueError where decisions are missing.
    """
    if not (getattr(cleaners[0], "alone", False) and len(pairs)):
        (decided,) = _decided(cleaners, carried_out, pairs)
        if isinstance(decided, Verdicts):
            return [decided]
        (out := Verdicts()).extend(decided)
        return [out]
    out = [Verdicts() for _ in cleaners]
    bare = [getattr(cleaner, "bare", cleaner) for cleaner in cleaners]  # what reports progress stays here
    for decisions in pairs.mapped(partial(_decided, bare, carried_out), pairs.blocks()):
        for cleaner, verdict, decided in zip(cleaners, out, decisions, strict=True):
            verdict.extend(decided)
            if progress := getattr(cleaner, "progress", None):
                progress(min(1.0, len(out[0]) / len(pairs)))
    return out


def _decided(
    cleaners: Sequence[Callable[..., Sequence[Decision]]], carried_out: bool, pairs: Sequence[PreferencePair]
) -> list[Sequence[Decision]]:
    """What each cleaner says of the pairs that those before it leave."""
    out, rest = list[Sequence[Decision]](), pairs
    for cleaner in cleaners:
        decided = cleaner(rest)
        if len(decided) != len(rest):
            name = cleaner.piece  # type: ignore[attr-defined]
            raise ValueError(
                f"{name} made {len(decided)} decisions about {len(rest)} pairs: a cleaner returns one per pair, in order"
            )
        out.append(decided)
        if carried_out and cleaner is not cleaners[-1]:
            told = list(zip(rest, decided, strict=True))
            rest = [swap_sides(p) if d.action == "flip" else p for p, d in told if d.action != "remove"]
    return out


class _Columns:
    """The columns that cleaners need and pairs lack, computed where they are asked for."""

    def __init__(self, ledger: Ledger, folds: int, c: float, protected: Protected | None, once: Once = afresh) -> None:
        self.ledger, self.folds, self.c, self.protected = ledger, folds, c, protected
        self.known = Known(lambda name, make: once(f"features-{name}", make), ledger.mapped)

    def add(self, rows: np.ndarray, needs: frozenset[str]) -> dict[str, float]:
        """Adds what is missing, and gives the estimated noise rate by kind of prompt.

        Raises UserError for a column that this stage cannot compute.
        """
        pairs = self.ledger.view(rows)
        unsure = {name for name in needs if not self.ledger.has(name)}
        missing = {name for name in unsure if any(name not in p.columns for p in pairs)}
        provided = {"out_of_fold", "out_of_fold_blind"} | ({"overlap"} if self.protected else set())
        if unknown := sorted(missing - provided):
            raise UserError(
                f"clean: a cleaner needs the column {unknown[0]!r}, which pairs lack: add it to their `columns`, or leave the cleaner out"
            )
        noise: dict[str, float] = {}
        if self.protected and "overlap" in missing:
            guard = self.protected
            self._column(rows, "overlap", lambda: {"values": _rounded(map(guard.of, pairs), len(rows))})
        if "out_of_fold_blind" in missing:
            blind = lambda: {"values": _rounded(self._out_of_fold(pairs, blind=True)[0], len(rows))}  # noqa: E731
            self._column(rows, "out_of_fold_blind", blind)
        if "out_of_fold" in missing:
            noise = self._column(rows, "out_of_fold", lambda: self._with_noise(pairs))["noise"]
        return noise

    def _with_noise(self, pairs: View) -> dict[str, Any]:
        right, table = self._out_of_fold(pairs)
        many = np.bincount(table.about, minlength=len(table.kinds)) >= 30
        named = sorted((table.kinds[k], k) for k in np.flatnonzero(many).tolist())
        noise = {"all": round(noise_rate_of_pairs(right), 4)}
        noise |= {name: round(noise_rate_of_pairs(right[table.about == k]), 4) for name, k in named}
        return {"values": _rounded(right, len(pairs)), "noise": noise}

    def _out_of_fold(self, pairs: View, *, blind: bool = False) -> tuple[np.ndarray, Differences]:
        groups = dense(self.ledger.groups()[pairs.rows])
        return _fitted(pairs, groups, folds=self.folds, c=self.c, blind=blind, known=self.known)

    def _column(self, rows: np.ndarray, name: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        column = self.ledger.once(name, make)
        self.ledger.column(rows, name, column["values"])
        return column


def _rounded(values: Iterable[float], n: int) -> np.ndarray:
    """[n]"""
    return np.fromiter((round(float(x), 6) for x in values), np.float64, n)


def out_of_fold(
    pairs: Sequence[PreferencePair], *, folds: int, c: float, blind: bool = False, known: Known | None = None
) -> np.ndarray:
    """[pairs] probability that the chosen side is better, by a logistic regression that saw no pair of the same group.

    Features are chosen minus rejected (`synth.preferences.cleaners._features`, which keeps in `known` what it read); each
    pair counts in both orders, so there is no intercept and no preferred order. Siblings never lie on both sides of a
    fold. blind: length and marks of style take part in the fit but not in the probability
    (`synth/preferences/cleaners/blind_margin.py`). Raises UserError where there are fewer groups than folds.
    """
    return _fitted(pairs, ranks(map(group_of, pairs)), folds=folds, c=c, blind=blind, known=known)[0]


def _fitted(
    pairs: Sequence[PreferencePair], groups: np.ndarray, *, folds: int, c: float, blind: bool, known: Known | None
) -> tuple[np.ndarray, Differences]:
    """(`out_of_fold`, the table that it rests on). groups [pairs]: the places of their names among all."""
    n = int(groups.max(initial=-1)) + 1
    if n < folds:
        raise UserError(
            f"clean: {n} groups of pairs do not make {folds} folds: lower `folds`, or leave confident_learning out"
        )
    table = differences(pairs, style if blind else None, known)
    hide = BLIND | style("").keys()
    hidden = [i for i, name in enumerate(table.names) if blind and name.rpartition(": ")[2] in hide]
    return margins(table, groups, folds=folds, c=c, hidden=hidden), table


def margins(
    difference: Any, groups: Sequence[str] | np.ndarray, *, folds: int, c: float, hidden: Sequence[int] = ()
) -> np.ndarray:
    """[n] out-of-fold probability of the label from feature differences [n, d], dense, sparse or `Differences`; `hidden` columns
    are fitted and then left out, and what is left of the margin is scaled to fit the labels of the other folds."""
    from scipy.special import expit
    from sklearn.model_selection import GroupKFold

    out = np.zeros(difference.shape[0])
    index = groups if isinstance(groups, np.ndarray) else ranks(groups)
    if isinstance(difference, Differences) and difference.small:
        difference = difference.table()
    rows = difference.part if isinstance(difference, Differences) else difference.__getitem__
    fold = np.zeros(len(out), np.int8 if folds < 128 else np.int64)
    for k, (_, unseen) in enumerate(GroupKFold(folds).split(out, groups=index)):
        fold[unseen] = k
    del unseen  # and what the generator holds of it: some 60 bytes a row
    for k in range(folds):
        of, unseen = rows(np.flatnonzero(fold != k)), np.flatnonzero(fold == k)
        weight, scale = fitted(of, c), 1.0
        if len(hidden):
            weight[list(hidden)] = 0.0
            scale = fitted((of @ weight)[:, None], np.inf)[0]
        del of
        out[unseen] = expit(scale * (rows(unseen) @ weight))
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
    tables = x.tables() if isinstance(x, Part) else iter([x])
    first = next(tables)
    sparse = hasattr(first, "multiply")
    if sparse:
        squares = sum(
            (np.asarray(t.multiply(t).sum(axis=0)).ravel() for t in tables),
            np.asarray(first.multiply(first).sum(axis=0)).ravel(),
        )
        curvature = ridge + squares / 2
        turn = 1 / np.sqrt(np.where(curvature > 0, curvature, 1.0))
    else:
        products = first.T @ first
        for t in tables:
            products += t.T @ t
        values, vectors = np.linalg.eigh(products / 2)
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
