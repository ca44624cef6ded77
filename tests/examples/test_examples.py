"""The examples run, learn, and stay short enough to be read at once."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from tasks.core.paths import CODE, PACKAGES

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


def imported(path):
    """(module, name) of everything that an example takes from our packages, and of what its docstrings tell to call."""
    text = path.read_text(encoding="utf-8")
    out = set(re.findall(r"`((?:synth|training)[.\w]+)\.(\w+)\(", text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            assert not any(a.name.split(".")[0] in PACKAGES for a in node.names), "write from MODULE import NAME"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            out |= {(node.module, a.name) for a in node.names}
    return out


def test_the_public_names_are_those_that_the_examples_import():
    page = (CODE / "docs/recipes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| (`.*`) \|", page.partition("## The same from Python")[2], re.M)
    listed = [(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)]
    assert len(listed) == len(set(listed)) and set(listed) == set().union(*map(imported, FILES))
    for module, name in listed:
        assert callable(getattr(importlib.import_module(module), name)), f"{module}.{name}"
