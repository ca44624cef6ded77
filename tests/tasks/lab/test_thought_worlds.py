"""Worlds with a thought before the answer: what is written in them, by hand."""

import numpy as np
import pytest

from synth.types import Scored
from tasks.lab import thought_worlds
from tasks.lab.thought_worlds import STEPS, WORDED, Chain, _row, _tokenizer, measured, newborn, problems
from training.model.model import save_model
from training.model.render import Renderer

DIGITS = np.array([7, 1, 4])


def test_thoughts_by_hand():
    assert Chain(3).text(DIGITS) == ("714", "782<answer>2</answer>")
    assert Chain(3, words=True).text(DIGITS) == ("714", "7+1=88+4=2<answer>2</answer>")


def test_a_sum_written_out_has_five_tokens_and_fits_a_turn():
    chain, renderer = Chain(3, words=True), Renderer(_tokenizer())
    text = chain.text(DIGITS)[1]
    assert len(renderer.encode(text.partition("<answer>")[0])) == 10
    assert len(renderer.encode(text)) < chain.longest


def test_ways_are_taught_equally_long_where_sums_are_written_out():
    assert {Chain(3, words=True).steps(way) for way in STEPS} == {WORDED}
    assert Chain(3).steps("") == STEPS[""]


@pytest.mark.parametrize("chain", [Chain(3), Chain(3, words=True)])
def test_problems_of_the_splits_differ_and_have_the_last_sum(chain):
    train, test = problems("train", 50, chain), problems("test", 50, chain)
    questions = [{p.prompt[0].content for p in side} for side in (train, test)]
    assert len(questions[0]) == len(questions[1]) == 50 and not questions[0] & questions[1]
    assert all(p.answer == str(sum(map(int, p.prompt[0].content)) % 10) for p in test)


def test_of_a_thought_the_last_token_stays_where_tokens_are_written_and_ways_are_taught_equally_long():
    chain, renderer = Chain(3, every=3), Renderer(_tokenizer())
    assert chain.clipped(chain.text(DIGITS)[1]) == "2<answer>2</answer>"
    assert Chain(3, words=True, every=5).clipped("7+1=88+4=2<answer>2</answer>") == "82<answer>2</answer>"
    assert Chain(3).clipped("782<answer>2</answer>") == "782<answer>2</answer>"
    assert {chain.steps(way) for way in STEPS} == {STEPS["gaussian_latents"]}

    def thought(piece):
        row = _row(renderer, np.random.default_rng(0), chain, piece)
        return renderer.decode(row.ids).rpartition("assistant")[2].partition("<answer>")[0].strip()

    assert (len(thought("")), len(thought("gaussian_latents"))) == (1, 3)


def test_greedy_is_measured_at_temperature_zero_and_accuracy_at_one(tmp_path, monkeypatch):
    class Cold(thought_worlds.Player):  # all that it plays is right where nothing is drawn by chance
        def play(self, problems, tries, seed):
            groups = super().play(problems[:8], tries, seed)
            for rollout in (r for g in groups for r in g.rollouts):
                object.__setattr__(rollout, "score", Scored(value=float(self.sampling.temperature == 0)))
            return groups

    monkeypatch.setattr(thought_worlds, "Player", Cold)
    save_model(newborn("thoughts"), _tokenizer(), tmp_path / "model")
    measures = measured(tmp_path / "model", None, 1, Chain(3))
    assert (measures["greedy"], measures["accuracy"]) == (1.0, 0.0)
