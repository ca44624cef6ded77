"""What every piece promises, checked for every file of every folder: a new file is tested the moment it exists.

A knob annotated `Literal[...]` is tried with each of its values.
"""

import copy
import inspect
import math
import re
import sys
import typing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.lab import toy
from tasks.planning import code
from tasks.planning.kinds import declared
from tasks.planning.pieces import files, locate, module
from training.learner.pack import split
from training.lm_head.divergence import dense_divergence
from training.metrics import columns
from training.preference.update_rule import UpdateRule
from training.types import TokenStats

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [
    *("advantage", "reward", "filter", "curriculum", "ratio", "correction", "policy_loss", "regulariser"),
    *("preference_loss", "metric", "group_transform", "value_loss", "turn_budget", "asynchrony", "placement"),
]
KNOWN_NEEDS = {
    n for stage in ("rl", "prefer") for n in code.constant(ROOT / f"tasks/stages/{stage}.py", "PROVIDES", {})
} | set(files("observation"))
KNOWN_NEEDS |= {n for path in files("update_rule").values() for n in code.constant(path, "PROVIDES", ())}
NAN = float("nan")


def observed_arguments(source):
    """The arguments of an observation, or of a piece's own `observe`, as its OBSERVES declares them."""
    variant = getattr(source, "OBSERVES", "groups")
    return tuple(declared("observation", "" if variant == "groups" else variant).arguments)


def modules():
    for folder in FOLDERS:
        for name in files(folder):
            yield folder, module(folder, name), name


def pays_steps(f):
    """Whether it reads what worlds of numbers say of their steps."""
    return getattr(sys.modules[f.func.__module__], "STEPS", False)


def variants(*folders):
    """(bound function, bound prepare or None) of every piece of the folders: once with defaults, once per value of each
    Literal knob."""
    out = []
    for folder, source, name in modules():
        if folder not in folders:
            continue
        function = getattr(source, name)
        hints = typing.get_type_hints(function)
        settings = [{}] + [
            {k: v}
            for k, hint in hints.items()
            if typing.get_origin(hint) is typing.Literal
            for v in typing.get_args(hint)
        ]
        for knobs in settings:
            prepare = getattr(source, "prepare", None)
            label = f"{folder}/{name}" + "".join(f"[{k}={v}]" for k, v in knobs.items())
            out.append(
                pytest.param(partial(function, **knobs), partial(prepare, **knobs) if prepare else None, id=label)
            )
    return out


def rng():
    return np.random.default_rng(7)


# --- every file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "module", "name"), [pytest.param(*m, id=f"{m[0]}/{m[2]}") for m in modules()])
def test_signature_and_docstring(folder, module, name):
    function = getattr(module, name, None)
    assert function is not None, f"{module.__file__} must define a function {name}"
    parameters = inspect.signature(function).parameters.values()
    positional, wanted = (
        [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD],
        list(declared(folder).arguments),
    )
    assert positional[: len(wanted)] == wanted
    assert folder == "metric" or positional == wanted
    for p in parameters:
        # A column, see tests/training/preference/test_prefer.py.
        if p.kind is p.KEYWORD_ONLY and not (folder == "preference_loss" and p.default is p.empty):
            assert isinstance(p.default, (int, float, str, bool, tuple, type(None))), (
                f"knob {p.name} needs a literal default"
            )
            assert p.annotation is not p.empty, f"knob {p.name} needs a type"
    doc = module.__doc__ or ""
    assert re.search(r"\b(19|20)\d\d\b", doc), "the docstring cites no source with a year"
    assert "arXiv" in doc or '"' in doc, "the docstring names no title or arXiv id"
    assert len(doc.splitlines()) >= 6, "the docstring lacks formula, shapes or assumptions"
    assert getattr(module, "NEEDS", set()) <= KNOWN_NEEDS
    for excluded, reason in getattr(module, "EXCLUDES", {}).items():
        kind, _, other = excluded.partition("/")
        assert locate(kind, other).exists() and len(reason) > 20
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        known = inspect.signature(function).parameters
        assert all(p.name in known for p in inspect.signature(prepare).parameters.values() if p.kind is p.KEYWORD_ONLY)
    if hasattr(module, "observe"):
        given = inspect.signature(module.observe).parameters.values()
        positional = tuple(p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD)
        assert positional == observed_arguments(module)


