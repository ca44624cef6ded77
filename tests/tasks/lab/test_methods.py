"""What recipes stand on beside pieces: critic, greedy answers, group_transforms at a real table, budgets, corrupted contexts;
worlds and evidence."""

import copy
import json
import re
import threading
from collections import Counter
from functools import partial

import numpy as np
import pytest
import tiny
import torch

from synth.types import Problem, Sampling, Scored
from tasks.core.at_rest import files_at_rest
from tasks.planning import pieces
from training.env.single import Single
from training.learner.learner import Learner, Optim, score, token_stats
from training.learner.pack import Row, pack, rollout_rows
from training.model.render import Renderer
from training.rl.advantage.gae import gae, lambda_sums
from training.rl.advantage.remax import remax
from training.rl.advantage.rloo import rloo
from training.rl.critic import Critic, ValueModel, value_stats
from training.rl.curriculum.uniform import uniform
from training.rl.experience import Experience
from training.rl.objective import PolicyObjective
from training.rl.group_transform.posterior import posterior
from training.rl.observation.divergence import divergence
from training.rl.observation.effective_rank import effective_rank, rank_of
from training.rl.observation.greedy import greedy
from training.rl.observation.reference_answer import reference_answer
from training.rl.observation.regions import regions
from training.rl.observation.votes import VOTES, votes
from training.rl.policy_loss.policy_gradient import policy_gradient
from training.rl.ratio.token import token
from training.rl.reward.overlong import overlong
from training.rl.rollout_services import RolloutServices
from training.rl.value_loss.squared import squared
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Group


def problems(n=3):
    fixed = {"answer": "5", "verifier": "exact", "env": "single", "split": "train"}
    return [Problem.make(prompt=f"Solve {i}", family=f"f{i % 2}", **fixed) for i in range(n)]


@pytest.fixture(scope="module")
def player():
    model = tiny.build(init_range=0.2)
    renderer = Renderer(tiny.tokenizer())
    return Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"single": Single(0.0, "")},
        sampling=Sampling(temperature=1.0, max_tokens=6),
        max_tokens=120,
    )


def critic(model, **more):
    learner = Learner(ValueModel(copy.deepcopy(model)), Optim(lr=1e-2, warmup=0, decay="constant"), read=value_stats)
    return Critic(learner=learner, loss=squared, **more)


# --- critic -----------------------------------------------------------------------------------------------------------------------------


def test_lambda_sums_are_the_definition():
    rng = np.random.default_rng(0)
    r, v = rng.standard_normal(6), rng.standard_normal(6)
    later = np.append(v[1:], 0.0)
    delta = r + 0.9 * later - v
    want = [sum((0.9 * 0.7) ** (k - t) * delta[k] for k in range(t, 6)) for t in range(6)]
    assert lambda_sums(r, v, 0.9, 0.7) == pytest.approx(want)
    assert lambda_sums(r, v, 1.0, 1.0) + v == pytest.approx(np.cumsum(r[::-1])[::-1]), (
        "with lambda 1 the return is what came"
    )


def test_a_critic_begins_at_nothing_learns_its_returns_and_resumes(player):
    groups = player.play(problems(), 4, 1)
    one = critic(player.sampler.model)
    valued = one.estimate(groups)
    assert all((r.each("value") == 0).all() for g in valued for r in g.rollouts)
    rewards = [np.array([1.0, 0.0, 1.0, np.nan])] * 3
    losses = []
    for _ in range(60):
        valued = one.estimate(groups)
        losses.append(one.learn(valued, rewards)["critic_loss"])
    assert losses[-1] < 0.25 * losses[0]
    two = critic(player.sampler.model)
    two.load_state(copy.deepcopy(one.state()))
    a, b = (c.estimate(groups) for c in (one, two))
    assert all(
        np.array_equal(x.each("value"), y.each("value")) for g, h in zip(a, b) for x, y in zip(g.rollouts, h.rollouts)
    )


