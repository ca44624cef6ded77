"""Muon (Jordan et al. 2024), which orthogonalises all matrices of the same shape together: `torch.optim.Muon`, which
takes them one by one, is the reference.

For each matrix: momentum M <- lerp(M, G, 1 - momentum), U = lerp(G, M, momentum) (Nesterov), then Newton-Schulz steps
drive U towards the nearest orthogonal matrix: X <- a X + (b XX' + c (XX')^2) X, and W <- (1 - lr wd) W - lr sqrt(max(1,
rows/columns)) X. The products run in bfloat16, as in torch, but in float32 on a CPU: a CPU without bfloat16
instructions takes ten times as long for them, and the results should not depend on the CPU. A small model has tens of
small matrices: one batched product for each shape replaces as many calls, and the step takes about half as long.
"""

# pyright: reportPrivateImportUsage=false
# torch._foreach_*: torch's own optimizers use them; they have no public name.

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor

from training.learner.shard import like, of_shares, own


class Muon(torch.optim.Muon):
    """`torch.optim.Muon` (its settings, its state), for `adjust_lr_fn` "original" only; raises ValueError for
    another."""

    def __init__(self, params, **settings) -> None:
        super().__init__(params, **settings)
        if any(g["adjust_lr_fn"] not in (None, "original") for g in self.param_groups):
            raise ValueError("this Muon scales its rate by sqrt(max(1, rows / columns)) only: leave adjust_lr_fn out")

    @torch.no_grad()
    def step(self) -> None:
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            matrices = [p for p in group["params"] if p.grad is not None]
            if not matrices:
                continue
            for p in matrices:
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
            # if a matrix is split over processes, each keeps its share of the momentum, and all orthogonalise the whole
            grads = [own(p.grad) for p in matrices]
            buffers = [own(self.state[p]["momentum_buffer"]) for p in matrices]
            torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
            updates = torch._foreach_lerp(grads, buffers, group["momentum"]) if group["nesterov"] else buffers
            torch._foreach_mul_([own(p) for p in matrices], 1 - group["lr"] * group["weight_decay"])
            alike: dict[tuple[int, int], list[int]] = defaultdict(list)
            for i, p in enumerate(matrices):
                alike[min(p.shape), max(p.shape)].append(i)
            for places in alike.values():
                full = [of_shares(updates[i], matrices[i]) for i in places]
                wide = torch.stack([u if u.shape[0] <= u.shape[1] else u.T for u in full])
                for i, x in zip(
                    places, orthogonal(wide, group["ns_coefficients"], group["ns_steps"], group["eps"]), strict=True
                ):
                    p = matrices[i]
                    own(p).add_(
                        own(like(x if p.shape[0] <= p.shape[1] else x.T, p)),
                        alpha=-group["lr"] * math.sqrt(max(1, p.shape[0] / p.shape[1])),
                    )


def orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """x [n, rows, columns], rows <= columns, any float type -> the same shape, with singular values between about 0.7
    and 1.2; float32 on a CPU, bfloat16 elsewhere."""
    a, b, c = coefficients
    x = x.to(torch.float32 if x.device.type == "cpu" else torch.bfloat16)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
