"""Adapters: what they begin as, what is trained, and models that know nothing of them once they are saved."""

import json

import low_rank
import pytest
import tiny
import torch
from architectures import TABLE
from transformers import AutoModelForCausalLM

from tasks.storage.checkpoint import Checkpoints
from tests.training.learner.test_learner import equal, rows
from training.learner.learner import Learner, Optim, nll, token_stats
from training.learner.pack import pack
from training.model.attention import PackedRows
from training.model.lora import adapt, adapted, folded, load_adapters, save_adapters, use
from training.model.model import hidden_states, load_model, save_model

LORA = {"rank": 3, "alpha": 6, "modules": ["q_proj", "down_proj"]}


def lora(*, dtype=torch.float32, **other):
    model = tiny.build().to(dtype)
    adapt(model, LORA | other, seed=1)
    return model


def trained(steps=3, model=None, **knobs):
    learner = Learner(model or lora(), Optim(lr=1e-2, warmup=0, decay="constant"), **knobs)
    for t in range(steps):
        learner.step(pack(rows(seed=t)), nll)
    return learner


def test_a_new_adapter_says_what_the_model_said_and_its_matrices_alone_are_trained():
    model, plain = lora(), tiny.build()
    torch.testing.assert_close(
        token_stats(model, pack(rows())).logp, token_stats(plain, pack(rows())).logp, rtol=0, atol=1e-5
    )
    names = {n for n, p in model.named_parameters() if p.requires_grad}
    assert names and all(".lora_A." in n or ".lora_B." in n for n in names)
    assert {n.split(".")[-4] for n in names} == {"q_proj", "down_proj"}
    trained(model=model)
    assert not torch.allclose(token_stats(model, pack(rows())).logp, token_stats(plain, pack(rows())).logp, atol=1e-2)
    for name, p in plain.state_dict().items():
        owner, _, last = name.rpartition(".")
        here = model.state_dict()
        assert torch.equal(here.get(name, here.get(f"{owner}.base_layer.{last}")), p), (
            "what is not an adapter stays, to the bit"
        )


def test_gradients_are_those_of_the_definition():
    """W + s B A: dB = s dW A', dA = s B' dW, with dW the gradient of all weights at the folded model."""
    learner = trained(2)
    model, plain = learner.model, tiny.build()
    plain.load_state_dict(folded(model))
    pairs = list(low_rank.gradients(model, plain, pack(rows(seed=5)), scale=2))
    assert len(pairs) == 8
    for got, want in pairs:
        assert float((got - want).abs().max()) <= 2e-5 * float(want.abs().max())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_saved_model_has_them_folded_in_and_loads_anywhere(tmp_path, dtype):
    model = trained(model=lora(dtype=getattr(torch, dtype))).model
    save_model(model, tiny.tokenizer(), tmp_path / "model")
    assert adapted(model), "saving changes nothing"
    ours, _ = load_model(tmp_path / "model", dtype=dtype)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert not adapted(ours) and {n for n, _ in theirs.named_parameters()} == {
        n for n, _ in tiny.build().named_parameters()
    }
    ids = torch.arange(5, 25)
    states = [hidden_states(m, ids, torch.arange(20), PackedRows([20])).float() for m in (model, ours)]
    assert float((states[0] - states[1]).norm()) <= (1e-5 if dtype == "float32" else 0.05) * float(states[0].norm())


def test_adapters_of_a_folder_come_back_under_a_name_beside_others(tmp_path):
    learner = trained()
    save_adapters(learner.model, tmp_path / "a")
    model = lora()
    load_adapters(model, tmp_path / "a", "mine")
    for name, want in (("mine", learner.model), ("default", lora()), (None, tiny.build())):
        use(model, name)
        got = token_stats(model, pack(rows())).logp
        torch.testing.assert_close(got, token_stats(want, pack(rows())).logp, rtol=0, atol=1e-5)
    other = tiny.build(hidden=48)
    with pytest.raises(ValueError, match="does not fit its base"):
        load_adapters(other, tmp_path / "a", "mine")
    (tmp_path / "a/adapter_model.safetensors").rename(tmp_path / "a/adapter_model.bin")
    with pytest.raises(ValueError, match="a .bin file is a pickle"):
        load_adapters(model, tmp_path / "a", "again")


