"""BM25 ranking of short texts, in memory or from disk.

    score(q, d) = sum over words t of q of  idf(t) * tf / (tf + k1 * (1 - b + b * len(d) / mean_len)),   k1 = 1.5, b =
    0.75 idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2))

(the "lucene" variant of BM25S, Lu 2024, arXiv:2407.03618). Scores are float64 and compared after rounding to 9
decimals; equal texts keep their order, so that a replay gives the same bytes anywhere.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import bm25s
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from synth.knowledge.arrow_texts import ArrowTexts

_WORD = re.compile(r"\w+")
_K1, _B = 1.5, 0.75
DIGITS = 9  # decimals in which scores are compared
_DATA, _INDICES, _STARTS = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"  # as bm25s calls them
_VOCABULARY, _WORDS = "vocab.index.json", "vocabulary.json"  # as bm25s calls the words, and as we do
_BATCH = 16_384  # texts that are split together
_CHUNK = 65_536  # texts whose words are looked through together
_BLOCK = 1 << 21  # places of words that are sorted together
_COMMON = 256  # a word in so many texts is common
_KNOWN = 65_536  # words whose numbers are kept once they were asked for
_FEW = 20_000  # so few texts are all scored, which costs less than to look where words are rare; their words have a dictionary


def words(text: str) -> list[str]:
    """The lower-cased words of a text: no stemming and no stop words, so that words match exactly as written."""
    return _WORD.findall((text if text.isascii() else unicodedata.normalize("NFKC", text)).lower())


_LOWER = np.full(256, ord(" "), np.uint8)  # of each byte what `words` makes of it: a blank between words
_LOWER[128:] = np.arange(128, 256)
for _c in filter(_WORD.match, map(chr, range(128))):
    _LOWER[ord(_c)] = ord(_c.lower())


def _numbered(texts: Sequence[str] | pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """(pa.large_string, different words and perhaps an empty one; which of these each word is, int32 [words]; how many words
    each text has, int64 [texts]) of `words` of texts (pa.large_string, or a list), split by Arrow."""
    import pyarrow as pa  # only building needs it
    from pyarrow import compute

    pc: Any = compute  # its functions are made when it is imported, so that no checker of types knows them
    blanked: Any
    if isinstance(texts, pa.Array):
        blanked, plain = texts, pc.string_is_ascii(texts)
        if not pc.all(plain).as_py():
            odd = pc.invert(plain)
            some = [" ".join(words(t)) for t in blanked.filter(odd).to_pylist()]
            blanked = pc.replace_with_mask(texts, odd, pa.array(some, pa.large_string()))
    else:
        blanked = pa.array([t if t.isascii() else " ".join(words(t)) for t in texts], pa.large_string())
    assert not blanked.offset
    _, offsets, data = blanked.buffers()
    lower = _LOWER[np.frombuffer(data, np.uint8)] if data else np.zeros(0, np.uint8)
    split = pc.ascii_split_whitespace(pa.LargeStringArray.from_buffers(len(blanked), offsets, pa.py_buffer(lower)))
    own = split.flatten().dictionary_encode()
    codes = own.indices.to_numpy()
    starts = split.offsets.to_numpy()
    empty = pc.index(own.dictionary, pa.scalar("", own.dictionary.type)).as_py()
    full = codes != empty  # a blank at an end of a text gives an empty word
    kept = np.concatenate([[0], np.cumsum(full)])
    return own.dictionary.cast(pa.large_string()), codes[full].astype(np.int32), np.diff(kept[starts - starts[0]])


class Slices(Protocol):
    """Numbers of which a slice can be taken."""

    def __getitem__(self, part: slice, /) -> np.ndarray: ...


def matrix(
    flat: Slices, sizes: np.ndarray, n_words: int, folder: Path | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(scores float64 and texts int32, both [pairs of a word and a text that has it], how many texts have each word int64
    [words of the block]) of the words in their order, a block of them at a time; the texts of a word are rising. What
    bm25s computes of the same words, bit by bit, without lists of all words and without all pairs in memory.

    flat     int32, the numbers of the words of all texts     sizes   [texts] int32, how many words each has
    folder   where the places of the words are while there are several blocks: eight bytes for each
    """
    n, mean = len(sizes), sizes.mean(dtype=np.float64)
    total = np.zeros(n_words, np.int64)
    for _, words, _ in _chunks(flat, sizes):
        total += np.bincount(words, minlength=n_words)
    np.cumsum(total, out=total)
    firsts = [0]  # the first word of each block, and the end of the last
    while firsts[-1] < n_words:
        before = int(total[firsts[-1] - 1]) if firsts[-1] else 0
        firsts.append(max(firsts[-1] + 1, int(total.searchsorted(before + _BLOCK, "right"))))
    ends = np.concatenate([[0], total[np.array(firsts[1:]) - 1]])  # of the blocks, in places of words
    del total
    for (first, last), keys in zip(pairwise(firsts), _keys(flat, sizes, firsts, ends, folder), strict=True):
        # One common word can be all of a block: no step makes an array of eight bytes a place that it can do without.
        keys = keys.astype(np.int32) if (last - first) * n < 1 << 31 else keys
        keys.sort()
        first_of = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=first_of[1:])
        starts = np.arange(len(keys), dtype=np.int32 if len(keys) < 1 << 31 else np.int64)[first_of]
        times = np.empty(len(starts), np.int32)
        times[-1] = len(keys) - starts[-1]
        np.subtract(starts[1:], starts[:-1], out=times[:-1], casting="unsafe")
        del starts
        keys = keys[first_of]
        del first_of
        word = np.floor_divide(keys, n, out=np.empty(len(keys), np.int32), casting="unsafe")
        text = np.remainder(keys, n, out=np.empty(len(keys), np.int32), casting="unsafe")
        del keys
        frequency = np.bincount(word, minlength=last - first)
        different, place = np.unique(frequency, return_inverse=True)
        idf = np.array([math.log(1 + (n - f + 0.5) / (f + 0.5)) for f in different.tolist()])[place]
        # idf * times / (k1 * ((1 - b) + b * size / mean) + times), each step in the order of bm25s
        scores = sizes[text] * np.float64(_B)
        scores /= mean
        scores += 1 - _B
        scores *= _K1
        scores += times
        np.divide(times, scores, out=scores)
        del times
        for at in range(0, len(word), _BLOCK):
            scores[at : at + _BLOCK] *= idf[word[at : at + _BLOCK]]
        del word
        yield scores, text, frequency


