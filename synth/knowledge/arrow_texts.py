"""Texts in one array of Arrow: a million names take what they have letters, not a hundred bytes more for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from json.encoder import encode_basestring as quote  # `json.dumps` of a text, without its object for each
from typing import Any, overload

import numpy as np
import pyarrow as pa
from pyarrow import compute

from synth.knowledge.text import tidy

pc: Any = compute  # its functions are made when it is imported, so that no checker of types knows them
TEXT = pa.large_string()
_SOME = 65_536  # texts that are made strings together
_UNTIDY = r"[^\x20-\x7e]|^ | $|  |^$"  # what `tidy` may change, and what is empty


class ArrowTexts(Sequence[str]):
    """array: pa.large_string [texts]. Strings are made as they are read."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    @staticmethod
    def of(texts: Iterable[str]) -> ArrowTexts:
        return texts if isinstance(texts, ArrowTexts) else ArrowTexts(pa.array(texts, TEXT))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        return self.array[i].to_pylist() if isinstance(i, slice) else self._at(int(i))

    @cached_property
    def _at(self) -> Callable[[int], str]:
        """The text of a place, read from the buffers where it can be: an object of Arrow for each takes three times as long."""
        array, n = self.array, len(self.array)
        if array.type != TEXT or array.null_count or not n:
            return lambda i: array[i].as_py()
        _, offsets, data = array.buffers()
        ends, letters = memoryview(offsets).cast("q")[array.offset :], memoryview(data or b"")

        def at(i: int) -> str:
            if not -n <= i < n:
                raise IndexError(f"text {i} of {n}")
            i %= n
            return str(letters[ends[i] : ends[i + 1]], "utf-8")

        return at

    def __reduce__(self) -> tuple[type[ArrowTexts], tuple[pa.Array]]:
        return ArrowTexts, (self.array,)

    def __iter__(self) -> Iterator[str]:
        for at in range(0, len(self.array), _SOME):
            yield from self.array.slice(at, _SOME).to_pylist()

    def find(self, text: str) -> int:
        """The place of a text among sorted ones; -1 if it is absent."""
        i = bisect_left(self, text)
        return i if i < len(self) and self[i] == text else -1

    def take(self, places: np.ndarray) -> ArrowTexts:
        return ArrowTexts(self.array.take(pa.array(places)))

    def replaced(self, pattern: str, by: Callable[[str], str]) -> ArrowTexts:
        """These texts, those in which there is `pattern` (RE2) replaced; itself if there are none."""
        odd = pc.match_substring_regex(self.array, pattern)
        if not pc.any(odd).as_py():
            return self
        new = pa.array([by(text) for text in self.array.filter(odd).to_pylist()], TEXT)
        return ArrowTexts(pc.replace_with_mask(self.array, odd, new))

    def longer(self, n: int) -> np.ndarray:
        """[texts] bool, whether a text has more than n characters."""
        return pc.greater(pc.utf8_length(self.array), n).to_numpy(zero_copy_only=False)

    def ranked(self) -> np.ndarray:
        """[texts] int64, the places of the texts in their order, which is that of Python: UTF-8 keeps it."""
        return pc.sort_indices(self.array).to_numpy().astype(np.int64)


def encoded(chunks: Sequence[pa.Array], none: int) -> tuple[ArrowTexts, np.ndarray]:
    """(each different text once, tidy and in the order of the first; [cells] int32, which of them each cell is: `none` for an
    empty one) of the cells of a column, in pieces."""
    cells = pa.chunked_array(chunks, TEXT).dictionary_encode().combine_chunks()
    texts, codes = ArrowTexts(cells.dictionary), cells.indices.to_numpy()
    tidied = texts.replaced(_UNTIDY, tidy)
    if tidied is texts:
        return texts, codes
    again = tidied.array.dictionary_encode()
    names, new = again.dictionary, again.indices.to_numpy()
    empty = pc.index(names, pa.scalar("", TEXT)).as_py()
    if empty >= 0:
        kept = np.arange(len(names), dtype=np.int32)
        kept[empty:] -= 1
        kept[empty] = none
        new = kept[new]
        names = pa.concat_arrays([names.slice(0, empty), names.slice(empty + 1)])
    return ArrowTexts(names), new[codes]


def in_json(texts: pa.Array) -> pa.Array:
    """As `json.dumps` writes each text, with all of its letters."""
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        return pa.array((t if t is None else quote(t) for t in texts.to_pylist()), TEXT)
    return joined('"', texts, '"')


def contents(texts: pa.Array) -> memoryview:
    """One text after the other."""
    if not len(texts):
        return memoryview(b"")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data or b"")[int(ends[0]) : int(ends[-1])]


def joined(*parts: pa.Array | pa.Scalar | str) -> pa.Array:
    """Texts, piece after piece; a piece may be the same for all."""
    return pc.binary_join_element_wise(*(pa.scalar(p, TEXT) if isinstance(p, str) else p for p in (*parts, "")))
