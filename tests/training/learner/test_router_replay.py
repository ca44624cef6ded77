"""The learner computes with the experts that the sampler chose: those are written down for every token, replayed in the
forward and in the backward pass, and weighed as transformers weighs them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from architectures import TABLE

from synth.types import Sampling
from tests.training.learner.test_learner import equal
from training.learner.learner import Learner, Optim, nll, token_stats
from training.learner.pack import Row, Stream, pack
from training.model.attention import NAME
from training.model.router import Replay, _weights
from training.rollout.torch_sampler import TorchSampler

MIXTURES = ["Qwen2-MoE", "Qwen3-MoE", "Mixtral", "DeepSeek V3"]


def mixture(name):
    model = next(c for c in TABLE if c.name == name).model()
    model.set_attn_implementation(NAME)
    Replay.of(model)
    return model


def played(model, turns=2):
    """Rows of four conversations, two of which begin alike, and their sampled log-probs; with what was sampled, what an
    environment said between, and the experts of the last turn."""
    prompts = tiny.ids(7, 7, 4, 9)
    prompts[1] = prompts[0]
    session = TorchSampler(model, end_id=2).open(prompts, seeds=[1, 2, 3, 4])
    ids, trainable, logp = ([[p] for p in prompts], [[np.zeros(len(p), bool)] for p in prompts], [[] for _ in prompts])
    alive, experts = list(range(4)), {}
    for turn in range(turns):
        segments = session.generate(Sampling(max_tokens=6 + 3 * turn))
        for i, s in zip(alive, segments, strict=True):
            ids[i].append(s.ids), trainable[i].append(np.ones(len(s.ids), bool)), logp[i].append(s.logp)
            experts[i] = s.experts
        if turn + 1 < turns:
            alive = [0, 1, 3]
            told = tiny.ids(3, 5, 2, seed=9)
            session.observe(alive, told)
            for i, x in zip(alive, told, strict=True):
                ids[i].append(x), trainable[i].append(np.zeros(len(x), bool))
    rows = [
        Row(ids=np.concatenate(a), trainable=np.concatenate(b), experts=experts[i])
        for i, (a, b) in enumerate(zip(ids, trainable, strict=True))
    ]
    return rows, np.concatenate([np.concatenate(x) for x in logp])


def used(model):
    """The experts that each of the model's mixtures is really asked for, in the order of its layers, as a list that
    grows."""
    out = []
    for m in model.modules():
        if hasattr(m, "experts") and hasattr(m, "gate"):
            m.experts.register_forward_pre_hook(lambda _, args: out.append(args[1].clone()))
    return out


@pytest.mark.parametrize("name", MIXTURES)
def test_every_token_has_the_experts_that_the_sampler_chose(name):
    model = mixture(name)
    rows, logp = played(model)
    layers = sum(type(m).__name__.lower().endswith("topkrouter") for m in model.modules())
    for r in rows:
        assert r.experts.shape == (len(r.ids), layers, 2) and r.experts.dtype == np.int16 and r.experts.min() >= 0
    plain = pack([replace(r, experts=None) for r in rows])
    chosen = used(model)
    token_stats(model, plain)
    own = torch.stack(chosen, 1)
    kept = torch.from_numpy(np.concatenate([r.experts for r in rows])).long()
    stream = Stream.of(pack(rows))
    kept = kept if stream.place is None else stream.experts.long()
    assert torch.equal(own.sort(-1).values, kept.sort(-1).values), "in float32 the learner chooses the same by itself"
    stats = token_stats(model, pack(rows))
    batch = pack(rows)
    np.testing.assert_allclose(stats.logp[batch.trainable].detach().numpy(), logp, atol=1e-5)


@pytest.mark.parametrize("gradient_checkpointing", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_a_learner_whose_routers_would_choose_others_takes_the_samplers(name, gradient_checkpointing):
    sampled, model = mixture(name), mixture(name)
    rows, _ = played(sampled)
    torch.manual_seed(1)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if n.endswith("gate.weight"):
                p += torch.randn_like(p)
    batch = pack(rows)
    want, chosen = Stream.of(batch).experts.long(), used(model)
    learner = Learner(model, Optim(lr=1e-3, warmup=0), gradient_checkpointing=gradient_checkpointing)
    learner.step(batch, nll)
    layers = want.shape[1]
    assert len(chosen) == layers * (2 if gradient_checkpointing else 1)
    for i, got in enumerate(chosen):  # the backward pass computes the last layers first
        layer = i if i < layers else 2 * layers - 1 - i
        assert torch.equal(got, want[:, layer]), i
    chosen.clear()
    token_stats(model, pack([replace(r, experts=None) for r in rows]))
    assert not torch.equal(torch.stack(chosen, 1).sort(-1).values, want.sort(-1).values), "by itself it chooses others"


def test_with_recompute_a_step_is_the_same_to_the_bit():
    rows, _ = played(mixture("Mixtral"))
    states = []
    for gradient_checkpointing in (False, True):
        learner = Learner(mixture("Mixtral"), Optim(lr=1e-3), gradient_checkpointing=gradient_checkpointing)
        for _ in range(2):
            learner.step(pack(rows), nll, tokens_per_microbatch=20)
        states.append(learner.state())
    assert equal(*states)


def test_tokens_of_which_none_are_known_choose_by_themselves():
    model = mixture("Qwen3-MoE")
    rows, _ = played(model)
    short = [replace(rows[0], experts=rows[0].experts[:5]), replace(rows[1], experts=None)]
    batch = pack(short)
    assert batch.columns["experts"][5:].max() == -1 and batch.columns["experts"][:5].min() >= 0
    chosen = used(model)
    token_stats(model, batch)
    assert min(int(x.min()) for x in chosen) >= 0


def test_a_choice_weighs_what_transformers_gives_it():
    logits, chosen = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).log(), torch.tensor([[3, 0]])
    mixtral, qwen = type("Mixtral", (), {})(), type("Qwen", (), {"norm_topk_prob": False})()
    assert _weights(mixtral, logits, chosen)[0].tolist() == pytest.approx([0.8, 0.2])
    assert _weights(qwen, logits, chosen)[0].tolist() == pytest.approx([0.4, 0.1])
    knobs = {"e_score_correction_bias": 0, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
    a, b = (1 / (1 + math.exp(-x)) for x in (math.log(4), math.log(1)))
    got = _weights(type("DeepSeek", (), knobs)(), logits, chosen)[0].tolist()
    assert got == pytest.approx([2.5 * a / (a + b), 2.5 * b / (a + b)])


def test_a_model_without_routers_is_refused():
    with pytest.raises(
        ValueError, match="router_replay: a Qwen3ForCausalLM has no router whose experts could be replay"
    ):
        Replay.of(tiny.build())
