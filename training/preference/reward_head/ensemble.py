"""Several heads with uncertainties on one body; the reward blends the most certain head with the worst case.

Yan et al. 2024, "Reward-Robust RLHF in LLMs" (BRME, arXiv 2409.15360).

    outputs   r_0, (mu_i, log sigma_i) for i = 1..n
    losses    the pairwise loss of r_0; and for each head E_eps (mu_i + sigma_i eps - r_0)^2 = (mu_i - r_0)^2 + sigma_i^2
    reward    blend * nominal + (1 - blend) * min_i mu_i,      nominal = mu of the head with the smallest sigma, or the mean of all mu

Shapes: outputs [R, 1 + 2 n] in, rewards [R] out; in the losses r_0 is a constant. The expectation over eps is taken exactly instead of by
a sample. blend = 1 is the nominal reward, 0 the worst case. Heads differ in their initial weights and in the pairs that
they see: each sees a pair as often as a bootstrap would draw it (Poisson, hashed from head and pair). Leaves out
training r_0 first: it is trained in the same steps.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import seed_for
from training.preference.reward_model import Fit, head_stats
from training.types import Batch, Terms, TokenStats


class ensemble:
    ratings = False
    read = staticmethod(head_stats)

    def __init__(
        self, *, heads: int = 5, blend: float = 0.6, nominal: Literal["surest", "mean"] = "surest", coef: float = 0.1
    ) -> None:
        """Raises ValueError for fewer than two heads, or a blend outside [0, 1]."""
        if heads < 2 or not 0 <= blend <= 1:
            raise ValueError(
                f"heads is {heads} and blend {blend}: an ensemble has two heads or more, and a blend from 0 to 1"
            )
        self.heads, self.blend, self.nominal, self.coef = heads, blend, nominal, coef
        self.outputs = 1 + 2 * heads

    def begin(self, model: nn.Module, fit: Fit) -> nn.Module:
        return model

    def ranked(self, stats: TokenStats, batch: Batch) -> Tensor:
        """r_0 [R], the only output that is trained on the order of the pairs."""
        return stats.extras["outputs"][:, 0]

    def reward(self, stats: TokenStats, batch: Batch) -> Tensor:
        mu, log_sigma = stats.extras["outputs"][:, 1:].split(self.heads, 1)
        if self.nominal == "surest":
            nominal = mu.gather(1, log_sigma.argmin(1, keepdim=True)).squeeze(1)
        else:
            nominal = mu.mean(1)
        return self.blend * nominal + (1 - self.blend) * mu.amin(1)

    def extra(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        outputs = stats.extras["outputs"]
        mu, log_sigma = outputs[:, 1:].split(self.heads, 1)
        missed = (mu - outputs[:, :1].detach()).square() + (2 * log_sigma.clamp_max(10.0)).exp()
        values = self.coef * (self._seen(batch).to(missed) * missed).mean(1)
        spread = mu.detach().std(1)
        return [
            Terms(
                values=values,
                denominator="sequences",
                metrics={"disagreement": (spread.sum(), torch.tensor(float(len(spread))))},
            )
        ]

    def _seen(self, batch: Batch) -> Tensor:
        """How often [R, n] each head sees the pair of each row."""
        draws = {
            g: np.random.default_rng(seed_for("head", g)).poisson(1.0, self.heads)
            for g in sorted(set(batch.group.tolist()))
        }
        return torch.tensor(np.stack([draws[g] for g in batch.group.tolist()]))
