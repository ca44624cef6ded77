"""A knowledge base in a folder, read as far as questions need it: no object for a fact, an entity or a passage.

The postings say what is linked, kb.sqlite proves, the passages are columns of texts from which a page is put together
when it is opened. `facts` and `entities` look each one up in kb.sqlite. What is made of it is what is made of the same
base in memory (`synth.knowledge.kb`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

from synth.knowledge.kb import KB, Entity, Fact, Relation, both_ways, by_name
from synth.knowledge.orders import inverse
from synth.knowledge.postings import Postings, Texts
from synth.knowledge.reading import Reader
from synth.questions.fuzzy.graph import Graph
from synth.questions.fuzzy.lexicon import Lexicon
from synth.questions.fuzzy.phrases import symmetric
from synth.questions.reprove import Held
from synth.search.bm25 import Ranking
from synth.search.searchers import World
from tasks.core.errors import UserError
from tasks.knowledge import knowledge

pc: Any = compute  # its functions are made when it is imported, so that no checker of types knows them
_BATCH = 65_536  # passages


class Stored:
    """postings; relations: by name, in their order; aliases: entity id -> further names, of those that have any."""

    def __init__(self, folder: Path) -> None:
        """Of a folder of `espalier kb build`. Raises UserError where its files are not of one base."""
        self.folder = folder
        try:
            self.postings = Postings.load(folder / "postings.npz")
        except ValueError as error:
            raise UserError(str(error)) from error
        if len(self.postings) != parquet.read_metadata(folder / "facts.parquet").num_rows:
            raise UserError(
                f"postings.npz and facts.parquet of {folder} differ: build it anew with `espalier kb build`"
            )
        self.relations: Mapping[str, Relation] = {r.name: r for r in self.postings.relations}
        named = parquet.read_table(folder / "entities.parquet", columns=["id", "aliases"])
        named = named.filter(pc.greater(pc.list_value_length(named["aliases"]), 0))
        rows = zip(named["id"].to_pylist(), named["aliases"].to_pylist(), strict=True)
        self.aliases = {id_: tuple(more) for id_, more in rows}

    @property
    def entities(self) -> Mapping[str, Entity]:
        """As `KB.entities`."""
        return _Rows(self, Entity, "id")

    @property
    def facts(self) -> Mapping[str, Fact]:
        """As `KB.facts`."""
        return _Rows(self, Fact, "id")

    def facts_of(self, subject: str, relation: str) -> tuple[Fact, ...]:
        """As `KB.facts_of`, in another order."""
        return self._facts("subject = ? AND relation = ?", subject, relation)

    def facts_to(self, relation: str, value: str) -> tuple[Fact, ...]:
        """As `KB.facts_to`, in another order."""
        column = "literal" if self.relations[relation].literal else "object"
        return self._facts(f"relation = ? AND {column} = ?", relation, value)

    def forward(self, subject: str, relation: str) -> tuple[str, ...]:
        """As `KB.forward`, in another order."""
        return tuple(f.value for f in self.facts_of(subject, relation))

    def backward(self, relation: str, value: str) -> tuple[str, ...]:
        """As `KB.backward`, in another order."""
        return tuple(f.subject for f in self.facts_to(relation, value))

    def _facts(self, where: str, *values: str) -> tuple[Fact, ...]:
        names = ", ".join(f.name for f in fields(Fact))
        return tuple(Fact(**_named(Fact, row)) for row in self.rows(f"SELECT {names} FROM fact WHERE {where}", *values))

    def pairs(self, relation: str) -> Iterator[tuple[str, str]]:
        """As `KB.pairs`, in another order."""
        subjects, values = self.postings.block(self.postings.number[relation], True)
        p = self.postings
        return ((p.value(x), p.value(y)) for x, y in zip(subjects.tolist(), values.tolist(), strict=True))

    def mutual(self, relation: str) -> bool:
        """As `KB.mutual`."""
        return both_ways(self.pairs(relation))

    def called(self, type: str, name: str) -> list[str]:
        """As `KB.called`."""
        return self._called.get((type, name), [])

    @cached_property
    def _called(self) -> dict[tuple[str, str], list[str]]:
        return by_name(self.entities.values())

    @cached_property
    def _disk(self) -> sqlite3.Connection:
        return self.connection(write=False)

    def rows(self, query: str, *values: str) -> sqlite3.Cursor:
        """The rows of a query on kb.sqlite."""
        return self._disk.execute(query, values)

    def held(self) -> Held:
        """What a proof reads of it."""
        write = any(symmetric(r) for r in self.relations.values())
        return Held(self.connection(write=write), self.postings, self.aliases)

    def world(self) -> World:
        """As `World.of`."""
        priors: dict[tuple[str, bool], tuple[str, float]] = {}
        for name, number in self.postings.number.items():
            for forward in (True, False):
                ends, times = np.unique(self.postings.block(number, not forward)[0], return_counts=True)
                if len(ends):
                    best = int(times.argmax())  # of equals the first, in the order of the ids
                    priors[name, forward] = self.postings.text(int(ends[best])), int(times[best]) / int(times.sum())
        lexicon = Lexicon(Graph(self.postings))
        return World(self, Reader(self.relations.values(), lexicon.known, lexicon.says), priors)  # type: ignore[arg-type]

    @staticmethod
    def there(folder: Path) -> bool:
        """Whether a folder has all that is read here; that of the stage `kb` has tables alone."""
        names = ("postings.npz", "kb.sqlite", "facts.parquet", "entities.parquet", "passages.parquet")
        return all((folder / name).exists() for name in names)

    def text(self, value: str) -> str:
        """As `KB.text`."""
        i = self.postings.ids.find(value)
        return value if i < 0 else self.postings.names[i]

    def listed(self, relation: str) -> Iterator[str]:
        """As `KB.listed`, in another order."""
        numbers, times = np.unique(self.postings.block(self.postings.number[relation], False)[0], return_counts=True)
        for i, n in zip(numbers.tolist(), times.tolist(), strict=True):
            yield from [self.postings.value(i)] * n

    def connection(self, *, write: bool) -> sqlite3.Connection:
        """The tables of the base: read from their file, or a copy in a temporary file, where they may be changed."""
        disk = sqlite3.connect(f"{(self.folder / 'kb.sqlite').resolve().as_uri()}?mode=ro", uri=True)
        if not write:
            return disk
        copy = sqlite3.connect("")
        disk.backup(copy)
        disk.close()
        return copy

    # ---- passages

    @cached_property
    def passages(self) -> tuple[pa.Array, pa.Array]:
        """(titles, texts) of the passages in their order."""
        table = parquet.read_table(self.folder / "passages.parquet", columns=["title", "text"])
        return _whole(table["title"]), _whole(table["text"])

    def ranking(self) -> Ranking:
        """The ranking of the passages, each below its title."""
        return Ranking.of(self._lines())

    def _lines(self) -> Iterator[str]:
        titles, texts = self.passages
        for at in range(0, len(titles), _BATCH):
            some = zip(titles[at : at + _BATCH].to_pylist(), texts[at : at + _BATCH].to_pylist(), strict=True)
            yield from [f"{title} {text}" for title, text in some]

    def passage(self, i: int) -> tuple[str, str]:
        """(title, text) of a passage."""
        titles, texts = self.passages
        return titles[i].as_py(), texts[i].as_py()

    @cached_property
    def open(self) -> Callable[[str], str]:
        """As `synth.questions.fuzzy.oracle.pages_of`: name -> the texts of the passages about it, and of those that
        mention it, each once, a line each."""
        names, keys = self._names()
        texts = self.passages[1]
        n = len(texts)

        def page(name: str) -> str:
            i = names.find(name)
            if i < 0:
                return ""
            a, b = keys.searchsorted([i * n, (i + 1) * n])
            return "\n".join(dict.fromkeys(texts.take(pa.array(keys[a:b] - i * n)).to_pylist()))

        return lru_cache(maxsize=4096)(page)

    def _names(self) -> tuple[Texts, np.ndarray]:
        """(all titles of passages and names or values that they mention, sorted; [pairs] int64 sorted, number of the name
        * passages + passage)."""
        titles = self.passages[0]
        stated = parquet.read_table(self.folder / "passages.parquet", columns=["facts"])["facts"]
        owner = np.repeat(np.arange(len(titles)), pc.list_value_length(stated).to_numpy())
        ids = pc.list_flatten(stated)
        facts = parquet.read_table(self.folder / "facts.parquet", columns=["id", "object", "literal"])
        if not ids.equals(facts["id"]):
            facts = facts.take(pc.index_in(ids, value_set=facts["id"].combine_chunks()))
        del ids, stated
        entities = parquet.read_table(self.folder / "entities.parquet", columns=["id", "name"])
        codes, words = [], []
        for column in (titles, _whole(facts["object"]), _whole(facts["literal"])):
            coded = pc.dictionary_encode(column)
            codes.append(coded.indices.fill_null(-1).to_numpy())
            words.append(coded.dictionary)
        place = pc.index_in(words[1], value_set=_whole(entities["id"]))
        words[1] = pc.coalesce(_whole(entities["name"]).take(place), words[1])
        coded = pc.dictionary_encode(pa.concat_arrays(words))
        order = pc.sort_indices(coded.dictionary).to_numpy()
        rank = inverse(order)
        of, at, keys = rank[coded.indices.to_numpy()], 0, []
        for code, some, passage in zip(codes, words, (np.arange(len(titles)), owner, owner), strict=True):
            there = code >= 0
            keys.append(of[at + code[there]] * len(titles) + passage[there])
            at += len(some)
        return _texts(coded.dictionary.take(pa.array(order))), np.unique(np.concatenate(keys))


def opened(folder: Path) -> KB:
    """The knowledge base in a folder: read from its files where all of them are there (a `Stored` has what is asked of a
    `KB`, in an order of its own), else in memory."""
    return cast(KB, Stored(folder)) if Stored.there(folder) else knowledge.kb_at(folder)


class _Rows(Mapping[str, Any]):
    """A table of a base by its key: looked up in kb.sqlite; all of them, in their order, from the tables."""

    def __init__(self, base: Stored, cls: type, key: str) -> None:
        self._base, self._cls, self._key, self._table = base, cls, key, cls.__name__.lower()
        self._names = ", ".join(f'"{f.name}"' for f in fields(cls))
        plural = {"entity": "entities", "fact": "facts"}[self._table]
        self._path = base.folder / f"{plural}.parquet"

    def __getitem__(self, key: str) -> Any:
        row = self._base.rows(f"SELECT {self._names} FROM {self._table} WHERE {self._key} = ?", key).fetchone()
        if row is None:
            raise KeyError(key)
        return self._cls(**_named(self._cls, row))

    def __contains__(self, key: object) -> bool:
        query = f"SELECT 1 FROM {self._table} WHERE {self._key} = ?"
        return isinstance(key, str) and self._base.rows(query, key).fetchone() is not None

    def __len__(self) -> int:
        return parquet.read_metadata(self._path).num_rows

    def __iter__(self) -> Iterator[str]:
        for batch in parquet.ParquetFile(self._path).iter_batches(_BATCH, columns=[self._key]):
            yield from batch.column(0).to_pylist()

    def values(self) -> Any:
        """All of them, made as they are asked for."""
        names = [f.name for f in fields(self._cls)]
        for batch in parquet.ParquetFile(self._path).iter_batches(_BATCH, columns=names):
            for row in batch.to_pylist():
                yield self._cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})


def _named(cls: type, row: tuple[Any, ...]) -> dict[str, Any]:
    """The fields of a row of kb.sqlite."""
    names = [f.name for f in fields(cls)]
    return {k: tuple(json.loads(v)) if k == "aliases" else v for k, v in zip(names, row, strict=True)}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, of more than 2 GB too."""
    return pa.concat_arrays([c.cast(pa.large_string()) for c in column.chunks] or [pa.array([], pa.large_string())])


def _texts(array: pa.Array) -> Texts:
    _, ends, blob = array.buffers()
    last = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(blob, np.uint8) if blob is not None else np.zeros(0, np.uint8)
    return Texts(data[last[0] :], last[1:] - last[0])
