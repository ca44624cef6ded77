"""A base in four bits: what its weights become, that adapters learn on it by the gradients of the definition, and that
what is saved says what was trained."""

import json
from importlib.util import find_spec

import low_rank
import pytest
import tiny
import torch
from architectures import TABLE
from torch import nn

from tasks.storage.checkpoint import Checkpoints
from tests.training.learner.test_learner import equal, rows
from training.learner.learner import Learner, Optim, nll, token_stats
from training.learner.pack import pack
from training.learner.profile import flops
from training.model import quantised
from training.model.lora import adapt, base_of, first_on, folded
from training.model.model import load_model, n_parameters, save_model
from training.model.quantised import QuantisedLinear
from training.model.size import NF4
from training.rollout.mismatch import Compared
from training.rollout.torch_sampler import TorchSampler

if find_spec("bitsandbytes") is None:
    pytest.skip("pip install 'espalier[qlora]'", allow_module_level=True)
LORA = {"rank": 3, "alpha": 6, "base": "nf4"}
# quantiles of a normal distribution, 0 among them, from -1 to 1 (Dettmers et al. 2023, appendix E)
TABLE_OF_16 = [
    -1.0,
    -0.6961928,
    -0.5250731,
    -0.3949175,
    -0.2844414,
    -0.1847734,
    -0.0910500,
    0.0,
    0.0795803,
    0.1609302,
    0.2461123,
    0.3379152,
    0.4407098,
    0.5626170,
    0.7229568,
    1.0,
]


def lora(*, dtype=torch.float32, **other):
    model = tiny.build().to(dtype)
    adapt(model, LORA | other, seed=1)
    return model


def trained(steps=3, model=None, **knobs):
    learner = Learner(model or lora(), Optim(lr=1e-2, warmup=0, decay="constant"), **knobs)
    for t in range(steps):
        learner.step(pack(rows(seed=t)), nll)
    return learner


def dequantised(model):
    """A plain model with the weights that the quantised one computes with, adapters folded in."""
    out = tiny.build()
    out.load_state_dict(folded(model))
    return out


class Elsewhere:
    """In the place of bitsandbytes' functions, on a device that it has no kernels for."""

    @staticmethod
    def quantize_4bit(*args, **kwargs):
        raise NotImplementedError("Could not run 'bitsandbytes::quantize_4bit' with arguments from this backend.")


def linear(inputs=64, outputs=48, bias=True):
    torch.manual_seed(3)
    return nn.Linear(inputs, outputs, bias=bias)