def test_values_speak_of_the_token_before_it_is_written(player):
    """The value at the first token of the answer depends on the prompt alone."""
    groups = player.play(problems(1), 4, 2)
    one = critic(player.sampler.model)
    torch.nn.init.normal_(one.learner.model.value.weight, generator=torch.Generator().manual_seed(0))
    first = [r.each("value")[0] for r in one.estimate(groups)[0].rollouts]
    assert first == pytest.approx([first[0]] * 4, abs=1e-5) and first[0] != 0
    assert len({round(float(r.each("value").sum()), 4) for r in one.estimate(groups)[0].rollouts}) > 1


def test_while_the_critic_warms_up_the_policy_gets_no_batch(player):
    source = Experience(
        problems=problems(),
        player=player,
        advantage=partial(gae, whiten=False),
        curriculum=uniform,
        prompts_per_step=2,
        samples_per_prompt=2,
        critic=critic(player.sampler.model, warmup=1),
        max_unscorable=1.0,
    )
    batches, metrics = source(0)
    assert list(batches) == [] and "critic_loss" in metrics
    batches, _ = source(1)
    assert all("value" in b.columns for b in batches)


# --- what is known beside rollouts
# ----------------------------------------------------------------------------------------------------


def test_the_greedy_answer_is_the_likeliest_and_is_never_trained_on(player):
    posed = problems(2)
    groups = greedy(player, player.play(posed, 2, 3), posed, (3,))
    again = greedy(player, player.play(posed, 2, 4), posed, (9,))
    for g, h in zip(groups, again):
        assert [s.ids.tolist() for s in g.greedy.segments] == [s.ids.tolist() for s in h.greedy.segments], (
            "no seed moves it"
        )
    rows = rollout_rows(groups, remax(groups, [g.rewards for g in groups], {}, np.random.default_rng(0)))
    assert len(rows) == 4


def test_the_belief_in_the_reference_answer_is_that_of_a_whole_pass(player):
    posed = problems(1)
    table = RolloutServices(player=player)
    told = table.say(posed[0], ["12 <answer>9</answer>"], "g")
    (group,) = reference_answer(player, [Group(id="g", rollouts=(told,))], posed, ())
    parts = group.rollouts[0].score.parts
    encode = player.renderer.encode
    for name, before in (("reference", encode("12 ")), ("reference_bare", encode(""))):
        ids = np.concatenate([told.segments[0].ids, before, encode("<answer>5</answer>")])
        start = len(told.segments[0].ids) + len(before) + len(encode("<answer>"))
        row = pack([Row(ids=ids, trainable=np.arange(len(ids)) >= start)])
        want = score(player.sampler.model, row).logp.exp()[row.trainable].mean()
        assert parts[name] == pytest.approx(float(want), rel=1e-4)


def test_a_thought_that_was_hinted_at_is_weighed_by_the_plain_prompt(player):
    posed = problems(1)
    (group,) = player.play(posed, 3, 4)
    (told,) = posterior([group], RolloutServices(player=player, seed=(1,)), {}, np.random.default_rng(0))
    assert [r.problem for r in told.rollouts] == [posed[0]] * 3
    assert all(r.info["off_policy"] and np.isfinite(r.score.parts["log_ratio"]) for r in told.rollouts)
    assert any(abs(r.score.parts["log_ratio"]) > 1e-3 for r in told.rollouts), "the hint moves the policy"
    (same,) = posterior([group], RolloutServices(player=player, seed=(1,)), {}, np.random.default_rng(0), hint="")
    assert [r.score.parts["log_ratio"] for r in same.rollouts] == pytest.approx([0.0] * 3, abs=1e-4)


