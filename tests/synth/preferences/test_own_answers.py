"""Pairs of a policy's own episodes: the turn that led to more is chosen, at the place where two turns differ."""

from __future__ import annotations

import pytest

from synth.preferences.own_answers import Episode, own_answers
from synth.types import Message, PreferencePair, Problem

PROBLEM = Problem.make(
    prompt="Which river crosses Norvia?",
    answer="Ald",
    verifier="exact",
    env="search",
    family="entity_tree",
    split="train",
)
ASKED = Message(role="user", content="Which river crosses Norvia?")


def episode(*turns: str, score: float | None) -> Episode:
    """Assistant and tool by turns."""
    messages = [Message(role="assistant" if i % 2 == 0 else "tool", content=t) for i, t in enumerate(turns)]
    return Episode(messages=(ASKED, *messages), score=score, begins=1)


def test_the_turn_that_led_to_more_is_chosen_where_two_differ():
    played = [
        episode("search Norvia", "Ald crosses Norvia", "Ald", score=1.0),
        episode("search Norvia", "Ald crosses Norvia", "Ald", score=1.0),
        episode("search Norvia", "Ald crosses Norvia", "Bern", score=0.0),
        episode("search rivers", "nothing", "Bern", score=0.0),
        episode("search rivers", "nothing", "Cor", score=0.0),
    ]
    pairs = own_answers(PROBLEM, played, most=9)
    assert [(len(p.prompt), p.chosen, p.rejected) for p in pairs] == [
        (3, "Ald", "Bern"),
        (1, "search Norvia", "search rivers"),
    ]
    # At the answer 3 episodes with the mean 2/3: (2 + 2/3) / 3 - (0 + 2/3) / 2 = 8/9 - 1/3. At the search the mean is
    # 2/5: (2 + 2/5) / 4 - (0 + 2/5) / 3 = 3/5 - 2/15.
    assert [p.margin for p in pairs] == pytest.approx([5 / 9, 7 / 15])
    assert pairs[0].prompt[-1].content == "Ald crosses Norvia" and pairs[0].source == "own_answers/search"
    assert [p.chosen for p in own_answers(PROBLEM, played, most=1)] == ["Ald"], "those of the greatest difference first"
    assert len(own_answers(PROBLEM, played, most=9, gap=0.5)) == 1


@pytest.mark.parametrize(
    "played",
    [
        [episode("Ald", score=1.0), episode("Ald", score=1.0)],
        [episode("Ald", score=0.0), episode("Bern", score=0.0)],
        [episode("Ald", score=1.0), episode("Bern", score=None)],
        [],
    ],
)
def test_what_says_nothing_gives_no_pair(played):
    (bad,) = own_answers(PROBLEM, played)
    assert not isinstance(bad, PreferencePair) and bad.reason == "no_better_turn"


def test_one_lucky_episode_does_not_decide():
    """A turn that was tried once is drawn half way to the mean of the place, one that was tried thirteen times hardly."""
    played = [
        episode("a", score=1.0),
        episode("a", score=1.0),
        episode("a", score=1.0),
        episode("a", score=0.0),
        episode("b", score=1.0),
        episode("c", score=0.0),
        episode("c", score=0.0),
    ]
    (pair,) = own_answers(PROBLEM, played)
    assert (pair.chosen, pair.rejected) == ("b", "c")  # (1 + 4/7) / 2 = .786 against (3 + 4/7) / 5 = .714
    (pair,) = own_answers(PROBLEM, [*played, *[episode("a", score=1.0)] * 9])
    assert pair.chosen == "a"
