"""A plan put together tool by tool: what may be said next, what a plan earns, and turns that are held to what fits."""

from dataclasses import replace

import numpy as np
import pytest
import tiny

from synth.families.tool_pipelines import tool_pipelines
from synth.types import Problem, Sampling, Scored
from synth.verify.pipeline import TOOLS, misfit
from training.env.assemble import assemble, legal
from training.env.single import single
from training.learner.learner import token_stats
from training.learner.pack import pack, rollout_rows
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

PROBLEMS = [
    p for i in range(12) if isinstance(p := tool_pipelines(0, "train", i, levels=[2, 3], env="assemble"), Problem)
]


def test_what_may_be_said_is_exactly_what_fits():
    assert legal([]) == ("upper", "mirror", "devowel", "split", "length")
    for plan in ([], ["split"], ["split", "sizes"], ["length"]):
        assert set(legal(plan)) - {"done"} == {name for name in TOOLS if not misfit([*plan, name])}
        assert ("done" in legal(plan)) == bool(plan)


def test_the_reference_earns_one_and_a_tool_that_does_not_fit_nothing():
    env = assemble()
    for p in PROBLEMS:
        state, shown = env.start(p, {})
        assert state["choices"] == legal([]) and shown[-1].content.endswith("Now: text.")
        for turn in p.lineage["demonstration"]:
            replies, over, score = env.step(state, turn)
        assert over and score.value == 1.0 and score.parts["tools"] == len(p.answer.split())
    state, _ = env.start(PROBLEMS[0], {})
    assert env.step(state, "count") == ([], True, Scored(value=0.0, parts={"fits": 0.0, "tools": 0.0}))
    state, _ = assemble(most=1).start(PROBLEMS[0], {})
    assert assemble(most=1).step(state, "upper")[1], "no more than `most` tools"
    assert "choices" not in assemble(held=False).start(PROBLEMS[0], {})[0]


def player(**more):
    model, renderer = tiny.build(init_range=0.05), Renderer(tiny.tokenizer())
    return model, Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"assemble": assemble(**more), "single": single()},
        tools={},
        max_tokens=500,
        sampling=Sampling(max_tokens=12),
    )


def test_a_model_that_knows_nothing_writes_plans_that_fit_and_learns_from_the_draws_among_what_fits():
    model, play = player()
    free = Problem.make(prompt="What is it?", answer="it", verifier="exact", family="f", split="train")
    groups = play.play([*PROBLEMS[:3], free], 3, (0,))
    for group in groups[:3]:
        for r in group.rollouts:
            assert r.score.parts.get("fits", 0.0) == 1.0 or r.score.parts.get("truncated"), r.score
    rows = rollout_rows(groups, [[np.zeros(1)[0]] * len(g.rollouts) for g in groups])
    batch = pack(rows)
    stats = token_stats(model, batch)
    np.testing.assert_allclose(
        stats.logp[batch.trainable].detach().numpy(), batch.columns["sampling_logp"][batch.trainable].numpy(), atol=2e-5
    )
    unheld = player(held=False)[1].play(PROBLEMS[:3], 3, (0,))
    assert all(r.score.value == 0.0 for g in unheld for r in g.rollouts), "without, it writes nothing that fits"


def test_a_sampler_that_cannot_hold_turns_and_another_problem_are_refused():
    _, play = player()

    class Plain:
        def __init__(self, sampler):
            self.sampler, self.version, self.end_id = sampler, 0, sampler.end_id

        def open(self, prompts, seeds):
            session = self.sampler.open(prompts, seeds)
            session.holds = False
            return session

    play = replace(play, sampler=Plain(play.sampler))
    with pytest.raises(ValueError, match="which this sampler cannot: take the engine torch"):
        play.play(PROBLEMS[:1], 1, (0,))
    with pytest.raises(ValueError, match="those of the family tool_pipelines"):
        assemble().start(Problem.make(prompt="x", answer="x", verifier="exact", family="f", split="train"), {})
    with pytest.raises(ValueError, match="a plan has 1 to 8 tools"):
        assemble(most=0)
