"""Makes better turns of an episode more likely than worse ones.

"POLO: Preference-Guided Multi-Turn Reinforcement Learning for Lead Optimization", 2025 (PGPO, arXiv 2509.21737); read
from the abstract.

    l_k = mean log-prob of the tokens of turn k         loss_i = mean over pairs of turns with s_j > s_k + margin of
                                                                 (s_j - s_k) * -log sigmoid(beta (l_j - l_k))

Shapes: stats.logp, columns["turn"] and columns["turn_reward"] [T] in, values [T] out (a row's loss shared by its
tokens), mean over rows. T turns with their own scores give up to T (T - 1) / 2 pairs from one episode. Rows without a
pair, and environments that do not reward turns, contribute nothing.
"""

from __future__ import annotations

import torch
from torch.nn.functional import logsigmoid

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats

READS = ("turn_reward",)


def turn_preference(
    stats: TokenStats, batch: Batch, *, coef: float = 0.5, beta: float = 0.1, margin: float = 0.05
) -> Terms:
    logp = live(stats.logp, batch)
    turn = torch.where(batch.trainable, batch.columns["turn"], 0.0).long()
    score = batch.columns.get("turn_reward", torch.zeros_like(logp))
    width = int(turn.max()) + 1
    place = batch.row * width + turn
    zeros = torch.zeros(batch.rows * width, device=logp.device)
    counts = zeros.index_add(0, place, batch.trainable.float())
    mean = (zeros.to(logp.dtype).index_add(0, place, logp) / counts.clamp_min(1)).view(batch.rows, width)
    worth = (zeros.index_add(0, place, live(score, batch)) / counts.clamp_min(1)).view(batch.rows, width)
    here = (counts.view(batch.rows, width) > 0) & (torch.arange(width, device=logp.device) > 0)
    gap = worth[:, :, None] - worth[:, None, :]
    pair = here[:, :, None] & here[:, None, :] & (gap > margin)
    loss = torch.where(pair, -gap * logsigmoid(beta * (mean[:, :, None] - mean[:, None, :])), 0.0)
    per_row = coef * loss.sum((1, 2)) / pair.sum((1, 2)).clamp_min(1)
    return Terms(values=live(batch.per_token(per_row / batch.row_tokens), batch), denominator="sequences")
