"""The reference is the mean of several models: a soup.

Chegini et al. 2024, "SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF" (arXiv 2411.01798).

    reference = weight * SFT model + (1 - weight) / n * (each of the n models in `of`), parameter by parameter

`of` names folders of models, or "base", the model that SFT began with. Policy and reference differ from the start, so
the first loss is not that of equal log-probs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from synth.types import UserError
from training.model.averaging import soup
from training.preference.update_rule import UpdateRule


class averaged_reference(UpdateRule):
    starts_equal = False

    def __init__(self, *, of: Sequence[str] = ("base",), weight: float = 0.5) -> None:
        if not of or not 0 <= weight <= 1:
            raise UserError(
                f"averaged_reference: `of` is {list(of)} and `weight` is {weight}: name at least one model, and give the SFT "
                "model a share between 0 and 1"
            )
        self.of, self.weight = of, weight

    def change_reference(self, reference: nn.Module | None, load: Callable[[str], nn.Module]) -> None:
        if reference is None:
            raise UserError(
                "averaged_reference: the loss uses no reference: choose a loss that does, or leave the rule out"
            )
        others = [load(name) for name in self.of]
        soup([reference, *others], [self.weight, *[(1 - self.weight) / len(others)] * len(others)])
