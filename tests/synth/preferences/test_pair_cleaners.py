"""Cleaners by rule: cycles, sides that say the same, judges who follow the order, labels that a program disproves."""

from dataclasses import replace

import pytest

from synth.preferences.cleaners.identical_sides import identical_sides
from synth.preferences.cleaners.intransitive import intransitive
from synth.preferences.cleaners.order_bias import order_bias
from synth.preferences.cleaners.verified import verified
from synth.types import Message, PreferencePair


def pair(chosen, rejected, prompt="q", margin=None, **columns):
    prompt = [Message(role="user", content=prompt)]
    return PreferencePair.make(
        prompt=prompt, chosen=chosen, rejected=rejected, source="t", split="train", margin=margin, columns=columns
    )


def said(decisions):
    return [(d.action, d.reason) for d in decisions]


def test_only_what_lies_on_a_cycle_is_asked_about():
    ring = [pair("a", "b"), pair("b", "c"), pair("c", "a")]
    rest = [pair("a", "d"), pair("d", "e"), pair("c", "a", prompt="another")]
    assert [(d.action, d.score) for d in intransitive(ring + rest)] == [("ask", 3.0)] * 3 + [("keep", 0.0)] * 3
    assert [d.action for d in intransitive([pair("a", "b"), pair("b", "a "), pair("x", "x")], action="remove")] == [
        "remove"
    ] * 2 + ["keep"]


def test_ten_thousand_pairs_of_one_prompt():
    chain = [pair(str(i), str(i + 1)) for i in range(10_000)]
    assert {d.action for d in intransitive(chain)} == {"keep"}
    assert {d.action for d in intransitive([*chain, pair("10000", "0")])} == {"ask"}


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        ("Yes.", "Yes. ", ("remove", "identical_sides")),
        ("Open Fonts Are Good", "Open fonts are good", ("ask", "same_letters")),
        ("if x:\n  y", "if x:\ny", ("ask", "same_letters")),
        (" ", "x", ("remove", "empty_chosen")),
        ("x", "", ("keep", "sides_differ")),
        ("<answer>4</answer>", "So <answer> 4</answer>", ("ask", "same_answer")),
        ("<answer>4</answer>", "<answer>5</answer>", ("keep", "sides_differ")),
        ("ab " * 1_700_000, "ab " * 1_700_000 + "c", ("keep", "sides_differ")),
    ],
    ids=["trimmed", "case", "spaces", "blank", "empty", "same", "other", "5 MB"],
)
def test_sides_that_say_the_same(chosen, rejected, expected):
    assert said(identical_sides([pair(chosen, rejected)])) == [expected]


def test_judges_who_follow_the_order():
    both = pair("a", "b", both_orders={"fair": [1, 1], "first": [1, -1], "tie": [0, 0]})
    assert order_bias([both])[0].score == pytest.approx(2 / 3) and order_bias([both], consistent=0.7)[0].action == "ask"
    assert said(order_bias([pair("a", "b", both_orders={})])) == [("keep", "order_does_not_matter")]
    with pytest.raises(ValueError, match="both_orders"):
        order_bias([pair("a", "b", both_orders={"j": [1]})])


def test_a_proof_is_enough():
    pairs = [
        pair("a", "b", margin=-1.0),
        pair("a", "c", margin=1.0),
        pair("a", "d"),
        pair("a", "e", margin=1.0, anchor=-1),
    ]
    decisions = verified(pairs, action="flip")
    assert said(decisions) == [
        ("flip", "proven_wrong"),
        ("keep", "proven_right"),
        ("keep", "not_verified"),
        ("flip", "proven_wrong"),
    ]
    with pytest.raises(ValueError, match="anchor"):
        verified([replace(pairs[0], columns={"anchor": "yes"})])
