"""Importance ratio of the whole sequence, normalised by its length.

Zheng et al. 2025, "Group Sequence Policy Optimization" (arXiv 2507.18071); not normalised, the answer as one action:
Ahmadian et al. 2024, "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs"
(RLOO, arXiv 2402.14740).

    log s_i = 1/|o_i| * sum over trainable t of (logp_t - old_t),      the same at every trainable token of row i;
    with `mean` false the sum

Shapes: [T] in, [T] out, exactly 0 where not trainable. With a policy loss that aggregates "sequences" the loss is GSPO's:
one clipped term per sequence, its gradient shared by all its tokens. |o_i| counts the tokens the model wrote, over all
turns. Clip ranges must be far smaller than a token's (the paper: 3e-4 and 4e-4). Leaves out GSPO-token. TRL:
GRPOTrainer at the level "sequence", RLOOTrainer without the mean.
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import live
from training.types import Batch


def sequence(logp: Tensor, old: Tensor, batch: Batch, *, mean: bool = True) -> Tensor:
    total = batch.row_sum(live(logp - old, batch))
    return live(batch.per_token(total / batch.row_tokens if mean else total), batch)