@pytest.mark.parametrize("name", files("update_rule"))
def test_an_update_rule_overrides_hooks_that_there_are_with_their_arguments(name):
    source = module("update_rule", name)
    rule = getattr(source, name)
    update, hooks = rule(), 0
    assert isinstance(update, UpdateRule)
    for hook, theirs in vars(UpdateRule).items():
        if not hook.startswith("_") and callable(theirs):
            mine = getattr(rule, hook)
            assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters), hook
            hooks += mine is not theirs
    assert hooks and all(
        hasattr(UpdateRule, n) for n in vars(rule) if inspect.isfunction(vars(rule)[n]) and n[0] != "_"
    )
    update.load_state(update.state(), None)
    knobs = [p for p in inspect.signature(rule).parameters.values()]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty and p.annotation is not p.empty for p in knobs)
    doc = source.__doc__ or ""
    assert re.search(r"\b(19|20)\d\d\b", doc) and "arXiv" in doc and len(doc.splitlines()) >= 5


@pytest.mark.parametrize("name", files("observation"))
def test_an_observation_says_what_it_observes_and_some_piece_asks_for_it(name):
    source = module("observation", name)
    parameters = inspect.signature(getattr(source, name)).parameters.values()
    positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    assert positional == observed_arguments(source)
    doc = source.__doc__ or ""
    assert re.search(r"\b(19|20)\d\d\b", doc) and "pass" in doc or "rollout" in doc, "what it costs, and its source"
    assert any(name in getattr(m, "NEEDS", ()) for _, m, _ in modules()), "no piece needs it"


# --- advantage, reward, filter ---------------------------------------------------------------------------------------

REWARDS = [
    [1.0, 0.0, 0.0, 1.0, 0.25],
    [0.0, 0.0, 0.0],
    [NAN, 1.0, 0.0, 0.5],
    [0.1, 0.1, 0.1, 0.1],
    [NAN, NAN],
    [NAN, 1.0],
]


def rewards_of(lists):
    return [np.array(r) for r in lists]


def flat(group_advantages):
    """The numbers of a group's advantages, one per rollout or one per token."""
    return np.concatenate([np.ravel(c) for c in group_advantages]) if len(group_advantages) else np.zeros(0)


@pytest.mark.parametrize(("f", "_"), variants("advantage"))
def test_advantage_is_finite_and_ignores_the_unscorable(f, _):
    advantages = f(toy.groups(REWARDS), rewards_of(REWARDS), {}, rng())
    assert [len(c) for c in advantages] == [len(r) for r in REWARDS]
    for c, r in zip(advantages, REWARDS):
        assert np.isfinite(flat(c)).all()
        assert not any(np.any(x) for x, y in zip(c, r) if math.isnan(y)), "an unscorable rollout must get advantage 0"
    without = [[x for x in r if not math.isnan(x)] for r in REWARDS]
    clean = f(toy.groups(without), rewards_of(without), {}, rng())
    for c, r, d in zip(advantages, REWARDS, clean):
        assert flat([x for x, y in zip(c, r) if not math.isnan(y)]) == pytest.approx(flat(d)), (
            "an unscorable rollout moved the others' advantage"
        )


@pytest.mark.parametrize(("f", "_"), variants("advantage"))
def test_advantage_does_not_depend_on_order(f, _):
    base = f(toy.groups(REWARDS), rewards_of(REWARDS), {}, rng())
    order = [np.random.default_rng(i).permutation(len(r)) for i, r in enumerate(REWARDS)]
    mixed = [[r[j] for j in o] for r, o in zip(REWARDS, order)]
    for c, d, o in zip(base, f(toy.groups(mixed), rewards_of(mixed), {}, rng()), order):
        assert flat([c[j] for j in o]) == pytest.approx(flat(d), abs=1e-12)
    for c, d in zip(reversed(base), f(toy.groups(REWARDS[::-1]), rewards_of(REWARDS[::-1]), {}, rng())):
        assert flat(c) == pytest.approx(flat(d), abs=1e-12)


@pytest.mark.parametrize(("f", "_"), variants("advantage"))
def test_equal_rewards_give_zero_credit_unless_documented(f, _):
    equal = [[0.1] * 7, [1.0] * 3]
    advantages = f(toy.groups(equal), rewards_of(equal), {}, rng())
    documented = "qual rewards keep their advantage" in " ".join(inspect.getmodule(f.func).__doc__.split())
    assert documented or not any(flat(c).any() for c in advantages), (
        "say in the docstring if equal rewards keep their advantage"
    )


