"""Placements, one file each: which devices run which call of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from tasks.lab.placement._graph import Call, Plan


class PlacementPiece(Protocol):
    """Decides which devices run which call of a step.

    Args:
        calls: the calls of a step, with their seconds by number of devices and what they wait for
        devices: how many there are
        move: seconds to move weights between two placements
        rng: the only source of chance

    Returns:
        name of each call -> (first device, how many)

    Check gives:
        calls: as tasks/lab/placement/_graph.py `calls_of` takes them
        devices: how many
        move: seconds (0)

    Check expects:
        seconds: of a step
        plan: name of each call -> [first device, how many]
        saved: share of the seconds of the symmetric plan
    """

    def __call__(self, calls: Sequence[Call], devices: int, move: float, rng: np.random.Generator) -> Plan: ...
