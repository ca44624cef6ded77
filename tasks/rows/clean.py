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
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from markupsafe import Markup

from synth.preferences import cleaning, imported
from synth.preferences.cleaners._columns import swap_sides
from synth.preferences.cleaners._length import longer_wins
from synth.preferences.cleaners._overlap import Protected
from synth.preferences.cleaners._ranks import ranks
from synth.preferences.cleaning import judged, no_collection, noise_interval
from synth.preferences.imported import Reader, Seen
from synth.preferences.ledger import Joined, Mapped, Once, Spilled, View, afresh, group_of, taken
from synth.preferences.ledger import mapped as mapped_of
from synth.preferences.ledger import once as once_of
from synth.types import Message, PreferencePair, Quarantined
from tasks.core.errors import UserError
from tasks.pages import page, plots
from tasks.pages.cards import folder_card
from tasks.pages.render import Macros
from tasks.rows.files import rows, texts_of
from tasks.rows.kept import kept
from tasks.planning.pieces import bind, bind_all, locate
from tasks.planning.resolve import OWN_PAIRS, check_params, resolve
from tasks.runtime.progress import Progress
from tasks.runtime.stage import file_digest
from tasks.storage import commit, tables
from tasks.storage.reviews import Reviews
from tasks.storage.shards import Parts, Shards, read_values, write_values

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
ROWS, PAIRS = 50_000, "pairs.bin"  # rows of a part; the file of its pairs
FILES = ("cleaned", "flipped", "removed", "asked", "quarantine")


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """The result for a file. flipped: those of `pairs` whose sides were swapped; right:
    of the pairs whose label was judged by text, the probability that it is right as it is now; plain: whether every prompt is one question."""

    pairs: View
    removed: View
    asked: View
    flipped: View
    quarantined: list[Quarantined]
    card: dict[str, Any]
    right: np.ndarray
    plain: bool


def clean_rows(
    items: Iterable[Any],
    reader: Reader,
    recipe: str = "",
    *,
    protect: Sequence[str] = (),
    reviews: Path | None = None,
    parts: Parts | None = None,
    mapped: Mapped = map,
) -> Cleaned:
    """Import, clean, account. protect: texts that must not be trained on; reviews: decisions of `espalier review`; parts: where
    what is done is kept for a run that follows this one if it is killed, of the same arguments; mapped: as of `run_cleaners`.
    Raises UserError for a recipe or columns that do not fit."""
    once: Once = parts.values if parts else afresh
    try:
        with no_collection(), Progress(None, "read") as progress:
            read = _Read(items, reader, Reviews(reviews), progress, parts)
    except ValueError as e:
        raise UserError(str(e)) from None
    pairs, quarantined = read.pairs, read.quarantined
    if not len(pairs):
        why = ", ".join(f"{n} {reason}" for reason, n in tables.counts(quarantined).items()) or "it is empty"
        raise UserError(f"{reader.name} has no pair to clean: {why}; fix the file, or name its columns with --columns")
    params = bind_all(*_settings(recipe or OWN_PAIRS))
    cleaners, left_out = _possible(params["cleaners"], read.columns, recipe, bool(protect))
    folds, notes = params["folds"], []
    if read.groups < folds:
        notes.append(
            f"fewer prompts than {folds} folds: the model of the labels may have seen answers of the same prompt"
        )
        pairs = Spilled(map(_alone, pairs))
    if len(pairs) < 2 * folds:
        notes.append(
            f"{len(pairs)} pairs are too few to fit a model of the labels: cleaners that need one are left out"
        )
        cleaners = [c for c in cleaners if not c.needs & COMPUTED]
    guard = Protected(protect) if protect else None
    with Progress(len(pairs), "clean") as progress:
        kept, removed, _ = judged(
            pairs,
            _watched(cleaners, progress, len(pairs)),
            params["policy"],
            folds=folds,
            c=params["regularisation"],
            protected=guard,
            once=once,
            mapped=mapped,
        )
    look = once("look", lambda: _look(kept, removed))
    noise = look["noise"]
    asks, turned, longer = (look[name][: len(kept)] for name in ("asks", "flipped", "longer"))
    to_ask, kept, flipped = kept.where(asks == 1), kept.where(asks == 0), kept.where((asks == 0) & (turned == 1))
    card = {
        "source": reader.name,
        "recipe": recipe or OWN_PAIRS,
        "pairs": {"read": len(pairs), "cleaned": len(kept), "removed": len(removed), "asked": len(to_ask)},
        "flipped": len(flipped),
        "quarantined": tables.counts(quarantined),
        "decisions": _counted(removed.ledger.counts()),
        "cleaners": [c.piece.rpartition("/")[2] for c in cleaners],
        "left_out": left_out,
        "notes": notes,
        **({"reviewed": read.reviewed} if reviews is not None else {}),
        "noise": noise,
        "length": {
            "before": longer_wins(read.longer),
            "after": longer_wins(longer[asks == 0]),
        },
    }
    some = {"pairs": kept, "flipped": flipped, "removed": removed, "asked": to_ask, "quarantined": quarantined}
    return Cleaned(**some, card=card, right=np.sort(look["right"]), plain=read.plain)


