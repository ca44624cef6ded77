"""Conversations of `afar` for tests of players, and all that they leave."""

import afar
import tiny

from synth.types import Problem, Sampling
from training.rollout.play import Player

NAMES = ["Norvia", "Zelton", "Karo", "Milbe"]


def problems(env="all", names=NAMES):
    return [
        Problem.make(
            prompt=f"What is the capital of {n} ?",
            answer=n,
            verifier="exact",
            args={"aliases": []},
            env=env,
            family="f",
            split="train",
        )
        for n in names
    ]


def player(players, say=None, kinds=("all",), turn=40, **more):
    source = tiny.Scripted(say or (lambda seen, seed: f"{seed % 97} and {len(seen)}"))
    return Player(
        sampler=source,
        renderer=source.renderer,
        envs=afar.built(kinds)[0],
        sampling=Sampling(max_tokens=turn),
        max_tokens=400,
        players=players,
        **more,
    )


def shown(groups):
    """All that a rollout holds."""
    return [
        (g.id, r.ids.tolist(), r.text, r.score, r.info, [(s.role, s.reward, s.context_reset) for s in r.segments])
        for g in groups
        for r in g.rollouts
    ]
