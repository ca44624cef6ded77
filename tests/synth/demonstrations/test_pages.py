"""Pages to train a base model on: functions of their place, whose tails follow from their heads."""

import pytest

from synth.demonstrations.pages import PER_WORLD, pages


def test_a_page_is_a_function_of_its_place():
    whole = list(pages(3, PER_WORLD - 20, 40, lists=0.5))  # over the edge between two worlds
    assert whole == [page for i in range(PER_WORLD - 20, PER_WORLD + 20, 8) for page in pages(3, i, 8, lists=0.5)]
    assert whole != list(pages(4, PER_WORLD - 20, 40, lists=0.5))
    assert list(pages(3, 0, 4, lists=0.0, countries=12)) != list(pages(3, 0, 4, lists=0.0, countries=30))


def test_a_list_is_written_twice():
    assert all(page.tail == page.head.rstrip("\n") for page in pages(0, 0, 20, lists=1.0))
    assert all(page.tail != page.head.rstrip("\n") for page in pages(0, 0, 20, lists=0.0))


def test_the_share_of_lists_lies_between_0_and_1():
    with pytest.raises(ValueError, match="share of name lists"):
        next(pages(0, 0, 1, lists=1.5))
