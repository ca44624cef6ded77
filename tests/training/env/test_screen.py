"""Requests on screens, action by action: what is left to do, how an episode ends, and what the judge is asked."""

from __future__ import annotations

import math

import exported
import pytest
import torch

from synth.families.screen_tasks import screen_tasks, solve
from synth.scenes import draw
from synth.types import Message, Problem, Scored
from synth.verify import verify

from synth.verify.clicks import left, played, read
from training.env.screen import screen
from synth.pictures import HELD
from training.model.attention import PackedRows
from training.model.model import head_weight, hidden_states
from training.model.render import Renderer
from training.rl.group_transform.judged_actions import asked, believed
from training.rl.rollout_services import RolloutServices
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Rollout

SCREEN = "Screen of 32: red button 1 2; blue field 3 0; cursor 0 0"
ASK = "Press the red button, then write b into the blue field."


def problem(asks=ASK, answer="click 1 2; click 3 0; type b"):
    return Problem.make(prompt=f"{SCREEN}\n{asks}", answer=answer, verifier="clicks", family="x", split="train")


def play(env, p, *turns):
    state, shown = env.start(p, {"draw": draw})
    for text in turns:
        told, over, score = env.step(state, text)
        shown = [*shown, *told]
    return shown, over, score


def test_what_is_left_is_counted_by_hand():
    wanted = played(f"{SCREEN}\n{ASK}", "click 1 2; click 3 0; type b")
    for actions, rest in (
        ("click 0 3", 3),
        ("click 1 2", 2),
        ("click 3 0", 2),
        ("click 3 0; click 0 3", 3),
        ("click 3 0; type b", 1),
    ):
        assert left(played(f"{SCREEN}\n{ASK}", actions), wanted) == rest, actions
    assert left(played(f"{SCREEN}\n{ASK}", "click 3 0; type a"), wanted) is None
    nothing = read("Screen of 32: red button 1 2; blue field 3 0")
    assert left(played(f"{SCREEN}\n{ASK}", "click 1 2"), nothing) is None


def test_the_screen_that_is_shown_changes_with_the_action():
    shown, over, _ = play(screen(), problem(), "<act>click 1 2</act>")
    first, second = (HELD.of(m.media[0]) for m in shown)
    assert not over and (first != second).any() and "Screen of" not in shown[0].content
    blank, _, _ = play(screen(shown="white"), problem(), "<act>click 1 2</act>")
    assert (HELD.of(blank[1].media[0]) == 255).all()


@pytest.mark.parametrize(
    ("turns", "value", "part"),
    [
        (("<act>click 3 0</act>", "<act>type b</act>", "<act>click 1 2</act>"), 1.0, "done"),
        (("<act>click 3 0</act>", "<act>type c</act>"), 0.0, "lost"),
        (("press it",), 0.0, "malformed"),
        (("<act>click 9 9</act>",), 0.0, "malformed"),
    ],
)
def test_how_it_ends(turns, value, part):
    _, over, score = play(screen(), problem(), *turns)
    assert over and isinstance(score, Scored) and score.value == value and score.parts[part] == 1.0


def test_it_ends_at_the_last_action():
    _, over, score = play(screen(most=2), problem(), "<act>click 0 3</act>", "<act>click 1 2</act>")
    assert over and isinstance(score, Scored) and score.value == 0.0 and score.parts["steps_right"] == 0.5


def test_a_problem_without_actions_is_one_sentence():
    with pytest.raises(ValueError, match="asks \\['steps'\\]"):
        screen().start(problem("Point at the red button.", "9 17 15 23"), {"draw": draw})


def test_the_judge_sees_the_screen_before_each_action():
    shown, _, score = play(screen(), problem(), "<act>click 1 2</act>")
    messages = (shown[0], Message(role="assistant", content="<act>click 1 2</act>"), shown[1])
    messages = (*messages, Message(role="assistant", content="no"))
    assert score is None
    rollout = Rollout(problem=problem(), group="g", segments=(), score=Scored(value=0.0), info={"messages": messages})
    first, second = asked(rollout)
    assert second is None and first is not None and first.media == shown[0].media
    assert first.content == f"<image>{ASK} Action: click 1 2. Is it right?"


