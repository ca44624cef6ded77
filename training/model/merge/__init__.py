"""Ways to merge several models that were trained from the same base, without training; one file each.

They share `_deltas.py`: task vectors, their trimming and the election of signs, as mergekit does them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor


class MergePiece(Protocol):
    """Merges the weights of several models into one.

    Args:
        base: name -> weight of the model from which all were trained
        models: the same for each model, all with the same names and shapes
        activations: name of a matrix [out, in] -> mean absolute value [in] of its inputs, over some prompts; empty
            unless the piece NEEDS them
        rng: for pieces that use randomness

    Returns:
        name -> weight of the merged model, in the base's dtypes; raises ValueError for invalid numbers

    Check gives:
        base: name -> weight, as nested lists
        models: the same for each model
        activations: name -> list

    Check expects:
        merged: name -> weight
    """

    def __call__(
        self,
        base: Mapping[str, Tensor],
        models: Sequence[Mapping[str, Tensor]],
        activations: Mapping[str, Tensor],
        rng: torch.Generator,
    ) -> dict[str, Tensor]: ...
