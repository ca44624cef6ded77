"""Pieces of SWEET-RL, Agent-RLVR, CARFT, AMFT and CE-PO against their definitions: losses by autograd, Jacobians by
differences; worlds."""

import numpy as np
import pytest
import tiny
import torch
from torch.nn.functional import cosine_similarity, logsigmoid

from synth.types import Problem, Sampling
from tasks.lab import toy
from training.env.single import Single
from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.model.render import Renderer
from training.rl.group_transform.influences import influences
from training.rl.influence import hardened, jacobian
from training.rl.policy_loss.contrast import contrast
from training.rl.policy_loss.contrast import prepare as paired
from training.rl.ratio.per_turn import per_turn
from training.rl.regulariser.annotated import annotated
from training.rl.regulariser.annotated import prepare as anchored
from training.rl.rollout_services import RolloutServices
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Group


@pytest.fixture(scope="module")
def player():
    renderer = Renderer(tiny.tokenizer())
    return Player(
        sampler=TorchSampler(tiny.build(init_range=0.2), renderer.end_id),
        renderer=renderer,
        envs={"single": Single(0.0, "")},
        sampling=Sampling(temperature=1.0, max_tokens=6),
        max_tokens=120,
    )


def test_contrast_has_the_gradient_of_dpo_over_all_pairs_of_each_group():
    rng = np.random.default_rng(0)
    rows = [
        {
            "logp": rng.normal(-1, 0.3, n).tolist(),
            "reference": rng.normal(-1, 0.3, n).tolist(),
            "reward": float(right),
            "group": g,
        }
        for g, right, n in ((0, 1, 3), (0, 0, 2), (0, 1, 1), (0, 0, 4), (1, 0, 2), (1, 0, 3), (2, 1, 2))
    ]
    t = toy.batch(rows)
    t.batch.add("old", t.leaf.detach().clone(), "token")
    paired(t.batch, beta=0.7, nll=0.3)
    terms = contrast(torch.zeros_like(t.leaf), torch.zeros_like(t.leaf), t.stats, t.batch, beta=0.7, nll=0.3)
    (got,) = torch.autograd.grad(terms.values.sum() / t.batch.totals[terms.denominator], t.leaf)

    d = t.batch.row_sum(torch.where(t.batch.trainable, t.leaf - t.batch.columns["reference"], 0.0))
    mean = t.batch.row_sum(torch.where(t.batch.trainable, t.leaf, 0.0)) / t.batch.row_tokens
    want = torch.zeros(())
    for g in range(3):
        right = [i for i, r in enumerate(rows) if r["group"] == g and r["reward"]]
        wrong = [i for i, r in enumerate(rows) if r["group"] == g and not r["reward"]]
        if right and wrong:
            want = want - sum(logsigmoid(0.7 * (d[i] - d[j])) for i in right for j in wrong) / (len(right) * len(wrong))
        if right:
            want = want - 0.3 * sum(mean[i] for i in right) / len(right)
    (expected,) = torch.autograd.grad(want / 3, t.leaf)
    assert torch.allclose(got, expected, atol=1e-6) and got.abs().max() > 0.01


def test_the_sum_of_a_row_is_the_sum_of_the_means_of_its_turns():
    t = toy.batch(
        [
            {"logp": [-1.0, -2.0, -0.5, -3.0], "old": -1.5, "turn": [1, 1, 2, 1]},
            {"logp": [-1.0], "old": -2.0, "turn": [3]},
        ]
    )
    sums = t.batch.row_sum(per_turn(t.leaf, t.batch.columns["old"], t.batch))
    assert sums.tolist() == pytest.approx([(0.5 - 0.5 - 1.5) / 3 + 1.0, 1.0])
    del t.batch.columns["turn"]
    assert t.batch.row_sum(per_turn(t.leaf, t.batch.columns["old"], t.batch)).tolist() == pytest.approx([-0.5 / 4, 1.0])


