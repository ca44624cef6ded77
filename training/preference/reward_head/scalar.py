"""One number at the last token: the standard reward model.

Ouyang et al. 2022, "Training language models to follow instructions with human feedback" (arXiv 2203.02155); with pairs
of comparable length Zang et al. 2025, "InternLM-XComposer2.5-Reward: A Simple Yet Effective Multi-Modal Reward Model"
(arXiv 2501.12368).

    r(x, y) = w . h(last token of x y)

Shapes: outputs [R, 1] in, rewards [R] out. The body is trained too. Only differences of rewards are identified:
`centre` of the loss pulls their mean to 0.
"""

from __future__ import annotations

from torch import Tensor, nn

from training.preference.reward_model import Fit, head_stats
from training.types import Batch, Terms, TokenStats


class scalar:
    outputs = 1
    ratings = False
    read = staticmethod(head_stats)

    def __init__(self) -> None:
        """It has no knobs."""

    def begin(self, model: nn.Module, fit: Fit) -> nn.Module:
        return model

    def ranked(self, stats: TokenStats, batch: Batch) -> Tensor:
        return self.reward(stats, batch)

    def reward(self, stats: TokenStats, batch: Batch) -> Tensor:
        return stats.extras["outputs"][:, 0]

    def extra(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        return []
