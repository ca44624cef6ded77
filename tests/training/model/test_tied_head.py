"""Embedding and head as one tensor and as two: gradients, an optimizer step and what is saved, against transformers."""

import copy
import json

import exported
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from tasks.export.export import Settings, export
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import load_model, save_model

KINDS = [("qwen3", True), ("qwen3", False), ("llama", True), ("gemma", True), ("gpt_neox", False)]
LENGTHS = (9, 14, 5)


def rows():
    rng = np.random.default_rng(3)
    ids = [rng.integers(3, 300, n) for n in LENGTHS]
    return [Row(ids=x, trainable=np.arange(len(x)) >= 2) for x in ids]


def dense(model):
    """transformers' own loss: the mean over trainable targets, row by row and without packing."""
    total = count = 0
    for row in rows():
        ids = torch.from_numpy(row.ids)
        logits = model(input_ids=ids[None], use_cache=False).logits[0, 1:-1]  # the first two tokens are told
        total = total + cross_entropy(logits, ids[2:], reduction="sum")
        count += len(ids) - 2
    return total / count


def pair(kind, tied, tmp_path):
    """Our model and transformers', from the same folder."""
    save_model(exported.build(kind, tie_word_embeddings=tied, seed=4), exported.tokenizer(), tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager")
    one = ours.get_output_embeddings().weight is ours.get_input_embeddings().weight
    assert one == tied == theirs.config.tie_word_embeddings
    return ours, theirs.eval()


@pytest.mark.parametrize("kind, tied", KINDS)
@pytest.mark.parametrize("keep", [True, False], ids=["logits kept", "in chunks"])
def test_the_gradient_of_a_step_is_the_one_of_transformers(kind, tied, keep, tmp_path):
    ours, theirs = pair(kind, tied, tmp_path)
    dense(theirs).backward()
    learner = Learner(ours, Optim(max_grad_norm=1e9), logits=None if keep else 400)
    learner.step(pack(rows()), nll)
    want = dict(theirs.named_parameters())
    got = dict(ours.named_parameters())
    assert got.keys() == want.keys()
    assert ("lm_head.weight" in got or "embed_out.weight" in got) != tied
    for name, p in want.items():
        scale = float(p.grad.abs().max())
        torch.testing.assert_close(got[name].grad, p.grad, atol=2e-5 * max(scale, 1e-3), rtol=1e-3, msg=name)


def test_a_tied_weight_gets_the_gradients_of_both_its_uses(tmp_path):
    ours, theirs = pair("qwen3", True, tmp_path)
    apart = copy.deepcopy(theirs)
    apart.config.tie_word_embeddings = False
    apart.lm_head.weight = torch.nn.Parameter(apart.lm_head.weight.detach().clone())
    dense(apart).backward()
    Learner(ours, Optim(max_grad_norm=1e9)).step(pack(rows()), nll)
    both = apart.lm_head.weight.grad + apart.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours.get_input_embeddings().weight.grad, both, atol=1e-5, rtol=1e-3)
    assert float(apart.get_input_embeddings().weight.grad.abs().max()) > 1e-3, "or the sum would be the head's alone"


@pytest.mark.parametrize("kind, tied", KINDS)
@pytest.mark.parametrize("to", ["hub", "vllm"])
def test_what_was_trained_is_what_transformers_reads(kind, tied, to, tmp_path):
    ours, before = pair(kind, tied, tmp_path)
    learner = Learner(ours, Optim(lr=1e-2, warmup=0))
    for _ in range(3):
        learner.step(pack(rows()), nll)
    save_model(ours, exported.tokenizer(), tmp_path / "trained")
    checks = export(
        tmp_path,
        str(tmp_path / "trained"),
        to,
        tmp_path / "out",
        Settings(prompts=3, license="mit"),
        say=lambda _: None,
    )
    assert checks[0].differ == 0
    names = set(load_file(tmp_path / "out/model.safetensors"))
    assert bool(names & {"lm_head.weight", "embed_out.weight"}) != tied
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] == tied
    reader = AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager")
    for name, p in reader.named_parameters():
        assert torch.equal(p, dict(ours.named_parameters())[name]), name
    with torch.no_grad():
        assert dense(reader) < dense(before) - 0.1, "it has learned"
