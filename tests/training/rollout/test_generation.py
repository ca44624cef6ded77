"""Ways of generation: what a sampler records, the learner reads as the same log-probs on the same inputs."""

import itertools
import math

import numpy as np
import pytest
import torch

from synth.types import Problem, Sampling, Scored
from training.learner.learner import token_stats
from training.learner.pack import pack, rollout_row
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.rollout.generation.mixture_of_tokens import mixture_of_tokens
from training.rollout.torch_sampler import TorchSampler
from training.types import Rollout, Segment

TOKENIZER = train_tokenizer(["user assistant 3 1 4 <answer>4</answer>"] * 3, vocab_size=272)
RENDERER = Renderer(TOKENIZER)
SAMPLING = Sampling(max_tokens=12)


def policy(seed=0, scale=0.3):
    return new_model(
        TOKENIZER,
        hidden=32,
        layers=2,
        heads=2,
        kv_heads=1,
        intermediate=48,
        max_length=96,
        init_range=scale,
        seed=seed,
    )


def prompts(n):
    return [RENDERER.encode("user 314"[: 3 + i % 5]) for i in range(n)]


def batch_of(asked, segments, **more):
    problem = Problem.make(prompt="x", answer="1", verifier="exact", family="toy", split="train")
    rows = []
    for prompt, turns in zip(asked, segments, strict=True):
        parts = (Segment(ids=prompt, role="env"), *turns)
        rows.append(rollout_row(Rollout(problem=problem, group="g", segments=parts, score=Scored(value=1.0)), 1.0, 0))
    return pack(rows)


def played(way, model, n=6, sampling=SAMPLING):
    asked = prompts(n)
    segments = way.sampler(model, RENDERER).open(asked, list(range(n))).generate(sampling)
    return asked, segments, batch_of(asked, [[s] for s in segments])


@pytest.mark.parametrize("likelihood", ["plackett_luce", "weighted_logp"])
@pytest.mark.parametrize("weights", ["renorm", "dirichlet", "uniform"])
def test_mixtures_are_replayed_on_the_recorded_inputs(weights, likelihood):
    way, model = mixture_of_tokens(k=3, weights=weights, likelihood=likelihood), policy()
    _, segments, batch = played(way, model)
    assert any((s.extras["mixture_weight"] > 0).sum(1).max() == 3 for s in segments)
    stats = way.read(model, batch)
    on = batch.trainable
    assert torch.allclose(stats.logp[on], batch.columns["sampling_logp"][on], atol=2e-4)
    assert torch.allclose(stats.entropy[on], batch.columns["sampling_entropy"][on], atol=2e-4)
    assert (stats.logp[~on] == 0).all()
    batch.columns["mixture_weight"] = batch.columns["mixture_weight"].flip(
        1
    )  # other inputs, other log-probs: the record is what is read
    assert not torch.allclose(way.read(model, batch).logp[on], stats.logp[on], atol=1e-2) or weights == "uniform"


