"""A policy of particles: for every action a set of samples of the joint return of several sources of reward.

Zhang et al. 2021, "Distributional Reinforcement Learning for Multi-Dimensional Reward Functions" (MD3QN, arXiv 2110.13578).

    Z_i(s, a) in R^K, i = 1..N          Q(s, a) = mean_i sum_k Z_ik(s, a)          pi(a | s) = softmax(Q(s, .) / heat)

The paper acts epsilon-greedily; a softmax with a small `heat` stands for that here, so that an action has a log-prob with a gradient as
that of any other policy. The particles are learned by the regulariser `joint_return`, which reads the extras

    particles [n, N, K]   Z of the action that was taken, with gradient
    ahead [n, N, K]       Z of the best action, stored while playing: the target network, which is thus as old as the rollouts
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from training.model.control import layers


class ParticlePolicy(nn.Module):
    """observation [n, d] -> logits [n, actions]."""

    model_type = "espalier_particles"
    continuous = False

    def __init__(
        self,
        *,
        observation: int,
        actions: int,
        hidden: int = 64,
        sources: int = 2,
        particles: int = 32,
        heat: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.made = {
            "observation": observation,
            "actions": actions,
            "hidden": hidden,
            "sources": sources,
            "particles": particles,
            "heat": heat,
        }
        self._shape, self._heat = (actions, particles, sources), heat
        generator = torch.Generator().manual_seed(seed % 2**63)
        self.layers = layers([observation, hidden, hidden, actions * particles * sources], 0.5, generator)
        # Particles that begin in one place would stay together: the gradient of each is then the same.
        with torch.no_grad():
            nn.init.normal_(self.get_parameter("layers.4.bias"), 0.0, 0.3, generator=generator)

    def particles(self, observation: Tensor) -> Tensor:
        """Z [n, actions, N, K]."""
        return self.layers(observation).view(-1, *self._shape)

    def forward(self, observation: Tensor) -> Tensor:
        return self.particles(observation).mean(2).sum(2) / self._heat

    def normal(self, out: Tensor, temperature: float) -> torch.distributions.Normal:
        raise NotImplementedError("actions are a choice from a list")

    def extras(self, observation: Tensor, chosen: Tensor, out: Tensor) -> dict[str, Tensor]:
        """particles [n, N, K] of the actions `chosen` [n]."""
        z = self.particles(observation)
        return {"particles": z[torch.arange(len(z), device=z.device), chosen]}

    @torch.no_grad()
    def noted(self, observation: Tensor) -> dict[str, np.ndarray]:
        """ahead [n, N, K], for the player."""
        z = self.particles(observation)
        best = z.mean(2).sum(2).argmax(1)
        return {"ahead": z[torch.arange(len(z), device=z.device), best].double().cpu().numpy()}
