"""A search engine over pages of documents and of a knowledge base: `search`, `open` and `find`, from an index on disk.

    search(query)        the k best *lines* of all pages by BM25 (synth/search/bm25.py), each below the title of its
                         page; of `SearchIndex.hybrid` by synth/search/hybrid.py
    open(page, part)     a page by its title, another name of it, or its id, in parts of about `PART` characters
    find(words, page)    lines that hold these words in this order (SQLite FTS5), on one page or on all

All three return text, and "nothing found" for nothing; what looks like the markup of a chat is spelled apart
(`documents.harmless`). A line is a line of a page, cut at sentences where it is longer than `LINE` characters. A page
of a knowledge base has a line for each passage about its entity, and below them those of other pages that mention it:
these are opened and found there, but ranked on their own page only. Same index, same call, same bytes: that is what the
replay of a demonstration checks.
"""

from __future__ import annotations

import json
import math
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synth.knowledge.documents import Document, harmless
from synth.knowledge.kb import KB, Relation, passages
from synth.knowledge.postings import as_number
from synth.search.bm25 import Ranking, words
from synth.search.embeddings import Embedder
from synth.search.hybrid import ALIKE, Hybrid, Vectors
from synth.search.pages import Page

if TYPE_CHECKING:
    import pyarrow as pa

    from synth.search import blocks

NOTHING = "nothing found"
PART = 1600  # characters
_SCHEMA = """
CREATE TABLE page (number INTEGER PRIMARY KEY, id TEXT NOT NULL, title TEXT NOT NULL, line INTEGER NOT NULL,
    lines INTEGER NOT NULL, mention INTEGER NOT NULL, mentions INTEGER NOT NULL);
CREATE TABLE name (text TEXT NOT NULL, page INTEGER NOT NULL, PRIMARY KEY (text, page)) WITHOUT ROWID;
CREATE TABLE line (rank INTEGER PRIMARY KEY, page INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE mention (number INTEGER PRIMARY KEY, texts TEXT NOT NULL);
CREATE TABLE content (digest TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(text, content='line', content_rowid='rank', {tokens});
"""
_TOKENS = 'tokenize="unicode61 remove_diacritics 0"'
_WORDS = 1 << 24  # bytes of words that FTS5 sorts in memory


def pages_of(documents: Iterable[Document]) -> Iterator[Page]:
    """Documents as pages."""
    for d in documents:
        yield Page(id=d.id, title=d.title, text=d.text, aliases=d.aliases)


def pages_of_kb(kb: KB) -> Iterator[Page]:
    """A page for every entity that anything is said about, and a table for every relation of literals."""
    about: dict[str, list[str]] = {}
    mention: dict[str, list[str]] = {}
    for p in passages(kb):
        about.setdefault(p.entity, []).append(p.text)
        for thing in dict.fromkeys(kb.facts[f].object for f in p.facts):
            if thing is not None and thing != p.entity:
                mention.setdefault(thing, []).append(p.text)
    for e in kb.entities.values():
        if e.id in about or e.id in mention:
            text, mentions = "\n".join(about.get(e.id, ())), tuple(mention.get(e.id, ()))
            yield Page(id=e.id, title=e.name, text=text, aliases=e.aliases, mentions=mentions)
    tables: dict[str, list[tuple[float, str, str]]] = {}
    for f in kb.facts.values():
        kind = kb.relations[f.relation].range
        if f.literal is not None:
            number = as_number(f.literal, date=kind == "date") if kind != "string" else math.nan
            tables.setdefault(f.relation, []).append(
                (math.inf if math.isnan(number) else number, f.literal, kb.text(f.subject))
            )
    for name, values in tables.items():
        r = kb.relations[name]
        rows = tuple(f"{subject}: {value}" for _, value, subject in sorted(values))
        if len(rows) > 2:
            yield Page(id=f"table:{r.name}", title=table_title(r), text="", mentions=rows)


def table_title(relation: Relation) -> str:
    """The page that lists all values of a relation, smallest first."""
    return f"table of {relation.domain.replace('_', ' ')} by {relation.label}"


def build_index(pages: Iterable[Page | blocks.Block], folder: Path | None = None) -> SearchIndex:
    """The index over `pages`, in `folder` (made anew) or in memory. Raises ValueError for no pages and for
    an id given twice."""
    from synth.knowledge.sqlite_pages import SqlitePages  # Arrow: only building needs it
    from synth.search import blocks

    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
        path = Path(place) / "pages.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(_SCHEMA.format(tokens=_TOKENS))
        finishing: list[Future[None]] = []

        def written() -> Iterator[pa.Array]:
            with SqlitePages(path) as file:
                digest = yield from blocks.write(file, pages)
            finishing.append(beside.submit(_finish, path, digest))

        with ThreadPoolExecutor(1) as beside:  # SQLite sorts beside the ranking: neither needs the interpreter
            texts = written()
            first = next(texts, None)
            if first is None:
                raise ValueError("there are no pages to search: check the sources")
            ranking = Ranking.of_batches(chain([first], texts), None if folder is None else folder / "ranking")
            finishing[0].result()
        if folder is not None:
            return _opened(folder, ranking)
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        with closing(sqlite3.connect(path)) as disk:
            disk.backup(connection)
        return SearchIndex(connection, ranking)


