"""A head that finds which of its units serve rare inputs, shows these more often and keeps them as they are.

"Circuit-Aware Reward Training: A Mechanistic Framework for Longtail Robustness in RLHF" (CART, 2025, arXiv 2509.24713; a proposal, read
from the abstract, so all formulas are our reading).

    a(x) = gelu(W h + b) [units],   h the features of the frozen body, standardised;   r_0 = w . a
    e_u  = |mean over rare pairs of w_u (a_u(chosen) - a_u(rejected))| - |the same over frequent pairs|
    S    = the `circuit` share of the units with the largest e_u
    g(x) = sigmoid( v . s + c ),    s the standardised a_S before training, v and c by logistic regression of what is rare
    r    = r_0 + g t . a_S          (`ensemble` false: r_0)
    loss = BT(r) + augmented / (1 - augmented) * [g / share of rare pairs] [1 / (mean |s| + 0.1), scaled to mean 1 over rare rows] * BT(r)
           + coef * mean over S of ((a_u(x) - a_u(x) before training) / sd_u)^2

w_u (a_u(chosen) - a_u(rejected)) is by how much a pair's margin falls where u is set to its mean. `begin` trains the plain head on frozen
features with Bradley-Terry (`fit_steps` of Adam) and looks for the circuit in it. Rare is what the rating `tail` of a pair marks by a 1
(column "ratings": {tail: [1, 1]}); without it, the 5% of the pairs whose features are farthest from their mean, in standard deviations.
Shapes: outputs [R, 2] (r_0, t . a_S) and gate [R] in, rewards [R] out. `found` says which units, and what setting them to their means takes
from the accuracy on rare and on frequent training pairs. Only the head is trained. Leaves out new inputs written for the circuit (pairs
weigh more instead), circuits inside the body, the term that makes the gradients of both kinds of pairs orthogonal, and the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.types import UserError
from training.preference.reward_model import Fit, features
from training.types import Batch, Terms, TokenStats

RARE = 0.05  # share of the pairs that is rare where nobody says so
EPS = 0.1


class Circuit(nn.Module):
    """A frozen body under a head of `units`; what `begin` found is in buffers."""

    circuit: Tensor
    kept_weight: Tensor
    kept_bias: Tensor
    mean: Tensor
    sd: Tensor
    at: Tensor
    spread: Tensor
    v: Tensor
    c: Tensor
    weak_mean: Tensor

    def __init__(self, scorer: nn.Module, first: nn.Linear, main: nn.Linear, circuit: Tensor, stored: dict) -> None:
        super().__init__()
        self.scorer = scorer.requires_grad_(False)
        self.first, self.main, self.tail = first, main, nn.Linear(len(circuit), 1, bias=False)
        nn.init.zeros_(self.tail.weight)
        self.register_buffer("circuit", circuit)
        self.register_buffer("kept_weight", first.weight.detach()[circuit].clone())
        self.register_buffer("kept_bias", first.bias.detach()[circuit].clone())
        for name, value in stored.items():
            self.register_buffer(name, value)
        body: Any = scorer
        self.to(body.score.weight.device)


class tail_circuit:
    outputs = None
    ratings = True

    def __init__(
        self,
        *,
        units: int = 64,
        circuit: float = 0.02,
        augmented: float = 0.2,
        coef: float = 0.1,
        ensemble: bool = True,
        fit_steps: int = 300,
        tail: str = "tail",
    ) -> None:
        """Raises ValueError for a share outside its range. circuit: share of the units, at least one; augmented: share of
        rare pairs that are shown again, among all that is shown; fit_steps: of the plain head, before the circuit is looked for."""
        if units < 2 or not 0 < circuit < 1 or not 0 <= augmented < 1 or coef < 0 or fit_steps < 1:
            raise ValueError(
                f"tail_circuit: units {units}, circuit {circuit}, augmented {augmented}, coef {coef}, fit_steps {fit_steps}: give two "
                "units or more, a circuit between 0 and 1, augmented from 0 to below 1, a coef of 0 or more and a step or more"
            )
        self.units, self.circuit, self.augmented, self.coef = units, circuit, augmented, coef
        self.ensemble, self.fit_steps, self.tail = ensemble, fit_steps, tail
        self.attributes: Sequence[str] = ()
        self.share = RARE
        self.found: dict[str, Any] = {}

    def begin(self, model: nn.Module, fit: Fit) -> nn.Module:
        """Raises UserError where no pair is rare, or every one."""
        x, marks = fit()
        mean, sd = x.mean(0), x.std(0) + 1e-6
        z = torch.tensor((x - mean) / sd)
        rare = self._rare(z.numpy(), marks)
        first, main = plain_head(z, self.units, self.fit_steps)
        with torch.no_grad():
            a = F.gelu(first(z))
            effects = (main.weight[0] * (a[0::2] - a[1::2])).numpy()  # [pairs, units]: what a margin loses without u
            count = max(1, round(self.circuit * self.units))
            chosen = tail_units(effects, rare, count)
            act = a[:, torch.from_numpy(chosen)]
        at, spread = act.mean(0), act.std(0) + 1e-6
        s = (act - at) / spread
        v, c = logistic(s.numpy(), np.repeat(rare, 2))
        weak = 1 / (s.abs().mean(1) + EPS)
        self.share = float(rare.mean())
        self.found = {"units": chosen.tolist(), **{k: round(x, 4) for k, x in harm(effects, chosen, rare).items()}}
        stored = {
            "mean": torch.tensor(mean),
            "sd": torch.tensor(sd),
            "at": at,
            "spread": spread,
            "v": torch.tensor(v),
            "c": torch.tensor(c),
            "weak_mean": weak[torch.tensor(np.repeat(rare, 2))].mean(),
        }
        return Circuit(
            model, first.float(), main.float(), torch.from_numpy(chosen), {k: x.float() for k, x in stored.items()}
        )

    def _rare(self, z: np.ndarray, marks: np.ndarray) -> np.ndarray:
        """Whether each pair [N] is rare."""
        if self.tail in self.attributes:
            rare = marks[0::2, list(self.attributes).index(self.tail)] == 1
        else:
            far = np.square(z).sum(1).reshape(-1, 2).sum(1)
            rare = np.zeros(len(far), bool)
            rare[np.argsort(-far, kind="stable")[: round(RARE * len(far)) or 1]] = True
        if not rare.any() or rare.all():
            raise UserError(
                f"tail_circuit: {int(rare.sum())} of {len(rare)} training pairs are rare: mark some and not all by a 1 in the rating "
                f"{self.tail!r} of the column ratings, or give more pairs"
            )
        return rare

    def read(self, model: Circuit, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
        with torch.no_grad():
            z = (features(model.scorer, batch)[0].float() - model.mean) / model.sd
            kept = F.gelu(F.linear(z, model.kept_weight, model.kept_bias))
            s = (kept - model.at) / model.spread
            gate, weak = torch.sigmoid(s @ model.v + model.c), 1 / (s.abs().mean(1) + EPS) / model.weak_mean
        a = F.gelu(model.first(z))
        own = a[:, model.circuit]
        extras = {
            "outputs": torch.cat([model.main(a), model.tail(own)], 1),
            "gate": gate,
            "weak": weak,
            "drift": ((own - kept) / model.spread).square().mean(1),
        }
        return TokenStats(logp=torch.zeros(len(batch.ids), device=a.device), extras=extras)

    def ranked(self, stats: TokenStats, batch: Batch) -> Tensor:
        return self.reward(stats, batch)

    def reward(self, stats: TokenStats, batch: Batch) -> Tensor:
        main, tail = stats.extras["outputs"].unbind(1)
        return main + stats.extras["gate"] * tail if self.ensemble else main

    def extra(self, stats: TokenStats, batch: Batch) -> list[Terms]:
        r, pairs = self.reward(stats, batch), lambda name: stats.extras[name].reshape(-1, 2).mean(1)
        often = self.augmented / (1 - self.augmented) / self.share
        again = often * pairs("gate") * pairs("weak") * F.softplus(r[1::2] - r[0::2])
        out = [Terms(values=again, denominator="pairs")] if self.augmented else []
        return out + ([Terms(values=self.coef * stats.extras["drift"], denominator="sequences")] if self.coef else [])


def plain_head(z: Tensor, units: int, steps: int) -> tuple[nn.Linear, nn.Linear]:
    """The layers of w . gelu(W z + b), trained on the order of rows 2i over 2i + 1 of z [N, d] (float64)."""
    first, main = nn.Linear(z.shape[1], units).double(), nn.Linear(units, 1, bias=False).double()
    generator = torch.Generator().manual_seed(z.shape[1] * units)
    for layer in (first, main):
        layer.weight.data.normal_(0.0, layer.in_features**-0.5, generator=generator)
    nn.init.zeros_(first.bias)
    optimizer = torch.optim.Adam([*first.parameters(), *main.parameters()], lr=0.01)
    for _ in range(steps):
        r = main(F.gelu(first(z)))[:, 0]
        optimizer.zero_grad()
        F.softplus(r[1::2] - r[0::2]).mean().backward()
        optimizer.step()
    return first, main


def tail_units(effects: np.ndarray, rare: np.ndarray, count: int) -> np.ndarray:
    """The `count` units [m], in order, that matter most to rare pairs above what they matter to others: effects
    [pairs, units] is what each adds to each margin."""
    score = np.abs(effects[rare].mean(0)) - np.abs(effects[~rare].mean(0))
    return np.sort(np.argsort(-score, kind="stable")[:count])


def harm(effects: np.ndarray, units: np.ndarray, rare: np.ndarray) -> dict[str, float]:
    """What setting these units to their means takes from the share of rare and of frequent pairs in order."""
    whole = effects.sum(1)
    lost = (whole > 0).astype(float) - (whole - effects[:, units].sum(1) > 0)
    return {"tail_harm": float(lost[rare].mean()), "head_harm": float(lost[~rare].mean())}


def logistic(s: np.ndarray, marks: np.ndarray, *, ridge: float = 1e-2, steps: int = 50) -> tuple[np.ndarray, float]:
    """v [m] and c of a logistic regression of marks [N] on s [N, m], both kinds weighing the same, by Newton's method."""
    x = np.c_[s, np.ones(len(s))]
    weight = np.where(marks, 0.5 / marks.sum(), 0.5 / (~marks).sum())
    penalty, beta = np.diag(np.r_[np.full(s.shape[1], ridge), 0.0]), np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
        gradient = x.T @ (weight * (p - marks)) + penalty @ beta
        curve = (x * (weight * p * (1 - p))[:, None]).T @ x + penalty + 1e-9 * np.eye(len(beta))
        beta = beta - np.linalg.solve(curve, gradient)
    return beta[:-1], float(beta[-1])
