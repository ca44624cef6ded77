"""Simulated annotators of the stage preferences, and the program that stands for a model asked about a problem."""

from random import Random

import numpy as np

from synth.preferences.flawed import Flawed
from synth.preferences.label_noise import label_noise
from synth.types import Message, PreferencePair, Problem, Sampling
from tasks.stages.preferences import voted


def pairs(n):
    return [
        PreferencePair.make(
            prompt=(Message(role="user", content=f"q{i}"),),
            chosen="right",
            rejected="wrong",
            source="s",
            problem=f"p{i}",
            split="train",
        )
        for i in range(n)
    ]


def test_votes_speak_of_the_side_that_is_called_better():
    noisy, truth = label_noise(pairs(400), Random(0), flip=0.2, exact=0.0, near=0.0, contradiction=0.0)
    rated = voted(noisy, truth, 3, 1)
    assert all(len(p.columns["votes"]) == 3 and set(p.columns["votes"].values()) <= {-1, 1} for p in rated)
    mean = {
        flip: np.mean([sum(p.columns["votes"].values()) for p, t in zip(rated, truth) if t.flip == flip])
        for flip in (0, 1)
    }
    assert mean[0] > 1 and mean[1] < -1, "most annotators see which labels are wrong"
    assert voted(noisy, truth, 3, 1) == rated


def test_the_flawed_program_knows_a_problem_with_lines_behind_it():
    problem = Problem.make(
        prompt="2 + 2?",
        answer="4",
        verifier="exact",
        family="f",
        split="train",
        lineage={"solution": "<answer>4</answer>"},
    )
    messages = [Message(role="user", content="2 + 2?\nThink of it first.")]
    assert Flawed([problem], error=0.0)([messages], Sampling(seed=0)) == ["<answer>4</answer>"]