@pytest.mark.parametrize(("f", "_"), variants("advantage"))
def test_advantage_repeats_itself_and_keeps_its_inputs(f, _):
    given, state = rewards_of(REWARDS), {}
    first = f(toy.groups(REWARDS), given, state, rng())
    again = f(toy.groups(REWARDS), rewards_of(REWARDS), {}, rng())
    assert all(np.array_equal(flat(a), flat(b)) for a, b in zip(first, again))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(given, rewards_of(REWARDS)))
    assert all(isinstance(v, (int, float, str, list, dict, np.ndarray)) for v in state.values()), (
        "state must survive a checkpoint"
    )


@pytest.mark.parametrize(("f", "_"), variants("reward"))
def test_reward_keeps_shape_and_the_unscorable(f, _):
    shaped = f(toy.groups(REWARDS), rewards_of(REWARDS), {}, rng())
    for s, r in zip(shaped, REWARDS):
        assert np.array_equal(np.isnan(s), np.isnan(r)), "NaN must stay NaN and nothing else may become it"


@pytest.mark.parametrize(("f", "_"), variants("filter"))
def test_filter_gives_a_code_or_none(f, _):
    given = toy.groups(REWARDS)
    verdicts = f(given, rewards_of(REWARDS), {}, rng())
    assert len(verdicts) == len(REWARDS)
    assert all(v is None or re.fullmatch(r"[a-z_]+", v) for v in verdicts)
    assert verdicts[4] is not None, "a group without a single score must be dropped"
    assert list(reversed(verdicts)) == f(given[::-1], rewards_of(REWARDS[::-1]), {}, rng())


# --- curriculum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("f", "_"), variants("curriculum"))
def test_curriculum_chooses_and_resumes(f, _):
    problems = toy.problems(11)
    scores = {"scores": {p.id: [i / 10] * 3 for i, p in enumerate(problems[:6])} | {problems[7].id: [NAN]}}
    state, g = copy.deepcopy(scores), rng()
    for n in (1, 4, 11, 25):
        chosen = f(problems, state, g, n)
        assert len(chosen) == n and set(chosen) <= set(range(11))
        assert n > 11 or len(set(chosen)) == n or n == 11, "no problem twice in one draw while others wait"
    one, two = copy.deepcopy(scores), copy.deepcopy(scores)
    g, h = rng(), rng()
    run = [f(problems, one, g, 4) for _ in range(5)]
    resumed = [f(problems, two, h, 4) for _ in range(2)]
    two = copy.deepcopy(two)
    assert run == resumed + [f(problems, two, h, 4) for _ in range(3)]
    with pytest.raises(ValueError, match="no problem"):
        f([], {}, rng(), 3)


# --- per-token pieces ------------------------------------------------------------------------------------------------

MASKED = {"trainable": [True, False, True], "advantages": [1.0, 1e6, -2.0]}
ROWS = [
    {
        "logp": [-1.0, -2.0, -0.3],
        "old": [-1.2, -1.0, -0.9],
        "sampling_logp": [-1.1, -3.0, -0.8],
        "reference": [-0.5, -2.0, -1.3],
        "sampling_entropy": [0.3, 2.0, 0.9],
        "reward": 1.0,
        "turn": [1, 0, 2],
        "turn_reward": [0.5, 0.0, 1.0],
        "corrupted": -2.0,
        **MASKED,
    },
    {"logp": [-0.1], "old": [-0.7], "advantages": -1.0, "sampling_entropy": 0.2},
    {"logp": [-3.0, -0.2], "advantages": 0.5, "trainable": False},
    {
        "logp": [-0.4, -0.9, -2.2, -0.6, -1.5],
        "old": [-0.5, -0.9, -1.0, -2.5, -1.4],
        "advantages": 0.7,
        "sampling_entropy": [1.1, 0.1, 0.5, 0.7, 1.3],
        "reward": 1.0,
        "off_policy": 1.0,
        "group": 0,
        "turn": [1, 1, 2, 2, 2],
        "turn_reward": [0.0, 0.0, 1.0, 1.0, 1.0],
        "reference": -1.0,
    },
]
INF = float("inf")
ADVERSARIAL = {
    "nothing trainable": [{"logp": [-1.0, -INF, -2.0], "advantages": 1.0, "trainable": False}],
    "one token": [{"logp": [-1.0], "advantages": 1.0}],
    "impossible token": [
        {"logp": [-INF, -1.0], "old": [-1.0, -1.0], "advantages": -1.0},
        {"logp": [-1.0], "advantages": 2.0},
    ],
    "the sampler says impossible": [
        {"logp": [-1.0, -2.0], "old": [-INF, -2.0], "reference": [-INF, -1.0], "advantages": 1.0}
    ],
    "far off policy": [
        {"logp": [-1e4, -1e-9], "old": [-1e-9, -1e4], "reference": [-1e-9, -1e4], "advantages": [-1e3, 1e3]},
        {"logp": [-1e-9], "old": [-1e4], "advantages": -1e3},
    ],
    "garbage where masked": [
        {
            "logp": [NAN, -1.0, INF],
            "old": [NAN, -1.1, -INF],
            "advantages": [NAN, 1.0, INF],
            "reference": [NAN, -2.0, INF],
            "trainable": [False, True, False],
        }
    ],
}


