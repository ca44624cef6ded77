"""Preference pairs of a real task: the recipe's makers ask the policy of the task `countdown` (tasks/lab/starts.py) for solutions of its
training problems, the stage `prefer` learns from the pairs, and problems of the test split are played."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

from synth.types import Generate, Message, Problem, Sampling, seed_for
from tasks.lab import starts
from tasks.lab.label_worlds import NOTHING, make
from tasks.lab.worlds import Place, Room, _folder
from tasks.storage import commit
from training.model.model import save_model
from training.rollout.torch_sampler import TorchSampler

PROBLEMS = 128  # that pairs are made of


@lru_cache
def kept_policy() -> Path:
    """A sealed folder with the policy of the task, as the stage sft leaves it."""
    here, folder = starts.start("countdown"), _folder() / "solutions of countdown"
    folder.mkdir()
    for name in ("model", "base"):
        save_model(here.base, here.renderer.tokenizer, folder / name)
    commit.seal(folder)
    return folder


def _problems(room: Room | None = None) -> list[Problem]:
    return starts.start("countdown").world.training[:PROBLEMS]


@lru_cache(maxsize=16 * PROBLEMS)
def _said(prompt: tuple[Message, ...], n: int, seed: int) -> tuple[str, ...]:
    """What the policy of the task says, asked n times: two recipes on one seed get the same."""
    here = starts.start("countdown")
    begun = here.renderer.prompt(list(prompt))
    session = TorchSampler(here.base, here.renderer.end_id).open([begun] * n, [seed_for(seed, i) for i in range(n)])
    turns = session.generate(Sampling(temperature=1.0, max_tokens=here.size.turn))
    return tuple(str(here.renderer.tokenizer.decode(s.ids, skip_special_tokens=True)) for s in turns)


def _solver(room: Room) -> Generate:
    def say(conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        return list(_said(tuple(conversations[0]), len(conversations), sampling.seed))

    return say


def _lay(room: Room) -> None:
    room.stand("sft", kept_policy())
    room.write("questions", problems=_problems())
    room.write("kb", passages=NOTHING)


def _measure(room: Room) -> dict[str, float]:
    """solved: share of the answers to problems of the test split that are right, 16 of each."""
    here = starts.start("countdown")
    player = here.player(max_turn_tokens=here.size.turn, max_tokens=here.size.length)
    if room.recipe != "base":
        player.sampler.model.load_state_dict(room.model().state_dict())
    groups = player.play(here.measured, here.tries, seed_for(room.seed, "solutions", "measure"))
    rewards = [x for g in groups for x in g.rewards]
    return {"solved": float(sum(rewards) / len(rewards))}


def own_solutions() -> Place:
    """See the head of this file."""
    return Place(("preferences", "prefer"), _lay, _measure, partial(make, _problems, _solver, 1))


WORLDS = (own_solutions,)