def _look(kept: View, removed: View) -> dict[str, Any]:
    """What is asked about each pair once all is decided, in one pass. noise: `noise_interval`; of each pair asks, flipped: 1 or 0, and
    longer: characters of the chosen side more than of the rejected one; right: as of Cleaned, in the order of pairs."""
    asks, flipped, longer, right = array("b"), array("b"), array("i"), array("d")

    def looked() -> Iterator[PreferencePair]:
        for pair in chain(kept, removed):
            action = last(pair)
            asks.append(action == "ask")
            flipped.append(action == "flip")
            longer.append(len(pair.chosen) - len(pair.rejected))
            if (told := pair.columns.get("out_of_fold")) is not None:
                right.append(1 - told if action == "flip" else told)
            yield pair

    noise = noise_interval(looked(), kept.ledger.groups()[np.append(kept.rows, removed.rows)])
    arrays = {"asks": asks, "flipped": flipped, "longer": longer, "right": right}
    return {"noise": noise, **{name: np.frombuffer(x, x.typecode) for name, x in arrays.items()}}


class _Read:
    """What a reader makes of rows. pairs: with what a person said of them; columns: that all of them have; groups: their number;
    plain: whether every prompt is one question; longer: characters of the chosen side more than of the rejected one.

    Rows are read in parts of ROWS, each a file of pairs. A part that an earlier run has made is not made again, and its rows are passed
    over; but for those that need more than their file: a pair with values that are no JSON, and rows of several annotators, which make
    pairs when all are read.
    """

    def __init__(
        self, items: Iterable[Any], reader: Reader, reviews: Reviews, progress: Progress[Any], parts: Parts | None
    ) -> None:
        self._reader, self._reviews, self._progress = reader, reviews, progress
        self._odd, told = dict[int, dict[int, PreferencePair]](), list[Mapping[str, Any]]()
        once: Once = parts.values if parts else afresh
        with ExitStack() as stack:
            self._shards = Shards(parts.at("read"), ROWS) if parts else None
            self._folder = parts.at("read") if parts else Path(stack.enter_context(TemporaryDirectory()))
            self.pairs = Joined()
            groups = once("groups", lambda: {"groups": ranks(self._named(self._parts(items), told))})["groups"]
            if not told:  # an earlier run had read all
                told.extend(part for _, part, _ in self._parts(items))
        self.pairs.groups = groups
        self.groups = int(groups.max(initial=-1)) + 1
        self.quarantined = [Quarantined(**q) for part in told for q in part["quarantined"]]
        have = [set(part["columns"]) for part in told if part["columns"] is not None]
        self.columns = set.intersection(*have) if have else set[str]()
        self.plain = all(part["plain"] for part in told)
        self.longer = np.concatenate([part["longer"] for part in told])
        self.reviewed = sum(part["reviewed"] for part in told)

    def _named(self, parts: Iterable[tuple[int, Mapping[str, Any], list[str]]], told: list[Any]) -> Iterator[str]:
        """The names of the groups of all pairs; what was told of each part goes into `told`."""
        for first, part, names in parts:
            told.append(part)
            yield from names or map(group_of, self.pairs[first:])

    def _parts(self, items: Iterable[Any]) -> Iterator[tuple[int, Mapping[str, Any], list[str]]]:
        """(row of its first pair, what was told, names of groups of pairs that were read now) of each part, joined to `pairs`."""
        seen, stream = Seen(), None
        for k in count():
            at, names = self._folder / f"{k:05d}", list[str]()
            part = self._found(k)
            if part is None:
                stream = islice(iter(items), k * ROWS, None) if stream is None else stream
                write = partial(self._write, k, islice(stream, ROWS), seen, names)
                if self._shards:
                    self._shards.made(k, write)
                else:
                    write(commit.make_folder(at))
                part = dict(read_values(at))
            else:
                stream = None
                seen.layout, seen.words, seen.rated = part["layout"], Counter(part["words"]), part["rated"]
                self._progress.update(len(part["longer"]) + len(part["quarantined"]))
            first = len(self.pairs)
            self.pairs.join(at / PAIRS, part.pop("ends"), self._odd.pop(k, {}))
            yield first, part, names
            if part["rows"] < ROWS:
                return

    def _found(self, k: int) -> dict[str, Any] | None:
        if self._shards is None or not self._shards.has(k):
            return None
        part = read_values(self._shards.at(k))
        if part["again"]:
            commit.remove(self._shards.at(k))
        return None if part["again"] else part

    def _write(self, k: int, rows: Iterable[Any], seen: Seen, names: list[str], at: Path) -> None:
        """Part k of at most ROWS rows, in the folder `at`: a file of pairs and what is told of them."""
        n, reviewed, plain, columns = 0, self._reviews.n, True, None
        pairs, longer, quarantined = Spilled(path=at / PAIRS), array("i"), list[dict[str, Any]]()

        def counted() -> Iterator[Any]:
            nonlocal n
            for n, row in enumerate(rows, 1):  # noqa: B007
                yield row

        def read() -> Iterator[PreferencePair | Quarantined]:
            yield from self._reader.each(counted(), seen)
            if n < ROWS:
                yield from self._reader.end(seen)

        for item in map(self._progress.counted, read()):
            if isinstance(item, Quarantined):
                quarantined.append(vars(item))
                continue
            pair = self._reviews.about(item)
            columns = set(pair.columns) if columns is None else columns & pair.columns.keys()
            plain = plain and is_plain(pair)
            longer.append(len(pair.chosen) - len(pair.rejected))
            pairs.add(pair)
            names.append(group_of(pair))
        self._odd[k] = pairs.odd
        told = {
            "rows": n,
            "layout": seen.layout,
            "words": seen.words,
            "rated": seen.rated,
            "again": bool(len(seen.votes) or pairs.odd),
            "columns": None if columns is None else sorted(columns),
            "plain": plain,
            "reviewed": self._reviews.n - reviewed,
            "quarantined": quarantined,
            "ends": pairs.ends,
            "longer": np.array(longer, np.int32),
        }
        pairs.close()
        write_values(at, told)


