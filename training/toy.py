"""Groups and batches from plain lists, for numeric checks of recipes and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import Problem, Scored, Unscorable
from training.pack import Row, pack
from training.types import Batch, Group, Rollout, Segment, TokenStats


def problems(n: int) -> list[Problem]:
    return [Problem.make(prompt=f"question {i}", answer=str(i), verifier="exact_match", family="toy", split="train") for i in range(n)]


def groups(
    rewards: Sequence[Sequence[float]],
    lengths: Sequence[Sequence[int]] | None = None,
    *,
    entropies: Sequence[Sequence[Any]] | None = None,
    parts: Sequence[Sequence[Mapping[str, float]]] | None = None,
    turns: Sequence[Sequence[int]] | None = None,
) -> list[Group]:
    """One group per list of rewards; NaN is an Unscorable rollout.

    Per rollout: `lengths` are the numbers of tokens the model wrote (3), `entropies` theirs (0; a number or a list), `parts` those of
    the score (none), `turns` how often the model spoke (once; the tokens are in the last turn but one each).
    """

    def rollout(problem: Problem, reward: float, n: int, entropy: Any, part: Mapping[str, float], spoke: int) -> Rollout:
        values = np.broadcast_to(np.asarray(entropy, dtype=np.float32), n)
        cuts = [*range(spoke), n]
        asked = Segment(ids=np.zeros(2, dtype=np.int64), role="env")
        said = [
            Segment(ids=np.ones(b - a, dtype=np.int64), role="model", logp=np.full(b - a, -1.0, dtype=np.float32), entropy=values[a:b])
            for a, b in zip(cuts, cuts[1:])
        ]
        score = Scored(value=reward, parts=part) if reward == reward else Unscorable(reason="toy")
        return Rollout(problem=problem, group=problem.id, segments=tuple(s for turn in said for s in (asked, turn)), score=score)

    def given(values: Sequence[Sequence[Any]] | None, default: Any) -> Sequence[Sequence[Any]]:
        return [[default] * len(r) for r in rewards] if values is None else values

    columns = zip(rewards, given(lengths, 3), given(entropies, 0.0), given(parts, {}), given(turns, 1), strict=True)
    return [
        Group(id=problem.id, rollouts=tuple(rollout(problem, float(x), *rest) for x, *rest in zip(*column, strict=True)))
        for problem, column in zip(problems(len(rewards)), columns, strict=True)
    ]


@dataclass
class Toy:
    """A packed batch, what the model would say of it, and the leaf tensor that gradients are asked of.

    leaf   logp [T], or logits [tokens the rows list, V] where the rows give whole distributions
    """

    batch: Batch
    leaf: Tensor
    stats: TokenStats

    def gradient(self, loss: Tensor) -> list[list[Any]]:
        """Gradient of a scalar loss as nested lists: per row, per listed token, a number (logp) or a list over the vocabulary (logits)."""
        (g,) = torch.autograd.grad(loss, self.leaf, allow_unused=True)
        g = torch.zeros_like(self.leaf) if g is None else g
        listed = self.batch.position > 0
        per_token = g if g.dim() == 2 else g[listed]
        return [x.tolist() for x in torch.split(per_token, [n - 1 for n in self.batch.lengths])]


def batch(rows: Sequence[Mapping[str, Any]]) -> Toy:
    """A batch of rows, each a prompt token followed by the tokens it lists.

    A row gives `logp: [n]` (or one number with `n`), or `probs: [n][V]` (distributions over a small vocabulary) with the sampled
    `tokens: [n]`. Optional, a number or a list [n] each: credit (0), old (the given logp), behaviour (old), reference (the given logp),
    trainable (true), behaviour_entropy (that of the distribution).
    """
    if len({"probs" in row for row in rows}) != 1:
        raise ValueError("either all rows of a toy batch give probs, or none")
    packed, given, entropies = [], [], []
    for row in rows:
        if "probs" in row:
            p = np.asarray(row["probs"], dtype=np.float64)
            logp = np.log(p[np.arange(len(p)), row["tokens"]])
            entropy = -(p * np.log(p)).sum(-1)
        else:
            logp = np.broadcast_to(np.asarray(row["logp"], dtype=np.float64), row.get("n", np.size(row["logp"])))
            entropy = np.zeros(len(logp))
        old = row.get("old", logp)
        values = {
            "credit": row.get("credit", 0.0),
            "old": old,
            "behaviour": row.get("behaviour", old),
            "reference": row.get("reference", logp),
            "behaviour_entropy": row.get("behaviour_entropy", entropy),
        }
        n = len(logp)
        columns = {k: np.concatenate([[0.0], np.broadcast_to(np.asarray(v, dtype=np.float64), n)]) for k, v in values.items()}
        trainable = np.concatenate([[False], np.broadcast_to(row.get("trainable", True), n)])
        ids = np.concatenate([[0], row.get("tokens", np.ones(n))]).astype(np.int64)
        packed.append(Row(ids=ids, trainable=trainable, group=len(packed), columns=columns))
        given += [np.concatenate([[0.0], logp])]
        entropies += [np.concatenate([[0.0], entropy])]
    out = pack(packed)
    if "probs" not in rows[0]:
        leaf = torch.tensor(np.concatenate(given), dtype=torch.float32, requires_grad=True)
        return Toy(batch=out, leaf=leaf, stats=TokenStats(logp=leaf, entropy=torch.tensor(np.concatenate(entropies), dtype=torch.float32)))
    leaf = torch.tensor(np.log(np.concatenate([row["probs"] for row in rows])), dtype=torch.float32, requires_grad=True)
    full = torch.log_softmax(leaf, -1)
    at = (out.position > 0).nonzero().squeeze(1)
    spread = lambda x: torch.zeros(len(out.ids)).index_add(0, at, x)  # noqa: E731
    chosen = full.gather(1, out.ids.index_select(0, at)[:, None]).squeeze(1)
    return Toy(batch=out, leaf=leaf, stats=TokenStats(logp=spread(chosen), entropy=spread(-(full.exp() * full).sum(-1))))
