"""The stage `clean`: cleaners decide about every training pair, in order; what they remove is kept beside, with each decision.

Only the split train is judged: pairs of other splits pass through, for nothing may tune itself on what it is measured with. Where the stage
`preferences` left the truth about planted faults, the card says how many were found; it is opened after the last decision is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from synth.clean._columns import turn
from synth.clean._features import features, kind
from synth.clean.confident_learning import noise_rate, symmetric
from synth.make.label_noise import Planted
from synth.types import Decision, PreferencePair, Quarantined, digest
from tasks.disk import tables
from tasks.errors import UserError
from tasks.planning.pieces import Pieces
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
    folds: int = 5,
    regularisation: float = 1.0,
) -> None:
    """`folds`, `regularisation` (inverse strength C): of the logistic regression behind the column `out_of_fold`."""
    pairs = tables.read(stage.input("preferences", "pairs.parquet"), PreferencePair)
    rest = [p for p in pairs if p.split == "train"]
    removed: list[PreferencePair] = []
    noise: dict[str, float] = {}
    for cleaner in stage.progress(cleaners, "cleaners"):
        rest, estimate = with_columns(rest, cleaner.needs, folds=folds, c=regularisation)
        noise |= estimate
        kept, gone = judge(rest, cleaner)
        if rest and not kept:
            raise UserError(f"clean: {cleaner.piece} would remove all {len(rest)} training pairs: loosen its knobs or leave it out")
        rest, removed = kept, removed + gone
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
        "pairs": digest([p.id for p in kept]),
    }
    if (stage.root / "artifacts" / "preferences" / "truth.parquet").exists():
        card["against_truth"] = against_truth(tables.read(stage.input("preferences", "truth.parquet"), Planted), kept, removed)
    stage.card(card)
    stage.log({"kept": len(kept), "removed": len(removed), **{f"noise_{k}": v for k, v in noise.items()}})


def judge(pairs: Sequence[PreferencePair], cleaner: Callable[..., list[Decision]]) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """(kept, removed), the cleaner's decision appended to each; "flip" swaps the sides and the columns about them.

    Raises ValueError where decisions are missing.
    """
    decisions = cleaner(pairs)
    if len(decisions) != len(pairs):
        raise ValueError(
            f"{cleaner.piece} made {len(decisions)} decisions about {len(pairs)} pairs: a cleaner returns one per pair, in order"
        )
    judged = [replace(p, decisions=(*p.decisions, d)) for p, d in zip(pairs, decisions, strict=True)]
    turned = [turn(p) if p.decisions[-1].action == "flip" else p for p in judged]
    return [p for p in turned if p.decisions[-1].action != "remove"], [p for p in turned if p.decisions[-1].action == "remove"]


def with_columns(
    pairs: Sequence[PreferencePair], needs: frozenset[str], *, folds: int, c: float
) -> tuple[list[PreferencePair], dict[str, float]]:
    """The pairs with the columns that a cleaner needs and they lack, and the estimated noise rate by kind of prompt.

    Raises UserError for a column that this stage cannot compute.
    """
    missing = {name for name in needs if any(name not in p.columns for p in pairs)}
    if unknown := sorted(missing - {"out_of_fold"}):
        raise UserError(
            f"clean: a cleaner needs the column {unknown[0]!r}, which pairs lack: add it to their `columns`, or leave the cleaner out"
        )
    if not missing:
        return list(pairs), {}
    right = out_of_fold(pairs, folds=folds, c=c)
    kinds = np.array([kind(p.prompt) for p in pairs])
    groups = {"all": np.ones(len(pairs), dtype=bool)} | {k: kinds == k for k in sorted(set(kinds)) if (kinds == k).sum() >= 30}
    noise = {name: round(noise_rate(*symmetric(right[rows])), 4) for name, rows in groups.items()}
    known = [replace(p, columns={**p.columns, "out_of_fold": round(float(x), 6)}) for p, x in zip(pairs, right, strict=True)]
    return known, noise


def out_of_fold(pairs: Sequence[PreferencePair], *, folds: int, c: float) -> np.ndarray:
    """[pairs] probability that the chosen side is better, by a logistic regression that saw no pair of the same group.

    Features are chosen minus rejected (`synth.clean._features`); each pair is fitted in both orders, so there is no intercept and no
    preferred order. A group is `columns["group"]`, the root of the problem: siblings never lie on both sides of a fold.
    """
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    groups = [str(p.columns.get("group", p.problem or p.id)) for p in pairs]
    if len(set(groups)) < folds:
        raise UserError(
            f"clean: {len(set(groups))} groups of pairs do not make {folds} folds: lower `folds`, or leave confident_learning out"
        )
    sides = DictVectorizer(sparse=False).fit_transform([features(p.prompt, text) for p in pairs for text in (p.chosen, p.rejected)])
    difference = sides[0::2] - sides[1::2]
    out = np.zeros(len(pairs))
    for seen, unseen in GroupKFold(folds).split(difference, groups=groups):
        x = difference[seen]
        model = LogisticRegression(C=c, fit_intercept=False, max_iter=1000)
        model.fit(np.concatenate([x, -x]), np.repeat([1, 0], len(x)))
        out[unseen] = model.predict_proba(difference[unseen])[:, 1]
    return out


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
