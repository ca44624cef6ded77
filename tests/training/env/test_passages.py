"""Passages that are ranked, rated, or stated."""

from dataclasses import replace

import pytest

from synth.knowledge.kb import Passage
from synth.types import Problem
from tasks.knowledge.search_tool import Search
from training.env import thinks
from training.env.search import search

TEXTS = {
    "Ada lives in Bel.": ["f1"],
    "Bel lies in Cor.": ["f2"],
    "Ada lives in Bel, in Cor.": ["f1", "f2"],
    "Dov sings.": ["f3"],
    "Dov lives in Eth.": ["f4"],
}


@pytest.fixture
def tools():
    passages = [
        Passage(id=f"p{i}", entity=text.split()[0], title=text.split()[0], text=text, facts=tuple(facts))
        for i, (text, facts) in enumerate(TEXTS.items())
    ]
    return {"search": Search(passages)}


@pytest.fixture
def problem():
    return Problem.make(
        prompt="In which country does Ada live?",
        answer="Cor",
        verifier="exact",
        family="two",
        split="train",
        env="search",
        lineage={"facts": ["f1", "f2"]},
    )


def turn(env, problem, tools, text):
    state, messages = env.start(problem, tools)
    return messages[-1].content, env.step(state, text)


def test_the_best_order_has_what_states_most_first(problem, tools):
    env = search(ask="rank", passages=4)
    shown = [line for line in env.start(problem, tools)[1][-1].content.splitlines() if line.startswith("[")]
    gains = [len({"f1", "f2"} & set(TEXTS[line[4:]])) for line in shown]
    best = sorted(range(len(gains)), key=lambda i: -gains[i])
    order = lambda of: " > ".join(f"[{i + 1}]" for i in of)  # noqa: E731
    for of, value in ((best, 1.0), (best[::-1], None)):
        _, (_, over, score) = turn(env, problem, tools, f"<answer>{order(of)}</answer>")
        assert over and (score.value == value if value else score.value < 1)
        assert {"ndcg", "recall", "rbo"} <= score.parts.keys()
    assert turn(env, problem, tools, "<answer>the first</answer>")[1][2].parts["parsed"] == 0


def test_a_rating_is_worth_how_near_it_is(problem, tools):
    env = search(ask="rate")
    kinds = {}
    for i in range(20):
        one = replace(problem, id=f"q{i}")
        request, (_, over, score) = turn(env, one, tools, "<answer>80</answer>")
        passage = request.split("Passage: ")[1].splitlines()[0]
        relevant = float(bool({"f1", "f2"} & set(TEXTS[passage])))
        assert over and score.parts["relevant"] == relevant and score.parts["score"] == 80
        assert score.value == pytest.approx(0.8 if relevant else 0.2)
        unread = turn(env, one, tools, "<answer>120</answer>")[1][2]
        assert unread.value == 0 and unread.parts["score"] == (0 if relevant else 100)
        kinds[relevant] = True
    assert len(kinds) == 2, "both kinds of documents are asked about"


def test_claims_are_checked_against_the_passages(problem, tools):
    env = search(ask="facts")
    state, messages = env.start(problem, tools)
    title = messages[-1].content.split("known of ")[1].split(",")[0]
    true = [t for t in TEXTS if t.split()[0] == title]
    replies, over, _ = env.step(state, f"<search>{title}</search>")
    assert not over and title in replies[0].content
    _, over, score = env.step(state, f"<answer>{true[0].upper()}\nIt is a river.</answer>")
    assert over and score.parts["precision"] == 0.5 and score.parts["recall"] == pytest.approx(1 / len(true))
    assert score.parts["format"] == 1 and score.parts["calls"] == 1


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="ask: rank goes with"):
        search(ask="rank", gain=0.1)


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("<answer>1</answer>", 0),
        ("<think>\n...\n</think><answer>1</answer>", 0),
        ("<search>who</search>", 0),
        ("2 and 2 <answer>4</answer>", 1),
        ("<think>so</think><answer>1</answer>", 1),
    ],
)
def test_thinking_is_what_stands_beside_the_answer(text, does):
    assert thinks(text) == does