def terms_of(f, batch, stats):
    """A policy loss or a regulariser on a batch, the ratio taken per token."""
    if inspect.getmodule(f.func).__name__.startswith("training.rl.regulariser"):
        return f(stats, batch)
    from training.rl.ratio.token import token

    return f(token(stats.logp, batch.columns["old"], batch), batch.columns["advantages"], stats, batch)


def make(rows):
    """A toy whose entropy also asks for gradient, so that regularisers of it are tested too."""
    t = toy.batch(rows)
    entropy = torch.linspace(0.1, 2.0, len(t.batch.ids)).requires_grad_()
    return t.batch, stats_of(
        t.batch, t.leaf, entropy, torch.sin(torch.arange(len(t.batch.ids) * 4.0)).reshape(-1, 4).requires_grad_()
    )


def stats_of(batch, logp, entropy, logits):
    """Statistics whose distributions [N, 4] belong to no log-prob: only that they are asked for in the same way matters
    here."""
    distribution = lambda: torch.log_softmax(logits[batch.trainable], -1)
    teacher = torch.tensor([0.7, 0.1, 0.1, 0.1]).log()

    def divergence(kind, mix):
        at = batch.trainable.nonzero().squeeze(1)
        return torch.zeros(len(batch.ids)).index_add(0, at, dense_divergence(distribution(), teacher, kind, mix))

    return TokenStats(
        logp=logp,
        entropy=entropy,
        extras={"logits": logits, "particles": logits.view(-1, 2, 2), "clean": logits[:, :2], "routers": logits},
        distribution=distribution,
        divergence=divergence,
    )


def gradients(loss, stats):
    grads = torch.autograd.grad(loss, [stats.logp, stats.entropy, stats.extras["logits"]], allow_unused=True)
    return [torch.zeros_like(stats.logp) if g is None else g for g in grads]


@pytest.mark.parametrize(("f", "prepare"), variants("policy_loss", "regulariser"))
def test_terms_are_zero_where_nothing_is_trained(f, prepare):
    batch, stats = make(ROWS)
    if prepare:
        prepare(batch)
    terms = terms_of(f, batch, stats)
    assert terms.values.shape == batch.ids.shape, "per token, so that the learner can weigh each"
    assert terms.denominator in batch.totals
    assert (terms.values[~batch.trainable] == 0).all()
    assert terms.values[batch.trainable].abs().sum() > 0
    for g in gradients(terms.values.sum(), stats):
        assert (g[~batch.trainable] == 0).all(), "a masked token has a gradient"
    for total, count in terms.metrics.values():
        assert (
            not (torch.is_tensor(total) and total.requires_grad) and math.isfinite(float(total)) and float(count) >= 0
        )


@pytest.mark.parametrize(("f", "prepare"), variants("policy_loss"))
def test_without_advantage_a_policy_loss_has_no_gradient_or_says_so(f, prepare):
    """The experience leaves rows without advantage out of the model's passes: a policy loss that needs them says ADVANTAGE_ONLY
    = False."""
    batch, stats = make([{**row, "advantages": 0.0} for row in ROWS])
    if prepare:
        prepare(batch)
    values = terms_of(f, batch, stats).values
    moved = values.requires_grad and any(g.any() for g in gradients(values.sum(), stats))
    assert not moved or not getattr(inspect.getmodule(f.func), "ADVANTAGE_ONLY", True)


