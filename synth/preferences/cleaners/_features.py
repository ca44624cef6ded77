"""Cheap features of one answer to a prompt, from text alone: its composition, and where its words occurred before.

Nothing here solves or verifies the task: no equation is computed, no order checked, no fact looked up. The features ask
whether an answer is *consistent* with its surroundings: do its words occur in the question, in the last search results,
in its own working?
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import islice
from operator import sub
from typing import Any

import numpy as np

from synth.preferences.cleaners._filed import Filed
from synth.preferences.ledger import Mapped, Once, afresh, each
from synth.types import Message, PreferencePair

_TOKEN = re.compile(r"\w+|[-+*/=]")
_SIGNS = "-+*/="
_ASCII = "".join(map(chr, range(128)))
_SPACED = str.maketrans(_ASCII, "".join(c.lower() if c.isalnum() or c in "_" + _SIGNS else " " for c in _ASCII))
BLIND = {"length", "words"}  # features that a detector blind to length ignores
_TAGGED = re.compile(r"<(\w+)>([^<]*)</\1>\s*$")


NAMES = (
    "length",
    "words",
    "in question",
    "of question",
    "same multiset as numbers of question",
    "in working",
    "same multiset as working",
    "asked before",
    "in last result",
    "in any result",
    "in first line",
    "line fits last query",
    "line fits question",
    "new",
)
TAKEN = 1 << 20  # rows whose kinds and tags are counted at once
CELLS = 1 << 23  # numbers of a table of differences that is held as a whole
READ, BLOCK = 1 << 13, 1 << 12  # pairs that are read at once; rows of a table that are


class Known:
    """What was read of pairs, by a 64-bit hash of their texts: 20 bytes each in memory, and 112 in a temporary file. values [m, NAMES]: chosen
    minus rejected; about, good, bad [m] int32: the places of kind and tags among `kinds` and `tags`.

    once: (name, make) -> what `make` gives, or gave to an earlier run that was killed (`Ledger.once`); parts are called 0, 1, ...; mapped:
    runs a function for several of them.
    """

    def __init__(self, once: Once = afresh, mapped: Mapped = map) -> None:
        self.kinds, self.tags = dict[str, int](), dict[str, int]()
        self.hashes, self.values = np.zeros(0, np.int64), Filed(len(NAMES))
        self.about, self.good, self.bad = (np.zeros(0, np.int32) for _ in range(3))
        self._once, self._mapped = once, mapped
        self._parts = 0

    def __len__(self) -> int:
        return len(np.unique(self.hashes))

    def of(self, pairs: Iterable[PreferencePair]) -> np.ndarray:
        """[pairs] places of pairs among what is known; what was not read before is read."""
        order = np.argsort(self.hashes, kind="stable")
        hashes, places, n = self.hashes[order], list[np.ndarray](), len(self.hashes)
        unread_hashes, new = deque[np.ndarray](), list[list[np.ndarray]]()  # hashes of the parts that are to be read

        def unread() -> Iterator[tuple[str, tuple[np.ndarray, list[PreferencePair]]]]:
            nonlocal n
            stream = iter(pairs)
            while part := list(islice(stream, READ)):
                mine = np.array([_name(p) for p in part], np.int64)
                at = np.minimum(np.searchsorted(hashes, mine), max(len(hashes) - 1, 0))
                there = hashes[at] == mine if len(hashes) else np.zeros(len(mine), bool)
                out = np.zeros(len(mine), np.int32)
                out[there] = order[at[there]]
                lacking = np.flatnonzero(~there)
                fresh, first, place = np.unique(mine[lacking], return_index=True, return_inverse=True)
                by_row = np.argsort(first)  # pairs are read in their own order, whatever their hashes are
                rank = np.empty(len(by_row), np.int64)
                rank[by_row] = np.arange(len(by_row))
                out[lacking] = n + rank[place]
                n += len(fresh)
                places.append(out)
                if len(fresh):
                    rows = lacking[first[by_row]]
                    unread_hashes.append(mine[rows])
                    self._parts += 1
                    yield f"{self._parts - 1}", (mine[rows], [part[i] for i in rows.tolist()])

        # Of other pairs: a killed run had removed fewer by then.
        same = lambda told, part: np.array_equal(told["hashes"], part[0])  # noqa: E731
        for told in each(self._once, unread(), _told, self._mapped, fits=same):
            kinds = np.array([self.kinds.setdefault(x, len(self.kinds)) for x in told["kinds"]], np.int32)
            tags = np.array([self.tags.setdefault(x, len(self.tags)) for x in told["tags"]], np.int32)
            self.values.add(told["values"])
            new.append([unread_hashes.popleft(), kinds[told["about"]], tags[told["good"]], tags[told["bad"]]])
        if new:
            for name in ("hashes", "about", "good", "bad"):
                setattr(self, name, np.concatenate([getattr(self, name), *(x.pop(0) for x in new)]))
        return np.concatenate(places) if places else np.zeros(0, np.int32)


def _told(part: tuple[np.ndarray, Sequence[PreferencePair]]) -> dict[str, Any]:
    """What is read of pairs, with their hashes."""
    hashes, pairs = part
    return {"hashes": hashes, **_read(pairs)}


def _name(pair: PreferencePair) -> int:
    """A 64-bit hash of the texts of a pair, the same in every process."""
    texts = [*(x for m in pair.prompt for x in (m.role, m.content, *m.media)), pair.chosen, pair.rejected]
    content = "".join((",".join(map(str, map(len, texts))), " ", *texts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little", signed=True)


def _read(pairs: Sequence[PreferencePair]) -> dict[str, Any]:
    """values, about, good, bad, as of Known; kinds and tags: the names of theirs."""
    by_prompt: dict[tuple[Message, ...], list[int]] = {}
    for i, p in enumerate(pairs):
        by_prompt.setdefault(p.prompt, []).append(i)
    values = np.zeros((len(pairs), len(NAMES)))
    about, good, bad = (np.zeros(len(pairs), np.int32) for _ in range(3))
    kinds, tags = dict[str, int](), dict[str, int]()
    for prompt, mine in by_prompt.items():  # a prompt or answer that several pairs share is read once
        read, k = reader(prompt), kinds.setdefault(kind(prompt), len(kinds))
        texts = {
            text: read(text) for text in dict.fromkeys(t for i in mine for t in (pairs[i].chosen, pairs[i].rejected))
        }
        for i in mine:
            (g, a), (b, c) = texts[pairs[i].chosen], texts[pairs[i].rejected]
            values[i] = np.array(a) - np.array(c)
            about[i], good[i], bad[i] = k, tags.setdefault(g, len(tags)), tags.setdefault(b, len(tags))
    return {"values": values, "about": about, "good": good, "bad": bad, "kinds": list(kinds), "tags": list(tags)}


def features(prompt: Sequence[Message], answer: str) -> dict[str, float]:
    """name -> value. Each occurs twice, alone and combined with the kind of prompt (`kind`), because a good feature of
    one kind can be bad in another."""
    tag, numbers = reader(prompt)(answer)
    values = {**dict(zip(NAMES, numbers, strict=True)), f"tag {tag}": 1.0}
    about = kind(prompt)
    return values | {f"{about}: {name}": value for name, value in values.items()}


def differences(
    pairs: Sequence[PreferencePair],
    extra: Callable[[str], Mapping[str, float]] | None = None,
    known: Known | None = None,
) -> Differences:
    """The features of the chosen minus those of the rejected side.

    extra: further values of a text. known: what was read of pairs before; what is read now is added.
    """
    known = Known() if known is None else known
    names = list(extra("")) if extra else []
    more, some = Filed(len(names)), array("d")

    def filed() -> None:
        more.add(np.array(some).reshape(-1, len(names)))
        del some[:]

    def seen() -> Iterator[PreferencePair]:
        for p in pairs:
            if extra:
                some.extend(map(sub, extra(p.chosen).values(), extra(p.rejected).values()))
                if len(some) >= READ:
                    filed()
            yield p

    rows = known.of(seen())
    if some:
        filed()
    return Differences(known, rows, names, more)


class Differences:
    """A table [n, d] of differences that is made where it is needed: a pair has 14 numbers, which stand in two columns each, those
    of all pairs and those of its kind.

    names: of the columns, in alphabetical order; kinds, about: the names of kinds, and the kind of each pair.
    """

    def __init__(self, known: Known, rows: np.ndarray, extra: Sequence[str], more: Filed) -> None:
        whole = len(rows) == len(known.hashes) and bool((rows == np.arange(len(rows))).all())

        def mine(x: np.ndarray) -> np.ndarray:
            return x if whole else x[rows]

        # kinds in alphabetical order: in which order they were met says in which order floats are added
        self.kinds, tags = sorted(known.kinds), list(known.tags)
        rank = np.zeros(len(self.kinds), np.int32)
        rank[[known.kinds[name] for name in self.kinds]] = np.arange(len(self.kinds), dtype=np.int32)
        self.values = known.values if whole else known.values.taken(rows)
        self.about, good, bad = (
            rank[mine(known.about)],
            mine(known.good),
            mine(known.bad),
        )
        self.more = more
        here = np.flatnonzero(np.bincount(self.about, minlength=len(self.kinds))).tolist()

        def coded(side: np.ndarray, at: Any) -> np.ndarray:
            """kind and tag"""
            return self.about[at].astype(np.int64) * len(tags) + side[at]

        every = [np.unique(coded(s, slice(a, a + TAKEN))) for s in (good, bad) for a in range(0, len(rows), TAKEN)]
        of_kind = [divmod(x, len(tags)) for x in np.unique(np.concatenate([*every, np.zeros(0, np.int64)])).tolist()]
        names = {n for k in here for name in NAMES for n in (name, f"{self.kinds[k]}: {name}")}
        names |= {n for k, t in of_kind for n in (f"tag {tags[t]}", f"{self.kinds[k]}: tag {tags[t]}")}
        self.names = sorted(names | set(extra))
        at = {name: j for j, name in enumerate(self.names)}
        self.shape = (len(rows), len(self.names))
        self.plain = np.array([at[name] for name in NAMES], np.int64)
        self.columns = np.zeros((len(self.kinds), len(NAMES)), np.int64)  # of each kind
        for k in here:
            self.columns[k] = [at[f"{self.kinds[k]}: {name}"] for name in NAMES]
        self.extra = np.array([at[name] for name in extra], np.int64)
        self.turned = np.flatnonzero(good != bad)  # rows whose sides have other tags: [turned, 4] columns
        both = np.array([[at[f"tag {tags[t]}"], at[f"{self.kinds[k]}: tag {tags[t]}"]] for k, t in of_kind], np.int64)
        code = np.array([k * len(tags) + t for k, t in of_kind], np.int64)
        self.tags = np.concatenate([both[np.searchsorted(code, coded(s, self.turned))] for s in (good, bad)], axis=1)

    def table(self, a: int = 0, b: int | None = None) -> Any:
        """[b - a, d] rows, sparse beyond 1000 names."""
        values, about = self.values[a:b], self.about[a:b]
        more = self.more[a:b] if len(self.extra) else np.zeros((len(values), 0))
        first, last = np.searchsorted(self.turned, [a, a + len(values)])
        row, tags, sign = self.turned[first:last] - a, self.tags[first:last], np.array([1.0, 1.0, -1.0, -1.0])
        if len(self.names) > 1000:
            return self._sparse(values, about, more, row, tags, sign)
        out = np.zeros((len(values), len(self.names)))
        out[:, self.plain] = values
        for k in np.unique(about).tolist():
            mine = np.flatnonzero(about == k)
            out[mine[:, None], self.columns[k]] = values[mine]
        out[row[:, None], tags] = sign
        out[:, self.extra] = more
        return out

    def _sparse(self, values: Any, about: Any, more: Any, row: Any, tags: Any, sign: Any) -> Any:
        from scipy.sparse import coo_array

        n, m, e = len(values), len(NAMES), len(self.extra)
        every = np.arange(n)
        parts = [
            (np.repeat(every, m), np.tile(self.plain, n), values.ravel()),
            (np.repeat(every, m), self.columns[about].ravel(), values.ravel()),
            (np.repeat(row, 4), tags.ravel(), np.tile(sign, len(row))),
            (np.repeat(every, e), np.tile(self.extra, n), more.ravel()),
        ]
        rows, columns, whole = (np.concatenate(x) for x in zip(*parts, strict=True))
        there = whole != 0
        return coo_array((whole[there], (rows[there], columns[there])), shape=(n, len(self.names))).tocsr()

    @property
    def small(self) -> bool:
        """Whether it is worth a table of its own."""
        return self.shape[0] * self.shape[1] <= CELLS

    def part(self, rows: np.ndarray) -> Part:
        """The rows, ascending, as what multiplies as a table."""
        return Part(self, rows)


class Part:
    """Rows of differences that are multiplied a block at a time: `part @ w` and `part.T @ r` as of the table, but for the order
    in which floats are added."""

    def __init__(self, of: Differences, rows: np.ndarray) -> None:
        self.of, self.rows, self.shape = of, rows, (len(rows), of.shape[1])
        self.T = _Turned(self)
        place = np.searchsorted(rows, of.turned)
        place[place == len(rows)] = 0
        mine = rows[place] == of.turned
        self.turned, self.tags = place[mine], of.tags[mine]  # places of rows whose sides have other tags, their columns

    def blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(first place, last place, rows)."""
        for a in range(0, len(self.rows), BLOCK):
            yield a, min(a + BLOCK, len(self.rows)), self.rows[a : a + BLOCK]

    def __matmul__(self, w: np.ndarray) -> np.ndarray:
        of, out = self.of, np.zeros(len(self.rows))
        weight = w[of.plain] + w[of.columns]  # [kinds, 14]
        for a, b, rows in self.blocks():
            about, values = of.about[rows], of.values[rows]
            out[a:b] = values @ weight[about[0]] if (about == about[0]).all() else (values * weight[about]).sum(axis=1)
            if len(of.extra):
                out[a:b] += of.more[rows] @ w[of.extra]
        out[self.turned] += w[self.tags] @ [1.0, 1.0, -1.0, -1.0]
        return out

    def under(self, r: np.ndarray) -> np.ndarray:
        """[d] the sum of the rows, each times its number in r [rows]."""
        of, out = self.of, np.zeros(self.shape[1])
        for a, b, rows in self.blocks():
            about, values, mine = of.about[rows], of.values[rows], r[a:b]
            if (about == about[0]).all():
                whole = (mine @ values)[None]
                here = about[:1]
            else:
                order = np.argsort(about, kind="stable")
                here, first = np.unique(about[order], return_index=True)
                whole = np.add.reduceat((values * mine[:, None])[order], first, axis=0)
            out[of.columns[here]] += whole
            out[of.plain] += whole.sum(axis=0)
            if len(of.extra):
                out[of.extra] += mine @ of.more[rows]
        np.add.at(out, self.tags, r[self.turned][:, None] * [1.0, 1.0, -1.0, -1.0])
        return out

    def tables(self) -> Iterator[Any]:
        """The rows as tables, one after the other."""
        for a in range(0, self.of.shape[0], BLOCK):
            rows = self.rows[np.searchsorted(self.rows, a) : np.searchsorted(self.rows, a + BLOCK)]
            if len(rows):
                yield self.of.table(a, a + BLOCK)[rows - a]


