"""The contract of whole recipes: each, as it is run, does what it says; and the dry step can see where one does not."""

import textwrap

import pytest

from tasks.errors import UserError
from tasks.lab import dry
from tasks.planning import parts
from tasks.planning.kinds import settled
from tasks.planning.resolve import check_params, resolve

_PARTS = "nothing here gives the parts that it reads, so the plan refuses it"
_RATIO = "about the importance ratio, run with one update per step"
_LONG = "its overlong penalty begins at thousands of tokens, which a run of the default profile never reaches"
KNOWN: dict[str, str] = {  # recipe -> why it does not do all that it says yet; the table only shrinks
    **dict.fromkeys(
        (
            "autothink compliance-reasoner duoguard fathom-rapo gra-gated-reward guru hipo-hybrid klcf planner-r1 polo-pgpo reasonrank "
            "retro-star reveal-tapo reward-clip-delta rl-tango rubric-tail spell think-as-locals-carb truegrade-rag-grader "
            "variational-reasoning webgen-step-grpo"
        ).split(),
        _PARTS,
    ),
    **dict.fromkeys("cispo kimi-k1.5 kl-cov llamarl rover sapo vespo".split(), _RATIO),
    **dict.fromkeys("dapo high-entropy-tokens icepop pass-at-k-training qae tis".split(), _LONG),
    "acesearcher": "the gate is the environment's already: what is not answered earns nothing",
    "internbootcamp": "its proposer, solver and pay are named and rest: rounds is 0",
    "j1-stts-judge": "the problems of its families play in the environment single, which it leaves out",
    "on-policy-distillation": "the teacher is the user's; without one the policy learns from itself",
    "prefcleanbench": "the column votes comes with the user's pairs",
    "rar2": "its maker asks what the program with errors cannot answer: it wants a model behind an endpoint",
    "ruscarl": "its rubric is the verifier's value alone",
    "semantic-shield": "the column votes comes with the user's pairs",
    "steporlm-wdpo-genprm": "no pair has a weight until a cleaner or a reward model gives one, so it is DPO",
    "synrewrite": "its maker asks what the program with errors cannot answer: it wants a model behind an endpoint",
}
BY_DEFAULT = "sft_weight: 0.2 adds"  # a default of the stage prefer, not of a recipe


def findings(name):
    found = dict.fromkeys(line.finding for line in dry.table(name) if line.finding)
    return [text for text in found if not text.startswith(BY_DEFAULT)]


FIRST = ["dpo", "dr-grpo", "gigpo", "grpo", "kto", "ppo"]


@pytest.mark.parametrize("name", FIRST)
def test_a_recipe_does_what_it_says(name):
    found = findings(name)
    if name in KNOWN:
        assert found, f"{name} does what it says now: take it out of KNOWN"
    else:
        assert not found, "\n".join(found)


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
    found = " | ".join(findings(name))
    assert "the part 'taste' that reward/weighted_parts reads is in no rollout" in found
    assert "the weights never move in rl: all rewards of a group are equal at every step (0)" in found


def test_a_piece_that_changes_nothing(recipe):
    name = recipe("rl: {rewards: [{piece: weighted_parts, parts: [value, value]}], advantage: {piece: grpo}}")
    (found,) = findings(name)
    assert "reward/weighted_parts changes nothing" in found
    name = recipe("rl: {regularisers: [{piece: kl, coef: 0.0}]}")
    assert "regulariser/kl changes nothing" in findings(name)[0]


def test_a_ratio_that_is_one(recipe):
    one = "rl: {policy_loss: {piece: cispo}, minibatches: %d}"
    assert "cispo speaks of the importance ratio" in findings(recipe(one % 1))[0]
    assert not findings(recipe(one % 2))


def test_a_term_that_nobody_asked_for(recipe):
    name = recipe("prefer: {loss: dpo, sft_weight: 0.0}")
    assert not findings(name)
    asked = recipe("prefer: {loss: dpo, sft_weight: 0.5}")
    assert not findings(asked), "what a recipe asks for is no finding"


def test_what_is_not_small_is_as_shipped():
    shipped = resolve(check_params({"recipe": "grpo"}, None))[0]["rl"].params
    small = dry.planned("grpo")["rl"].params
    shipped, small = (dict(settled("rl", x)) for x in (shipped, small))
    other = {k for k in shipped if shipped[k] != small[k]}
    assert other <= {*dry.SIZES["rl"], *dry.IF_LARGER["rl"], *dry.FREE["rl"], "steps"}


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
    found = list(parts.missing(resolved({"rl": {"rewards": [{"piece": "evidence_gated", "parts": ["a", "b"]}]}})))
    assert found == [("reward/evidence_gated", x) for x in ("a", "b", "a_evidence", "b_evidence")]
