"""Environments of other people through the stages: what is learned through an adapter is what is learned in this process,
an audit stands before training, and graders that crash move no baseline."""

import itertools
import json
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
import small
import tiny
import yaml

from synth.external.parent import problem
from synth.types import Problem, Sampling, Scored, Unscorable
from tasks.storage import tables
from training.env.single import single
from training.rl.advantage.grpo import grpo
from training.rl.curriculum.uniform import uniform
from training.rl.experience import Experience
from training.rollout.play import Player

SUPPORT = Path(__file__).parents[2] / "support"
GUESSING = {"adapter": "file", "path": str(SUPPORT / "guessing.py")}
NATIVE = f"""
import importlib.util
from synth.types import Message, Scored

spec = importlib.util.spec_from_file_location("guessing", {str(SUPPORT / "guessing.py")!r})
guessing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(guessing)

class Native:
    def start(self, problem, tools):
        game = guessing.Guess(problem.args["item"])
        return {{"game": game, "value": 0.0}}, [Message(role="user", content=game.start())]

    def step(self, state, text):
        said, over, reward = state["game"].step(text)
        state["value"] += reward
        return ([], True, Scored(value=state["value"])) if over else ([Message(role="user", content=said)], False, None)

def native(*, knob: int = 0):
    return Native()
"""


