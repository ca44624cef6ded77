"""Programs and tests in turn: what each turn is paid, by hand."""

import pytest

from synth.types import Problem, Scored
from training.env.write_and_test import _read, write_and_test

PROBLEM = Problem.make(
    prompt="Write f(xs): the sum.",
    answer="def f(xs):\n    return sum(xs)",
    verifier="python_function",
    args={"function": "f", "inputs": [[[]], [[1]], [[2, 3]], [[4, 4]]], "expected": [0, 1, 5, 8]},
    family="python_functions",
    split="train",
    env="write_and_test",
)
HALF, RIGHT = "def f(xs):\n    return xs[0] if xs else 0", "def f(xs):\n    return sum(xs)"


def test_tests_are_paid_for_being_valid_and_programs_for_what_they_gain():
    env = write_and_test()
    state, _ = env.start(PROBLEM, {})
    (request,), over, _ = env.step(state, f"<answer>{HALF}</answer>")  # right on [] and [1]: 2 of 4
    assert state.pop("step_reward") == 0.5 and not over and "tests" in request.content
    tests = "f([2, 3]) == 5\nf([1]) == 1\nf([1]) == 7\nno test"  # two of four lines hold of the reference
    (told,), over, _ = env.step(state, f"<tests>{tests}</tests>")
    assert state.pop("step_reward") == 0.5 and not over
    assert told.content == "Fails: f([2, 3]) == 5. Write the program again.", "a wrong test is no failure"
    _, over, score = env.step(state, f"<answer>{RIGHT}</answer>")
    assert over and state["step_reward"] == 0.5 and score.value == 1 + 5 * 1.0
    assert score.parts == {"tests": 1.0, "first": 0.5, "answered": 1.0, "valid": 0.5}


def test_without_a_program_the_episode_ends_below_nothing():
    env = write_and_test()
    state, _ = env.start(PROBLEM, {})
    _, over, score = env.step(state, "I do not know")
    assert over and isinstance(score, Scored) and score.value == -1.0


def test_tests_that_cannot_be_read_are_worth_nothing():
    env = write_and_test()
    state, _ = env.start(PROBLEM, {})
    env.step(state, f"<answer>{HALF}</answer>")
    _, over, _ = env.step(state, "none")
    assert state["step_reward"] == 0.0 and not over
    assert _read("f([1], 2) == [3]") == ([[1], 2], [3])
    assert (
        _read("f(exit()) == 3") is None and _read("f([1]) = 1") is None and _read("f(" + "[" * 300 + ") == 1") is None
    )


def test_the_last_turn_writes():
    with pytest.raises(ValueError, match="must be odd"):
        write_and_test(turns=4)
