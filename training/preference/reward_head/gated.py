"""Several attributes, predicted by a linear map of frozen features and weighted by a gate that reads the prompt.

Wang et al. 2024, "Interpretable Preferences via Multi-Objective Reward Modeling and Mixture-of-Experts" (ArmoRM, arXiv 2406.12845).

    r(x, y) = W h(last token of x y) [k],   W by ridge regression on ratings of attributes, missing ones left out
    r'_i = r_i - lambda_i r_length,         lambda_i so that r'_i and r_length have rank correlation 0 on the training answers
    g(x) = softmax( MLP(h(last token of x)) / temperature ) [k],       reward = g . r',       ranked = exp(log beta) g . r'

Shapes: outputs [R, k] in, rewards [R] out. Only the gate and beta are trained on the pairs; the body is frozen.
`score.weight` holds the debiased W, so that any engine gives the k attributes; gate.safetensors beside it holds the
rest. Leaves out the choice of the ridge by cross-validation. Raises ValueError if no attribute has the name `debias`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.preference.reward_metrics import rank_correlation
from training.preference.reward_model import Fit, features
from training.types import Batch, Terms, TokenStats


class Gated(nn.Module):
    """A frozen model with k outputs, and the gate over them."""

    def __init__(self, scorer: nn.Module, hidden: int) -> None:
        super().__init__()
        config: Any = scorer.config
        head: Any = scorer.score
        d, k = config.hidden_size, config.num_labels
        self.scorer = scorer.requires_grad_(False)
        first, last = nn.Linear(d, hidden), nn.Linear(hidden, k)
        self.gate = nn.Sequential(nn.LayerNorm(d, elementwise_affine=False), first, nn.SiLU(), last)
        for layer in (first, last):  # the last layer starts at 0: all attributes have equal weight
            weight = torch.empty_like(layer.weight).normal_(
                0.0, d**-0.5, generator=torch.Generator().manual_seed(d * hidden)
            )
            layer.weight.data.copy_(weight if layer is first else torch.zeros_like(weight))
            nn.init.zeros_(layer.bias)
        self.log_beta = nn.Parameter(torch.zeros(()))
        self.to(head.weight.device)


class gated:
    outputs = None
    ratings = True

    def __init__(
        self, *, hidden: int = 64, temperature: float = 10.0, ridge: float = 1.0, debias: str = "length"
    ) -> None:
        """hidden: width of the gate; ridge: times the mean squared feature; debias: the attribute with which no other
        may correlate ("": none)."""
        self.hidden, self.temperature, self.ridge, self.debias = hidden, temperature, ridge, debias
        self.attributes: Sequence[str] = ()

    def begin(self, model: nn.Module, fit: Fit) -> nn.Module:
        x, y = fit()
        if self.debias and self.debias not in self.attributes:
            raise ValueError(
                f"there is no attribute {self.debias!r} to debias against; there are: {', '.join(self.attributes)}"
            )
        weight = ridge(x, y, self.ridge)
        if self.debias:
            weight = debiased(weight, x, list(self.attributes).index(self.debias))
        head: Any = model.score
        head.weight.data.copy_(torch.tensor(weight))
        return Gated(model, self.hidden)

    def read(self, model: Gated, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        with torch.no_grad():
            last, prompt_end = features(model.scorer, batch)
            head: Any = model.scorer.score
            outputs = head(last).float()
        weights = torch.softmax(model.gate(prompt_end.float()) / self.temperature, 1)
        extras = {"outputs": outputs, "gate": weights, "beta": model.log_beta.exp().expand(batch.rows)}
        return TokenStats(logp=torch.zeros(len(batch.ids), device=outputs.device), extras=extras)

    def ranked(self, stats: TokenStats, batch: Batch) -> Tensor:
        return stats.extras["beta"] * self.reward(stats, batch)

    def reward(self, stats: TokenStats, batch: Batch) -> Tensor:
        return (stats.extras["gate"] * stats.extras["outputs"]).sum(1)

    def extra(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        return []


def ridge(x: np.ndarray, y: np.ndarray, strength: float) -> np.ndarray:
    """[k, d] weights of k ridge regressions of y [N, k] (NaN = no rating) on x [N, d], both centred on the rated
    rows."""
    out = np.zeros((y.shape[1], x.shape[1]))
    for i, target in enumerate(y.T):
        rated = ~np.isnan(target)
        f = x[rated] - x[rated].mean(0)
        t = target[rated] - target[rated].mean()
        out[i] = np.linalg.solve(f.T @ f + strength * np.square(f).mean() * np.eye(x.shape[1]), f.T @ t)
    return out


def debiased(weight: np.ndarray, x: np.ndarray, index: int) -> np.ndarray:
    """Weights whose attributes, except that of `index`, have rank correlation 0 with it over x; lambda by bisection,
    because the correlation falls as lambda grows."""
    out, along = weight.copy(), x @ weight[index]
    scale = along.std()
    for i in range(len(weight)):
        if i == index or scale == 0:
            continue
        r = x @ weight[i]
        low, high = (sign * 10 * (r.std() / scale + 1e-12) for sign in (-1, 1))
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if (rank_correlation(r - middle * along, along) or 0.0) > 0 else (low, middle)
        out[i] = weight[i] - (low + high) / 2 * weight[index]
    return out
