"""The loss of a mixture's routers is transformers' own, reaches the routers, and is refused where there is none."""

import pytest
import tiny
import torch
from architectures import TABLE

from tests.training.learner.test_learner import rows
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import pack
from training.model.attention import NAME


def mixture(name):
    model = next(c for c in TABLE if c.name == name).model()
    model.set_attn_implementation(NAME)
    return model


def nothing(stats, batch):
    """An objective without value: what is left of the step is the routers'."""
    return [t.__class__(values=0.0 * t.values, denominator=t.denominator) for t in nll(stats, batch)]


@pytest.mark.parametrize("name", ["Qwen2-MoE", "Qwen3-MoE", "Mixtral"])
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_the_loss_and_its_gradient_are_those_of_transformers(name, gradient_checkpointing):
    row = rows()[:1]
    batch, model, theirs = pack(row), mixture(name), mixture(name)
    theirs.set_attn_implementation("sdpa")
    want = theirs(input_ids=batch.ids[None], output_router_logits=True, use_cache=False).aux_loss
    want.backward()
    learner = Learner(
        model,
        Optim(lr=0.0, max_grad_norm=1e9),
        router_loss=1.0,
        gradient_checkpointing=gradient_checkpointing,
    )
    metrics = learner.step(batch, nothing)
    assert metrics["router_loss"] == pytest.approx(want.item(), rel=1e-4)
    assert metrics["loss"] == pytest.approx(want.item(), rel=1e-4)
    mine, other = dict(model.named_parameters()), dict(theirs.named_parameters())
    routers = [n for n in mine if n.endswith(".gate.weight")]
    assert len(routers) == 2
    for n in routers:
        assert mine[n].grad.abs().max() > 0
        torch.testing.assert_close(mine[n].grad, other[n].grad, rtol=1e-3, atol=1e-6)
    assert not any(m._forward_hooks for m in model.modules())


def test_it_adds_to_the_objective_by_its_weight_and_micro_batches_share_it():
    def step(router_loss, **knobs):
        learner = Learner(mixture("Mixtral"), Optim(lr=0.0), router_loss=router_loss)
        return learner.step(pack(rows()), nll, **knobs)

    plain, balanced, split = step(0.0), step(0.5), step(0.5, tokens_per_microbatch=20)
    assert "router_loss" not in plain
    assert balanced["loss"] == pytest.approx(plain["loss"] + 0.5 * balanced["router_loss"], rel=1e-5)
    assert split["loss"] == pytest.approx(plain["loss"] + 0.5 * split["router_loss"], rel=1e-5)
    assert split["router_loss"] == pytest.approx(balanced["router_loss"], rel=0.3)


@pytest.mark.parametrize("model", [tiny.build, lambda: mixture("DeepSeek V3")], ids=["dense", "DeepSeek V3"])
def test_a_model_without_such_routers_is_refused(model):
    with pytest.raises(ValueError, match="router_loss: a .* has no router whose experts a loss could balance"):
        Learner(model(), Optim(), router_loss=0.01).step(pack(rows()), nll)
