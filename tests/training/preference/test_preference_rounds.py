"""Rounds of preference optimisation: first losses, columns, units, renewed references, protected updates, pairs that
the policy makes."""

import copy
import math
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from traced import traced

from synth.preferences.ledger import Ledger, Spilled
from synth.types import Decision, Message, PreferencePair, Problem, Sampling, Scored
from tasks.core.errors import UserError
from tasks.lab import toy
from tasks.rows import columns
from training.learner.learner import Learner, Optim, score, token_stats
from training.learner.pack import Row, pack
from training.model.averaging import soup
from training.preference import units
from training.preference.loss import rpo_em as rpo_em_module
from training.preference.loss.dpo import dpo
from training.preference.loss.kto import kto
from training.preference.loss.mm_dpo import mm_dpo
from training.preference.loss.mnpo import mnpo
from training.preference.loss.rpo_em import rpo_em
from training.preference.objective import PairObjective, mismatched
from training.preference.on_policy_pairs import SampledPairs
from training.preference.rounds import Rounds, RoundSpec, read
from training.preference.subspace import Subspaces
from training.preference.update_rule.attention_weights import with_attention
from training.preference.update_rule.averaged_reference import averaged_reference
from training.preference.update_rule.directions import along, directed, directions
from training.preference.update_rule.earlier_policies import earlier_policies
from training.preference.update_rule.length_penalty import length_penalty
from training.preference.update_rule.meta_weight import MetaWeight
from training.rl.ratio.humanline import humanline
from training.rl.ratio.token import token


