"""Decoders that look at hidden states: reachability, surgery and duels, against what is known in small closed cases."""

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode.brt_align import Guard, Value, backed_up, steered
from training.decode.t_pop import learned
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)


def engine(**more):
    model = tiny.build(vocabulary=V, init_range=0.2)
    return Engine(sampler=TorchSampler(model, 2), text=str, said=str, sampling=Sampling(max_tokens=8), **more)


def pairs(n=8):
    rng = np.random.default_rng(5)
    return [
        Example(prompt=rng.integers(3, 16, 4), chosen=rng.integers(3, 8, 6), rejected=rng.integers(8, 16, 6))
        for _ in range(n)
    ]


def asks(n=3):
    return [Ask(prompt=p, seed=i, max_tokens=8) for i, p in enumerate(tiny.ids(*[5] * n, below=16))]


class Linear(torch.nn.Module):
    """V(z) = 2 z_0 - 1."""

    def forward(self, z):
        return 2 * z[..., 0] - 1


def test_the_value_is_the_worst_ahead_and_the_step_the_least():
    # Five states one after another, as one-hot streams: 0 -> 1 -> 2 ends safe; 3 -> 4 ends unsafe; 3 is left for 1 half
    # of the time. With gamma = 1: V is 1 on 0, 1, 2 and -1 on 4; on 3 the mean of the two chains, 0.
    eye = torch.eye(5)
    chains = [eye[[0, 1, 2]], eye[[3, 4]], eye[[3, 1, 2]]]
    value = Value(torch.cat(chains), 32, 0)
    backed_up(value, chains, [1.0, -1.0, 1.0], 1.0, 3000)
    assert value(eye).tolist() == pytest.approx([1, 1, 1, 0, -1], abs=0.02)

    # From V = -3 to delta = 1 along (2, 0): a step of (2, 0), and none where the value is enough.
    z = torch.tensor([[-1.0, 5.0]])
    assert steered(Linear(), z, 1.0, 3, 9.0).tolist() == [pytest.approx([2.0, 0.0])]
    assert steered(Linear(), z, 1.0, 3, 0.5).norm() == pytest.approx(0.5)
    along = torch.tensor([0.6, 0.8])
    assert steered(Linear(), z, 1.0, 3, 9.0, along).tolist() == [pytest.approx([1.2, 1.6])]
    guard = Guard(value=Linear(), layer=0, start=1, delta=1.0, n_iter=3, max_norm=9.0, along=None)
    stream = torch.tensor([[-1.0, 5.0], [-1.0, 5.0], [3.0, 1.0 / 3]])
    out = guard(0, stream, torch.arange(3))
    assert out[0].tolist() == stream[0].tolist() and out[1].tolist() == pytest.approx([1.0, 5.0])
    assert torch.equal(out[2], stream[2]) and guard.alarms == [1]


def test_what_never_alarms_is_a_plain_draw_bit_by_bit():
    source = engine()
    plain = bind("decode", {"piece": "sample"})(source, asks(), None)
    for delta, same in ((-1e9, True), (1e9, False)):
        decode = bind("decode", {"piece": "brt_align", "delta": delta, "steps": 20})
        done = decode(source, asks(), decode.fit(source, pairs()))
        assert [d.segment.ids.tolist() for d in done] == [p.segment.ids.tolist() for p in plain] or not same
        assert all(bool(d.account.events) != same for d in done)
        assert [d.account.tokens for d in done] == [{"policy": 5 + len(d.segment.ids)} for d in done]


def test_weights_are_changed_for_the_answer_alone():
    source = engine()
    model = source.sampler.model
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    plain = bind("decode", {"piece": "sample"})(source, asks(), None)
    decode = bind("decode", {"piece": "model_surgery", "alpha": 5.0})
    fitted = decode.fit(source, pairs())
    cut = decode(source, asks(), fitted)
    assert fitted.accuracy > 0.9 and fitted.changed == round(0.3 * 2 * 48)
    moved = sum(int((w != before[n]).any(1).sum()) for n, w in fitted.weights.items())
    assert moved == fitted.changed
    for n, w in fitted.weights.items():
        change = (w - before[n]).double()
        rows = change.norm(dim=1) > 0
        assert (change[rows].norm(dim=1) / before[n][rows].norm(dim=1)).tolist() == pytest.approx(
            [5.0] * int(rows.sum()), rel=1e-4
        )
    assert any(not np.array_equal(a.segment.logp, b.segment.logp) for a, b in zip(plain, cut, strict=True))
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
    again = bind("decode", {"piece": "sample"})(source, asks(), None)
    assert all(np.array_equal(a.segment.logp, b.segment.logp) for a, b in zip(plain, again, strict=True))
    with pytest.raises(ValueError, match="made with another model"):
        small = TorchSampler(tiny.build(vocabulary=V, hidden=16), 2)
        decode(Engine(sampler=small, text=str, said=str), asks(), fitted)


