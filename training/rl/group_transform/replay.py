"""Stored successes are replayed when no rollout is right any more.

Lu et al. 2025, "ARPO: End-to-End Policy Optimization for GUI Agents with Experience Replay" (arXiv 2505.16282);
rehearsal of an earlier policy's answers: "The Choice of Divergence", 2025 (DPH-RL, arXiv 2509.07430).

    every right rollout is stored under its problem (at most `buffer`, the newest kept; with `until` only in the first
    calls)
    none_right   a group without a success has one random rollout replaced by a stored one
    always       a stored one is added to every group that has any stored

Shapes: groups in and out. The ids of the turns are stored. When replayed, their sampling log-probs are the current
policy's (sampling_logp "now"), or those at the time of storing ("then"). Right: score above 0. `state["kept"]` maps a
problem's id to ids and log-probs. `until` 0: no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from training.rl.group_transform import nothing_right
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout


def replay(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    buffer: int = 8,
    when: Literal["none_right", "always"] = "none_right",
    sampling_logp: Literal["now", "then"] = "now",
    until: int = 0,
) -> list[Group]:
    kept, step = state.setdefault("kept", {}), state.get("step", 0)
    state["step"] = step + 1
    out = []
    for group in groups:
        problem = group.rollouts[0].problem
        stored = kept.get(problem.id, [])
        wanted = bool(stored) and (nothing_right(group) if when == "none_right" else not np.isnan(group.rewards).all())
        if wanted:
            ids, logp = stored[int(rng.integers(len(stored)))]
            told = services.tell(problem, [np.array(x, dtype=np.int64) for x in ids], group.id)
            if sampling_logp == "then":
                told = _as_then(told, logp)
            place = int(rng.integers(len(group.rollouts)))
            own = [r for i, r in enumerate(group.rollouts) if i != place or when == "always"]
            out.append(replace(group, rollouts=(*own, told)))
        else:
            out.append(group)
        if not until or step < until:
            right = [r for r, x in zip(group.rollouts, group.rewards, strict=True) if x > 0]
            texts = [
                [[getattr(s, name).tolist() for s in r.segments if s.role == "model"] for name in ("ids", "logp")]
                for r in right
            ]
            if texts:
                kept[problem.id] = [*stored, *texts][-buffer:]
    return out


def _as_then(rollout: Rollout, logp: Sequence[Sequence[float]]) -> Rollout:
    then = iter(logp)
    segments = tuple(
        replace(s, logp=np.array(next(then), dtype=np.float32)) if s.role == "model" else s for s in rollout.segments
    )
    return replace(rollout, segments=segments)
