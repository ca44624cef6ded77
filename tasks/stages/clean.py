"""The stage `clean`: cleaners decide about every training pair, in order; what they remove is kept beside, with each decision.

Without a policy each cleaner's decision is carried out before the next one looks. With one, all cleaners look at all pairs and nothing
happens until the policy (`synth/clean/policy.py`) has made one decision of theirs.

Only the split train is judged: pairs of other splits pass through, for nothing may tune itself on what it is measured with. Where the stage
`preferences` left the truth about planted faults, the card says how many were found; it is opened after the last decision is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from synth.clean._columns import anchor, turn
from synth.clean._features import BLIND, features, kind
from synth.clean._length import report as length_report
from synth.clean._length import style
from synth.clean._noise import estimate
from synth.clean._overlap import Protected
from synth.clean.confident_learning import noise_rate, symmetric
from synth.make.label_noise import Planted
from synth.types import Decision, PreferencePair, Quarantined, digest
from tasks.disk import tables
from tasks.errors import UserError
from tasks.inspect.review import anchors
from tasks.planning.pieces import Piece, Pieces
from tasks.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One row of decisions.parquet: what the cleaner `step` said of the pair `id`."""

    id: str
    step: str
    action: str
    reason: str
    score: float


def clean(
    stage: Stage,
    *,
    cleaners: Pieces("synth.clean") = [{"piece": "duplicates"}, {"piece": "confident_learning"}],  # noqa: B006 (read by ast)
    policy: Piece("synth.clean") = None,
    reviews: str = "",
    folds: int = 5,
    regularisation: float = 1.0,
) -> None:
    """`reviews`: decisions of `espalier review`; each becomes the column `anchor` of its pair, for cleaners that read anchors. `folds`,
    `regularisation` (inverse strength C): of the logistic regression behind `out_of_fold` and `out_of_fold_blind`."""
    pairs = tables.read(stage.input("preferences", "pairs.parquet"), PreferencePair)
    train = [p for p in pairs if p.split == "train"]
    known = anchors(stage.source(reviews)) if reviews else {}
    train = [replace(p, columns={**p.columns, "anchor": known[p.id]}) if p.id in known else p for p in train]
    rest, removed, noise = run_cleaners(train, stage.progress(cleaners, "cleaners"), policy, folds=folds, c=regularisation)
    kept = rest + [p for p in pairs if p.split != "train"]
    if len(kept) + len(removed) != len(pairs):
        raise AssertionError(f"clean lost pairs: read {len(pairs)}, kept {len(kept)}, removed {len(removed)}")
    judgements = [Judgement(id=p.id, **vars(d)) for p in kept + removed for d in p.decisions]
    last = [(p.id, p.decisions[-1]) for p in removed]
    aside = [
        Quarantined(id=i, stage="clean", reason=d.reason.partition(":")[0], evidence=f"{d.step}: {d.reason}, score {d.score:.4f}")
        for i, d in last
    ]
    tables.write(stage.out / "pairs.parquet", kept, PreferencePair)
    tables.write(stage.out / "removed.parquet", removed, PreferencePair)
    tables.write(stage.out / "decisions.parquet", judgements, Judgement)
    tables.write(stage.out / "quarantine.parquet", aside, Quarantined)
    card: dict[str, Any] = {
        "produced": len(pairs),
        "accepted": len(kept),
        "quarantined": tables.counts(aside),
        "actions": dict(sorted(Counter(f"{j.step}: {j.action}" for j in judgements).items())),
        "estimated_noise": noise,
        "noise_interval": noise_interval(rest + removed),
        "length": length_report([p.chosen for p in train], [p.rejected for p in train]),
        "pairs": digest([p.id for p in kept]),
        **({"reviewed": sum(p.id in known for p in train)} if reviews else {}),
    }
    if (stage.root / "artifacts" / "preferences" / "truth.parquet").exists():
        card["against_truth"] = against_truth(tables.read(stage.input("preferences", "truth.parquet"), Planted), kept, removed)
    stage.card(card)
    stage.log({"kept": len(kept), "removed": len(removed), **{f"noise_{k}": v for k, v in noise.items()}})


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

    Raises UserError where a cleaner would remove all pairs, or needs a column that can be neither found nor computed.
    """
    rest, removed, noise = list(pairs), [], {}
    for cleaner in [*cleaners, *([policy] if policy else [])]:
        rest, rates = with_columns(rest, cleaner.needs, folds=folds, c=c, protected=protected)
        noise |= rates
        kept, gone = judge(rest, cleaner, advice=policy is not None and cleaner is not policy)
        if rest and not kept:
            raise UserError(f"clean: {cleaner.piece} would remove all {len(rest)} training pairs: loosen its knobs or leave it out")
        rest, removed = kept, removed + gone
    return rest, removed, noise


def noise_interval(pairs: Sequence[PreferencePair]) -> dict[str, Any] | None:
    """The share of wrong labels with its interval, over the pairs whose label was judged by text (`synth.clean._noise`); None without."""
    judged = sorted((p for p in pairs if "out_of_fold" in p.columns), key=lambda p: p.id)
    if len(judged) < 30:
        return None
    flipped = np.array([any(d.action == "flip" for d in p.decisions) for p in judged])  # their columns were turned with the sides
    right = np.array([p.columns["out_of_fold"] for p in judged])
    known = np.array([anchor(p) for p in judged]) * np.where(flipped, -1, 1)
    found = estimate(np.where(flipped, 1 - right, right), [group_of(p) for p in judged], known)
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}


def judge(
    pairs: Sequence[PreferencePair], cleaner: Callable[..., list[Decision]], *, advice: bool = False
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """(kept, removed), the cleaner's decision appended to each; "flip" swaps the sides and the columns about them. advice: nothing acts.

    Raises ValueError where decisions are missing.
    """
    decisions = cleaner(pairs)
    if len(decisions) != len(pairs):
        raise ValueError(
            f"{cleaner.piece} made {len(decisions)} decisions about {len(pairs)} pairs: a cleaner returns one per pair, in order"
        )
    judged = [replace(p, decisions=(*p.decisions, d)) for p, d in zip(pairs, decisions, strict=True)]
    if advice:
        return judged, []
    turned = [turn(p) if p.decisions[-1].action == "flip" else p for p in judged]
    return [p for p in turned if p.decisions[-1].action != "remove"], [p for p in turned if p.decisions[-1].action == "remove"]


def with_columns(
    pairs: Sequence[PreferencePair], needs: frozenset[str], *, folds: int, c: float, protected: Protected | None = None
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
    if "overlap" in missing:
        known = _with(known, "overlap", [protected.of(p) for p in known])
    if "out_of_fold_blind" in missing:
        known = _with(known, "out_of_fold_blind", out_of_fold(known, folds=folds, c=c, blind=True))
    if "out_of_fold" in missing:
        right = out_of_fold(known, folds=folds, c=c)
        kinds = np.array([kind(p.prompt) for p in known])
        groups = {"all": np.ones(len(known), dtype=bool)} | {k: kinds == k for k in sorted(set(kinds)) if (kinds == k).sum() >= 30}
        noise = {name: round(noise_rate(*symmetric(right[rows])), 4) for name, rows in groups.items()}
        known = _with(known, "out_of_fold", right)
    return known, noise


def _with(pairs: Sequence[PreferencePair], name: str, values: Sequence[float]) -> list[PreferencePair]:
    return [replace(p, columns={**p.columns, name: round(float(x), 6)}) for p, x in zip(pairs, values, strict=True)]


def group_of(pair: PreferencePair) -> str:
    """Whose siblings a pair is: `columns["group"]`, the root of its problem; else the problem, else itself."""
    return str(pair.columns.get("group", pair.problem or pair.id))


def out_of_fold(pairs: Sequence[PreferencePair], *, folds: int, c: float, blind: bool = False) -> np.ndarray:
    """[pairs] probability that the chosen side is better, by a logistic regression that saw no pair of the same group.

    Features are chosen minus rejected (`synth.clean._features`); each pair is fitted in both orders, so there is no intercept and no
    preferred order. Siblings never lie on both sides of a fold. blind: length and marks of style take part in the fit and not in the
    probability (`synth/clean/blind_margin.py`). Raises UserError where there are fewer groups than folds.
    """
    from sklearn.feature_extraction import DictVectorizer

    groups = [group_of(p) for p in pairs]
    if len(set(groups)) < folds:
        raise UserError(
            f"clean: {len(set(groups))} groups of pairs do not make {folds} folds: lower `folds`, or leave confident_learning out"
        )
    said = [features(p.prompt, text) | (style(text) if blind else {}) for p in pairs for text in (p.chosen, p.rejected)]
    names = DictVectorizer(sparse=len({k for f in said for k in f}) > 1000)  # the first words of many prompts make many columns
    sides = names.fit_transform(said)
    hidden = [i for i, name in enumerate(names.feature_names_) if blind and name.rpartition(": ")[2] in BLIND | style("").keys()]
    return margins(sides[0::2] - sides[1::2], groups, folds=folds, c=c, hidden=hidden)


def margins(difference: Any, groups: Sequence[str], *, folds: int, c: float, hidden: Sequence[int] = ()) -> np.ndarray:
    """[n] out-of-fold probability of the label from feature differences [n, d], dense or sparse; `hidden` columns are fitted and then
    left out, and what is left of the margin is scaled to fit the labels of the other folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    out = np.zeros(difference.shape[0])
    for seen, unseen in GroupKFold(folds).split(difference, groups=groups):
        model = _fit(LogisticRegression(C=c, fit_intercept=False, max_iter=1000), difference[seen])
        if not len(hidden):
            out[unseen] = model.predict_proba(difference[unseen])[:, 1]
            continue
        weight = model.coef_[0].copy()
        weight[list(hidden)] = 0.0
        rest = difference @ weight
        scale = _fit(LogisticRegression(C=np.inf, fit_intercept=False), rest[seen][:, None])
        out[unseen] = scale.predict_proba(rest[unseen][:, None])[:, 1]
    return out


