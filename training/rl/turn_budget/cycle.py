"""A budget that shrinks and grows in cycles.

"SIRI: Scaling Iterative Reinforcement Learning with Interleaved Compression", 2025 (arXiv 2509.25176).

    cosine   L(t) = low + (high - low) (1 + cos(2 pi t / period)) / 2            stair   high in the first half of a
    cycle, then low

Returns a whole number of tokens, rounded to the nearest. An answer that is cut off earns nothing, so the falling half
compresses answers and the rising half gives room to explore; there is no reward for length. Defaults are the paper's:
scale them.
"""

from __future__ import annotations

import math
from typing import Literal


def cycle(
    step: int,
    steps: int,
    *,
    low: int = 8192,
    high: int = 16384,
    period: int = 640,
    shape: Literal["cosine", "stair"] = "cosine",
) -> int:
    if not 1 <= low <= high or period < 2:
        raise ValueError(
            f"cycle: low {low}, high {high}, period {period}: 1 <= low <= high and a period of two steps or more are needed"
        )
    phase = step % period / period
    share = (1 + math.cos(2 * math.pi * phase)) / 2 if shape == "cosine" else float(phase < 0.5)
    return int(low + (high - low) * share + 0.5)
