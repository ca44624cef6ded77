"""The home: what is shown, what is retrieved, what a turn is rated, and that the family's answer is the best rated action."""

from dataclasses import replace

import pytest

from synth.families.home_moments import home_moments, solve
from synth.types import Problem, Scored
from synth.verify._home import SILENCE, Moment, rating, read, told, wants_quiet
from training.env.home import home, retrieved

LOG = ((8, "cooking", "news", 5), (23, "reading", "news", 1), (9, "reading", "music", 4), (9, "reading", "news", 5))
MORNING = Moment("Ana", {"music": 2, "news": 5}, (22, 7), "calling", 2, LOG, 9, "reading", 3)


def problem(m):
    return Problem.make(prompt=told(m), answer="news", verifier="exact", env="home", family="x", split="train")


def played(m, text, **knobs):
    host = home(**knobs)
    state, _ = host.start(problem(m), {})
    replies, over, score = host.step(state, text)
    assert replies == [] and over and isinstance(score, Scored)
    return score


def test_a_moment_is_read_back():
    assert read(told(MORNING)) == MORNING
    assert read(told(replace(MORNING, log=()))) == replace(MORNING, log=())
    assert read("What is 2 + 2?") is None


@pytest.mark.parametrize(
    ("hour", "event", "quiet"),
    [(22, "reading", True), (6, "reading", True), (7, "reading", False), (12, "calling", True)],
)
def test_quiet_goes_over_midnight(hour, event, quiet):
    assert wants_quiet(replace(MORNING, hour=hour, event=event)) is quiet


def test_ratings_by_hand():
    assert rating(MORNING, "music")["rating"] == 4.0
    assert rating(replace(MORNING, since=0), "news") == {
        "content": 5.0,
        "timing": 5.0,
        "frequency": 1.0,
        "rating": 11 / 3,
    }
    assert rating(replace(MORNING, since=0), SILENCE)["rating"] == 4.0
    assert rating(replace(MORNING, hour=23), SILENCE)["rating"] == 5.0
    assert rating(MORNING, "poems")["content"] == 1.0


def test_the_same_event_is_remembered_first_then_the_hour_then_the_later():
    assert retrieved(MORNING, 3) == [LOG[3], LOG[2], LOG[1]]
    assert retrieved(MORNING, 9)[-1] == LOG[0] and retrieved(MORNING, 0) == []


def test_likes_and_quiet_hours_are_not_shown():
    _, messages = home(top_k=1).start(problem(MORNING), {})
    assert messages[-1].content == (
        "Ana is at home. It is 9, Ana is reading, and you last spoke 3 steps ago. You may suggest music, news or stay silent. "
        "You remember: at 9, reading, news: 5."
    )
    assert "nothing" in home(top_k=0).start(problem(MORNING), {})[1][-1].content


def test_a_turn_that_is_neither_is_worth_nothing():
    score = played(MORNING, "hello")
    assert score.value == 0.0 and score.parts["malformed"] == 1.0
    assert played(MORNING, "<silent/>").value == 0.5
    assert played(replace(MORNING, hour=23), "<say>news</say>", rate="content").value == 1.0


def test_the_answer_of_the_family_is_the_best_rated_action():
    drawn = [home_moments(0, "train", i, levels=[1, 4], silence=0.5, env="home") for i in range(40)]
    problems = [p for p in drawn if isinstance(p, Problem)]
    assert len(problems) > 30 and {p.answer == SILENCE for p in problems} == {True, False}
    for p in problems:
        m = read(p.question)
        values = {a: rating(m, a)["rating"] for a in (*m.likes, SILENCE)}
        assert p.answer == solve(p.question) == max(values, key=values.get)


def test_what_means_nothing_is_refused():
    with pytest.raises(ValueError, match="top_k is -1: show 0 or more"):
        home(top_k=-1)
    with pytest.raises(ValueError, match="rate is 'all of it': name all or content"):
        home(rate="all of it")
    with pytest.raises(ValueError, match="tells no moment at home: those of the family home_moments do"):
        home().start(
            Problem.make(prompt="Hello", answer="x", verifier="exact", env="home", family="x", split="train"), {}
        )


def test_held_turns_choose_among_the_same_actions_and_free_ones_among_none():
    state, _ = home(held=True).start(problem(MORNING), {})
    assert state["choices"] == ("<silent/>", "<say>music</say>", "<say>news</say>")
    assert all(home().step(dict(state), turn)[2].parts["malformed"] == 0.0 for turn in state["choices"])
    assert "choices" not in home().start(problem(MORNING), {})[0]
