"""Several policies in `rl`: each role is sampled by its own adapters, each policy learns what it would learn alone, and the
one policy that there was before is untouched."""

import copy
import json
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stand_in_vllm
import tiny
import torch

from synth.types import Message, Problem, Sampling, Scored, seed_for
from tasks.models.team import cast, load_team, roles_of
from training.env.single import single
from training.learner.learner import Learner, Optim, score
from training.learner.loop import run
from training.learner.pack import Row, pack
from training.learner.policies import Policies
from training.model.lora import adapt, save_adapters
from training.model.model import save_model
from training.rl.advantage.gae import gae
from training.rl.advantage.grpo import grpo
from training.rl.compose import compose, plays
from training.rl.curriculum.uniform import uniform
from training.rl.experience import exchanged, spoken
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.rl.ratio.token import token
from training.rl.value_loss.squared import squared
from training.rollout.engine import EngineSampler
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.rollout.vllm_engine import InProcess, settings
from training.types import Terms

LORA = {"rank": 4}
BOTH = {"asker": {"optimizer": {"lr": 2e-2}}, "teller": {"lora": {"rank": 2}}}


@dataclass(frozen=True)
class Duet:
    """Three turns in one conversation, asker, teller, asker; the asker is paid for long texts, the teller for short ones."""

    roles = ("asker", "teller")

    def start(self, problem, tools):
        return {"said": [], "speaker": "asker"}, list(problem.prompt)

    def step(self, state, text):
        state["said"].append(len(text))
        if len(state["said"]) == 3:
            a, b, c = state["said"]
            parts = {"reward_asker": float(a + c), "reward_teller": float(-b)}
            return [], True, Scored(value=float(a + b + c), parts=parts)
        state["speaker"] = self.roles[len(state["said"]) % 2]
        return [Message(role="user", content=f"so {len(state['said'])}")], False, None


def duets(n=4):
    return [
        Problem.make(prompt=f"Solve {i}", answer="1", verifier="exact", env="duet", family="f", split="train")
        for i in range(n)
    ]


def composed(policies=BOTH, *, model=None, **more) -> Any:
    model = model or tiny.build(seed=1)
    renderer = tiny.Renderer(tiny.tokenizer())
    player = Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"duet": Duet()},
        sampling=Sampling(max_tokens=6),
        max_tokens=120,
    )
    knobs = {
        "policy": model,
        "player": player,
        "problems": duets(),
        "steps": 3,
        "optim": Optim(lr=1e-2, warmup=0, decay="constant"),
        "prompts_per_step": 2,
        "samples_per_prompt": 4,
        "curriculum": uniform,
        "advantage": partial(grpo, std="none"),
        "ratio": token,
        "policy_loss": partial(policy_gradient, aggregate="tokens"),
        "seed": 5,
        "policies": policies,
        "lora": LORA if policies else {},
    }
    return compose(**{**knobs, **more})


@pytest.fixture(scope="module", autouse=True)
def live_turns():
    """A turn that ran into its limit ends an episode: here turns are short, and acted on all the same."""
    from training.rollout import conversation

    patched = pytest.MonkeyPatch()
    patched.setattr(conversation.Conversation, "live", property(lambda self: False))
    turn = conversation.Conversation.turn
    patched.setattr(conversation.Conversation, "turn", lambda self, s, t: turn(self, replace(s, stop="end"), t))
    yield
    patched.undo()


def collected(training, step=0):
    return training.experience.collect(step)


def test_a_team_that_was_saved_says_again_what_it_said(tmp_path):
    training = composed()
    list(run([training.round], training.roles))
    model = training.experience.player.sampler.model
    tokenizer = tiny.tokenizer()
    save_model(tiny.build(seed=1), tokenizer, tmp_path / "sft/model")
    for name in BOTH:
        save_adapters(model, tmp_path / "rl/policies" / name, name)
    card = {"policies": {name: {"roles": [name], "updates": 3} for name in BOTH}}
    (tmp_path / "rl/card.json").write_text(json.dumps(card))
    stage: Any = SimpleNamespace(input=lambda stage, name: tmp_path / stage / name)
    played = roles_of(stage)
    assert played == {"asker": "asker", "teller": "teller"}
    assert cast(played, {"duet": Duet(), "single": single()}) == {"": "asker", **played}
    again, _ = load_team(stage, played)

    def says(model, plays):
        player = replace(training.experience.player, sampler=TorchSampler(model, tiny.Renderer(tokenizer).end_id))
        groups = replace(player, plays=plays).play(duets(), 2, 3, "again")
        return [[s.ids.tolist() for s in r.segments] for g in groups for r in g.rollouts]

    want = says(model, played)
    assert says(again, played) == want
    assert says(again, {"asker": "teller", "teller": "asker"}) != want  # the test can see who speaks