def test_the_policy_votes_on_answers_alone(player):
    table, posed = RolloutServices(player=player), problems(1)
    told = tuple(table.say(posed[0], [text], "g") for text in ("<answer>5</answer>", "no answer"))
    (group,) = votes(player, [Group(id="g", rollouts=told)], posed, (3,))
    share, none = (r.score.parts["votes"] for r in group.rollouts)
    assert 0 <= share <= 1 and share * VOTES == round(share * VOTES) and none == 0
    assert votes(player, [Group(id="g", rollouts=told)], posed, (3,))[0].rollouts[0].score == group.rollouts[0].score


@pytest.mark.parametrize("r", [1, 3, 8])
def test_the_effective_rank_of_orthogonal_directions_is_their_number(r):
    assert rank_of(torch.eye(16)[:r]) == pytest.approx(r, abs=1e-6)


def test_a_product_of_three_factors_has_a_rank_below_three(player):
    g = torch.Generator().manual_seed(0)
    assert 2.5 < rank_of(torch.randn(50, 3, generator=g) @ torch.randn(3, 20, generator=g)) < 3
    groups = effective_rank(player, player.play(problems(1), 3, 5), problems(1), (), stride=2)
    assert all(r.score.parts["rank"] >= 1 for r in groups[0].rollouts if isinstance(r.score, Scored))


def test_regions_are_tags_working_and_what_stands_within_tags(player):
    told = RolloutServices(player=player).say(problems(1)[0], ["12 + 3 <answer>58</answer>"], "g")
    (group,) = regions(player, [Group(id="g", rollouts=(told,))], problems(1), ())
    (turn,) = [s for s in group.rollouts[0].segments if s.role == "model"]
    parts = {1.0: "", 2.0: "", 4.0: ""}
    for token_id, code in zip(turn.ids[:-1], turn.extras["region"][:-1], strict=True):
        parts[float(code)] += player.renderer.tokenizer.decode([int(token_id)])
    assert parts == {1.0: "<answer></answer>", 2.0: "12 + 3 ", 4.0: "58"} and turn.extras["region"][-1] == 1


def test_where_rollouts_agree_nothing_diverges(player):
    (problem,) = problems(1)
    table = RolloutServices(player=player)
    told = [table.say(problem, [f"<answer>{x}</answer>"], "g") for x in ("5", "7", "7")]
    (group,) = divergence(player, [Group(id="g", rollouts=tuple(told))], [problem], ())
    d = [r.each("divergence") for r in group.rollouts]
    assert d[0][:2] == pytest.approx([0.0, 0.0], abs=1e-6), "the same text has the same distributions"
    assert max(x.max() for x in d) == pytest.approx(1.0) and d[1] == pytest.approx(d[2])


# --- group_transforms at a real table
# ------------------------------------------------------------------------------------------------------------


def test_what_is_told_has_the_policys_own_log_probs_and_the_environments_score(player):
    table, (problem, *_) = RolloutServices(player=player), problems()
    right, wrong = table.say(problem, ["<answer>5</answer>"], "g"), table.say(problem, ["<answer>6</answer>"], "g")
    assert (right.score.value, wrong.score.value) == (1.0, 0.0) and right.off_policy
    batch = pack(rollout_rows([Group(id="g", rollouts=(right,))], [[1.0]]))
    logp = token_stats(player.sampler.model, batch).logp
    torch.testing.assert_close(
        logp[batch.trainable].detach(), batch.columns["sampling_logp"][batch.trainable], atol=1e-5, rtol=1e-5
    )
    assert batch.columns["off_policy"].tolist() == [1.0]


def test_an_opening_is_given_and_never_trained_on(player):
    (group,) = [RolloutServices(player=player).play(problems(1)[0], 2, "g", opening="<answer>5")]
    for r in group.rollouts:
        assert player.renderer.decode(r.segments[0].ids).endswith("<answer>5") and r.segments[0].role == "env"
        assert r.info["messages"][-1].content.startswith("<answer>5"), "the environment reads the whole turn"


