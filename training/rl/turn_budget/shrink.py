"""A budget that shrinks geometrically.

"Reinforcement Mid-Training", 2025 (RMT, arXiv 2509.24375), its dynamic token budget.

    B(t) = max( low, high * gamma^((t / T)^power) )

Returns a whole number of tokens, rounded to the nearest; t of T steps are done. Defaults are small on purpose: scale
them. The exponent is read as (t / T)^power; a secondary source prints t / T^power.
"""

from __future__ import annotations


def shrink(step: int, steps: int, *, low: int = 32, high: int = 512, gamma: float = 0.1, power: float = 1.0) -> int:
    if not 1 <= low <= high or not 0 < gamma <= 1:
        raise ValueError(
            f"shrink: low {low}, high {high}, gamma {gamma}: 1 <= low <= high and gamma in (0, 1] are needed"
        )
    return int(max(low, high * gamma ** ((step / max(steps, 1)) ** power)) + 0.5)
