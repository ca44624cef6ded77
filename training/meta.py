"""A weight for offline against on-policy pairs, learned while the policy learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class MetaWeight:
    """w = h(l) in (0, 1) of an offline pair's preference score l = log sigmoid(beta d): a small network with one hidden layer.

    "Alignment through Meta-Weighted Online Sampling" 2025 (MetaAPO, arXiv 2509.23371): h is taught by the loss that it weighs,
    w L_offline + (1 - w) L_online, so w rises where the offline pair is the easier one. Its first output is 1/2 for every pair. The
    published network has 100 hidden units and a learning rate of 0.005 (unconfirmed there).
    """

    def __init__(self, *, hidden: int = 100, lr: float = 0.005, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        nn.init.zeros_(self.net[2].weight)
        nn.init.zeros_(self.net[2].bias)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=lr)

    @torch.no_grad()
    def __call__(self, score: Tensor) -> Tensor:
        """[P] weights of [P] preference scores."""
        return self._weight(score)

    def _weight(self, score: Tensor) -> Tensor:
        return self.net(score.detach().float()[:, None]).squeeze(1).sigmoid()

    def learn(self, score: Tensor, offline: Tensor, online: Tensor) -> float:
        """One step on the mean of w offline + (1 - w) online over [P] losses without gradient. Returns it."""
        w = self._weight(score)
        loss = (w * offline.detach() + (1 - w) * online.detach()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
