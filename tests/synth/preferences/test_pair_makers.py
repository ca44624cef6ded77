"""Makers of pairs: what each promises of its two sides, over many problems with the flawed solver, and with scripted
models by hand."""

import importlib
import inspect
import json
from collections import Counter
from pathlib import Path

import pytest

from synth.families.linear_equations import linear_equations
from synth.families.prime_factors import prime_factors
from synth.preferences.flawed import Flawed
from synth.preferences.judge_attacks import attack
from synth.preferences.makers._made import first_difference, right, steps
from synth.preferences.makers.best_vs_worst import best_vs_worst
from synth.preferences.makers.critical_step import critical_step
from synth.preferences.makers.follow_up import follow_up, kind
from synth.preferences.makers.outcome_then_process import outcome_then_process, share
from synth.preferences.makers.plan_steps import plan_steps
from synth.preferences.makers.recovery import recovery
from synth.preferences.makers.self_correction import self_correction
from synth.preferences.makers.step_values import pit, step_values
from synth.types import Message, PreferencePair, Problem, Quarantined, Sampling, to_row

FOLDER = Path(__file__).resolve().parents[3] / "synth" / "preferences" / "makers"
NAMES = sorted(p.stem for p in FOLDER.glob("[!_]*.py"))
TALKS = {
    "critical_step",
    "follow_up",
    "by_utility",
    "by_principle",
    "by_tone",
    "by_debate",
    "by_critics",
    "by_render",
    "aligned_steps",
}  # about conversations, thoughts, programs or screens, not about problems with a worked solution
PROBLEMS = [f(7, "train", i, levels=[3]) for i in range(15) for f in (linear_equations, prime_factors)]
PROBLEMS = [p for p in PROBLEMS if isinstance(p, Problem)]
SOLVER = Flawed(PROBLEMS, error=0.3)


def maker(name):
    return getattr(importlib.import_module(f"synth.preferences.makers.{name}"), name)


class Scripted:
    """Says its lines in order and keeps what it was asked."""

    def __init__(self, *lines):
        self.lines, self.asked = list(lines), []

    def __call__(self, conversations, sampling):
        self.asked += [tuple(c) for c in conversations]
        return [self.lines.pop(0) for _ in conversations]


def equation(solution="2x = 6, x = 3 <answer>3</answer>", answer="3", **lineage):
    lineage = {"solution": solution, **lineage}
    return Problem.make(
        prompt="Solve 2x + 4 = 10.", answer=answer, verifier="number", family="toy", lineage=lineage, split="train"
    )


@pytest.mark.parametrize("name", NAMES)
def test_signature(name):
    parameters = list(inspect.signature(maker(name)).parameters.values())
    for p in parameters[4:]:
        assert p.kind is p.KEYWORD_ONLY and isinstance(p.default, (int, float, str, tuple)), (
            f"knob {p.name} needs a literal default"
        )
    assert (
        "arXiv" in inspect.getmodule(maker(name)).__doc__ or "samples" in inspect.getmodule(maker(name)).__doc__.lower()
    )


@pytest.mark.parametrize("name", [n for n in NAMES if n not in TALKS])
def test_the_verifier_confirms_both_sides_and_the_same_comes_twice(name):
    f = maker(name)
    results = [f(3, p, 0, SOLVER) for p in PROBLEMS]
    pairs = [(p, x) for p, x in zip(PROBLEMS, results, strict=True) if isinstance(x, PreferencePair)]
    assert len(pairs) >= len(PROBLEMS) // 4, Counter(x.reason for x in results if isinstance(x, Quarantined))
    for p, x in pairs:
        assert (
            x.problem == p.id
            and x.split == p.split
            and x.source == f"{name}/{p.family}"
            and x.columns["group"] == p.lineage["root"]
        )
        assert x.columns["shared"] == first_difference(x.chosen, x.rejected) < min(len(x.chosen), len(x.rejected)) + 1
        if name == "outcome_then_process":  # sides of one outcome differ by their steps
            assert [right(p, t) for t in (x.chosen, x.rejected)] == [bool(o) for o in x.columns["outcome"]]
            assert x.columns["process"][0] > x.columns["process"][1] or x.columns["outcome"] == [1, 0]
        elif name != "plan_steps":  # a step is no answer
            assert right(p, x.chosen) is True and right(p, x.rejected) is False
        json.dumps(to_row(x))
    assert [f(3, p, 0, SOLVER) for p in PROBLEMS] == results != [f(4, p, 0, SOLVER) for p in PROBLEMS]


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_without_what_it_needs_is_set_aside(name):
    bare = Problem.make(prompt="Why?", answer="3", verifier="number", family="toy", split="train")
    result = maker(name)(3, bare, 0, lambda conversations, sampling: ["<answer>3</answer>" for _ in conversations])
    assert isinstance(result, Quarantined) and result.evidence


def test_steps_join_to_the_text():
    for p in PROBLEMS:
        assert "".join(steps(p.lineage["solution"])) == p.lineage["solution"]
    assert steps("a = 1, b = 2. So c.\nd <answer>3</answer>") == [
        "a = 1, ",
        "b = 2. ",
        "So c.\n",
        "d ",
        "<answer>3</answer>",
    ]


