"""Heads of reward models: one file each, a class named as the file. Its attributes and methods:

- `outputs`: how many numbers the model gives (None: one per attribute, with ratings)
- `ratings`: whether `begin` learns from ratings of attributes
- `begin(model, fit) -> nn.Module`: what is trained, made of the model; `fit()` gives features and ratings to a head that
  asks
- `read(model, batch, *, temperature) -> TokenStats`
- `ranked(stats, batch) -> [R]`: what the pairwise loss puts in order
- `reward(stats, batch) -> [R]`: the reward of every row
- `extra(stats, batch) -> list[Terms]`: losses beside the pairwise one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from training.preference.reward_model import Head


class RewardHeadPiece(Protocol):
    """Makes the head of a reward model; the piece is a class that is made without arguments but its knobs.

    Returns:
        what is trained and how a reward is read of it

    Check gives:
        outputs: per row the numbers that the model gives
        gate: per row, where the head has a gate
        beta: per row, where the head has its own temperature

    Check expects:
        rewards: per row
        ranked: per row, what the pairwise loss puts in order
    """

    def __call__(self) -> Head: ...
