"""The stage `preferences` asks the SFT model: which problems, how often, and what a run that died plays again."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from sealed import seal

from synth.families.countdown import countdown
from synth.families.linear_equations import linear_equations
from synth.types import Message, PreferencePair, Problem, Scored, Unscorable
from tasks.models import own_answers
from tasks.planning.settings import RolloutSampling
from tasks.runtime.stage import Stage
from tasks.storage import tables

SIZES = {"train": 3, "valid": 1, "samples": 2, "most": 2}
LIMITS = {"sampling": RolloutSampling(max_turn_tokens=8, max_tokens=64), "device": "cpu", "dtype": "float32"}
TOLD = Message(role="system", content="Answer.")


class Half:
    """A player whose odd samples are right, and whose answers to countdown cannot be scored."""

    asked: list = []

    def __init__(self, **given):
        self.envs = given["envs"]

    def play(self, problems, samples, *seed):
        self.asked.append([p.id for p in problems])
        return [SimpleNamespace(rollouts=[self.one(p, i) for i in range(samples)]) for p in problems]

    def one(self, problem, i):
        messages = (TOLD, *problem.prompt, Message(role="assistant", content=problem.answer if i % 2 else "no idea"))
        score = Scored(value=float(i % 2)) if problem.family != "countdown" else Unscorable(reason="timeout")
        return SimpleNamespace(score=score, info={"messages": messages})


@pytest.fixture
def stage(tmp_path, monkeypatch):
    folder = tmp_path / "artifacts"
    drawn = [f(3, s, i) for f in (countdown, linear_equations) for s in ("train", "valid", "test") for i in range(8)]
    drawn = list({p.id: p for p in drawn if isinstance(p, Problem)}.values())
    tables.write(folder / "problems/problems.parquet", drawn, Problem)
    tables.write(folder / "questions/problems.parquet", [], Problem)
    (folder / "sft/model").mkdir(parents=True)
    seal(tmp_path)
    for name, stub in {
        "Player": Half,
        "Renderer": lambda t: SimpleNamespace(end_id=0),
        "TorchSampler": lambda *a: None,
        "load_model": lambda *a, **k: (None, None),
    }.items():
        monkeypatch.setattr(own_answers, name, stub)
    monkeypatch.setattr(own_answers, "PART", 3)
    Half.asked = []
    return lambda: Stage("preferences", plan={"seed": 5}, root=tmp_path)


def test_pairs_of_train_and_valid_and_nothing_is_played_twice(stage):
    def single():
        return None

    envs = [partial(single)]
    envs[0].piece = "env/single"
    first = own_answers.pairs_of(stage(), None, envs, **SIZES, **LIMITS)
    pairs = [x for x in first if isinstance(x, PreferencePair)]
    assert {(p.source, p.split) for p in pairs} == {("own_answers/single", "train"), ("own_answers/single", "valid")}
    assert len(pairs) == 4 and all(p.rejected == "no idea" and p.margin > 0 for p in pairs)
    assert all(TOLD not in p.prompt for p in pairs), "what an environment says first is not stored"
    assert len(first) - len(pairs) == 4 and all(q.reason == "no_better_turn" for q in first if q not in pairs)
    assert [len(a) for a in Half.asked] == [3, 3, 2]
    assert own_answers.pairs_of(stage(), None, envs, **SIZES, **LIMITS) == first
    assert len(Half.asked) == 3, "what was played is kept until the stage is through"
