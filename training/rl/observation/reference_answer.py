"""The likelihood of the problem's reference answer after the text of a rollout, and without it.

Yu et al. 2025, "RLPR: Extrapolating RLVR to General Domains without Verifiers" (arXiv 2506.18254).

Adds parts to the scores of rollouts:
    reference       mean probability of the tokens of the reference answer in place of the last turn's own answer: the
                    text of the rollout up to `<answer>`, then the reference, teacher-forced. 0 if the rollout has no
                    `<answer>`
    reference_bare  the same without the rollout's text before it, one number per prompt
One forward pass over rows of the length of the rollouts. Probabilities are those at the temperature of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synth.types import Problem
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.rl.observation import with_parts
from training.rollout.play import Player
from training.types import Group, Rollout

GIVES = ("reference", "reference_bare")

ANSWER = "<answer>"


def reference_answer(
    player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]
) -> list[Group]:
    encode = player.renderer.encode
    rows: list[Row] = []
    places: list[tuple[int, int | None]] = []
    for g, group in enumerate(groups):
        answer = encode(f"{ANSWER}{group.rollouts[0].problem.answer}</answer>")
        keep = len(encode(ANSWER))
        for i, rollout in [(None, group.rollouts[0]), *enumerate(group.rollouts)]:
            before = rollout.segments[0].ids if i is None else _until_answer(player, rollout)
            if before is not None:
                ids = np.concatenate([before, answer])
                rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(before) + keep))
                places.append((g, i))
    batch = pack(rows)
    logp = score(player.sampler.model, batch, temperature=player.sampling.temperature).logp.exp() * batch.trainable
    means = dict(zip(places, (batch.row_sum(logp) / batch.row_tokens).tolist(), strict=True))

    def known(g: int, i: int, rollout: Rollout) -> Rollout:
        return with_parts(rollout, {"reference": means.get((g, i), 0.0), "reference_bare": means[g, None]})

    return [
        replace(group, rollouts=tuple(known(g, i, r) for i, r in enumerate(group.rollouts)))
        for g, group in enumerate(groups)
    ]


def _until_answer(player: Player, rollout: Rollout) -> np.ndarray | None:
    """Ids of a rollout up to where its last turn began to answer; None if it did not."""
    *before, last = rollout.forks[-1]
    text, tag, _ = player.renderer.decode(last.ids).partition(ANSWER)
    if not tag or last.role != "model":
        return None
    return np.concatenate([*(s.ids for s in before), player.renderer.encode(text)])
