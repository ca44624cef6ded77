"""The stage `clean`: cleaners decide about every training pair, in order. Removed pairs are kept in a table of their
own, with each decision.

Without a policy, each cleaner's decision is carried out before the next cleaner runs. With a policy, all cleaners see
all pairs, and nothing is carried out until the policy (`synth/preferences/cleaners/policy.py`) has combined their
decisions into one.

Only the split train is judged: pairs of other splits pass through, because evaluation data must not be tuned on. If the
stage `preferences` wrote the truth about planted faults, the card says how many were found; the truth is read only
after the last decision.
"""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from synth.preferences.cleaners._length import report as length_report
from synth.preferences.cleaning import Judgement, noise_interval, run_cleaners
from synth.preferences.label_noise import Planted
from synth.preferences.ledger import Spilled, group_of
from synth.types import ListDigest, PreferencePair, Quarantined
from tasks.rows.pairs import CLEANED
from tasks.rows.read import pass_on, said
from tasks.rows.clean import COMPUTED
from tasks.planning.pieces import Piece, Pieces, Place
from tasks.runtime.ray_tasks import mapping
from tasks.runtime.stage import Stage
from tasks.storage import tables
from tasks.storage.reviews import Reviews
from tasks.storage.shards import Parts


def clean(
    stage: Stage,
    *,
    cleaners: Pieces("cleaner") = [{"piece": "duplicates"}, {"piece": "confident_learning"}],  # noqa: B006 (read by ast)
    policy: Piece("cleaner") = None,
    reviews: str = "",
    folds: int = 5,
    regularisation: float = 1.0,
    ray: Place() = "",
) -> None:
    """Judges preference pairs.

    Args:
        cleaners: cleaners that judge the pairs, in order
        policy: makes one decision of those of all cleaners; without one each decision is carried out before the
            next cleaner looks
        reviews: decisions of `espalier review`: each becomes the column `anchor` of its pair
        folds: folds of the logistic regression behind `out_of_fold` and `out_of_fold_blind`
        regularisation: inverse strength C of that regression
        ray: address of a Ray cluster whose machines judge parts of the pairs: HOST:PORT, or auto (docs/scaling.md); empty: this
            machine
    """
    table = stage.input("preferences", "pairs.parquet")
    given = Reviews(stage.source(reviews) if reviews else None)
    train, read, groups = Spilled(), 0, set[str]()
    for p in tables.each(table, PreferencePair):
        read += 1
        if _is_judged(p):
            train.add(p := given.about(p))
            if len(groups) < folds:
                groups.add(group_of(p))
    few = len(train) < 2 * folds or len(groups) < folds
    if few and any(c.needs & COMPUTED for c in cleaners):
        cleaners = [c for c in cleaners if not c.needs & COMPUTED]
        said(
            stage, f"{len(train)} pairs are too few to fit a model of their labels: cleaners that need one are left out"
        )
    with mapping(stage, ray) as mapped:
        rest, removed, noise = run_cleaners(
            train,
            stage.progress(cleaners, "cleaners"),
            policy,
            folds=folds,
            c=regularisation,
            once=Parts(stage.work / "judged").values,  # the folder is of this stage's identity
            mapped=mapped,
        )

    def kept() -> Iterator[PreferencePair]:
        yield from rest
        yield from (p for p in tables.each(table, PreferencePair) if not _is_judged(p))

    ids, judgements, reasons = ListDigest(), Counter[str](), Counter[str]()

    def named() -> Iterator[PreferencePair]:
        for p in kept():
            ids.add(p.id)
            yield p

    def decisions() -> Iterator[Judgement]:
        for p in chain(kept(), removed):
            for d in p.decisions:
                judgements[f"{d.step}: {d.action}"] += 1
                yield Judgement(id=p.id, **vars(d))

    n_kept = tables.write(stage.out / "pairs.parquet", named(), PreferencePair)
    if n_kept + len(removed) != read:
        raise AssertionError(f"clean lost pairs: read {read}, kept {n_kept}, removed {len(removed)}")
    tables.write(stage.out / "removed.parquet", removed, PreferencePair)
    tables.write(stage.out / "decisions.parquet", decisions(), Judgement)
    tables.write(stage.out / "quarantine.parquet", _quarantined(removed, reasons), Quarantined)
    pass_on(stage.input("preferences"), stage.out)  # later stages read the pairs' weights here
    n_asked = sum(p.decisions[-1].action == "ask" for p in rest if p.decisions)
    said(stage, f"{read:,} pairs read, {n_kept:,} kept, {len(removed):,} removed{_reasons(reasons)}")
    if n_asked:
        said(
            stage,
            f"{n_asked:,} of those that are kept are doubtful: `espalier review artifacts/{stage.name}/pairs.parquet` shows them, and "
            "clean.reviews: data/reviews.jsonl makes your decisions count",
        )
    card: dict[str, Any] = {
        "produced": read,
        "accepted": n_kept,
        "quarantined": dict(sorted(reasons.items())),
        "asked": n_asked,
        "actions": dict(sorted(judgements.items())),
        "estimated_noise": noise,
        "noise_interval": noise_interval(chain(rest, removed)),
        "length": length_report((p.chosen, p.rejected) for p in train),
        "pairs": ids.name(),
        **({"reviewed": given.n} if reviews else {}),
    }
    truth = stage.root / "artifacts" / "preferences" / "truth.parquet"
    if truth.exists() and (known_truth := tables.read(stage.input("preferences", "truth.parquet"), Planted)):
        card["against_truth"] = against_truth(known_truth, kept, removed)
    stage.card(card)
    stage.log({"kept": n_kept, "removed": len(removed), **{f"noise_{k}": v for k, v in noise.items()}})