class _Turned:
    def __init__(self, of: Part) -> None:
        self.of = of

    def __matmul__(self, r: np.ndarray) -> np.ndarray:
        return self.of.under(r)


def reader(prompt: Sequence[Message]) -> Callable[[str], tuple[str, tuple[float, ...]]]:
    """(tag, values of NAMES) of an answer to `prompt`: what they take from the prompt is read once, for both sides of a
    pair."""
    prompt_tokens = tokens(next((m.content for m in reversed(prompt) if m.role == "user"), ""))
    read = [m.content for m in prompt if m.role == "tool"]
    earlier = set(tokens(" ".join(m.content for m in prompt if m.role == "assistant")))
    last = read[-1].split("\n") if read else []
    lines = [set(tokens(line)) for line in last]
    question, numbers = set(prompt_tokens), _numbers(prompt_tokens)
    context = set(tokens(prompt[-2].content)) if read else question
    in_last, in_any = set(tokens(" ".join(last))), set(tokens(" ".join(read)))
    told = question | earlier | in_any

    def of(answer: str) -> tuple[str, tuple[float, ...]]:
        tagged = _TAGGED.search(answer)
        tag, payload = (tagged[1], tagged[2]) if tagged else ("", answer)
        words = _words(payload)
        final, working = set(words), tokens(answer[: tagged.start()] if tagged else "")
        beside = [line for line in lines if final and final <= line]
        return tag, (
            len(answer) / 50,
            len(words) / 5,
            share(final, question),
            share(question, final),
            jaccard(_numbers(Counter(words)), numbers) if numbers else 0.0,
            share(final, working.keys()),
            jaccard(Counter(words), working) if working else 0.0,
            share(final, earlier),
            share(final, in_last),
            share(final, in_any),
            share(final, lines[0]) if lines else 0.0,
            max((share(context, line) for line in beside), default=0.0),
            max((share(question, line) for line in beside), default=0.0),
            len(final & told) / len(final) if final else 0.0,
        )

    return of


