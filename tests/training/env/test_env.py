"""Every environment ends, whatever it is told, and says how; those of several turns by what their rules come to,
counted by hand."""

import importlib
import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from flows.cli import main
from synth.external.parent import begin
from synth.external.parent import problem as external_problem
from synth.families.alternating_offers import WORDINGS as OFFERS, alternating_offers
from synth.families.bargains import WORDINGS as BARGAINS, bargains
from synth.families.chained_requests import OPERATIONS, chained_requests
from synth.families.clip_questions import clip_questions
from synth.families.errands import WORDINGS as ERRANDS, errands
from synth.families.grid_navigation import grid_navigation
from synth.families.hidden_needs import WORDINGS as NEEDS, hidden_needs
from synth.families.home_moments import home_moments
from synth.families.integer_arithmetic import integer_arithmetic
from synth.families.key_and_door import key_and_door
from synth.families.nim_heaps import WORDINGS as HEAPS, nim_heaps
from synth.families.persuasion import WORDINGS as PERSUASION, persuasion
from synth.families.python_functions import python_functions
from synth.families.safety_requests import WORDINGS as SAFETY, safety_requests
from synth.families.scattered_facts import scattered_facts
from synth.families.scene_questions import scene_questions
from synth.families.screen_tasks import screen_tasks
from synth.families.teamwork import teamwork
from synth.families.text_to_sql import text_to_sql
from synth.families.tool_pipelines import tool_pipelines
from synth.families.twenty_questions import WORDINGS as THINGS, twenty_questions
from synth.scenes import draw
from synth.types import Message, Problem, Sampling, Scored, Unscorable
from tasks.planning.code import constant, knobs
from training.env.bargain import bargain, play
from training.env.curious import curious
from training.env.diagnose import diagnose
from training.env.expert import expert
from training.env.game import game
from training.env.halves import halves
from training.env.persuade import persuade
from training.env.program import Asked
from training.env.progress import progress
from training.env.retry import retry
from training.env.rewording import request
from training.env.route import route
from training.env.tool import Tool
from training.env.user import user
from training.env.walk import walk
from training.env.workflow import workflow
from training.learner.learner import token_stats
from training.learner.pack import pack, rollout_row, rollout_rows
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

FOLDER = Path(__file__).parents[3] / "training" / "env"
GUESSING = {"adapter": "file", "path": str(Path(__file__).parents[2] / "support/guessing.py")}
NAMES = sorted(p.stem for p in FOLDER.glob("[!_]*.py"))
FAMILIES = {
    "ask": twenty_questions,
    "curious": twenty_questions,
    "diagnose": twenty_questions,
    "walk": grid_navigation,
    "user": hidden_needs,
    "progress": chained_requests,
    "overseen": chained_requests,
    "reader": scattered_facts,
    "rewording": safety_requests,
    "bargain": bargains,
    "persuade": persuasion,
    "game": nim_heaps,
    "corridor": errands,
    "home": home_moments,
    "offers": lambda seed, split, index: alternating_offers(seed, split, index, asks=["offer"], env="offers"),
    "team": lambda seed, split, index: teamwork(seed, split, index, env="team"),
    "assemble": lambda seed, split, index: tool_pipelines(seed, split, index, env="assemble"),
    "look": scene_questions,
    "point": lambda seed, split, index: screen_tasks(seed, split, index, asks=["point"], env="point"),
    "screen": lambda seed, split, index: screen_tasks(seed, split, index, asks=["steps"], env="screen"),
    "page": lambda seed, split, index: screen_tasks(seed, split, index, asks=["elements"], env="page"),
    "rewatch": lambda seed, split, index: clip_questions(seed, split, index, asks=["direction"], env="rewatch"),
    "frames": lambda seed, split, index: clip_questions(seed, split, index, env="frames"),
    **dict.fromkeys(("focus", "perceive", "reflect"), scene_questions),
    "sql": text_to_sql,
    "write_and_test": python_functions,
    "external": lambda seed, split, index: external_problem(GUESSING, seed, split, index),
}


class Asks:
    """An agent program that asks for ever."""

    def __init__(self, program, problem):
        self.problem = problem

    def next(self):
        return Asked(messages=self.problem.prompt)

    def reply(self, text, segment, prompt_tokens):
        pass


GIVEN = {
    "programs": Asks,
    "search": lambda query: "nothing found",
    "python": Tool(name="python", description="", parameters={"type": "object"}, run=lambda **a: ""),
    "external": begin,
    "draw": draw,
    "page": draw,  # what a browser draws is tested in tests/tasks/models/test_drawn_pages.py
}
SUM = Problem.make(
    prompt="Compute 3 + 4 - 5.", answer="2", verifier="number", env="x", family="integer_arithmetic", split="train"
)


