"""What every decoder promises, on a model of a few thousand weights: budgets, accounts, seeds, neighbours. A new file of
training/decode is tested the moment it exists."""

import re
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from tasks.planning.pieces import bind, files
from training.decode import Account, Ask, DecodingSampler, Engine, Example
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)
END = V.eos_token_id
ALL = sorted(files("decode"))


def likes(rows):
    """A reward model: the share of even ids; no model sees anything."""
    return [float(np.mean(r % 2 == 0)) for r in rows]


def engine(**more):
    model = tiny.build(vocabulary=V, init_range=0.2)
    known = {
        "sampler": TorchSampler(model, END, slots=1),
        "text": lambda ids: "".join(chr(97 + i) for i in ids),
        "said": lambda ids: str(int(ids[0]) % 4),
        "sampling": Sampling(max_tokens=12),
        "rewards": likes,
    }
    before = TorchSampler(tiny.build(vocabulary=V, init_range=0.3), END, slots=1)
    other = Engine(sampler=before, text=str, said=str, sampling=known["sampling"], called="reference")
    return Engine(**known | {"reference": other} | more)


def pairs(n=6):
    rng = np.random.default_rng(5)
    return [
        Example(prompt=rng.integers(3, 16, 4), chosen=rng.integers(3, 8, 6), rejected=rng.integers(8, 16, 6))
        for _ in range(n)
    ]


def asks(*lengths, budget=0, max_tokens=12):
    return [
        Ask(prompt=p, seed=100 + i, max_tokens=max_tokens, forward_tokens=budget)
        for i, p in enumerate(tiny.ids(*lengths, below=16))
    ]


KNOBS = {
    "rule_guard": {"ask": ""},  # the model here reads ids alone, and cannot be asked in words
    "dynamic_control": {"steps": 2},
    "together": {
        "change": "model_surgery"
    },  # steered rows stay until the last has ended, which the count below would have
}


@cache
def bound(name):
    """The decoder, fitted once for all tests: what is fitted must not change as it decodes."""
    piece = bind("decode", {"piece": name, **KNOBS.get(name, {})})
    return partial(piece, fitted=piece.fit(engine(), pairs()) if piece.fit else None)


class Counting(TorchSampler):
    """Counts the tokens that really pass through the model: one row at work at a time, on the model's own layers."""

    passed = 0

    def sync(self):
        self.cached = self.turns = None

    def forward(self, ids, position, cache):
        self.passed += ids.numel()
        return super().forward(ids, position, cache)


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_answer_whoever_is_beside_it(name):
    decode = bound(name)
    three = decode(engine(), asks(5, 9, 3, budget=120))
    again = decode(engine(), asks(5, 9, 3, budget=120))
    for i, (a, b) in enumerate(zip(three, again, strict=True)):
        (alone,) = decode(engine(), asks(5, 9, 3, budget=120)[i : i + 1])
        for other in (b, alone):
            assert a.segment.ids.tolist() == other.segment.ids.tolist()
            assert a.account.tokens == other.account.tokens
    assert all(d.segment.role == "model" and len(d.segment.ids) == len(d.segment.logp) > 0 for d in three)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("budget", [8, 20, 47, 150])
def test_a_budget_is_honoured_and_one_that_no_answer_fits_is_refused(name, budget):
    decode = bound(name)
    for done, ask in zip(decode(engine(), asks(5, 7, budget=budget)), asks(5, 7), strict=True):
        assert len(ask.prompt) < sum(done.account.tokens.values()) <= budget
        assert len(done.segment.ids) <= ask.max_tokens
    with pytest.raises(ValueError, match=r"a budget of 5 forward tokens has no room .* give 6 or more"):
        decode(engine(), asks(5, budget=5))


@pytest.mark.parametrize("name", ALL)
def test_the_account_is_what_passed_through_the_model(name):
    read, model = [], tiny.build(vocabulary=V, init_range=0.2)
    sampler = Counting(model, END, slots=1)
    decode = bound(name)
    model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    (done,) = decode(engine(sampler=sampler), asks(5, budget=150))
    assert done.account.tokens["policy"] == sum(read)
    assert done.account.seconds > 0 and done.account.memory > 0
    # Two layers, two heads of 8 numbers, keys and values in float32.
    assert done.account.memory % (2 * 2 * 2 * 8 * 4) == 0


@pytest.mark.parametrize("name", ALL)
def test_a_piece_says_where_it_is_from(name):
    doc = __import__(f"training.decode.{name}", fromlist=[name]).__doc__
    assert re.search(r"\b(19|20)\d\d\b", doc) and len(doc.splitlines()) >= 6


