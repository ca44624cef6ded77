"""What an update must not change: directions in which earlier rounds moved weights, and frozen layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from training.learner.learner import Learner


class Subspaces:
    """Keeps a learner's change since `begin` out of protected directions, exactly, whatever its optimizer does.

    "OrthAlign: Orthogonal Subspace Decomposition for Non-Interfering Multi-Objective Alignment" 2025 (arXiv
    2509.24610): with the update dW1 of an earlier objective = U S V' and U_k the leading columns that hold the share
    `energy` of sum S^2, the change dW2 of the next objective becomes

        dW2 <- (I - U_k U_k') dW2,       and is scaled down where its spectral norm is above `cap` (0: no cap)

    so that U_k' dW2 = 0; with energy 1, <dW1, dW2> = 0. Only matrices are projected: vectors (norms) are frozen once
    something is protected. The change as a whole is projected after every step, not the gradient: Adam's scaling would
    turn a projected gradient out of the subspace again.

    frozen   names of parameters that do not move at all
    """

    def __init__(self, learner: Learner, *, energy: float = 0.9, cap: float = 0.0) -> None:
        if not 0 < energy <= 1:
            raise ValueError(f"energy is {energy}: the share of an update's energy to protect is above 0 and at most 1")
        self.learner, self.energy, self.cap = learner, energy, cap
        self.names = [n for n, p in learner.model.named_parameters() if p.requires_grad]
        self.start: list[Tensor] = []
        self.bases: list[Tensor | None] = []
        self.frozen: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        return bool(self.start) and (bool(self.bases) or bool(self.frozen))

    @torch.no_grad()
    def begin(self, *, protect: bool = False, frozen: frozenset[str] = frozenset()) -> None:
        """A new round begins: protect the changes of the last one, if asked, and measure changes from here."""
        if protect and self.start:
            changes = [m - s for m, s in zip(self.learner.master, self.start, strict=True)]
            self.bases = [self._add(d, u) for d, u in zip(changes, self.bases or [None] * len(changes), strict=True)]
        self.frozen = frozen
        self.start = [m.detach().clone() for m in self.learner.master]

    def _add(self, change: Tensor, known: Tensor | None) -> Tensor | None:
        """[rows, r] orthonormal columns that span `known` and the leading left directions of a change."""
        if change.dim() != 2 or not bool(change.any()):
            return known
        u, s, _ = torch.linalg.svd(change.double(), full_matrices=False)
        share = s.square().cumsum(0) / s.square().sum()
        k = min(int((share < self.energy - 1e-12).sum()) + 1, int((s > s[0] * 1e-9).sum()))
        both = u[:, :k] if known is None else torch.cat([known, u[:, :k]], 1)
        if both.shape[1] > both.shape[0]:
            both = both[:, : both.shape[0]]
        return torch.linalg.qr(both).Q

    @torch.no_grad()
    def project(self) -> None:
        """After an optimizer step: remove protected directions and frozen parameters from the change since `begin`."""
        bases = self.bases or [None] * len(self.start)
        for name, p, m, s, u in zip(
            self.names, self.learner.weights, self.learner.master, self.start, bases, strict=True
        ):
            change = m - s
            if name in self.frozen or (self.bases and change.dim() != 2):
                m.copy_(s)
            elif u is not None:
                free = change.double() - u @ (u.T @ change.double())
                norm = float(torch.linalg.matrix_norm(free, 2)) if self.cap else 0.0
                m.copy_(s + (free * (self.cap / norm) if norm > self.cap > 0 else free).to(m.dtype))
            if m is not p:
                p.copy_(m)

    def state(self) -> dict[str, Any]:
        return {"start": self.start, "bases": self.bases, "frozen": sorted(self.frozen)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.start, self.bases, self.frozen = list(state["start"]), list(state["bases"]), frozenset(state["frozen"])