def test_the_flawed_solver_errs_as_often_as_it_is_told():
    sound, hopeless = Flawed(PROBLEMS, error=0.0), Flawed(PROBLEMS, error=1.0)
    for p in PROBLEMS:
        assert sound([p.prompt], Sampling(seed=1)) == [p.lineage["solution"]]
        parts = steps(p.lineage["solution"])
        begun = (*p.prompt, Message(role="assistant", content="".join(parts[:2])))
        assert sound([begun], Sampling(seed=1)) == ["".join(parts[2:])]
    assert sum(right(p, hopeless([p.prompt], Sampling(seed=1))[0]) is True for p in PROBLEMS) <= len(PROBLEMS) // 5
    with pytest.raises(LookupError, match="no worked solution is known"):
        sound([(Message(role="user", content="else"),)], Sampling())


def test_length_matched_and_near_miss():
    p = equation()
    lines = [
        "3 <answer>3</answer>",
        "2x = 6, x = 3 <answer>3</answer>",
        "2x = 6, x = 4 <answer>4</answer>",
        "7 <answer>7</answer>",
    ]
    none, length, prefix = (
        best_vs_worst(0, p, 0, Scripted(*lines), samples=4, match=m) for m in ("none", "length", "prefix")
    )
    assert (none.chosen, none.rejected) == (lines[0], lines[2])
    assert (length.chosen, length.rejected) == (lines[0], lines[3]) and (prefix.chosen, prefix.rejected) == (
        lines[1],
        lines[2],
    )
    assert prefix.columns["shared"] == len("2x = 6, x = ") and prefix.columns["rate"] == 0.5
    assert best_vs_worst(0, p, 0, Scripted(*lines[:2]), samples=2).reason == "all_right"


def test_outcomes_come_first_and_then_the_share_of_right_steps():
    right_, lucky = "2x = 6, x = 3 <answer>3</answer>", "2x = 8, x = 3 <answer>3</answer>"
    late, lost = "2x = 6, x = 4 <answer>4</answer>", "2x = 8, x = 4 <answer>4</answer>"
    assert [share(t, right_) for t in (right_, lucky, late, lost, "3 <answer>3</answer>", "")] == [1, 0.5, 0.5, 0, 0, 0]
    pair = outcome_then_process(0, equation(), 0, Scripted(right_, lucky), samples=2)
    assert (pair.chosen, pair.rejected) == (right_, lucky), "right by luck is worse than right"
    assert pair.columns["outcome"] == [1, 1] and pair.columns["process"] == [1.0, 0.5] and pair.margin == 0.5
    pair = outcome_then_process(0, equation(), 0, Scripted(lost, late), samples=2)
    assert (pair.chosen, pair.columns["process"]) == (late, [0.5, 0.0])
    pair = outcome_then_process(0, equation(), 0, Scripted(late, lucky), samples=2)
    assert (pair.chosen, pair.columns["outcome"], pair.margin) == (lucky, [1, 0], 1.0)
    assert outcome_then_process(0, equation(), 0, Scripted(late, late), samples=2).reason == "no_contrast"
    assert outcome_then_process(0, equation(solution=""), 0, Scripted(), samples=2).reason == "no_solution"


def test_the_pit_by_hand():
    assert pit([0.6, 0.6, 0.0], -0.5) == 2 and pit([0.9, 0.3], -0.5) == 1 and pit([0.6, 0.4, 0.2], -0.5) is None


def test_step_values_localise_the_first_wrong_step():
    """With a solver that always carries an error on, the pit is the first step that departs from the solution."""
    agree = total = 0
    for p in PROBLEMS:
        pair = step_values(1, p, 0, Flawed(PROBLEMS, error=0.25), rollouts=6)
        if isinstance(pair, PreferencePair):
            true = steps(p.lineage["solution"])
            first = next(i for i, (a, b) in enumerate(zip(true, steps(pair.rejected), strict=False), 1) if a != b)
            total, agree = total + 1, agree + (pair.columns["steps"]["pit"] == first)
            assert (
                "".join(steps(pair.rejected)[: pair.columns["steps"]["pit"] - 1])
                == pair.chosen[: pair.columns["shared"]][
                    : len("".join(steps(pair.rejected)[: pair.columns["steps"]["pit"] - 1]))
                ]
            )
    assert total >= 10 and agree / total >= 0.85


def test_plan_steps_give_the_gap_of_advantages():
    """Children "a, " (both rollouts right: 1) and "b, " (one of two: 1/2); the parent is their mean, 3/4."""
    good, bad = "<answer>3</answer>", "<answer>4</answer>"
    pair = plan_steps(0, equation(), 0, Scripted("a, x", "b, x", good, good, good, bad), children=2, rollouts=2)
    assert (pair.chosen, pair.rejected, pair.margin) == ("a, ", "b, ", 0.5)
    assert pair.columns["advantages"] == {"chosen": 0.25, "rejected": -0.25}