def test_each_role_is_sampled_by_its_own_adapters_in_one_batch():
    training = composed()
    list(run([training.round], training.roles))  # the two are different by now
    team = training.roles
    for group in collected(training, 3).kept:
        for rollout in group.rollouts:
            wrote = [s for s in rollout.segments if s.role == "model"]
            assert [(s.speaker, s.policy) for s in wrote] == [(x, x) for x in ("asker", "teller", "asker")]
            for name in team:
                seen = rollout.spoken(name, name)
                assert seen is not None and seen.segments[-1].policy == name, "it ends with its own words"
                ids = seen.ids
                mine = np.concatenate([np.full(len(s.ids), s.role == "model") for s in seen.segments])
                policies = Policies.__new__(Policies)
                policies.model, policies.named = team[name].learner.model, team
                with policies.using(name):
                    logp = score(policies.model, pack([Row(ids=ids, trainable=mine)])).logp.numpy()
                with policies.using(next(n for n in team if n != name)):
                    other = score(policies.model, pack([Row(ids=ids, trainable=mine)])).logp.numpy()
                assert np.abs(logp[mine] - seen.each("logp")).max() < 1e-4
                assert np.abs(other[mine] - seen.each("logp")).max() > 1e-3


def test_rows_of_several_policies_in_a_batch_say_what_each_says_alone():
    training = composed()
    list(run([training.round], training.roles))
    sampler = training.experience.player.sampler
    prompts, names = [np.arange(5, 12)] * 4, ["asker", "teller", "asker", "teller"]
    mixed = sampler.open(prompts, [1, 2, 3, 4], policies=names).generate(Sampling(max_tokens=6))
    for i, name in enumerate(names):
        alone = sampler.open(prompts[:1], [i + 1], policies=[name]).generate(Sampling(max_tokens=6))[0]
        assert np.array_equal(alone.ids, mixed[i].ids) and np.allclose(alone.logp, mixed[i].logp, atol=1e-5)
    assert not np.allclose(
        mixed[0].logp[:1], sampler.open(prompts[:1], [1], policies=["teller"]).generate(Sampling(max_tokens=1))[0].logp
    )


def test_two_policies_learn_from_what_vllm_sampled(monkeypatch, tmp_path):
    """The whole step with vLLM's stand-in: every role speaks by its own adapters, and the learner agrees with the log-probs
    before each update."""
    stand_in_vllm.put(monkeypatch)
    model = tiny.build(seed=1)
    save_model(model, tiny.tokenizer(), tmp_path / "model")
    options = settings(max_length=120, rank=4, policies=2)
    engine = InProcess(tmp_path / "model", options, tuple(BOTH))
    renderer = tiny.Renderer(tiny.tokenizer())
    player = Player(
        sampler=EngineSampler(model, renderer.end_id, engine),
        renderer=renderer,
        envs={"duet": Duet()},
        sampling=Sampling(max_tokens=6),
        max_tokens=120,
    )
    training = composed(model=model, player=player)
    for _ in run([training.round], training.roles):
        pass
    (llm,) = stand_in_vllm.LLM.made
    assert [p.learner.step_count for p in training.roles.values()] == [3, 3]
    assert sorted(llm.adapters.values()) == ["asker-5", "teller-6"], "three versions of each"
    for group in collected(training, 3).kept:
        for rollout in group.rollouts:
            for name, one in training.roles.items():
                seen = rollout.spoken(name, name)
                mine = np.concatenate([np.full(len(s.ids), s.role == "model") for s in seen.segments])
                policies = Policies.__new__(Policies)
                policies.model, policies.named = one.learner.model, training.roles
                with policies.using(name):
                    logp = score(policies.model, pack([Row(ids=seen.ids, trainable=mine)])).logp.numpy()
                assert np.abs(logp[mine] - seen.each("logp")).max() < 1e-3


def test_one_that_learns_beside_another_has_the_bytes_of_one_that_learns_alone():
    beside = composed()
    model = tiny.build(seed=1)
    alone = composed({"asker": BOTH["asker"], "teller": {**BOTH["teller"], "optimizer": {"lr": 0.0}}}, model=model)
    del alone.experience.policies[1]  # it plays and does not learn
    for step in range(3):
        played = collected(beside, step)
        for training in (alone, beside):
            for batch in training.experience.finish(copy.deepcopy(played))[0]:
                training.round.prepare(batch)
                training.roles[batch.policy].step(batch, training.round.objective)
    one, other = alone.roles["asker"].weights, beside.roles["asker"].weights
    first = composed().roles["asker"].weights
    assert one.keys() == other.keys()
    assert any(not torch.equal(p, first[n]) for n, p in one.items())
    for name, p in one.items():
        assert torch.equal(p, other[name]), name


