"""The examples run, learn, and stay short enough to be read at once."""

import importlib.util
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def example(name):
    spec = importlib.util.spec_from_file_location(name, next(f for f in FILES if f.stem == name))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_grpo_raises_the_reward():
    rewards = example("grpo").main(steps=15)
    assert len(rewards) == 15 and sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1


def test_dpo_prefers_the_chosen_answers():
    curve = example("dpo").main(steps=8)
    assert curve[0]["loss"] == pytest.approx(0.6931, abs=1e-3)  # ln 2: policy and reference are the same model
    assert curve[-1]["accuracy"] == 1.0 and curve[-1]["margin"] > 2


def test_an_environment_of_ones_own():
    module = example("own_environment")
    env = module.SecondChance()
    state, messages = env.start(module.PROBLEMS[3], {})
    assert messages[-1].content == "After 3?"
    told, over, score = env.step(state, "2")
    assert (told[0].content, over, score) == ("No. Try again.", False, None)
    assert env.step(state, "4")[1:] == (True, module.Scored(value=0.5, parts={"answers": 2}))
    rewards = module.main(steps=12)
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.15


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100