def clean_file(
    where: str,
    out: Path,
    *,
    reader: Reader | None = None,
    recipe: str = "",
    split: str = "train",
    protect: Sequence[str] = (),
    reviews: Path | None = None,
    mapped: Mapped = map,
) -> Cleaned:
    """Cleans a file, folder or dataset and writes the result into `out`. If it raises UserError, nothing is written.

    What is done is kept beside `out` until the end, so that a run which is killed goes on there (tasks/rows/kept.py). mapped: as of
    `run_cleaners`.
    """
    reader = reader or Reader(name=Path(where).name)
    texts = [text for one in protect for text in texts_of(one)]
    if reviews is not None and not reviews.is_file():
        raise UserError(f"{reviews} does not exist: `espalier review {out}/asked.jsonl --to {reviews}` writes it")
    pieces, params = _settings(recipe or OWN_PAIRS)
    decided = file_digest(reviews) if reviews else ""
    settings = [recipe, pieces, params, {**vars(reader), "rename": dict(reader.rename)}, split, texts, decided]
    again = _Again(lambda: rows(where, split=split))
    with kept(Path(where), out, "clean", settings=settings, files=_code(params)) as parts:
        cleaned = clean_rows(again, reader, recipe, protect=texts, reviews=reviews, parts=parts, mapped=mapped)
        write(cleaned, out)
    return cleaned