def test_a_policy_with_pieces_of_its_own_learns_as_where_all_have_them():
    """Asker by the pieces of all, teller by its own, on the same rollouts: each ends with the bytes that it has in a
    training in which all learn by these pieces."""
    played_by: dict[str, Any] = {
        "rewards": [halved],
        "advantage": partial(grpo, std="sample"),
        "policy_loss": partial(policy_gradient, aggregate="sequences"),
        "regularisers": [pull],
    }
    usual, all_own = composed(), composed(**played_by)
    mixed = composed({"asker": BOTH["asker"], "teller": {**BOTH["teller"], **played_by}})
    for step in range(3):
        played = collected(mixed, step)
        for training in (usual, all_own, mixed):
            for batch in training.experience.finish(copy.deepcopy(played))[0]:
                training.round.prepare(batch)
                objective = training.round.objectives.get(batch.policy, training.round.objective)
                training.roles[batch.policy].step(batch, objective)
    for name, same, other in (("asker", usual, all_own), ("teller", all_own, usual)):
        mine = mixed.roles[name].weights
        assert all(torch.equal(p, same.roles[name].weights[n]) for n, p in mine.items())
        assert any(not torch.equal(p, other.roles[name].weights[n]) for n, p in mine.items())
    assert {"piece#2 of teller", "halved of teller"} <= set(mixed.experience.pieces), "a state for each"


def test_a_round_trains_each_policy_by_its_own_objective():
    own = {"regularisers": [pull]}
    mixed = composed({"asker": BOTH["asker"], "teller": {**BOTH["teller"], **own}})
    *_, (_, _, metrics) = run([mixed.round], mixed.roles)
    assert metrics["teller/pulled"] == 1.0 and "asker/pulled" not in metrics


def test_the_passes_of_a_policy_are_those_that_its_pieces_need():
    reads = partial(pull)
    reads.needs = frozenset({"old"})  # type: ignore[attr-defined]
    of_all = partial(policy_gradient, aggregate="tokens")
    of_all.needs = frozenset()  # type: ignore[attr-defined]
    ratio = partial(token)
    ratio.needs = frozenset()  # type: ignore[attr-defined]
    given = {"asker": {"advantage": partial(grpo, std="none")}, "teller": {**BOTH["teller"], "regularisers": [reads]}}
    mixed = composed(given, needs=frozenset({"old"}), policy_loss=of_all, ratio=ratio)
    for batch in mixed.experience.finish(collected(mixed))[0]:
        mixed.round.prepare(batch)
        assert ("old" in batch.columns) == (batch.policy == "teller")


def halved(groups, rewards, state, rng):
    return [r / 2 for r in rewards]


def pull(stats, batch):
    """A further loss: the log-probs of what was said are pulled together."""
    n = batch.trainable.sum()
    values = torch.where(batch.trainable, 0.1 * stats.logp**2, 0.0)
    return Terms(values=values, denominator="tokens", metrics={"pulled": (n, n)})


def test_it_learns_what_the_adapters_of_a_model_without_policies_learn():
    beside, model = composed(), tiny.build(seed=1)
    adapt(model, LORA, seed=seed_for(5, "rl", "lora", "asker"))
    plain = Learner(model, Optim(lr=2e-2, warmup=0, decay="constant"))
    for step in range(3):
        for batch in beside.experience.finish(collected(beside, step))[0]:
            beside.round.prepare(batch)
            beside.roles[batch.policy].step(batch, beside.round.objective)
            if batch.policy == "asker":
                plain.step(batch, beside.round.objective)
    for p, q in zip(beside.roles["asker"].learner.weights, plain.weights, strict=True):
        assert torch.equal(p, q)


def test_each_is_paid_for_its_role_and_has_a_baseline_of_its_own():
    training = composed()
    played = collected(training)
    batches, metrics = training.experience.finish(played)
    by = {b.policy: b for b in batches}
    assert set(by) == set(BOTH) and metrics["asker/reward"] > 0 > metrics["teller/reward"]
    for name, batch in by.items():
        groups = spoken(played.kept, name)
        rewards = np.concatenate([g.rewards for g in groups])
        assert np.allclose(batch.columns["reward"].numpy(), rewards)
        want = np.concatenate([g.rewards - g.rewards.mean() for g in groups])
        at = batch.row_sum(batch.columns["advantages"] * batch.trainable) / batch.row_tokens
        assert np.allclose(at.numpy(), want, atol=1e-4)
        written = sum(len(s.ids) for g in played.kept for r in g.rollouts for s in r.segments if s.policy == name)
        assert int(batch.trainable.sum()) == written
    assert {"piece of asker", "piece of teller"} <= set(training.experience.pieces), "each with a state of its own"