def test_a_thought_is_the_tokens_before_the_marker(player):
    told = RolloutServices(player=player).say(problems(1)[0], ["12 + 3 <answer>5</answer>"], "g")
    text, n = RolloutServices(player=player).until(told, "<answer>")
    assert text == "12 + 3 " and player.renderer.decode(told.segments[1].ids[:n]) == text
    assert RolloutServices(player=player).until(told, "<search>") == ("", 0)


# --- the step
# --------------------------------------------------------------------------------------------------------------------------


def source(player, **more):
    knobs = dict(
        problems=problems(), player=player, advantage=rloo, curriculum=uniform, prompts_per_step=2, samples_per_prompt=2
    )
    return Experience(**{**knobs, "max_unscorable": 1.0, **more})


def test_the_same_piece_twice_in_a_list_has_two_states(player):
    def shaped(groups, rewards, state, rng, *, add):
        state["sum"] = state.get("sum", 0) + add
        return rewards

    experience = source(player, rewards=[partial(shaped, add=1), partial(shaped, add=10)])
    for piece in experience.rewards:
        piece.piece = "reward/shaped"
    experience.__post_init__()
    experience(0)
    assert experience.pieces["reward/shaped"]["sum"] == 1 and experience.pieces["reward/shaped#2"]["sum"] == 10


def test_a_budget_bounds_the_turns_of_its_step(player):
    experience = source(player, budget=lambda step: 2 + step)
    for step in (0, 2):
        experience(step)
        assert max(r.n_model for g in experience.groups for r in g.rollouts) <= 2 + step


def test_chance_is_drawn_once_for_the_step_and_repeats(player):
    bonus = partial(overlong, max_length=4, cache=3)
    runs = [
        list(source(player, needs=frozenset({"chance"}), rewards=[bonus], advantage_only=False)(0)[0]) for _ in range(2)
    ]
    assert runs[0] and torch.equal(runs[0][0].columns["chance"], runs[1][0].columns["chance"])
    assert len(runs[0][0].columns["chance"].unique()) > 5


def test_a_corrupted_context_changes_what_the_policy_expects_and_nothing_else(player):
    batch = pack(rollout_rows(player.play(problems(2), 2, 6), [[1.0, -1.0], [1.0, -1.0]]))
    batch.add("chance", torch.rand(len(batch.ids), generator=torch.Generator().manual_seed(0)), "token")
    regulariser = pieces.bind("regulariser", {"piece": "perception", "ratio": 0.6})
    objective = PolicyObjective(
        ratio=token,
        policy_loss=policy_gradient,
        regularisers=[regulariser],
        policy=player.sampler.model,
    )
    before = batch.ids.clone()
    objective.prepare(batch)
    assert torch.equal(batch.ids, before)
    assert not (batch.columns["corrupt"] & batch.trainable).any()
    moved = (batch.columns["corrupted"] - token_stats(player.sampler.model, batch).logp.detach())[batch.trainable].abs()
    assert moved.max() > 1e-3
    batch.add("chance", torch.ones(len(batch.ids)), "token")
    objective.prepare(batch)
    same = batch.columns["corrupted"] - token_stats(player.sampler.model, batch).logp.detach()
    assert same.abs().max() < 1e-5, "nothing drawn, nothing changed"


# --- worlds, protocols, evidence
# -------------------------------------------------------------------------------------------------------


def test_no_two_worlds_have_one_name():
    """The second would hide the first: its protocols would be run in another world without a word."""
    from tasks.lab import arena, clip_worlds, episodes, picture_worlds, registry, starts

    named = [registry.places(), starts.NAMES, arena.WORLDS, episodes.WORLDS, clip_worlds.WORLDS, picture_worlds.TASKS]
    again = {name for name, n in Counter(name for names in named for name in names).items() if n > 1}
    functions = [f.__name__ for module in vars(registry).values() for f in getattr(module, "WORLDS", ())]
    again |= {name for name, n in Counter(functions).items() if n > 1}
    assert not again, f"worlds of one name: {sorted(again)}"


