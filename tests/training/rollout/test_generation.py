"""Ways of generation: what a sampler records, the learner reads as the same log-probs on the same inputs."""

import itertools
import math

import numpy as np
import pytest
import torch

from synth.types import Message, Problem, Sampling, Scored
from training.learner.learner import token_stats
from training.learner.learner import Learner, Optim
from training.learner.pack import pack, rollout_row, split
from training.learner.rows import demonstration_row, weighted
from training.model.attention import PackedRows, WholeRows
from training.model.model import load_model, new_model, own_hidden, save_model, train_tokenizer
from training.model.render import Renderer
from training.rollout.generation.gaussian_latents import VECTOR, gaussian_latents
from training.rollout.generation.masked_diffusion import masked_diffusion
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


def batch_of(questions, segments, **more):
    problem = Problem.make(prompt="x", answer="1", verifier="exact", family="toy", split="train")
    rows = []
    for prompt, turns in zip(questions, segments, strict=True):
        parts = (Segment(ids=prompt, role="env"), *turns)
        rows.append(rollout_row(Rollout(problem=problem, group="g", segments=parts, score=Scored(value=1.0)), 1.0, 0))
    return pack(rows)


def played(way, model, n=6, sampling=SAMPLING):
    questions = prompts(n)
    segments = way.sampler(model, RENDERER).open(questions, list(range(n))).generate(sampling)
    return questions, segments, batch_of(questions, [[s] for s in segments])


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
    # Other inputs, other log-probs: the record is what is read.
    batch.columns["mixture_weight"] = batch.columns["mixture_weight"].flip(1)
    assert not torch.allclose(way.read(model, batch).logp[on], stats.logp[on], atol=1e-2) or weights == "uniform"


def test_a_mixture_of_one_is_plain_sampling_and_its_gradient():
    way, model = mixture_of_tokens(k=1), policy()
    questions, segments, batch = played(way, model)
    plain = TorchSampler(model, RENDERER.end_id).open(questions, list(range(6))).generate(SAMPLING)
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
    questions, segments, _ = played(way, model)
    alone = way.sampler(model, RENDERER).open(questions[2:3], [2]).generate(SAMPLING)[0]
    assert alone.ids.tolist() == segments[2].ids.tolist()
    assert np.array_equal(alone.extras["mixture_ids"], segments[2].extras["mixture_ids"])
    session = way.sampler(model, RENDERER).open(questions[:2], [0, 1])
    first = session.generate(SAMPLING)
    told = RENDERER.encode("4 1")
    session.observe([0, 1], [told, told])
    second = session.generate(SAMPLING)
    heard = Segment(ids=told, role="env")
    batch = batch_of(questions[:2], [[a, heard, b] for a, b in zip(first, second, strict=True)])
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


# --- vectors in the place of tokens


def begun(way, seed=0):
    return way.begin(policy(seed), RENDERER)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("latents", ["policy", "random"])
def test_vectors_are_replayed(latents, temperature):
    way = gaussian_latents(c_max=3, c=2, max_latent=4, latents=latents)
    model = begun(way)
    _, segments, batch = played(way, model, sampling=Sampling(max_tokens=12, temperature=temperature))
    acts = np.concatenate([s.extras["act"] for s in segments])
    assert (acts == VECTOR).sum() > 8 and (acts == 2).any() and (acts == 0).any()
    stats, on = way.read(model, batch, temperature=temperature), batch.trainable
    assert torch.allclose(stats.logp[on], batch.columns["sampling_logp"][on], atol=2e-3)
    assert torch.allclose(stats.entropy[on], batch.columns["sampling_entropy"][on], atol=2e-3)
    assert (stats.logp[batch.columns["act"] == 2] == 0).all(), "an end that was not chosen is no action"
    parts = torch.cat([way.read(model, b, temperature=temperature).logp for b in split(batch, 20)])
    assert torch.allclose(parts, stats.logp, atol=1e-3)


