"""A tree of dialogues, its values and its pairs: what goes on from a turn holds it as it was sampled, by whoever spoke; what is
compared stood at the same place."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from test_several_policies import BOTH, composed, live_turns  # noqa: F401

from synth.types import Scored
from tasks.lab import toy
from tasks.planning.pieces import bind
from training.learner.learner import score
from training.learner.loop import run
from training.learner.pack import Row, pack, rollout_rows
from training.learner.policies import Policies
from training.rl.advantage.node_values import node_values
from training.rl.experience import spoken
from training.rl.group_transform.branches import branches
from training.rl.group_transform.dialogue_tree import _apart, dialogue_tree, turns_of
from training.rl.policy_loss.sibling_pairs import prepare
from training.rl.rollout_services import RolloutServices

TREE = bind(
    "group_transform",
    {"piece": "dialogue_tree", "expansions": 2, "branches": 2, "apart": 0.0, "tokens": 0.0, "loss": 0.0},
)


def grown():
    """Two prompts with four dialogues of three turns each and their trees, and the training that they are of."""
    training = composed(
        reference=tiny.build(seed=1),
        needs=frozenset({"reference", "old"}),
        group_transforms=[TREE],
        advantage=node_values,
        policy_loss=bind("policy_loss", {"piece": "sibling_pairs", "floor": -1e9}),
    )
    return training, training.experience.collect(0)


def test_dialogues_go_on_from_a_turn_as_it_was_sampled():
    training, collected = grown()
    team = training.roles
    for before, group in zip(collected.played, collected.kept, strict=True):
        first, added = group.rollouts[: len(before.rollouts)], group.rollouts[len(before.rollouts) :]
        assert [turns_of(r) for r in first] == [turns_of(r) for r in before.rollouts] and len(added) == 4
        for rollout in added:
            parents = [p for p in first if turns_of(p)[:1] == turns_of(rollout)[:1]]
            assert parents and rollout.turns == 3 and rollout.group == group.id
            mine, theirs = rollout.segments[1], parents[0].segments[1]
            assert np.array_equal(mine.logp, theirs.logp) and (mine.speaker, mine.policy) == ("asker", "asker")
            for name in team:  # every turn, given or sampled, is what its policy says after what its row has before
                seen = rollout.spoken(name, name)
                on = np.concatenate([np.full(len(s.ids), s.role == "model") for s in seen.segments])
                policies = Policies.__new__(Policies)
                policies.model, policies.named = team[name].learner.model, team
                with policies.using(name):
                    logp = score(policies.model, pack([Row(ids=seen.ids, trainable=on)])).logp.numpy()
                assert np.abs(logp[on] - seen.each("logp")).max() < 1e-4
        assert len({turns_of(r) for r in group.rollouts}) > len(first), "what was added says something else"


def test_a_role_is_paid_what_the_dialogue_is_worth():
    _, collected = grown()
    for group in collected.kept:
        for r in group.rollouts:
            assert r.score.parts["reward_asker"] == r.score.parts["reward_teller"] == r.score.value


def test_messages_are_readable_to_the_base():
    training = composed()
    for p in training.roles["asker"].weights.values():
        torch.nn.init.normal_(p, std=0.5)
    experience = training.experience
    group = experience.collect(0).kept[0]
    services = RolloutServices(player=experience.player)
    for rollout, read in zip(group.rollouts, services.by_base(group.rollouts), strict=True):
        on = np.concatenate([np.full(len(s.ids), s.role == "model") for s in rollout.segments])
        plain = score(tiny.build(seed=1), pack([Row(ids=rollout.ids, trainable=on)])).logp.numpy()[on]
        assert np.abs(read.each("logp") - plain).max() < 1e-4 < np.abs(rollout.each("logp") - plain).max()


def test_both_learn_from_pairs_of_their_turns():
    training, _ = grown()
    before = {name: one.snapshot() for name, one in training.roles.items()}
    for _ in run([training.round], training.roles):
        pass
    for name, one in training.roles.items():
        assert any(not torch.equal(p, before[name][n]) for n, p in one.weights.items()), name


def test_other_transforms_are_refused_beside_several_policies():
    with pytest.raises(ValueError, match="rl.group_transforms works with one policy alone"):
        composed(group_transforms=[TREE, branches])
    assert composed({}, group_transforms=[branches]) and composed(BOTH, group_transforms=[TREE])


def test_near_turns_are_not_gone_on_from_again():
    ids = lambda *x: np.array(x, dtype=np.int64).tobytes()  # noqa: E731
    assert _apart(ids(1, 2, 3, 4), ids(1, 2, 3, 4)) == 0 and _apart(ids(1, 2, 3, 4), ids(1, 3, 4)) == 0.25
    assert _apart(ids(1, 2), ids(3, 4, 5)) == 1 and _apart(ids(5, 1, 2, 3), ids(1, 2, 3)) == 0.25
    given = toy.groups([[1.0, 0.0]], turns=[[2, 2]])
    services = toy.RolloutServices(plays=[[0.5]] * 9)
    dialogue_tree(given, services, {}, np.random.default_rng(0), expansions=5, branches=1)
    assert services.asked == ["1 turns"], "all turns of the toy are one"


def test_an_unscorable_dialogue_counts_nowhere():
    given = toy.groups([[float("nan"), 1.0, 0.0]], turns=[[2, 2, 2]])
    (group,) = dialogue_tree(given, toy.RolloutServices(plays=[[1.0]]), {}, np.random.default_rng(0), expansions=1)
    assert np.isnan(group.rewards[0]) and not isinstance(group.rollouts[0].score, Scored)
    values = node_values([group], [group.rewards], {}, np.random.default_rng(0))[0]
    assert values[1][0] == pytest.approx(np.nanmean(group.rewards)) and not values[0].any()


def batch_of(training, collected, name):
    mine = spoken(collected.kept, name)
    values = node_values(mine, [g.rewards for g in mine], {}, np.random.default_rng(0))
    batch = pack(rollout_rows(mine, values))
    batch.add("old", batch.columns["sampling_logp"], "token")
    batch.add("reference", batch.columns["sampling_logp"] * 0.9, "token")
    return batch


def test_a_turn_that_several_rows_hold_counts_once():
    """The pull of a pair adds up to nothing, whoever holds the turns; turns elsewhere have none."""
    training, collected = grown()
    batch = batch_of(training, collected, "asker")
    prepare(batch, beta=0.1, gap=0.0, floor=-1e9, top=1.0)
    pull, ids = batch.columns["pull"], batch.ids
    assert pull.abs().max() > 0 and not pull[~batch.trainable].any()
    starts = np.cumsum([0, *batch.lengths])
    for group in batch.group.unique():
        rows = [int(i) for i in (batch.group == group).nonzero()]
        taken = {}
        for i in rows:
            own = slice(starts[i], starts[i + 1])
            on = (
                batch.columns["turn"][own] == batch.columns["turn"][own][batch.trainable[own]].min()
            ) & batch.trainable[own]
            taken.setdefault(tuple(ids[own][on].tolist()), []).append(float(pull[own][on][0]))
        assert all(np.allclose(x, x[0]) for x in taken.values())
        assert sum(sum(x) for x in taken.values()) == pytest.approx(0.0, abs=1e-6)
        assert any(len(x) > 1 for x in taken.values()), "the test has turns that several rows hold"
    replaced = replace(batch)
    with pytest.raises(ValueError, match="beta is 0"):
        prepare(replaced, beta=0.0)