@files_at_rest()
def test_every_protocol_resolves_and_names_what_its_world_measures():
    from pathlib import Path

    from tasks.lab import (
        answer_worlds,
        arena,
        clip_worlds,
        episodes,
        picture_worlds,
        registry,
        solution_worlds,
        starts,
        worlds,
    )
    from tasks.lab.behaviour import SMALL, WHERE, knobs_of, merged, protocol_of
    from tasks.planning.resolve import overlaid, read_recipe, yaml_files

    of_pairs = registry.places()
    small = {**arena.WORLDS, **episodes.WORLDS, **clip_worlds.WORLDS, **picture_worlds.TASKS, **of_pairs}
    # Pairs of a policy's own answers to a task, and decoders of it.
    answered = [world.__name__ for module in (solution_worlds, answer_worlds) for world in module.WORLDS]
    of_tasks = {*starts.NAMES, *clip_worlds.WORLDS, *picture_worlds.NAMES, *answered}

    protocols = [(n, where) for n in yaml_files("recipes") for where in WHERE if read_recipe(n).get(where)]
    assert len(protocols) >= 220 and sum(where == "on_task" for _, where in protocols) >= 50
    for name, where in protocols:
        p = protocol_of(name, where)
        assert p["task"] in (of_tasks if where == "on_task" else small) and len(p["claim"]) > 30
        if where == "on_task":
            assert p["seeds"] >= 8 and p["against"] != "base", f"{name}: eight seeds and a rival"
        if p["task"] in of_pairs or "prefer" in p["both"]:  # changes are by stage
            for recipe, changes in ((name, p["set"]), (p["against"], p["against_set"])):
                worlds.plans("" if recipe == "base" else recipe, merged(p["both"], changes), p["steps"])
            continue
        knobs_of(name, overlaid(SMALL, merged(p["both"], p["set"])), Path("params.yaml"))
        if p["against"] != "base" and p["against_set"]:
            knobs_of(p["against"], overlaid(SMALL, merged(p["both"], p["against_set"])), Path("params.yaml"))


def test_evidence_speaks_of_the_protocol_that_stands_in_the_recipe():
    from tasks.lab.behaviour import WHERE, evidence_path, protocol_of, summary
    from tasks.planning.resolve import yaml_files

    for where, path in ((w, p) for w in WHERE for p in sorted(evidence_path("grpo", w).parent.glob("*.json"))):
        evidence = json.loads(path.read_text())
        name = evidence["recipe"]
        assert name == path.stem and name in yaml_files("recipes")
        changed = f"the protocol of {name} was changed after it was run: espalier check {name} --behaviour --record"
        assert evidence["protocol"] == protocol_of(name, where), changed
        again = summary([v["this"] - v["against"] for v in evidence["values"]])
        assert evidence["effect"] == pytest.approx(again) and len(evidence["values"]) == evidence["protocol"]["seeds"]
        low, high, margin = evidence["effect"]["low"], evidence["effect"]["high"], evidence["protocol"].get("margin", 0)
        assert evidence["holds"] == (low > -margin if evidence["protocol"]["direction"] == "higher" else high < margin)


def test_new_evidence_has_the_digest_of_the_code_that_ran(tmp_path, monkeypatch):
    from tasks.core.errors import UserError
    from tasks.lab import behaviour
    from tasks.lab.behaviour import WHERE, evidence_path

    for path in (p for w in WHERE for p in evidence_path("grpo", w).parent.glob("*.json")):
        code = json.loads(path.read_text()).get("code")
        assert code and re.fullmatch("[0-9a-f]{16}", code), f"{path}: espalier check {path.stem} --behaviour --record"
    monkeypatch.setattr(behaviour, "evidence_path", lambda name, where: tmp_path / "x.json")
    with pytest.raises(UserError, match="no digest of the code"):
        behaviour.write({"recipe": "grpo", "protocol_digest": "0"})
    assert not (tmp_path / "x.json").exists()