def test_a_weight_becomes_the_nearest_of_sixteen_times_the_largest_of_its_block():
    layer = linear(128, 2, bias=False)
    with torch.no_grad():
        layer.weight[0, :64] = 0.0
        layer.weight[0, :5] = torch.tensor([-2.0, 1.0, 0.17, 0.08, -0.6])
    got = QuantisedLinear(layer).unpacked()
    # of largest size 2: 1 is nearer 0.881 than 1.125, 0.17 next to 0.159, 0.08 nearer 0.159 than 0, -0.6 next to -0.569
    want = [2 * TABLE_OF_16[i] for i in (0, 12, 8, 8, 4)]
    torch.testing.assert_close(got[0, :5], torch.tensor(want), rtol=1e-6, atol=0)
    assert not got[0, 5:64].any()
    blocks = layer.weight.detach().reshape(-1, 64)
    scale, table = blocks.abs().amax(1, keepdim=True), torch.tensor(TABLE_OF_16)
    nearest = table[(blocks / scale)[..., None].sub(table).abs().argmin(-1)] * scale
    torch.testing.assert_close(got, nearest.reshape(got.shape), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("inputs", [64, 60])
def test_a_layer_is_the_product_with_its_unpacked_weight_and_bitsandbytes_own(inputs):
    import bitsandbytes.nn as theirs_nn  # here, not above: every worker collects this file, and the package takes seconds

    layer = linear(inputs)
    ours, theirs = (
        QuantisedLinear(layer),
        theirs_nn.Linear4bit(inputs, 48, quant_type="nf4", compress_statistics=False),
    )
    theirs.weight = theirs_nn.Params4bit(
        layer.weight.detach().clone(), requires_grad=False, quant_type="nf4", compress_statistics=False
    )
    theirs.bias = nn.Parameter(layer.bias.detach().clone())
    theirs = theirs.to("cpu")
    plain, seen = nn.functional.linear, []
    for of in (ours, theirs, lambda x: plain(x, ours.unpacked(), ours.bias)):
        x = torch.randn(3, 5, inputs, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = of(x)
        y.square().sum().backward()
        seen.append((y.detach(), x.grad))
    for got in seen[1:]:
        torch.testing.assert_close(seen[0], got, rtol=1e-5, atol=1e-6)
    assert not any(p.requires_grad for p in ours.parameters())


def test_a_base_takes_four_and_a_half_bits_a_weight_and_the_rest_stays():
    model, plain = lora(), tiny.build()
    inner = {n: m for n, m in plain.base_model.named_modules() if isinstance(m, nn.Linear)}
    assert len(list(quantised.layers(model))) == len(inner) == 14
    held = sum(t.numel() * t.element_size() for _, m in quantised.layers(model) for t in (m.weight, m.scale))
    numbers = sum(m.weight.numel() for m in inner.values())
    assert held == numbers * NF4 == numbers * 4.5 / 8
    assert quantised.n_quantised(model) == numbers
    adapters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert n_parameters(model) - adapters == n_parameters(plain)
    kept = dict(model.named_parameters())
    for name, p in plain.named_parameters():
        if name.removeprefix("model.").removesuffix(".weight") not in inner:
            assert torch.equal(kept[name], p), name
    adapt(plain, {k: v for k, v in LORA.items() if k != "base"}, seed=1)
    assert flops(model)(pack(rows())) == flops(plain)(pack(rows())), "the work is that of the weights it stands for"


def test_it_says_what_the_dequantised_model_says_and_nearly_what_the_model_said():
    model = lora()
    logp = token_stats(model, pack(rows())).logp
    torch.testing.assert_close(logp, token_stats(dequantised(model), pack(rows())).logp, rtol=0, atol=1e-5)
    before = token_stats(tiny.build(), pack(rows())).logp
    assert 1e-3 < float((logp - before).detach().abs().mean()) < 1, "of about 6 nats a token"


def test_gradients_are_those_of_the_definition_over_the_dequantised_base():
    """W + s B A: dB = s dW A', dA = s B' dW, with dW the gradient of all weights at the folded model."""
    model = trained(2).model
    plain = dequantised(model)
    pairs = list(low_rank.gradients(model, plain, pack(rows(seed=5)), scale=2))
    assert len(pairs) == 28
    for got, want in pairs:
        assert float((got - want).abs().max()) <= 5e-5 * float(want.abs().max())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_loss_falls_and_the_base_stays(dtype):
    model = lora(dtype=getattr(torch, dtype))
    before = {n: t.clone() for n, t in model.state_dict().items() if "lora_" not in n}
    learner = Learner(model, Optim(lr=1e-2, warmup=0, decay="constant"))
    losses = [learner.step(pack(rows()), nll)["loss"] for _ in range(8)]
    assert losses[-1] < losses[0] - 0.3
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items() if n in before)


def test_with_recompute_a_step_is_the_same_to_the_bit():
    assert equal(trained().state(), trained(gradient_checkpointing=True).state())


def test_interrupted_and_resumed_is_bitwise_never_interrupted(tmp_path):
    whole = trained(4)
    kept = Checkpoints(tmp_path)
    kept.save(2, trained(2).state())
    step, state = kept.latest()
    again = Learner(lora(), Optim(lr=1e-2, warmup=0, decay="constant"))
    again.load_state(state)
    for t in range(step, 4):
        again.step(pack(rows(seed=t)), nll)
    assert equal(whole.state(), again.state())


def test_the_sampler_is_the_learner():
    model = trained(2).model
    sampler = TorchSampler(model, 2)
    assert Compared(model=model, sampler=sampler)()["probe_gap"] < 1e-5


def test_a_saved_model_and_its_adapter_alone_say_what_was_trained(tmp_path):
    save_model(tiny.build(), tiny.tokenizer(), tmp_path / "base")
    model, tokenizer = load_model(tmp_path / "base", device=first_on(LORA, "cpu"))
    adapt(model, LORA | {"merge": False}, seed=1, device="cpu")
    trained(2, model)
    now = token_stats(model, pack(rows())).logp.detach()
    save_model(model, tokenizer, tmp_path / "out")
    adapter = tmp_path / "out" / "adapter"
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(tmp_path / "base")})
    )
    assert base_of(adapter) == str(tmp_path / "base")
    for folder in (tmp_path / "out", adapter):
        torch.testing.assert_close(token_stats(load_model(folder)[0], pack(rows())).logp, now, rtol=0, atol=1e-5)
    (adapter / "base.json").unlink()
    other = token_stats(load_model(adapter)[0], pack(rows())).logp
    assert float((other - now).abs().max()) > 1e-3, "the adapter was trained on the rounded base"


def test_a_plain_copy_of_a_quantised_model_says_the_same():
    model = tiny.build()
    quantised.quantise(model, "nf4")
    logp = token_stats(model, pack(rows())).logp
    once = {n: m.unpacked() for n, m in quantised.layers(model)}
    quantised.plain(model)
    assert not any(quantised.layers(model)) and model.state_dict().keys() == tiny.build().state_dict().keys()
    torch.testing.assert_close(token_stats(model, pack(rows())).logp, logp, rtol=0, atol=1e-5)
    quantised.quantise(model, "nf4")
    for name, layer in quantised.layers(model):
        torch.testing.assert_close(layer.unpacked(), once[name], rtol=1e-6, atol=0)


def test_what_cannot_be_quantised_is_one_sentence(monkeypatch):
    with pytest.raises(ValueError, match="lora.base is 'int3': it is nf4, or left out"):
        lora(base="int3")
    mixture = next(c for c in TABLE if c.name == "Mixtral").model()
    with pytest.raises(ValueError, match="the experts of a MixtralForCausalLM, which are most of it, are no linear"):
        adapt(mixture, LORA)
    with pytest.raises(ValueError, match="a GPT2LMHeadModel has no linear layers to quantise"):
        quantised.quantise(next(c for c in TABLE if c.name == "GPT-2").model(), "nf4")
    with pytest.raises(ValueError, match="bitsandbytes cannot quantise on cpu .*: leave lora.base out"):
        monkeypatch.setattr(quantised, "_functions", lambda: Elsewhere)
        adapt(tiny.build(), LORA)
    monkeypatch.setattr(quantised, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"the package that quantises is missing: pip install 'espalier\[qlora\]'"):
        first_on(LORA, "cpu")
