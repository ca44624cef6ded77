"""The contract of whole recipes: each, as it is run, does what it says; and the dry step can see where one does not."""

import textwrap

import pytest

from tasks.core.errors import UserError
from tasks.lab import dry
from tasks.planning import parts
from tasks.planning.kinds import settled
from tasks.planning.resolve import check_params, resolve
from tests.support.whole_recipes import findings

# --- the dry step sees what it is there for -------------------------------------------------------------------------------


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """f(name, stages) -> a recipe of the user's with these stages."""

    def write(stages):
        folder = tmp_path / "pieces" / "recipes"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mine.yaml").write_text("id: mine\nstages:\n" + textwrap.indent(textwrap.dedent(stages), "  "))
        monkeypatch.chdir(tmp_path)
        return "mine"

    return write


def test_a_reward_that_is_always_zero(recipe):
    name = recipe("rl: {rewards: [{piece: weighted_parts, parts: [taste]}], advantage: grpo, policy_loss: clip}")
    report = " | ".join(findings(name))
    assert "the part 'taste' that reward/weighted_parts reads is in no rollout" in report
    assert "the weights never move in rl: all rewards of a group are equal at every step (0)" in report


def test_a_piece_that_changes_nothing(recipe):
    name = recipe("rl: {rewards: [{piece: weighted_parts, parts: [value, value]}], advantage: {piece: grpo}}")
    (finding,) = findings(name)
    assert "reward/weighted_parts changes nothing" in finding
    name = recipe("rl: {regularisers: [{piece: kl, coef: 0.0}]}")
    assert "regulariser/kl changes nothing" in findings(name)[0]


def test_a_rule_is_held_against_as_many_steps_without_it(recipe):
    rule = "prefer: {rounds: [{}, {pairs: sampled}], update_rules: [{piece: length_penalty, per_token: %s}]}"
    assert not findings(recipe(rule % 0.01))
    (finding,) = findings(recipe(rule % 0.0))
    assert "update_rule/length_penalty changes nothing" in finding


def test_a_number_for_each_step_weighs_steps_and_a_constant_changes_nothing(recipe):
    scaled = "rl: {advantage: {piece: informative_scale, cap: %s}, curriculum: {piece: uniform}}"
    assert not findings(recipe(scaled % 4.0))
    (finding,) = findings(recipe(scaled % 1.0))  # a cap of 1 makes it GRPO
    assert "advantage/informative_scale" in finding


def test_a_ratio_that_is_one(recipe):
    one = "rl: {policy_loss: {piece: cispo}, minibatches: %d}"
    assert "cispo uses the importance ratio" in findings(recipe(one % 1))[0]
    assert not findings(recipe(one % 2))


def test_a_term_that_nobody_asked_for(recipe):
    name = recipe("prefer: {loss: dpo, sft_weight: 0.0}")
    assert not findings(name)
    other = recipe("prefer: {loss: dpo, sft_weight: 0.5}")
    assert not findings(other), "what a recipe asks for is no finding"


def test_what_is_not_small_is_as_shipped():
    shipped = resolve(check_params({"recipe": "grpo"}, None))[0]["rl"].params
    small = dry.planned("grpo")["rl"].params
    shipped, small = (dict(settled("rl", x)) for x in (shipped, small))
    other = {k for k in shipped if shipped[k] != small[k]}
    assert other <= {*dry.SIZES["rl"], *dry.IF_LARGER["rl"], *dry.FREE["rl"], "steps"}


def test_the_judge_that_stands_in_likes_right_answers_and_then_short_ones():
    from tasks.lab.toy import groups

    (group,) = dry.StandIn().rewarded(groups([[1.0, 0.0, 0.0, float("nan")]], [[3, 3, 5, 2]]))
    # The right one beats all three. Of the others the shorter one beats the longer, and loses to the one without a score, which is shorter.
    assert [r.score.parts["judge"] for r in group.rollouts[:3]] == pytest.approx([1, 1 / 3, 0])
    assert not hasattr(group.rollouts[3].score, "parts")


# --- parts are declared, and a plan without a giver is refused ------------------------------------------------------------


def resolved(set_):
    return resolve(check_params({"recipe": "", "set": set_}, None))[0]


def test_parts_that_nobody_gives_are_refused():
    turns = {"rl": {"advantage": {"piece": "step_group"}}}
    with pytest.raises(UserError, match=r"rl: advantage/step_group reads the rewards of turns.* search \(gain set\)"):
        parts.check(resolved(turns))
    turns["rl"]["envs"] = [{"piece": "search", "gain": 0.2}]
    parts.check(resolved(turns))
    kept = {"rl": {"rewards": [{"piece": "weighted_parts", "parts": ["kept"]}], "include_families": True}}
    with pytest.raises(UserError, match="problems of the verifier among clauses"):
        parts.check(resolved(kept))
    parts.check(resolved({**kept, "problems": {"families": [{"piece": "constrained_writing"}]}}))


def test_a_knob_names_parts():
    lacking = list(parts.missing(resolved({"rl": {"rewards": [{"piece": "evidence_gated", "parts": ["a", "b"]}]}})))
    assert lacking == [("reward/evidence_gated", x) for x in ("a", "b", "a_evidence", "b_evidence")]
