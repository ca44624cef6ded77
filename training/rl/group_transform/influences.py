"""Measures the influence of the prompt on the rationale, of the rationale on the answer, and of the prompt directly on
the answer.

"Causally-Enhanced Reinforcement Policy Optimization", 2025 (CE-PO, arXiv 2509.23095); read from the abstract.

    Z prompt, X the first turn before `marker`, Y from there on;      J_AB = d (mean log p of the tokens of B)
    / d emb(A) hardened: J' = J minus its projections on the Jacobians of `nuisances` copies in which the tokens of A
    are shuffled parts "influence_zx", "influence_xy", "influence_zy" = norms of J'_ZX, J'_XY, J'_ZY

Shapes: groups in; the same groups out, their scores with three more parts, for the reward `coherence`. Nothing is
played or replaced. A rollout without a rationale has zx = xy = 0, one without the marker, or without a score, is not
changed. The cost is one forward and backward pass for each of 1 + `nuisances` copies (two if there is a rationale).
Leaves out edits of the format as nuisances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synth.types import Scored
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout

GIVES = ("influence_zx", "influence_xy", "influence_zy")


def influences(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    nuisances: int = 2,
    marker: str = "<answer>",
) -> list[Group]:
    if nuisances < 0:
        raise ValueError(
            f"influences: nuisances is {nuisances}; it is how many shuffled copies are projected out, at least 0"
        )

    def known(rollout: Rollout) -> Rollout:
        if not isinstance(rollout.score, Scored):
            return rollout
        influence = services.influence(rollout, marker, nuisances, rng)
        if not influence:
            return rollout
        parts = {f"influence_{name}": x for name, x in influence.items()}
        return replace(rollout, score=replace(rollout.score, parts={**rollout.score.parts, **parts}))

    return [replace(g, rollouts=tuple(known(r) for r in g.rollouts)) for g in groups]
