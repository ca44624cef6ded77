"""Pages as columns, and their tables in an index: some pages at a time, without an object for each line."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from json.encoder import encode_basestring as quote

import numpy as np
import pyarrow as pa

from synth.knowledge.arrow_texts import TEXT, ArrowTexts, contents, in_json, joined, pc
from synth.knowledge.sqlite_pages import SqlitePages
from synth.search import pages as of_pages
from synth.search.pages import LINE, Page, lines_of

_PAGES, _LETTERS = 2048, 1 << 22  # pages, and letters on them, that are made a block
_TOLD, _SORTED = 256, 65_536  # pieces of lines of other pages, and names, that are written together
# what `str.split` takes for a blank, but for single ones between words
_BLANKS = r"[\x00-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]|^ | $|  |^$"


@dataclass(kw_only=True)
class Block:
    """ids, titles, aliases   [pages] as of `Page`
    lines      pa.large_string, the lines of all pages, as `lines_of` gives them     sizes   [pages] int64, how many each has
    mentions   [pages] lines of other pages, in pieces: how many lines, and their JSON without brackets (`in_pieces`)
    """

    ids: list[str]
    titles: list[str]
    aliases: list[tuple[str, ...]]
    lines: pa.Array
    sizes: np.ndarray
    mentions: list[Iterable[tuple[int, str]]]

    @staticmethod
    def of(
        ids: list[str],
        titles: list[str],
        aliases: list[tuple[str, ...]],
        texts: pa.Array,
        sizes: np.ndarray,
        mentions: list[Iterable[tuple[int, str]]],
        mentioned: np.ndarray,
    ) -> Block:
        """texts: pa.large_string, of page i `sizes[i]` texts; mentioned [pages] bool, whether a page has lines of others. One
        that has no line at all has its title."""
        lines, sizes = _cut(texts, sizes)
        bare = np.flatnonzero((sizes == 0) & ~mentioned)
        if len(bare):
            places = np.insert(np.arange(len(lines)), np.cumsum(sizes)[bare], len(lines) + np.arange(len(bare)))
            lines = pa.concat_arrays([lines, pa.array([titles[i] for i in bare.tolist()], TEXT)])
            lines, sizes[bare] = lines.take(pa.array(places)), 1
        return Block(ids=ids, titles=titles, aliases=aliases, lines=lines, sizes=sizes, mentions=mentions)

    def ranked(self) -> pa.Array:
        """[lines] each below its title, as it is ranked."""
        pages = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return joined(pa.array(self.titles, TEXT).take(pa.array(pages)), " ", self.lines)


def blocks_of(pages: Iterable[Page | Block]) -> Iterator[Block]:
    """Pages in blocks."""
    waiting: list[Page] = []
    letters = 0
    for page in pages:
        if isinstance(page, Block):
            if waiting:
                yield _block(waiting)
                waiting, letters = [], 0
            yield page
            continue
        waiting.append(page)
        letters += len(page.text)
        if len(waiting) >= _PAGES or letters >= _LETTERS:
            yield _block(waiting)
            waiting, letters = [], 0
    if waiting:
        yield _block(waiting)


def write(file: SqlitePages, pages: Iterable[Page | Block]) -> Generator[pa.Array, None, str]:
    """Writes pages into the empty tables `page`, `line`, `mention` and `name` of an index, and yields the lines that are
    ranked. Returns 64 hex digits of all pages in their order."""
    number = ranked = mentioned = 0
    content, names = hashlib.sha256(), list[pa.Array]()
    of_names = array("i")
    with file.fill("page") as page, file.fill("line") as line, file.fill("mention") as mention:
        for block in blocks_of(pages):
            n, lines = len(block.ids), len(block.lines)
            starts = ranked + np.cumsum(block.sizes) - block.sizes
            of = np.repeat(np.arange(number, number + n), block.sizes)
            line.add([pa.nulls(lines), pa.array(of), block.lines], np.arange(ranked, ranked + lines))
            texts, ends = listed(block.lines)
            begin, firsts, own = 0, [], list[str]()
            told, numbers = list[str](), list[int]()
            for i, (id, title, aliases, size) in enumerate(
                zip(block.ids, block.titles, block.aliases, block.sizes.tolist(), strict=True)
            ):
                known = sorted({x.casefold() for x in (title, id, *aliases)})
                own += known
                of_names.extend([number + i] * len(known))
                # `synth.types.digest` of id, title, names, lines, and lines of other pages
                total = hashlib.sha256(f"[{quote(id)},{quote(title)},[{','.join(map(quote, known))}],[".encode())
                total.update(texts[ends[begin] : max(ends[begin], ends[begin + size] - 1)])
                total.update(b"],[")
                begin += size
                firsts.append(mentioned)
                for many, text in block.mentions[i]:
                    total.update(f"{',' if mentioned > firsts[-1] else ''}{text}".encode())
                    told.append(f"[{text}]")
                    numbers.append(mentioned)
                    mentioned += many
                    if len(told) >= _TOLD:
                        mention.add([pa.nulls(len(told)), pa.array(told, TEXT)], np.array(numbers))
                        told, numbers = [], []
                total.update(b"]]")
                content.update(total.hexdigest().encode())
            mention.add([pa.nulls(len(told)), pa.array(told, TEXT)], np.array(numbers, np.int64))
            begins = pa.array(firsts, pa.int64()), pa.array(np.diff(firsts, append=mentioned))
            heads = pa.array(block.ids, TEXT), pa.array(block.titles, TEXT), pa.array(starts), pa.array(block.sizes)
            page.add([pa.nulls(n), *heads, *begins], np.arange(number, number + n))
            names.append(pa.array(own, TEXT))
            number, ranked = number + n, ranked + lines
            yield block.ranked()
    texts = pa.concat_arrays(names or [pa.array([], TEXT)])
    names.clear()
    order, of = ArrowTexts(texts).ranked(), np.frombuffer(of_names, np.int32) if of_names else np.zeros(0, np.int32)
    with file.fill("name") as name:
        for at in range(0, len(order), _SORTED):
            some = order[at : at + _SORTED]
            name.add([texts.take(pa.array(some)), pa.array(of[some])])
    return content.hexdigest()


def _block(pages: Sequence[Page]) -> Block:
    return Block.of(
        [p.id for p in pages],
        [p.title for p in pages],
        [p.aliases for p in pages],
        pa.array([p.text for p in pages], TEXT),
        np.ones(len(pages), np.int64),
        [in_pieces(p.mentions) for p in pages],
        np.array([bool(p.mentions) for p in pages]),
    )


def _cut(texts: pa.Array, sizes: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The lines of texts, and how many there are of what has `sizes` texts each."""
    odd = pc.or_(pc.match_substring_regex(texts, _BLANKS), pc.greater(pc.utf8_length(texts), LINE))
    if not pc.any(odd).as_py():
        return texts, sizes
    cut = [list(lines_of(text)) for text in texts.filter(odd).to_pylist()]
    odd = odd.to_numpy(zero_copy_only=False)
    counts = np.ones(len(texts), np.int64)
    counts[odd] = [len(lines) for lines in cut]
    places = np.repeat(np.arange(len(texts)), counts)
    new = pa.array(list(chain.from_iterable(cut)), TEXT)
    places[np.repeat(odd, counts)] = len(texts) + np.arange(len(new))
    ends = np.concatenate([[0], np.cumsum(counts)])[np.concatenate([[0], np.cumsum(sizes)])]
    return pa.concat_arrays([texts, new]).take(pa.array(places)), np.diff(ends)


def listed(texts: pa.Array) -> tuple[memoryview, list[int]]:
    """(the JSON of each text and a comma, one after the other; where each begins, and the end)."""
    quoted = joined(in_json(texts), ",")
    return contents(quoted), np.frombuffer(quoted.buffers()[1], np.int64)[: len(texts) + 1].tolist()


def in_pieces(lines: Iterable[str] | Iterable[pa.Array]) -> Iterator[tuple[int, str]]:
    """(how many, their JSON without brackets) of lines, at most `pages.MENTIONS` together; given as texts, or as arrays of which
    all but the last have a multiple of that many."""
    waiting: list[str] = []
    for some in lines:
        if isinstance(some, str):
            waiting.append(some)
            if len(waiting) < of_pages.MENTIONS:
                continue
            some, waiting = pa.array(waiting, TEXT), []
        yield from _pieces(some)
    if waiting:
        yield from _pieces(pa.array(waiting, TEXT))


def _pieces(texts: pa.Array) -> Iterator[tuple[int, str]]:
    data, starts = listed(texts)
    for at in range(0, len(texts), of_pages.MENTIONS):
        end = min(len(texts), at + of_pages.MENTIONS)
        yield end - at, str(data[starts[at] : starts[end] - 1], "utf-8")
