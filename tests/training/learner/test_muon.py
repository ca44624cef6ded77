"""Our Muon against torch's, which takes the matrices one by one."""

import copy

import pytest
import torch

from training.learner.muon import Muon, orthogonal

SHAPES = [(16, 16), (8, 16), (16, 8), (16, 16), (24, 16), (16, 24)]
COEFFICIENTS = (3.4445, -4.775, 2.0315)


def test_equals_torch_for_matrices_of_mixed_shapes():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(s)) for s in SHAPES]
    theirs = copy.deepcopy(ours)
    a = Muon(ours, lr=0.05, momentum=0.95, weight_decay=0.1)
    b = torch.optim.Muon(theirs, lr=0.05, momentum=0.95, weight_decay=0.1)
    for step in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        if step == 3:  # a matrix that a step did not reach
            ours[1].grad = theirs[1].grad = None
        a.step(), b.step()
    for p, q in zip(ours, theirs, strict=True):
        # The products run in bfloat16: its rounding, once a step.
        torch.testing.assert_close(p, q, rtol=0, atol=5 * 0.05 * 2**-6)


def test_state_is_that_of_torch():
    p = torch.nn.Parameter(torch.randn(4, 8))
    p.grad = torch.randn(4, 8)
    a = Muon([p], lr=0.1)
    a.step()
    b = torch.optim.Muon([torch.nn.Parameter(p.detach().clone())], lr=0.1)
    b.load_state_dict(a.state_dict())
    assert torch.equal(b.state[b.param_groups[0]["params"][0]]["momentum_buffer"], a.state[p]["momentum_buffer"])


def test_singular_values_are_near_one():
    torch.manual_seed(1)
    s = torch.linalg.svdvals(orthogonal(torch.randn(3, 16, 64), COEFFICIENTS, 5, 1e-7).float())
    assert 0.6 < s.min() and s.max() < 1.3


def test_another_scale_of_the_rate_is_refused():
    with pytest.raises(ValueError, match="adjust_lr_fn"):
        Muon([torch.nn.Parameter(torch.randn(4, 4))], lr=0.1, adjust_lr_fn="match_rms_adamw")


def test_a_cpu_multiplies_in_float32():
    """In bfloat16 a CPU without instructions for it takes ten times as long, and the numbers depend on the CPU."""
    assert orthogonal(torch.randn(1, 4, 8), COEFFICIENTS, 5, 1e-7).dtype == torch.float32
