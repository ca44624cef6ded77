"""The log-probs of given texts after given prefixes, as multiple-choice evaluations need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from training.learner.learner import Targets, score
from training.learner.pack import Row, pack
from training.lm_head.logprob import Asked, Head, fused_stats
from training.model.model import head_weight
from training.types import Batch, TokenStats


def continuation_logp(
    model: nn.Module,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    longest: int = 0,
    tokens_per_pass: int = 8192,
) -> list[tuple[float, bool]]:
    """For each (ids before, ids): the sum of the log-probs of `ids` in nats, and whether each id is the most likely one
    at its position (greedy decoding would write them). Prefixes that neighbours share are computed once.

    longest: how many tokens the model sees; of a longer row the first tokens are cut off (0: no limit). Raises
    ValueError for a prefix or text without tokens, and for a text longer than `longest`."""
    rows = []
    for i, (before, ids) in enumerate(pairs):
        if not len(before) or not len(ids):
            raise ValueError(f"text {i} has {len(before)} tokens before it and {len(ids)} of its own: each needs one")
        if longest and len(ids) > longest:
            raise ValueError(f"text {i} has {len(ids)} tokens, more than the {longest} that the model sees")
        # The last token is only a target, so a row may have one token more than the model sees.
        whole = np.concatenate([before, ids]).astype(np.int64)[-(longest + 1) if longest else 0 :]
        rows.append(Row(ids=whole, trainable=np.arange(len(whole)) >= len(whole) - len(ids)))
    device = str(head_weight(model).device)
    out: list[tuple[float, bool]] = []
    model.eval()
    with torch.no_grad():
        for part in _passes(rows, tokens_per_pass):
            batch = pack(part, device=device)
            if longest:  # the last token of the longest row is never read, so its position may be anything
                batch.position.clamp_(max=longest - 1)
            stats = score(model, batch, tokens_per_microbatch=tokens_per_pass, read=_likeliest)
            sums, missed = batch.row_sum(stats.logp.double()), batch.row_sum(stats.extras["missed"])
            out += [(float(s), not bool(m)) for s, m in zip(sums.cpu(), missed.cpu(), strict=True)]
    return out


def _passes(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Neighbours of at most `tokens` tokens together; a longer row alone."""
    part: list[Row] = []
    for row in rows:
        if part and sum(len(r.ids) for r in part) + len(row.ids) > tokens:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _likeliest(model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    """logp [T] of each target; extras: missed [T], 1 where another token is more likely."""
    targets = Targets.of(model, batch)
    head = Head(weight=head_weight(model), temperature=temperature)
    stats = fused_stats(targets.before, head, targets.ids, Asked(top_k=1))
    assert stats.top_ids is not None
    missed, n = (stats.top_ids[:, 0] != targets.ids).float(), len(batch.ids)
    return TokenStats(logp=targets.spread(stats.logp, n), extras={"missed": targets.spread(missed, n)})
