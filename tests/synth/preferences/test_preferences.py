"""Preference pairs: every planted error is verified wrong, every edit that is not is quarantined, and planted noise is
what it says."""

from __future__ import annotations

from random import Random

import pytest

from synth.families.countdown import countdown
from synth.families.linear_equations import linear_equations
from synth.families.list_sorting import list_sorting
from synth.preferences import injected_errors as injected
from synth.preferences.injected_errors import injected_errors, severity
from synth.preferences.label_noise import label_noise
from synth.preferences.wrong_turns import ERRORS, World, evidence, wrong_turns
from synth.types import Demonstration, Message, PreferencePair, Problem, Quarantined
from synth.verify import extract_answer, verify

FAMILIES = [linear_equations, countdown, list_sorting]


def pairs_of(n: int = 40) -> list[PreferencePair]:
    results = [injected_errors(5, f(5, "train", i, levels=[1]), 0) for f in FAMILIES for i in range(n)]
    return list({p.id: p for p in results if isinstance(p, PreferencePair)}.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_rejected_is_wrong_and_says_where(family):
    seen = set()
    for i in range(60):
        problem = family(2, "train", i, levels=[1])
        pair = injected_errors(2, problem, 0)
        if isinstance(pair, Quarantined):
            assert pair.reason in ("still_right", "not_editable")
            continue
        assert verify(problem, extract_answer(pair.chosen)).value == 1.0
        assert verify(problem, extract_answer(pair.rejected)).value == 0.0
        error = pair.columns["error"]
        seen.add(error["type"])
        assert pair.rejected[slice(*error["span"])] == extract_answer(pair.rejected) != extract_answer(pair.chosen)
        assert 0 < error["severity"] <= 1 and pair.margin == 1.0 and pair.columns["group"] == problem.lineage["root"]
        assert pair == injected_errors(2, problem, 0)
    assert seen == set(injected.ERRORS[problem.verifier])


def test_edit_that_leaves_the_answer_right_is_set_aside():
    lineage = {"root": "r", "solution": "<answer>2 + 4</answer>"}
    args = {"numbers": [2, 4], "target": 6}
    problem = Problem.make(
        prompt="?", answer="2 + 4", verifier="expression", args=args, family="f", split="train", lineage=lineage
    )
    quarantined = injected_errors(1, problem, 0, errors=["swapped"])
    assert (
        isinstance(quarantined, Quarantined) and quarantined.reason == "still_right" and "4 + 2" in quarantined.evidence
    )


def test_wrong_solution_and_unfit_errors_are_refused():
    problem = linear_equations(1, "train", 0)
    broken = Problem.make(
        prompt="?",
        answer="3",
        verifier="number",
        family="f",
        split="train",
        lineage={"root": "r", "solution": "<answer>4</answer>"},
    )
    assert injected_errors(1, broken, 0).reason == "no_solution"
    with pytest.raises(ValueError, match="no error type .* fits the verifier 'number'"):
        injected_errors(1, problem, 0, errors=["swapped"])
    unknown = Problem.make(prompt="?", answer="3", verifier="python_function", family="f", split="train")
    assert injected_errors(1, unknown, 0).reason == "no_errors"


def test_severity():
    assert (
        severity("10", "11") == 0.1
        and severity("-3", "3") == 1.0
        and severity("1 2 3", "1 3 2") == pytest.approx(2 / 3)
    )


# A world of two countries. Queries are answered by the passages that share a name with them.
FACTS = [
    "The capital of Norvia is Zelton.",
    "The currency of Norvia is Krone.",
    "The river Danu flows through Norvia.",
    "The capital of Karvia is Bolton.",
]
NAMES = {
    "Norvia": "country",
    "Karvia": "country",
    "Zelton": "city",
    "Bolton": "city",
    "Danu": "river",
    "Krone": "currency",
}


def tool(query: str) -> str:
    hits = [f for f in FACTS if sum(w in f.rstrip(".").split() for w in query.split() if w != "of") >= 2]
    return "\n".join(hits) or "nothing found"


def demonstration() -> tuple[Problem, Demonstration]:
    prompt = "What is the capital of the country that the Danu flows through?"
    rest = {
        "verifier": "exact",
        "env": "search",
        "family": "entity_tree",
        "split": "train",
        "lineage": {"root": "Danu"},
    }
    problem = Problem.make(prompt=prompt, answer="Zelton", **rest)
    turns = [
        "<search>capital of Danu</search>",
        "<search>river Danu</search>",
        "<search>capital of Norvia</search>",
        "<answer>Zelton</answer>",
    ]
    messages = list(problem.prompt)
    for turn in turns:
        messages.append(Message(role="assistant", content=turn))
        if "<search>" in turn:
            messages.append(Message(role="tool", content=tool(turn[8:-9])))
    return problem, Demonstration.make(problem=problem.id, messages=messages, calls=3, detours=1, split="train")


def world(search=tool) -> World:
    return World(search, NAMES, ["capital", "currency", "river"])


def test_mentions_take_the_longest_name():
    names = World(tool, {"Guinea": "country", "Guinea-Bissau": "country", "New York City": "city"}, []).mentions
    assert names("guinea-bissau, Guinea; new york city!") == {
        "Guinea-Bissau": "country",
        "Guinea": "country",
        "New York City": "city",
    }
    assert names("newer york") == {} and World(tool, {}, []).mentions("Guinea") == {}


def test_evidence_leaves_detours_out():
    _, played = demonstration()
    assert evidence(played.messages, world()) == {3: [FACTS[2]], 5: [FACTS[0]]}


@pytest.mark.parametrize("error", ERRORS)
def test_wrong_turns_are_wrong(error):
    problem, played = demonstration()
    kept = [
        p
        for i in range(20)
        if isinstance(p := wrong_turns(3, problem, played, i, world(), errors=[error]), PreferencePair)
    ]
    assert kept
    for pair in kept:
        at = len(pair.prompt)
        assert pair.prompt == played.messages[:at] and pair.chosen == played.messages[at].content and at != 1
        assert pair.rejected != pair.chosen and pair.columns["error"]["type"] == error
        assert pair.rejected[slice(*pair.columns["error"]["span"])] in pair.rejected[8:-9]
        if error in ("wrong_answer", "premature_answer"):
            assert verify(problem, extract_answer(pair.rejected)).value == 0.0
        else:
            assert not set(tool(pair.rejected[8:-9]).split("\n")) & {FACTS[0], FACTS[2]}


def test_wrong_search_that_still_finds_the_passage_is_set_aside():
    problem, played = demonstration()
    generous = world(lambda query: "\n".join(FACTS))
    assert {wrong_turns(3, problem, played, i, generous, errors=["wrong_entity"]).reason for i in range(5)} == {
        "still_right"
    }


def test_wrong_turns_refuses_unknown_errors_and_says_where_nothing_can_be_planted():
    problem, played = demonstration()
    with pytest.raises(ValueError, match="must be some of wrong_answer"):
        wrong_turns(1, problem, played, 0, world(), errors=["typo"])
    assert wrong_turns(1, problem, played, 0, World(tool, {}, []), errors=["wrong_entity"]).reason == "no_evidence"


def test_label_noise_plants_what_it_says_and_leaks_nothing():
    pairs = pairs_of()
    noisy, truth = label_noise(pairs, Random(1), flip=0.2, exact=0.1, near=0.1, contradiction=0.05)
    n, by_id = len(pairs), {p.id: p for p in noisy}
    assert len(noisy) == len(truth) == len(by_id) == n + 2 * round(0.1 * n) + round(0.05 * n)
    assert sum(t.flip for t in truth if not t.copy) == round(0.2 * n)
    assert all(p.margin is None and set(p.columns) == {"group"} for p in noisy)
    original = {frozenset((p.chosen, p.rejected, p.prompt[-1].content.lower())): p for p in pairs}
    for pair, fact in zip(noisy, truth, strict=True):
        source = original[
            frozenset((pair.chosen, pair.rejected, pair.prompt[-1].content.lower().removeprefix("please: ")))
        ]
        assert fact.id == pair.id and fact.flip == (pair.chosen != source.chosen) == (fact.margin < 0)
        assert fact.error == source.columns["error"]["type"]
        if fact.copy:
            assert (by_id[fact.of].chosen == pair.chosen) == (fact.copy != "contradiction")
    assert label_noise(pairs, Random(1), flip=0.2) == label_noise(pairs, Random(1), flip=0.2)


@pytest.mark.parametrize("bad", [{"flip": 0.5}, {"flip": -0.1}, {"near": 1.1}])
def test_label_noise_refuses(bad):
    with pytest.raises(ValueError, match="must lie in"):
        label_noise([], Random(1), **bad)
