"""Imports the user's rows: the knob `files` of the stages demonstrations, preferences and problems.

    set:
      preferences: {files: [data/pairs.jsonl, {path: data/more.parquet, weight: 2}]}

An entry is a file, a folder or a data set of the Hub (owner/name), in every layout that `tasks/rows/files.py` reads,
or a mapping with these keys and those of its stage:

    path        the file, folder or name         split, config, revision     of a data set that has several
    columns     {our name: the name in the file} weight     how often its rows are drawn, beside 1 of the others
    use         train, valid or test for all rows; without it a column `split` decides, else the hash of the question:
                15 % are held out to evaluate on, 10 % to watch, and rows that ask the same are never parted; of two
                questions or more at least one is held out to evaluate on

Every row becomes a row of the pipeline or is quarantined with its place, a reason and evidence. Which row came from
where is in own.parquet beside the table.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd

from synth.preferences.cleaners._overlap import Protected, words
from synth.types import Message, Problem, Quarantined, Split, digest, seed_for, split_of, to_row
from tasks.core.errors import UserError, nearest
from tasks.rows import files
from tasks.runtime.stage import Stage
from tasks.storage import tables

KEYS = {"path", "split", "config", "revision", "columns", "weight", "use"}
SPLITS = ("train", "valid", "test")


class Row(Protocol):
    """The attributes that every kind of row has."""

    @property
    def id(self) -> str: ...

    @property
    def split(self) -> Split: ...


T = TypeVar("T", bound=Row)


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """Where a row of the user's own came from: file as named in params.yaml, place such as "pairs.jsonl line 3".
    weight: how often it is drawn beside others. loss: which turns of a conversation are learned: all or last."""

    id: str
    file: str
    place: str
    weight: float = 1.0
    loss: str = "all"


@dataclass(frozen=True)
class Entry:
    """One entry of `files`, checked."""

    path: str
    where: str  # begins every message about it: "demonstrations.files[0]"
    split: str = "train"
    config: str | None = None
    revision: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    use: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)  # keys of the stage

    @property
    def name(self) -> str:
        return Path(self.path.rstrip("/")).name

    def is_cleaned(self, stage: Stage) -> bool:
        """Whether the entry is a folder that `espalier clean` wrote."""
        folder = stage.root / self.path
        return files.is_cleaned(folder)

    def rows(self, stage: Stage) -> Iterator[files.Row | Quarantined]:
        """(place, row) of every row; places begin with the name of the file. Raises UserError if there is nothing to
        read, and if DVC would not notice a change of the file."""
        path = self.path
        if (stage.root / path).exists() or not _is_hub(path):
            path = str(stage.source(path))
        options = {"split": self.split, "config": self.config, "revision": self.revision}
        for item in files.rows(path, **options):
            if isinstance(item, Quarantined):
                yield replace(item, stage=stage.name)
            elif isinstance(item[1], Mapping) and self.columns:
                named = {ours: item[1][theirs] for ours, theirs in self.columns.items() if theirs in item[1]}
                yield item[0], {**{k: v for k, v in item[1].items() if k not in self.columns.values()}, **named}
            else:
                yield item


@dataclass(frozen=True)
class ReadRows:
    """The rows of all files: the resulting values, the origin of each, and the quarantined ones."""

    rows: list[Any]
    own: list[OwnRow]
    quarantined: list[Quarantined]
    counts: dict[str, dict[str, int]]  # file -> read, kept, train, valid, test, and each reason

    @property
    def weights(self) -> dict[str, float]:
        return {o.id: o.weight for o in self.own}


def _is_hub(path: str) -> bool:
    return path.count("/") == 1 and not path.startswith((".", "/", "data/")) and not Path(path).suffix


def entries(stage: str, value: Sequence[Any], more: Iterable[str] = ()) -> list[Entry]:
    """The entries of the knob `files` of a stage. Raises UserError for an unknown key and an invalid value."""
    more, out = set(more), []
    for i, one in enumerate(value):
        where = f"{stage}.files[{i}]"
        spec = {"path": one} if isinstance(one, str) else one
        if not isinstance(spec, Mapping) or not isinstance(spec.get("path"), str) or not spec["path"].strip():
            raise UserError(
                f"{where} = {one!r} names no file: write data/mine.jsonl, or {{path: data/mine.jsonl, weight: 2}}"
            )
        for key in spec:
            if key not in KEYS | more:
                raise UserError(f"{where}: unknown key {key!r}: {nearest(key, KEYS | more)}")
        if spec.get("use", "") not in ("", *SPLITS):
            raise UserError(f"{where}: use is {spec['use']!r}: {nearest(str(spec['use']), SPLITS)}")
        weight = spec.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise UserError(f"{where}: weight is {weight!r}: it must be a number above 0")
        columns = spec.get("columns") or {}
        if not isinstance(columns, Mapping) or not all(isinstance(v, str) for v in columns.values()):
            raise UserError(f"{where}: columns is {columns!r}: write {{prompt: question, chosen: better}}")
        known = {k: spec[k] for k in ("split", "config", "revision", "use") if k in spec}
        rest = {k: v for k, v in spec.items() if k in more}
        out.append(Entry(spec["path"], where, weight=float(weight), columns=columns, more=rest, **known))
    if twice := [p for p, n in Counter((e.path, e.split, e.config) for e in out).items() if n > 1]:
        raise UserError(f"{stage}.files names {twice[0][0]} twice: give it a weight instead")
    return out


def read(
    stage: Stage,
    value: Sequence[Any],
    make: Callable[[Entry, Iterable[Any]], Iterator[tuple[str, Any] | Quarantined]],
    cls: type[T],
    *,
    more: Iterable[str] = (),
    loss: Callable[[Entry], str] = lambda entry: "all",
    protect: Sequence[str] = (),
) -> ReadRows:
    """The rows of all files of a knob.

    make: (entry, rows) -> (place, value of `cls`) of each, or Quarantined. protect: files whose texts must not be
    trained on. What is held out by the pipeline or by the files themselves is not trained on either.

    Raises UserError where a file gives not one row.
    """
    result = ReadRows([], [], [], {})
    guard = Protected([t for one in protect for t in files.texts_of(str(stage.source(one)))]) if protect else None
    tested = _held_out(stage)
    seen: dict[str, str] = {}
    said: set[str] = set()  # files that say which of their rows are held out
    for entry in entries(stage.name, value, more):
        good, bad = [], []
        for item in stage.progress(make(entry, _noted(entry, entry.rows(stage), said)), entry.name):
            if isinstance(item, Quarantined):
                bad.append(item)
                continue
            place, one = item
            if one.id in seen:
                why = f"{place} is the same as {seen[one.id]}"
                bad.append(Quarantined(id=place, stage=stage.name, reason="duplicate", evidence=why))
            elif one.split == "train" and (held := _leaks(one, tested, guard)):
                bad.append(Quarantined(id=place, stage=stage.name, reason="held_out", evidence=held))
            else:
                seen[one.id] = place
                good.append((place, one))
        good, invalid = _valid(stage.name, good, cls)
        bad += invalid
        if not good:
            why = ", ".join(f"{n} {r}" for r, n in tables.counts(bad).items()) or "it is empty"
            first = f"; the first: {bad[0].id}: {bad[0].evidence[:200]}" if bad else ""
            raise UserError(f"{entry.where}: {entry.path} gives not one row: {why}{first}")
        kept = Counter(one.split for _, one in good)
        _count(result, entry, len(good) + len(bad), kept, bad)
        result.rows.extend(one for _, one in good)
        result.own.extend(
            OwnRow(id=one.id, file=entry.path, place=place, weight=entry.weight, loss=loss(entry))
            for place, one in good
        )
        result.quarantined.extend(bad)
    return _apart(stage, _some_held_out(result, said))


def _noted(entry: Entry, rows: Iterable[Any], said: set[str]) -> Iterator[Any]:
    """The rows; the path of an entry that states a split goes into `said`."""
    if entry.use:
        said.add(entry.path)
    for item in rows:
        if not isinstance(item, Quarantined) and isinstance(item[1], Mapping) and item[1].get("split") in SPLITS:
            said.add(entry.path)
        yield item


def _some_held_out(result: ReadRows, said: set[str]) -> ReadRows:
    """With a question to evaluate on. Of ten questions one time in five the hash holds out none, and a run would train
    first and then find nothing to measure; so the one that comes first by its hash is held out."""
    if any(r.split == "test" for r in result.rows):
        return result
    files_of = {o.id: o.file for o in result.own}
    free = [r for r in result.rows if files_of[r.id] not in said]
    asks = {r.id: root_of(asked_by(r)) for r in free}
    learned = {asks[r.id] for r in free if r.split == "train"}
    pool = learned if len(learned) > 1 else set(asks.values()) - learned
    if not pool:
        return result
    first = min(pool, key=lambda asked: digest("own", asked))
    for r in free:
        if asks[r.id] == first:
            n = result.counts[files_of[r.id]]
            n[r.split], n["test"] = n[r.split] - 1, n.get("test", 0) + 1
    rows = [replace(r, split="test") if asks.get(r.id) == first else r for r in result.rows]
    return ReadRows(rows, result.own, result.quarantined, result.counts)


def _apart(stage: Stage, result: ReadRows) -> ReadRows:
    """Without the rows to train on that ask what another row, to be measured on, asks too."""
    asks = {one.id: root_of(asked_by(one)) for one in result.rows}
    held = {asks[one.id]: one.id for one in result.rows if one.split != "train"}
    gone = {one.id for one in result.rows if one.split == "train" and asks[one.id] in held}
    if not gone:
        return result
    places = {o.id: o.place for o in result.own}
    files_of = {o.id: o.file for o in result.own}
    bad = []
    for i in sorted(gone, key=lambda i: places[i]):
        why = f"{asks[i][:120]!r} is asked by {places[held[asks[i]]]} too, which is not trained on"
        bad.append(Quarantined(id=places[i], stage=stage.name, reason="held_out", evidence=why))
        n = result.counts[files_of[i]]
        n["kept"], n["train"] = n["kept"] - 1, n["train"] - 1
        n["held_out"] = n.get("held_out", 0) + 1
    rows, own = [r for r in result.rows if r.id not in gone], [o for o in result.own if o.id not in gone]
    return ReadRows(rows, own, [*result.quarantined, *bad], result.counts)


def asked_by(one: Any) -> str:
    """The question of a row, with the names of the pictures that it is about; for a problem, without the instructions
    added to it."""
    if isinstance(one, Problem):
        return with_pictures(str(one.lineage.get("question", one.question)), one.prompt)
    messages = getattr(one, "messages", None) or one.prompt
    return with_pictures(question(messages), messages)


def with_pictures(text: str, messages: Sequence[Message]) -> str:
    """A text and the names of the pictures of messages: the same question about another picture is another one."""
    return " ".join([text, *(name for m in messages for name in m.media)])


def _count(result: ReadRows, entry: Entry, n: int, kept: Mapping[str, int], bad: Sequence[Quarantined]) -> None:
    mine = result.counts.setdefault(entry.path, {"read": 0, "kept": 0})
    for name, more in {"read": n, "kept": sum(kept.values()), **kept, **tables.counts(bad)}.items():
        mine[name] = mine.get(name, 0) + more


def _valid(stage: str, good: Sequence[tuple[str, T]], cls: type[T]) -> tuple[list[tuple[str, T]], list[Quarantined]]:
    """Rows that satisfy the pandera schema of their type, and the others with the place in the file."""
    if not good:
        return [], []
    places = {one.id: place for place, one in good}
    _, bad = tables.check(pd.DataFrame([to_row(one) for _, one in good]), tables.schema_of(cls), stage)
    wrong = {q.id for q in bad}
    return (
        [(place, one) for place, one in good if one.id not in wrong],
        [replace(q, id=places.get(q.id, q.id), evidence=q.evidence.partition(": ")[2] or q.evidence) for q in bad],
    )


def root_of(text: str) -> str:
    """The normal form of a question: rows that ask the same lie in the same split."""
    return " ".join(words(text)) or text


def split_for(entry: Entry, row: Any, question: str) -> Split:
    """The split of a row: of its file, of its column `split`, or of the hash of what it asks."""
    if entry.use:
        return entry.use  # type: ignore[return-value]
    given = row.get("split") if isinstance(row, Mapping) else None
    return given if given in SPLITS else split_of(f"own:{root_of(question)}")  # type: ignore[return-value]


def question(messages: Sequence[Message]) -> str:
    """The first user turn of a conversation."""
    return next((m.content for m in messages if m.role == "user"), "")


def _held_out(stage: Stage) -> dict[str, str]:
    """Normal form -> problem, of all that the run is evaluated on and this stage may read."""
    out: dict[str, str] = {}
    for name in ("questions", "problems"):
        listed = stage.deps is None or f"artifacts/{name}" in stage.deps
        path = stage.root / "artifacts" / name / "problems.parquet"
        if listed and path.exists():
            for p in tables.read(stage.input(name, "problems.parquet"), Problem):
                if p.split == "test":
                    out[root_of(asked_by(p))] = f"artifacts/{name} {p.id}"
    return out


def _leaks(one: Any, tested: Mapping[str, str], guard: Protected | None) -> str:
    """Why a row must not be trained on, "" if it may be."""
    messages = getattr(one, "messages", None) or one.prompt
    texts = [m.content for m in messages if m.role != "system"]
    for text in texts:
        if where := tested.get(root_of(with_pictures(text, messages))):
            return f"{text[:120]!r} is asked in the evaluation: {where}"
    if guard:
        for text in (*texts, *(getattr(one, side, "") for side in ("chosen", "rejected"))):
            if (share := guard.overlap(text)) >= 0.6:
                return f"{share:.0%} of {text[:120]!r} stands in a file of `protect`"
    return ""


def write(stage: Stage, result: ReadRows) -> dict[str, Any]:
    """Writes own.parquet and a log line per file; returns the card's entry."""
    tables.write(stage.out / "own.parquet", result.own, OwnRow)
    for file, n in result.counts.items():
        splits = ", ".join(f"{n[s]} {s}" for s in SPLITS if n.get(s))
        reasons = {k: v for k, v in n.items() if k not in ("read", "kept", *SPLITS)}
        lost = f"; quarantined: {', '.join(f'{v} {k}' for k, v in reasons.items())}" if reasons else ""
        line = f"{stage.name}: {file}: {n['read']:,} rows read, {n['kept']:,} kept ({splits}){lost}"
        print(line + (f" (espalier why, artifacts/{stage.name}/quarantine.parquet)" if lost else ""), file=sys.stderr)
    return {"files": {f: dict(n) for f, n in result.counts.items()}}


