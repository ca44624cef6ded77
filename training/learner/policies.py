"""Several policies on one base: named adapters in one model, each with its own optimizer, gradients and count of steps.

One of them is in use at a time, and the code that trains or samples selects it by name (a sampler may use a different
policy for each row of a batch, `training.model.lora.by_row`). The base is frozen and stored once; a policy costs its
adapters, and once it has been trained, their gradient and the two moments of AdamW: 16 bytes for each of its weights in
float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from training.learner.learner import Learner, Objective, Optim
from training.learner.world import World
from training.model import lora as adapters
from training.types import Batch


@dataclass
class Policy:
    """One of the policies. lora: the knobs of its adapters (training/model/lora.py)."""

    name: str
    lora: Mapping[str, Any]
    learner: Learner
    weights: dict[str, nn.Parameter]

    @property
    def world(self) -> World:
        return self.learner.world

    def step(self, batch: Batch, objective: Objective, **how: Any) -> dict[str, float]:
        """`Learner.step` of this policy, which stays selected afterwards."""
        adapters.use(self.learner.model, self.name)
        return self.learner.step(batch, objective, **how)

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of its adapters as they are now."""
        return {name: p.detach().clone() for name, p in self.weights.items()}

    def state(self) -> dict[str, Any]:
        """Everything that its next step depends on, except accumulated gradients."""
        return {
            "lora": dict(self.lora),
            "step_count": self.learner.step_count,
            "weights": dict(self.weights),
            "master": [m for p, m in zip(self.learner.weights, self.learner.master, strict=True) if m is not p],
            "optimizers": [o.state_dict() for o in self.learner.optimizers],
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any], *, optimizer: bool = True) -> None:
        """Continue from a `state` of a policy with the same adapters; from a state without optimizer it takes the
        weights alone. Raises ValueError for other adapters."""
        if state["weights"].keys() != self.weights.keys() or any(
            state["weights"][n].shape != p.shape for n, p in self.weights.items()
        ):
            raise ValueError("the state is one of other adapters: load it into a policy of the same rank and modules")
        for name, p in self.weights.items():
            p.copy_(state["weights"][name])
        learner = self.learner
        learner.drop_gradients()
        copies = [(p, m) for p, m in zip(learner.weights, learner.master, strict=True) if m is not p]
        for (p, m), saved in zip(copies, state["master"], strict=True):
            m.copy_(saved if optimizer else p.float())
        if optimizer:
            learner.step_count = state["step_count"]
            for mine, saved in zip(learner.optimizers, state["optimizers"], strict=True):
                mine.load_state_dict(saved)


class Policies:
    """The policies of `model`, whose own weights are frozen."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval().requires_grad_(False)
        self.named: dict[str, Policy] = {}

    def create(
        self, name: str, lora: Mapping[str, Any], *, seed: int = 0, optim: Optim | None = None, **learner: Any
    ) -> Policy:
        """A new policy, equal to the base. optim: for `step`; learner: further settings of `Learner`. Raises ValueError
        for a name that is taken or has a dot, and for `lora` that `adapt` refuses."""
        if name in self.named or "." in name or not name:
            raise ValueError(f"a policy cannot be called {name!r}: the name is taken, empty, or has a dot")
        adapters.adapt(self.model, lora, seed=seed, name=name)
        adapters.use(self.model, name)
        self.named[name] = Policy(
            name, dict(lora), Learner(self.model, optim or Optim(), **learner), adapters.weights_of(self.model, name)
        )
        return self.named[name]

    def remove(self, name: str) -> None:
        """Forget a policy: its adapters, its gradients, its optimizer."""
        del self.named[name]
        adapters.remove(self.model, name)

    @contextmanager
    def using(self, name: str | None, weights: Mapping[str, Tensor] | None = None) -> Iterator[None]:
        """Within the context, the model is this policy (None: the base), with the adapters of a `snapshot` if one is
        given."""
        if name is None and not self.named:  # peft has not inserted any layers
            yield
            return
        adapters.use(self.model, name)
        if weights is None or name is None:
            yield
            return
        mine = self.named[name].weights
        kept = {n: p.data for n, p in mine.items()}
        for n, p in mine.items():
            p.data = weights[n]
        try:
            yield
        finally:
            for n, p in mine.items():
                p.data = kept[n]

    def bytes(self, name: str) -> int:
        """Memory of a policy in addition to the base: adapters, master copies, gradients and moments."""
        learner = self.named[name].learner
        held = {id(t): t for t in (*learner.weights, *learner.master)}
        held |= {id(p.grad): p.grad for p in held.values() if p.grad is not None}
        for optimizer in learner.optimizers:
            for moments in optimizer.state.values():
                held |= {id(t): t for t in moments.values() if isinstance(t, Tensor)}
        return sum(t.numel() * t.element_size() for t in held.values())
