"""One step off: while step s trains, step s + 1 is sampled with the weights that step s began with.

Noukhovitch et al. 2024, "Asynchronous RLHF: Faster and More Efficient Off-Policy RL for Language Models" (arXiv
2410.18252).

    weights of step s = those after s - 1 updates,    begin(s) = begin of learning s - 1

The same plan gives the same result, with threads or without, because the weights that sample a step are fixed. The
ratio of the two policies is not 1, so the policy loss should clip it, or a correction weight it.
"""

from __future__ import annotations

from training.rl.ahead import ONE_OFF, Mode


def one_off() -> Mode:
    return ONE_OFF