def _fit(model: Any, x: Any) -> Any:
    """The model fitted to each pair in both orders."""
    from scipy.sparse import issparse, vstack

    return model.fit(vstack([x, -x]) if issparse(x) else np.concatenate([x, -x]), np.repeat([1, 0], x.shape[0]))


def against_truth(truth: Sequence[Planted], kept: Sequence[PreferencePair], removed: Sequence[PreferencePair]) -> Mapping[str, Any]:
    """How the decisions compare with the planted faults. Recall of flips by type of error shows which errors the features cannot see."""
    fact = {t.id: t for t in truth}
    gone = {p.id: p.decisions[-1].step for p in removed}
    judged = [p.id for p in [*kept, *removed] if p.id in fact and gone.get(p.id) != "duplicates"]  # by the other cleaners
    found = {i for i in judged if i in gone}
    flips = [i for i in judged if fact[i].flip]
    after = [p.id for p in kept if p.id in fact]
    copies = [t for t in truth if t.copy]
    copied = {i for t in copies for i in (t.id, t.of)}

    def recall(ids: Sequence[str]) -> float | None:
        return ratio(sum(i in found for i in ids), len(ids))

    def caught(kind: str) -> float | None:
        mine = [t for t in copies if t.copy == kind]
        return ratio(sum(t.id in gone or t.of in gone for t in mine), len(mine))

    return {
        "flips": {
            "precision": ratio(sum(fact[i].flip for i in found), len(found)),
            "recall": recall(flips),
            "recall_by_error": {e: recall([i for i in flips if fact[i].error == e]) for e in sorted({fact[i].error for i in flips})},
            "rate_before": ratio(len(flips), len(judged)),
            "rate_after": ratio(sum(fact[i].flip for i in after), len(after)),
        },
        "copies": {
            "recall": {kind: caught(kind) for kind in sorted({t.copy for t in copies})},
            "removed_that_were_none": sum(step == "duplicates" and i not in copied for i, step in gone.items()),
        },
    }


def ratio(a: int, b: int) -> float | None:
    """a / b rounded, None where b is 0."""
    return round(a / b, 4) if b else None
