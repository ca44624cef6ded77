"""Plans of typed tools: what they do, what they earn, and what is said of one that does not fit."""

import pytest

from synth.types import Problem, Scored, Unscorable
from synth.verify import explained, verify
from synth.verify.pipeline import TOOLS, likeness, misfit, run


def problem(answer="split unique count", samples=("ab cd ab",)):
    args = {"samples": list(samples)}
    return Problem.make(prompt="p", answer=answer, verifier="pipeline", args=args, family="x", split="train")


@pytest.mark.parametrize(
    ("plan", "gives"),
    [
        ("upper mirror", "CB A"),
        ("devowel", " bc"),
        ("split sizes total", 3),
        ("split sizes largest", 2),
        ("split sort join", "a bc"),
        ("split reverse first", "bc"),
        ("split initials", ["a", "b"]),
        ("split longest", "bc"),
        ("split sizes smallest", 1),
        ("length", 4),
    ],
)
def test_tools_by_hand(plan, gives):
    assert run(plan.split(), "a bc") == gives and not misfit(plan.split())


def test_every_tool_gives_the_type_that_it_says():
    kinds = {"text": str, "words": list, "numbers": list, "number": int}
    samples = {"text": "ab a", "words": ["ab", "a"], "numbers": [2, 1]}
    assert all(isinstance(f(samples[takes]), kinds[gives]) for takes, gives, f in TOOLS.values())


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        (3, 3, 1.0),
        (2, 4, 0.5),
        (0, 9, 0.0),
        ("abcd", "abd", 0.75),
        ("", "", 1.0),
        (["a"], "a", 0.0),
        ([1, 2], [2], 0.5),
    ],
)
def test_likeness_by_hand(a, b, value):
    assert likeness(a, b) == likeness(b, a) == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "value", "explanation"),
    [
        ("split count unique", 0.0, "Step 3: unique takes words, not number."),
        ("split rhyme", 0.0, "Step 2: there is no tool rhyme."),
        ("mirror " * 9, 0.0, "A plan has at most 8 tools."),
        ("split count", 2 / 3, "'ab cd ab' gives 3."),
        ("split unique count", 1.0, ""),
    ],
)
def test_what_is_wrong_is_said(answer, value, explanation):
    score = verify(problem(), answer)
    assert isinstance(score, Scored) and score.value == pytest.approx(value)
    assert explained(problem(), answer) == explanation


def test_another_plan_with_the_same_result_is_right_and_one_that_is_nearly_right_is_not():
    assert verify(problem("mirror upper", ["ab"]), "upper mirror").value == 1.0
    many = ["a" * 199]
    assert verify(problem("mirror", many), "upper").value == 0.0
    assert verify(problem("split sizes total", ["x" * 99 + " y"]), "length").value == 0.95


@pytest.mark.parametrize(
    ("plan", "value"),
    [
        ("split unique count", 1.0),
        ("split count", 2 / 3),  # 3 and 1 for 2 and 1: 5/6 near, where chance is 1/2
        ("split sizes largest", 0.5),  # 2 and 2: 3/4 near
        ("split sizes total", 0.0),  # 6 and 2: 5/12 near, less than chance
        ("split unique", 0.0),  # words, not a number
    ],
)
def test_what_is_no_nearer_than_the_reference_of_another_sample_earns_nothing(plan, value):
    assert verify(problem(samples=("ab cd ab", "ef")), plan).value == pytest.approx(value)


def test_where_the_reference_gives_the_same_for_all_samples_only_what_is_right_is_paid():
    same = problem("split count", ["ab c", "d ef"])
    assert verify(same, "split unique count").value == 1.0 and verify(same, "split sizes largest").value == 1.0
    assert verify(same, "split sizes total").value == verify(same, "length").value == 0.0


def test_a_reference_that_does_not_run_is_not_the_model_s_fault():
    assert isinstance(verify(problem("count"), "split count"), Unscorable)
    assert isinstance(verify(problem(samples=()), "split count"), Unscorable)
