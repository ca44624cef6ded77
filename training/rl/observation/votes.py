"""The policy as the verifier of its own answers: votes on whether an answer is right.

Yang et al. 2025, "SPELL: Self-Play Reinforcement Learning for evolving Long-Context Language Models" (arXiv 2509.23863),
whose one model answers and judges.

    p = P(yes) / (P(yes) + P(no)), by their first tokens, after VERIFY;    votes = the share of VOTES draws from p that are yes

Adds the part votes to the scores of rollouts that end in an answer; the others get 0. One forward pass over two rows for
each such rollout. Probabilities are those at the temperature of sampling. Leaves out the verifier's own reasoning and its
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synth.types import Message, Problem, seed_for
from synth.verify import extract_answer
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.rl.observation import with_parts
from training.rollout.play import Player
from training.types import Group

GIVES = ("votes",)
VOTES = 8
VERIFY = "{question}\nProposed answer: {answer}\nIs it right? yes or no"


def votes(player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]) -> list[Group]:
    render = player.renderer
    rows: list[Row] = []
    places: list[tuple[int, int]] = []
    for g, group in enumerate(groups):
        for i, rollout in enumerate(group.rollouts):
            turns = [render.decode(s.ids) for s in rollout.segments if s.role == "model"]
            answer = extract_answer(turns[-1]) if turns else None
            if answer is None:
                continue
            text = VERIFY.format(question=rollout.problem.question, answer=answer)
            prompt = render.prompt([Message(role="user", content=text)])
            for word in ("yes", "no"):
                ids = np.concatenate([prompt, render.encode(word)[:1]])
                rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt)))
            places.append((g, i))
    cast: dict[tuple[int, int], float] = {}
    if rows:
        batch = pack(rows, device=str(next(player.sampler.model.parameters()).device))
        logp = score(player.sampler.model, batch, temperature=player.sampling.temperature).logp * batch.trainable
        yes, no = np.asarray(batch.row_sum(logp).tolist()).reshape(-1, 2).T
        for place, p in zip(places, 1 / (1 + np.exp(np.clip(no - yes, -50, 50))), strict=True):
            rng = np.random.default_rng(seed_for(*seed, "votes", *place))
            cast[place] = float(np.mean(rng.random(VOTES) < p))
    return [
        replace(
            group,
            rollouts=tuple(with_parts(r, {"votes": cast.get((g, i), 0.0)}) for i, r in enumerate(group.rollouts)),
        )
        for g, group in enumerate(groups)
    ]
