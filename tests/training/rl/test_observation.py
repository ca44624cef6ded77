"""Observations: a piece brings its own, a shared one is made once, and the trunk names none of them."""

import copy
import inspect
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiny

from synth.types import Problem, Sampling
from tasks.lab.behaviour import SMALL, knobs_of
from tasks.planning import pieces, plan
from training.env.single import Single
from training.learner.learner import Optim
from training.learner.loop import run
from training.model.render import Renderer
from training.rl import compose as trunk
from training.rl import experience, objective
from training.rl.compose import compose
from training.rl.observation import observations
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

OWN = {  # one file and one recipe
    "advantage/surprise.py": """
from dataclasses import replace
import numpy as np
from training.rl.observation import with_extra, with_parts

NEEDS = {"greedy"}

def surprise(groups, rewards, state, rng, *, scale=1.0):
    return [[scale * r.each("doubt") * r.score.parts["hard"] for r in g.rollouts] for g in groups]

def observe(player, groups, problems, seed, *, scale=1.0):
    assert [g.rollouts[0].problem for g in groups] == list(problems)
    more = player.play(problems, 2, *seed, "surprise")
    hard = [1.0 + len(m.rollouts) for m in more]
    doubt = lambda s, at: 1.0 - np.exp(s.logp)
    return [
        replace(g, rollouts=tuple(with_extra(with_parts(r, {"hard": h}), "doubt", doubt) for r in g.rollouts))
        for g, h in zip(groups, hard)
    ]
""",
    "regulariser/twice.py": """
from training.learner.reduction import live
from training.types import Terms

OBSERVES = "batch"

def twice(stats, batch, *, coef=0.1):
    return Terms(values=live(coef * (stats.logp - batch.columns["before"]), batch), denominator="tokens")

def observe(batch, logp, *, coef=0.1):
    batch.add("before", logp(batch) + coef, "token")
""",
    "curriculum/shortest.py": """
OBSERVES = "problems"

def shortest(problems, state, rng, n):
    order = sorted(range(len(problems)), key=lambda i: state["shortest"][problems[i].id])
    return [order[i % len(order)] for i in range(n)]

def observe(player, problems):
    return {p.id: len(p.prompt[0].content) for p in problems}
""",
    "recipes/mine.yaml": """
id: mine
title: A method of my own
stages:
  rl:
    advantage: {piece: surprise, scale: 2.0}
    regularisers: [{piece: twice, coef: 0.5}]
    curriculum: shortest
""",
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    for name, text in OWN.items():
        path = tmp_path / "pieces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    paths = {}
    for kind in ("advantage", "regulariser", "curriculum"):
        package = sys.modules[pieces.module(kind, pieces.files(kind).popitem()[0]).__package__]
        paths[package] = list(package.__path__)
    yield tmp_path
    for package, path in paths.items():
        package.__path__[:] = path
    for name in ("advantage.surprise", "regulariser.twice", "curriculum.shortest"):
        sys.modules.pop(f"training.rl.{name}", None)


@pytest.fixture
def player():
    renderer = Renderer(tiny.tokenizer())
    return Player(
        sampler=TorchSampler(tiny.build(init_range=0.2), renderer.end_id),
        renderer=renderer,
        envs={"single": Single(0.0, "")},
        sampling=Sampling(temperature=1.0, max_tokens=6),
        max_tokens=120,
    )


def problems(n=3):
    fixed = {"answer": "5", "verifier": "exact", "env": "single", "split": "train", "family": "f"}
    return [Problem.make(prompt=f"Solve {'x' * (n - i)}", **fixed) for i in range(n)]


def composed(player, recipe, **changes):
    """A recipe put together as the stage `rl` does, for a tiny policy."""
    small = {**SMALL, "prompts_per_step": 2, "samples_per_prompt": 2, **changes}
    knobs, needs = knobs_of(recipe, small, Path("params.yaml"))
    given = {
        k: knobs[k] for k in set(knobs) & set(inspect.signature(compose).parameters) - {"device", "steps", "judge"}
    }
    critic = knobs["critic"]
    given |= {"critic": critic.loss, "critic_lambda": critic.lam, "critic_warmup": critic.warmup}
    policy = player.sampler.model
    optim = Optim(lr=1e-2, warmup=0, decay="constant")
    return compose(
        policy=policy,
        reference=copy.deepcopy(policy),
        body=partial(copy.deepcopy, policy),
        player=player,
        problems=problems(),
        needs=needs,
        seed=3,
        device="cpu",
        steps=2,
        optim=optim,
        critic_optim=optim,
        **given,
    )


def test_a_piece_of_the_users_own_brings_its_observation_in_one_file(own, player):
    (own / "params.yaml").write_text("recipe: grpo")
    sources = plan.plans(own)["rl"]["sources"]
    assert "own/advantage/surprise.py" not in sources, "the recipe is not chosen yet"
    (own / "params.yaml").write_text("recipe: mine")
    sources = plan.plans(own)["rl"]["sources"]
    assert {"own/advantage/surprise.py", "own/regulariser/twice.py", "training/rl/observation/greedy.py"} <= set(
        sources
    )
    run_parts, seen = composed(player, "mine"), []
    source = run_parts.round.source

    def watched(step):
        batches, metrics = source(step)
        seen.extend(batches := list(batches))
        return batches, metrics

    before = copy.deepcopy(run_parts.roles["policy"].model.state_dict())
    for _ in run([replace(run_parts.round, source=watched)], run_parts.roles):
        pass
    assert len(seen) == 2
    for batch in seen:
        doubt = batch.columns["doubt"][batch.trainable]
        assert (doubt > 0).all(), "an extra becomes a column"
        assert batch.columns["advantages"][batch.trainable].tolist() == pytest.approx((2.0 * 3.0 * doubt).tolist())
        assert batch.columns["before"][batch.trainable].tolist() == pytest.approx(
            (batch.columns["sampling_logp"][batch.trainable] + 0.5).tolist(), abs=1e-3
        ), "at the weights that sampled, with the recipe's knob"
    state = run_parts.experience.pieces["curriculum/shortest"]
    assert sorted(state["shortest"].values()) == [7, 8, 9]
    after = run_parts.roles["policy"].model.state_dict()
    assert any(not np.array_equal(before[k].numpy(), after[k].numpy()) for k in before)


def test_a_shared_observation_is_made_once_and_each_own_one_with_its_knobs():
    remax = [pieces.bind("advantage", {"piece": "remax"}) for _ in range(2)]
    assert [o.piece for o in observations(remax, "groups")] == ["observation/greedy"]
    assert observations(remax, "batch") == [] == observations([None, max], "groups")
    perception = pieces.bind("regulariser", {"piece": "perception"})
    assert [o.piece for o in observations([perception], "batch")] == ["observation/corrupted"]


def test_the_trunk_names_no_observation():
    """A recipe's method lives in its piece and its observation; where the data path names one, it has leaked again."""
    from tasks.stages import rl

    for part in (trunk, experience, objective, rl):
        text = Path(part.__file__).read_text()
        assert not [name for name in pieces.files("observation") if name in text], part.__name__