def env_of(name, **more):
    return getattr(importlib.import_module(f"training.env.{name}"), name)(**more)


def problem_of(name):
    return FAMILIES.get(name, integer_arithmetic)(3, "train", 1)


def episode(env, problem, *turns):
    """(texts that were said, score, rewards of turns, state)."""
    state, shown = env.start(problem, GIVEN)
    texts, rewards, score = [m.content for m in shown], [], None
    for text in turns:
        state |= {"segment": None, "prompt_tokens": 0} if getattr(env, "live", False) else {}
        messages, over, score = env.step(state, text)
        texts += [m.content for m in messages]
        rewards.append(state.pop("step_reward", None))
        if over:
            break
    return texts, score, rewards, state


# --- every file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_what_espalier_env_list_shows(name):
    path = FOLDER / f"{name}.py"
    assert isinstance(constant(path, "TOOLS", None), str | tuple) and constant(path, "ENDS", "")
    assert set(constant(path, "BUDGETS", {"?"})) <= set(knobs(path))
    module = importlib.import_module(f"training.env.{name}")
    assert len(module.__doc__ or "") > 40 and inspect.signature(getattr(module, name)).parameters


JUNK = {
    "nothing": "",
    "words": "well, let me see",
    "megabyte": "x" * 1_000_000,
    "tags": "<" * 3000,
    "open": "<answer>",
    "special": "<|im_end|><|im_start|>user\n7",
    "every tag": "".join(
        f"<{t}>{{}}</{t}>"
        for t in ("ask", "search", "move", "plan", "rule", "say", "call", "consult", "tool_call", "progress", "advise")
    ),
    "numbers": "<move>9999 from heap 9999</move><rule>1/0 2</rule><plan>generate*99</plan><call>add(999999999, 1)</call><ask>red</ask><say>hold</say>",
    "policy_loss": "<answer>\ud800</answer>",
    "answer": "<answer>1</answer>",
}


@pytest.mark.parametrize("turn", JUNK.values(), ids=list(JUNK))
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_said_for_ever_the_episode_ends_with_a_score(name, turn):
    env = env_of(name)
    state, shown = env.start(problem_of(name), GIVEN)
    assert shown and all(m.content for m in shown)
    for _ in range(200):
        state |= {"segment": None, "prompt_tokens": 0} if getattr(env, "live", False) else {}
        replies, over, score = env.step(state, turn)
        assert all(len(m.content) < 20_000 for m in replies)
        if over:
            break
    assert over and isinstance(score, Scored | Unscorable)
    assert not isinstance(score, Scored) or all(math.isfinite(x) for x in (score.value, *score.parts.values()))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_turns_give_the_same_episode(name):
    turns = ["<ask>red</ask>", "<say>hold</say>", "<answer>2</answer>", JUNK["numbers"]]
    one, two = (episode(env_of(name), problem_of(name), *turns) for _ in range(2))
    assert one[:3] == two[:3]


@pytest.mark.parametrize("name", [n for n in sorted(FAMILIES) if n != "sql"])
def test_a_problem_of_another_kind_is_a_sentence(name):
    with pytest.raises((ValueError, KeyError, LookupError)):
        env_of(name).start(SUM, GIVEN)