def test_greedy_takes_the_likeliest_and_costs_prompt_and_answer():
    source = engine()
    (done,) = bound("greedy")(source, asks(5))
    want = source.sampler.open([asks(5)[0].prompt], [7]).generate(Sampling(temperature=0.0, max_tokens=12))[0]
    assert done.segment.ids.tolist() == want.ids.tolist()
    assert done.account.tokens == {"policy": 5 + len(want.ids)}


def scripted(answers, **more):
    """An engine whose draws say these answers of one token, in order."""

    class Sampler:
        model, version = None, 0

        def open(self, prompts, seeds):
            from training.types import Segment

            class Session:
                def generate(self, sampling):
                    turns = [np.array([answers.pop(0)]) for _ in prompts]
                    return [
                        Segment(ids=ids, role="model", logp=np.zeros(1, dtype=np.float32), stop="end") for ids in turns
                    ]

            return Session()

    return engine(sampler=Sampler(), said=lambda ids: str(ids[0]) if ids[0] else "", **more)


def test_the_majority_is_counted_by_hand():
    decode = bind("decode", {"piece": "majority", "k": 5})
    ask = asks(3)
    assert decode(scripted([4, 9, 9, 4, 7]), ask, None)[0].segment.ids.tolist() == [4], "of equals the first"
    assert decode(scripted([4, 9, 9, 7, 9]), ask, None)[0].segment.ids.tolist() == [9]
    assert decode(scripted([0, 0, 8, 0, 0]), ask, None)[0].segment.ids.tolist() == [8], "no answer has no vote"
    done = decode(scripted([4, 9, 9, 4, 7]), ask, None)[0]
    assert done.account.tokens == {"policy": 3 + 5}, "the prompt is read once"


def test_a_budget_buys_more_answers_where_they_are_short():
    # Prompt 3; answers may have 12 tokens and have 1. First round: (40 - 3) // 12 = 3 draws, 6 spent. Second:
    # (34 - 3) // 12 = 2, 11 spent. Then 2, 16; 1, 20; 1, 24; 1, 28; 40 - 28 - 3 = 9 is too little for 12.
    script = [9] * 30
    done = bind("decode", {"piece": "majority", "k": 0})(scripted(script), asks(3, budget=40), None)[0]
    assert 30 - len(script) == 10 and done.account.tokens == {"policy": 6 * 3 + 10}
    with pytest.raises(ValueError, match="k is 0.* there is no budget"):
        bind("decode", {"piece": "majority", "k": 0})(engine(), asks(3), None)
    with pytest.raises(ValueError, match="k is -1"):
        bind("decode", {"piece": "majority", "k": -1})(engine(), asks(3), None)


def test_the_best_of_n_is_the_reward_models_and_it_is_paid_for():
    decode = bind("decode", {"piece": "best_of_n", "n": 4})
    value = {5: 0.1, 6: float("nan"), 7: 0.9, 8: 0.9}
    source = scripted([5, 6, 7, 8], rewards=lambda rows: [value[int(r[-1])] for r in rows])
    (done,) = decode(source, asks(3), None)
    assert done.segment.ids.tolist() == [7]
    # Prompt and four answers; three conversations of 4 tokens with the verdict, the fourth was too long for it.
    assert done.account.tokens == {"policy": 3 + 4, "reward": 3 * 5}
    with pytest.raises(ValueError, match="there is none: train one .the stage reward."):
        decode(engine(rewards=None), asks(3), None)


def test_who_spends_more_than_it_was_given_is_stopped():
    account = Account(limit=10)
    account.charge("policy", 10)
    with pytest.raises(RuntimeError, match="has spent 11 forward tokens of a budget of 10"):
        account.charge("reward", 1)


def test_a_decoder_plays_conversations_in_the_place_of_a_sampler():
    source = DecodingSampler(engine=engine(), decode=bind("decode", {"piece": "majority", "k": 3}), forward_tokens=90)
    heard = []
    source.hear = heard.append
    prompts = tiny.ids(5, 9, below=16)
    session = source.open(prompts, [1, 2])
    first = session.generate(Sampling(max_tokens=6))
    session.observe([1], [tiny.ids(3, below=16)[0]])
    second = session.generate(Sampling(max_tokens=6))
    assert [len(first), len(second), len(heard)] == [2, 1, 3]
    assert [int(s.extras["forward_tokens"].sum()) for s in (*first, *second)] == [a.spent for a in heard]
    assert heard[2].tokens["policy"] >= 9 + len(first[1].ids) + 3, "the conversation is read again"
    other = replace(source).open(prompts, [1, 2]).generate(Sampling(max_tokens=6))
    assert [s.ids.tolist() for s in first] == [s.ids.tolist() for s in other]


def test_the_learners_weights_are_not_touched():
    source = engine()
    before = [p.detach().clone() for p in source.sampler.model.parameters()]
    for name in ALL:
        bound(name)(source, asks(5, 4, budget=100))
    assert all(torch.equal(a, b) for a, b in zip(before, source.sampler.model.parameters(), strict=True))