def _finish(path: Path, digest: str) -> None:
    """What SQLite itself sorts: ids, and the words of lines."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16384")
        try:
            connection.execute("CREATE UNIQUE INDEX page_id ON page (id)")
        except sqlite3.IntegrityError as error:
            sql = "SELECT id FROM page GROUP BY id HAVING count(*) > 1 ORDER BY number"
            (twice,) = connection.execute(sql).fetchone()
            raise ValueError(f"two pages have the id {twice!r}: give each an id of its own") from error
        connection.execute("INSERT INTO words (words, rank) VALUES ('hashsize', ?)", (_WORDS,))
        connection.execute("INSERT INTO words (words) VALUES ('rebuild')")
        connection.execute("INSERT INTO content VALUES (?)", (digest,))
        connection.commit()


def open_index(folder: Path) -> SearchIndex:
    """An index on disk, read-only. Raises ValueError where the folder holds none."""
    return _opened(folder, Ranking.load(folder / "ranking"))


def _opened(folder: Path, ranking: Ranking) -> SearchIndex:
    try:
        connection = sqlite3.connect(
            f"{(folder / 'pages.sqlite').resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )
        lines = connection.execute(
            "SELECT sum(lines), sum(mentions), (SELECT digest FROM content) FROM page"
        ).fetchone()[0]
    except sqlite3.Error as error:
        raise ValueError(f"{folder} holds no pages ({error}): build the index anew") from error
    if lines != len(ranking):
        raise ValueError(
            f"the pages in {folder} have {lines} lines and the ranking {len(ranking)}: build the index anew"
        )
    return SearchIndex(connection, ranking)


@dataclass(frozen=True)
class Line:
    """A line of a page, as it stands."""

    page: str  # id
    title: str
    text: str


class SearchIndex:
    """Made by `build_index` or `open_index`. One thread at a time."""

    def __init__(self, connection: sqlite3.Connection, ranking: Ranking | Hybrid) -> None:
        self._connection, self._ranking = connection, ranking
        self._indexed: set[int] = set()  # pages of which the mentions can be found by their words

    def hybrid(self, embed: Embedder | None = None, follow: int = 0, folder: Path | None = None) -> SearchIndex:
        """The same pages, whose lines are ranked by `Hybrid`. folder: where the vectors are kept, else in memory. Raises
        ValueError for an index that is hybrid already."""
        if isinstance(self._ranking, Hybrid):
            raise ValueError("this index is a hybrid one already: open it anew for another ranking")
        vectors = None
        if embed is not None:
            sql = "SELECT p.title || ' ' || l.text FROM line l JOIN page p ON p.number = l.page ORDER BY l.rank"
            texts = (text for (text,) in self._connection.execute(sql))
            vectors = Vectors.of(texts, len(self._ranking), embed, folder, self.digest())
        ranking = Hybrid(self._ranking, _Lines(self._connection), embed=embed, vectors=vectors, follow=follow)
        return SearchIndex(self._connection, ranking)

    def size(self) -> dict[str, int]:
        """The numbers of pages and of lines (those that mention a page counted there too)."""
        pages, lines = self._connection.execute("SELECT count(*), sum(lines + mentions) FROM page").fetchone()
        return {"page": pages, "line": lines}

    def digest(self) -> str:
        """64 hex digits of all pages in their order: what a recording belongs to."""
        return self._connection.execute("SELECT digest FROM content").fetchone()[0]

    # ---- as text, for a model

    def search(self, query: str, k: int = 3) -> str:
        """The k best lines, each with its page where it does not name it itself."""
        return _shown(self.hits(query, k))

    def open(self, page: str, part: int = 1) -> str:
        """Part `part` (from 1) of a page. Where several pages bear the name, their ids."""
        pages = self.pages(page)
        if not pages:
            return NOTHING
        if len(pages) > 1:
            return harmless(f"{len(pages)} pages are called {page!r}: " + "; ".join(pages))
        parts = self._parts(pages[0])
        if not 1 <= part <= len(parts):
            return f"the page has {len(parts)} part{'s' * (len(parts) > 1)}"
        more = f"\n(part {part} of {len(parts)})" if len(parts) > 1 else ""
        return harmless(parts[part - 1]) + more

    def find(self, text: str, page: str = "", k: int = 5) -> str:
        """The first k lines that hold these words in this order, on one page or on all."""
        return _shown(self.lines(text, page, k))

    # ---- as values, for a program

    def hits(self, query: str, k: int = 3) -> list[Line]:
        """The k best lines, best first."""
        ranked = self._ranking.top(query, k)
        return [self._line("l.rank = ?", (i,))[0] for i in ranked]

    def pages(self, name: str) -> list[str]:
        """The ids of the pages that bear a name, case ignored; an id is a name of its page alone."""
        if self._connection.execute("SELECT 1 FROM page WHERE id = ?", (name,)).fetchone():
            return [name]
        sql = "SELECT id FROM name JOIN page ON page = number WHERE text = ? ORDER BY number LIMIT 20"
        return [r[0] for r in self._connection.execute(sql, (" ".join(name.split()).casefold(),))]

    def lines(self, text: str, page: str = "", k: int = 5) -> list[Line]:
        """The first k lines with a phrase, in the order of the pages. On a page those of other pages count that mention
        it: their words are indexed when they are first looked for."""
        phrase = words(text)
        if not phrase:
            return []
        match = '"' + " ".join(phrase) + '"'
        if not page:
            return self._line("l.rank IN (SELECT rowid FROM words WHERE words MATCH ?)", [match], k)
        lines: list[Line] = []
        for p in sorted(map(self._page, self.pages(page)), key=lambda p: p.number):
            some = "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"
            lines += self._line(f"l.rank IN ({some})", [match, p.line, p.line + p.lines - 1], k - len(lines))
            if p.mentions and len(lines) < k:
                self._index_mentions(p)
                some = "SELECT rowid FROM mentioned WHERE mentioned MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?"
                values = (match, p.mention, p.mention + p.mentions - 1, k - len(lines))
                lines += [Line(p.id, p.title, self._mention(i)) for (i,) in self._connection.execute(some, values)]
        return lines

    def _line(self, where: str, values: Sequence[object], k: int = 1) -> list[Line]:
        sql = f"SELECT p.id, p.title, l.text FROM line l JOIN page p ON p.number = l.page WHERE {where} ORDER BY l.rank LIMIT {int(k)}"
        return [Line(*row) for row in self._connection.execute(sql, tuple(values))]

    def _page(self, id: str) -> _Place:
        return _Place(*self._connection.execute("SELECT * FROM page WHERE id = ?", (id,)).fetchone())

    def _mentions(self, page: _Place) -> Iterator[str]:
        """The lines of other pages on a page."""
        sql = "SELECT texts FROM mention WHERE number BETWEEN ? AND ? ORDER BY number"
        for (texts,) in self._connection.execute(sql, (page.mention, page.mention + page.mentions - 1)):
            yield from json.loads(texts)

    def _mention(self, number: int) -> str:
        sql = "SELECT number, texts FROM mention WHERE number <= ? ORDER BY number DESC LIMIT 1"
        first, texts = self._connection.execute(sql, (number,)).fetchone()
        return json.loads(texts)[number - first]

    def _index_mentions(self, page: _Place) -> None:
        """The words of the lines of other pages on a page, in a temporary table: most pages are never asked for them."""
        if page.number not in self._indexed:
            run = self._connection.execute
            run(f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.mentioned USING fts5(text, content='', {_TOKENS})")
            rows = zip(count(page.mention), self._mentions(page))
            self._connection.executemany("INSERT INTO temp.mentioned (rowid, text) VALUES (?, ?)", rows)
            self._connection.commit()
            self._indexed.add(page.number)

    def _parts(self, page: str) -> list[str]:
        place = self._page(page)
        sql = "SELECT text FROM line WHERE rank BETWEEN ? AND ? ORDER BY rank"
        own = self._connection.execute(sql, (place.line, place.line + place.lines - 1))
        parts, length = [[]], 0
        for line in chain((text for (text,) in own), self._mentions(place)):
            if parts[-1] and length + len(line) > PART:
                parts.append([])
                length = 0
            parts[-1].append(line)
            length += len(line)
        return ["\n".join(lines) for lines in parts]


class _Lines:
    """The lines of an index for `Hybrid`: a name leads to the lines of pages with that title, with an addition in brackets
    or without. A name of more than `ALIKE` pages leads nowhere."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.named = lru_cache(maxsize=65536)(self._named)

    def at(self, place: int) -> tuple[int, str]:
        return self._connection.execute("SELECT page, text FROM line WHERE rank = ?", (place,)).fetchone()

    def _named(self, name: str) -> list[tuple[int, range]]:
        low = name.casefold()
        sql = "SELECT DISTINCT number, line, lines FROM name JOIN page ON page = number WHERE text = ? OR text >= ? AND text < ? LIMIT ?"
        rows = self._connection.execute(sql, (low, f"{low} (", f"{low} )", ALIKE + 1)).fetchall()
        return [] if len(rows) > ALIKE else [(page, range(line, line + n)) for page, line, n in rows]


class _Place(NamedTuple):
    """A row of the table `page`: its lines begin with rank `line`, those of other pages with the number `mention`."""

    number: int
    id: str
    title: str
    line: int
    lines: int
    mention: int
    mentions: int


def _shown(lines: Sequence[Line]) -> str:
    texts = (x.text if x.title.lower() in x.text.lower() else f"{x.title}: {x.text}" for x in lines)
    return harmless("\n".join(texts)) or NOTHING