def test_annotated_is_the_contrast_of_cosines():
    rng = np.random.default_rng(1)
    probs = lambda n: rng.dirichlet(np.ones(5), n).tolist()  # noqa: E731
    rows = [
        {"probs": probs(3), "tokens": [1, 2, 2], "reward": 1.0, "group": 0},
        {"probs": probs(2), "tokens": [3, 4], "reward": 0.0, "group": 0},
        {"probs": probs(3), "tokens": [1, 1, 2], "reward": 1.0, "off_policy": 1.0, "group": 0},
        {"probs": probs(1), "tokens": [2], "reward": 0.0, "group": 1},
    ]
    t = toy.batch(rows)
    anchored(t.batch, tau=0.5, buckets=8)
    terms = annotated(t.stats, t.batch, coef=1.0, tau=0.5, buckets=8)
    full = torch.log_softmax(t.leaf.double(), -1)
    at, z = 0, []
    for row in rows:
        mine = full[at : at + len(row["tokens"])]
        w = torch.softmax(mine[torch.arange(len(mine)), torch.tensor(row["tokens"])], 0)
        z.append((w[:, None] * mine.exp()).sum(0))
        at += len(mine)
    bag = lambda tokens: torch.bincount(torch.tensor(tokens), minlength=5).double()  # noqa: E731
    anchor, tau = bag([1, 1, 2]), 0.5
    s = [cosine_similarity(x, anchor, dim=0) / tau for x in z]
    others = torch.stack([cosine_similarity(bag(rows[j]["tokens"]), anchor, dim=0) / tau for j in (1, 3)])
    right = -torch.log(s[0].exp() / (s[0].exp() + others.exp().sum()))
    wrong = -torch.log(torch.tensor(1 / tau).exp() / (torch.tensor(1 / tau).exp() + s[1].exp()))
    want = (right + wrong) / 4  # the second group has no annotated answer
    got = terms.values.sum() / t.batch.totals[terms.denominator]
    assert got.item() == pytest.approx(want.item(), abs=1e-6)
    a, b = (torch.autograd.grad(x, t.leaf, retain_graph=True)[0] for x in (got, want))
    assert torch.allclose(a, b, atol=1e-6) and a.abs().max() > 1e-3


def test_a_jacobian_is_what_a_small_step_of_the_embeddings_does(player):
    model, ids = player.sampler.model, player.renderer.encode("Solve 2 + 3 <answer>5</answer>")
    of, to = (len(ids) - 4, len(ids)), (1, 4)
    j = jacobian(model, ids, of, to)
    step = torch.randn(j.shape, generator=torch.Generator().manual_seed(0))
    embed = model.get_input_embeddings()
    row = pack([Row(ids=ids, trainable=np.arange(len(ids)) >= of[0])])

    def moved(h):
        def add(module, given, out):
            more = torch.zeros_like(out).view(len(ids), -1)
            more[to[0] : to[1]] = h * step.view(to[1] - to[0], -1)
            return out + more.view_as(out)

        hook = embed.register_forward_hook(add)
        try:
            with torch.no_grad():
                return float(token_stats(model, row).logp.sum()) / 4
        finally:
            hook.remove()

    h = 1e-2 / float(step.norm())
    assert (moved(h) - moved(-h)) / (2 * h) == pytest.approx(float(j @ step), rel=0.03)
    assert jacobian(model, ids, (1, 3), (5, 8)).abs().max() == 0, "what comes later moves nothing"


def test_what_is_hardened_has_no_part_in_the_nuisances():
    g = torch.Generator().manual_seed(0)
    j, others = torch.randn(40, generator=g), [torch.randn(40, generator=g) for _ in range(3)]
    left = hardened(j, [*others, others[0]])  # one twice: the span counts
    assert all(abs(float(left @ u)) < 1e-5 for u in others) and 0 < left.norm() < j.norm()
    assert torch.equal(hardened(j, []), j)


