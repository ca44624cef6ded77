"""Thoughts are sampled with a hint of the answer, and then put under the plain prompt.

Zhou et al. 2025, "Variational Reasoning for Language Models" (arXiv 2509.22637): a posterior that sees the answer proposes
thoughts, and each is weighted by its likelihood under the model without the hint.

    q = the policy after prompt + hint,   pi_0 = the policy after the prompt alone
    log_ratio = mean over the tokens that the model wrote of [log pi_0 - log q]

Shapes: groups in and out, of the same sizes. Each rollout is replaced by one that was played with the hint and then put
under the plain prompt: off_policy, with the policy's log-probs of the plain prompt and the part `log_ratio` of its
score, which the advantage `trace_posterior` reads. Departs: one model plays both roles; the paper trains the posterior
separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.group_transform import asked
from training.rl.observation import with_parts
from training.rl.rollout_services import RolloutServices
from training.types import Group

GIVES = ("log_ratio",)
HINT = "\nHint: the answer is {}. Find a way that leads there."


def posterior(
    groups: Sequence[Group], services: RolloutServices, state: dict, rng: np.random.Generator, *, hint: str = HINT
) -> list[Group]:
    return [_drawn(g, services, hint) for g in groups]


def _drawn(group: Group, services: RolloutServices, hint: str) -> Group:
    problem = group.rollouts[0].problem
    helped = services.play(asked(problem, hint.replace("{}", problem.answer)), len(group.rollouts), group.id)
    told = []
    for rollout in helped.rollouts:
        plain = services.again(rollout, problem, group.id)
        n = plain.n_model  # the plain episode may end before the helped one
        ratio = plain.each("logp") - rollout.each("logp")[:n]
        told.append(with_parts(plain, {"log_ratio": float(ratio.mean()) if n else 0.0}))
    return replace(group, rollouts=tuple(told))
