"""Texts in one array of Arrow: a million names take what they have letters, not a hundred bytes more for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
        return self.array[i].to_pylist() if isinstance(i, slice) else self.array[int(i)].as_py()

    def __iter__(self) -> Iterator[str]:
        for at in range(0, len(self.array), _SOME):
            yield from self.array.slice(at, _SOME).to_pylist()

    def take(self, places: np.ndarray) -> ArrowTexts:
        return ArrowTexts(self.array.take(pa.array(places)))

    def longer(self, n: int) -> np.ndarray:
        """[texts] bool, whether a text has more than n characters."""
        return pc.greater(pc.utf8_length(self.array), n).to_numpy(zero_copy_only=False)

    def ranked(self) -> np.ndarray:
        """[texts] int64, the places of the texts in their order, which is that of Python: UTF-8 keeps it."""
        return pc.sort_indices(self.array).to_numpy().astype(np.int64)


def encoded(chunks: Sequence[pa.Array], none: int) -> tuple[ArrowTexts, np.ndarray]:
    """(each different text once, tidy and in the order of the first; [cells] int32, which of them each cell is: `none` for an
    empty one) of the cells of a column, in pieces."""
    whole = pa.concat_arrays(chunks) if chunks else pa.array([], TEXT)
    cells = whole.dictionary_encode()
    del whole
    texts, codes = cells.dictionary, cells.indices.to_numpy()
    odd = pc.match_substring_regex(texts, _UNTIDY)
    if not pc.any(odd).as_py():
        return ArrowTexts(texts), codes
    tidied = pa.array([tidy(t) for t in texts.filter(odd).to_pylist()], TEXT)
    again = pc.replace_with_mask(texts, odd, tidied).dictionary_encode()
    texts, new = again.dictionary, again.indices.to_numpy()
    empty = pc.index(texts, pa.scalar("", TEXT)).as_py()
    if empty >= 0:
        kept = np.arange(len(texts), dtype=np.int32)
        kept[empty:] -= 1
        kept[empty] = none
        new = kept[new]
        texts = pa.concat_arrays([texts.slice(0, empty), texts.slice(empty + 1)])
    return ArrowTexts(texts), new[codes]
