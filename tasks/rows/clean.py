"""Cleaning a file of your own: it reads pairs in any layout and writes cleaned, removed, flipped and asked pairs, each
with its reasons.

    cleaned.jsonl      to train on: kept, weighted and flipped pairs (sides already swapped), each with its weight
    flipped.jsonl      those of them whose sides were swapped, as they were before
    removed.jsonl, asked.jsonl      not to train on; a person's decision is worth most on the second
    quarantine.jsonl   rows that are no pairs, with reason and evidence
    README.md                       what `datasets.load_dataset` reads of them
    card.json, index.html           counts, estimated noise with its interval, length, reasons; the same as a page with
                                    plots

Rows read = cleaned + removed + asked + quarantined, where an import makes one pair of a row; the card counts pairs and
rows apart.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from synth.preferences.cleaners._columns import swap_sides
from synth.preferences.cleaners._length import longer_wins
from synth.preferences.cleaners._overlap import Protected
from synth.preferences.cleaning import group_of, no_collection, noise_interval, run_cleaners
from synth.preferences.imported import Reader
from synth.types import Message, PreferencePair, Quarantined
from tasks.core.errors import UserError
from tasks.pages import page, plots
from tasks.pages.cards import folder_card
from tasks.pages.render import Macros
from tasks.rows.files import rows, texts_of
from tasks.planning.pieces import bind, bind_all
from tasks.planning.resolve import OWN_PAIRS, check_params, resolve
from tasks.runtime.progress import Progress
from tasks.storage import tables
from tasks.storage.reviews import anchored

HTML = Macros("cleaning.html")
COMPUTED = {"out_of_fold", "out_of_fold_blind"}
MORE = (
    "annotators",
    "poisoning",
    "order_bias",
    "score_gap",
    "decontamination",
)  # join the default where a file has what they read
WORK, FIT = {"duplicates": 12}, 8  # relative cost of each cleaner, and of the model of the labels (bench-clean)
PASSES, LOOKED = (
    {"duplicates": 2},
    1000,
)  # passes of a cleaner over the pairs; pairs between two progress updates
FILES = ("cleaned", "flipped", "removed", "asked", "quarantine")


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """The result for a file. `before` is a flipped pair as it was."""

    pairs: list[PreferencePair]
    removed: list[PreferencePair]
    asked: list[PreferencePair]
    quarantined: list[Quarantined]
    card: dict[str, Any]

    @property
    def flipped(self) -> list[PreferencePair]:
        return [p for p in self.pairs if is_flipped(p)]


def clean_rows(
    items: Iterable[Any], reader: Reader, recipe: str = "", *, protect: Sequence[str] = (), reviews: Path | None = None
) -> Cleaned:
    """Import, clean, account. protect: texts that must not be trained on; reviews: decisions of `espalier review`.
    Raises UserError for a recipe or columns that do not fit."""
    try:
        with no_collection(), Progress(None, "read") as progress:
            imported = list(map(progress.counted, reader.pairs(items)))
    except ValueError as e:
        raise UserError(str(e)) from None
    pairs, quarantined = (
        [p for p in imported if isinstance(p, PreferencePair)],
        [q for q in imported if isinstance(q, Quarantined)],
    )
    if not pairs:
        why = ", ".join(f"{n} {reason}" for reason, n in tables.counts(quarantined).items()) or "it is empty"
        raise UserError(f"{reader.name} has no pair to clean: {why}; fix the file, or name its columns with --columns")
    if reviews is not None:
        pairs, reviewed = anchored(reviews, pairs)
    params = bind_all(*_settings(recipe or OWN_PAIRS))
    cleaners, left_out = _possible(params["cleaners"], pairs, recipe, bool(protect))
    folds, notes = params["folds"], []
    if len({group_of(p) for p in pairs}) < folds:
        notes.append(
            f"fewer prompts than {folds} folds: the model of the labels may have seen answers of the same prompt"
        )
        pairs = [_alone(p) for p in pairs]
    if len(pairs) < 2 * folds:
        notes.append(
            f"{len(pairs)} pairs are too few to fit a model of the labels: cleaners that need one are left out"
        )
        cleaners = [c for c in cleaners if not c.needs & COMPUTED]
    guard = Protected(protect) if protect else None
    with Progress(len(pairs), "clean") as progress:
        kept, removed, _ = run_cleaners(
            pairs,
            _watched(cleaners, progress, len(pairs)),
            params["policy"],
            folds=folds,
            c=params["regularisation"],
            protected=guard,
        )
    to_ask = [p for p in kept if last(p) == "ask"]
    kept = [p for p in kept if last(p) != "ask"]
    decisions = Counter((d.step, d.action, d.reason) for p in [*kept, *removed, *to_ask] for d in p.decisions)
    card = {
        "source": reader.name,
        "recipe": recipe or OWN_PAIRS,
        "pairs": {"read": len(pairs), "cleaned": len(kept), "removed": len(removed), "asked": len(to_ask)},
        "flipped": sum(map(is_flipped, kept)),
        "quarantined": tables.counts(quarantined),
        "decisions": _counted(decisions),
        "cleaners": [c.piece.rpartition("/")[2] for c in cleaners],
        "left_out": left_out,
        "notes": notes,
        **({"reviewed": reviewed} if reviews is not None else {}),
        "noise": noise_interval([*kept, *removed, *to_ask]),
        "length": {
            "before": longer_wins(np.array([len(p.chosen) - len(p.rejected) for p in pairs], dtype=int)),
            "after": longer_wins(np.array([len(p.chosen) - len(p.rejected) for p in kept], dtype=int)),
        },
    }
    return Cleaned(pairs=kept, removed=removed, asked=to_ask, quarantined=quarantined, card=card)


def clean_file(
    where: str,
    out: Path,
    *,
    reader: Reader | None = None,
    recipe: str = "",
    split: str = "train",
    protect: Sequence[str] = (),
    reviews: Path | None = None,
) -> Cleaned:
    """Cleans a file, folder or dataset and writes the result into `out`. If it raises UserError, nothing is written."""
    reader = reader or Reader(name=Path(where).name)
    texts = [text for one in protect for text in texts_of(one)]
    if reviews is not None and not reviews.is_file():
        raise UserError(f"{reviews} does not exist: `espalier review {out}/asked.jsonl --to {reviews}` writes it")
    cleaned = clean_rows(rows(where, split=split), reader, recipe, protect=texts, reviews=reviews)
    write(cleaned, out)
    return cleaned


def write(cleaned: Cleaned, out: Path) -> None:
    """Writes the files of the module's docstring; existing files of these names in `out` are replaced."""
    out.mkdir(parents=True, exist_ok=True)
    before = [swap_sides(p) for p in cleaned.flipped]
    written = dict(
        zip(FILES, (cleaned.pairs, before, cleaned.removed, cleaned.asked, cleaned.quarantined), strict=True)
    )
    digests, encode = {}, json.JSONEncoder(ensure_ascii=False).encode
    plain = all(is_plain(p) for values in written.values() for p in values if isinstance(p, PreferencePair))
    for name, values in written.items():
        digest = hashlib.sha256()
        # row by row, so that a million pairs are not held in memory again as lines
        with (out / f"{name}.jsonl").open("wb") as file:
            for v in values:
                row = {"id": v.id, **as_row(v, plain)} if isinstance(v, PreferencePair) else vars(v)
                line = f"{encode(row)}\n".encode()
                file.write(line)
                digest.update(line)
        digests[f"{name}.jsonl"] = digest.hexdigest()
    card = {**cleaned.card, "files": digests}
    (out / "card.json").write_text(
        json.dumps(card, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (out / "index.html").write_text(html(cleaned), encoding="utf-8")
    told = f"{cleaned.card['source']}, cleaned by `espalier clean`, recipe {cleaned.card['recipe']}: index.html has the reasons."
    count = {f"{name}.jsonl": len(values) for name, values in written.items()}
    (out / "README.md").write_text(folder_card(out.name, count, told, str(out)), encoding="utf-8")


def last(pair: PreferencePair) -> str:
    """The final action: the strongest of the decisions that were not only advice to a policy."""
    spoken = [d.action for d in pair.decisions if d.step == "policy"] or [d.action for d in pair.decisions]
    return next((a for a in ("remove", "flip", "ask", "weight") if a in spoken), "keep")


def is_flipped(pair: PreferencePair) -> bool:
    return last(pair) == "flip"


def weight(pair: PreferencePair) -> float:
    """The last weight given, 1 if none was."""
    return next((d.score for d in reversed(pair.decisions) if d.action == "weight"), 1.0)


def is_plain(pair: PreferencePair) -> bool:
    return [m.role for m in pair.prompt] == ["user"]


def as_row(pair: PreferencePair, plain: bool) -> dict[str, Any]:
    """A row for trainers, with weight and reasons: texts if every prompt of the file is one question (`plain`), else
    conversations, since a column has one type."""
    side: Callable[[str], Any] = (
        (lambda text: text) if plain else (lambda text: [{"role": "assistant", "content": text}])
    )
    prompt = pair.prompt[0].content if plain else [_message(m) for m in pair.prompt]
    return {
        "prompt": prompt,
        "chosen": side(pair.chosen),
        "rejected": side(pair.rejected),
        "weight": round(weight(pair), 6),
        "source": pair.source,
        "reasons": [
            {"step": d.step, "action": d.action, "reason": d.reason, "score": round(d.score, 6)}
            for d in pair.decisions
            if d.action != "keep"
        ],
    }


def _message(m: Message) -> dict[str, str]:
    return {"role": m.role, "content": m.content}


def _settings(recipe: str) -> tuple[dict[str, str], dict[str, Any]]:
    """(pieces, params) of the stage `clean` under a recipe. Raises UserError for one that does not clean."""
    stage = resolve(check_params({"recipe": recipe}, Path("params.yaml")))[0]["clean"]
    if "recipe" not in stage.touched:
        raise UserError(
            f"the recipe {recipe!r} sets nothing of the stage clean: choose one that does (`espalier recipes` lists them)"
        )
    return stage.pieces, stage.params


def _possible(
    cleaners: Sequence[Any], pairs: Sequence[PreferencePair], recipe: str, protected: bool
) -> tuple[list[Any], dict[str, str]]:
    """Cleaners whose columns are present or can be computed; with the default recipe, further columns add further
    cleaners."""
    have = set.intersection(*(set(p.columns) for p in pairs)) | COMPUTED | ({"overlap"} if protected else set())
    if recipe:
        lacking = {c.piece.rpartition("/")[2]: sorted(c.needs - have) for c in cleaners if c.needs - have}
        for name, columns in lacking.items():
            raise UserError(
                f"the recipe {recipe!r} uses {name}, which needs the column {columns[0]!r}: add it to every row"
            )
        return list(cleaners), {}
    more = [bind("synth.preferences.cleaners", {"piece": name}) for name in MORE]
    possible = [c for c in [*cleaners, *more] if not c.needs - have]
    left = {c.piece.rpartition("/")[2]: f"no column {sorted(c.needs - have)[0]}" for c in more if c.needs - have}
    return possible, left


def _watched(cleaners: Sequence[Any], progress: Progress, n: int) -> Iterator[Any]:
    """Runs the cleaners in turn; progress over the n pairs follows their share of the time."""
    fitted = next((c for c in cleaners if c.needs & COMPUTED), None)
    work = [WORK.get(c.piece.rpartition("/")[2], 1) + (FIT if c is fitted else 0) for c in cleaners]
    whole = sum(work) + 1  # one for the policy

    def reached(part: float) -> None:
        progress.update(max(0, int(n * part / whole) - progress.done))

    for k, cleaner in enumerate(cleaners):
        name = cleaner.piece.rpartition("/")[2]
        progress.update(0, now=name)
        before, fit = sum(work[:k]), FIT if cleaner is fitted else 0  # the model is fitted before its cleaner runs
        mine = work[k] - fit
        yield _Counting(
            cleaner, lambda seen, at=before + fit, mine=mine, name=name: reached(at + mine * seen), PASSES.get(name, 1)
        )
        reached(before + work[k])
    progress.update(0, now="policy")


@dataclass(frozen=True)
class _Counting:
    """A cleaner that reports its progress, in [0, 1], to `seen`; it goes through the pairs `passes` times."""

    cleaner: Any
    seen: Callable[[float], None]
    passes: int

    @property
    def needs(self) -> frozenset[str]:
        return self.cleaner.needs

    @property
    def piece(self) -> str:
        return self.cleaner.piece

    def __call__(self, pairs: Sequence[PreferencePair]) -> Any:
        return self.cleaner(_Looked(pairs, self))


class _Looked(list[PreferencePair]):
    def __init__(self, pairs: Sequence[PreferencePair], of: _Counting) -> None:
        super().__init__(pairs)
        self.of, self.before = of, 0

    def __iter__(self) -> Iterator[PreferencePair]:
        before, self.before = self.before, self.before + 1
        for i, pair in enumerate(super().__iter__()):
            if i % LOOKED == 0:
                self.of.seen(min(1.0, (before + i / len(self)) / self.of.passes))
            yield pair


def _alone(pair: PreferencePair) -> PreferencePair:
    columns = {**pair.columns, "group": pair.id}
    return PreferencePair(**{**vars(pair), "columns": columns})


def _counted(decisions: Counter[tuple[str, str, str]]) -> dict[str, dict[str, int]]:
    """step -> "action: reason" -> number; a reason is cut before the details of one pair."""
    out: dict[str, Counter[str]] = {}
    for (step, action, reason), n in decisions.items():
        out.setdefault(step, Counter())[f"{action}: {reason.partition(':')[0].partition(' (')[0]}"] += n
    return {step: dict(sorted(c.items())) for step, c in out.items()}


def html(cleaned: Cleaned) -> str:
    """The page: the decisions about the pairs, their reasons, how likely labels are right, length, examples."""
    card = cleaned.card
    counts = card["pairs"]
    facts = f"{counts['read']:,} pairs read, {sum(card['quarantined'].values()):,} rows quarantined; recipe {card['recipe']}"
    lead = (
        f"{counts['cleaned']:,} pairs to train on ({card['flipped']:,} of them flipped), {counts['removed']:,} removed, "
        f"{counts['asked']:,} to be asked about."
    )
    reasons = page.table(
        ["cleaner", "what it said"], [[step, page.tags(counts)] for step, counts in card["decisions"].items()]
    )
    sections = [
        ("Reasons", HTML.reasons(reasons, card["quarantined"])),
        ("Noise", _noise(cleaned)),
        ("Length", _length(card["length"])),
    ]
    for name, values in (("Removed", cleaned.removed), ("Flipped", cleaned.flipped), ("Asked", cleaned.asked)):
        if values:
            sections.append((name, _examples(values)))
    return page.page(f"Cleaning {card['source']}", lead, facts, sections)


def _noise(cleaned: Cleaned) -> Markup:
    noise = cleaned.card["noise"]
    if noise is None:
        return HTML.noise(None, None)
    pairs = [*cleaned.pairs, *cleaned.removed, *cleaned.asked]
    p = sorted(1 - x if is_flipped(q) else x for q in pairs if (x := q.columns.get("out_of_fold")) is not None)
    share = [(i + 1) / len(p) for i in range(len(p))]
    curve = plots.lines({"sft": (p, share)}, x="probability that the label is right", y="share of pairs below")
    return HTML.noise(noise, curve)


def _length(length: Mapping[str, Any]) -> Markup:
    whiskers = []
    for when, series in (("before", "base"), ("after", "rl")):
        for name, r in [("all", length[when]), *((f"to {r['to']:,.0f}", r) for r in length[when]["by_size"])]:
            if r["n"]:
                whiskers.append((f"{when}: {name}", series, {"mean": r["share"], "low": r["low"], "high": r["high"]}))
    return HTML.length(plots.whiskers(whiskers, x="the longer side is chosen") if whiskers else None)


def _examples(pairs: Sequence[PreferencePair], n: int = 10) -> Markup:
    def cell(text: str) -> str:
        return text if len(text) <= 240 else f"{text[:240]} ..."

    def why(pair: PreferencePair) -> str:
        return "; ".join(f"{d.step}: {d.reason}" for d in pair.decisions if d.action != "keep")

    shown = [[cell(p.prompt[-1].content), cell(p.chosen), cell(p.rejected), why(p)] for p in pairs[:n]]
    return page.table(["prompt", "chosen", "rejected", "why"], shown)