@pytest.mark.parametrize(("f", "prepare"), variants("policy_loss", "regulariser"))
def test_splitting_a_batch_changes_nothing(f, prepare):
    batch, stats = make(ROWS)
    if prepare:
        prepare(batch)
    terms = terms_of(f, batch, stats)
    whole = terms.values.sum() / batch.totals[terms.denominator]
    expected = gradients(whole, stats)
    parts, at = torch.zeros(()), 0
    for part in split(batch, 5):
        n = len(part.ids)
        here = slice(at, at + n)
        t = terms_of(f, part, stats_of(part, stats.logp[here], stats.entropy[here], stats.extras["logits"][here]))
        parts = parts + t.values.sum() / part.totals[t.denominator]
        at += n
    assert at == len(batch.ids)
    assert parts.item() == pytest.approx(whole.item(), abs=1e-6)
    for a, b in zip(expected, gradients(parts, stats)):
        assert torch.allclose(a, b, atol=1e-7)


@pytest.mark.parametrize("case", ADVERSARIAL)
@pytest.mark.parametrize(("f", "prepare"), variants("policy_loss", "regulariser"))
def test_terms_stay_finite(f, prepare, case):
    batch, stats = make(ADVERSARIAL[case])
    if prepare:
        prepare(batch)
    terms = terms_of(f, batch, stats)
    assert torch.isfinite(terms.values).all()
    assert all(torch.isfinite(g).all() for g in gradients(terms.values.sum(), stats) if terms.values.requires_grad)
    assert all(math.isfinite(float(s)) for s, _ in terms.metrics.values())


@pytest.mark.parametrize("case", ["ordinary", *ADVERSARIAL])
@pytest.mark.parametrize(("f", "_"), variants("ratio"))
def test_ratio_is_finite_zero_where_masked_and_zero_on_policy(f, _, case):
    batch, stats = make(ADVERSARIAL.get(case, ROWS))
    out = f(stats.logp, batch.columns["old"], batch)
    assert out.shape == batch.ids.shape and torch.isfinite(out).all() and (out[~batch.trainable] == 0).all()
    if out.requires_grad:
        (g,) = torch.autograd.grad(out.sum(), stats.logp)
        assert torch.isfinite(g).all() and (g[~batch.trainable] == 0).all()
    finite = torch.where(torch.isfinite(stats.logp), stats.logp, -1.0).detach()
    assert (f(finite, finite, batch) == 0).all()


@pytest.mark.parametrize("case", ["ordinary", *ADVERSARIAL])
@pytest.mark.parametrize(("f", "_"), variants("correction"))
def test_correction_is_a_detached_finite_weight(f, _, case):
    batch, stats = make(ADVERSARIAL.get(case, ROWS))
    weight = f(stats.logp, batch.columns["sampling_logp"], batch)
    assert weight.shape == batch.ids.shape and not weight.requires_grad
    assert torch.isfinite(weight).all() and (weight >= 0).all() and (weight[~batch.trainable] == 1).all()
    finite = torch.where(torch.isfinite(stats.logp), stats.logp, -1.0)
    assert torch.allclose(f(finite, finite.detach(), batch), torch.ones(()))


# --- a critic's losses, schedules, group_transforms -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["ordinary", *ADVERSARIAL])
@pytest.mark.parametrize(("f", "_"), variants("value_loss"))
def test_a_critics_loss_is_finite_split_proof_and_smallest_at_the_return(f, _, case):
    rows = [{**row, "returns": 0.75, "value": row["logp"]} for row in ADVERSARIAL.get(case, ROWS)]
    batch = toy.batch(rows).batch
    value = torch.linspace(-0.4, 1.4, len(batch.ids)).requires_grad_()
    terms = f(value, batch)
    assert (
        torch.isfinite(terms.values).all() and (terms.values[~batch.trainable] == 0).all() and (terms.values >= 0).all()
    )
    (whole,) = torch.autograd.grad(terms.values.sum() / batch.totals[terms.denominator], value)
    assert torch.isfinite(whole).all() and (whole[~batch.trainable] == 0).all()
    parts, at = torch.zeros(()), 0
    for part in split(batch, 5):
        t = f(value[at : at + len(part.ids)], part)
        parts, at = parts + t.values.sum() / part.totals[t.denominator], at + len(part.ids)
    assert torch.allclose(torch.autograd.grad(parts, value)[0], whole, atol=1e-7)
    if case == "ordinary":
        batch.add("value", torch.full_like(value, 0.75), "token")
        right, off = f(torch.full_like(value, 0.75), batch), f(torch.full_like(value, 0.9), batch)
        assert right.values.sum() < off.values.sum()


