"""What pieces ask to know beside the rollouts themselves: the greedy answer to each prompt, the policy's belief in the reference answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synth.types import Problem, Scored
from training.learner import score
from training.pack import Row, pack
from training.rollout.play import Player
from training.types import Group, Rollout

ANSWER = "<answer>"


def with_greedy(player: Player, problems: Sequence[Problem], groups: Sequence[Group], *seed: Any) -> list[Group]:
    """The groups, each with its prompt's answer at temperature 0 as `greedy`."""
    greedy = replace(player, sampling=replace(player.sampling, temperature=0.0)).play(problems, 1, *seed)
    return [replace(g, greedy=replace(one.rollouts[0], group=g.id)) for g, one in zip(groups, greedy, strict=True)]


def with_reference_answer(player: Player, groups: Sequence[Group], temperature: float = 1.0) -> list[Group]:
    """The groups with parts "reference" and "reference_bare" in the scores of their rollouts.

    reference        mean probability of the tokens of the problem's reference answer where the last turn's own answer stood: the text of the
                     rollout up to `<answer>`, then the reference, teacher-forced. 0 where the rollout has no `<answer>`
    reference_bare   the same without what the rollout wrote before it, one number per prompt
    """
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
    logp = score(player.sampler.model, batch, temperature=temperature).logp.exp() * batch.trainable
    means = dict(zip(places, (batch.row_sum(logp) / batch.row_tokens).tolist(), strict=True))

    def known(g: int, i: int, rollout: Rollout) -> Rollout:
        if not isinstance(rollout.score, Scored):
            return rollout
        parts = {**rollout.score.parts, "reference": means.get((g, i), 0.0), "reference_bare": means[g, None]}
        return replace(rollout, score=replace(rollout.score, parts=parts))

    return [replace(group, rollouts=tuple(known(g, i, r) for i, r in enumerate(group.rollouts))) for g, group in enumerate(groups)]


def _until_answer(player: Player, rollout: Rollout) -> np.ndarray | None:
    """Ids of a rollout up to where its last turn began to answer, None where it did not."""
    *before, last = rollout.segments
    text, tag, _ = player.renderer.decode(last.ids).partition(ANSWER)
    if not tag or last.role != "model":
        return None
    return np.concatenate([*(s.ids for s in before), player.renderer.encode(text)])