def test_the_kind_of_evidence_is_no_part_of_what_runs(tmp_path, monkeypatch):
    """A protocol that says what kind it is has the digest that it had before, so it is no second look."""
    from tasks.lab.behaviour import kind_of, protocol_of

    (tmp_path / "recipes").mkdir()
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    text = "claim: x, task: mixed, metric: pass1, direction: higher"
    for name, more in (("with", ", kind: weak"), ("without", "")):
        (tmp_path / f"recipes/{name}.yaml").write_text(f"id: {name}\nbehaviour: {{{text}{more}}}\n")
    (tmp_path / "recipes/tested.yaml").write_text("id: tested\nshown: {it is equal: 'tests/x.py::test_x'}\n")
    assert protocol_of("with") == protocol_of("without") and "kind" not in protocol_of("with")
    assert [kind_of(n) for n in ("with", "without", "tested", "grpo")] == ["weak", "", "conformance", "tautological"]


def test_a_recipe_that_samples_ahead_learns_and_is_measured_with_what_it_learned():
    """The player of a world has a copy of the weights then, which is that of the policy at the end."""
    from tasks.lab import behaviour

    seen = {}
    for name in ("base", "asyncflow"):
        for metric in ("right", "pass1"):
            measures = behaviour.train(
                "mixed", name, {"asynchrony": {"piece": "one_off"}}, 12, 101, sampled=metric == "pass1"
            )
            seen[name, metric] = measures[metric]
    assert (
        seen["asyncflow", "right"] > seen["base", "right"] and seen["asyncflow", "pass1"] > seen["base", "pass1"] + 0.05
    ), seen
    assert not [t for t in threading.enumerate() if t.name == "sampler"]


def test_the_interval_is_students():
    from tasks.lab.behaviour import summary

    s = summary([1.0, 2.0, 3.0, 4.0])
    half = 3.1824463 * np.std([1, 2, 3, 4], ddof=1) / 2  # t of 3 degrees of freedom at 0.975
    assert (s["mean"], s["low"], s["high"]) == pytest.approx((2.5, 2.5 - half, 2.5 + half))


def test_a_malformed_protocol_is_one_sentence(tmp_path, monkeypatch):
    from tasks.core.errors import UserError
    from tasks.lab.behaviour import protocol_of

    own = tmp_path / "recipes"
    own.mkdir(parents=True)
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    for text, message in (
        ("metrik: pass1", "did you mean 'metric'"),
        ("metric: pass2, direction: higher", "did you mean 'pass"),
        ("metric: pass1, direction: up", "higher"),
        ("metric: pass1, direction: higher, margin: -1", "0 or more"),
        ("metric: pass1, direction: higher, kind: substantial", "did you mean 'substantive'"),
        ("metric: pass1, direction: higher, kind: conformance", "substantive, tautological, weak"),
    ):
        (own / "mine.yaml").write_text(f"id: mine\nbehaviour: {{claim: x, task: mixed, {text}}}\n")
        with pytest.raises(UserError, match=re.escape(message)):
            protocol_of("mine")


def test_impossible_combinations_are_refused_with_an_alternative(tmp_path):
    from tasks.core.errors import UserError
    from tasks.lab.behaviour import knobs_of

    for changes, message in (
        (
            {"advantage": {"piece": "gae"}},
            "needs value, which is there only where rl.critic.loss is set: set it to one of cross_entropy",
        ),
        ({"policy_loss": {"piece": "covariance"}, "ratio": {"piece": "sequence"}}, "use token"),
        (
            {"samples_per_prompt": 1, "advantage": {"piece": "grpo"}},
            "set rl.samples_per_prompt to 2 or more, or choose rl.advantage among",
        ),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            knobs_of("", changes, tmp_path / "params.yaml")
