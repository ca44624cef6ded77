"""A wrong answer is criticised and rewritten, and the better answer joins the group as if it had been sampled without
help.

Zhang et al. 2025, "Critique-GRPO: Advancing LLM Reasoning with Natural Language and Numerical Feedback" (arXiv
2506.03106).

    ask prompt + "your answer" + critique  ->  `tries` refinements of one wrong answer;  the best of them, put under the
    plain prompt, joins the group: off_policy.         critique "binary": it is wrong          "truth": it is wrong, and
    the right answer

Shapes: groups in and out, one rollout more where the group has a wrong answer. The refinement's log-probs are the
policy's under the plain prompt, so its ratio starts at 1 and the policy loss decides its weight. Leaves out critiques
written by a model. Wrong: score 0 or less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from training.rl.group_transform import asked
from training.rl.rollout_services import RolloutServices
from training.types import Group


def refine(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    tries: int = 1,
    critique: Literal["binary", "truth"] = "truth",
) -> list[Group]:
    out = []
    for group in groups:
        wrong = [r for r, x in zip(group.rollouts, group.rewards, strict=True) if x <= 0]
        if not wrong:
            out.append(group)
            continue
        chosen = wrong[int(rng.integers(len(wrong)))]
        answer = next(
            (m.content for m in reversed(chosen.info.get("messages", ())) if m.role == "assistant"), chosen.text
        )
        verdict = f" The right answer is {chosen.problem.answer}." if critique == "truth" else ""
        played = services.play(
            asked(chosen.problem, f"\nYou answered: {answer}\nThis is wrong.{verdict} Answer again."), tries, group.id
        )
        best = max(played.rollouts, key=lambda r: getattr(r.score, "value", -np.inf))
        out.append(replace(group, rollouts=(*group.rollouts, services.again(best, chosen.problem, group.id))))
    return out