def test_muon_alone_trains_them_where_it_is_asked_for():
    model = lora()
    before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    learner = Learner(model, Optim(kind="muon", lr=1e-2, matrix_lr=1e-2, warmup=0))
    for t in range(2):
        learner.step(pack(rows(seed=t)), nll)
    assert all(not torch.equal(p, before[n]) for n, p in model.named_parameters() if n in before)


def test_with_recompute_a_step_is_the_same_to_the_bit():
    assert equal(trained().state(), trained(gradient_checkpointing=True).state())


def test_interrupted_and_resumed_is_bitwise_never_interrupted(tmp_path):
    whole = trained(4)
    kept = Checkpoints(tmp_path)
    kept.save(2, trained(2).state())
    step, state = kept.latest()
    other = lora()
    adapted_anew = Learner(other, Optim(lr=1e-2, warmup=0, decay="constant"))
    adapted_anew.load_state(state)
    for t in range(step, 4):
        adapted_anew.step(pack(rows(seed=t)), nll)
    assert equal(whole.state(), adapted_anew.state())


def test_beginnings_are_a_function_of_the_seed_and_leave_torchs_randomness_alone():
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    one, two, three = lora(), lora(), tiny.build()
    assert torch.equal(torch.rand(3), want)
    adapt(three, LORA, seed=2)
    assert equal(one.state_dict(), two.state_dict()) and not equal(one.state_dict(), three.state_dict())


def test_all_linear_layers_get_one_where_none_is_named_and_none_where_nothing_is_said():
    model, plain = lora(modules=None), tiny.build()
    assert {n.split(".")[-4] for n, p in model.named_parameters() if p.requires_grad} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    }
    adapt(plain, {})
    assert not adapted(plain) and all(p.requires_grad for p in plain.parameters())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rank": 0}, "lora.rank is 0: it must be a whole number of 1 or more"),
        ({"rank": "big"}, "lora.rank is 'big'"),
        ({"rnk": 4}, "lora has the key 'rnk': it takes rank, alpha, modules"),
        (
            {"modules": ["wq"]},
            "lora.modules names 'wq', which no linear layer of a Qwen3ForCausalLM is called; known: down_proj",
        ),
    ],
)
def test_what_makes_no_sense_is_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        lora(**wrong)


@pytest.mark.parametrize("name", ["Qwen2-MoE", "Qwen3-MoE", "Mixtral", "DeepSeek V3"])
def test_experts_of_a_mixture_get_adapters_that_fold_and_travel(name, tmp_path):
    case = next(c for c in TABLE if c.name == name)
    case.model().save_pretrained(tmp_path / "base")
    tiny.tokenizer().save_pretrained(tmp_path / "base")
    (model, tokenizer), (plain, _) = load_model(tmp_path / "base"), load_model(tmp_path / "base")
    adapt(model, {"rank": 2, "merge": False}, seed=1)
    trainable = [n for n, p in model.named_parameters() if p.requires_grad]
    assert sum(".experts." in n for n in trainable) == 4 * sum(
        type(m).__name__.endswith("Router") for m in model.modules()
    )
    assert not any(".gate.lora_" in n for n in trainable), "a router is not adapted"
    logp = token_stats(plain, pack(rows())).logp.detach()
    torch.testing.assert_close(token_stats(model, pack(rows())).logp, logp, rtol=0, atol=1e-5)
    before = {n: p.clone() for n, p in model.named_parameters() if ".experts." in n and "lora_B" in n}
    trained(2, model)
    assert all(not torch.equal(dict(model.named_parameters())[n], p) for n, p in before.items())
    save_model(model, tokenizer, tmp_path / "out")
    adapter = tmp_path / "out" / "adapter"
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(tmp_path / "base")})
    )
    now = token_stats(model, pack(rows())).logp.detach()
    assert (now - logp).abs().max() > 0.01
    for folder in (tmp_path / "out", adapter):
        torch.testing.assert_close(token_stats(load_model(folder)[0], pack(rows())).logp, now, rtol=0, atol=1e-5)


def test_layers_that_peft_would_leave_out_are_no_silence():
    model = next(c for c in TABLE if c.name == "DeepSeek V3").model()
    with pytest.raises(ValueError, match="names 'gate_proj', which peft puts on the experts"):
        adapt(model, {"rank": 2, "modules": ["gate_proj", "up_proj"]}, seed=1)
