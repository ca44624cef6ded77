"""Keeps the policies from the ends of earlier rounds; the loss compares with their mean.

"Multiplayer Nash Preference Optimization", 2025 (MNPO, arXiv 2509.23102), which calls them its population.

columns["history"], in both rows of a pair: mean over the last `keep` policies of (log-prob of chosen - log-prob of
rejected); before the second round, the reference's. The cost is one forward pass per kept policy, and a copy of its
weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from training.learner.learner import Learner
from training.preference.update_rule import UpdateRule
from training.types import Batch

PROVIDES = {"history"}


class earlier_policies(UpdateRule):
    gives = frozenset({"history"})

    def __init__(self, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"earlier_policies: keep is {keep}: the number of policies to keep is 1 or more")
        self.keep = keep
        self.kept: list[nn.Module] = []

    def begin(self, i: int, learner: Learner) -> None:
        if i:
            self.kept.append(copy.deepcopy(learner.model))
            del self.kept[: -self.keep]

    def observe(
        self, batch: Batch, reference: nn.Module | None, logp: Callable[[nn.Module | None, Batch], Tensor]
    ) -> None:
        sums = batch.row_sum(torch.stack([logp(m, batch) for m in self.kept or (reference,)]).mean(0))
        batch.add("history", (sums[0::2] - sums[1::2]).repeat_interleave(2), "row")

    def state(self) -> dict[str, Any]:
        return {"kept": [m.state_dict() for m in self.kept]}

    def load_state(self, state: Mapping[str, Any], learner: Learner) -> None:
        self.kept[:] = [copy.deepcopy(learner.model) for _ in state["kept"]]
        for model, saved in zip(self.kept, state["kept"], strict=True):
            model.load_state_dict(saved)