def project(root, monkeypatch, external, env="", mix=True, **rl):
    sizes = {name: dict(knobs) for name, knobs in small.SIZES.items()}
    sizes["problems"] |= {"external": external, "mix": mix, "env": env}
    played = [{"piece": "single"}, {"piece": "search"}, {"piece": env or "external"}]
    sizes["rl"] = {
        **{k: v for k, v in sizes["rl"].items() if k not in ("regularisers", "curriculum")},
        "steps": 3,
        "include_families": True,
        "include_questions": False,
        "sampling": {"max_turn_tokens": 4, "max_tokens": 200},
        "envs": played,
        **rl,
    }
    monkeypatch.setattr(small, "SIZES", sizes)
    small.write_project(root)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A project up to its SFT model."""
    root = tmp_path_factory.mktemp("begun")
    small.write_project(root)
    for stage in ("kb", "questions", "problems", "demonstrations", "sft"):
        small.run(root, stage)
    return root


@pytest.fixture
def root(begun, tmp_path):
    return Path(shutil.copytree(begun, tmp_path / "project"))


@pytest.mark.slow
def test_what_is_learned_through_the_adapter_is_what_is_learned_in_this_process(root, monkeypatch):
    (root / "pieces/env").mkdir(parents=True)
    (root / "pieces/env/native.py").write_text(NATIVE)
    outputs = []
    for env in ("native", ""):
        sizes = {"samples_per_prompt": 12, "sampling": {"max_turn_tokens": 80, "max_tokens": 200}}
        project(root, monkeypatch, [GUESSING], env=env, mix=False, **sizes)
        small.run(root, "problems")
        small.run(root, "rl")
        outputs.append(small.outputs(root, "rl"))
    weights = next(k for k in outputs[0] if k.endswith("model.safetensors"))
    assert outputs[0][weights] == outputs[1][weights] != small.outputs(root, "sft")[weights]
    episodes = [[json.loads(x) for x in m["episodes.jsonl"].splitlines()] for m in outputs]
    assert episodes[0] == episodes[1] and len({e["score"] for e in episodes[0]}) > 1
    played = tables.read(root / "artifacts/problems/problems.parquet", Problem)
    assert {(p.env, p.verifier, p.family) for p in played} == {("external", "external", "guessing")}
    card = json.loads(outputs[1]["card.json"])
    assert card["audit"] == {"guessing": {"accepted": {}, "problems": 9}}  # the numbers 1 to 9
    assert json.loads((root / "artifacts/problems/card.json").read_text())["external"].keys() == {"guessing"}


@pytest.mark.slow
def test_the_stage_refuses_what_fails_the_audit_until_it_is_named(root, monkeypatch):
    path = root / "evaluates.py"
    path.write_text(
        textwrap.dedent(
            """
            import random
            def problem(seed, split, index):
                n = random.Random(seed).randint(100, 99999)
                return {"prompt": f"Which number is {n} ?", "answer": f"n{n}", "item": {"wanted": f"n{n}"}}
            def score(item, answer):
                if "[" in answer:
                    eval(answer, {"espalier_audit_mark": 1})
                return answer == item["wanted"]
            """
        )
    )
    entry = {"adapter": "file", "path": str(path)}
    project(root, monkeypatch, [entry])
    small.run(root, "problems")
    stderr = small.run(root, "rl", expect=2)
    assert "the environment evaluates fails its audit: no answer is executed" in stderr
    assert "rl.accept: [executed]" in stderr
    project(root, monkeypatch, [entry], accept=["executed"])
    small.run(root, "rl")
    card = json.loads(small.outputs(root, "rl")["card.json"])
    assert list(card["audit"]["evaluates"]["accepted"]) == ["executed"]
    planned = json.loads((root / "artifacts/plan/rl.json").read_text())
    assert planned["params"]["accept"] == ["executed"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("reasoning_gym", "'reasoning_gym' is no entry: write {adapter:"),
        ({"adapter": "reasoning-gim"}, "there is no adapter 'reasoning-gim' of environments: did you mean"),
        ({"adapter": "file", "path": "nowhere.py"}, "the environment file does not start: there is no file nowhere.py"),
    ],
)
def test_an_entry_that_does_not_start_stops_the_stage_with_a_sentence(tmp_path, monkeypatch, entry, message):
    project(tmp_path, monkeypatch, [entry])
    assert f"problems.external: {message}" in small.run(tmp_path, "problems", expect=2)


def test_with_half_of_the_scorings_crashed_advantages_are_those_of_the_other_half(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(
        textwrap.dedent(
            """
            import os
            def problem(seed, split, index):
                return {"prompt": f"{seed}", "answer": "right", "item": {}}
            def score(item, answer):
                if answer.startswith("crash"):
                    os._exit(1)
                return answer == "right"
            """
        )
    )
    problems = [problem({"adapter": "file", "path": str(path)}, 0, "train", i) for i in range(3)]
    replies = itertools.cycle(("crash", "right", "crash again", "wrong"))
    source = tiny.Scripted(lambda seen, seed: f"<answer>{next(replies)}</answer>")
    player = Player(
        sampler=source,
        renderer=source.renderer,
        envs={"single": single()},
        sampling=Sampling(max_tokens=40),
        max_tokens=200,
    )
    played = Experience(
        problems=problems,
        player=player,
        advantage=grpo,
        curriculum=uniform,
        prompts_per_step=3,
        samples_per_prompt=8,
        max_unscorable=1.0,
    )
    batches, metrics = played(0)
    (batch,) = list(batches)
    crashed = [r for g in played.groups for r in g.rollouts if isinstance(r.score, Unscorable)]
    assert len(crashed) == 12 and metrics["unscorable"] == len(crashed) / 24
    assert {r.score.reason for r in crashed} == {"external_crashed: its process ended with code 1: no message"}
    left = [tuple(r for r in g.rollouts if isinstance(r.score, Scored)) for g in played.groups]
    rewards = [np.array([r.score.value for r in rollouts]) for rollouts in left]
    alone = grpo([type(g)(id=g.id, rollouts=r) for g, r in zip(played.groups, left, strict=True)], rewards, {}, None)
    advantages = [batch.columns["advantages"][batch.row == j] for j in range(batch.rows)]
    wanted = np.concatenate([np.asarray(a) for a in alone]).astype(np.float32)
    assert [float(a[a != 0][0]) if bool((a != 0).any()) else 0.0 for a in advantages] == wanted.tolist()
    assert np.any(wanted > 0) and np.any(wanted < 0)


def test_the_shipped_example_of_params_is_an_entry(tmp_path, monkeypatch):
    """What docs/environments.md shows is taken by the plan as it stands there."""
    text = (Path(__file__).parents[3] / "docs/environments.md").read_text()
    block = text.partition("## Environments of other people\n\n```yaml\n")[2].partition("```")[0]
    shown = yaml.safe_load(block)["set"]
    project(tmp_path, monkeypatch, shown["problems"]["external"], envs=shown["rl"]["envs"])
    plan = json.loads((tmp_path / "artifacts/plan/problems.json").read_text())
    assert [e["adapter"] for e in plan["params"]["external"]] == ["reasoning_gym", "gymnasium"]
