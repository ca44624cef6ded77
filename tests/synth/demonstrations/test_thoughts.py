"""Thoughts before the turns of a demonstration: what they say was read, and the form is the one that is paid."""

import pytest

from synth.demonstrations.thoughts import with_thoughts
from synth.questions.oracle import replays
from synth.types import Demonstration, Message
from training.rl.reward.atomic_thought import units

SAID = [
    ("user", "What is the capital of the country through which the river Danu flows?"),
    ("assistant", "<search>river Danu</search>"),
    ("tool", "The river Danu flows through Norvia."),
    ("assistant", "<search>capital of Norvia</search>"),
    ("tool", "The capital of Norvia is Zelton."),
    ("assistant", "<answer>Zelton</answer>"),
]


def game(turns=SAID):
    messages = [Message(role=role, content=text) for role, text in turns]
    return Demonstration.make(problem="p", messages=messages, calls=2, detours=1, split="train")


def test_thoughts_say_what_was_found_and_what_is_looked_for_next():
    told = with_thoughts(game())
    assert [m.content for m in told.messages if m.role == "assistant"] == [
        "<think><plan>river Danu</plan></think><search>river Danu</search>",
        "<think><observation>Norvia</observation><plan>capital of Norvia</plan></think><search>capital of Norvia</search>",
        "<think><observation>Zelton</observation></think><answer>Zelton</answer>",
    ]
    assert (told.calls, told.detours, told.split) == (2, 1, "train") and told.id != game().id


def test_what_was_heard_stays_and_every_turn_has_the_form():
    told, plain = with_thoughts(game()), game()
    assert [m for m in told.messages if m.role != "assistant"] == [m for m in plain.messages if m.role != "assistant"]
    assert all(units(m.content) for m in told.messages if m.role == "assistant")
    assert replays(plain, {"river Danu": SAID[2][1], "capital of Norvia": SAID[4][1]}.get)


def test_an_answer_that_nothing_told_is_a_plan():
    told = with_thoughts(game([SAID[0], SAID[-1]]))
    assert told.messages[-1].content == "<think><plan>Zelton</plan></think><answer>Zelton</answer>"


def test_a_turn_of_another_kind_is_a_sentence():
    with pytest.raises(ValueError, match="neither a search nor an answer"):
        with_thoughts(game([SAID[0], ("assistant", "<open>Norvia</open>")]))