def test_the_density_of_a_vector_and_its_slopes_are_those_of_torch_in_float64():
    g = torch.Generator().manual_seed(0)
    mean, deviation, latent = (torch.randn(5, 7, generator=g, dtype=torch.float64).requires_grad_() for _ in range(3))
    stop = torch.log(torch.rand(5, generator=g, dtype=torch.float64)).requires_grad_()
    given = [stop, mean, deviation, latent]
    ours = gaussian_latents().logp(stop=stop, mean=mean, log_deviation=deviation, latent=latent)
    theirs = torch.log(1 - stop.exp()) + torch.distributions.Normal(mean, deviation.exp()).log_prob(latent).sum(1)
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(x.sum(), given) for x in (ours, theirs)), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_merged_embeddings_keep_their_variance_and_groups_their_tokens():
    way = gaussian_latents(c_max=3, c=3)
    talk = [Message(role="user", content="3"), Message(role="assistant", content="3141434<answer>4</answer>")]
    row = demonstration_row(RENDERER, talk, 0.0)
    rng, lengths = np.random.default_rng(0), set()
    for _ in range(12):
        lesson = way.lesson(row, RENDERER, rng)
        vectors = lesson.columns["act"] == VECTOR
        members = lesson.columns["members"][vectors]
        assert RENDERER.decode(members[members > 0].astype(int) - 1) == "3141434", "the groups are the thought"
        assert all(i + 1 in m for i, m in zip(lesson.ids[vectors], members, strict=True))
        c = int(lesson.columns["speed"].max())
        assert vectors.sum() == math.ceil(7 / c) and (lesson.columns["speed"] > 0).sum() == 1
        lengths.add(c)
    assert lengths == {1, 2, 3}
    draws = torch.randn(20000, 3, generator=torch.Generator().manual_seed(1))
    assert float((draws.sum(1) / 3**0.5).var()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    "way",
    [gaussian_latents(c_max=3, c=2, max_latent=4), masked_diffusion(length=14, steps=4)],
    ids=["latents", "diffusion"],
)
def test_lessons_are_learned_and_the_layers_are_saved(way, tmp_path):
    model = begun(way)
    talk = [Message(role="user", content="3"), Message(role="assistant", content="314<answer>4</answer>")]
    row, rng = demonstration_row(RENDERER, talk, 0.0), np.random.default_rng(0)
    learner = Learner(model, Optim(lr=5e-3, warmup=0, steps=30), read=way.taught)
    losses = [
        learner.step(weighted([way.lesson(row, RENDERER, rng) for _ in range(8)], "cpu"), way.loss)["loss"]
        for _ in range(30)
    ]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    save_model(model, TOKENIZER, tmp_path / "model")
    again = way.begin(load_model(tmp_path / "model")[0], RENDERER, tmp_path / "model")
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))


def test_layers_of_other_sizes_are_refused(tmp_path):
    save_model(begun(gaussian_latents(c_max=3, c=1)), TOKENIZER, tmp_path / "model")
    with pytest.raises(ValueError, match="of other sizes"):
        gaussian_latents(c_max=4, c=1).begin(policy(), RENDERER, tmp_path / "model")


def test_a_lesson_that_does_not_say_who_speaks_is_refused():
    talk = [Message(role="user", content="3"), Message(role="assistant", content="3<answer>4</answer>")]
    row = demonstration_row(RENDERER, talk, 1.0)
    with pytest.raises(ValueError, match="context_weight below 1"):
        gaussian_latents().lesson(row, RENDERER, np.random.default_rng(0))


# --- masked diffusion


@pytest.mark.parametrize("remask", [True, False])
def test_unmasking_is_replayed(remask):
    way = masked_diffusion(length=8, steps=4, remask=remask)
    model = begun(way)
    _, segments, batch = played(way, model)
    order, drawn = (np.stack([s.extras[k] for s in segments]) for k in ("order", "drawn"))
    again = ((drawn > 0).sum(2) > 1).any()
    assert again == remask, "only with remasking is a position written twice"
    assert [(order[..., t] > 0).sum(1).tolist() for t in range(4)] == [[2] * 6, [4] * 6, [6] * 6, [8] * 6]
    stats, on = way.read(model, batch), batch.trainable
    assert torch.allclose(stats.logp[on], batch.columns["sampling_logp"][on], atol=2e-3)
    assert torch.allclose(stats.entropy[on], batch.columns["sampling_entropy"][on], atol=2e-3)
    stats.logp.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert float(model.unmasking.down.weight.grad.abs().max()) > 0, "the confidence is part of the policy"


def test_each_position_sees_the_whole_row_and_no_other():
    model, ids = policy(), torch.arange(3, 20)
    position = torch.cat([torch.arange(7), torch.arange(10)])
    hidden = own_hidden(model, ids, position, WholeRows([7, 10]))
    other = ids.clone()
    other[6] = 40
    moved = (own_hidden(model, other, position, WholeRows([7, 10])) - hidden).abs().amax(1)
    assert (moved[:7] > 1e-6).all() and (moved[7:] == 0).all()
    causal = own_hidden(model, other, position, PackedRows([7, 10])) - own_hidden(
        model, ids, position, PackedRows([7, 10])
    )
    assert (causal[:6] == 0).all()


def test_all_orders_of_choice_have_probability_one():
    way, h = (
        masked_diffusion(confidence_temperature=0.7),
        torch.randn(4, generator=torch.Generator().manual_seed(0)).double(),
    )
    ranks = []
    for first, second in itertools.permutations(range(4), 2):
        rank = torch.zeros(4)
        rank[first], rank[second] = 1, 2
        ranks.append(rank)
    rank = torch.stack(ranks).double()
    logp = way.logp(confidence=h.expand(len(rank), 4), rank=rank, open=torch.ones_like(rank))
    assert float(logp.exp().sum()) == pytest.approx(1.0, abs=1e-9)


def test_a_second_turn_and_a_short_limit_are_refused():
    way = masked_diffusion(length=8, steps=4)
    session = way.sampler(begun(way), RENDERER).open(prompts(1), [0])
    with pytest.raises(ValueError, match="raise sampling.max_turn_tokens"):
        session.generate(Sampling(max_tokens=7))
    session.generate(Sampling(max_tokens=8))
    with pytest.raises(ValueError, match="environments of one turn"):
        session.observe([0], prompts(1))
