"""Reward models: heads, what they are measured by, and the published effects at toy size."""

import importlib
import inspect
import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import AutoModelForSequenceClassification

from synth.types import UserError
from training.learner.learner import Learner, Optim, score
from training.learner.pack import Row, pack, split
from training.model.model import save_model
from training.preference.loss.bradley_terry import bradley_terry
from training.preference.loss.bradley_terry_margins import bradley_terry_margins
from training.preference.reward_head import gated as gated_module
from training.preference.reward_head.ensemble import ensemble
from training.preference.reward_head.gated import debiased, gated, ridge
from training.preference.reward_head.scalar import scalar
from training.preference.reward_head.tail_circuit import harm, logistic, plain_head, tail_circuit, tail_units
from training.preference.reward_metrics import best_of, measures, over_optimised, rank_correlation
from training.preference.reward_model import RewardObjective, features, head_stats, new_reward_model
from training.types import TokenStats


def rows(n=8, seed=0):
    lengths = np.random.default_rng(seed).integers(6, 20, n)
    return [
        Row(ids=r, trainable=np.arange(len(r)) >= 3, group=i // 2) for i, r in enumerate(tiny.ids(*lengths, seed=seed))
    ]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("lm") / "model"
    save_model(tiny.build(init_range=0.1), tiny.tokenizer(), path)
    return path


def new(path, outputs, seed=1):
    return new_reward_model(path, outputs, dtype="float32", device="cpu", seed=seed)[0]


def test_the_head_reads_what_transformers_reads_and_loads_there(language_model, tmp_path):
    model = new(language_model, 3)
    ours = score(model, pack(rows()), read=head_stats).extras["outputs"]
    save_model(model, tiny.tokenizer(), tmp_path / "saved")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    width, pad = max(len(r.ids) for r in rows()), tiny.tokenizer().pad_token_id
    ids = torch.tensor([[*r.ids, *[pad] * (width - len(r.ids))] for r in rows()])
    mask = torch.tensor([[1] * len(r.ids) + [0] * (width - len(r.ids)) for r in rows()])
    with torch.no_grad():
        torch.testing.assert_close(theirs(input_ids=ids, attention_mask=mask).logits, ours, atol=1e-5, rtol=1e-4)


def test_the_same_seed_is_the_same_head_and_another_is_not(language_model):
    a, b, c = (new(language_model, 2, seed).score.weight for seed in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_prompt_features_are_those_before_the_answer(language_model):
    model, batch = new(language_model, 1), pack(rows())
    last, prompt_features = features(model, batch)
    cut = pack([Row(ids=r.ids[:3], trainable=np.zeros(3, dtype=bool), group=r.group) for r in rows()])
    torch.testing.assert_close(prompt_features, features(model, cut)[0], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(last, prompt_features)


@pytest.mark.parametrize("head", [scalar, partial(ensemble, heads=3)])
def test_a_head_learns_the_order_of_its_pairs_in_any_split(language_model, head):
    metrics = []
    for budget in (10**6, 30):
        reward_head = head()
        learner = Learner(
            new(language_model, reward_head.outputs), Optim(lr=3e-3, warmup=0, decay="constant"), read=reward_head.read
        )
        objective = RewardObjective(loss=bradley_terry, head=reward_head)
        metrics.append(
            [learner.step(pack(rows()), objective, rows_per_unit=2, tokens_per_microbatch=budget) for _ in range(15)]
        )
    first, last = metrics[0][0], metrics[0][-1]
    assert last["accuracy"] == 1.0 and last["margin"] > 1 > abs(first["margin"])
    assert metrics[1][0]["loss"] == pytest.approx(first["loss"], rel=1e-5)


def test_margins_ask_for_more():
    x, none = torch.tensor([1.0, 1.0]), torch.zeros(2)
    values = bradley_terry_margins(x, none, none, none, none, none, margin=torch.tensor([0.0, 1.0]))
    assert values.tolist() == pytest.approx([math.log1p(math.exp(-1)), math.log(2)])


def test_ensemble_heads_see_different_pairs_and_r0_is_untouched_by_them():
    reward_head = ensemble(heads=4)
    outputs = torch.randn(6, 9, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = pack(rows(6))
    (terms,) = reward_head.extra(TokenStats(logp=torch.zeros(1), extras={"outputs": outputs}), batch)
    (g,) = torch.autograd.grad(terms.values.sum(), outputs)
    assert (g[:, 0] == 0).all() and (g[:, 1:] != 0).any(0).all()
    seen = reward_head._seen(batch)
    assert torch.equal(seen[0::2], seen[1::2]) and len({tuple(s) for s in seen.T.tolist()}) > 1
    with pytest.raises(ValueError, match="two heads or more"):
        ensemble(heads=1)


# --- the published effects ------------------------------------------------------------------------------------------


def test_ridge_leaves_out_missing_ratings():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(400, 6)), rng.normal(size=(2, 6))
    y = x @ w.T + 3
    y[::2, 1] = np.nan
    np.testing.assert_allclose(ridge(x, y, 1e-6), w, atol=1e-4)


def test_debiased_attributes_do_not_follow_length():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 5))
    weight = rng.normal(size=(4, 5)) + 2 * np.eye(5)[0]  # all follow the first feature, which is length
    weight[2] = np.eye(5)[0]
    out = debiased(weight, x, 2)
    follow = [rank_correlation(x @ w, x @ out[2]) for w in out]
    before = [rank_correlation(x @ w, x @ out[2]) for w in weight]
    assert np.array_equal(out[2], weight[2]) and max(abs(f) for i, f in enumerate(follow) if i != 2) <= 0.02
    assert min(before) > 0.3


def test_a_gate_finds_which_attribute_a_prompt_is_about(language_model, monkeypatch):
    """Two kinds of prompts, each of which asks for another of four attributes: 95 % with the gate, at most 85 % with
    any fixed weighing."""
    rng = np.random.default_rng(2)
    n, d = 600, 32
    kind, attributes = np.repeat(rng.integers(0, 2, n // 2), 2), rng.normal(size=(n, 4))
    last = torch.tensor(np.concatenate([attributes, 0.01 * rng.normal(size=(n, d - 4))], 1), dtype=torch.float32)
    prompt_features = torch.tensor(np.eye(d)[kind] * 3 + 0.1 * rng.normal(size=(n, d)), dtype=torch.float32)
    truth = attributes[np.arange(n), kind]
    for i in range(0, n, 2):  # the chosen one first
        if truth[i] < truth[i + 1]:
            for x in (last, prompt_features, truth, attributes):
                x[[i, i + 1]] = x[[i + 1, i]]

    def given(model, batch):
        at = batch.ids.reshape(-1, 2)[:, 0]
        return last.index_select(0, at), prompt_features.index_select(0, at)

    monkeypatch.setattr(gated_module, "features", given)
    reward_head = gated(temperature=1.0, debias="")
    reward_head.attributes = ("a", "b", "c", "d")
    model = reward_head.begin(new(language_model, 4), lambda: (last.double().numpy(), attributes))
    batch = pack([Row(ids=np.array([i, 0]), trainable=np.array([False, True]), group=i // 2) for i in range(n)])
    train, test = list(split(batch, n, rows_per_unit=2))[:2]  # ids name rows: the halves are as good as two draws
    learner = Learner(model, Optim(lr=3e-2, warmup=0, decay="constant", weight_decay=0.0), read=reward_head.read)
    body = [p.clone() for p in model.scorer.parameters()]
    train.totals = {"pairs": train.rows / 2}
    for _ in range(60):
        learner.step(train, RewardObjective(loss=bradley_terry, head=reward_head), rows_per_unit=2)
    stats = score(model, test, read=reward_head.read)
    r = reward_head.reward(stats, test).numpy()
    at = test.ids.reshape(-1, 2)[:, 0].numpy()
    assert float((r[0::2] > r[1::2]).mean()) >= 0.95
    gate = stats.extras["gate"].numpy()
    assert min(gate[np.arange(len(at)), kind[at]][kind[at] == k].mean() for k in (0, 1)) > 0.8
    fixed = max(
        float(((attributes[at] @ w)[0::2] > (attributes[at] @ w)[1::2]).mean()) for w in rng.dirichlet(np.ones(4), 300)
    )
    assert fixed <= 0.85
    assert all(torch.equal(p, q) for p, q in zip(body, model.scorer.parameters(), strict=True)), "the body never learns"


def test_a_blend_stops_over_optimisation():
    """Each head loves a rare feature of its own, which the truth hates. The best by one of them falls past its peak;
    the blend holds."""
    rng = np.random.default_rng(3)
    proxies, blends, gold, n = [], [], [], 1024
    reward_head = ensemble(heads=5, nominal="mean")
    for _ in range(8):
        quality = rng.normal(size=n)
        hacks = rng.exponential(1.0, (n, 5)) * (rng.random((n, 5)) < 0.01)
        heads = quality[:, None] + 3 * hacks
        outputs = torch.tensor(np.concatenate([np.zeros((n, 1)), heads, np.zeros((n, 5))], 1))
        stats = TokenStats(logp=torch.zeros(1), extras={"outputs": outputs})
        proxies.append(heads[:, 0])
        blends.append(reward_head.reward(stats, None).numpy())
        gold.append(quality - 2 * hacks.sum(1))
    sizes = [1, 4, 16, 64, 256]
    single, robust = best_of(proxies, gold, sizes), best_of(blends, gold, sizes)
    assert over_optimised(single) > 1.0, "one head alone falls past its peak"
    assert robust[-1]["gold"] >= 0.95 * max(c["gold"] for c in robust) and robust[-1]["gold"] > single[-1]["gold"]


def test_balanced_pairs_leave_no_love_of_length():
    """Chosen answers happen to be longer: a model that sees quality dimly learns to love length, from balanced pairs it
    does not."""
    rng = np.random.default_rng(4)
    n = 4000
    true = -np.sort(-rng.normal(size=(n, 2)), 1)
    # As the model sees it; the longer one is chosen in 80 %.
    quality, length = (
        true + rng.normal(size=(n, 2)),
        rng.normal(size=(n, 2)),
    )
    length = np.where((rng.random(n) < 0.8)[:, None], -np.sort(-length, 1), np.sort(length, 1))
    gap = length[:, 0] - length[:, 1]
    keep = np.ones(n, dtype=bool)
    order = np.argsort(abs(gap))
    for part in np.array_split(order, 100):
        long = part[gap[part] > 0]
        keep[long[: max(0, len(long) - (gap[part] < 0).sum())]] = False

    def fit(mask):
        x = torch.tensor(np.stack([quality, length], -1)[mask])
        w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([w], max_iter=50)
        none = torch.zeros(int(mask.sum()), dtype=torch.float64)

        def loss():
            optimizer.zero_grad()
            value = bradley_terry(*(x @ w).unbind(1), none, none, none + 1, none + 1).mean()
            value.backward()
            return value

        optimizer.step(loss)
        return w.detach().numpy()

    fresh = rng.normal(size=(2000, 2))
    follow = {
        name: rank_correlation(fresh @ fit(mask), fresh[:, 1])
        for name, mask in (("all", keep | True), ("balanced", keep))
    }
    assert follow["all"] >= 0.3 and abs(follow["balanced"]) <= 0.1


def test_told_the_facts_it_sees_what_was_made_up():
    """Two answers that differ in one attribute, of which one was made up: told the fact the model knows which, else it
    must guess."""

    def made_up(rng, n, told):
        rows = []
        for i in range(n):
            true, false = rng.choice(12, 2, replace=False)
            for answer in (true, false):
                ids = np.array([100 + (true if told else 12), 50, 100 + answer])
                rows.append(Row(ids=ids, trainable=np.array([False, False, True]), group=i))
        return pack(rows)

    right = {}
    for told in (True, False):
        head, rng = scalar(), np.random.default_rng(0)
        model = tiny.build(init_range=0.3, hidden=64)
        model.score = torch.nn.Linear(64, 1, bias=False)
        torch.nn.init.zeros_(model.score.weight)
        learner = Learner(model, Optim(lr=3e-3, warmup=10, steps=80, decay="linear"), read=head.read)
        for _ in range(80):
            learner.step(made_up(rng, 32, told), RewardObjective(loss=bradley_terry, head=head), rows_per_unit=2)
        test = made_up(np.random.default_rng(9), 400, told)
        r = head.reward(score(model, test, read=head.read), test)
        right[told] = float((r[0::2] > r[1::2]).float().mean())
    assert right[True] >= 0.95 and abs(right[False] - 0.5) <= 0.05


HEADS = sorted(p.stem for p in (Path(__file__).parents[3] / "training/preference/reward_head").glob("[!_]*.py"))


@pytest.mark.parametrize("name", HEADS)
def test_every_head_says_what_it_is(name):
    module = importlib.import_module(f"training.preference.reward_head.{name}")
    reward_head = getattr(module, name)()
    assert reward_head.outputs is None or reward_head.outputs > 0
    assert (reward_head.outputs is None) == reward_head.ratings, "one output per attribute where it learns from ratings"
    assert all(callable(getattr(reward_head, f)) for f in ("begin", "read", "ranked", "reward", "extra"))
    assert re.search(r"(19|20)\d\d", module.__doc__) and "Shapes:" in module.__doc__ and "arXiv" in module.__doc__
    defaults = [p.default for p in inspect.signature(getattr(module, name)).parameters.values()]
    assert all(isinstance(d, int | float | str | bool) for d in defaults)


# --- measures -------------------------------------------------------------------------------------------------------


def test_measures():
    m = measures(np.array([2.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0]), np.array([5, 5, 3]), np.array([4, 6, 3]))
    assert m["accuracy"] == pytest.approx(0.5) and m["longer_wins"] == 1.0 and m["longer_is_chosen"] == 0.5
    same = measures(np.zeros(4), np.zeros(4), np.full(4, 3), np.full(4, 3))
    assert (
        same["accuracy"] == 0.5
        and same["calibration_error"] == 0
        and same["length_correlation"] is None
        and same["longer_wins"] is None
    )
    sure = measures(np.full(4, 9.0), np.array([0.0, 0.0, 18.0, 18.0]), np.full(4, 3), np.full(4, 3))
    assert sure["accuracy"] == 0.5 and sure["calibration_error"] == pytest.approx(0.5, abs=1e-3), (
        "sure, and right half the time"
    )


def test_rank_correlation_is_spearmans():
    a, b = np.array([1.0, 2.0, 2.0, 5.0, 9.0]), np.array([2.0, 1.0, 4.0, 4.0, 3.0])
    from scipy.stats import spearmanr

    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)


def test_best_of_a_perfect_and_of_an_inverted_judge():
    gold = [np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0, np.nan])]
    right = best_of(gold, gold, [1, 2, 4, 8])
    assert [c["n"] for c in right] == [1, 2, 4] and [c["prompts"] for c in right] == [2, 2, 1]
    assert right[0]["gold"] == pytest.approx((0.25 + 2 / 3) / 2) and right[1]["gold"] == pytest.approx((0.5 + 1) / 2)
    assert right[0]["kl"] == 0 and right[1]["kl"] == pytest.approx(math.log(2) - 0.5)
    wrong = best_of([-g for g in gold], gold, [1, 2])
    assert wrong[1]["gold"] < wrong[0]["gold"] == right[0]["gold"] and over_optimised(wrong) > 0 == over_optimised(
        right
    )


# --- the tail circuit ---------------------------------------------------------------------------------------------


def _planted():
    """2000 pairs, one in twenty rare; units 3, 5, 8, 13 of 64 order the rare ones and 0..7, of which 3 and 5 less, the others."""
    rng = np.random.default_rng(0)
    rare = rng.random(2000) < 0.05
    effects = 0.05 * rng.normal(size=(2000, 64))
    effects[rare] += np.isin(np.arange(64), [3, 5, 8, 13]) * rng.uniform(0.5, 1.5, (rare.sum(), 64))
    effects[~rare] += np.isin(np.arange(64), range(8)) * rng.uniform(0.1, 0.5, ((~rare).sum(), 64))
    return effects, rare


def test_the_units_for_rare_pairs_are_found_and_carry_them():
    effects, rare = _planted()
    units = tail_units(effects, rare, 4)
    assert len(set(units) & {3, 5, 8, 13}) >= 3
    lost = harm(effects, units, rare)
    assert lost["tail_harm"] >= 0.3 and lost["head_harm"] <= 0.03
    other = harm(effects, tail_units(effects, ~rare, 4), rare)
    assert other["tail_harm"] <= 0.03, "units for frequent pairs carry no rare one"


def test_a_units_effect_is_what_its_mean_takes_from_a_margin():
    z = torch.tensor(np.random.default_rng(1).normal(size=(40, 6)))
    first, main = plain_head(z, 8, 20)
    with torch.no_grad():
        a = torch.nn.functional.gelu(first(z))
        ablated = a.clone()
        ablated[:, 2] = a[:, 2].mean()
        gap = (main(a) - main(ablated))[:, 0]
        effect = main.weight[0, 2] * (a[0::2, 2] - a[1::2, 2])
    assert torch.allclose(gap[0::2] - gap[1::2], effect, atol=1e-12)


def test_rare_kinds_of_one_size_are_told_apart_by_logistic_regression():
    s = np.r_[np.full((90, 1), -1.0), np.full((10, 1), 1.0)]
    v, c = logistic(s, np.r_[np.zeros(90, bool), np.ones(10, bool)], ridge=0.1)
    p = 1 / (1 + np.exp(-v[0]))
    assert c == pytest.approx(0.0, abs=1e-9) and v[0] * 0.1 == pytest.approx(1 - p), "0.1 v = mean of s (mark - p)"


def test_what_the_circuit_adds_to_the_loss():
    head = tail_circuit(augmented=0.5, coef=0.1)
    head.share = 0.25
    extras = {
        "outputs": torch.zeros(2, 2),
        "gate": torch.tensor([0.5, 1.0]),
        "weak": torch.tensor([1.0, 3.0]),
        "drift": torch.tensor([2.0, 4.0]),
    }
    again, held = head.extra(TokenStats(logp=torch.zeros(2), extras=extras), None)
    # 0.5 / 0.5 / 0.25 = 4, times 0.75, times 2, times log 2
    assert again.values.tolist() == pytest.approx([4 * 0.75 * 2 * math.log(2)]) and again.denominator == "pairs"
    assert held.values.tolist() == pytest.approx([0.2, 0.4]) and held.denominator == "sequences"
    assert tail_circuit(augmented=0.0, coef=0.0).extra(TokenStats(logp=torch.zeros(2), extras=extras), None) == []


def test_a_circuit_wants_rare_pairs_and_others():
    head = tail_circuit()
    head.attributes = ("preferred", "tail")
    x = np.random.default_rng(0).normal(size=(8, 3))
    with pytest.raises(
        UserError, match="0 of 4 training pairs are rare: mark some and not all by a 1 in the rating 'tail'"
    ):
        head.begin(None, lambda: (x, np.zeros((8, 2))))
    with pytest.raises(ValueError, match="circuit 1, .* give two units or more, a circuit between 0 and 1"):
        tail_circuit(circuit=1)