def _chunks(flat: Slices, sizes: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(the first text, the numbers of the words, how many each text has) of some texts at a time."""
    done = 0
    for at in range(0, len(sizes), _CHUNK):
        some = sizes[at : at + _CHUNK]
        end = done + int(some.sum(dtype=np.int64))
        yield at, flat[done:end], some
        done = end


def _keys(
    flat: Slices, sizes: np.ndarray, firsts: list[int], ends: np.ndarray, folder: Path | None
) -> Iterator[np.ndarray]:
    """(word - first word of the block) * texts + text of each place of the words of a block, block by block. All texts
    are read once: what they give to each block waits in a file."""
    n, blocks = len(sizes), len(firsts) - 1
    starts = np.array(firsts[:-1])
    block_of = np.repeat(np.arange(blocks, dtype=np.uint16 if blocks < 1 << 16 else np.int64), np.diff(firsts))
    with tempfile.TemporaryFile(dir=folder) if blocks > 1 else nullcontext() as file:
        alone, filled = [], ends[:-1].copy()
        for at, words, some in _chunks(flat, sizes):
            texts = np.repeat(np.arange(at, at + len(some), dtype=np.int64), some)
            if file is None:
                alone.append(words.astype(np.int64) * n + texts)
                continue
            block = block_of[words]
            keys = (words - starts[block]) * n + texts
            keys = keys[np.argsort(block, kind="stable")]
            done = 0
            for i, many in enumerate(np.bincount(block, minlength=blocks).tolist()):
                if many:
                    file.seek(8 * int(filled[i]))
                    file.write(keys[done : done + many].data)
                    filled[i] += many
                    done += many
        if file is None:
            yield np.concatenate(alone)
            return
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            file.seek(8 * start)
            yield np.frombuffer(bytearray(file.read(8 * (end - start))), np.int64)


class _Numbers:
    """The numbers of words, in a temporary file: of a million records there are a hundred million. `rank`: what stands
    for each."""

    def __init__(self, folder: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)
        self.rank = np.zeros(0, np.int32)

    def add(self, some: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(some, np.int32).data)

    def __getitem__(self, part: slice, /) -> np.ndarray:
        self._file.seek(4 * part.start)
        return self.rank[np.frombuffer(self._file.read(4 * (part.stop - part.start)), np.int32)]


class _Array:
    """A .npy file of one axis that is written some at a time, byte for byte as numpy saves it whole."""

    def __init__(self, path: Path, kind: type) -> None:
        self._file, self._type, self._n = path.open("wb"), np.dtype(kind), 0
        self._head()

    def _head(self) -> None:
        head = {"descr": np.lib.format.dtype_to_descr(self._type), "fortran_order": False, "shape": (self._n,)}
        np.lib.format.write_array_header_1_0(self._file, head)  # as long for every number of rows

    def add(self, some: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(some, self._type).data)
        self._n += len(some)

    def close(self) -> None:
        self._file.seek(0)
        self._head()
        self._file.close()


class Ranking:
    """`top(query, k)` gives the places of the k best texts. Answers are cached (least recently used are evicted first),
    because a policy in training repeats its queries. Made by `Ranking.of` or `Ranking.load`."""

    def __init__(self, index: bm25s.BM25, vocabulary: ArrowTexts | Path, n: int, *, cache: int = 65536) -> None:
        """vocabulary: the words, sorted, or the folder of `save`, from which they are read when the first is asked for."""
        self._index, self._given, self._n = index, vocabulary, n
        self._top = lru_cache(maxsize=cache)(self._rank)
        self._number = lru_cache(maxsize=_KNOWN)(lambda word: self._find(word))
        self._known_most: dict[int, float] = {}

    @cached_property
    def _vocabulary(self) -> ArrowTexts:
        """A word's number is its place."""
        if not isinstance(self._given, Path):
            return self._given
        from synth.knowledge.arrow_texts import ArrowTexts  # Arrow

        words = json.loads((self._given / _WORDS).read_text(encoding="utf-8"))
        if words["n"] != self._n:
            raise ValueError(f"{_WORDS} is of {words['n']} texts and the scores are of {self._n}")
        return ArrowTexts.of(words["words"])

    @cached_property
    def _find(self) -> Callable[[str], int]:
        """The number of a word, -1 for one that is absent: from a dictionary where there are few texts."""
        if self._n > _FEW:
            return self._vocabulary.find
        numbers = {word: i for i, word in enumerate(self._vocabulary)}
        return lambda word: numbers.get(word, -1)

    @staticmethod
    def of(texts: Iterable[str], folder: Path | None = None, *, cache: int = 65536) -> Ranking:
        """The ranking of texts, in memory; or written into `folder` as `save` does, and read from there. Raises ValueError
        where none has a word."""
        texts = iter(texts)
        return Ranking.of_batches(iter(lambda: list(islice(texts, _BATCH)), []), folder, cache=cache)

    @staticmethod
    def of_batches(
        batches: Iterable[Sequence[str] | pa.Array], folder: Path | None = None, *, cache: int = 65536
    ) -> Ranking:
        """As `of`, of texts of which some are given together, as lists or as pa.large_string."""
        import pyarrow as pa  # only building needs it

        from synth.knowledge.arrow_texts import TEXT, ArrowTexts, pc

        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        numbers, sizes, seen, done = _Numbers(folder), array("i"), [pa.array([], TEXT)], 0
        for some in batches:
            own, codes, many = _numbered(some)
            numbers.add(codes + np.int32(done))
            sizes.frombytes(many.astype(np.int32).tobytes())
            seen.append(own)
            done += len(own)
        whole = pa.chunked_array(seen)
        # numbered in alphabetical order: float sums depend on their order, and may not depend on that of the texts
        different = whole.unique()
        different = different.filter(pc.not_equal(different, ""))
        names = ArrowTexts(different.take(pc.sort_indices(different)))
        del different
        if not len(names):
            raise ValueError("there is not one word in the texts to be searched: check the sources")
        ranks = pc.index_in(whole, value_set=names.array).combine_chunks()
        numbers.rank = pc.fill_null(ranks, 0).to_numpy().astype(np.int32)
        del ranks
        del whole, seen
        n = len(sizes)
        index = bm25s.BM25(method="lucene", k1=_K1, b=_B, dtype="float64")
        blocks = matrix(numbers, np.frombuffer(sizes, np.int32), len(names), folder)
        index.nonoccurrence_array = None
        if folder is None:
            scores, of, frequency = (np.concatenate(x) for x in zip(*blocks, strict=True))
            starts = np.concatenate([[0], np.cumsum(frequency)])
            index.scores = {"data": scores, "indices": of, "indptr": starts, "num_docs": n}
            return Ranking(index, names, n, cache=cache)
        none = np.zeros(0)
        index.scores = {"data": none, "indices": none, "indptr": none, "num_docs": n}
        _save(folder, index, names, n)
        del index, names
        pa.default_memory_pool().release_unused()
        data, indices = _Array(folder / _DATA, np.float64), _Array(folder / _INDICES, np.int32)
        frequencies = []
        for scores, of, frequency in blocks:
            data.add(scores)
            indices.add(of)
            frequencies.append(frequency)
        data.close()
        indices.close()
        np.save(folder / _STARTS, np.concatenate([[0], np.cumsum(np.concatenate(frequencies))]))
        del numbers, sizes, blocks, frequencies
        return Ranking(_mapped(folder), folder, n, cache=cache)

    def __len__(self) -> int:
        """The number of texts."""
        return self._n

    def _tokens(self, query: str) -> tuple[int, ...]:
        """Sorted, so that a query does not depend on the order of its words."""
        return tuple(sorted(t for t in map(self._number, words(query)) if t >= 0))

    def scores(self, query: str) -> np.ndarray:
        """[texts] float64."""
        return self._scores(self._tokens(query))

    def top(self, query: str, k: int) -> tuple[int, ...]:
        """The places of the k best texts, best first; only of those that share a word with the query."""
        return self._top(self._tokens(query), k)

    def _scores(self, tokens: tuple[int, ...]) -> np.ndarray:
        scores = np.zeros(self._n)
        for t in tokens:
            np.add.at(scores, *self._postings(t))
        return scores

    def _rank(self, tokens: tuple[int, ...], k: int) -> tuple[int, ...]:
        """The texts that have a rare word are looked at one by one. Of the others only the best for the common words alone
        can be among the k best, and queries share these; they are not asked for where they cannot reach the k-th best."""
        rare = {t for t in tokens if len(self._postings(t)[0]) < _COMMON} if self._n > _FEW else ()
        if not rare:
            return first(self._scores(tokens), k, DIGITS)
        found = [self._postings(t)[0] for t in rare]
        documents = np.unique(np.concatenate(found)) if len(found) > 1 else found[0]
        scores = self._scores_of(documents, tokens)
        common = tuple(t for t in tokens if t not in rare)
        if len(documents) < k or np.partition(scores, -k)[-k] - 10.0 ** (1 - DIGITS) <= sum(map(self._most, common)):
            known, more, asked = set(documents.tolist()), [], k
            while common and len(more) < k:
                asked *= 2
                ranked = self._top(common, asked)
                more = [i for i in ranked if i not in known][:k]
                if len(ranked) < asked:
                    break
            documents = np.concatenate([documents, np.array(more, documents.dtype)])
            scores = self._scores_of(documents, tokens)
        return first(scores, k, DIGITS, documents)

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(texts, their scores, where each word begins) of the words; slices of mapped arrays cost more."""
        scores = self._index.scores
        return np.asarray(scores["indices"]), np.asarray(scores["data"]), np.asarray(scores["indptr"])

    def _postings(self, token: int) -> tuple[np.ndarray, np.ndarray]:
        """The texts that have a word, rising, and what it adds to their scores."""
        texts, values, starts = self._arrays
        part = slice(int(starts[token]), int(starts[token + 1]))
        return texts[part], values[part]

    def _most(self, token: int) -> float:
        """The most that a common word adds to a score."""
        if token not in self._known_most:
            self._known_most[token] = float(self._postings(token)[1].max())
        return self._known_most[token]

    def _scores_of(self, documents: np.ndarray, tokens: tuple[int, ...]) -> np.ndarray:
        """The scores of some texts, bit by bit those of `scores`: each sums its words in their order."""
        scores = np.zeros(len(documents))
        for t in tokens:
            texts, values = self._postings(t)
            at = np.minimum(texts.searchsorted(documents), len(texts) - 1)
            there = texts[at] == documents
            scores[there] += values[at[there]]
        return scores

    def save(self, folder: Path) -> None:
        """Arrays as .npy and the vocabulary as JSON, in a folder of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        _save(folder, self._index, self._vocabulary, self._n)

    @staticmethod
    def load(folder: Path, *, cache: int = 65536) -> Ranking:
        """What `save` wrote; the arrays stay on disk and are mapped into memory. Raises ValueError where the folder
        holds none."""
        try:
            index = _mapped(folder)
            ranking = Ranking(index, folder, index.scores["num_docs"], cache=cache)
            assert ranking._vocabulary is not None  # read at once: whoever loads it asks for words
            return ranking
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder} holds no ranking ({error}): build the index anew") from error


