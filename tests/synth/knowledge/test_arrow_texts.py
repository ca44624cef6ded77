"""Texts in an array of Arrow are read as a list of them is."""

import pickle

import pyarrow as pa
import pytest

from synth.knowledge.arrow_texts import TEXT, ArrowTexts

TEXTS = ["", "Zürich", "a\nb", "", "\N{GRINNING FACE}", "last"]


@pytest.mark.parametrize("array", [pa.array(TEXTS, TEXT), pa.array(["x", *TEXTS, "y"], TEXT).slice(1, 6)])
def test_each_text_is_that_of_the_list(array: pa.Array) -> None:
    texts = ArrowTexts(array)
    assert [texts[i] for i in range(-6, 6)] == [TEXTS[i] for i in range(-6, 6)] and list(texts) == TEXTS
    assert texts[1:3] == TEXTS[1:3] and len(texts) == 6
    for i in (6, -7):
        with pytest.raises(IndexError):
            texts[i]
    assert list(pickle.loads(pickle.dumps(texts))) == TEXTS, "also after one was read"


def test_what_is_no_plain_text_is_read_too() -> None:
    assert ArrowTexts(pa.array(["a", None, "b"], TEXT))[1] is None
    assert ArrowTexts(pa.array([["a", "b"], []], pa.large_list(TEXT)))[0] == ["a", "b"]
    assert ArrowTexts(pa.array(["", ""], TEXT))[1] == ""
    with pytest.raises(IndexError):
        ArrowTexts(pa.array([], TEXT))[0]