def test_questions_to_the_judge_are_certified_with_a_reason():
    problems = [screen_tasks(0, "train", i, asks=("judge",), levels=(1, 2)) for i in range(60)]
    assert all(isinstance(p, Problem) and verify(p, p.answer).value == 1.0 for p in problems)
    assert 20 < sum(p.answer == "yes" for p in problems) < 40
    for p in problems:  # the reason names all actions that would be right, and no other
        asked_about, _, action = p.question.removesuffix(". Is it right?").rpartition(" Action: ")
        helpful = p.lineage["solution"].partition(" <answer>")[0].split(", ")
        assert all(solve(f"{asked_about} Action: {a}. Is it right?") == "yes" for a in helpful)
        assert (action in helpful) == (p.answer == "yes")


@pytest.mark.parametrize(
    ("states", "action", "answer"),
    [
        (("", ""), "click 1 2", "yes"),
        (("", ""), "click 3 0", "yes"),
        (("", ""), "click 0 3", "no"),
        (("", ""), "type b", "no"),
        ((" pressed", ""), "click 1 2", "no"),
        ((" pressed", ""), "click 3 0", "yes"),
        ((" pressed", " focus"), "type b", "yes"),
        ((" pressed", " focus"), "type a", "no"),
        (("", " focus"), "click 1 2", "no"),  # the field would lose the focus: as much is left
        (("", " b"), "click 1 2", "yes"),
        (("", " a"), "click 1 2", "no"),  # a wrong letter stays: nothing helps
    ],
)
def test_an_action_is_right_after_which_less_is_left(states, action, answer):
    shown = f"Screen of 32: red button 1 2{states[0]}; blue field 3 0{states[1]}; cursor 0 0"
    assert solve(f"{shown}\n{ASK} Action: {action}. Is it right?") == answer


def test_the_judge_learns_from_what_it_is_asked_in_play():
    """Requests of several parts, on screens where some of them was done."""
    problems = [screen_tasks(0, "train", i, asks=("judge",), levels=(1,)) for i in range(60)]
    begun = 0
    for p in problems:
        shown, _, query = p.question.partition("\n")
        request, _, action = query.removesuffix(". Is it right?").partition(" Action: ")
        messages = (Message(role="user", content=shown), Message(role="assistant", content=f"<act>{action}</act>"))
        asks = problem(asks=request)
        rollout = Rollout(problem=asks, group="g", segments=(), score=Scored(value=0.0), info={"messages": messages})
        assert asked(rollout)[0].content == query and ", then " in request
        begun += any(w.state for w in read(shown).widgets)
    assert begun > 20


def test_the_judge_is_the_model_before_training_and_not_the_policy():
    model, other = (exported.build("qwen3", seed=s).eval() for s in (7, 8))
    render = Renderer(exported.tokenizer())

    def services(policy, judge):
        sampler = TorchSampler(policy, render.end_id)
        return RolloutServices(
            player=Player(sampler=sampler, renderer=render, envs={}, max_tokens=200), reference=judge
        )

    asks = [Message(role="user", content=f"Press it. Action: click {i} 2. Is it right?") for i in range(3)]
    by_hand = []
    for m in asks:
        begun = torch.tensor([*render.prompt([m]), *render.encode("<answer>")])
        with torch.no_grad():
            hidden = hidden_states(model, begun, torch.arange(len(begun)), PackedRows([len(begun)], "cpu"))
            logits = hidden[-1] @ head_weight(model).T
        yes, no = (float(logits[render.encode(w)[0]]) for w in ("yes", "no"))
        by_hand.append(1 / (1 + math.exp(no - yes)))
    assert believed(services(other, model), asks, 0, (1, 2)) == pytest.approx(by_hand, abs=1e-5)
    assert believed(services(other, model), asks, 4, (1, 2)) == believed(services(model, model), asks, 4, (1, 2))
    with pytest.raises(ValueError, match="there is no reference model"):
        believed(services(other, None), asks, 0, (1, 2))
