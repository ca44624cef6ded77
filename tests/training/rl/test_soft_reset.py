"""When progress has stopped, what is proved anew and kept, and that the policy really begins again."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tiny
import torch

from tasks.lab import toy
from test_experience import Rated, player_of, says
from synth.types import Problem, Sampling
from training.learner.learner import Learner, Optim, nll, score
from training.learner.pack import pack, rollout_row
from training.learner.world import World
from training.rl.advantage.expert_iteration import expert_iteration
from training.rl.compose import compose
from training.rl.curriculum.uniform import uniform
from training.rl.filter.spread import spread
from training.rl.group_transform.soft_reset import soft_reset, stalled, within
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.rl.ratio.token import token
from training.rl.restart import Restart
from training.rl.rollout_services import RolloutServices
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler


def test_progress_has_stopped_after_patience_windows_that_are_no_better():
    state = {}
    # windows of two: 0.2, 0.4, 0.4, 0.3: the third and the fourth are no better than the second
    seen = [stalled(state, rate, 2, 2) for rate in (0.1, 0.3, 0.4, 0.4, 0.5, 0.3, 0.2, 0.4)]
    assert seen == [False] * 7 + [True]
    assert state == {"rates": [], "best": -1.0, "idle": 0}, "and the count begins anew"
    assert not any(stalled(state, x, 1, 1) for x in (0.0, 0.1, 0.2)) and stalled(state, 0.2, 1, 1)


def test_the_band_is_of_ranks_of_the_mean_cost():
    (group,) = toy.groups([[1] * 5], logps=[[-3.0, -1.0, -5.0, -2.0, -4.0]])
    # ranks of the costs 3, 1, 5, 2, 4 among five: 0.5, 0, 1, 0.25, 0.75
    kept = within(group.rollouts, 0.2, 0.95)
    assert [float(r.each("logp").mean()) for r in kept] == [-3.0, -2.0, -4.0]
    assert within(group.rollouts[:2], 0.2, 0.95) == list(group.rollouts[:2])


class Played(toy.RolloutServices):
    """Plays of `shown`, group by group; notes what is learned."""

    def __init__(self, problems, shown, attempt=0):
        super().__init__(problems=problems, attempt=attempt)
        self.shown, self.learned = list(shown), []

    def play(self, problem, samples, group, *, opening=""):
        self.asked.append((problem.id, samples, group))
        played = self.shown.pop(0)
        return replace(
            played, id=group, rollouts=tuple(replace(r, group=group, problem=problem) for r in played.rollouts)
        )

    def restart(self, rollouts, passes, rows, rng):
        self.learned.append((list(rollouts), passes, rows))


def test_the_shortest_right_proof_of_each_solved_problem_is_learned():
    groups = toy.groups([[1, 0], [0, 0], [1, 1]])
    # problem 0: right at 5 and at 2 tokens; problem 2: proved no more; then the step is played anew
    shown = toy.groups(
        [[1, 0, 1], [0, 0, 0], [0, 1], [1, 1], [0, 0]], lengths=[[5, 1, 2], [1] * 3, [3] * 2, [3] * 2, [3] * 2]
    )
    state, problems = {"best": 1.0}, [g.rollouts[0].problem for g in groups]
    services = Played(problems, shown)
    knobs = dict(window=1, patience=1, tries=3, passes=4, rows=7)
    out = soft_reset(groups, services, state, np.random.default_rng(0), **knobs)
    ((learned, *how),) = services.learned
    assert [(r.problem.id, r.n_model) for r in learned] == [(problems[0].id, 2)] and how == [4, 7]
    assert [a[:2] for a in services.asked] == [(problems[i].id, n) for i, n in ((0, 3), (2, 3), (0, 2), (1, 2), (2, 2))]
    assert [g.rewards.tolist() for g in out] == [[0, 1], [1, 1], [0, 0]] and [g.id for g in out] == [
        g.id for g in groups
    ]
    assert state["resets"] == 1 and state["solved"] == [problems[0].id, problems[2].id]
    again = soft_reset(groups, services, {**state, "best": 1.0}, np.random.default_rng(0), **knobs)
    assert again == list(groups) and len(services.learned) == 1, "as often as `resets` says"


def test_a_refill_is_no_step_of_its_own_and_what_has_no_score_is_no_progress():
    groups = toy.groups([[1, 0]])
    state = {"best": 1.0}
    out = soft_reset(groups, Played([], [], attempt=1), state, np.random.default_rng(0), window=1, patience=1)
    assert out == list(groups) and "rates" not in state and state["solved"], "but what it solved counts"
    nothing = toy.groups([[np.nan, np.nan]])
    assert soft_reset(nothing, Played([], []), {}, np.random.default_rng(0), window=1, patience=1) == list(nothing)


@pytest.mark.parametrize("knobs", [{"window": 0}, {"tries": 0}, {"low": 0.9, "high": 0.5}, {"high": 1.5}])
def test_knobs_without_sense_are_refused(knobs):
    with pytest.raises(ValueError, match="soft_reset: .* are numbers of 1 or more, and the band"):
        soft_reset(toy.groups([[1, 0]]), Played([], []), {}, np.random.default_rng(0), **knobs)


def told(texts):
    player = player_of(lambda seen, seed: texts[seed % len(texts)])
    problem = Problem.make(prompt="7", answer="1", verifier="exact", env="single", family="f", split="train")
    return player.play([problem], 4, 0)[0].rollouts


def cost(model, rollouts):
    batch = pack([rollout_row(r, 0.0, 0) for r in rollouts])
    return -float(score(model, batch).logp[batch.trainable].mean())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_first_weights_are_put_back_and_the_rollouts_imitated(kind):
    model = tiny.build()
    learner = Learner(model, Optim(kind=kind, lr=3e-3, warmup=2, steps=40, decay="linear"))
    sampler = TorchSampler(model=model, end_id=2, version=5)
    again = Restart(learner=learner, sampler=sampler)
    first = {k: v.clone() for k, v in model.state_dict().items()}
    good, bad = told(["<answer>1</answer>"]), told(["so so so <answer>0</answer>"])
    for _ in range(4):
        learner.step(pack([rollout_row(r, 0.0, 0) for r in bad]), nll)
    assert any(not torch.equal(v, first[k]) for k, v in model.state_dict().items())
    again([], 3, 2, np.random.default_rng(0))
    assert all(torch.equal(v, first[k]) for k, v in model.state_dict().items())
    assert not any(o.state for o in learner.optimizers) and learner.step_count == 4 and sampler.version == 6
    before = cost(model, good)
    again(good, 3, 2, np.random.default_rng(0))
    assert cost(model, good) < before - 0.1 and learner.step_count == 4, "the schedule stands where it stood"
    assert {int(s["step"]) for o in learner.optimizers for s in o.state.values() if "step" in s} == {6}, (
        "4 rows, 2 each, 3 passes"
    )


def composed(**more):
    model = tiny.build()
    source = tiny.Scripted(says(lambda i: ["0", "1"]))
    source.model = model
    player = Player(
        sampler=source,
        renderer=source.renderer,
        envs={"single": Rated(0.0, "")},
        sampling=Sampling(max_tokens=40),
        max_tokens=200,
    )
    problems = [
        Problem.make(prompt=f"{i}", answer="1", verifier="exact", env="single", family="f", split="train")
        for i in range(4)
    ]
    knobs = dict(
        policy=model,
        player=player,
        problems=problems,
        steps=4,
        optim=Optim(lr=1e-3, warmup=0),
        prompts_per_step=2,
        samples_per_prompt=4,
        curriculum=uniform,
        advantage=expert_iteration,
        ratio=token,
        policy_loss=policy_gradient,
        filters=[spread],
        refill=2,
        group_transforms=[partial(soft_reset, window=1, patience=1, tries=4)],
        needs=frozenset({"restart"}),
    )
    return compose(**knobs | more)


def test_a_step_after_a_reset_is_of_the_new_weights():
    training = composed()
    experience, learner = training.experience, training.roles["policy"]
    first = learner.copied()
    state = experience._own(experience.group_transforms[0])
    with torch.no_grad():
        for w in learner.master:
            w.add_(1.0)
    state["best"] = 1.0
    batches, metrics = experience(0)  # versions are checked in it
    assert list(batches) and state["resets"] == 1 and metrics["guide_tokens"] > 0
    assert max(float((a.detach() - b).abs().max()) for a, b in zip(learner.master, first, strict=True)) < 0.5


def test_without_the_need_there_is_no_restart_and_with_several_processes_neither():
    training = composed(needs=frozenset())
    experience = training.experience
    experience._own(experience.group_transforms[0])["best"] = 1.0
    with pytest.raises(ValueError, match="must name it, NEEDS = "):
        experience(0)
    with pytest.raises(ValueError, match="in one process: set learners to 1"):
        composed(world=World(rank=0, size=2))


def test_services_hold_the_problems_and_the_attempt():
    assert RolloutServices(player=None).attempt == 0 and RolloutServices(player=None).problems == ()
