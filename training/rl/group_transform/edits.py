"""Wrong answers are corrected after the rollout, and the corrected copies join the group.

"EditGRPO: Reinforcement Learning with Post-Rollout Edits for Clinically Accurate Chest X-Ray Report Generation", 2025
(arXiv 2509.22812).

    each of the first `count` wrong rollouts  ->  a copy whose last turn has the reference answer in place of its own:
    off_policy

Shapes: groups in and out. The text before the answer stays, so the copy is close to the policy's own text. A turn
without an answer gets one at its end. The copy's log-probs are the policy's own; it is scored by the environment.
Leaves out edits sentence by sentence. Read from the abstract.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group

ANSWER = re.compile(r"<answer>.*?(</answer>|$)", re.DOTALL)


def edits(
    groups: Sequence[Group], services: RolloutServices, state: dict, rng: np.random.Generator, *, count: int = 2
) -> list[Group]:
    out = []
    for group in groups:
        wrong = [r for r, x in zip(group.rollouts, group.rewards, strict=True) if x <= 0][:count]
        copies = []
        for rollout in wrong:
            turns = [m.content for m in rollout.info.get("messages", ()) if m.role == "assistant"] or [rollout.text]
            right = f"<answer>{rollout.problem.answer}</answer>"
            last = (
                ANSWER.sub(lambda _, right=right: right, turns[-1], count=1)
                if ANSWER.search(turns[-1])
                else turns[-1] + right
            )
            copies.append(services.say(rollout.problem, [*turns[:-1], last], group.id))
        out.append(replace(group, rollouts=(*group.rollouts, *copies)))
    return out
