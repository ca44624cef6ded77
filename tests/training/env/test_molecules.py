"""Molecules: the grammar by hand, what binds, and that the network writes what the learner reads."""

import math

import numpy as np
import pytest
import torch

from synth.types import Sampling
from tasks.lab.worlds import Room, plans, quiet, run_stage
from training.env.control.molecules import (
    MOST,
    SYMBOLS,
    affinity,
    described,
    made,
    molecules,
    parsed,
    prefix,
    protein_of,
    toxicity,
    wanted,
)
from training.learner.pack import pack, rollout_rows
from training.model.control import action_stats, load_policy
from training.model.molecule import MoleculePolicy, fit
from training.rollout.control import ActionSampler, ControlPlayer, seeds

TINY = {"warm_steps": 0, "hidden": 8, "latent": 4}


def of(text):
    return made(parsed(text))


@pytest.mark.parametrize(
    "text, atoms, bonds, rings",
    [
        ("[C][=O]", "CO", [(0, 1, 2)], 0),
        ("[C][F][C]", "CF", [(0, 1, 1)], 0),  # F has one bond, so nothing follows it
        ("[O][=C][=N]", "OCN", [(0, 1, 2), (1, 2, 2)], 0),
        ("[C][=O][=O]", "CO", [(0, 1, 2)], 0),
        ("[C][O][=N]", "CON", [(0, 1, 1), (1, 2, 1)], 0),  # O has one bond left: the double bond is lowered
        ("[C][Branch][F][O]", "CFO", [(0, 1, 1), (0, 2, 1)], 0),
        ("[C][C][C][C][C][Ring]", "CCCCC", [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1), (0, 4, 1)], 1),
        ("[C][Ring][C]", "CC", [(0, 1, 1)], 0),
        ("[Branch][C][End][C]", "C", [], 0),
        ("[End]", "", [], 0),
    ],
)
def test_the_grammar_by_hand(text, atoms, bonds, rings):
    m = of(text)
    assert "".join(m.atoms) == atoms and m.bonds == bonds and m.rings == rings


def test_every_string_is_a_molecule_whose_valences_hold():
    rng = np.random.default_rng(0)
    for _ in range(500):
        m = made(rng.integers(len(SYMBOLS), size=MOST))
        assert all(m.left(i) >= 0 for i in range(len(m.atoms)))
        assert len(m.bonds) == max(len(m.atoms) - 1, 0) + m.rings


@pytest.mark.parametrize("text", ["", "CCO", "[C", "[C][X]", "[C] [O]", "[C]" * 11])
def test_a_molecule_that_does_not_parse_is_one_sentence(text):
    with pytest.raises(ValueError, match="does not parse"):
        molecules(molecules=["[C]", text])


def test_what_binds_and_what_is_toxic_by_hand():
    m = of("[C][=O]")
    np.testing.assert_allclose(described(m), [0.2, 0.5, 0.25])
    protein = np.array([0, 1, 1, 2, 2, 3, 4, 1])  # shares: small 1/8, aromatic 2/8, polar and charged 2/8
    np.testing.assert_allclose(wanted(protein), [0.75, 0.25, 0.625])
    assert affinity(m, protein) == pytest.approx(math.exp(-4 * (0.55**2 + 0.25**2 + 0.375**2)))
    assert [toxicity(of(t)) for t in ("[C][O]", "[C][F]", "[O][N][F]")] == [0, 0.5, 0.875]
    world = molecules(**TINY)
    state, seen = world.start(5)
    assert seen.shape == (world.shape.observation,) == (48 + 4 + 110,)
    step = world.step(state, 1)
    assert not step.done and step.observation[52:].tolist() == prefix([1]).tolist()
    last = world.step(state, 0)
    bound = affinity(of("[C]"), protein_of(state.protein))
    assert last.done and last.reward == pytest.approx(bound + 0.5) and last.parts["affinity"] == pytest.approx(bound)
    state, _ = world.start(5)
    assert world.step(state, 0).reward == 0
    proteins = [{molecules(**TINY, prompts=p).start(s)[0].protein for s in range(800)} for p in ("train", "test")]
    assert proteins[1] == set(range(4, 120, 5)) and proteins[0] == set(range(120)) - proteins[1]
    other = molecules(**TINY, rewarded="other")
    pairs = [(w.start(s)[0], w) for s in range(40) for w in (world, other)]
    paid = [[w.step(st, a) for a in (1, 3, 0)][-1].reward for st, w in pairs]
    assert sum(a != b for a, b in zip(paid[::2], paid[1::2], strict=True)) > 30


def test_the_learner_reads_the_log_probs_that_were_sampled_and_the_encoder_stays():
    world = molecules(**TINY)
    model = MoleculePolicy(
        observation=world.shape.observation, actions=world.shape.actions, hidden=8, **world.sizes, seed=1
    )
    player = ControlPlayer(sampler=ActionSampler(model=model), world=world, sampling=Sampling(temperature=1.0))
    groups = player.play(seeds(3, seed=0, family="molecules"), 4, 1)
    batch = pack(rollout_rows(groups, [[1.0] * 4] * 3))
    stats = action_stats(model, batch)
    on = batch.trainable
    torch.testing.assert_close(stats.logp[on], batch.columns["sampling_logp"][on], atol=1e-5, rtol=0)
    assert {k.split(".")[0] for k, p in model.named_parameters() if p.requires_grad} == {"decoder"}
    errors = [
        fit(MoleculePolicy(**model.made), world.examples, steps=n, rows=64, lr=5e-3, seed=1, pool=256) for n in (1, 150)
    ]
    assert errors[1] < errors[0] - 0.15
    assert not model.encoder[0].weight.requires_grad
    own = molecules(**TINY, molecules=["[C][=O]"]).examples(60, np.random.default_rng(0))[0]
    assert (own[::3] == np.array(parsed("[C][=O]") + [0] * 8)).all()


def test_the_stage_learns_molecules(tmp_path):
    room = Room(tmp_path, 1, "paccmann-rl-covid")
    with quiet():
        run_stage(
            room,
            "rl",
            plans("paccmann-rl-covid", {"rl": {"control": {"piece": "molecules", **TINY}, "prompts_per_step": 2}}, 2)[
                "rl"
            ],
        )
    assert room.cards["rl"]["rollouts"] == 16
    assert load_policy(tmp_path / "artifacts" / "rl" / "model", MoleculePolicy).made["latent"] == 4


@pytest.mark.parametrize(
    "knobs, says",
    [
        ({"prompts": "x"}, "train or test"),
        ({"latent": 0}, "from 0 and from 1"),
        ({"w_toxicity": math.nan}, "from 0 and from 1"),
    ],
)
def test_knobs_that_cannot_be(knobs, says):
    with pytest.raises(ValueError, match=says):
        molecules(**knobs)
