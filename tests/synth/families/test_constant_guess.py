"""What one answer, given to every problem of a family, earns: at most a quarter. Only problems are counted here, and what
a policy is paid for them; no family is changed."""

import pkgutil
from collections import Counter
from importlib import import_module

import pytest

import synth.families
from synth.types import Problem, Scored
from synth.verify import verify

MOST, PROBLEMS = 0.25, 40
FEW = {"python_functions": 10, "music_shop_sql": 24}  # scoring takes long
MANY = {
    "bias_probes": 300,
    "case_vignettes": 300,
    "claims": 300,
    "clip_questions": 300,
    "critiques": 300,
    "home_moments": 300,
    "local_customs": 300,
    "multiple_choice": 300,
    "safety_requests": 300,
    "scene_questions": 300,
    "screen_tasks": 300,
    "sokoban_pushes": 200,
    "user_choices": 300,
}  # of few replies, which forty problems do not tell from a quarter
FAMILIES = [m.name for m in pkgutil.iter_modules(synth.families.__path__) if not m.name.startswith("_")]


def earned(name: str) -> float:
    """The largest mean score of one of the three most frequent answers of a family, over all its levels."""
    module = import_module(f"synth.families.{name}")
    levels = range(1, 1 + len(module.LADDER))
    drawn = [getattr(module, name)(0, "train", i, levels=[*levels]) for i in range({**FEW, **MANY}.get(name, PROBLEMS))]
    problems = [p for p in drawn if isinstance(p, Problem)]
    assert len(problems) > len(drawn) // 2
    guesses = Counter(p.answer for p in problems).most_common(1 if name in FEW else 3)
    scores = [[verify(p, guess) for p in problems] for guess, _ in guesses]
    return max(sum(s.value for s in of if isinstance(s, Scored)) / len(problems) for of in scores)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_answer_to_everything_earns_at_most_a_quarter(name):
    share = earned(name)
    assert share <= MOST, f"the same answer to every problem of {name} earns {share:.0%}"


SPREAD = {  # families that spread their answers -> the first level at which they do
    "box_layouts": 1,
    "coin_ways": 1,
    "colouring_counts": 1,
    "domino_tilings": 1,
    "go_liberties": 1,
    "integer_partitions": 1,
    "lattice_paths": 1,
    "letter_counts": 1,
    "route_counts": 1,
    "safety_requests": 1,
    "seat_counts": 1,
    "self_reference": 1,
    "sliding_puzzles": 1,
    "sokoban_pushes": 1,
    "teamwork": 1,
    "tic_tac_toe": 1,
    "tool_pipelines": 1,
    "transit_maps": 1,
}


@pytest.mark.parametrize("name", SPREAD)
def test_families_that_spread_their_answers_hold_within_every_level(name):
    from benchmarks.constant_guess import earned as of_level

    for level in range(SPREAD[name], 1 + len(import_module(f"synth.families.{name}").LADDER)):
        guess, share = of_level(name, level)
        assert share <= MOST, f"{guess!r} earns {share:.0%} at level {level} of {name}"
