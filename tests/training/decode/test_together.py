"""Two decoders at once: the vote is among changed draws, each is paid for, and what does not go together is refused."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_decoders import asks, engine, pairs

from synth.types import seed_for
from tasks.planning.pieces import bind
from training.decode import Account, Draw
from training.decode._draws import draws
from training.model.residual import AddVector


def made(by, **knobs):
    decode = bind("decode", {"piece": "together", "layer": 0, **knobs})
    return decode, decode.fit(by, pairs())


def test_the_vote_is_among_steered_draws_that_share_the_prompt_but_for_its_last_token():
    by, (ask,) = engine(), asks(5)
    decode, fitted = made(by, n=5, alpha=8.0)
    (done,) = decode(by, [ask], fitted)
    edit = AddVector(vector=8.0 * fitted.vector, layer=0, start=4)
    draws = [
        Draw(account=Account(), prompt=ask.prompt, seed=seed_for(ask.seed, "draw", i), max_tokens=12, edit=edit)
        for i in range(5)
    ]
    drawn = by.sample(draws)
    answers = [by.said(s.ids) for s in drawn]
    assert by.said(done.segment.ids) == max(answers, key=lambda a: (Counter(answers)[a], -answers.index(a)))
    assert done.account.tokens == {"policy": 4 + sum(1 + len(s.ids) for s in drawn)}
    (plain,) = bind("decode", {"piece": "majority", "k": 5})(by, [ask], None)
    assert plain.account.tokens != done.account.tokens


@pytest.mark.parametrize("start", [0, 20, 39, 99])
def test_a_budget_buys_fewer_draws_the_more_of_the_prompt_each_reads(start):
    by, (ask,) = engine(), asks(40, budget=100)
    shared = min(start, 39)
    by = replace(by, steered=lambda prompt: AddVector(vector=torch.zeros(32), layer=0, start=start))
    (drawn,) = draws(by, [ask], 0)
    (first, *_) = drawn.segments
    assert drawn.account.spent == shared + sum(40 - shared + len(s.ids) for s in drawn.segments) <= 100
    n = (100 - shared) // (40 - shared + 12)  # at least, where all are as long as they may be
    assert len(drawn.segments) >= n >= 1 and len(first.ids)


def test_an_edited_model_is_voted_on_and_afterwards_as_it_was():
    by, few = engine(), asks(5, 7)
    decode, fitted = made(by, change="model_surgery", n=3)
    before = {k: v.clone() for k, v in by.sampler.model.named_parameters()}
    done = decode(by, few, fitted)
    with by.changed(fitted.weights):
        want = bind("decode", {"piece": "majority", "k": 3})(by, few, None)
    assert [d.segment.ids.tolist() for d in done] == [d.segment.ids.tolist() for d in want]
    assert all((before[k] == v).all() for k, v in by.sampler.model.named_parameters())


@pytest.mark.parametrize("choose", ["best_of_n", "tournament"])
def test_the_reward_model_chooses_where_there_is_one(choose):
    decode, fitted = made(engine(), choose=choose, n=4)
    (done,) = decode(engine(), asks(5), fitted)
    assert done.account.tokens["reward"] > 0
    with pytest.raises(ValueError, match="there is none: train one"):
        decode(engine(rewards=None), asks(5), fitted)
    decode, fitted = made(engine(rewards=None), n=4)
    assert len(decode(engine(rewards=None), asks(5), fitted)) == 1


def test_greedy_is_that_of_the_changed_model():
    by = engine()
    decode, fitted = made(by, choose="greedy", alpha=8.0)
    (done,) = decode(by, asks(5), fitted)
    (want,) = bind("decode", {"piece": "steer", "layer": 0, "alpha": 8.0, "temperature": 0.0})(by, asks(5), fitted)
    np.testing.assert_array_equal(done.segment.ids, want.segment.ids)


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"change": "majority"}, "changes nothing in the model: take steer or model_surgery"),
        ({"change": "speculate"}, "drafts for the model as it is"),
        ({"change": "rlot"}, "answers by itself, draw by draw"),
        ({"choose": "steer"}, "does not choose among draws: take greedy, majority, best_of_n or tournament"),
        ({"choose": "draft_tree"}, "drafts for the model as it is"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(knobs, why):
    with pytest.raises(ValueError, match=why):
        made(engine(), **knobs)