def test_a_mixture_of_one_is_plain_sampling_and_its_gradient():
    way, model = mixture_of_tokens(k=1), policy()
    asked, segments, batch = played(way, model)
    plain = TorchSampler(model, RENDERER.end_id).open(asked, list(range(6))).generate(SAMPLING)
    for a, b in zip(segments, plain, strict=True):
        assert a.ids.tolist() == b.ids.tolist() and a.stop == b.stop
        assert np.allclose(a.logp, b.logp, atol=1e-5)
    gradients = []
    for read in (way.read, token_stats):
        model.zero_grad()
        read(model, batch).logp.sum().backward()
        gradients.append(torch.cat([p.grad.ravel() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(*gradients, atol=1e-5 * float(gradients[1].abs().max()))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_ordered_sets_of_six_tokens_have_probability_one(k):
    p = torch.softmax(torch.randn(6, generator=torch.Generator().manual_seed(3), dtype=torch.float64), 0)
    sets = list(itertools.permutations(range(6), k))
    drawn = p.log()[torch.tensor(sets)]
    logp = mixture_of_tokens(k=k).logp(drawn=drawn, weight=torch.ones_like(drawn))
    assert float(logp.exp().sum()) == pytest.approx(1.0, abs=1e-9)
    assert len(sets) == math.perm(6, k)


def test_sets_are_drawn_as_often_as_their_log_prob_says():
    """4,000 draws of pairs from a distribution of four tokens, against the probabilities of the twelve pairs."""
    from types import SimpleNamespace

    from training.rollout.generation.mixture_of_tokens import _Session

    p, rng, n = np.array([0.5, 0.25, 0.15, 0.1]), np.random.default_rng(0), 4000
    way = mixture_of_tokens(k=2)
    session, turn = _Session.__new__(_Session), SimpleNamespace(sampling=Sampling())
    session.way = way
    seen = {}
    for _ in range(n):
        ids, _, logp = session._set(p, int(rng.choice(4, p=p)), rng, turn)
        seen.setdefault(tuple(ids.tolist()), [0, logp])[0] += 1
    chi = sum((count - n * math.exp(logp)) ** 2 / (n * math.exp(logp)) for count, logp in seen.values())
    assert len(seen) == 12 and chi < 31.3  # the 99.9 % point of chi-square with 11 degrees of freedom


def test_a_neighbour_changes_nothing_and_a_turn_may_follow_a_turn():
    way, model = mixture_of_tokens(k=3), policy()
    asked, segments, _ = played(way, model)
    alone = way.sampler(model, RENDERER).open(asked[2:3], [2]).generate(SAMPLING)[0]
    assert alone.ids.tolist() == segments[2].ids.tolist()
    assert np.array_equal(alone.extras["mixture_ids"], segments[2].extras["mixture_ids"])
    session = way.sampler(model, RENDERER).open(asked[:2], [0, 1])
    first = session.generate(SAMPLING)
    told = RENDERER.encode("4 1")
    session.observe([0, 1], [told, told])
    second = session.generate(SAMPLING)
    heard = Segment(ids=told, role="env")
    batch = batch_of(asked[:2], [[a, heard, b] for a, b in zip(first, second, strict=True)])
    on = batch.trainable
    assert torch.allclose(way.read(model, batch).logp[on], batch.columns["sampling_logp"][on], atol=2e-4)


def test_the_thought_ends_with_its_tag():
    """A model that always says the tag third mixes two steps and no more."""
    way, model = mixture_of_tokens(k=2, until="<answer>"), policy()
    session = way.sampler(model, RENDERER).open(prompts(1), [0])
    tag, steps = int(RENDERER.encode("<answer>")[0]), []

    def logits(last):
        steps.append(len(steps))
        out = torch.zeros(len(last), model.config.vocab_size)
        out[:, tag if len(draws) == 2 else 5] = 30.0
        return out

    from training.rollout import torch_sampler

    draws, plain = [], torch_sampler._Turn.sample

    def sample(self, last, rows):
        self.logits = logits
        out = plain(self, last, rows)
        draws.append(1)
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_sampler._Turn, "sample", sample)
        (segment,) = session.generate(Sampling(max_tokens=6))
    assert (segment.extras["mixture_weight"] > 0).any(1).tolist() == [True, True, False, False, False, False]
    assert segment.ids[2] == tag


@pytest.mark.parametrize("knobs", [{"k": 0}, {"concentration": 0.0}])
def test_knobs_out_of_range_are_refused(knobs):
    with pytest.raises(ValueError, match="1 or more, concentration positive"):
        mixture_of_tokens(**knobs)


def test_a_cut_distribution_is_refused():
    with pytest.raises(ValueError, match="leave out top_k"):
        mixture_of_tokens().sampler(policy(), RENDERER).open(prompts(1), [0]).generate(Sampling(top_k=4))
