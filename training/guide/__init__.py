"""Guides: `f(groups, table, state, rng, *, knobs) -> groups`, after a step's problems were played and before filters and rewards.

A guide may add rollouts to a group or replace some, with help of the table (training/rollout/table.py): what another than the policy, asked
the plain prompt, wrote is `Rollout.external`.
"""

from __future__ import annotations

from dataclasses import replace

from synth.types import Message, Problem
from training.types import Group


def nothing_right(group: Group, threshold: float = 0.0) -> bool:
    """Whether the group has scores, and none above the threshold."""
    r = group.rewards
    r = r[r == r]
    return bool(len(r)) and bool(r.max() <= threshold)


def demonstration(problem: Problem) -> list[str]:
    """The turns of a right answer: those that the problem's maker left in lineage["demonstration"], else the reference answer alone."""
    return list(problem.lineage.get("demonstration", ())) or reference_answer(problem)


def reference_answer(problem: Problem) -> list[str]:
    """The reference answer as a turn."""
    return [f"<answer>{problem.answer}</answer>"]


def asked(problem: Problem, more: str) -> Problem:
    """The problem with a text added to its last message of the user."""
    *before, last = problem.prompt
    return replace(problem, prompt=(*before, Message(role=last.role, content=last.content + more)))
