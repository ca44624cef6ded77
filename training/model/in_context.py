"""A policy that learns within an episode: a small transformer over what was done and paid, with two mixtures of experts side by side.

"Mixture-of-Experts Meets In-Context Reinforcement Learning", 2025 (T2MIR, arXiv 2506.05426). The feed-forward layer of the transformer is

    y = W [ sum over the top k of p_e(token) f_e(token) ;  sum over the top k of q_e(context) f_e(token) ]

p is chosen for each token (an action, a reward, the question what to do), q once for the whole context, from the mean of its tokens. The second is the task's:
its router is learned by the regulariser `task_contrast`, which reads the extras

    routers [n, E]     log q of the task's router, with gradient         balance [n]     E sum_e (mean p_e)^2 over the tokens: 1 where all are used equally
    task_key [n, E]    q, stored while playing: it is as old as the rollouts and stands for the momentum encoder

An observation [n, length (arms + 1) + 1] is a row (one-hot action, reward) for each step so far, zeros for those to come, and the share of steps done.
mixture "dense" is the control: one feed-forward layer with as many multiplications a token.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import silu


class Experts(nn.Module):
    """x [n, t, d] and weights [n, t, E] -> [n, t, d]. All experts are computed: there are few, and they are small."""

    def __init__(self, d: int, inner: int, experts: int) -> None:
        super().__init__()
        self.into = nn.Parameter(torch.randn(experts, d, inner) / d**0.5)
        self.out = nn.Parameter(torch.randn(experts, inner, d) / inner**0.5)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        y = silu(torch.einsum("ntd,edh->nteh", x, self.into))
        return torch.einsum("nteh,ehd,nte->ntd", y, self.out, weights)


def top(logits: Tensor, k: int) -> Tensor:
    """Softmax over the k largest of the last axis, 0 at the others."""
    least = logits.topk(k, -1).values[..., -1:]
    return torch.softmax(logits.masked_fill(logits < least, -torch.inf), -1)


class InContextPolicy(nn.Module):
    """observation -> logits [n, actions]."""

    model_type = "espalier_in_context"
    continuous = False

    def __init__(
        self,
        *,
        observation: int,
        actions: int,
        hidden: int = 32,
        inner: int = 16,
        experts: int = 4,
        top_k: int = 2,
        mixture: str = "dual",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.made = {
            "observation": observation,
            "actions": actions,
            "hidden": hidden,
            "inner": inner,
            "experts": experts,
            "top_k": top_k,
            "mixture": mixture,
        }
        self._k, self._actions, self._length = top_k, actions, (observation - 1) // (actions + 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            self.action, self.reward, self.ask = nn.Linear(actions, hidden), nn.Linear(1, hidden), nn.Linear(1, hidden)
            self.place = nn.Parameter(torch.randn(2 * self._length + 1, hidden) * 0.1)
            self.attention = nn.MultiheadAttention(hidden, 2, batch_first=True)
            self.before, self.between, self.last = nn.LayerNorm(hidden), nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.dual = mixture == "dual"
            if self.dual:
                self.gate, self.task_gate = nn.Linear(hidden, experts), nn.Linear(hidden, experts)
                self.token, self.task = Experts(hidden, inner, experts), Experts(hidden, inner, experts)
                self.join = nn.Linear(2 * hidden, hidden)
            else:
                self.plain = Experts(hidden, 2 * top_k * inner, 1)
            self.leave = nn.Linear(hidden, actions)
            nn.init.normal_(self.leave.weight, std=0.01)

    def read(self, observation: Tensor) -> dict[str, Tensor]:
        """logits [n, actions]; of a dual mixture p [n, t, E], used [n, t] (which tokens are there), and routers [n, E]."""
        n, a = len(observation), self._actions
        rows = observation[:, :-1].view(n, self._length, a + 1)
        tokens = torch.stack([self.action(rows[..., :a]), self.reward(rows[..., a:])], 2).flatten(1, 2)
        x = torch.cat([tokens, self.ask(observation[:, -1:])[:, None]], 1) + self.place
        there = rows[..., :a].sum(-1) > 0
        used = torch.cat([there.repeat_interleave(2, 1), there.new_ones(n, 1)], 1)
        y = self.before(x)
        x = x + self.attention(y, y, y, key_padding_mask=~used, need_weights=False)[0]
        y, out = self.between(x), {}
        if self.dual:
            p = torch.softmax(self.gate(y), -1)
            share = used[..., None] / used.sum(1)[:, None, None]
            q = self.task_gate((y * share).sum(1))
            chosen = top(q, self._k)[:, None].expand(-1, y.shape[1], -1)
            y = self.join(torch.cat([self.token(y, top(self.gate(y), self._k)), self.task(y, chosen)], -1))
            out = {"p": p, "used": used, "routers": torch.log_softmax(q, -1)}
        else:
            y = self.plain(y, y.new_ones(*y.shape[:2], 1))
        return {**out, "logits": self.leave(self.last(x + y)[:, -1])}

    def forward(self, observation: Tensor) -> Tensor:
        return self.read(observation)["logits"]

    def normal(self, out: Tensor, temperature: float) -> torch.distributions.Normal:
        raise NotImplementedError("actions are a choice from a list")

    def extras(self, observation: Tensor, chosen: Tensor, out: Tensor) -> dict[str, Tensor]:
        """routers and balance of a dual mixture."""
        if not self.dual:
            return {}
        told = self.read(observation)
        share = told["used"][..., None] / told["used"].sum(1)[:, None, None]
        mean = (told["p"] * share).sum(1)
        return {"routers": told["routers"], "balance": mean.shape[1] * mean.square().sum(1)}

    @torch.no_grad()
    def noted(self, observation: Tensor) -> dict[str, np.ndarray]:
        """task_key of a dual mixture, for the player."""
        return {"task_key": self.read(observation)["routers"].exp().double().cpu().numpy()} if self.dual else {}
