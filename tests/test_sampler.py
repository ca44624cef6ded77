"""The in-process sampler: its log-probs are the learner's, its frequencies the model's, and a sample belongs to its seed alone."""

import math

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from training.learner import token_stats
from training.pack import Row, pack
from training.rollout.torch_sampler import TorchSampler, _draw

V = tiny.Vocabulary(16)  # so few that turns end by themselves after a dozen tokens
END = V.eos_token_id


def sampler():
    return TorchSampler(tiny.build(vocabulary=V, init_range=0.2), END, version=3)


def play(source, prompts, seeds, sampling, observations=()):
    """Segments of every conversation, turn by turn; between turns each alive conversation is told the next observation."""
    session, alive, out = source.open(prompts, seeds), list(range(len(prompts))), [[p] for p in prompts]
    for told in (*observations, None):
        for i, segment in zip(alive, session.generate(sampling), strict=True):
            out[i].append(segment)
        alive = [i for i in alive if out[i][-1].stop == "end"]
        if told is None or not alive:
            return out
        for i in alive:
            out[i].append(told[i])
        session.observe(alive, [told[i] for i in alive])


def as_row(parts):
    """The row that a learner would get, and the sampler's log-probs and entropies along it."""
    ids = np.concatenate([p if isinstance(p, np.ndarray) else p.ids for p in parts])
    model = np.concatenate([np.full(len(p if isinstance(p, np.ndarray) else p.ids), not isinstance(p, np.ndarray)) for p in parts])
    said = [p for p in parts if not isinstance(p, np.ndarray)]
    columns = {name: np.zeros(len(ids)) for name in ("logp", "entropy")}
    for name, column in columns.items():
        column[model] = np.concatenate([getattr(s, name) for s in said])
    return Row(ids=ids, trainable=model, columns=columns)


PROMPTS = tiny.ids(5, 9, 2, 9, 30, below=16)
TOLD = [tiny.ids(3, 1, 7, 2, 5, seed=s, below=16) for s in (11, 12)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_the_learner_recomputes_the_samplers_log_probs(temperature):
    """Over three turns of different lengths, with one prompt given twice; the ratio is 1 everywhere."""
    source, prompts, told = sampler(), [*PROMPTS, PROMPTS[0]], [[*t, t[1]] for t in TOLD]
    out = play(source, prompts, range(6), Sampling(temperature=temperature, max_tokens=30), told)
    assert sum(len(parts) > 2 for parts in out) >= 3, "some conversations must go on after a first turn"
    batch = pack([as_row(parts) for parts in out])
    with torch.no_grad():
        stats = token_stats(source.model, batch, temperature=temperature)
    ratio = (stats.logp - batch.columns["logp"]).exp()
    torch.testing.assert_close(ratio[batch.trainable], torch.ones(int(batch.trainable.sum())), atol=1e-4, rtol=0)
    torch.testing.assert_close(stats.entropy, batch.columns["entropy"], atol=1e-4, rtol=1e-4)


def test_the_learner_at_another_temperature_disagrees():
    out = play(sampler(), PROMPTS, range(5), Sampling(temperature=0.7, max_tokens=20))
    batch = pack([as_row(parts) for parts in out])
    with torch.no_grad():
        d = token_stats(sampler().model, batch).logp - batch.columns["logp"]
    assert float(d[batch.trainable].abs().mean()) > 0.1


def test_a_sample_does_not_depend_on_its_neighbours():
    sampling = Sampling(max_tokens=30)
    together = play(sampler(), PROMPTS, [10, 11, 12, 13, 14], sampling, TOLD)
    for i, (prompt, want) in enumerate(zip(PROMPTS, together, strict=True)):
        alone = play(sampler(), [prompt], [10 + i], sampling, [[t[i]] for t in TOLD])[0]
        twice = play(sampler(), [PROMPTS[2], prompt, prompt], [99, 10 + i, 98], sampling, [[t[0], t[i], t[0]] for t in TOLD])[1]
        for other in (alone, twice):
            np.testing.assert_array_equal(as_row(other).ids, as_row(want).ids)


def test_the_same_seed_says_the_same_and_another_does_not():
    draw = lambda seed: [tuple(p[1].ids) for p in play(sampler(), PROMPTS, [seed] * 5, Sampling(max_tokens=12))]  # noqa: E731
    assert draw(1) == draw(1) != draw(2)
    same = play(sampler(), [PROMPTS[0]] * 8, range(8), Sampling(max_tokens=12))
    assert len({tuple(p[1].ids) for p in same}) > 1, "the samples of one prompt must differ"


def test_a_turn_ends_with_the_end_token_or_at_the_limit():
    out = play(sampler(), PROMPTS * 8, range(40), Sampling(max_tokens=6))
    stops = {s.stop for _, s in out}
    assert stops == {"end", "length"}
    for _, s in out:
        assert len(s.ids) == len(s.logp) == len(s.entropy) and s.role == "model" and s.version == 3
        assert (s.ids[:-1] != END).all() and (s.ids[-1] == END) == (s.stop == "end")
        assert s.stop == "end" or len(s.ids) == 6
    assert len({len(s.ids) for _, s in out}) > 2


def test_greedy_takes_the_likeliest_token_and_needs_no_seed():
    source = sampler()
    (row, segment), (_, other) = play(source, [PROMPTS[1], PROMPTS[1]], [1, 2], Sampling(temperature=0.0, max_tokens=10))
    np.testing.assert_array_equal(segment.ids, other.ids)
    ids = list(row)
    for token in segment.ids:
        batch = pack([Row(ids=np.array([*ids, t]), trainable=np.arange(len(ids) + 1) == len(ids)) for t in range(len(V))])
        with torch.no_grad():
            last = token_stats(source.model, batch).logp[batch.trainable]
        assert int(last.argmax()) == token
        ids.append(int(token))


# --- one draw ---------------------------------------------------------------------------------------------------------

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -2.0])