class _Again:
    """Rows that are read each time that they are gone through."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


def _code(params: Mapping[str, Any]) -> list[Path]:
    """The files that decide about pairs: how they are read, the pieces of `params`, and what runs them."""
    specs = [*params["cleaners"], *([params["policy"]] if params["policy"] else [])]
    names = [*MORE, *(spec["piece"].rpartition("/")[2] for spec in specs)]
    return [Path(cleaning.__file__), Path(imported.__file__), Path(__file__), *(locate("cleaner", n) for n in names)]


def write(cleaned: Cleaned, out: Path) -> None:
    """Writes the files of the module's docstring; existing files of these names in `out` are replaced, each when it is whole."""
    out.mkdir(parents=True, exist_ok=True)
    written: dict[str, Sequence[Any]] = dict(
        zip(FILES, (cleaned.pairs, cleaned.flipped, cleaned.removed, cleaned.asked, cleaned.quarantined), strict=True)
    )
    digests, encode = {}, json.JSONEncoder(ensure_ascii=False).encode
    for name, values in written.items():
        sha256 = hashlib.sha256()
        # row by row, so that a million pairs are not held in memory again as lines
        with (out / f".{name}.jsonl.part").open("wb") as file:
            for v in map(swap_sides, values) if name == "flipped" else values:  # as they were
                row = {"id": v.id, **as_row(v, cleaned.plain)} if isinstance(v, PreferencePair) else vars(v)
                line = f"{encode(row)}\n".encode()
                file.write(line)
                sha256.update(line)
        digests[f"{name}.jsonl"] = sha256.hexdigest()
    for name in written:
        (out / f".{name}.jsonl.part").replace(out / f"{name}.jsonl")
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
    cleaners: Sequence[Any], given: set[str], recipe: str, protected: bool
) -> tuple[list[Any], dict[str, str]]:
    """Cleaners whose columns are present or can be computed; with the default recipe, further columns add further
    cleaners."""
    have = given | COMPUTED | ({"overlap"} if protected else set())
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
    """A cleaner that reports its progress, in [0, 1], to `progress`; it goes through the pairs `passes` times."""

    cleaner: Any
    progress: Callable[[float], None]
    passes: int

    @property
    def bare(self) -> Any:
        """The cleaner that reports nothing."""
        return self.cleaner

    @property
    def needs(self) -> frozenset[str]:
        return self.cleaner.needs

    @property
    def piece(self) -> str:
        return self.cleaner.piece

    @property
    def alone(self) -> bool:
        return self.cleaner.alone

    def __call__(self, pairs: Sequence[PreferencePair]) -> Any:
        return self.cleaner(pairs if self.alone else _Looked(pairs, self))


class _Looked(Sequence[PreferencePair]):
    """The pairs, for a cleaner; it says how often it was gone through."""

    def __init__(self, pairs: Sequence[PreferencePair], of: _Counting) -> None:
        self.pairs, self.of, self.before = pairs, of, 0.0

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: Any) -> Any:
        return self.pairs[i]

    def __iter__(self) -> Iterator[PreferencePair]:
        for i, pair in enumerate(self.pairs):
            if i % LOOKED == 0:
                self._seen(min(i, LOOKED))
            yield pair

    @property
    def once(self) -> Once:
        return once_of(self.pairs)

    @property
    def mapped(self) -> Mapped:
        return mapped_of(self.pairs)

    def take(self, rows: np.ndarray) -> list[PreferencePair]:
        self._seen(len(rows))
        return taken(self.pairs, rows)

    def _seen(self, n: int) -> None:
        self.before += n / len(self)
        self.of.progress(min(1.0, self.before / self.of.passes))


def _alone(pair: PreferencePair) -> PreferencePair:
    columns = {**pair.columns, "group": pair.id}
    return PreferencePair(**{**vars(pair), "columns": columns})


def _counted(decisions: Mapping[tuple[str, str, str], int]) -> dict[str, dict[str, int]]:
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
    p = cleaned.right
    share = np.arange(1, len(p) + 1) / len(p)
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
