"""Environments of several turns: walking a grid, asking about a hidden thing, a second look. Played by scripts, scored
by programs."""

from __future__ import annotations

import re

import pytest

from synth.families.grid_navigation import grid_navigation
from synth.families.integer_arithmetic import integer_arithmetic
from synth.families.twenty_questions import WORDINGS, twenty_questions
from synth.types import Problem, Unscorable
from training.env.ask import ask
from training.env.overseen import overseen
from training.env.reader import reader
from training.env.second_look import second_look
from training.env.walk import walk

GRID = Problem.make(
    prompt="Go from S to G by U, D, L, R in the fewest moves, # is a wall: S.#/#../#.G",
    answer="RDDR",
    verifier="moves",
    args={"rows": ["S.#", "#..", "#.G"], "limit": 4},
    env="walk",
    family="grid_navigation",
    split="train",
)
THINGS = Problem.make(
    prompt="bo: red; da: heavy; fe: red heavy; gu: soft. Is it red? yes Is it heavy? no. Which one is it?",
    answer="bo",
    verifier="exact",
    env="ask",
    family="twenty_questions",
    split="train",
)


def play(env, problem, *turns):
    """(messages shown, score, state) of an episode; the score is None where the turns did not end it."""
    state, shown = env.start(problem, {})
    for text in turns:
        replies, over, score = env.step(state, text)
        shown = [*shown, *replies]
        if over:
            return shown, score, state
    return shown, None, state


def test_a_walk_in_turns():
    shown, score, _ = play(walk(), GRID, "<move>D</move>", "<move>RD</move>", "<move>DR</move>")
    assert shown[1].content == "D is blocked. At row 1 column 1, open: R"
    assert shown[2].content == "At row 2 column 2, open: U D R"
    assert score.value == 1.0 and score.parts["moves"] == 5 and score.parts["shortest"] == 4
    _, score, _ = play(walk(slack=1.0), GRID, "<move>D</move>", "<move>RDDR</move>")
    assert score.value == 0.0 and score.parts["late"] == 1.0
    _, score, _ = play(walk(), GRID, "I go right")
    assert score.value == 0.0 and score.parts["malformed"] == 1.0
    assert play(walk(), GRID, "<move>" + "U" * 10**6 + "</move>")[1].parts["malformed"] == 1.0


def test_a_hidden_map_is_not_shown():
    shown, score, _ = play(walk(hidden=True), GRID, "<move>RDDR</move>")
    assert (
        "#.G" not in shown[0].content
        and "3 by 3" in shown[0].content
        and "open: R" in shown[0].content
        and score.value == 1.0
    )


@pytest.mark.parametrize("index", range(5))
def test_the_family_s_own_answer_walks(index):
    problem = grid_navigation(3, "train", index, levels=[2], env="walk")
    assert problem.env == "walk" and play(walk(slack=1.0), problem, f"<move>{problem.answer}</move>")[1].value == 1.0


def test_questions_are_answered_and_counted():
    env = ask(success=10.0, useful=0.5, useless=-0.1, step_penalty=-0.01, budget=2)
    shown, score, state = play(env, THINGS, "<ask>red</ask>", "<ask>heavy</ask>", "<answer>bo</answer>")
    assert "Is it" not in shown[0].content and [m.content for m in shown[1:]] == ["yes", "no"]
    assert (
        score.value == pytest.approx(10 + 2 * 0.5 - 3 * 0.01)
        and score.parts["left"] == 1
        and score.parts["right"] == 1.0
    )
    _, score, _ = play(env, THINGS, "<ask>red</ask>", "<ask>red</ask>", "<ask>heavy</ask>", "<answer>bo</answer>")
    assert score.value == pytest.approx(10 + 0.5 - 0.1 - 0.1 - 4 * 0.01), (
        "the second asks nothing new, the third is beyond the budget"
    )
    _, score, _ = play(env, THINGS, "<answer>da</answer>")
    assert score.value == pytest.approx(-0.01) and score.parts["right"] == 0.0
    _, score, _ = play(ask(most=1), THINGS, "<ask>red</ask>", "<ask>heavy</ask>")
    assert score.value == 0.0 and score.parts["malformed"] == 0.0
    assert play(ask(), THINGS, "hm")[1].parts["malformed"] == 1.0
    shown, _, state = play(ask(reveal=1), THINGS)
    assert (
        "Is it red? yes." in shown[0].content and "heavy? no" not in shown[0].content and state["left"] == ["bo", "fe"]
    )


def test_turns_are_rewarded_one_by_one():
    env = ask(success=10.0, useful=0.5, useless=-0.1, step_penalty=-0.01, budget=2)
    state, _ = env.start(THINGS, {})
    env.step(state, "<ask>red</ask>")
    assert state.pop("step_reward") == pytest.approx(0.49)
    env.step(state, "<answer>bo</answer>")
    assert state["step_reward"] == pytest.approx(9.99)


