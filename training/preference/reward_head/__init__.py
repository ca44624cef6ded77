"""Heads of reward models: one file each, with a class named as the file. Its attributes and methods:

- `outputs`: how many numbers the model gives (None: one per attribute, with ratings)
- `ratings`: whether `begin` learns from ratings of attributes
- `begin(model, fit) -> nn.Module`: builds from the model the module that is trained; `fit()` returns features and
  ratings, for heads that need them
- `read(model, batch, *, temperature) -> TokenStats`
- `ranked(stats, batch) -> [R]`: the values that the pairwise loss ranks
- `reward(stats, batch) -> [R]`: the reward of every row
- `extra(stats, batch) -> list[Terms]`: losses in addition to the pairwise one
- `found`: where `begin` finds out something, what the card says of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from training.preference.reward_model import Head


class RewardHeadPiece(Protocol):
    """Makes the head of a reward model; the piece is a class whose only arguments are its knobs.

    Returns:
        the module that is trained, and how a reward is computed from it

    Check gives:
        outputs: per row the outputs of the model
        gate: per row, if the head has a gate
        beta: per row, if the head has its own temperature

    Check expects:
        rewards: per row
        ranked: per row the value that the pairwise loss ranks
    """

    def __call__(self) -> Head: ...
