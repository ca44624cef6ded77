"""The residual stream, read and changed: by layer, position and row, and no neighbour notices."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from training.model.model import head_weight
from training.model.residual import AddVector, blocks_of, fitting, layer_of, read
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)
END = V.eos_token_id
PROMPTS = tiny.ids(5, 9, 5, 30, below=16)
SEEDS = [3, 4, 5, 6]


def sampler(**more):
    return TorchSampler(tiny.build(vocabulary=V, init_range=0.2), END, **more)


def far(source, size, **more):
    torch.manual_seed(1)
    vector = torch.randn(head_weight(source.model).shape[1])
    return AddVector(vector=size * vector / vector.norm(), layer=1, **more)


def told(source, edits, temperature=1.0):
    """Two turns of all rows, between which each hears three tokens."""
    session = source.open(PROMPTS, SEEDS, edits)
    out = session.generate(Sampling(max_tokens=20, temperature=temperature))
    going = [i for i, s in enumerate(out) if s.stop == "end"]
    session.observe(going, [tiny.ids(3, seed=i, below=16)[0] for i in going])
    return out, dict(zip(going, session.generate(Sampling(max_tokens=20)), strict=True)), session


def test_a_layer_counted_from_the_end_is_that_layer():
    source = sampler()
    first, last = (told(source, [replace(far(source, 40.0), layer=n)] * 4)[0] for n in (1, -1))
    plain = told(source, [far(source, 0.0)] * 4)[0]
    assert [s.logp.tolist() for s in first] == [s.logp.tolist() for s in last] != [s.logp.tolist() for s in plain]


@pytest.mark.parametrize("row", range(4))
def test_steering_one_row_changes_no_bit_of_its_neighbours(row):
    source = sampler()
    still, moved = ([far(source, size) if i == row else None for i in range(4)] for size in (0.0, 40.0))
    (a, later_a, _), (b, later_b, _) = told(source, still), told(source, moved)
    assert a[row].logp.tolist() != b[row].logp.tolist()
    for i in set(range(4)) - {row}:
        assert a[i].ids.tolist() == b[i].ids.tolist() and a[i].stop == b[i].stop
        np.testing.assert_array_equal(a[i].logp, b[i].logp)
        np.testing.assert_array_equal(a[i].entropy, b[i].entropy)
        if i in later_a:  # after a turn of another length the products have other shapes, and round otherwise
            assert later_a[i].ids.tolist() == later_b[i].ids.tolist()
            np.testing.assert_allclose(later_a[i].logp, later_b[i].logp, atol=1e-5)
    assert set(later_a) - {row}, "some neighbours have a second turn"


def test_the_compiled_path_steps_aside_and_says_so():
    source = sampler()
    plain, _, usual = told(source, [])
    assert usual.path == ("compiled turns" if source.turns else "compiled layers" if source.cached else "own layers")
    edited, _, session = told(source, [far(source, 0.0)] + [None] * 3)
    assert session.path == "own layers"
    for one, other in zip(plain, edited, strict=True):
        assert one.ids.tolist() == other.ids.tolist(), "a vector of length 0 changes nothing but rounding"
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-5)
    assert told(source, [])[2].path == usual.path, "the next session is as before"


def test_a_sampled_row_has_the_log_probs_of_the_stream_with_the_vector():
    """By hand: the second block's output at the last token, the vector added, normed, times the head."""
    source = sampler()
    edit = far(source, 25.0, start=len(PROMPTS[0]) - 1)
    segment = source.open(PROMPTS[:1], [1], [edit]).generate(Sampling(max_tokens=1))[0]
    (streams,) = read(source.model, PROMPTS[:1], [1])
    with torch.no_grad():
        hidden = source.model.base_model.norm(streams[0, -1] + edit.vector)
        want = torch.log_softmax(hidden @ head_weight(source.model).T, -1)[int(segment.ids[0])]
    assert segment.logp[0] == pytest.approx(float(want), abs=1e-5)


