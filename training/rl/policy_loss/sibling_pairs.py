"""DPO's loss over pairs of turns that were taken from the same place, the better one against the worse.

Chen et al. 2024, "Optima: Optimizing Effectiveness and Efficiency for LLM-Based Multi-Agent System" (arXiv 2410.08115); Rafailov
et al. 2023, "Direct Preference Optimization" (arXiv 2305.18290).

    siblings i, j: turns after the same ids, with values v (the advantages of node_values); a pair if v_i - v_j > gap, v_i > floor
    of a group's pairs the share `top` with the highest v_i
    mean over them of -log sigmoid( beta (d_i - d_j) ),       d = log p(turn) - log reference(turn)

Shapes: stats.logp [T] in, values [T] out, summed over a group and averaged over groups; a group without a pair has 0. The
factor of each turn is computed once for the step (`prepare`), from the policy before the update: with one update per batch
the gradient is exactly that of the loss, but the value is not. A turn that several rows hold counts once. The ratio is not used.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

NEEDS = {"reference", "old"}
EXCLUDES = {"ratio/sequence": "sibling_pairs compares turns with the reference and reads no ratio; use ratio token"}


def prepare(batch: Batch, *, beta: float = 0.1, gap: float = 0.2, floor: float = 0.4, top: float = 0.5) -> None:
    """Adds columns["pull"] [T]: minus the factor of each token's log-prob in the loss. Raises ValueError for a beta that is
    not above 0, and for a share that is not."""
    if beta <= 0 or not 0 < top <= 1:
        raise ValueError(
            f"sibling_pairs: beta is {beta} and top {top}: beta is above 0, and top a share, above 0 up to 1"
        )
    d = live(batch.columns["old"] - batch.columns["reference"], batch).double().clamp(-LIMIT, LIMIT).cpu().numpy()
    value = batch.columns["advantages"].double().cpu().numpy()
    pull = np.zeros(len(d))
    for nodes in _tree(batch).values():
        pairs = []
        for branches in nodes.values():
            for good in branches.values():
                for bad in branches.values():
                    if value[good[0][0]] - value[bad[0][0]] > gap and value[good[0][0]] > floor:
                        pairs.append((good, bad))
        pairs.sort(key=lambda pair: -value[pair[0][0][0]])  # stable: those of the same value as they came
        pairs = pairs[: int(np.ceil(top * len(pairs)))]
        for good, bad in pairs:
            apart = beta * (d[good[0]].sum() - d[bad[0]].sum())
            push = beta / (1 + np.exp(apart)) / len(pairs)
            for copies, way in ((good, push), (bad, -push)):
                for tokens in copies:
                    pull[tokens] += way / len(copies)
    batch.add("pull", torch.from_numpy(pull).to(batch.columns["old"]), "token")


def _tree(batch: Batch) -> dict[int, dict[bytes, dict[bytes, list[np.ndarray]]]]:
    """Group -> the ids before a turn -> the turn's ids -> where its tokens are, once for each row that holds it."""
    ids, on = batch.ids.cpu().numpy(), batch.trainable.cpu().numpy()
    turn = batch.columns["turn"].cpu().numpy() if "turn" in batch.columns else on.astype(np.int64)
    tree: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    start = 0
    for n, group in zip(batch.lengths, batch.group.tolist(), strict=True):
        mine = np.arange(start, start + n)
        for t in np.unique(turn[mine][on[mine]]):
            tokens = mine[on[mine] & (turn[mine] == t)]
            tree[group][ids[start : tokens[0]].tobytes()][ids[tokens].tobytes()].append(tokens)
        start += n
    return tree  # type: ignore[return-value]


def sibling_pairs(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    beta: float = 0.1,
    gap: float = 0.2,
    floor: float = 0.4,
    top: float = 0.5,
) -> Terms:
    return Terms(values=-live(batch.columns["pull"] * live(stats.logp, batch), batch), denominator="groups")