def kind(prompt: Sequence[Message]) -> str:
    """The kind of a prompt: its number of results read (up to 2), or the first word of a question that has numbers in
    it."""
    question = next((m.content for m in reversed(prompt) if m.role == "user"), "")
    read = sum(m.role == "tool" for m in prompt)
    first = next(iter(re.findall(r"\w+", question.lower())), "")
    return first if not read and len(re.findall(r"\d+", question)) > 1 else f"{min(read, 2)} read"


def tokens(text: str) -> Counter[str]:
    return Counter(_words(text)) if text else Counter()


def _words(text: str) -> list[str]:
    """The words and signs of a text in lower case: what _TOKEN finds, for ASCII in half of its time."""
    if not text.isascii():
        return _TOKEN.findall(text.lower())
    spaced = text.translate(_SPACED)
    for sign in _SIGNS:
        if sign in spaced:
            spaced = spaced.replace(sign, f" {sign} ")
    return spaced.split()


def _numbers(words: Counter[str]) -> Counter[str]:
    return Counter({w: n for w, n in words.items() if w.isdigit()})


def share(a: AbstractSet[str], b: AbstractSet[str]) -> float:
    """The share of the words of a that occur in b; 0 where a is empty."""
    return len(a & b) / len(a) if a and b else 0.0


def jaccard(a: Counter[str], b: Counter[str]) -> float:
    """Multiset Jaccard similarity; 0 where one is empty."""
    if not a or not b:
        return 0.0
    both = sum(min(a[w], b[w]) for w in a.keys() & b.keys())
    return both / (a.total() + b.total() - both)
