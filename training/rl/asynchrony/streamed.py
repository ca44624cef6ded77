"""Sampling that never waits for an update, until it is `staleness` steps ahead; conversations go on with newer weights
at their next turn.

Fu et al. 2025, "AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning" (arXiv
2505.24298): admission by the version of the policy, and rollouts that several versions write.

    begin(s) = max(end of sampling s - 1, end of learning s - staleness - 1)

Steps are trained in the order in which they were begun, the slowest conversation included: nothing is dropped and short
answers are not preferred. Every token has the log-prob of the weights that wrote it. Which weights those are depends on
what took how long: two runs of one plan differ.
"""

from __future__ import annotations

from training.rl.ahead import Mode


def streamed(*, staleness: int = 1) -> Mode:
    if staleness < 1:
        raise ValueError(
            f"streamed: staleness is {staleness}: sampling ahead needs 1 or more, or choose the piece sync"
        )
    return Mode(staleness=staleness, fresh=True)
