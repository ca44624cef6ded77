"""Worlds with a thought before the answer: what is written in them, by hand."""

import numpy as np
import pytest

from tasks.lab.thought_worlds import STEPS, WORDED, Chain, _tokenizer, problems
from training.model.render import Renderer

DIGITS = np.array([7, 1, 4])


def test_thoughts_by_hand():
    assert Chain(3).text(DIGITS) == ("714", "782<answer>2</answer>")
    assert Chain(3, words=True).text(DIGITS) == ("714", "7+1=88+4=2<answer>2</answer>")


def test_a_sum_written_out_has_five_tokens_and_fits_a_turn():
    chain, renderer = Chain(3, words=True), Renderer(_tokenizer())
    said = chain.text(DIGITS)[1]
    assert len(renderer.encode(said.partition("<answer>")[0])) == 10
    assert len(renderer.encode(said)) < chain.longest


def test_ways_are_taught_equally_long_where_sums_are_written_out():
    assert {Chain(3, words=True).steps(way) for way in STEPS} == {WORDED}
    assert Chain(3).steps("") == STEPS[""]


@pytest.mark.parametrize("chain", [Chain(3), Chain(3, words=True)])
def test_problems_of_the_splits_differ_and_have_the_last_sum(chain):
    train, test = problems("train", 50, chain), problems("test", 50, chain)
    asked = [{p.prompt[0].content for p in side} for side in (train, test)]
    assert len(asked[0]) == len(asked[1]) == 50 and not asked[0] & asked[1]
    assert all(p.answer == str(sum(map(int, p.prompt[0].content)) % 10) for p in test)