@pytest.mark.parametrize("index", range(5))
def test_asking_what_the_family_asked_leaves_one(index):
    problem = twenty_questions(3, "train", index, levels=[2], env="ask")
    state, shown = ask().start(problem, {})
    for word in re.findall(r"(\w+)\?", WORDINGS.read(problem.question)["answers"]):
        ask().step(state, f"<ask>{word}</ask>")
    assert state["left"] == [problem.answer] and problem.env == "ask"


def test_a_problem_without_things_is_a_sentence():
    with pytest.raises(ValueError, match="lists no things"):
        ask().start(GRID, {})


def test_a_verifier_is_shown_the_calls_and_its_words_are_the_rewards_of_turns():
    question = "Request 1: add 2 and 3. Request 2: multiply result 1 and 4. What is the last result?"
    problem = Problem.make(prompt=question, answer="20", verifier="number", family="chained_requests", split="train")
    calls = ("<call>add(2, 3)</call> or <call>add(9, 9)</call>", "<call>subtract(5, 4)</call>")
    env = overseen()
    state, _ = env.start(problem, {})
    assert state["speaker"] == "generator" and not env.step(state, calls[0])[1] and "step_reward" not in state
    heard, over, score = env.step(state, calls[1])
    assert (state["speaker"], over, score) == ("verifier", False, None)
    assert heard[0].content.endswith("add 2 and 3. add(2, 3) Request 2: multiply result 1 and 4. subtract(5, 4)")
    _, over, score = env.step(state, "<steps>right wrong</steps><final>right</final>")
    assert over and state["turn_rewards"] == [1.0, -1.0, 0.0]
    assert (score.parts["reward_verifier"], score.parts["located"], score.value) == (0.1, 1.0, 0.0)
    _, score, _ = play(env, problem, calls[0], "hm")  # no call: nobody judges it
    assert score.value == 0.0 and score.parts["reward_generator"] == 0.0 and "reward_verifier" not in score.parts
    _, score, _ = play(env, problem, *calls, "hm")
    assert (
        play(env, problem, *calls, "<steps>rightwrong</steps><final>wrong</final>")[1].parts["reward_verifier"] == 1.0
    )
    assert score.parts["reward_verifier"] == 0.0  # a verifier that says nothing is not paid for a wrong whole


def test_a_reader_keeps_its_memory_alone_and_is_charged_for_what_it_overwrites():
    text = "The friend of Ada is Bo. Bo lives in Pell. Cy lives in Esk. The friend of Bo is Cy. Where does the friend of Ada live?"
    problem = Problem.make(prompt=text, answer="Pell", verifier="exact", family="scattered_facts", split="train")
    env = reader(chunk=1, notes=30)
    state, shown = env.start(problem, {})
    assert shown[0].content.endswith("Part 1 of 4: The friend of Ada is Bo.")
    paid = []
    for memory in ("Ada Bo", "Ada Bo Pell", "nothing", "so <recall>Bo Ada</recall>"):
        heard, over, _ = env.step(state, f"<memory>{memory.partition('<')[0]}</memory>{memory}")
        paid.append(state.pop("step_reward"))
        assert not over and state.pop("history") == heard and "The friend of Bo is Cy" not in heard[0].content[:40]
    assert paid == [0.5, 0.5, -1.0, 0.0] and "Recalled: Ada Bo Pell. That was all" in heard[0].content
    _, over, score = env.step(state, "<answer>Pell</answer>")
    assert over and score.value == 1.0 and score.parts["evidence"] == 0.0 and score.parts["recalled"] == 1.0
    assert play(reader(recall=False), problem, "<memory>a</memory><recall>a</recall>", "hm")[1].value == 0.0
    with pytest.raises(ValueError, match="name 1 or more"):
        reader(chunk=0)


def test_a_second_look_pays_both(monkeypatch):
    problem = integer_arithmetic(1, "train", 0)
    right, wrong = f"<answer>{problem.answer}</answer>", "<answer>77777</answer>"
    shown, score, _ = play(second_look(), problem, wrong, right)
    assert (
        "77777" in shown[1].content
        and score.value == 1.0
        and (score.parts["pioneer"], score.parts["observer"]) == (0.0, 1.0)
    )
    assert (
        play(second_look(), problem, right, right)[1].value == 2.0
        and play(second_look(weight=0.5), problem, right, right)[1].value == 1.0
    )
    _, score, _ = play(second_look(), problem, "hm", "<answer>1")
    assert score.value == 0.0 and score.parts["truncated"] == 1.0 and score.parts["answered"] == 0.0
    monkeypatch.setattr("training.env.second_look.verify", lambda problem, answer: Unscorable(reason="timeout: 2 s"))
    assert isinstance(play(second_look(), problem, right)[1], Unscorable)