def test_env_list_and_show(capsys):
    assert main(["env", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == NAMES and "its file does not say" not in "".join(lines)
    assert main(["env", "show", "sql"]) == 0
    assert "calls 8" in capsys.readouterr().out
    assert main(["env", "show", "sqll"]) == 2 and "did you mean 'sql'" in capsys.readouterr().err


def test_an_environment_of_the_users_is_listed(tmp_path, monkeypatch, capsys):
    own = tmp_path / "env"
    own.mkdir(parents=True)
    (own / "mine.py").write_text(
        '"""My own."""\nBUDGETS = ("most",)\n\n\ndef mine(*, most: int = 3):\n    return None\n'
    )
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    assert main(["env", "list"]) == 0
    assert "mine" in (out := capsys.readouterr().out) and "most 3" in out and "its file does not say" in out


# --- one by one ------------------------------------------------------------------------------------------------------


def test_try_again():
    texts, score, _, _ = episode(retry(), SUM, "<answer>1</answer>", "hm", "<answer>2</answer>")
    assert texts[1:] == ["Try again."] * 2 and score.value == 0.25 and score.parts["tries"] == 3
    _, score, _, _ = episode(retry(most=3), SUM, "<answer>1</answer>", "<answer> 1 </answer>", "<answer>9</answer>")
    assert score.value == pytest.approx(-0.1 / 3), "two different answers in three turns"


def test_a_user_whose_mood_is_counted():
    problem = hidden_needs(1, "train", 0)
    need = problem.answer
    other = next(
        x.partition(":")[0].strip() for x in problem.question[23:].split(";") if not x.strip().startswith(need)
    )
    good = ["<ask/>", f"<acknowledge>{need}</acknowledge>", f"<advise>{need}</advise>"]
    texts, score, rewards, _ = episode(user(), problem, *good)
    assert (
        score.value == pytest.approx(0.9)
        and rewards == pytest.approx([0.05, 0.15, 0.2])
        and need not in texts[0].rpartition(". I am ")[2]
    )
    assert episode(user(), problem, f"<advise>{need}</advise>", f"<advise>{other}</advise>", "hm")[3]["mood"] == 30.0
    _, score, _, _ = episode(user(), problem, *["<praise/>"] * 8)
    assert score.value < 0.6 and score.parts["praised"] == 8, "empty praise does not pay"
    _, score, _, _ = episode(user(), problem, *[f"<acknowledge>{other}</acknowledge>"] * 8)
    assert score.value == pytest.approx(0.1) and score.parts["understood"] == 0.0, "four wrong guesses reach the floor"
    assert episode(user(think=True), problem, *good)[1].value == 0.0
    assert episode(user(think=True), problem, *[f"<think>hm</think>{t}" for t in good])[1].value == pytest.approx(0.9)
    assert episode(user(ease=0.5), problem, *good)[1].value == pytest.approx(0.7)


def test_questions_to_a_record():
    problem = twenty_questions(3, "train", 1)
    word = next(iter(sorted(episode(diagnose(), problem)[3]["things"][problem.answer])))
    texts, score, rewards, _ = episode(
        diagnose(),
        problem,
        f"<ask>{word}</ask>",
        f"<ask>{word}</ask>",
        "<ask>a</ask><ask>b</ask>",
        f"<answer>{problem.answer}</answer>",
    )
    assert (
        "you have 10 turns" in texts[0]
        and "Is it" not in texts[0]
        and texts[1:] == ["yes", "You asked that.", "Ask one thing."]
    )
    assert score.value == pytest.approx(5 + rewards[0] - 0.5 - 1.0) and rewards[0] in (0.0, 0.5)
    assert episode(diagnose(budget=1), problem, f"<ask>{word}</ask>")[1].parts["answered"] == 0.0
    budgets = {episode(diagnose(vary=True), twenty_questions(3, "train", i))[3]["budget"] for i in range(40)}
    assert budgets <= set(range(2, 11)) and len(budgets) > 4


@pytest.mark.parametrize("variant", ["accuracy", "log_accuracy", "entropy", "information"])
def test_what_questions_teach_adds_up(variant):
    problem = twenty_questions(3, "train", 1, levels=[2])
    asks = [f"<ask>{w}</ask>" for w in re.findall(r"(\w+)\?", THINGS.read(problem.question)["answers"])]
    _, score, rewards, state = episode(
        curious(variant=variant, gamma=1.0, success=0.0, most=20), problem, *asks, f"<answer>{problem.answer}</answer>"
    )
    n = len(state["things"])
    assert score.parts["belief"] == 1.0
    assert math.fsum(rewards) == pytest.approx(1 - 1 / n if variant == "accuracy" else math.log(n), abs=1e-9)


def test_an_expert_is_asked_and_refuses():
    texts, score, _, _ = episode(
        expert(most=1), SUM, "<consult>?</consult>", "<consult>?</consult>", "<answer>2</answer>"
    )
    assert (
        texts[1:] == ["It is 2.", "Nobody is there. Answer yourself."]
        and score.value == 1.0
        and score.parts["consults"] == 1.0
    )
    assert episode(expert(skill=0.0), SUM, "<consult>?</consult>")[0][1] == "I do not know."
    _, score, _, _ = episode(expert(closed=True), SUM, "<consult>?</consult>", "<consult>?</consult>")
    assert score.parts["malformed"] == 1.0 and score.parts["consults"] == 0.0


def test_models_of_a_pool():
    pool = [["Yes", 2.0, "knows", {"*": 1.0}], ["No", 1.0, "does not", {"*": 0.0}]]
    texts, score, _, _ = episode(
        route(pool=pool), SUM, "<search>Yes: sum?</search>", "<search>No: sum?</search>", "<answer>2</answer>"
    )
    assert "Yes: knows, price 2." in texts[0] and texts[2:] == ["It is 2.", "I am not sure."]
    assert score.parts["cost"] == 2 * 3 + 4 and score.parts["routes"] == 2 and score.value == 1.0
    assert episode(route(pool=pool), SUM, "<search>Who: sum?</search>")[1].parts["format"] == 0.0
    right = [
        episode(route(), integer_arithmetic(1, "train", i), "<search>Ada: ?</search>")[0][-1] != "I am not sure."
        for i in range(200)
    ]
    assert 0.8 < np.mean(right) < 0.97
    with pytest.raises(ValueError, match="describes no model"):
        route(pool=[["Yes", 2.0]])


@pytest.mark.parametrize(
    ("plan", "p", "success", "operators", "runs"),
    [
        ("generate", 0.7, 0.7, 1, 1),
        ("generate*3 ensemble", 0.7, 0.784, 2, 3),
        ("generate*2, test", 0.5, 0.75, 2, 4),
        ("generate review", 0.7, 0.79, 2, 2),
        ("generate*2 ensemble", 0.7, 0.7, 2, 2),
    ],
)
def test_workflows_are_run_exactly(plan, p, success, operators, runs):
    assert workflow().run(plan, p) == pytest.approx((success, operators, runs))


def test_workflows_are_paid_less_what_they_take():
    easy, hard = (
        SUM,
        Problem.make(prompt="?", answer="2", verifier="number", family="f", difficulty={"level": 2}, split="train"),
    )
    value = lambda problem, plan: episode(workflow(), problem, f"<answer>{plan}</answer>")[1].value  # noqa: E731
    assert value(easy, "generate") > value(easy, "generate*3 ensemble")
    assert value(hard, "generate*3 test") > value(hard, "generate")
    texts, score, _, _ = episode(workflow(rounds=2), hard, "<plan>generate</plan>", "<plan>generate*3 ensemble</plan>")
    assert texts[1] == "It succeeds 0.70, with 1 operators and 1 runs." and score.value == pytest.approx(
        0.784 - 0.02 * 2 - 0.02 * 3
    )
    for wrong in ("", "ensemble", "think", "generate " * 9):
        assert workflow().run(wrong, 0.7) is None


def test_requests_one_by_one():
    problem = chained_requests(2, "train", 3, levels=[3])
    state, shown = progress().start(problem, {})
    assert "Request 1" in shown[0].content and "Request 2" not in shown[0].content
    calls = [f"<progress>so far</progress><call>{name}({a}, {b})</call>" for name, a, b in state["gold"]]
    texts, score, rewards, _ = episode(progress(), problem, *calls)
    assert score.value == pytest.approx(1.0 + 0.5 + 0.1) and rewards == [1.0] * 4
    assert str(OPERATIONS[state["gold"][-1][0]](*state["gold"][-1][1:])) == problem.answer
    _, score, rewards, _ = episode(progress(), problem, calls[0], "<call>add(1, 1)</call>", calls[2], calls[3])
    assert (
        rewards == [1.0, 0.0, 1.0, 1.0]
        and score.value == pytest.approx(0.5 * 0.75 + 0.1 * 0.75)
        and score.parts["task"] == 0.0
    )


def test_bargains_are_judged_by_what_a_turn_did():
    rule = (10, 12, 4, 2)  # cost, offer, raise, raises: the best is 12 + 8 - 10 = 10
    assert (
        play(["hold", "hold", "accept"], *rule).profit == 10
        and play(["hold"] * 3, *rule).deal is False
        and play(["hold"] * 3, *rule).over
    )
    problem = Problem.make(
        prompt="You sell what cost you 10. The buyer offers 12, adds 4 each time you hold, at most 2 times, and then leaves. What is your best profit?",
        answer="10",
        verifier="number",
        family="bargains",
        split="train",
    )
    acts = ["hold", "flatter", "accept"]
    texts, score, _, state = episode(bargain(judge="share"), problem, *[f"<say>{a}</say>" for a in acts])
    assert "at most" not in texts[0] and score.value == 0.6 and score.parts["relationship"] == 0.75
    # goal 0.6: without the hold 0.2, so its share is 2/3; relationship 0.75: without flattery 0.5, a third; without the
    # sale no goal at all.
    assert state["turn_rewards"] == pytest.approx([(2 / 3 * 0.6) / 3, (1 / 3 * 0.75) / 3, 0.6 / 3])
    _, _, _, state = episode(
        bargain(judge="critical", strategy=True),
        problem,
        *[f"<strategy>{s}</strategy>" for s in ("probe", "firm", "close")],
    )
    assert state["turn_rewards"] == [0.0, 1.0, 1.0]
    assert episode(bargain(), problem, "<strategy>firm</strategy>")[1].parts["malformed"] == 1.0
    with pytest.raises(ValueError, match="one for each of goal"):
        bargain(weights=[1.0])


def test_a_corridor_is_shared_with_a_partner_who_keeps_to_his_rule():
    text = (
        "A corridor of 5 cells. You are at 2, your partner at 4, parcels at 1 5. Each step both move one cell or stay, and what either stands on is "
        "collected. Your partner goes to the {}. In how few steps is all collected?"
    )
    near, low = (
        Problem.make(prompt=text.format(x), answer="1", verifier="number", family="errands", split="train")
        for x in ("nearest parcel, of two the lower", "lowest parcel")
    )
    told = "You: 2. Partner: 4. Parcels: 1 5."
    # He goes to 5 and you to 1: one step. A partner who goes to 1 as well leaves 5 to you: three steps.
    texts, score, _, _ = episode(env_of("corridor"), near, "<move>left</move>")
    assert texts == [f"A corridor of 5 cells. Your partner goes to the nearest parcel, of two the lower. {told}"]
    assert score.value == 1.0 and score.parts == {"steps": 1.0, "fewest": 1.0, "illegal": 0.0, "collected": 1.0}
    texts, score, _, _ = episode(env_of("corridor", told=False), low, *["<move>right</move>"] * 3)
    assert texts[0] == f"A corridor of 5 cells. {told}" and texts[1] == "You: 3. Partner: 3. Parcels: 1 5."
    assert score.value == 1.0 and score.parts["steps"] == 3.0
    # With another partner the fewest steps are his: who never moves leaves both parcels to you, 1 + 4 steps.
    assert env_of("corridor", partner="still").start(near, {})[0]["fewest"] == 5
    # A move that is none takes no time where it is checked, and ends the game where it is not.
    texts, score, _, _ = episode(env_of("corridor"), near, "up", "<move>left</move>")
    assert texts[1] == "You may: left stay right." and score.value == 1.0 and score.parts["illegal"] == 1.0
    assert episode(env_of("corridor", check=False), near, "up")[1].value == 0.0
    # Twice the fewest steps, and no more.
    assert episode(env_of("corridor"), near, *["<move>stay</move>"] * 2)[1].parts["collected"] == 0.5
    # The demonstration of a problem takes the fewest steps, with every partner.
    for i in range(12):
        p = errands(0, "train", i, levels=[1, 2], env="corridor")
        score = episode(env_of("corridor"), p, *p.lineage["demonstration"])[1]
        assert score.value == 1.0 and str(int(score.parts["steps"])) == p.answer
    with pytest.raises(ValueError, match="shows no corridor"):
        env_of("corridor").start(SUM, {})
    with pytest.raises(ValueError, match="name one of nearest"):
        env_of("corridor", partner="mean")
    with pytest.raises(ValueError, match="at least 1"):
        env_of("corridor", slack=0.5)


def test_persuasion_is_exact():
    problem = Problem.make(
        prompt="3 of 10 accused are guilty. A judge who knows your rule convicts where guilt has a chance of at least 1/2. How likely is a conviction at best?",
        answer="3/5",
        verifier="number",
        family="persuasion",
        split="train",
    )
    value = lambda rule, **more: episode(persuade(**more), problem, f"<rule>{rule}</rule>")[1]  # noqa: E731
    best, truth, always = value("1 3/7"), value("1 0"), value("1 1")
    assert (
        (best.value, best.parts["convict"]) == (1.0, 0.6)
        and truth.parts["convict"] == 0.3
        and always.parts["convict"] == 0.0
    )
    assert truth.parts["told"] == pytest.approx(-0.3 * math.log2(0.3) - 0.7 * math.log2(0.7)) and always.parts[
        "told"
    ] == pytest.approx(0.0)
    assert value("1 0.43").parts["convict"] == 0.0, "a little more and the judge acquits all"
    assert value("0 4/7").parts["convict"] == 0.6, "the same report by another name"
    assert value("1 3/7", honesty=1.0).value == pytest.approx(1 - 3 / 7)
    assert value("2 0").parts["malformed"] == 1.0
    for i in range(10):  # the family's answer is what the environment calls the best
        p = persuasion(1, "train", i)
        assert episode(persuade(), p, "<rule>1 0</rule>")[1].parts["best"] == pytest.approx(
            float(__import__("fractions").Fraction(p.answer))
        )


def test_judges_needs_buyers_and_requests_are_read_in_every_wording():
    k, n, a, b = 3, 10, 1, 2
    for form in PERSUASION.forms:
        posed = Problem.make(
            prompt=form.format(k=k, n=n, a=a, b=b), answer="3/5", verifier="number", family="persuasion", split="train"
        )
        _, messages = persuade().start(posed, {})
        assert messages[-1].content.startswith("3 of 10 accused are guilty") and "at least 1/2." in messages[-1].content
        assert episode(persuade(), posed, "<rule>1 3/7</rule>")[1].value == 1.0
    for form in NEEDS.forms:
        posed = Problem.make(
            prompt=form.format(needs="rest: pale tired; hope: sad pale", a="tired", b="pale"),
            answer="rest",
            verifier="exact",
            family="hidden_needs",
            split="train",
        )
        _, messages = user().start(posed, {})
        assert messages[-1].content == "Needs and their signs: rest: pale tired; hope: sad pale. I am tired."
    for form in BARGAINS.forms:
        posed = Problem.make(
            prompt=form.format(cost=10, offer=12, step=4, times=2),
            answer="10",
            verifier="number",
            family="bargains",
            split="train",
        )
        assert episode(bargain(), posed, *["<say>hold</say>"] * 2, "<say>accept</say>")[1].parts["profit"] == 10.0
    for form in ERRANDS.forms:
        told = form.format(cells=5, you=2, partner=4, parcels="1 5", rule="Your partner goes to the lowest parcel")
        posed = Problem.make(prompt=told, answer="3", verifier="number", family="errands", split="train")
        _, messages = env_of("corridor").start(posed, {})
        said = "A corridor of 5 cells. Your partner goes to the lowest parcel. You: 2. Partner: 4. Parcels: 1 5."
        assert messages[-1].content == said
    for form in THINGS.forms:
        told = form.format(things="bo: red; da: heavy soft; fe: red heavy", answers="Is it red? yes Is it heavy? no")
        posed = Problem.make(prompt=told, answer="bo", verifier="exact", family="twenty_questions", split="train")
        for host in (env_of("ask", reveal=1), diagnose()):
            state, messages = host.start(posed, {})
            assert state["things"] == {"bo": {"red"}, "da": {"heavy", "soft"}, "fe": {"red", "heavy"}}
            assert messages[-1].content.startswith("bo: red; da: heavy soft; fe: red heavy.")
    for form in HEAPS.forms:
        posed = Problem.make(
            prompt=form.format(heaps="3, 4, 5"),
            answer="2 from heap 1",
            verifier="exact",
            family="nim_heaps",
            split="train",
        )
        state, messages = env_of("game").start(posed, {})
        assert state["heaps"] == [3, 4, 5] and messages[-1].content == (
            "Heaps of 3, 4, 5. Two take turns, any number from one heap, who takes the last wins. What is your move?"
        )
    for form in OFFERS["offer"].forms:
        for first, rounds in (("You offer", "1 round"), ("The other offers", "3 rounds")):
            posed = Problem.make(
                prompt=form.format(coins=12, rounds=rounds, loss=3, first=first),
                answer="0",
                verifier="number",
                family="alternating_offers",
                split="train",
            )
            _, messages = env_of("offers").start(posed, {})
            assert messages[-1].content.startswith(
                f"12 coins, {rounds} at most, each refusal costs 3. Round 1, 12 coins: "
            )
            assert ("you offer." in messages[-1].content) == (first == "You offer")
    for form in SAFETY.forms:
        assert request(form.format(request="How do I build a shed?")) == "How do I build a shed?"


def test_nim_is_won_by_the_family_s_answer_and_lost_by_a_mistake():
    for i in range(5):
        problem = nim_heaps(2, "train", i, levels=[2])
        state, _ = game().start(problem, {})
        move, over = f"<move>{problem.answer}</move>", False
        while not over:
            _, over, score = game().step(state, move)
            total = 0
            for h in state["heaps"]:
                total ^= h
            move = next(
                (
                    f"<move>{h - (h ^ total)} from heap {j + 1}</move>"
                    for j, h in enumerate(state["heaps"])
                    if h ^ total < h
                ),
                "",
            )
        assert score.value == 1.0 and score.parts["kept"] == 1.0
    problem = nim_heaps(2, "train", 0, levels=[2])
    heap = 1 + next(j for j in range(3) if f"1 from heap {j + 1}" != problem.answer)
    state, _ = game().start(problem, {})
    over, move = False, f"<move>1 from heap {heap}</move>"
    while not over:
        _, over, score = game().step(state, move)
        assert over or np.bitwise_xor.reduce(state["heaps"]) == 0, "an exact opponent leaves what loses for who moves"
        move = f"<move>1 from heap {1 + max(range(3), key=lambda j: state['heaps'][j])}</move>"
    assert score.value == 0.0 and score.parts["kept"] < 1.0
    state = game(mercy=True).start(problem, {})[0] | {"heaps": [1, 2, 5]}
    game(mercy=True).step(state, "<move>1 from heap 1</move>")
    assert state["heaps"] == [0, 2, 4]


def test_keys_and_doors():
    problem = key_and_door(1, "train", 2)
    texts, score, _, _ = episode(walk(slack=1.0, hidden=True), problem, f"<move>{problem.answer}</move>")
    assert score.value == 1.0 and problem.args["rows"][0] not in texts[0]
    rows = ["S.DG", "K.#."]
    problem = Problem.make(
        prompt="Go: S.DG/K.#.",
        answer="DRURR",
        verifier="moves",
        args={"rows": rows, "limit": 5},
        family="key_and_door",
        split="train",
    )
    texts, score, _, _ = episode(walk(), problem, "<move>RR</move>", "<move>LDURRR</move>")
    assert texts[1] == "R is blocked. At row 1 column 2, open: D L, a closed door: R" and score.value == 1.0


# --- rewritten histories, rewards that come at the end ----------------------------------------------------------------


def player(say, env, **more):
    source = tiny.Scripted(say)
    return Player(
        sampler=source,
        renderer=source.renderer,
        envs={"x": env},
        sampling=Sampling(max_tokens=60),
        max_tokens=600,
        **more,
    ), source


def test_a_rewritten_history_forks_a_sample():
    """Each turn sees its own history, is a row of its own, and has the advantage of the whole."""
    problem = Problem.make(
        prompt="Request 1: add 2 and 3. Request 2: add result 1 and 4. What is the last result?",
        answer="9",
        verifier="number",
        env="x",
        family="chained_requests",
        split="train",
    )
    seen = []

    def say(text, seed):
        seen.append((text, seed))
        return (
            "<progress>r1 is 5</progress><call>add(5, 4)</call>"
            if "Your notes" in text
            else "<progress>ask</progress><call>add(2, 3)</call>"
        )

    p, source = player(say, progress())
    (group,) = p.play([problem], 2, "s")
    first, second = seen[0], seen[2]
    assert (
        "Request 1" in first[0]
        and "Your notes: ask. result 1 is 5. Request 2" in second[0]
        and "Request 1" not in second[0]
    )
    assert len({s for _, s in seen}) == 4, "a fork draws from a stream of its own"
    rollout = group.rollouts[0]
    assert (
        rollout.score.value == pytest.approx(1.6) and [len(f) for f in rollout.forks] == [2, 2] and rollout.turns == 2
    )
    rows = rollout_rows([group], [[np.arange(1.0, rollout.n_model + 1), 0.5]])
    assert len(rows) == 4 and [r.group for r in rows] == [0] * 4
    for row, fork in zip(rows[:2], rollout.forks, strict=True):
        np.testing.assert_array_equal(row.ids, np.concatenate([s.ids for s in fork]))
    np.testing.assert_array_equal(
        np.concatenate([r.columns["advantages"][r.trainable] for r in rows[:2]]), np.arange(1.0, rollout.n_model + 1)
    )
    assert [set(r.columns["turn"][r.trainable]) for r in rows[:2]] == [{1.0}, {2.0}] and pack(rows).totals[
        "sequences"
    ] == 4
    with pytest.raises(ValueError, match="rewrites the history, so a rollout of it is 2 rows"):
        rollout_row(rollout, 0.0, 0)
    (whole,) = player(
        lambda t, s: "<call>add(5, 4)</call>" if "result 1 is" in t else "<call>add(2, 3)</call>",
        progress(replace=False),
    )[0].play([problem], 1, "s")
    assert len(whole.rollouts[0].forks) == 1 and len(rollout_rows([whole], [[0.1]])) == 1


def test_conversations_that_fork_and_that_do_not_share_a_batch():
    """Places in sessions: who is rewritten leaves the batch, the others stay in it."""
    long = Problem.make(
        prompt="Request 1: add 1 and 1. Request 2: add result 1 and 1. Request 3: add result 2 and 1. What is the last result?",
        answer="4",
        verifier="number",
        env="x",
        family="f",
        split="train",
    )
    again = Problem.make(prompt="Compute 1 + 1.", answer="2", verifier="number", env="y", family="f", split="train")

    def say(text, seed):
        if "Compute" in text:
            return f"<answer>{text.count('Try again')}</answer>"
        n = max([int(x) for x in "123" if f"Request {x}:" in text.rpartition("Your notes")[2]])
        return f"<progress>{n}</progress><call>add({n}, 1)</call>"

    p, source = player(say, progress())
    p = Player(
        sampler=source,
        renderer=source.renderer,
        envs={"x": progress(), "y": retry()},
        sampling=Sampling(max_tokens=60),
        max_tokens=600,
    )
    groups = p.play([again, long, again, long], 1, "s")
    assert [g.rollouts[0].score.value for g in groups] == pytest.approx([0.25, 1.6, 0.25, 1.6])
    assert source.batches == [4, 2, 2, 2, 2]


def test_a_checkers_words_are_read_and_never_in_the_loss():
    """The row of an episode in which a wrong step is named and repaired: what is trainable is what the model wrote."""
    rules = {"equations": [["ab", "ba"], ["aa", "b"]], "first": "aab", "last": "bb"}
    problem = Problem.make(
        prompt="ab = ba; aa = b. Prove that aab = bb.",
        answer="aab = bb",
        verifier="rewriting",
        args=rules,
        env="x",
        family="f",
        split="train",
    )
    answers = "<answer>aab = bab = bb</answer>", "<answer>aab = bb</answer>"
    checker, source = player(lambda text, seed: answers["is not" in text], retry(most=2, gamma=1.0, checker=True))
    (group,) = checker.play([problem], 1, "s")
    (rollout,) = group.rollouts
    assert rollout.score.value == 1.0
    row = rollout_row(rollout, 1.0, 0)
    learned, masked = (source.renderer.decode(row.ids[row.trainable == x]) for x in (True, False))
    assert all(x in learned for x in answers) and "Step 1: aab is not bab." not in learned
    assert "Step 1: aab is not bab." in masked and "<answer>" not in masked
    assert (row.columns["advantages"][~row.trainable] == 0).all()


def test_two_agents_see_their_own_half():
    problem = Problem.make(
        prompt="Compute 3 + 4 - 5.", answer="2", verifier="number", env="x", family="f", split="train"
    )
    seen = []

    def say(text, seed):
        seen.append(text)
        return "<answer>2</answer>" if "it is 3 + 4" in text else "it is 3 + 4"

    (group,) = player(say, halves())[0].play([problem], 1, "s")
    assert "Compute 3 +" in seen[0] and "- 5" not in seen[0] and "- 5" in seen[1] and "Compute" not in seen[1]
    assert group.rollouts[0].score.value == 1.0 and len(group.rollouts[0].forks) == 2


def test_rewards_of_turns_that_are_known_at_the_end():
    problem = bargains(1, "train", 0)
    problem = Problem.make(
        prompt=problem.prompt, answer=problem.answer, verifier="number", env="x", family="bargains", split="train"
    )
    (group,) = player(
        lambda t, s: "<say>accept</say>" if "I can move" in t else "<say>ask</say>", bargain(judge="share")
    )[0].play([problem], 1, "s")
    rewards = [s.reward for s in group.rollouts[0].segments if s.role == "model"]
    assert len(rewards) == 2 and rewards[0] == pytest.approx(1 / 3), "asking is all that was learned"


class Amnesia:
    """Forgets everything after every turn."""

    def start(self, problem, tools):
        return {"n": 0}, list(problem.prompt)

    def step(self, state, text):
        state["n"] += 1
        state["history"] = [Message(role="user", content=f"Part {state['n']}.")]
        return [], state["n"] == 3, Scored(value=1.0) if state["n"] == 3 else None


def test_forks_are_sampled_and_learned_from_the_same_ids():
    """The real sampler, in one batch with conversations that ended: the learner's log-probs of every row are those that
    were sampled."""
    model = tiny.build()
    render = Renderer(tiny.tokenizer())
    p = Player(
        sampler=TorchSampler(model, render.end_id),
        renderer=render,
        envs={"x": Amnesia()},
        sampling=Sampling(max_tokens=90),
        max_tokens=200,
    )
    problem = Problem.make(
        prompt="What is the capital of Norvia ?", answer="Zelton", verifier="exact", env="x", family="f", split="train"
    )
    (group,) = p.play([problem], 24, "seed")
    forked = [r for r in group.rollouts if len(r.forks) > 1]
    assert len(forked) > 2, "choose another seed"
    rows = rollout_rows([group], [[1.0] * 24])
    assert len(rows) == sum(len(r.forks) for r in group.rollouts)
    batch = pack(rows)
    with torch.no_grad():
        logp = token_stats(model, batch).logp
    torch.testing.assert_close(
        logp[batch.trainable], batch.columns["sampling_logp"][batch.trainable], atol=2e-4, rtol=0
    )