@pytest.mark.parametrize(("f", "_"), variants("turn_budget"))
def test_a_schedule_gives_whole_numbers_that_a_turn_can_have(f, _):
    assert all(isinstance(f(step, 40), int) and f(step, 40) >= 1 for step in range(41))
    assert f(3, 40) == f(3, 40)


@pytest.mark.parametrize(("f", "_"), variants("group_transform"))
def test_a_guide_keeps_groups_and_never_touches_what_needs_no_help(f, _):
    seen = {  # of worlds of numbers
        "factors": [[0.0, 1.0], [1.0, 0.0]],
        "expert": [1.0, 0.0],
        "observation": [[0.0, 1.0, *[0.0] * 10], [1.0, 0.0, *[0.0] * 10]],
    }
    more = {"extras": [[seen] * len(r) for r in REWARDS]} if pays_steps(f) else {}
    if pays_steps(f):
        more["parts"] = [[{"stage": 1.0}] * len(r) for r in REWARDS]
    given = toy.groups(REWARDS, **more)
    out = f(given, toy.RolloutServices(plays=[[0.0, 1.0, 0.0]] * 20), {}, rng())
    assert [g.id for g in out] == [g.id for g in given] and all(g.rollouts for g in out)
    assert all(r.group == g.id for g in out for r in g.rollouts)
    assert f(toy.groups([[NAN, NAN]]), toy.RolloutServices(), {}, rng())[0].rollouts, (
        "a group without a score is left as it is"
    )
    again = f(toy.groups(REWARDS, **more), toy.RolloutServices(plays=[[0.0, 1.0, 0.0]] * 20), {}, rng())
    assert [[r.score for r in g.rollouts] for g in out] == [[r.score for r in g.rollouts] for g in again]
    state = {}
    f(given, toy.RolloutServices(plays=[[0.0, 1.0, 0.0]] * 20), state, rng())
    assert all(isinstance(v, (int, float, str, list, dict, np.ndarray)) for v in state.values()), (
        "state must survive a checkpoint"
    )


# --- evaluate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("f", "_"), variants("metric"))
def test_metrics_have_intervals_and_repeat(f, _):
    scored = [[1.0, 0.0] * 4, [0.0] * 8, [1.0] * 8, [NAN, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]]
    draw = np.random.default_rng(3)
    make = {  # a column of samples by its name
        "against": lambda s, i, j: s[::-1][j],
        "answers": lambda s, i, j: ["Paris", "the Paris", "Rome", ""][(i + j) % 4],
        "references": lambda s, i, j: "Paris",
        "texts": lambda s, i, j: ["", "I'm sorry, but I cannot.", "<answer>Paris</answer>", "so 3 + 4 = 7"][
            (i * j) % 4
        ],
        "outcomes": lambda s, i, j: ["right", "wrong", "malformed"][j % 3],
        "confidences": lambda s, i, j: NAN if j == 5 else float(draw.random()),
        "features": lambda s, i, j: draw.normal(size=4).tolist(),
        "trained": lambda s, i, j: ["", "a", "b"][j % 3],
        "tested": lambda s, i, j: "ab"[i % 2],
        "judges": lambda s, i, j: ["weak", "strong"][j % 2],
        "sources": lambda s, i, j: ["weak", "strong unseen"][j // 2 % 2],
    }
    extra = {
        c: [
            [make.get(c, lambda s, i, j: float(3 * i + j % 5))(s, i, j) for j in range(len(s))]
            for i, s in enumerate(scored)
        ]
        for c in columns(f.func)
    }
    out = f(scored, **extra)
    assert out == f(scored, **extra)
    for name, metric in out.items():
        assert set(metric) == {"mean", "low", "high", "n"} and metric["low"] <= metric["mean"] <= metric["high"]
        assert metric["n"] == 4 or "->" in name, "every problem with a score counts; a cell of a matrix has its own"
    nothing = f([[NAN]], **{c: [[column[0][0]]] for c, column in extra.items()})
    assert all(m["n"] == 0 and math.isnan(m["mean"]) for m in nothing.values())
