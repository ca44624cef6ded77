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
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from synth.preferences.cleaners._overlap import Protected, words
from synth.types import Message, Problem, Quarantined, Split, seed_for, split_of, to_row
from tasks.core.errors import UserError, nearest
from tasks.rows import files
from tasks.rows.spool import SPLITS, Read, Spool, Stream, key_of, write_shard
from tasks.runtime.stage import Stage
from tasks.storage import tables

KEYS = {"path", "split", "config", "revision", "columns", "weight", "use"}
ROWS_PER_SHARD = 50_000


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


class ReadRows:
    """The rows of all files: the resulting values, the origin of each, and the quarantined ones. They lie on disk and are read
    each time that they are gone through; counts: file -> read, kept, train, valid, test, and each reason."""

    def __init__(self, spool: Spool[Any], listed: Sequence[Entry], loss: Sequence[str]) -> None:
        """Raises UserError where a file gives not one row."""
        self._spool = spool
        self.counts: dict[str, dict[str, int]] = {}
        asides = []
        for number, entry in enumerate(listed):
            n, kept, reasons = spool.counts(number)
            asides.append(reasons.total())
            if not kept.total():
                why = ", ".join(f"{n} {r}" for r, n in sorted(reasons.items())) or "it is empty"
                bad = next(spool.aside(number), None)
                first = f"; the first: {bad.id}: {bad.evidence[:200]}" if bad else ""
                raise UserError(f"{entry.where}: {entry.path} gives not one row: {why}{first}")
            mine = self.counts.setdefault(entry.path, {"read": 0, "kept": 0})
            more = {"read": n, "kept": kept.total(), **kept, **dict(sorted(reasons.items()))}
            for name, k in more.items():
                mine[name] = mine.get(name, 0) + k
        for number, before, k in spool.moved:
            mine = self.counts[listed[number].path]
            mine[SPLITS[before]], mine["test"] = mine[SPLITS[before]] - k, mine.get("test", 0) + k
        parted = spool.parted()
        for number, _ in parted:
            mine = self.counts[listed[number].path]
            mine["kept"], mine["train"] = mine["kept"] - 1, mine["train"] - 1
            mine["held_out"] = mine.get("held_out", 0) + 1
        n = sum(mine["kept"] for mine in self.counts.values())
        self.rows: Stream[Any] = Stream(n, lambda: (row for _, _, row in spool.kept()))
        self.own = Stream(
            n,
            lambda: (
                OwnRow(id=row.id, file=listed[e].path, place=place, weight=listed[e].weight, loss=loss[e])
                for e, place, row in spool.kept()
            ),
        )
        self.quarantined = Stream(
            sum(asides) + len(parted),
            lambda: chain((q for e in range(len(listed)) for q in spool.aside(e)), (q for _, q in parted)),
        )


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
    rows_per_shard: int = ROWS_PER_SHARD,
    alone: bool = False,
    imap: Callable[..., Iterator[Any]] = map,
) -> ReadRows:
    """The rows of all files of a knob.

    make: (entry, rows) -> (place, value of `cls`) of each, or Quarantined. protect: files whose texts must not be
    trained on. What is held out by the pipeline or by the files themselves is not trained on either. rows_per_shard: rows
    that are in memory at once, and that a run which was ended does not make again. alone: `make` looks at each row by itself,
    so that rows of shards that are there need not be made again to be passed over, and several shards may be made at a time by
    `imap` (tasks/runtime/ray_tasks.py); then `make` is pickled.

    Raises UserError where a file gives not one row.
    """
    listed = entries(stage.name, value, more)
    losses = [loss(entry) for entry in listed]
    guard = Protected([t for one in protect for t in files.texts_of(str(stage.source(one)))]) if protect else None
    tested = _held_out(stage)
    spool: Spool[T] = Spool(
        stage.work / "own",
        rows_per_shard,
        f"{stage.name}.rows_per_shard",
        cls,
        stage.name,
        lambda one: root_of(asked_by(one)),
    )
    for entry in listed:
        with_split: set[str] = set()  # the entry's path, once a split is stated

        def items(skip: int, entry: Entry = entry, with_split: set[str] = with_split) -> Iterator[Any]:
            rows = _noted(entry, entry.rows(stage), with_split)
            items_ = make(entry, islice(rows, skip, None)) if alone else islice(make(entry, rows), skip, None)
            yield from _reads(stage.progress(items_, entry.name), tested, guard)

        def rows(skip: int, entry: Entry = entry, with_split: set[str] = with_split) -> Iterator[Any]:
            return islice(stage.progress(_noted(entry, entry.rows(stage), with_split), entry.name), skip, None)

        says = lambda with_split=with_split: bool(with_split)  # noqa: E731
        if alone and imap is not map:
            spool.fill_apart(rows, partial(_shard, stage.name, entry, make, cls, tested, guard), says, imap)
        else:
            spool.fill(items, lambda part: _valid(stage.name, part, cls), says)
    stated = {entry.path for entry, says in zip(listed, spool.says, strict=True) if says}
    spool.says = [entry.path in stated for entry in listed]
    spool.settle()
    return ReadRows(spool, listed, losses)


