"""Sampling that does not wait for updates until it is `staleness` steps ahead; conversations continue with newer
weights at their next turn.

Fu et al. 2025, "AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning" (arXiv
2505.24298): admission by policy version, and rollouts written by several versions.

    begin(s) = max(end of sampling s - 1, end of learning s - staleness - 1)

Steps are trained in the order in which they began, including the slowest conversation: nothing is dropped and short
answers are not favoured. Every token has the log-prob of the weights that wrote it. Which weights those are depends on
timing, so two runs of one plan differ.
"""

from __future__ import annotations

from training.rl.ahead import Mode


def streamed(*, staleness: int = 1) -> Mode:
    if staleness < 1:
        raise ValueError(
            f"streamed: staleness is {staleness}: sampling ahead needs 1 or more, or choose the piece sync"
        )
    return Mode(staleness=staleness, fresh=True)
