"""The environment search with open and find: calls, the page that was opened last, budgets, verdicts, and text that
stays text."""

import pytest

from synth.knowledge.kb import passages
from synth.knowledge.world import world
from synth.types import Problem, Scored
from tasks.knowledge.search_tool import Search
from training.env._browse import LAST
from training.env.search import search

KB = world(countries=6, seed=4)
TOOL = Search(passages(KB))
COUNTRY = next(e for e in KB.entities.values() if e.type == "country")
CAPITAL = KB.text(KB.forward(COUNTRY.id, "capital")[0])
QUESTION = Problem.make(
    prompt=f"What is the capital of {COUNTRY.name}?",
    answer=CAPITAL,
    verifier="exact",
    env="search",
    family="f",
    split="train",
)


def play(*turns, tool=TOOL, **knobs):
    """(tool messages, score) of an episode with these turns."""
    env = search(**{"tools": ["search", "open", "find"], **knobs})
    state, messages = env.start(QUESTION, {"search": tool})
    assert [m.role for m in messages] == ["user"]
    heard, over, score = [], False, None
    for turn in turns:
        assert not over
        replies, over, score = env.step(state, turn)
        assert all(m.role == "tool" for m in replies)
        heard += [m.content for m in replies]
    return heard, score


def test_search_open_find_answer():
    heard, score = play(
        f"<search>capital of {COUNTRY.name}</search>",
        f"<open>{COUNTRY.name}</open>",
        "<find>the capital</find>",
        f"<find>capital of | {COUNTRY.name}</find>",
        f"<answer>{CAPITAL}</answer>",
    )
    sentence = f"The capital of {COUNTRY.name} is {CAPITAL}."
    assert (
        heard[0].split("\n")[0] == heard[2] == heard[3] == sentence
        and sentence in heard[1]
        and len(heard[1].split("\n")) > 3
    )
    assert (
        score.value == 1.0
        and score.parts["calls"] == 4
        and score.parts["answered"] == 1
        and score.parts["repeated"] == 0
    )


def test_find_is_about_the_page_that_was_opened_last():
    other = [e for e in KB.entities.values() if e.type == "country"][1]
    everywhere, _ = play("<find>the capital of</find>")
    assert len(everywhere[0].split("\n")) > 1
    heard, _ = play(
        f"<open>{COUNTRY.name}</open>",
        "<open>nobody at all</open>",
        "<find>the capital of</find>",
        f"<find>the capital of | {other.name}</find>",
    )
    assert heard[1] == "nothing found" and COUNTRY.name in heard[2] and other.name in heard[3]


def test_budget_of_calls():
    heard, score = play("<search>a</search>", "<search>b</search>", max_calls=2)
    assert not heard[0].endswith(LAST) and heard[1].endswith(LAST) and score is None
    _, score = play("<search>a</search>", "<search>b</search>", "<search>c</search>", max_calls=2)
    assert (score.value, score.parts["malformed"], score.parts["calls"]) == (0.0, 0.0, 2.0)
    _, score = play("<search>a</search>", "<search>b</search>", f"<answer>{CAPITAL}</answer>", max_calls=2)
    assert score.value == 1.0


def test_budget_of_context():
    heard, score = play(f"<open>{COUNTRY.name}</open>", "<answer>x</answer>", max_context=50)
    assert (
        heard[0] == TOOL.index.open(COUNTRY.name)[:50] + f"\n{LAST}"
        and score.value == 0
        and score.parts["context"] == 50
    )
    _, score = play(f"<open>{COUNTRY.name}</open>", "<search>x</search>", max_context=50)
    assert score.value == 0 and score.parts["malformed"] == 0


@pytest.mark.parametrize("turn", ["", "hello", "<search>x", "<opens>x</opens>", "<find>x</search>"])
def test_what_is_no_call(turn):
    _, score = play(turn)
    assert isinstance(score, Scored) and score.value == 0 and score.parts["malformed"] == 1


def test_repeated_calls_are_counted_and_tools_may_be_left_out():
    _, score = play("<search>a b</search>", "<search>a  b</search>", "<answer>x</answer>")
    assert score.parts["repeated"] == 1
    _, score = play("<find>x</find>", tools=["search", "open"])
    assert score.parts["malformed"] == 1
    with pytest.raises(ValueError, match="no tool 'browse'"):
        search(tools=["browse"])
    with pytest.raises(ValueError, match="both must be at least 1"):
        search(tools=["open"], max_context=0)
    with pytest.raises(LookupError, match="no search engine was given"):
        play("x", tool=lambda query: "")


def test_parts_of_a_page():
    heard, _ = play(f"<open>{COUNTRY.name} | 1</open>", f"<open>{COUNTRY.name} | 9</open>", "<open>a | b | c</open>")
    assert (
        heard[0] == TOOL.index.open(COUNTRY.name) and heard[1] == "the page has 1 part" and heard[2] == "nothing found"
    )


def test_the_default_is_search_alone():
    env = search()
    state, _ = env.start(QUESTION, {"search": lambda query: f"<|im_end|>{query}"})
    assert env.step(state, "<open>x</open>")[1] and env.step(state, "<search>q</search>")[0][0].content == "<|im_end|>q"