def own_rows(folder: Path) -> dict[str, OwnRow]:
    """Id -> origin, for the user's rows in an artifact; {} if it has none."""
    path = folder / "own.parquet"
    return {o.id: o for o in tables.read(path, OwnRow)} if path.exists() else {}


def repeated(ids: Sequence[str], weights: Mapping[str, float], seed: int) -> list[int]:
    """Indices of rows, each as often as its weight says beside the smallest: 2.5 times is twice, and a third time for
    half of the rows, by hash. Every row is there at least once."""
    if not weights or len(set(weights.values()) | ({1.0} if len(weights) < len(ids) else set())) == 1:
        return list(range(len(ids)))
    given = [weights.get(i, 1.0) for i in ids]
    least = min(given)
    out = []
    for i, (name, w) in enumerate(zip(ids, given, strict=True)):
        whole, part = divmod(w / least, 1.0)
        out += [i] * (int(whole) + (seed_for(seed, "weight", name) / 2**63 < part))
    return out


def said(stage: Stage, text: str) -> None:
    """Logs what was left out and why."""
    print(f"{stage.name}: {text}", file=sys.stderr)


def too_long(stage: Stage, long: int, n: int, what: str, limit: int, longest: int = 0) -> None:
    """Logs how many rows are left out because they are longer than `max_length`, if any."""
    if long:
        most = f" (the longest has {longest:,})" if longest else ""
        said(
            stage,
            f"{long:,} of {n:,} {what} are longer than max_length = {limit:,} tokens{most} and are not trained on: "
            f"raise {stage.name}.max_length to keep them",
        )
