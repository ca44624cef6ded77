"""Adds on-policy pairs to the cleaned ones; a small network, trained with the policy, weights the two.

"Alignment through Meta-Weighted Online Sampling: Bridging the Gap between Data Generation and Preference Optimization"
2025 (MetaAPO, arXiv 2509.23371).

    w = h(l) in (0, 1),   l = log sigmoid(beta d) of the cleaned pair, beta that of the loss, d its implicit margin
    if a uniform draw exceeds w, the prompt is played; its best answer against its worst is the on-policy pair

columns["weight"] is w. lr is the rate of h, `hidden` its width. The cost is a forward pass of policy and reference over
the pairs of each step, and over the played answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from synth.types import Problem, UserError, seed_for
from training.learner.learner import Learner, score
from training.learner.loop import Source
from training.learner.pack import Row, pack
from training.preference.on_policy_pairs import SampledPairs
from training.preference.update_rule import OfflineRound, UpdateRule
from training.types import Batch

PROVIDES = {"meta_weight"}
EXCLUDES = {
    "update_rule/directions": "on-policy pairs are of the same prompt as the cleaned pair, so it cannot be changed"
}


class meta_weight(UpdateRule):
    gives = frozenset({"weight"})

    def __init__(self, *, lr: float = 0.005, hidden: int = 100) -> None:
        self.lr, self.hidden = lr, hidden
        self.rounds: dict[int, MetaPairs] = {}

    def source(self, round_: OfflineRound) -> Source:
        if round_.sampled is None or round_.reference is None:
            raise UserError("meta_weight: it plays prompts and compares with a reference: use it with the loss metaapo")
        pairs = self.rounds[round_.index] = MetaPairs(
            offline=round_.units,
            sampled=round_.sampled,
            policy=round_.policy,
            reference=round_.reference,
            meta=MetaWeight(hidden=self.hidden, lr=self.lr, seed=seed_for(round_.seed, "prefer", "meta", round_.index)),
            beta=round_.loss.keywords.get("beta", 0.1),
            tokens_per_microbatch=round_.tokens_per_microbatch,
        )
        return pairs

    def state(self) -> dict[str, Any]:
        return {str(i): pairs.meta.state() for i, pairs in self.rounds.items()}

    def load_state(self, state: Mapping[str, Any], learner: Learner) -> None:
        for i, pairs in self.rounds.items():
            pairs.meta.load_state(state[str(i)])


class MetaWeight:
    """w = h(l) in (0, 1) of an offline pair's preference score l = log sigmoid(beta d): a small network with one hidden
    layer.

    "Alignment through Meta-Weighted Online Sampling" 2025 (MetaAPO, arXiv 2509.23371): h is trained by the loss that it
    weights, w L_offline + (1 - w) L_online, so w rises if the offline pair is the easier one. Its initial output is 1/2
    for every pair. The published network has 100 hidden units and a learning rate of 0.005 (unconfirmed there).
    """

    def __init__(self, *, hidden: int = 100, lr: float = 0.005, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            first, last = nn.Linear(1, hidden), nn.Linear(hidden, 1)
        self.net = nn.Sequential(first, nn.Tanh(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
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


@dataclass(kw_only=True)
class MetaPairs:
    """A `Source` of offline pairs, each next to an on-policy pair of the same prompt, for the loss `metaapo`.

    Each step takes units of offline rows, computes their preference score l with the policy and the reference, and
    weights them by w = h(l). If a uniform draw exceeds w, the prompt is played, and the best against the worst is its
    on-policy pair; otherwise the offline pair takes its place. `meta` is trained on the two losses of the prompts that
    were played.

    offline   step -> the units of the step: (chosen row, rejected row, problem or None)
    """

    offline: Callable[[int], Sequence[tuple[Row, Row, Problem | None]]]
    sampled: SampledPairs
    policy: nn.Module
    reference: nn.Module
    meta: MetaWeight
    beta: float = 0.1
    tokens_per_microbatch: int = 16384

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        units = self.offline(step)
        device = self.sampled.device
        scores = self._score(pack([r for c, j, _ in units for r in (c, j)], device=device))
        weight = self.meta(scores)
        rng = np.random.default_rng(seed_for(self.sampled.seed, "meta", "step", "", step))
        draw = rng.random(len(units))
        ambiguous = [
            i for i, (u, d) in enumerate(zip(units, draw, strict=True)) if u[2] is not None and d > float(weight[i])
        ]
        problems, worths = self.sampled.asked([p for i in ambiguous if (p := units[i][2]) is not None], rng)
        groups = self.sampled.player.play(problems, self.sampled.samples, self.sampled.seed, "meta", step)
        self.sampled.player.sampler.version += 1
        sampled_units = {i: self.sampled.unit(g, i, w) for i, g, w in zip(ambiguous, groups, worths, strict=True)}
        played = {i: rows for i, rows in sampled_units.items() if rows}
        rows = []
        for i, (chosen, rejected, _) in enumerate(units):
            for r in (chosen, rejected, *(played.get(i) or (chosen, rejected))):
                rows.append(replace(r, group=len(rows) // 2, scalars={**r.scalars, "weight": float(weight[i])}))
        batch = pack(rows, device=device)
        learned = 0.0
        if played:
            score = self._score(batch)
            at = torch.tensor(sorted(played))
            learned = self.meta.learn(score[0::2][at], -score[0::2][at], -score[1::2][at])
        metrics = {"meta_weight": float(weight.mean()), "meta_loss": learned, "played": len(ambiguous) / len(units)}
        return [batch], metrics

    def _score(self, batch: Batch) -> torch.Tensor:
        """[P] log sigmoid(beta d) of the pairs, without gradient."""
        gain = [
            score(m, batch, tokens_per_microbatch=self.tokens_per_microbatch).logp
            for m in (self.policy, self.reference)
        ]
        sums = batch.row_sum(torch.where(batch.trainable, gain[0] - gain[1], 0.0))
        return logsigmoid(self.beta * (sums[0::2] - sums[1::2])).cpu()
