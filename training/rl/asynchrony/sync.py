"""Sampling and learning alternate: a step is sampled with the weights that it then trains.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347): sample, then learn. S = 0 of

    begin(s) = max(end of sampling s - 1, end of learning s - S - 1)

On a CPU it is the plain loop, bit for bit.
"""

from __future__ import annotations

from training.rl.ahead import SYNC, Mode


def sync() -> Mode:
    return SYNC