def batch(n=4, seed=0, **scalars):
    rng = np.random.default_rng(seed)
    rows = tiny.ids(*(int(x) for x in rng.integers(6, 20, 2 * n)), seed=seed)
    return pack(
        [
            Row(
                ids=r,
                trainable=np.arange(len(r)) >= 4,
                group=i // 2,
                scalars={k: v[i // 2] for k, v in scalars.items()},
            )
            for i, r in enumerate(rows)
        ]
    )


def first_loss(objective, model, b):
    objective.prepare(b)
    (terms,) = objective(token_stats(model, b), b)
    return float(terms.values.detach().mean())


# --- the objective ----------------------------------------------------------------------------------------------------


def test_the_first_loss_of_dpo_is_ln_2_or_the_run_stops():
    model = tiny.build(init_range=0.1)
    equal = PairObjective(loss=dpo, reference=copy.deepcopy(model), state={"equal": True})
    assert first_loss(equal, model, batch()) == pytest.approx(math.log(2), abs=1e-4)
    assert "equal" not in equal.state, "asked once"
    other = PairObjective(loss=dpo, reference=tiny.build(seed=3, init_range=0.1), state={"equal": True})
    with pytest.raises(
        ValueError,
        match=r"the first loss is .*, but policy and reference are the same model, for which it is 0\.693147",
    ):
        first_loss(other, model, batch())
    first_loss(other, model, batch())  # the second step may differ


def test_a_missing_column_is_named():
    model = tiny.build(init_range=0.1)
    with pytest.raises(LookupError, match="needs the column 'margin' of every pair"):
        first_loss(PairObjective(loss=mm_dpo, reference=model), model, batch())
    given = first_loss(
        PairObjective(loss=mm_dpo, reference=tiny.build(seed=1)), model, batch(margin=[0.0, 1.0, 2.0, 3.0])
    )
    none = first_loss(PairObjective(loss=mm_dpo, reference=tiny.build(seed=1)), model, batch(margin=[0.0] * 4))
    assert given != none


def test_a_ratio_is_summed_and_infinite_bounds_change_nothing():
    model, b = tiny.build(init_range=0.1), batch()
    losses = {}
    for name, ratio in {
        "none": None,
        "token": token,
        "wide": partial(humanline, log_epsilon_p=-9e9, log_epsilon_r=9e9),
        "narrow": partial(humanline, log_epsilon_p=-0.1, log_epsilon_r=0.1),
    }.items():
        losses[name] = first_loss(
            PairObjective(loss=dpo, reference=tiny.build(seed=2, init_range=0.1), ratio=ratio), model, b
        )
    assert losses["token"] == pytest.approx(losses["none"], abs=1e-5) == pytest.approx(losses["wide"], abs=1e-5)
    assert abs(losses["narrow"] - math.log(2)) < abs(losses["none"] - math.log(2))


def test_mismatched_rows_are_prompts_with_the_next_pairs_answers():
    b = batch(3)
    other = mismatched(b)
    ids, new = b.ids.split(b.lengths), other.ids.split(other.lengths)
    for r in range(6):
        assert new[r].tolist() == ids[r][:4].tolist() + ids[(r + 2) % 6][4:].tolist()
    assert other.trainable.sum() == b.trainable.sum()


def test_the_baseline_of_kto_is_the_mean_gain_on_them_and_never_negative():
    model, reference = tiny.build(seed=0, init_range=0.1), tiny.build(seed=1, init_range=0.1)
    for policy, base in ((model, reference), (reference, model)):
        b = batch()
        objective = PairObjective(loss=kto, reference=base, policy=policy, needs=frozenset({"reference", "mismatched"}))
        objective.prepare(b)
        other = mismatched(b)
        gain = other.row_sum(
            torch.where(other.trainable, score(policy, other).logp - score(base, other).logp, 0.0)
        ).mean()
        assert torch.allclose(b.columns["baseline"], gain.clamp_min(0).expand(8), atol=1e-4)


def test_history_is_the_mean_of_earlier_policies_and_else_the_reference():
    models = [tiny.build(seed=s, init_range=0.1) for s in range(3)]
    for earlier in ([], models[1:]):
        b, rule = batch(), earlier_policies()
        rule.kept += earlier
        PairObjective(loss=mnpo, reference=models[0], rules=[rule], needs=frozenset({"reference"})).prepare(b)
        sums = [b.row_sum(torch.where(b.trainable, score(m, b).logp, 0.0)) for m in earlier or models[:1]]
        want = torch.stack([s[0::2] - s[1::2] for s in sums]).mean(0)
        torch.testing.assert_close(b.columns["history"][0::2], want, atol=1e-4, rtol=1e-4)


def test_reliabilities_follow_their_annotators_and_flips_are_found():
    """Margins of a calibrated policy; annotator 0 is right in 95 %, annotator 1 in 65 %."""
    rng = np.random.default_rng(0)
    n, state = 20_000, {}
    margin = rng.normal(0, 2, n)
    right = rng.random(n) < 1 / (1 + np.exp(-margin))  # the true order
    who = rng.integers(0, 2, n)
    flipped = rng.random(n) > np.where(who == 0, 0.95, 0.65)
    seen = np.where(right ^ flipped, margin, -margin)
    rows = [
        Row(ids=np.array([0, 1]), trainable=np.array([False, True]), scalars={"annotator": who[i // 2]})
        for i in range(2 * n)
    ]
    b = pack(rows)
    b.add("reference", torch.zeros(4 * n), "token")
    policy = torch.zeros(4 * n)
    policy[1::4] = torch.tensor(seen, dtype=torch.float32)
    b.add("policy", policy, "token")
    for _ in range(120):
        rpo_em_module.prepare(b, state, beta=1.0, warmup=0)
    assert state["eta"]["0"] == pytest.approx(0.95, abs=0.03) and state["eta"]["1"] == pytest.approx(0.65, abs=0.03)
    assert sorted(b.columns["reliability"].unique().tolist()) == pytest.approx([state["eta"]["1"], state["eta"]["0"]])
    waits = {}
    rpo_em_module.prepare(b, waits, beta=1.0, warmup=5)
    assert waits["eta"] == {"0": 0.9, "1": 0.9}, "not before the warm-up is over"
    assert rpo_em.__kwdefaults__["first"] == 0.9


# --- what the rounds do to models -------------------------------------------------------------------------------------


def learner(seed=0):
    return Learner(tiny.build(seed=seed, init_range=0.1), Optim(lr=3e-3, warmup=0, decay="constant"))


def step(one, objective, b):
    objective.prepare(b)
    one.step(b, objective, rows_per_unit=2)


def carried(specs, one, objective, total=8, **options):
    return Rounds(read(specs, total), one, objective, **{"starts_equal": True} | options)


def test_a_reference_is_renewed_when_a_round_begins_and_every_so_many_steps():
    one = learner()
    objective = PairObjective(
        loss=dpo, reference=copy.deepcopy(one.model), policy=one.model, rules=[earlier_policies(keep=2)]
    )
    keeper = carried([{"steps": 3}, {"steps": 5, "renew": True, "every": 2}], one, objective)

    def same():
        return all(
            torch.equal(p, q) for p, q in zip(one.model.parameters(), objective.reference.parameters(), strict=True)
        )

    renewed = []
    for i, turn in enumerate(keeper.specs):
        for s in range(turn.steps):
            keeper.begins(i, lambda step: ([], {}))(s)
            step(one, objective, batch(seed=s))
            assert not same()
            keeper.after(i, s, {})
            renewed.append(same())
    assert renewed == [False, False, False, False, True, False, True, False]
    (kept_by,) = objective.rules
    assert len(kept_by.kept) == 1
    kept = keeper.state()
    fresh = carried(
        [{"steps": 3}, {"steps": 5, "renew": True, "every": 2}],
        learner(1),
        PairObjective(loss=dpo, reference=tiny.build(seed=5), rules=[earlier_policies(keep=2)]),
    )
    fresh.load_state(kept)
    pairs_of = zip(fresh.objective.reference.parameters(), objective.reference.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs_of)
    (again,) = fresh.objective.rules
    pairs_of = zip(again.kept[0].parameters(), kept_by.kept[0].parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs_of)


def test_protected_directions_are_not_moved_in():
    one = learner()
    objective = PairObjective(loss=dpo, reference=copy.deepcopy(one.model))
    keeper = carried([{}, {"protect": True, "energy": 1.0}], one, objective)
    start = [m.detach().clone() for m in one.master]
    for i in range(2):
        for s in range(4):
            keeper.begins(i, lambda step: ([], {}))(s)
            step(one, objective, batch(seed=s + 10 * i))
            keeper.after(i, s, {})
        if i == 0:
            middle = [m.detach().clone() for m in one.master]
    moved = 0.0
    for a, b, c in zip(start, middle, one.master, strict=True):
        first, second = (b - a).double(), (c - b).double()
        if a.dim() != 2:
            assert not second.any(), "vectors stay"
        else:
            assert (
                abs(float((first * second).sum().detach()))
                <= 1e-5 * float((first.norm() * second.norm()).detach()) + 1e-12
            )
            moved += float(second.norm())
    assert moved > 0


def test_only_the_named_layers_learn():
    one = learner()
    objective = PairObjective(loss=dpo, reference=copy.deepcopy(one.model))
    keeper = carried([{"layers": [1]}], one, objective, total=2)
    before = {n: p.detach().clone() for n, p in one.model.named_parameters()}
    for s in range(2):
        keeper.begins(0, lambda step: ([], {}))(s)
        step(one, objective, batch(seed=s))
        keeper.after(0, s, {})
    moved = {n for n, p in one.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved and all(".layers.1." in n for n in moved)


def test_energy_says_how_much_is_protected():
    one = learner()
    spaces = Subspaces(one, energy=0.5)
    change = torch.diag(torch.tensor([3.0, 2.0, 1.0, 0.0]))
    assert spaces._add(change, None).shape == (4, 1), "9 of 14 is more than half"
    assert Subspaces(one, energy=1.0)._add(change, None).shape == (4, 3)
    with pytest.raises(ValueError, match="energy is 0"):
        Subspaces(one, energy=0)


def test_a_soup_is_the_weighted_mean():
    a, b = tiny.build(seed=0), tiny.build(seed=1)
    want = {k: 0.25 * v.double() + 0.75 * b.state_dict()[k].double() for k, v in copy.deepcopy(a).state_dict().items()}
    first = copy.deepcopy(a)
    soup([a, b], [0.25, 0.75])
    assert all(torch.equal(v, want[k].to(v.dtype)) for k, v in a.state_dict().items())
    soup([first, b], [1.0, 0.0])
    assert all(
        torch.equal(v, w)
        for v, w in zip(first.state_dict().values(), tiny.build(seed=0).state_dict().values(), strict=True)
    )
    with pytest.raises(ValueError, match="do not add up"):
        soup([a, b], [0.5, 0.6])
    with pytest.raises(ValueError, match="different shapes"):
        soup([a, tiny.build(hidden=16)], [0.5, 0.5])


def test_the_meta_weight_rises_where_the_offline_loss_is_the_smaller():
    meta = MetaWeight(lr=0.05)
    score_ = torch.tensor([-0.1] * 20 + [-2.0] * 20)
    assert torch.allclose(meta(score_), torch.full((40,), 0.5))
    offline, online = torch.tensor([0.1] * 20 + [2.0] * 20), torch.tensor([2.0] * 20 + [0.1] * 20)
    for _ in range(200):
        meta.learn(score_, offline, online)
    w = meta(score_)
    assert float(w[0]) > 0.9 and float(w[-1]) < 0.1
    again = MetaWeight()
    again.load_state(copy.deepcopy(meta.state()))
    assert torch.equal(again(score_), w)


def test_attention_is_that_of_the_token_before_to_the_prompt():
    model = tiny.build(init_range=0.3)
    row = Row(ids=tiny.ids(9)[0], trainable=np.arange(9) >= 4)
    (out,) = with_attention(model, [row], [0, 1])
    column = out.columns["attention"]
    assert (column[:4] == 0).all() and (column[4:] > 0).all()
    assert column[4] == pytest.approx(1.0, abs=1e-5), "all that the token before it sees is the prompt"
    assert column[8] < 1
    with pytest.raises(ValueError, match="layers 0 to 1, not 5"):
        with_attention(model, [row], [5])


# --- what the rounds learn from ---------------------------------------------------------------------------------------


def test_rounds_are_read_and_refused():
    assert [t.steps for t in read([{}, {"steps": 4}, {}], 11)] == [3, 4, 4]
    assert read([{}], 5) == [RoundSpec(steps=5)]
    for bad, message in (
        ([], "add up"),
        ([{"steps": 3}], "add up"),
        ([{"steps": 9}, {}], "add up"),
        (["x"], "must be a mapping"),
        ([{"renw": True}], "did you mean 'renew'"),
        ([{"renew": 1}], "must be a bool"),
        ([{"pairs": "x"}], "choose 'clean'"),
        ([{"easiest": 0.0}], "shares above 0"),
        ([{"every": -1}], "0 or more"),
    ):
        with pytest.raises(UserError, match=message):
            read(bad, 5)


def a_pair(i, chosen="<answer>2</answer>", rejected="<answer>3</answer>", prompt=None, **rest):
    messages = (Message(role="user", content=prompt or f"question {i}"),)
    return PreferencePair(
        id=f"p{i}", prompt=messages, chosen=chosen, rejected=rejected, source="t", **{"split": "train"} | rest
    )


def test_columns_are_read_or_computed():
    ps = [
        a_pair(0, columns={"margin": 2, "annotator": "b", "group": "0", "x": 1.5}),
        a_pair(1, margin=0.5, columns={"annotator": "a", "x": 2}),
    ]
    values = columns.columns("prefer", ps, ["margin", "annotator", "weight", "other", "x", "history"])
    assert values["p0"] == {"margin": 2.0, "annotator": 1.0, "weight": 1.0, "other": 0.0, "x": 1.5}
    with pytest.raises(
        UserError, match="needs the number 'y' in the columns of every pair, and p0 has none; found: annotator, group"
    ):
        columns.columns("prefer", ps, ["y"])
    judged = a_pair(2, decisions=(Decision(step="s", action="weight", reason="r", score=0.25),))
    even = a_pair(3, columns={"outcome": [1, 1], "process": [0.9, 0.4]})
    apart = a_pair(4, columns={"outcome": [1, 0], "process": [0.9, 0.4]})
    longer = a_pair(5, chosen="<answer>one two three</answer>", rejected="<answer>one</answer>")
    values = columns.columns("prefer", [judged, even, apart, longer], ["weight", "other"])
    assert [values[f"p{i}"]["weight"] for i in (2, 3, 4)] == [0.25, 0.5, 1.0]
    assert values["p5"]["other"] == -0.5, "brevity: (1 - 3) / 4"


def test_margins_without_labels_are_those_of_a_model_of_other_pairs():
    ps = [a_pair(i, chosen=f"<answer>{i}</answer> good", rejected=f"<answer>{i}</answer> bad") for i in range(40)]
    ps.append(a_pair(40, chosen="<answer>1</answer> bad", rejected="<answer>1</answer> good"))
    margins = columns.margins("prefer", [replace(p, columns={"group": p.id}) for p in ps])
    assert min(margins[:40]) > 0 > margins[40]


def test_units():
    same = [a_pair(i, prompt="q") for i in range(3)] + [a_pair(9, prompt="other")]
    assert [[t.pair.id for t in u] for u in units.prompt(same, {})] == [["p0", "p1"], ["p2", "p2"], ["p9", "p9"]]

    (three,) = units.instructions(
        [a_pair(0, chosen="<answer>red cat</answer>", rejected="<answer>blue cat</answer>")], {}
    )
    base, more, prompts = three
    assert base.chosen[0][-1].content == "question 0" and more.chosen[0][-1].content == "question 0 Use the word red."
    assert prompts.chosen == more.chosen and prompts.rejected[1] == more.chosen[1]
    assert prompts.rejected[0][-1].content == "question 0 Avoid the word red."
    assert units.instructions([a_pair(1, chosen="<answer>cat</answer>", rejected="<answer>cat dog</answer>")], {}) == []

    make = lambda answer, i: Problem.make(
        prompt=f"question {i}", answer=answer, verifier="number", family="f", split="train"
    )  # noqa: E731
    problems = [make("2", 0), make("5", 1), make("2", 2)]
    ps = [a_pair(i, chosen=f"<answer>{p.answer}</answer>", problem=p.id) for i, p in enumerate(problems)]
    known = {p.id: p for p in problems}
    (both,) = units.contrast(ps, known)
    assert both[0].rejected == (ps[0].prompt, ps[1].chosen) and both[1].rejected == (ps[1].prompt, ps[0].chosen)
    assert units.contrast([ps[0], ps[2]], known) == [], "each answer is right for both"

    ((one,),) = units.conditioned([a_pair(0, chosen="<answer>one two</answer>")], {})
    assert one.chosen[0][0].content == "good 1 short 9" and one.rejected[0][0].content == "good 0 short 10"


def played(rewards, lengths):
    groups = toy.groups([rewards], lengths=[lengths])
    return replace(
        groups[0],
        rollouts=tuple(replace(r, score=Scored(value=x)) for r, x in zip(groups[0].rollouts, rewards, strict=True)),
    )


def test_the_best_is_put_against_the_worst_and_ties_give_nothing():
    source = partial(SampledPairs, problems=[], player=None, prompts=1, samples=8, seed=0)
    eight = played([0.0, 0.3, 1.0, 0.1, 0.5, 0.2, 0.9, 0.4], [3] * 8)
    chosen, rejected = source().unit(eight, 0)
    assert chosen.scalars["margin"] == 1.0 and chosen.group == rejected.group == 0
    assert source().unit(played([1.0, 1.0], [3, 3]), 0) == []
    pairs_source = source(rules=[length_penalty(per_token=0.01)])
    (problem,), (worths,) = pairs_source.asked(toy.problems(1), np.random.default_rng(0))
    assert problem == toy.problems(1)[0]
    chosen, rejected = pairs_source.unit(played([1.0, 1.0], [5, 3]), 0, worths)
    assert chosen.trainable.sum() == 3 and rejected.trainable.sum() == 5, "of two right answers the shorter"
    assert len(source(pairs_per_unit=2).unit(eight, 0)) == 4
    few = source(pairs_per_unit=2).unit(played([1.0, 0.0], [3, 3]), 0)
    assert len(few) == 4 and np.array_equal(few[0].ids, few[2].ids), "one pair twice"
    short = source().unit(played([1.0, 0.0], [9, 2]), 0, [partial(along, (0.0, 1.0), 10)])
    assert short[0].trainable.sum() == 2, "the direction asks for brevity alone"
    assert directed(toy.problems(1)[0], (0.7071, -0.7071)).prompt[0].content == "right 71 short -71"


def test_rules_change_what_is_asked_and_what_it_is_worth_one_after_the_other():
    player = SimpleNamespace(sampling=Sampling(temperature=1.0, max_tokens=10))
    rules = [directions(angles=[90.0]), length_penalty(per_token=0.1)]
    pairs_source = SampledPairs(problems=[], player=player, prompts=1, samples=2, seed=0, rules=rules)
    problems, worths = pairs_source.asked(toy.problems(2), np.random.default_rng(0))
    assert [p.prompt[0].content for p in problems] == ["right 0 short 100"] * 2
    chosen, rejected = pairs_source.unit(played([1.0, 0.0], [4, 2]), 0, worths[0])
    assert chosen.trainable.sum() == 2, "the direction asks for brevity alone"
    assert chosen.scalars["margin"] == pytest.approx((0.8 - 0.2) - (0.6 - 0.4))


def test_a_rule_without_what_it_needs_is_a_sentence():
    with pytest.raises(UserError, match="uses no reference"):
        averaged_reference(of=["base"]).change_reference(None, lambda name: tiny.build())
    reference, other = tiny.build(seed=0), tiny.build(seed=1)
    want = {k: 0.75 * p.double() + 0.25 * other.state_dict()[k].double() for k, p in reference.state_dict().items()}
    averaged_reference(of=["x"], weight=0.75).change_reference(reference, {"x": other}.__getitem__)
    assert all(torch.equal(p, want[k].to(p.dtype)) for k, p in reference.state_dict().items())


def test_a_sampled_pair_knows_the_turns_of_its_episodes():
    (group,) = toy.groups([[1.0, 0.0]], [[5, 4]], turns=[[3, 2]])
    pairs = SampledPairs(problems=toy.problems(1), player=None, prompts=1, samples=2, seed=0)
    for row, turns in zip(pairs.unit(group, 0), (3, 2), strict=True):
        assert (
            set(row.columns["turn"][row.trainable]) == set(range(1, turns + 1))
            and not row.columns["turn"][~row.trainable].any()
        )


def test_units_made_one_after_the_other_are_those_of_all_at_once():
    rng = Random(2)
    answers = [str(rng.randrange(1, 4)) for _ in range(60)]
    make = lambda i: Problem.make(  # noqa: E731
        prompt=f"question {i}", answer=answers[i], verifier="number", family=rng.choice("fgh"), split="train"
    )
    problems = [make(i) for i in range(60)]
    ps = [
        a_pair(
            i,
            prompt=f"question {rng.randrange(9)} é",
            chosen=f"<answer>{p.answer}</answer> red",
            rejected=f"<answer>{rng.randrange(1, 4)}</answer> blue",
            problem=p.id if i % 7 else "",
        )
        for i, p in enumerate(problems)
    ]
    known = {p.id: p for p in problems}
    on_disk = Ledger(Spilled(ps)).view(np.arange(60))
    for kind, make in units.UNITS.items():
        assert list(units.each(kind, on_disk, known)) == make(ps, known), kind

    by_prompt: dict = {}
    for p in ps:
        by_prompt.setdefault(p.prompt, []).append(p.id)
    want = [[mine[i], mine[min(i + 1, len(mine) - 1)]] for mine in by_prompt.values() for i in range(0, len(mine), 2)]
    assert [[t.pair.id for t in unit] for unit in units.prompt(ps, {})] == want and units.prompt([], {}) == []


def test_of_pairs_in_units_of_several_few_are_held():
    long = "word " * 400
    ps = [a_pair(i, prompt=f"question {i % 50}", chosen=f"{i} {long}", rejected=f"{long} {i}") for i in range(12_000)]
    on_disk = Ledger(Spilled(ps)).view(np.arange(12_000))
    del ps
    _, most = traced(lambda: sum(1 for _ in units.each("prompt", on_disk, {})))
    assert most < 20_000_000, most  # all at once are 50 million
