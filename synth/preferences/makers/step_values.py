"""Pairs that share everything before the first fatal step (pit): per-step DPO, "RL on Incorrect Synthetic Data Scales
the Efficiency of LLM Math Reasoning by Eight-Fold" (arXiv:2406.14532, 2024).

    Q_i     share of `rollouts` completions behind the first i steps of a wrong response that end right (Q_0: from
            nothing)
    A_i     Q_i - Q_(i-1)
    pit     the first i with Q_i = 0, else the first with A_i <= `drop`

Rejected: the wrong response. Chosen: the steps before the pit and a completion from there that ends right. Train on
what differs: the log-probs of the shared prefix cancel in any loss on differences (the column `shared` counts its
characters).
"""

from __future__ import annotations

from synth.preferences.makers._made import ask, continued, made, quarantined, right, steps
from synth.types import Generate, PreferencePair, Problem, Quarantined


def step_values(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    rollouts: int = 5,
    samples: int = 8,
    drop: float = -0.5,
) -> PreferencePair | Quarantined:
    """Quarantined: all_right (no wrong response among `samples`), no_pit, no_way_back (no right completion before the pit
    was drawn)."""
    key = (seed, "step_values", problem.id, index)
    wrong = next((t for t in ask(generate, problem.prompt, samples, *key) if right(problem, t) is False), None)
    if wrong is None:
        return quarantined(problem, index, "all_right", f"none of {samples} samples is wrong")
    parts = steps(wrong)
    values, ways = [], []
    for i in range(len(parts) + 1):
        begun = "".join(parts[:i])
        ended = (
            [begun + t for t in ask(generate, continued(problem.prompt, begun), rollouts, *key, i)]
            if i < len(parts)
            else [wrong]
        )
        good = [t for t in ended if right(problem, t)]
        values.append(len(good) / len(ended))
        ways.append(good)
        if (at := pit(values, drop)) is not None:
            break
    if at is None:
        return quarantined(problem, index, "no_pit", f"values {values} never fall")
    if not ways[at - 1]:
        return quarantined(problem, index, "no_way_back", f"values {values}: nothing right before step {at}")
    return made(
        problem, "step_values", ways[at - 1][0], wrong, steps={"pit": at, "values": [round(v, 4) for v in values]}
    )


def pit(values: list[float], drop: float) -> int | None:
    """The first step (from 1) whose value is 0, or falls by `drop` or more below the one before it; None without
    one."""
    return next((i for i in range(1, len(values)) if values[i] == 0 or values[i] - values[i - 1] <= drop), None)
