"""Audits a file of pairs of any size: several processes read it in pieces, in one pass and a second look at candidates
for duplicates.

Per row, in the workers: JSON and schema (`synth.preferences.imported`), hashes of the three texts, MinHash bins,
lengths. Then, on
arrays:

    exact_duplicate      the same words in prompt and both sides as an earlier row
    contradiction        the same with the sides swapped
    near_duplicate       prompts, chosen and rejected sides each of Jaccard similarity >= threshold over word pairs,
                         with the same numbers; candidates share a band of the MinHash of the whole pair, and are
                         compared exactly, from their texts
    near_contradiction   the same with the sides swapped
    on_a_cycle           within one prompt a beats b, b beats ..., beats a (strongly connected components over all
                         prompts at once)

The first of several duplicates is not reported; both sides of a contradiction are. In a band that more
than `NEIGHBOURS` rows share (one prompt asked ten thousand times), each row is compared with that many before it.

Of a row, arrays of 52 bytes stay in memory, and twice as many while keys are sorted. Its MinHash, bands and numbers (536 bytes) lie in files of a
temporary folder: a band is read when its turn has come, the others where two rows are compared. Couples that share a band wait
there, 8 bytes each. A fault costs some 150 bytes more.

One JSON lines file is read where it lies. Whatever else `espalier clean` reads (CSV, Parquet, Arrow, JSON, folders, the
Hub) is written out once as JSON lines, into a file that is deleted afterwards; rows keep the numbers of their files.

With a folder to write into, a run that is killed goes on: pieces that were read and couples that were compared are parts
(tasks/rows/kept.py).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import tempfile
from bisect import bisect, bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from synth.preferences.cleaners._grams import BINS, bands, densified, gram_sets, hashed, jaccard
from synth.preferences.cleaners._length import longer_wins
from synth.preferences.imported import Reader, Row
from synth.preferences.ledger import Once, afresh
from synth.types import PreferencePair, Quarantined
from tasks.core.errors import UserError
from tasks.rows.files import LINES, parsed
from tasks.rows.files import rows as rows_of
from tasks.storage.shards import Parts, Shards, read_values, write_values

PIECE = 8 << 20  # bytes that a worker reads at once
NEIGHBOURS = 50
GATHERED = 1 << 22  # couples that are gathered at once, more or less
COMPARED = 1 << 15  # couples whose texts are read again at once
SLACK = 0.2  # candidates whose estimated similarity lies further below the threshold are not compared


@dataclass(frozen=True)
class Rows:
    """The good rows of a piece of the file, in order; n of them. Sides 0 prompt, 1 chosen, 2 rejected."""

    at: np.ndarray  # [n] int64 byte where the row's line begins
    line: np.ndarray  # [n] int64 number of the line
    text: np.ndarray  # [n, 3] uint64
    numbers: np.ndarray  # [n, 3] uint64
    words: np.ndarray  # [n, 3] int32
    bins: np.ndarray  # [n, 3, 64] uint16, to estimate similarities by
    bands: np.ndarray  # [n, 16] uint64


HELD, ON_DISK = ("at", "line", "text", "words"), ("numbers", "bins")


class Table:
    """The rows of all pieces: `at`, `line`, `text` and `words` as in Rows; the rest lies in files of `folder`."""

    at: np.ndarray
    line: np.ndarray
    text: np.ndarray
    words: np.ndarray

    def __init__(self, folder: Path, pieces: Iterable[Rows]) -> None:
        self.folder, self.n = folder, 0
        kinds: dict[str, np.ndarray] = {name: np.zeros(0, np.int64) for name in HELD}
        with ExitStack() as stack:
            files: dict[str, Any] = {}

            def put(name: str, values: np.ndarray) -> None:
                if name not in files:
                    files[name] = stack.enter_context((folder / name).open("wb"))
                files[name].write(np.ascontiguousarray(values))

            for piece in pieces:
                self.n += len(piece.at)
                for name in HELD:
                    kinds[name] = getattr(piece, name)
                for name in (*HELD, *ON_DISK):
                    put(name, getattr(piece, name))
                for k, band in enumerate(piece.bands.T):
                    put(f"band{k}", band)
        for name, one in kinds.items():  # by way of files: arrays of pieces that are freed leave holes between others
            every = np.fromfile(folder / name, one.dtype) if self.n else one
            setattr(self, name, every.reshape(-1, *one.shape[1:]))

    def bands(self) -> Iterator[np.ndarray]:
        """[n] uint64 of each band."""
        for path in sorted(self.folder.glob("band*")):
            yield np.fromfile(path, np.uint64)

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """[rows, 3] uint64."""
        return self._of("numbers", rows, np.uint64).reshape(-1, 3)

    def bins(self, rows: np.ndarray) -> np.ndarray:
        """[rows, 3, 64] uint16."""
        return self._of("bins", rows, np.uint16).reshape(-1, 3, BINS)

    def _of(self, name: str, rows: np.ndarray, kind: Any) -> np.ndarray:
        """What a file holds of rows, read row by row: pages of a file that is mapped count as memory, nearly all of it after a while."""
        each, place = np.unique(rows, return_inverse=True)
        path = self.folder / name
        width = path.stat().st_size // self.n
        with path.open("rb", 0) as file:
            data = b"".join([os.pread(file.fileno(), width, width * i) for i in each.tolist()])
        return np.frombuffer(data, kind).reshape(len(each), width // np.dtype(kind).itemsize)[place]


@dataclass(frozen=True)
class Audit:
    """What was found: `faults` as (line, code, line of the other row or 0), `quarantined` rows that are no pairs, `card` the
    counts. `files`: what was read one after the other, as (lines before it, "FILE line" or "FILE row"); none for one JSON
    lines file."""

    faults: list[tuple[int, str, int]]
    quarantined: list[Quarantined]
    card: dict[str, Any]
    files: list[tuple[int, str]] = field(default_factory=list)

    def place(self, line: int) -> tuple[str, int]:
        """("FILE line" or "FILE row", number in it)."""
        if not self.files:
            return "line", line
        before, name = self.files[bisect(self.files, line - 1, key=lambda file: file[0]) - 1]
        return name, line - before


def audit_rows(
    where: str,
    reader: Reader,
    *,
    split: str = "train",
    threshold: float = 0.7,
    processes: int = 0,
    ray: str = "",
    done: Callable[[int], None] = lambda n: None,
    parts: Parts | None = None,
) -> Audit:
    """Audit whatever `espalier clean` reads, by the same reader of rows. Raises UserError as `audit` does."""
    path = Path(where)
    if path.is_file() and path.suffix in LINES:
        return audit(path, reader, threshold=threshold, processes=processes, ray=ray, done=done, parts=parts)
    if ray:
        raise UserError(
            f"--ray reads one JSON lines file, which all machines of the cluster see, and {where} is another kind: write it as .jsonl, or leave "
            "--ray out"
        )
    with tempfile.TemporaryDirectory(prefix="espalier-audit-") as folder:
        spool = Path(folder) / "rows.jsonl"
        files, broken = _spooled(rows_of(where, split=split), spool)
        if not files:
            raise UserError(f"{where} has no pair: it is empty")
        audited = audit(spool, reader, threshold=threshold, processes=processes, done=done, parts=parts)
    whole = Audit(faults=audited.faults, quarantined=[], card=audited.card, files=files)
    named = [
        Quarantined(**{**vars(q), "id": "{} {}".format(*whole.place(int(q.id.removeprefix("line "))))})
        for q in audited.quarantined
    ]
    reasons = Counter(q.reason for q in (*broken, *named))
    card = {**audited.card, "quarantined": dict(sorted(reasons.items()))}
    return Audit(faults=audited.faults, quarantined=[*broken, *named], card=card, files=files)


def kept_of(
    where: str, reader: Reader, out: Path, *, split: str, threshold: float
) -> AbstractContextManager[Parts | None]:
    """The parts of an audit of `where` whose result is written into `out` (tasks/rows/kept.py)."""
    from tasks.rows.kept import kept  # not above: each process that reads a piece imports this module

    settings = [{**vars(reader), "rename": dict(reader.rename)}, split, threshold, PIECE, COMPARED, NEIGHBOURS]
    return kept(Path(where), out, "audit", settings=settings, files=[Path(__file__)])


def _spooled(items: Iterable[Row | Quarantined], spool: Path) -> tuple[list[tuple[int, str]], list[Quarantined]]:
    """Write rows as JSON lines, each on the line that its file's beginning and its number make; (files, rows that could not
    be read)."""
    files: list[tuple[int, str]] = []
    broken: list[Quarantined] = []
    lines = 0
    with spool.open("w", encoding="utf-8") as file:
        for item in items:
            place = item.id if isinstance(item, Quarantined) else item[0]
            name, _, number = place.rpartition(" ")
            if not files or files[-1][1] != name or files[-1][0] + int(number) <= lines:
                files.append((lines, name))
            at = files[-1][0] + int(number)
            file.write("\n" * (at - 1 - lines))
            if isinstance(item, Quarantined):
                broken.append(item)
                file.write("\n")
            else:
                file.write(json.dumps(item[1], default=str) + "\n")
            lines = at
    return files, broken


def audit(
    path: Path,
    reader: Reader | None = None,
    *,
    threshold: float = 0.7,
    processes: int = 0,
    ray: str = "",
    done: Callable[[int], None] = lambda n: None,
    parts: Parts | None = None,
) -> Audit:
    """Audit a JSON lines file. ray: address of a Ray cluster whose machines read the pieces in place of `processes` here; done: called with
    the bytes of each piece that is read; parts: where what is done is kept for a run of the same file and reader that follows this one if
    it is killed.

    Raises UserError if its columns make no pairs, if no row is a pair, and for a cluster that does not take us in.
    """
    reader = reader or Reader(name=path.name)
    path = path.resolve()
    pieces = [
        (str(path), start, min(PIECE, path.stat().st_size - start), reader)
        for start in range(0, path.stat().st_size, PIECE)
    ]
    quarantined: list[Quarantined] = []
    lines = 0
    shards = Shards(parts.at("read"), PIECE) if parts else None
    once: Once = parts.values if parts else afresh

    def read(pool: Any) -> Iterator[Rows]:
        nonlocal lines
        there = [shards is not None and shards.has(k) for k in range(len(pieces))]
        fresh = pool.imap(run(_read), [piece for piece, had in zip(pieces, there, strict=True) if not had])
        for k, (_, _, size, _) in enumerate(pieces):
            if shards and there[k]:
                part = read_values(shards.at(k))
            else:
                rows, bad, n, sentence = next(fresh)
                if sentence:
                    raise UserError(sentence)
                part = {**vars(rows), "quarantined": [vars(q) for q in bad], "lines": n}
                if shards:
                    shards.made(k, partial(write_values, values=part))
            rows = Rows(**{f.name: part[f.name] for f in fields(Rows)})
            yield Rows(**{**vars(rows), "line": rows.line + lines})
            bad = (Quarantined(**q) for q in part["quarantined"])
            quarantined.extend(Quarantined(**{**vars(q), "id": f"line {int(q.id) + lines}"}) for q in bad)
            lines += part["lines"]
            done(size)

    def run(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return partial(_of_this_file, function, str(path), path.stat().st_size) if ray else function

    def workers() -> AbstractContextManager[Any]:
        if not ray:
            most = min(processes or os.cpu_count() or 1, max(1, len(pieces)))
            return multiprocessing.get_context("spawn").Pool(most)
        from tasks.runtime.ray_tasks import tasks  # imported here: few audits have a cluster

        return tasks(ray, "--ray", Path.cwd())

    with tempfile.TemporaryDirectory(prefix="espalier-audit-") as folder, workers() as pool:
        rows = Table(Path(folder), read(pool))
        if not rows.n:
            reasons = Counter(q.reason for q in quarantined)
            why = ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items())) or "it is empty"
            first = f"; the first: {quarantined[0].id}: {quarantined[0].evidence}" if quarantined else ""
            raise UserError(f"{reader.name} has no pair: {why}{first}")
        faults = judge(rows, lambda wanted: _sets(pool, run(_look_back), path, rows, wanted, reader), threshold, once)
    faults.sort()
    counts = Counter(code for _, code, _ in faults)
    card = {
        "lines": lines,
        "pairs": len(rows.at),
        "quarantined": dict(sorted(Counter(q.reason for q in quarantined).items())),
        "faults": dict(sorted(counts.items())),
        "words": {name: int(rows.words[:, k].sum()) for k, name in enumerate(("prompt", "chosen", "rejected"))},
        "prompts": len(np.unique(rows.text[:, 0])),
        "length": longer_wins(rows.words[:, 1].astype(np.int64) - rows.words[:, 2]),
    }
    return Audit(faults=faults, quarantined=quarantined, card=card)


def judge(
    rows: Table,
    sets: Callable[[np.ndarray], Mapping[int, tuple[np.ndarray, ...]]],
    threshold: float,
    once: Once = afresh,
) -> list[tuple[int, str, int]]:
    """The faults of rows. sets: indices -> index -> gram sets of prompt, chosen, rejected, for the rows that must be
    compared exactly; once: finds again what an earlier run had compared."""
    n = rows.n
    out: list[tuple[int, str, int]] = []
    prompt, chosen, rejected = (rows.text[:, k] for k in range(3))
    first = _first_of(_key(prompt, chosen, rejected))
    copies = first != np.arange(n)
    out += [(int(rows.line[i]), "exact_duplicate", int(rows.line[first[i]])) for i in np.flatnonzero(copies)]
    unordered = _first_of(_key(prompt, np.minimum(chosen, rejected), np.maximum(chosen, rejected)))
    both = np.zeros((n, 2), bool)
    both[unordered, (chosen < rejected).astype(int)] = True
    crossed = both[unordered].all(axis=1) & (chosen != rejected)
    opposite = _opposites(np.flatnonzero(crossed), unordered, chosen < rejected)
    out += [(int(rows.line[i]), "contradiction", int(rows.line[opposite[i]])) for i in opposite]
    out += [(int(rows.line[i]), "on_a_cycle", 0) for i in np.flatnonzero(cycles(prompt, chosen, rejected))]
    gone = copies.copy()
    a, b = _candidates(rows, np.flatnonzero(~copies), threshold - SLACK)  # b < a
    for start in range(0, len(a), COMPARED):  # they ascend: what an earlier part found gone is not read again
        i, j = a[start : start + COMPARED], b[start : start + COMPARED]
        open_ = ~gone[i] & ~gone[j] & (unordered[i] != unordered[j])
        i, j = i[open_], j[open_]
        part = once(f"compared-{start // COMPARED}", partial(_compared, i, j, sets, threshold, gone.copy()))
        for i, j in part["crossed"].tolist():
            out += [
                (int(rows.line[i]), "near_contradiction", int(rows.line[j])),
                (int(rows.line[j]), "near_contradiction", int(rows.line[i])),
            ]
        for i, j in part["near"].tolist():
            gone[i] = True
            out.append((int(rows.line[i]), "near_duplicate", int(rows.line[j])))
    return sorted(set(out))


def _compared(
    a: np.ndarray,
    b: np.ndarray,
    sets: Callable[[np.ndarray], Mapping[int, tuple[np.ndarray, ...]]],
    threshold: float,
    gone: np.ndarray,
) -> dict[str, np.ndarray]:
    """near, crossed [m, 2]: couples that are near duplicates, the later of which is gone then, and those with swapped sides, by an exact
    comparison in order."""
    grams = sets(np.unique(np.concatenate([a, b])))
    near, crossed = list[tuple[int, int]](), list[tuple[int, int]]()
    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        if gone[i] or gone[j]:
            continue
        same, other = _similar(grams[i], grams[j])
        if max(same, other) < threshold:
            continue
        if other > same:
            crossed.append((i, j))
        else:
            gone[i] = True
            near.append((i, j))
    return {"near": np.array(near, np.int64).reshape(-1, 2), "crossed": np.array(crossed, np.int64).reshape(-1, 2)}


def cycles(prompt: np.ndarray, chosen: np.ndarray, rejected: np.ndarray) -> np.ndarray:
    """[n] bool: pairs whose answers lie in one strongly connected component of their prompt's graph chosen ->
    rejected."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, which, times = np.unique(prompt, return_inverse=True, return_counts=True)
    several = np.flatnonzero(times[which] > 1)  # one pair alone goes in no circle
    out = np.zeros(len(prompt), bool)
    if not len(several):
        return out
    del which, times
    prompt, chosen, rejected = prompt[several], chosen[several], rejected[several]
    n = len(prompt)
    _, node = np.unique(np.concatenate([_key(prompt, chosen), _key(prompt, rejected)]), return_inverse=True)
    size = int(node.max()) + 1
    graph = coo_array((np.ones(n, np.int8), (node[:n], node[n:])), shape=(size, size))
    _, label = connected_components(graph, directed=True, connection="strong")
    out[several] = (label[node[:n]] == label[node[n:]]) & (node[:n] != node[n:])
    return out


