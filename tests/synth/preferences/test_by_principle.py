"""Programs rated under a principle: the rules by hand, the hands, the pair."""

import ast
from random import Random

import pytest

from synth.families.python_functions import python_functions
from synth.preferences.makers._hands import HANDS, written
from synth.preferences.makers._made import right
from synth.preferences.makers.by_principle import by_principle, rating
from synth.types import Problem, Quarantined
from synth.verify._code_rules import RULES, branches, function_of, rate

PLAIN = "def f(xs):\n    return sum(xs)"
PROBLEM = Problem.make(
    prompt="Add all.",
    answer=PLAIN,
    verifier="python_function",
    args={"function": "f", "inputs": [[[1, 2]], [[]]], "expected": [3, 0]},
    family="toy",
    split="train",
)

RATED = [
    ("explanation", PLAIN, 1.0),
    ("explanation", 'def f(xs):\n    """Sum."""\n    return sum(xs)', 5.5),
    ("explanation", "def f(xs):\n    # all\n    return sum(xs)", 5.5),
    # three statements and one comment: 3 * 1 / 3
    ("explanation", 'def f(xs):\n    """Sum."""\n    a = 1  # one\n    b = 2\n    return sum(xs)', 10.0),
    # six statements and one comment: 1 + 9 (1/2 * 3/6)
    (
        "explanation",
        "def f(xs):\n    a = 1  # one\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n    return sum(xs)",
        3.25,
    ),
    ("complexity", PLAIN, 10.0),
    # a loop, an if and one operand more: three branches
    ("complexity", "def f(xs):\n    for x in xs:\n        if x and xs:\n            return x", 4.0),
    # two loops, one within the other: 10 - 4 - 3
    ("complexity", "def f(xs):\n    for x in xs:\n        for y in xs:\n            return x", 3.0),
    ("readability", PLAIN, 5.5),
    ("readability", "def f(items):\n    return sum(items)", 10.0),
    # half of the names are words; two statements on one line
    ("readability", "def f(items):\n    n = 1; return n", 1 + 9 * (0.25 + 0.25)),
    ("style", PLAIN, 5.5),
    ("style", "def f(xs: list) -> int:\n    return sum(xs)", 10.0),
    # one of two is typed; f is lower case, XS is not
    ("style", "def f(XS: list):\n    return sum(XS)", 5.5),
]


@pytest.mark.parametrize(("what", "source", "value"), RATED)
def test_ratings_by_hand(what, source, value):
    assert rate(what, source, PLAIN) == pytest.approx(value)


@pytest.mark.parametrize(
    "source", ["", "f = 3", "def f(:", "x" * 10, "(" * 5000, "def f():\n\treturn 1\n        x", "\0"]
)
def test_what_is_no_program_has_no_rating(source):
    assert all(rate(what, source, PLAIN) is None for what in RULES)
    assert rating("style", PROBLEM, f"<answer>{source}</answer>") == 1.0


def test_an_unknown_rule_is_refused():
    with pytest.raises(LookupError, match="no rule rates 'beauty'"):
        rate("beauty", PLAIN, PLAIN)


def test_fourteen_hands_write_one_program_each_in_its_own_way():
    problems = [python_functions(5, "train", i, levels=[1, 2]) for i in range(6)]
    for p in (x for x in problems if isinstance(x, Problem)):
        texts = {h: written(p.answer, h) for h in HANDS}
        assert len(HANDS) == 14 and len(set(texts.values())) >= 13
        for habits, text in texts.items():
            ast.parse(text)
            assert right(p, f"<answer>{text}</answer>") is True or "forget" in habits
            assert rate("explanation", text, p.answer) > 1 or not {"document", "comment"} & set(habits)
            assert ("branch" in habits) == (branches(function_of(text)) > branches(function_of(p.answer)))
    with pytest.raises(ValueError, match="no function"):
        written("x = 1", ())


def test_the_chosen_program_is_rated_higher_and_passes():
    ratings, told = [], set()
    for i in range(20):
        pair = by_principle(1, PROBLEM, i, lambda *_: [])
        if isinstance(pair, Quarantined):
            assert pair.reason in ("alike", "none_right")
            continue
        assert right(PROBLEM, pair.chosen) is True
        what = pair.columns["principle"]
        high, low = pair.columns["ratings"]
        assert (high, low) == (rating(what, PROBLEM, pair.chosen), rating(what, PROBLEM, pair.rejected)) and high > low
        assert pair.margin == pytest.approx((high - low) / 9) and pair.prompt[0].role == "system"
        ratings.append((high, low))
        told.add((what, pair.prompt[0].content))
    assert len(ratings) > 10 and len(told) == 5
    assert by_principle(1, PROBLEM, 3, lambda *_: []) == by_principle(1, PROBLEM, 3, lambda *_: [])


def test_what_cannot_be_a_pair_says_why():
    says = lambda conversations, sampling: [f"<answer>{PLAIN}</answer>"]  # noqa: E731
    assert by_principle(0, PROBLEM, 0, says, writer="model").reason == "alike"
    for wrong in ({"preferences": ("beauty",)}, {"preferences": ()}, {"answers": 1}, {"writer": "cat"}):
        with pytest.raises(ValueError, match="by_principle: preferences .* answers"):
            by_principle(0, PROBLEM, 0, says, **wrong)


def test_a_model_is_asked_under_the_principle():
    prompts = []

    def says(conversations, sampling):
        prompts.extend(conversations)
        return [f"<answer>{written(PLAIN, Random(sampling.seed).choice(HANDS[:3]))}</answer>"]

    by_principle(0, PROBLEM, 0, says, writer="model", preferences=("explanation",))
    assert len(prompts) == 4 and {c[0].content for c in prompts} == {"Explain your code."}