def _is_judged(pair: PreferencePair) -> bool:
    return pair.split == "train" and not pair.columns.get(CLEANED)


def _quarantined(removed: Iterable[PreferencePair], reasons: Counter[str]) -> Iterator[Quarantined]:
    """Why each is removed; reasons: counted on the way."""
    for p in removed:
        d = p.decisions[-1]
        reason = d.reason.partition(":")[0]
        reasons[reason] += 1
        yield Quarantined(id=p.id, stage="clean", reason=reason, evidence=f"{d.step}: {d.reason}, score {d.score:.4f}")


def _reasons(counts: Mapping[str, int]) -> str:
    return f": {', '.join(f'{n} {reason}' for reason, n in sorted(counts.items()))}" if counts else ""


def against_truth(
    truth: Sequence[Planted], kept: Callable[[], Iterable[PreferencePair]], removed: Iterable[PreferencePair]
) -> Mapping[str, Any]:
    """Compares the decisions with the planted faults. Recall of flips by type of error shows which errors the features
    cannot detect."""
    fact = {t.id: t for t in truth}
    gone = {p.id: p.decisions[-1].step for p in removed}
    judged = [
        p.id for p in chain(kept(), removed) if p.id in fact and gone.get(p.id) != "duplicates"
    ]  # by the other cleaners
    caught_ids = {i for i in judged if i in gone}
    flips = [i for i in judged if fact[i].flip]
    after = [p.id for p in kept() if p.id in fact]
    copies = [t for t in truth if t.copy]
    copied = {i for t in copies for i in (t.id, t.of)}

    def recall(ids: Sequence[str]) -> float | None:
        return ratio(sum(i in caught_ids for i in ids), len(ids))

    def caught(kind: str) -> float | None:
        mine = [t for t in copies if t.copy == kind]
        return ratio(sum(t.id in gone or t.of in gone for t in mine), len(mine))

    return {
        "flips": {
            "precision": ratio(sum(fact[i].flip for i in caught_ids), len(caught_ids)),
            "recall": recall(flips),
            "recall_by_error": {
                e: recall([i for i in flips if fact[i].error == e]) for e in sorted({fact[i].error for i in flips})
            },
            "rate_before": ratio(len(flips), len(judged)),
            "rate_after": ratio(sum(fact[i].flip for i in after), len(after)),
        },
        "copies": {
            "recall": {kind: caught(kind) for kind in sorted({t.copy for t in copies})},
            "removed_that_were_none": sum(step == "duplicates" and i not in copied for i, step in gone.items()),
        },
    }


def ratio(a: int, b: int) -> float | None:
    """a / b rounded, None if b is 0."""
    return round(a / b, 4) if b else None
