"""Pairs of a real task: what is asked for is the task's own policy, and two recipes on one seed learn from the same pairs."""

from types import SimpleNamespace

import numpy as np
import pytest

from synth.families.countdown import countdown
from synth.types import Sampling
from tasks.lab import registry, solution_worlds, starts
from training.types import Segment


def test_the_world_is_there_with_the_stages_of_a_maker():
    place = registry.places()["own_solutions"]
    assert place.stages == ("preferences", "prefer") and place.make is not None


def test_the_policy_of_the_task_is_asked_once_for_each_seed(monkeypatch):
    seeds_asked = []

    class Session:
        def __init__(self, prompts, seeds):
            seeds_asked.append(seeds)
            self.seeds = seeds

        def generate(self, sampling):
            return [Segment(ids=np.array([s % 7]), role="model", logp=np.zeros(1)) for s in self.seeds]

    here = SimpleNamespace(
        base=None,
        size=starts.SIZES["countdown"],
        renderer=SimpleNamespace(
            end_id=2,
            prompt=lambda messages: np.array([1]),
            tokenizer=SimpleNamespace(decode=lambda ids, skip_special_tokens: str(int(ids[0]))),
        ),
    )
    monkeypatch.setattr(solution_worlds.starts, "start", lambda name: here)
    monkeypatch.setattr(
        solution_worlds, "TorchSampler", lambda model, end: SimpleNamespace(open=lambda p, s: Session(p, s))
    )
    say = solution_worlds._solver(None)
    problem = countdown(0, "train", 0)
    first = say([problem.prompt], Sampling(seed=3))
    assert say([problem.prompt], Sampling(seed=3)) == first and len(seeds_asked) == 1
    say([problem.prompt], Sampling(seed=4))
    assert len(seeds_asked) == 2 and seeds_asked[0] != seeds_asked[1]


@pytest.mark.parametrize("recipe", ["steporlm-wdpo-genprm"])
def test_its_protocol_sets_what_both_learn_from(recipe):
    from tasks.lab.behaviour import protocol_of

    given = protocol_of(recipe, "on_task")
    assert given["task"] == "own_solutions" and given["against_set"]["preferences"]["makers"]
