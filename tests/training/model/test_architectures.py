"""Every architecture of the table: the learner's packed forward and the sampler's tokens say what transformers says, or
loading refuses."""

import architectures
import numpy as np
import pytest
import tiny
import torch
from architectures import TABLE

from training.model.attention import PackedRows
from training.model.model import head_weight, hidden_states, load_model, window
from training.rollout.torch_sampler import TorchSampler

WORKS = [c for c in TABLE if not c.refused]
REFUSED = [c for c in TABLE if c.refused]


def saved(case, folder):
    model = case.model()
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return model


@pytest.mark.parametrize("case", WORKS, ids=[c.name for c in WORKS])
def test_learner_and_sampler_say_what_transformers_says(case, tmp_path):
    theirs = saved(case, tmp_path)
    ours, _ = load_model(tmp_path)
    rows = [torch.randint(3, architectures.V, (n,), generator=torch.Generator().manual_seed(n)) for n in (23, 9, 15)]
    with torch.no_grad():
        want = [torch.log_softmax(theirs(input_ids=r[None], use_cache=False).logits[0], -1) for r in rows]
        position = torch.cat([torch.arange(len(r)) for r in rows])
        hidden = hidden_states(ours, torch.cat(rows), position, PackedRows([len(r) for r in rows]))
        got = torch.log_softmax(hidden @ head_weight(ours).T, -1)
    torch.testing.assert_close(got, torch.cat(want), atol=1e-4, rtol=0)
    assert got.std() > 0.3, "a model that says nothing would agree with anything"
    row = rows[0].numpy()
    sampled = TorchSampler(model=ours, end_id=2).logp(row[:8], row[8:])
    np.testing.assert_allclose(sampled, want[0][7:-1].gather(1, rows[0][8:, None])[:, 0].numpy(), atol=1e-4)


@pytest.mark.parametrize("case", REFUSED, ids=[c.name for c in REFUSED])
def test_an_architecture_that_would_be_got_wrong_is_refused(case, tmp_path):
    saved(case, tmp_path)
    with pytest.raises(ValueError, match=case.refused) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_rows_beyond_a_sliding_window_are_refused_at_load(tmp_path):
    case = next(c for c in TABLE if c.name == "Mistral")
    saved(case, tmp_path)
    assert window(load_model(tmp_path, longest=64)[0]) == 64
    with pytest.raises(ValueError, match="looks back 64 tokens only .*rows may have 65: set max_length"):
        load_model(tmp_path, longest=65)