def first(scores: np.ndarray, k: int, digits: int, documents: np.ndarray | None = None) -> tuple[int, ...]:
    """The places of the k highest scores above 0, best first, compared in `digits` decimals; of equal ones the first.
    documents: the numbers of the places, if they are not 0, 1, ..."""
    slack = 10.0 ** (1 - digits)  # more than rounding can lift
    least = np.partition(scores, -k)[-k] - slack if k < len(scores) else 0.0
    (best,) = np.nonzero(scores > max(0.0, least))
    rounded = np.round(scores[best], digits)
    best, rounded = best[rounded > 0], rounded[rounded > 0]
    best = best if documents is None else documents[best]
    return tuple(best[np.lexsort((best, -rounded))][:k].tolist())


def _mapped(folder: Path) -> bm25s.BM25:
    return bm25s.BM25.load(folder, mmap=True, load_vocab=False, show_progress=False, verbosity=0)


def _save(folder: Path, index: bm25s.BM25, names: Sequence[str], n: int) -> None:
    index.vocab_dict = {}
    index.save(
        folder, data_name=_DATA, indices_name=_INDICES, indptr_name=_STARTS, vocab_name=_VOCABULARY, show_progress=False
    )
    dumps = bm25s.json_functions.dumps
    after = dumps({"a": 0, "b": 1}, ensure_ascii=False).partition("0")[2].partition('"')[0]  # as it writes a comma
    # as it and `json.dumps` write them, some at a time
    with (
        (folder / _VOCABULARY).open("w", encoding="utf-8") as file,
        (folder / _WORDS).open("w", encoding="utf-8", newline="") as words,
    ):
        file.write("{")
        words.write(f'{{"n": {n}, "words": [')
        for at in range(0, len(names), _BATCH):
            some = names[at : at + _BATCH]
            file.write(dumps({w: at + i for i, w in enumerate(some)}, ensure_ascii=False)[1:-1] + after)
            words.write((", " if at else "") + json.dumps(some, ensure_ascii=False)[1:-1])
        file.write(dumps({"": len(names)}, ensure_ascii=False)[1:])  # bm25s adds an empty word
        words.write("]}")