def test_positions_before_the_start_are_as_they_were():
    source = sampler()
    edit = far(source, 25.0, start=len(PROMPTS[0]) + 100)
    a = source.open(PROMPTS[:1], [1], [edit]).generate(Sampling(max_tokens=20))[0]
    b = source.open(PROMPTS[:1], [1], [far(source, 0.0)]).generate(Sampling(max_tokens=20))[0]
    np.testing.assert_array_equal(a.logp, b.logp)


def test_rows_of_equal_prompts_are_steered_apart():
    source = sampler()
    edits = [far(source, 40.0), far(source, -40.0), None]
    out = source.open([PROMPTS[0]] * 3, [7] * 3, edits).generate(Sampling(max_tokens=8, temperature=0.0))
    assert len({tuple(s.logp.tolist()) for s in out}) == 3


@pytest.mark.parametrize("start", [0, 1, 3, len(PROMPTS[0]) - 1, 99])
def test_what_comes_before_a_change_is_read_once_for_all_rows(start):
    """Three rows of one prompt and one of another, against each row alone without sharing."""
    source, prompts = sampler(), [PROMPTS[0], PROMPTS[1], PROMPTS[0], PROMPTS[0]]
    edits = [far(source, size, start=start) if size else None for size in (40.0, 20.0, -40.0, 0.0)]
    session = source.open(prompts, SEEDS, edits)
    plain = min(start, len(PROMPTS[0]) - 1)
    # The row without a change shares all but its last token, which another start keeps apart from the two that are changed.
    assert len(session.cache.prefix.length) == (2 + (plain < len(PROMPTS[0]) - 1) if start else 4)
    for i, got in enumerate(session.generate(Sampling(max_tokens=12))):
        alone = source.open([prompts[i]], [SEEDS[i]], [edits[i] or far(source, 0.0)]).generate(Sampling(max_tokens=12))
        assert got.ids.tolist() == alone[0].ids.tolist()
        np.testing.assert_allclose(got.logp, alone[0].logp, atol=1e-5)


def test_equal_rows_are_read_once():
    model, passes = sampler().model, []
    hook = blocks_of(model)[0].register_forward_hook(lambda m, args, output: passes.append(args[0].numel()))
    one = read(model, [PROMPTS[0], PROMPTS[1], PROMPTS[0]], [0])
    few = read(model, [PROMPTS[0], PROMPTS[1]], [0])
    hook.remove()
    assert passes[0] == passes[1]
    for a, b in zip(one, [few[0], few[1], few[0]], strict=True):
        assert torch.equal(a, b)


def test_streams_are_the_same_whatever_is_read_together():
    model = sampler().model
    whole = read(model, PROMPTS, [0, -1])
    for i, one in enumerate(whole):
        assert one.shape == (2, len(PROMPTS[i]), head_weight(model).shape[1])
        torch.testing.assert_close(read(model, PROMPTS[i : i + 1], [0, 1])[0], one, atol=1e-5, rtol=1e-5)
    small = read(model, PROMPTS, [0, -1], tokens=10)
    for a, b in zip(whole, small, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_layers_and_vectors_that_do_not_fit_are_refused():
    model = sampler().model
    assert len(blocks_of(model)) == 2 and [layer_of(model, i) for i in (0, -1, 1)] == [0, 1, 1]
    for wrong in (2, -3):
        with pytest.raises(
            ValueError, match=rf"there is no layer {wrong}: this model has 2, so name 0 to 1, or -1 to -2"
        ):
            layer_of(model, wrong)
    with pytest.raises(ValueError, match=r"the vector has the shape \[7\] .* made with another model"):
        fitting(model, torch.zeros(7))
    with pytest.raises(ValueError, match="there is no layer 9"):
        sampler().open(PROMPTS[:1], [1], [AddVector(vector=torch.zeros(32), layer=9)])
    for vector in (torch.zeros(48), torch.ones(1)):  # one number would be added everywhere
        with pytest.raises(ValueError, match=r"the vector has the shape .* made with another model"):
            sampler().open(PROMPTS[:2], [1, 2], [None, AddVector(vector=vector, layer=1)])