def frequencies(sampling, n=40_000, logits=LOGITS):
    uniform = torch.from_numpy(np.random.default_rng(3).random(n))
    token, logp, entropy = _draw(logits.expand(n, -1), sampling, uniform)
    return torch.bincount(token, minlength=len(logits)).double() / n, token, logp, entropy


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(), [0, 1, 2, 3, 4, 5]),
        (Sampling(temperature=0.7), [0, 1, 2, 3, 4, 5]),
        (Sampling(top_k=2), [0, 1]),
        (Sampling(top_k=99), [0, 1, 2, 3, 4, 5]),
        (Sampling(top_p=0.75), [0, 1]),  # 0.567 + 0.209 = 0.776
        (Sampling(top_p=0.8), [0, 1, 2]),
        (Sampling(top_p=0.01), [0]),
        (Sampling(temperature=2.0, top_k=4, top_p=0.6), [0, 1]),  # of the four: 0.40, 0.24, 0.19, 0.15
    ],
)
def test_frequencies_and_log_probs_are_those_of_the_truncated_renormalised_distribution(sampling, allowed):
    p = torch.zeros(len(LOGITS), dtype=torch.float64)
    p[allowed] = torch.softmax(LOGITS[allowed].double() / sampling.temperature, 0)
    n = 40_000
    share, token, logp, entropy = frequencies(sampling, n)
    assert share[p == 0].sum() == 0
    kept = p > 0
    chi2 = float(n * ((share - p)[kept] ** 2 / p[kept]).sum())
    assert chi2 < 20.5, "the chance of more, with five degrees of freedom, is one in a thousand"
    torch.testing.assert_close(logp.double(), p.log()[token], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy[0].double(), -(p[kept] * p[kept].log()).sum(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53, 1 - 2**-25])
def test_a_token_without_probability_is_never_drawn(u):
    """At both ends of the unit interval, where rounding meets the first and the last token."""
    logits = torch.full((200, 50), -torch.inf)
    logits[:, 10:30] = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    token, logp, entropy = _draw(logits, Sampling(), torch.full((200,), u, dtype=torch.float64))
    assert torch.isfinite(logp).all() and torch.isfinite(entropy).all()
    assert (token == (10 if u == 0 else 29)).all() or u == 1 - 2**-25


def test_the_tail_of_a_large_vocabulary_is_reached():
    """60,000 tokens of 1e-9 beside one of nearly 1: in float32 sixty of them would share a number."""
    logits = torch.full((1, 60_001), math.log(1e-9))
    logits[0, 0] = math.log(1 - 6e-5)
    u = 1 - torch.linspace(5.9e-5, 1e-6, 500, dtype=torch.float64)
    token, _, _ = _draw(logits.expand(len(u), -1), Sampling(), u)
    want = 1 + (u - (1 - 6e-5)) / 1e-9
    assert float((token - want).abs().max()) < 20  # the probabilities themselves are float32


def test_every_turn_draws_numbers_of_its_own(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "training.rollout.torch_sampler._draw", lambda logits, sampling, uniform: seen.append(uniform) or _draw(logits, sampling, uniform)
    )
    play(sampler(), PROMPTS, range(5), Sampling(max_tokens=30), TOLD)
    numbers = torch.cat(seen).tolist()
    assert len(set(numbers)) == len(numbers) > 60, "no number serves two turns, samples or positions"
