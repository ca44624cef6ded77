"""A conversation begins with the same ids wherever it is read: where it is played, and in demonstrations and pairs."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from templates import TABLE

from synth.families.integer_arithmetic import integer_arithmetic
from synth.families.music_shop_sql import music_shop_sql
from synth.families.nim_heaps import nim_heaps
from synth.families.python_functions import python_functions
from synth.scenes import draw
from synth.types import Demonstration, Message, PreferencePair, Problem
from tasks.planning import resolve
from tasks.planning.code import constant, knobs
from tasks.planning.pieces import files, find
from training.env import opening
from training.env.tool import Tool
from training.learner.rows import demonstration_row, pair_rows
from training.model.model import train_tokenizer
from training.model.render import Renderer
from training.rollout.opening import Opening
from training.rollout.play import Player


@cache
def renderers():
    """Those of every second family of models that is not refused. Built when a test first asks for them: every worker
    collects every file, and the tokenizers take seconds."""
    usable = [Renderer(c.tokenizer()) for c in TABLE if not c.refused][::2]
    assert len(usable) >= 15
    return usable


@cache
def seeing():
    """The renderer of a model that can read pictures, for environments that show them."""
    tokenizer = train_tokenizer(["In which column and row is the red square? <answer>2 1</answer>"], vocab_size=400)
    tokenizer.picture_tokens = 4
    return Renderer(tokenizer)


TOOLS = {
    "search": SimpleNamespace(index=SimpleNamespace()),
    "python": Tool(name="python", description="runs a program", run=str, parameters={"type": "object"}),
    "draw": draw,
    "page": draw,
    "external": lambda problem: SimpleNamespace(messages=problem.prompt),
}


class Heard(Exception):
    pass


class Listening:
    """In the place of a sampler: keeps the ids that an episode begins with, and ends there."""

    def open(self, prompts, seeds):
        raise Heard(prompts)


def problems():
    """Problems of every kind that the recipes' checks play, and one of arithmetic."""
    yield from (make(1, "train", 0) for make in (integer_arithmetic, music_shop_sql, nim_heaps, python_functions))
    for name in resolve.yaml_files("recipes"):
        for check in resolve.read_recipe(name).get("checks") or ():
            given = (check.get("given") or {}).get("problem")
            if check["piece"].startswith("env/") and given:
                prompt = given.get("prompt", "")
                posed = prompt if isinstance(prompt, str) else [Message(**m) for m in prompt]
                rest = {k: v for k, v in given.items() if k in ("answer", "verifier", "args", "family")}
                yield Problem.make(
                    prompt=posed, split="train", **({"answer": "", "verifier": "exact", "family": "x"} | rest)
                )
    yield Problem.make(
        prompt="Go from S to G: S./.G",
        answer="RD",
        verifier="moves",
        args={"rows": ["S.", ".G"], "limit": 2},
        family="g",
        split="train",
    )
    yield Problem.make(prompt="", answer="a", verifier="exact", family="x", split="train")


POOL = list(problems())


PROFILES = {p: resolve.read_yaml(path).get("instructions") or {} for p, path in resolve.yaml_files("profiles").items()}
TOLD = {"other words": "Do as you are told.", **PROFILES}  # to every environment, or by its name


def told_to(name, given):
    """What an environment is told."""
    if "instructions" not in knobs(files("env")[name]):
        return ""
    return given if isinstance(given, str) else given.get(name, "")


def played(name, told):
    """(environment, a problem that it can begin)"""
    env = find("env", name)(
        **({"instructions": told} if told else {}), **({"servers": ["cmd"]} if name == "tools" else {})
    )
    tools = TOOLS | {"cmd": [TOOLS["python"]]}
    for p in POOL:
        problem = Problem.make(
            prompt=p.prompt, answer=p.answer, verifier=p.verifier, args=p.args, env=name, family=p.family, split="train"
        )
        try:
            env.start(problem, tools)
        except (ValueError, LookupError, AttributeError, StopIteration, IndexError):
            continue
        return env, problem, tools
    raise AssertionError(f"no problem here is one of the environment {name}: add one to POOL")


def each():
    """(environment, profile or "other words"), of those that tell it the same once."""
    for name in sorted({*files("env")} - {"program"}):
        heard = {}
        for by in TOLD:
            heard.setdefault(told_to(name, TOLD[by]), by)
        yield from ((name, by) for by in heard.values())


@pytest.mark.parametrize(("name", "by"), [*each()])
def test_training_data_begin_as_episodes_do(name, by):
    told = told_to(name, TOLD[by])
    env, problem, tools = played(name, told)
    begins = Opening({name: env}, tools, {problem.id: problem})
    answer = Message(role="assistant", content="<answer>7</answer>")
    demonstration = begins.demonstration(
        Demonstration.make(problem=problem.id, messages=[*problem.prompt, answer], split="train")
    )
    pair = begins.pair(
        PreferencePair.make(
            prompt=problem.prompt,
            chosen="<answer>7</answer>",
            rejected="8",
            source="x",
            problem=problem.id,
            split="train",
        )
    )
    assert not begins.as_written
    shows = constant(files("env")[name], "TOOLS", "") == "draw"
    for renderer in [seeing()] if shows else renderers():
        with pytest.raises(Heard) as heard:
            Player(sampler=Listening(), renderer=renderer, envs={name: env}, tools=tools, max_tokens=10**6).play(
                [problem], 1
            )
        prompt_ids = heard.value.args[0][0]
        assert told in renderer.tokenizer.decode(prompt_ids[prompt_ids >= 0])  # below 0: a part of a picture
        for row in (demonstration_row(renderer, demonstration.messages, 0.0), pair_rows(renderer, [pair], 10**6)[0][0]):
            np.testing.assert_array_equal(row.ids, np.concatenate([prompt_ids, renderer.turn(answer.content)]))


def test_what_a_program_plays_is_left_as_it_is_stored():
    """It begins with what the program asks, which nobody knows before: no program is started to find out."""
    problem = Problem.make(prompt="x", answer="a", verifier="exact", family="f", env="program", split="train")
    begins = Opening({"program": find("env", "program")(command="cmd")}, {}, {problem.id: problem})
    demonstration = Demonstration.make(
        problem=problem.id, messages=[*problem.prompt, Message(role="assistant", content="a")], split="train"
    )
    assert begins.demonstration(demonstration) == demonstration and begins.as_written == 1
    with pytest.raises(ValueError, match="played by a program .* can only be played"):
        opening(begins.envs["program"], problem, {})


def test_what_is_about_no_known_problem_stays_as_it_is_and_is_counted():
    env, problem, tools = played("single", "Be brief.")
    begins = Opening({"single": env}, tools, {problem.id: problem})
    other = Demonstration.make(problem="", messages=[Message(role="user", content="hello")], split="train")
    changed = Demonstration.make(problem=problem.id, messages=[Message(role="user", content="hello")], split="train")
    assert [begins.demonstration(d) for d in (other, changed)] == [other, changed] and begins.as_written == 2


def test_a_pair_in_the_middle_of_a_conversation_keeps_its_turns():
    env, problem, tools = played("single", "Be brief.")
    begins = Opening({"single": env}, tools, {problem.id: problem})
    more = (Message(role="assistant", content="hm"), Message(role="tool", content="go on"))
    pair = PreferencePair.make(
        prompt=(*problem.prompt, *more), chosen="a", rejected="b", source="x", problem=problem.id, split="train"
    )
    assert begins.pair(pair).prompt == (Message(role="system", content="Be brief."), *problem.prompt, *more)
    assert begins.pair(pair).id == pair.id