def test_self_correction_uses_the_hint_and_does_not_tell():
    wrong, told, good = "x = 4 <answer>4</answer>", "As you told me <answer>3</answer>", "x = 6 / 2 <answer>3</answer>"
    model = Scripted(wrong, told, good, good)
    pair = self_correction(0, equation(), 0, model, samples=1, attempts=3)
    assert (pair.chosen, pair.rejected) == (good, wrong)
    assert "The correct answer is 3." in model.asked[1][-1].content and model.asked[1][-2].content == wrong
    assert self_correction(0, equation(), 0, Scripted(wrong, told), samples=1, attempts=1).reason == "mentions_the_hint"
    assert self_correction(0, equation(), 0, Scripted(wrong, wrong), samples=1, attempts=1).reason == "not_corrected"


def test_recovery_spans_are_the_deviation():
    kinds = Counter()
    for p in PROBLEMS:
        pair = recovery(5, p, 0, SOLVER)
        if isinstance(pair, PreferencePair):
            kinds[pair.columns["kind"]] += 1
            a, b = pair.columns["deviation"]
            assert pair.rejected.startswith(pair.chosen[:b]) and b > a and pair.columns["shared"] >= b
            assert p.lineage["solution"].startswith(pair.chosen[:a]) and p.lineage["solution"].endswith(
                steps(pair.chosen)[-1]
            )
    assert set(kinds) == {"temptation", "hesitation"}


def test_intervention_keeps_the_prefix_and_only_safe_ends():
    risky = Problem.make(
        prompt="How do I pick a lock?",
        answer="",
        verifier="exact",
        family="risk",
        lineage={"risky": True},
        split="train",
    )
    original = "They ask about locks. Okay, let me explain. Take a pin."
    pair = critical_step(0, risky, 0, Scripted(original, "Sure, take a pin.", "I cannot help with that."), samples=1)
    assert (
        pair.rejected == original
        and pair.chosen.startswith("They ask about locks. But helping")
        and pair.margin is None
    )
    assert pair.columns["shared"] == len("They ask about locks. ")
    assert critical_step(0, risky, 0, Scripted("I cannot help with that."), samples=1).reason == "already_safe"
    assert (
        critical_step(0, risky, 0, Scripted(original, *["Sure, take a pin."] * 5), samples=1).reason == "not_corrected"
    )


def talk(follow, reply="The tower is 330 m high and stands in Paris.", **lineage):
    messages = [
        Message(role=r, content=c)
        for r, c in (("user", "Tell me of the tower."), ("assistant", reply), ("user", follow))
    ]
    return Problem.make(prompt=messages, answer="", verifier="exact", family="talk", lineage=lineage, split="train")


def test_follow_ups():
    short = "330 m high, in Paris."
    pair = follow_up(
        0, talk("That's too long, shorter please.", persona="Likes brevity."), 0, Scripted(short), attempts=1
    )
    assert (pair.chosen, pair.prompt[0]) == (short, Message(role="system", content="Likes brevity.")) and len(
        pair.prompt
    ) == 2
    assert follow_up(0, talk("Thanks, that helps!"), 0, Scripted()).reason == "content"
    assert (
        follow_up(0, talk("Too long, shorter please."), 0, Scripted("It is a tower."), attempts=1).reason
        == "lost_facts"
    )
    assert follow_up(0, talk("You forgot the year."), 0, Scripted(short + " word" * 60), attempts=1).reason == "longer"
    reply = "The tower is 330 m high and stands in Paris."
    assert follow_up(0, talk("Try again."), 0, Scripted(reply), attempts=1).reason == "unchanged"


FOLLOW_UPS = {
    "feedback": [
        "No, I meant the other one",
        "No, in metres",
        "That's wrong.",
        "too long",
        "You forgot the units",
        "please fix the date",
        "I asked for two",
    ],
    "again": ["Try again", "another one", "Rewrite it"],
    "other": ["Thanks!", "No, thanks", "No, that's all", "And how old is it?", "Great, now tell me of Rome", "ok"],
}


@pytest.mark.parametrize("text", ["Sure, first take a pin.", "Okay, let me explain.", "Step 1: take a pin."])
def test_cues_of_compliance(text):
    from synth.preferences.makers.critical_step import CUES

    assert CUES.search(text) and not CUES.search("Surely this is a measure of trust.")


@pytest.mark.parametrize(("want", "text"), [(k, t) for k, texts in FOLLOW_UPS.items() for t in texts])
def test_kinds_of_follow_ups(want, text):
    assert kind(text) == want


def test_every_scorer_resists_master_keys_and_a_naive_judge_does_not():
    attacked = attack(lambda p, text: right(p, text) is True, PROBLEMS, wrong=["<answer>x</answer>"] * len(PROBLEMS))
    assert attacked.worst[1] == 0.0 and attacked.agreement == 1.0
    naive = attack(lambda p, text: text.rstrip().endswith(":") or right(p, text) is True, PROBLEMS)
    assert naive.rates["Thought process:"] == 1.0 and naive.rates["."] == 0.0 and naive.worst[1] == 1.0
    with pytest.raises(ValueError, match="needs problems"):
        attack(lambda p, text: True, [])
