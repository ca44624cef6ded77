"""Pairs of one answer in two tones: what is inferred, what a tone is rated, and what is refused."""

import pytest

from synth.preferences.makers.by_tone import CLERKS, asked, by_tone, inferred, rating, replies
from synth.types import PreferencePair, Problem
from synth.verify import extract_answer

PROBLEM = Problem.make(prompt="What tax is due on 90?", answer="7", verifier="number", family="x", split="train")
MEANT = ["xIntent: to pay what is due.", "xReact: worried about a mistake."]


def test_what_is_meant_is_read_off_the_words():
    assert inferred(PROBLEM.question, ("xIntent", "xReact")) == MEANT
    assert inferred("Will a deposit grow?", ("xEffect",)) == ["xEffect: plans ahead."]
    assert inferred("Who are you?") == []
    assert (
        asked(PROBLEM, MEANT)[-1].content
        == "xIntent: to pay what is due. xReact: worried about a mistake. What tax is due on 90?"
    )


@pytest.mark.parametrize(
    ("text", "polite", "professional", "apt"),
    [
        ("Thank you. To pay what is due: <answer>7</answer>", 1.0, 1.0, 1.0),
        ("<answer>7</answer>", 0.5, 1.0, 0.0),
        ("Yo dude, the mistake is <answer>7</answer> bucks", 0.5, 0.0, 1.0),
        ("Gladly, whatever <answer>7</answer>", 0.0, 1.0, 0.0),
        ("<answer>thank you dude</answer>", 0.5, 1.0, 0.0),  # the answer is no tone
    ],
)
def test_a_tone_by_hand(text, polite, professional, apt):
    assert rating(text, MEANT) == {"polite": polite, "professional": professional, "apt": apt}
    assert rating(text, [])["apt"] == 1.0


def test_both_sides_give_the_same_answer_and_the_chosen_one_is_polite():
    results = [by_tone(3, PROBLEM, i, lambda *_: []) for i in range(40)]
    pairs = [p for p in results if isinstance(p, PreferencePair)]
    assert len(pairs) > 20 and {p.reason for p in results if p not in pairs} <= {"none_polite", "alike"}
    for p in pairs:
        assert extract_answer(p.chosen) == extract_answer(p.rejected) == "7"
        ratings = p.columns["ratings"]
        assert rating(p.chosen, MEANT)["polite"] == 1.0 and ratings[0] > ratings[1]
        assert p.margin == pytest.approx(ratings[0] - ratings[1])
    assert by_tone(3, PROBLEM, 5, lambda *_: []) == by_tone(3, PROBLEM, 5, lambda *_: [])


def test_rated_by_the_answer_alone_the_tone_is_not_looked_at():
    pairs = [by_tone(3, PROBLEM, i, lambda *_: [], rate="answer") for i in range(20)]
    assert all(extract_answer(p.chosen) == "7" and extract_answer(p.rejected) == "?" for p in pairs)
    assert len({p.chosen for p in pairs}) > 2


def test_every_clerk_says_the_reference():
    assert [extract_answer(t) for t in replies(PROBLEM, MEANT)] == ["7"] * len(CLERKS)


@pytest.mark.parametrize(
    "wrong", [{"relations": ("xWant",)}, {"politeness": 2.0}, {"answers": 1}, {"rate": "length"}, {"writer": "me"}]
)
def test_what_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="by_tone: relations .* writer"):
        by_tone(0, PROBLEM, 0, lambda *_: [], **wrong)