def test_influences_are_measured_where_there_is_an_answer(player):
    problem = Problem.make(
        prompt="Solve 2 + 3", answer="5", verifier="exact", env="single", family="toy", split="train"
    )
    table = RolloutServices(player=player)
    told = [table.say(problem, [text], "g") for text in ("2 3 5 <answer>5</answer>", "<answer>5</answer>", "5")]
    (group,) = influences([Group(id="g", rollouts=tuple(told))], table, {}, np.random.default_rng(0), nuisances=1)
    parts = [r.score.parts for r in group.rollouts]
    assert all(parts[0][f"influence_{n}"] > 0 for n in ("zx", "xy", "zy"))
    assert parts[1]["influence_zx"] == parts[1]["influence_xy"] == 0 < parts[1]["influence_zy"]
    assert "influence_zy" not in parts[2]


# --- worlds --------------------------------------------------------------------------------------------------------------------------


def test_beliefs_are_what_sampling_estimates():
    from tasks.lab.arena import arena, exactly, measure

    here = arena("mixed", 40)
    player = here.player(max_turn_tokens=16, max_tokens=128)
    seen = measure(player.play(list(here.world.problems), 200, 1))
    known = exactly(here.first, here.first)
    assert known["right"] == pytest.approx(seen["pass1"], abs=0.04)
    assert known["kl"] == known["tilt"] == known["hard_gain"] == 0.0 and known["kinds"] == pytest.approx(1.0)


def test_a_rounding_sampler_follows_the_learner_and_differs_from_it():
    from tasks.lab.arena import arena

    here = arena("rounded", 40)
    rounding, exact = (
        here.player(max_turn_tokens=16, max_tokens=128),
        here.player(exact=True, max_turn_tokens=16, max_tokens=128),
    )
    assert type(exact.sampler) is TorchSampler
    play = lambda p: [
        s.logp for g in p.play(list(here.world.problems)[:4], 4, 1) for r in g.rollouts for s in r.segments[1:2]
    ]  # noqa: E731
    before = play(rounding)
    assert any(len(a) != len(b) or np.abs(a - b).max() > 1e-3 for a, b in zip(before, play(exact), strict=True))
    with torch.no_grad():
        for p in rounding.sampler.model.parameters():
            p.mul_(1.5)
    assert any(len(a) != len(b) or np.abs(a - b).max() > 1e-3 for a, b in zip(before, play(rounding), strict=True))


def test_agreement_is_one_without_chance_and_the_policy_stands_still():
    from tasks.lab.behaviour import _agreement, train

    a = np.array([1.0, 2.0, 3.0])
    assert _agreement([a, 2 * a, 5 * a]) == pytest.approx(1.0) and _agreement([a, -a]) == pytest.approx(-1.0)
    small = {"optimizer": {"lr": 0}, "prompts_per_step": 2, "samples_per_prompt": 8, "regularisers": []}
    measures = train("mixed", "rloo", small, 3, 1)
    assert (
        -1 <= measures["agreement"] <= 1
        and "pass1" not in measures
        and 0 <= measures["nonzero_advantage"] <= measures["signal"] <= 1
    )


def test_a_conversation_on_the_farm_ends_with_an_answer_or_after_four_turns():
    from tasks.lab.arena import Farm

    problem, env = (
        Problem.make(prompt="q", answer="b", verifier="exact", env="farm", family="farm", split="train"),
        Farm(),
    )
    state, _ = env.start(problem, {})
    messages, over, score = env.step(state, " z")
    assert not over and state.pop("step_reward") == 1.0 and messages[0].role == "tool"
    _, over, score = env.step(state, "<answer>b</answer>")
    assert over and score.value == 1.0 and state["step_reward"] == 0.0
    state, _ = env.start(problem, {})
    ends = [env.step(state, " z") for _ in range(4)]
    assert [e[1] for e in ends] == [False, False, False, True] and ends[-1][2].value == 0.0
