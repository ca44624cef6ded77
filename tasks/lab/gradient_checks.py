"""Estimators of the gradient on policies that are tables of logits, in float64: for the checks of recipes and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.learner.learner import Learner, Optim
from training.rl.gradient import Gradient
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.types import Batch, TokenStats

Episode = tuple[Sequence[int], Sequence[int], Any]  # states [n], actions [n], rewards [n, k]


class Table(nn.Module):
    """logits [states, actions], float64."""

    def __init__(self, logits: Any) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))


def read(model: Table, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    table = torch.log_softmax(model.logits / temperature, 1)
    logp = torch.where(batch.trainable, table[batch.columns["state"], batch.ids], 0.0)
    return TokenStats(logp=logp, entropy=torch.zeros_like(logp))


def packed(episodes: Sequence[Episode]) -> Batch:
    """The batch of a step; the advantage of each source is the return of the whole episode, without a baseline."""
    ids, state, by, paid, lengths = [], [], [], [], []
    for states, actions, rewards in episodes:
        rewards = np.asarray(rewards, dtype=np.float64)
        total = rewards.sum(0)
        ids += [0, *actions]
        state += [0, *states]
        by += [np.zeros_like(total), *[total] * len(actions)]
        paid += [total, *[np.zeros_like(total)] * len(actions)]
        lengths.append(len(actions) + 1)
    position = np.concatenate([np.arange(n) for n in lengths])
    columns = {"by_source": torch.tensor(np.array(by)), "return_by_source": torch.tensor(np.array(paid))}
    columns |= {"advantages": columns["by_source"].sum(1), "state": torch.tensor(state)}
    return Batch(
        ids=torch.tensor(ids),
        position=torch.from_numpy(position),
        row=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
        lengths=lengths,
        trainable=torch.from_numpy(position > 0),
        group=torch.zeros(len(lengths), dtype=torch.int64),
        columns=columns,
        per=dict.fromkeys(columns, "token"),
        totals={"sequences": float(len(lengths)), "tokens": float(len(ids) - len(lengths))},
    )


def learner_of(logits: Any, estimator: Gradient | None, lr: float, delta: float = 1e9) -> Learner:
    """A learner of a table that takes plain steps, at most `delta` long."""
    optim = Optim(kind="sgd", lr=lr, warmup=0, decay="constant", weight_decay=0.0, max_grad_norm=delta / lr)
    return Learner(Table(logits), optim, read=read, estimator=estimator)  # type: ignore[arg-type]


def step(learner: Learner, episodes: Sequence[Episode]) -> tuple[Tensor, dict[str, float]]:
    """One update: the gradient [states, actions] that was ascended, before its norm was bounded, and the metrics."""

    def objective(stats: TokenStats, batch: Batch) -> list:
        return [policy_gradient(stats.logp, batch.columns["advantages"], stats, batch)]

    told = learner.step(packed(episodes), objective)
    (weight,) = learner.weights
    assert weight.grad is not None
    used = weight.grad.norm()
    return -weight.grad * (told["grad_norm"] / float(used) if used > 0 else 1.0), told


def gradient(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The runner of checks of this kind."""
    learner = learner_of([given["logits"]], piece(), given["lr"])
    gradients, returns = [], []
    for one in given["batches"]:
        played = [([0], [a], [r]) for a, r in zip(one["actions"], one["rewards"], strict=True)]
        g, told = step(learner, played)
        gradients.append(g[0].tolist())
        returns.append([told[f"return_{i}"] for i in range(len(one["rewards"][0]))])
    return {"gradients": gradients, "returns": returns, "logits": learner.weights[0].detach()[0].tolist()}
