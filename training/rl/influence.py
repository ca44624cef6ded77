"""The influence of one span of a text on the log-probs of another: Jacobians with respect to embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.learner.learner import token_stats
from training.learner.pack import Row, pack

Span = tuple[int, int]  # tokens from, to


def jacobian(model: nn.Module, ids: np.ndarray, of: Span, to: Span) -> Tensor:
    """d (mean log p of the tokens of `of`) / d (embeddings of the tokens of `to`), flat [(to[1] - to[0]) d]; ids [n];
    `of` comes after `to`."""
    inside = np.arange(len(ids))
    device = str(next(model.parameters()).device)
    batch = pack([Row(ids=ids, trainable=(inside >= of[0]) & (inside < of[1]))], device=device)
    kept: list[Tensor] = []
    language_model: Any = model
    embed = language_model.get_input_embeddings()
    hook = embed.register_forward_hook(
        lambda module, given, out: kept.append(out.detach().requires_grad_()) or kept[-1]
    )
    try:
        with torch.enable_grad():
            logp = token_stats(model, batch).logp.sum() / max(of[1] - of[0], 1)
            (grad,) = torch.autograd.grad(logp, kept[0])
    finally:
        hook.remove()
    return grad.reshape(len(ids), -1)[to[0] : to[1]].reshape(-1).float()


def hardened(j: Tensor, nuisances: Sequence[Tensor]) -> Tensor:
    """j [n] without its projection on the span of the nuisances."""
    if not nuisances:
        return j
    directions, sizes, _ = torch.linalg.svd(torch.stack(list(nuisances)).T.double(), full_matrices=False)
    basis = directions[:, sizes > 1e-9 * sizes.max().clamp_min(1e-30)]
    j = j.double()
    for _ in range(2):  # the second pass removes what rounding left
        j = j - basis @ (basis.T @ j)
    return j.float()


def influence(model: nn.Module, ids: np.ndarray, of: Span, to: Span, nuisances: int, rng: np.random.Generator) -> float:
    """Norm of the hardened Jacobian; the nuisances are copies in which the tokens of `to` are shuffled."""
    if of[1] <= of[0] or to[1] <= to[0]:
        return 0.0
    others = []
    for _ in range(nuisances):
        copy = ids.copy()
        copy[to[0] : to[1]] = rng.permutation(ids[to[0] : to[1]])
        others.append(jacobian(model, copy, of, to))
    return float(hardened(jacobian(model, ids, of, to), others).norm())
