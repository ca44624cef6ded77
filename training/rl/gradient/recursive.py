"""Recursive variance reduction of a policy gradient, for a concave function of several returns.

"Variance Reduced Policy Gradient Method for Multi-Objective Reinforcement Learning", 2025 (MO-TSIVR-PG; read from a summary), after
Zhang et al. 2021, "On the Convergence and Sample Efficiency of Variance-Reduced Policy Gradient Method" (TSIVR-PG, arXiv 2102.08607).

    maximise f(J_1, ..., J_k)        J_i the mean return of source i; ghat(tau, theta, J) the policy gradient of a trajectory whose
                                     rewards are sum_i d f / d J_i (J) r_i

    every `epoch_len` steps, of a big batch      J = mean R(tau)                       g = mean ghat(tau, theta, J)
    in between, tau played with theta_t          J_t = J_{t-1} + mean[R(tau) - w R(tau)]
                                                 g_t = g_{t-1} + mean[ghat(tau, theta_t, J_t) - w ghat(tau, theta_{t-1}, J_{t-1})]

    w = p(tau | theta_{t-1}) / p(tau | theta_t), of the whole trajectory

    sum_log   sum_i log(J_i + floor), J_i below 0 counts as 0         softmin   -1/sharpness log sum_i exp(-sharpness J_i)
    linear    sum_i J_i: what a single reward that is the sum gives, step by step

Shapes: columns "by_source" [T, k] (the advantages of each source) and "return_by_source" [T, k] (their sum over a row is its returns) in; the advantages become their sum
weighted by the slopes of f, which is the advantage of the summed reward for every estimator that is linear in rewards. The truncated
update is the optimizer's: plain steps (`optimizer.kind` sgd) are at most lr x max_grad_norm long, so that w stays bounded. The policy
loss must be `policy_gradient`, with one update per step: any other one weighs by a ratio itself. `epoch_len` 1 is the plain policy
gradient of f. Leaves out that the source delays slopes by a step to keep them independent of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from training.learner.learner import Accumulated, Learner, Passes
from training.learner.reduction import LIMIT
from training.rl.gradient import Gradient
from training.types import Batch


class recursive(Gradient):
    """big: problems of the big batch; a step in between plays prompts_per_step of them. epoch_len: steps from one big batch to the next.
    f: of the returns. floor: is added to returns before the logarithm. sharpness: of the soft minimum."""

    def __init__(
        self,
        *,
        f: Literal["sum_log", "softmin", "linear"] = "sum_log",
        big: int = 10,
        epoch_len: int = 10,
        floor: float = 0.01,
        sharpness: float = 1.0,
    ) -> None:
        if big < 1 or epoch_len < 1 or floor <= 0 or sharpness <= 0:
            raise ValueError(
                f"gradient/recursive: big is {big}, epoch_len {epoch_len}, floor {floor} and sharpness {sharpness}: give whole numbers "
                "from 1 for the first two, and numbers above 0 for the others"
            )
        self.f, self.big, self.epoch_len, self.floor, self.sharpness = f, big, epoch_len, floor, sharpness
        self.before: list[Tensor] = []  # the weights of the last step, none before the first
        self.last: list[Tensor] = []  # its estimate of the gradient of the loss
        self.returns = torch.zeros(0, dtype=torch.float64)

    def prompts(self, step: int, usual: int) -> int:
        return self.big if step % self.epoch_len == 0 else usual

    def value(self, returns: Tensor) -> float:
        """f of returns [k]."""
        if self.f == "sum_log":
            return float((returns.clamp_min(0) + self.floor).log().sum())
        return float(
            returns.sum() if self.f == "linear" else -(-self.sharpness * returns).logsumexp(0) / self.sharpness
        )

    def slope(self, returns: Tensor) -> Tensor:
        """[k] the derivative of f in each of the returns [k]."""
        if self.f == "sum_log":
            return 1 / (returns.clamp_min(0) + self.floor)
        return torch.ones_like(returns) if self.f == "linear" else torch.softmax(-self.sharpness * returns, 0)

    def gradient(self, learner: Learner, batch: Batch, passes: Passes) -> Accumulated:
        if bool(batch.columns.get("off_policy", torch.zeros(1)).any()):
            raise ValueError(
                "gradient/recursive weighs trajectories of the policy of now, and this batch has some of another: leave out group transforms "
                "that add or replay answers"
            )
        now, each = learner.copied(), batch.columns["return_by_source"].double()
        paid = torch.stack([batch.row_sum(x) for x in each.unbind(1)], 1)
        missed, widest, total = torch.zeros((), dtype=torch.float64), 1.0, paid.mean(0).cpu()
        if self.before and learner.step_count % self.epoch_len:
            mine = passes.logp(batch)
            learner.put(self.before)
            try:
                off = torch.where(batch.trainable, passes.logp(batch) - mine, 0.0)
                w = batch.row_sum(off.double()).clamp(-LIMIT, LIMIT).exp()
                widest = float(w.max())
                # minus: what this pass adds is taken away from the next one's
                missed = passes.add(_weighed(batch, -self.slope(self.returns), w)).lost
            finally:
                learner.put(now)
            total = self.returns + (paid - w[:, None] * paid).mean(0).cpu()
            for m, g in zip(learner.master, self.last, strict=True):
                m.grad = g.clone() if m.grad is None else m.grad.add_(g)
        self.returns = total
        out = passes.add(_weighed(batch, self.slope(total), torch.ones(batch.rows, device=batch.ids.device)))
        self.before = now
        self.last = [torch.zeros_like(m) if m.grad is None else m.grad.detach().clone() for m in learner.master]
        told = {"objective": self.value(total), "weight_max": widest}
        told |= {f"return_{i}": float(x) for i, x in enumerate(total)}
        one = torch.ones((), dtype=torch.float64)
        sums = {**out.sums, **{k: (one * x, one) for k, x in told.items()}}
        return replace(out, lost=out.lost + missed.to(out.lost), sums=sums)

    def state(self) -> dict[str, Any]:
        return {"before": self.before, "last": self.last, "returns": self.returns}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.before, self.last = list(state["before"]), list(state["last"])
        self.returns = state["returns"]


def _weighed(batch: Batch, slope: Tensor, w: Tensor) -> Batch:
    """The batch whose advantages [T] are those of the sources, weighted by the slopes [k] and by w [R] of the row."""
    by = batch.columns["by_source"]
    mixed = (by.double() @ slope.to(by.device)) * batch.per_token(w).double()
    return replace(batch, columns={**batch.columns, "advantages": mixed.to(by.dtype)})