def _reads(items: Iterable[Any], tested: Mapping[str, str], guard: Protected | None) -> Iterator[Read]:
    """What `make` of `read` gave, as it is kept."""
    for item in items:
        if isinstance(item, Quarantined):
            yield Read(item.id, reason=item.reason, evidence=item.evidence)
            continue
        place, one = item
        held = _leaks(one, tested, guard) if one.split == "train" else ""
        yield Read(place, one, root_of(asked_by(one)), held)


def _shard(
    stage: str,
    entry: Entry,
    make: Callable[[Entry, Iterable[Any]], Iterator[Any]],
    cls: type,
    tested: Mapping[str, str],
    guard: Protected | None,
    at: Path,
    job: tuple[list[Any], bool],
) -> None:
    """Makes a shard of the rows of an entry as they were read, and of whether one so far states a split."""
    rows, states_split = job
    write_shard(at, cls, _valid(stage, list(_reads(make(entry, rows), tested, guard)), cls), states_split)


def _noted(entry: Entry, rows: Iterable[Any], with_split: set[str]) -> Iterator[Any]:
    """The rows; the path of an entry that states a split goes into `said`."""
    if entry.use:
        with_split.add(entry.path)
    for item in rows:
        if not isinstance(item, Quarantined) and isinstance(item[1], Mapping) and item[1].get("split") in SPLITS:
            with_split.add(entry.path)
        yield item


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


def _valid(stage: str, part: Sequence[Read], cls: type) -> list[Read]:
    """What was read, rows that break the pandera schema of their type with the reason."""
    rows = [i for i, x in enumerate(part) if x.value is not None]
    out = list(part)
    if rows:
        # each under a name of its own: a row that is there twice is no fault of its schema
        frame = pd.DataFrame([{**to_row(part[i].value), "id": str(i)} for i in rows])
        for q in tables.check(frame, tables.schema_of(cls), stage)[1]:
            out[int(q.id)] = replace(
                out[int(q.id)], reason=q.reason, evidence=q.evidence.partition(": ")[2] or q.evidence
            )
    return out


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
            for p in tables.each(stage.input(name, "problems.parquet"), Problem):
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


def pass_on(folder: Path, out: Path) -> None:
    """Writes what is known of the user's rows in an artifact into that of a later stage, a part at a time."""
    path = folder / "own.parquet"
    if path.exists():
        tables.write(out / "own.parquet", tables.each(path, OwnRow), OwnRow)


class Origins:
    """How the user's rows in an artifact are drawn and learned, of many rows: 17 bytes each. even: all rows of the artifact weigh
    the same."""

    def __init__(self, folder: Path) -> None:
        path = folder / "own.parquet"
        keys, weights, last = [np.zeros(0, np.uint64)], [np.zeros(0)], [np.zeros(0, bool)]
        if path.exists():
            for part in tables.parts(path, ["id", "weight", "loss"]):
                keys.append(np.array([key_of(i) for i in part["id"].to_pylist()], np.uint64))
                weights.append(part["weight"].to_numpy())
                last.append(np.array([x == "last" for x in part["loss"].to_pylist()], bool))
        key = np.concatenate(keys)
        order = np.argsort(key)
        self.key, self.weight, self.last = key[order], np.concatenate(weights)[order], np.concatenate(last)[order]
        self.even = bool((self.weight == 1.0).all())

    def of(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(weight, whether the last turn alone is learned) of rows; 1 and False of those that are not the user's."""
        weight, last = np.ones(len(ids)), np.zeros(len(ids), bool)
        if len(self.key):
            keys = np.array([key_of(i) for i in ids], np.uint64)
            at = np.minimum(np.searchsorted(self.key, keys), len(self.key) - 1)
            own = self.key[at] == keys
            weight[own], last[own] = self.weight[at[own]], self.last[at[own]]
        return weight, last


def shares(weight: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Indices of rows [int64], each as often as its weight says beside the smallest: 2.5 times is twice, and a third time for
    half of the rows. Every row is there at least once. weight [n]; drawn [n] in [0, 1) (`chance`): whether a fraction is one
    more time."""
    if not len(weight):
        return np.zeros(0, np.int64)
    whole, part = np.divmod(weight / weight.min(), 1.0)
    return np.repeat(np.arange(len(weight)), whole.astype(np.int64) + (drawn < part))


def chance(seed: int, name: str) -> float:
    """A number in [0, 1) by which the fraction of a row's weight is drawn."""
    return seed_for(seed, "weight", name) / 2**63


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