def test_one_that_plays_both_roles_has_a_group_for_each():
    training = composed({"both": {"roles": ["asker", "teller"]}})
    played = collected(training)
    groups = spoken(played.kept, "both")
    assert [g.id for g in groups] == [g.id for g in played.kept] * 2
    (batch,) = training.experience.finish(played)[0]
    assert batch.policy == "both" and batch.rows == 2 * sum(len(g.rollouts) for g in played.kept)
    written = sum(len(s.ids) for g in played.kept for r in g.rollouts for s in r.segments if s.policy)
    assert int(batch.trainable.sum()) == written, "each token is learned once"


def test_metrics_of_each():
    training = composed()
    *_, (_, _, metrics) = run([training.round], training.roles)
    for name in BOTH:
        assert metrics[f"{name}/grad_norm"] > 0 and f"{name}/entropy" in metrics and f"{name}/reward" in metrics
    assert metrics["asker/lr"] == 2e-2 and metrics["teller/lr"] == 1e-2
    assert metrics["mismatch_kl_first"] < 1e-6
    assert not any(k.endswith("seconds") for k in metrics if "/" in k)


def test_each_has_a_critic_of_its_own_that_learns_from_its_own_pay():
    """The values of a token are those of the critic of the policy that wrote it. Beside another or alone, a critic ends
    with the same bytes; in its warm-up it alone learns."""
    how: dict[str, Any] = {
        "critic": squared,
        "critic_optim": Optim(lr=1e-2, warmup=0, decay="constant"),
        "advantage": gae,
        "body": lambda: tiny.build(seed=2),
    }
    beside, alone = composed(**how), composed(**how)
    del alone.experience.policies[1]
    for step in range(2):
        played = collected(beside, step)
        for training in (alone, beside):
            batches, metrics = training.experience.finish(copy.deepcopy(played))
            assert {b.policy for b in batches} == set(training.experience.policies)
            assert metrics["asker/critic_loss"] > 0
    assert ("teller/explained_variance" in metrics) and "critic_loss" not in metrics
    critics = [training.parts["critic of asker"].learner.weights for training in (beside, alone)]
    assert all(torch.equal(a, b) for a, b in zip(*critics, strict=True))
    assert not torch.equal(critics[0][0], next(tiny.build(seed=2).parameters()))
    values = {name: beside.parts[f"critic of {name}"].estimate(spoken(played.kept, name)) for name in BOTH}
    mean = {n: np.mean([r.each("value").mean() for g in gs for r in g.rollouts]) for n, gs in values.items()}
    assert mean["asker"] > 0 > mean["teller"], "one is paid for long texts, the other is charged for them"

    warm = composed(**how, critic_warmup=1)
    assert list(warm.experience.finish(collected(warm))[0]) == []
    assert any(p.detach().abs().max() > 0 for p in [warm.parts["critic of teller"].learner.model.value.weight])


def test_they_exchange_their_roles():
    assert exchanged({"a": "x", "b": "y"}, ["x", "y"], 1) == {"a": "y", "b": "x"}
    training = composed(exchange=2)
    for step, pioneer in ((0, "asker"), (1, "asker"), (2, "teller"), (4, "asker")):
        first = collected(training, step).kept[0].rollouts[0]
        assert next(s.policy for s in first.segments if s.role == "model") == pioneer
    spoke = {b.policy for b in training.experience.finish(collected(training, 2))[0]}
    assert spoke == set(BOTH)


@pytest.mark.parametrize(
    "policies, words",
    [
        ({"asker": {"rolls": ["x"]}, "teller": {}}, "did you mean 'roles'"),
        ({"asker": {"optimizer": {"lrr": 1}}, "teller": {}}, "did you mean 'lr'"),
        ({"asker": {"roles": ["teller"]}, "teller": {}}, "both play the role 'teller'"),
        ({"asker": {"lora": {"rank": 4, "base": "nf4"}}, "teller": {}}, "without base and merge"),
        ({"a.b": {"roles": ["asker"]}, "teller": {}}, "cannot be called"),
    ],
)
def test_policies_that_cannot_be(policies, words):
    with pytest.raises(ValueError, match=words):
        composed(policies)


def test_without_adapters_and_a_role_that_nobody_plays():
    with pytest.raises(ValueError, match="set rl.lora"):
        composed(lora={})
    with pytest.raises(LookupError, match="lets 'teller' speak, and the policies play asker"):
        collected(composed({"asker": {}}))
    assert plays({"a": {"roles": ["x", "y"]}, "b": {}}) == {"x": "a", "y": "a", "b": "b"}