def _read(piece: tuple[str, int, int, Reader]) -> tuple[Rows, list[Quarantined], int, str]:
    """(rows, rows quarantined with the number of their line in the piece as id, lines, a sentence where the file is of no
    use)."""
    path, start, size, reader = piece
    at: list[int] = []
    items: list[Any] = []
    lines = 0
    for offset, line in _lines(path, start, size):
        lines += 1
        if not line.strip():
            continue
        at.append(offset)
        items.append(parsed(str(lines), line))
    begins = {(q.id if isinstance(q, Quarantined) else q[0]): offset for q, offset in zip(items, at, strict=True)}
    try:
        read_pairs = list(reader.pairs(items))
    except ValueError as e:
        return _rows([], [], []), [], lines, str(e)
    pairs = [p for p in read_pairs if isinstance(p, PreferencePair)]
    bad = [Quarantined(**{**vars(q), "id": q.id.partition(",")[0]}) for q in read_pairs if isinstance(q, Quarantined)]
    numbers = [p.source.partition(",")[0] for p in pairs]
    return _rows(pairs, [begins[i] for i in numbers], [int(i) for i in numbers]), bad, lines, ""


def _lines(path: str, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of the lines that begin within [start, start + size)."""
    with open(path, "rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()
        while (offset := file.tell()) < start + size and (line := file.readline()):
            yield offset, line


def _rows(pairs: list[PreferencePair], at: list[int], line: list[int]) -> Rows:
    sides = [hashed(texts) for texts in _texts(pairs)]
    whole = np.minimum(np.minimum(sides[0].bins, sides[1].bins), sides[2].bins)
    return Rows(
        at=np.array(at, np.int64),
        line=np.array(line, np.int64),
        text=np.stack([s.text for s in sides], axis=1),
        numbers=np.stack([s.numbers for s in sides], axis=1),
        words=np.stack([s.words for s in sides], axis=1).astype(np.int32),
        bins=np.stack([densified(s.bins).astype(np.uint16) for s in sides], axis=1),
        bands=bands(densified(whole)),
    )


def _texts(pairs: list[PreferencePair]) -> tuple[list[str], list[str], list[str]]:
    prompts = ["\n".join(f"{m.role}: {m.content}" for m in p.prompt) for p in pairs]
    return prompts, [p.chosen for p in pairs], [p.rejected for p in pairs]


def _key(*parts: np.ndarray) -> np.ndarray:
    """[n] combines several uint64 into one; the order matters."""
    out = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        out = (out ^ part) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out


def _first_of(keys: np.ndarray) -> np.ndarray:
    """[n] index of the first row with the same key."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse]


def _opposites(rows: np.ndarray, group: np.ndarray, direction: np.ndarray) -> dict[int, int]:
    """Row -> the first row of its group with swapped sides."""
    first: dict[tuple[int, bool], int] = {}
    for i in rows.tolist():
        first.setdefault((int(group[i]), bool(direction[i])), i)
    return {i: first[int(group[i]), not bool(direction[i])] for i in rows.tolist()}


def _candidates(rows: Table, among: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """(later, earlier) rows that share a band and of which `_estimated` says yes, each couple once, in ascending order. Couples wait in
    a file, 8 bytes each, until those of some rows are gathered from all bands."""
    alike = [np.zeros(0, np.int64)]
    with tempfile.TemporaryFile(dir=rows.folder) as file:
        for couples in _gathered(file, _alike(rows, among, file), rows.n):
            alike.append(couples[_estimated(rows, couples // rows.n, couples % rows.n, least)])
    every = np.concatenate(alike)
    return every // rows.n, every % rows.n


def _alike(rows: Table, among: np.ndarray, file: Any) -> list[tuple[int, int]]:
    """Writes couples that share a band, as later * n + earlier, in runs that ascend; returns where each run begins and ends."""
    runs, at = list[tuple[int, int]](), 0
    for band in rows.bands():
        band = band[among]
        order = np.argsort(band, kind="stable")
        key, row = band[order], among[order]
        for lag in range(1, NEIGHBOURS + 1):
            same = np.flatnonzero(key[lag:] == key[:-lag])
            if not len(same):
                break
            file.write(np.sort(row[same + lag] * rows.n + row[same]))
            runs.append((at, at := at + len(same)))
    file.flush()
    return runs


def _gathered(file: Any, runs: list[tuple[int, int]], n: int) -> Iterator[np.ndarray]:
    """The couples of the runs, each once, in ascending order: those of some later rows at a time."""

    def read(begin: int, end: int) -> np.ndarray:
        return np.frombuffer(os.pread(file.fileno(), 8 * (end - begin), 8 * begin), np.int64)

    parts = max(1, sum(end - begin for begin, end in runs) // GATHERED)
    step = min(-(-n // parts), GATHERED // NEIGHBOURS)
    for lo in range(0, n, step):
        pieces = list[np.ndarray]()
        for k, (begin, end) in enumerate(runs):
            to = begin + bisect_left(range(begin, end), (lo + step) * n, key=lambda i: int(read(i, i + 1)[0]))
            pieces.append(read(begin, to))
            runs[k] = (to, end)
        if any(map(len, pieces)):
            yield np.unique(np.concatenate(pieces))


def _estimated(rows: Table, a: np.ndarray, b: np.ndarray, least: float, step: int = 1 << 14) -> np.ndarray:
    """[couples] bool: the numbers agree, and the estimated similarity reaches `least`, side by side or crossed."""
    out = np.zeros(len(a), bool)
    for part in (slice(k, k + step) for k in range(0, len(a), step)):
        here, mine, theirs = np.zeros(len(a[part]), bool), rows.numbers(a[part]), rows.numbers(b[part])
        for order in ([0, 1, 2], [0, 2, 1]):
            agree = np.flatnonzero((mine == theirs[:, order]).all(axis=1) & ~here)
            alike = rows.bins(a[part][agree]) == rows.bins(b[part][agree])[:, order]
            here[agree] |= alike.mean(axis=2).min(axis=1) >= least
        out[part] = here
    return out


def _similar(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> tuple[float, float]:
    prompt = jaccard(a[0], b[0])
    return min(prompt, jaccard(a[1], b[1]), jaccard(a[2], b[2])), min(prompt, jaccard(a[1], b[2]), jaccard(a[2], b[1]))


def _of_this_file(function: Callable[[Any], Any], path: str, size: int, job: Any) -> Any:
    """function(job), on a machine that has the file. Raises UserError on another."""
    if not os.path.isfile(path) or os.path.getsize(path) != size:
        raise UserError(
            f"the machine {socket.gethostname()} of the Ray cluster has no {path} of {size:,} bytes: share its file system with all machines"
        )
    return function(job)


def _sets(
    pool: Any,
    look_back: Callable[[Any], Any],
    path: Path,
    rows: Table,
    wanted: np.ndarray,
    reader: Reader,
) -> dict[int, tuple[np.ndarray, ...]]:
    """Index -> gram sets of the three texts, read again from the file by the workers."""
    parts = [part for part in np.array_split(wanted, max(1, len(wanted) // 2000)) if len(part)]
    jobs = [(str(path), rows.at[part].tolist(), part.tolist(), reader) for part in parts]
    out: dict[int, tuple[np.ndarray, ...]] = {}
    for copies in pool.imap(look_back, jobs):
        out.update(copies)
    return out


def _look_back(job: tuple[str, list[int], list[int], Reader]) -> dict[int, tuple[np.ndarray, ...]]:
    path, offsets, names, reader = job
    items = []
    with open(path, "rb") as file:
        for offset, name in zip(offsets, names, strict=True):
            file.seek(offset)
            items.append((str(name), json.loads(file.readline())))
    pairs = [p for p in reader.pairs(items) if isinstance(p, PreferencePair)]
    sets = [gram_sets(texts) for texts in _texts(pairs)]
    return {int(p.source.partition(",")[0]): tuple(s[k] for s in sets) for k, p in enumerate(pairs)}