def test_a_fault_within_leaves_the_weights_as_they_were():
    source = engine()
    name, own = next(iter(source.sampler.model.named_parameters()))
    before = own.detach().clone()
    with pytest.raises(RuntimeError), source.changed({name: before + 1}):
        assert torch.equal(own, before + 1)
        raise RuntimeError
    assert torch.equal(own, before)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"piece": "brt_align", "layer": 7}, "there is no layer 7: this model has 2"),
        ({"piece": "brt_align", "gamma": 1.5}, "gamma is 1.5"),
        ({"piece": "model_surgery", "layer": 7}, "there is no layer 7: this model has 2"),
        ({"piece": "model_surgery", "rows": 1.5}, "rows is 1.5: it is the share"),
        ({"piece": "t_pop", "layer": 7}, "there is no layer 7: this model has 2"),
        ({"piece": "t_pop", "lam": 0.0}, "lam is 0.0"),
        ({"piece": "t_pop", "duels": 1}, "and there is none: train one"),
    ],
)
def test_bad_knobs_are_refused_in_a_sentence(spec, words):
    with pytest.raises(ValueError, match=words):
        bind("decode", spec).fit(engine(), pairs())


def test_duels_find_a_linear_taste():
    # One duel, won by the feature (1): theta minimises log(1 + exp(-theta)) + theta^2 / 2, so theta = sigmoid(-theta).
    theta, inverse = learned(torch.tensor([[1.0]], dtype=torch.float64), 1.0)
    assert float(theta) == pytest.approx(0.401058137, abs=1e-8) and float(inverse) == pytest.approx(0.5)

    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=8)
        truth *= 4 / np.linalg.norm(truth)
        known, regret = [], []
        theta, inverse = torch.zeros(8, dtype=torch.float64), torch.eye(8, dtype=torch.float64)
        for _ in range(60):
            phi = torch.from_numpy(rng.normal(size=(20, 8)) / np.sqrt(8))
            one = int((phi @ theta).argmax())
            apart = phi - phi[one]
            two = int((phi @ theta + ((apart @ inverse) * apart).sum(1).clamp(min=0).sqrt()).argmax())
            value = phi.numpy() @ truth
            regret.append(value.max() - (value[one] + value[two]) / 2)
            won = rng.random() < 1 / (1 + np.exp(value[two] - value[one]))
            known.append(phi[one] - phi[two] if won else phi[two] - phi[one])
            theta, inverse = learned(torch.stack(known), 1.0)
        cosine = float(theta.numpy() @ truth / np.linalg.norm(theta) / np.linalg.norm(truth))
        assert cosine >= 0.85, seed
        assert np.mean(regret[-20:]) < 0.6 * np.mean(regret[:10])


def test_a_duel_is_paid_for_and_taste_guides():
    """Two users, one who likes low ids and one who likes high ones: each gets more of what they like than the other."""
    means, many = {}, asks(60)
    for sign in (-1, 1):
        source = engine(rewards=lambda rows, sign=sign: [sign * float(np.mean(r[4:])) for r in rows])
        decode = bind("decode", {"piece": "t_pop", "duels": 30, "w": 40.0, "k": 6, "segment": 2})
        taste = decode.fit(source, pairs()[:1])
        assert len(taste.rewards) == 30
        guided = decode(source, many, taste)
        assert all(d.account.tokens["policy"] > 6 * 5 for d in guided)
        means[sign] = np.mean(np.concatenate([d.segment.ids for d in guided]))
    assert means[-1] < means[1] - 0.5
