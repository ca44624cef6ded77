"""The plan: precedence, refusals with the nearest valid name, and what re-runs when a file changes.

A toy stage, its pieces and recipes live in a folder of the user's own (ESPALIER_PATH), beside the real ones.
"""

import contextlib
import json
from types import SimpleNamespace

import pytest

from docs.generators import methods
from tasks.core.at_rest import files_at_rest
from tasks.core.errors import UserError
from tasks.planning import code, estimate, parts, plan, resolve
from tasks.core.config import parse, read_yaml

STAGE = """
from tasks.planning.pieces import Piece, Pieces
PROVIDES = {"reference"}
from training.toy_group import Speed
def toy(stage, *, steps: int = 10, lr: float = 1e-3, name: str = "x", samples_per_prompt: int = 4, init: str | None = None,
        speed: Speed = Speed(first=0.5),
        advantages: Piece("training.toy_credit") = {"piece": "mean", "eps": 1e-6},
        curriculum: Piece("training.toy_credit") | None = None,
        filters: Pieces("training.toy_filter") = [{"piece": "spread"}]):
    from synth.types import digest
"""
GROUP = '''
from dataclasses import dataclass
from typing import Literal
from tasks.planning.pieces import Piece
class Slow:
    """Slowly.

    Args:
        first: speed at first
    """
    first: float
class Speed(Slow):
    """How fast.

    Args:
        last: speed at last
        how: by what
    """
    last: float = 0.1
    how: Literal["foot", "rail"] = "foot"
    brake: Piece("training.toy_credit") = None
'''
FILES = {
    "stage/toy.py": STAGE,
    "stage/other.py": "def other(stage, *, width: int = 3, mode: str = 'a', rows: list[int] = [1, 2]):\n    pass\n",
    "training/toy_credit/mean.py": "MIN_GROUP = 2\ndef mean(groups, *, eps: float = 1e-5):\n    import training.toy_helper\n",
    "training/toy_credit/quantile.py": "EXCLUDES = {'training.toy_filter/heavy': 'both drop the tail; use spread instead'}\n"
    "def quantile(groups, *, k: float = 0.4, eps: float = 1e-8): ...\n",
    "training/toy_credit/critic.py": "NEEDS = frozenset({'value'})\ndef critic(groups): ...\n",
    "training/toy_credit/watcher.py": "def watcher(groups): ...\ndef observe(player, groups, problems, seed): ...\n",
    "training/toy_filter/spread.py": "NEEDS = {'reference'}\ndef spread(groups, *, least: float = 0.0): ...\n",
    "training/toy_filter/heavy.py": "def heavy(groups, *, mode: str = 'a', wide: bool = False): ...\n",
    "training/toy_group.py": GROUP,
    "training/toy_helper.py": "from training import toy_deep\n",
    "training/toy_deep.py": "x = 1\n",
    "profiles/toy.yaml": "stages: {toy: {steps: 20, lr: 1e-4, speed: {last: 0.2}}}\nthreads: 1\n",
    "recipes/toy-quantile.yaml": "id: toy-quantile\nstages: {toy: {steps: 30, advantages: {piece: quantile, k: 0.2}}}\n",
    "recipes/toy-child.yaml": "id: toy-child\nextends: toy-quantile\nstages: {toy: {advantages: {k: 0.3}, filters: [heavy]}}\n",
    "recipes/toy-fits.yaml": "id: toy-fits\nextends: toy-quantile\nstages: {toy: {advantages: {k: 0.3}, speed: {last: 0.3}}}\n",
    "recipes/toy-ring.yaml": "id: toy-ring\nextends: toy-ring\n",
    "recipes/toy-odd.yaml": "id: toy-odd\nstagse: {}\n",
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own"


def made(text, tmp_path):
    (tmp_path / "params.yaml").write_text(text)
    return plan.plans(tmp_path)


def refused(text, tmp_path):
    with pytest.raises(UserError) as e:
        made(text, tmp_path)
    return str(e.value)


def test_precedence(own, tmp_path):
    toy = made("profile: toy\nrecipe: ''", tmp_path)["toy"]["params"]
    assert (toy["steps"], toy["lr"], toy["advantages"]) == (20, 1e-4, {"piece": "mean", "eps": 1e-6})
    toy = made("profile: toy\nrecipe: toy-fits", tmp_path)["toy"]["params"]
    assert (toy["steps"], toy["advantages"]) == (30, {"piece": "quantile", "k": 0.3, "eps": 1e-8}), (
        "a child merges numbers into its parent's piece"
    )
    toy = made("profile: toy\nrecipe: toy_fits\nset: {toy: {steps: 40, lr: 1, advantages: {k: 0.5}}}", tmp_path)["toy"][
        "params"
    ]
    assert (toy["steps"], toy["lr"], toy["advantages"]["k"]) == (40, 1.0, 0.5)
    assert isinstance(toy["lr"], float)
    toy = made("profile: toy\nrecipe: toy-fits\nset: {toy: {advantages: {piece: mean}}}", tmp_path)["toy"]["params"]
    assert toy["advantages"] == {"piece": "mean", "eps": 1e-5}, (
        "a piece is replaced whole: its own defaults, not the stage's or the recipe's knobs"
    )


def test_knobs_that_belong_together_are_merged_field_by_field(own, tmp_path):
    """Signature and class < profile < recipe < `set:`; what a layer leaves out stays."""

    def speed(text):
        return made(text, tmp_path)["toy"]["params"]["speed"]

    assert speed("recipe: ''") == {"first": 0.5, "last": 0.1, "how": "foot", "brake": None}
    assert speed("profile: toy\nrecipe: ''")["last"] == 0.2
    assert speed("profile: toy\nrecipe: toy-fits")["last"] == 0.3, "the recipe before the profile"
    text = "profile: toy\nrecipe: toy-fits\nset: {toy: {speed: {last: 1, brake: quantile}}}"
    brake = {"piece": "quantile", "k": 0.4, "eps": 1e-8}
    assert speed(text) == {"first": 0.5, "last": 1.0, "how": "foot", "brake": brake}
    assert isinstance(speed(text)["last"], float)


def test_a_field_of_nested_knobs_has_words_type_and_default(own):
    knob = code.knobs(own / "stage/toy.py")["speed"]
    assert {k: (f.default, f.about) for k, f in knob.fields.items()} == {
        "first": (0.5, "speed at first"),
        "last": (0.1, "speed at last"),
        "how": ("foot", "by what"),
        "brake": (None, ""),
    }
    assert [n for n, _ in code.leaves({"speed": knob})] == ["speed.first", "speed.last", "speed.how", "speed.brake"]


@pytest.mark.parametrize(
    ("call", "words"),
    [("Speed()", "no default for first: write Speed(first=...)"), ("Speed(frist=1.0)", "Speed has no field 'frist'")],
)
def test_a_signature_that_its_class_does_not_fit_is_refused(own, call, words):
    path = own / "stage/toy.py"
    path.write_text(STAGE.replace("Speed(first=0.5)", call))
    with pytest.raises(UserError) as e:
        code.knobs(path)
    assert words in str(e.value)


def test_plan_says_what_the_loop_needs(own, tmp_path):
    toy = made("profile: toy", tmp_path)["toy"]
    assert toy["needs"] == ["reference"]
    assert toy["pieces"] == {
        "advantages": "training.toy_credit",
        "curriculum": "training.toy_credit",
        "filters": "training.toy_filter",
        "speed.brake": "training.toy_credit",
    }
    assert toy["settings"] == {"speed": "training.toy_group:Speed"}
    assert toy["profile"] == "toy" and toy["threads"] == 1


@pytest.mark.parametrize(
    "text, words",
    [
        ("recpie: x", ["params.yaml", "recpie", "did you mean 'recipe'"]),
        ("seed: [1]", ["seed must be a int"]),
        ("recipe: toy-quantil", ["no recipe 'toy-quantil'", "did you mean 'toy-quantile'"]),
        ("profile: toi", ["no profile 'toi'", "'toy'"]),
        ("recipe: toy-ring", ["toy-ring -> toy-ring", "circle"]),
        ("recipe: toy-odd", ["toy-odd.yaml", "stagse", "did you mean 'stages'"]),
        ("set: {tooy: {steps: 1}}", ["set: unknown stage 'tooy'", "did you mean 'toy'"]),
        ("set: {toy: {stpes: 1}}", ["set.toy.stpes", "did you mean 'steps'"]),
        ("set: {toy: {width: 1}}", ["other reads it, toy does not"]),
        ("set: {toy: {steps: ten}}", ["set.toy.steps must be int, not 'ten'"]),
        ("set: {toy: {steps: true}}", ["must be int"]),
        ("set: {toy: {init: 3}}", ["must be str or None"]),
        ("set: {other: {rows: [1, x]}}", ["must be list[int]"]),
        (
            "set: {toy: {advantages: watcher}}",
            ["training.toy_credit/watcher has a function observe", "plays no rollouts", "among critic, mean, quantile"],
        ),
        ("set: {toy: {advantages: quantil}}", ["set.toy.advantages", "no piece 'quantil'", "did you mean 'quantile'"]),
        ("set: {toy: {advantages: {piece: quantile, kk: 1}}}", ["unknown key 'kk'", "did you mean 'k'"]),
        (
            "set: {toy: {advantages: {k: 0.3}}}",
            ["set.toy.advantages.k", "no piece in use reads it", "mean", "training.toy_credit/quantile would"],
        ),
        ("set: {toy: {advantages: {eps: small}}}", ["must be float"]),
        ("set: {toy: {advantages: null}}", ["must be a piece"]),
        ("set: {toy: {curriculum: {k: 1}}}", ["must name a piece"]),
        ("set: {toy: {filters: {piece: heavy}}}", ["must be a list"]),
        ("set: {toy: {filters: [{piece: heavy, wide: 3}]}}", ["filters[0].wide must be bool"]),
        ("set: {toy: 3}", ["must hold keys and values"]),
        ("set: {toy: {speed: 3}}", ["set.toy.speed must hold keys and values (first, last, how, brake), not 3"]),
        ("set: {toy: {speed: null}}", ["set.toy.speed must hold keys and values"]),
        ("set: {toy: {speed: {lasst: 3}}}", ["unknown key 'lasst' of toy.speed", "did you mean 'last'"]),
        ("set: {toy: {speed: {last: fast}}}", ["set.toy.speed.last must be float, not 'fast' (speed at last)"]),
        ("set: {toy: {speed: {how: rale}}}", ["set.toy.speed.how must be Literal['foot', 'rail'], not 'rale'"]),
        ("set: {toy: {speed: {brake: quantil}}}", ["set.toy.speed.brake", "did you mean 'quantile'"]),
        ("set: {toy: {speed: {brake: critic}}}", ["needs value", "choose toy.speed.brake among"]),
        (
            "set: {toy: {samples_per_prompt: 1}}",
            ["compares at least 2 samples", "samples_per_prompt is 1", "critic, quantile"],
        ),
        (
            "recipe: toy-child",
            ["quantile and training.toy_filter/heavy cannot be combined", "both drop the tail; use spread instead"],
        ),
        ("set: {toy: {advantages: critic}}", ["needs value", "does not compute", "mean, quantile"]),
    ],
)
def test_refusals(own, tmp_path, text, words):
    if "profile" not in text:
        text += "\nprofile: toy"
    sentence = refused(text, tmp_path)
    assert all(w in sentence for w in words), sentence
    assert "\n" not in sentence


def test_same_input_same_bytes(own, tmp_path):
    (tmp_path / "params.yaml").write_text("profile: toy")
    plan.write(tmp_path)
    before = {p.name: p.read_bytes() for p in (tmp_path / "artifacts/plan").iterdir()}
    (tmp_path / "params.yaml").write_text("# a comment\nprofile: toy\n")
    plan.write(tmp_path)
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "artifacts/plan").iterdir()}
    assert json.loads(before["toy.json"])["params"]["steps"] == 20


def changed(tmp_path, text="profile: toy"):
    """Stages whose plan a change of files alters."""
    old = plan.written(tmp_path)
    (tmp_path / "params.yaml").write_text(text)
    plan.write(tmp_path)
    new = plan.written(tmp_path)
    return {s for s in new if new[s] != old.get(s)}


def test_what_a_change_of_code_concerns(own, tmp_path):
    changed(tmp_path)
    assert changed(tmp_path) == set()
    (own / "training/toy_credit/brandnew.py").write_text("def brandnew(groups): ...\n")
    assert changed(tmp_path) == set(), "a new piece concerns no stage"
    with (own / "training/toy_credit/quantile.py").open("a") as f:
        f.write("# a piece that is not in use\n")
    assert changed(tmp_path) == set()
    with (own / "training/toy_credit/mean.py").open("a") as f:
        f.write("# the piece in use\n")
    assert changed(tmp_path) == {"toy"}
    (own / "training/toy_deep.py").write_text("x = 2\n")
    assert changed(tmp_path) == {"toy"}, "what the piece imports, however far"
    assert changed(tmp_path, "profile: toy\nset: {other: {width: 4}}") == {"other"}
    with (own / "stage/other.py").open("a") as f:
        f.write("# edited\n")
    assert changed(tmp_path, "profile: toy\nset: {other: {width: 4}}") == {"other"}


def test_a_folder_opened_by_computed_names_counts_for_the_names_that_are_spoken(own, tmp_path):
    (own / "stage/other.py").write_text(
        'def other(stage, *, kind: str = "spread"):\n    from tasks.planning.pieces import find\n    find("training.toy_filter", kind)\n'
    )
    assert set(made("profile: toy", tmp_path)["other"]["sources"]) >= {"own/training/toy_filter/spread.py"}
    assert "own/training/toy_filter/heavy.py" not in made("profile: toy", tmp_path)["other"]["sources"]
    assert (
        "own/training/toy_filter/heavy.py"
        in made("profile: toy\nset: {other: {kind: heavy}}", tmp_path)["other"]["sources"]
    )


def test_what_a_stage_imports_only_with_a_knob_counts_only_with_it(own, tmp_path):
    text = 'ONLY_WITH = {"training.toy_helper": "rounds"}\ndef other(stage, *, rounds: int = 0):\n    import training.toy_helper\n'
    (own / "stage/other.py").write_text(text)
    helper, deep = "own/training/toy_helper.py", "own/training/toy_deep.py"
    sources = lambda text: set(made(f"profile: toy\n{text}", tmp_path)["other"]["sources"])  # noqa: E731
    assert not sources("") & {helper, deep} and "own/stage/other.py" in sources("")
    assert sources("set: {other: {rounds: 1}}") >= {helper, deep}
    (own / "stage/other.py").write_text("import training.toy_deep\n" + text)
    assert deep in sources("") and helper not in sources(""), "another way to the same file counts"
    placed = text.replace("int = 0", "Place() = 1")
    (own / "stage/other.py").write_text(f"from tasks.planning.pieces import Place\n{placed}")
    assert not sources("set: {other: {rounds: 2}}") & {helper, deep}, "where a stage runs is no identity"


def test_an_observation_counts_where_a_piece_in_use_needs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "training/rl/observation/greedy.py"
    assert name not in made("set: {rl: {advantage: grpo}}", tmp_path)["rl"]["sources"]
    plan_of = made("set: {rl: {advantage: remax}}", tmp_path)
    assert name in plan_of["rl"]["sources"] and plan_of["rl"]["needs"] == ["greedy"]
    assert "training/rl/observation/regions.py" not in plan_of["rl"]["sources"]


@pytest.mark.parametrize(
    "text, words",
    [
        ("set: {prefer: {soup_of: [base]}}", ["set.prefer.soup_of", "{piece: averaged_reference, of: [...]}"]),
        (
            "set: {prefer: {earlier: 2}}",
            ["prefer.earlier has another name now", "{piece: earlier_policies, keep: ...}"],
        ),
        ("set: {prefer: {meta_lr: 0.1}}", ["{piece: meta_weight, lr: ...}"]),
        ("set: {rl: {lr: 0.1}}", ["set.rl.lr: rl.lr is rl.optimizer.lr now: write optimizer: {lr: 0.1}"]),
        ("set: {rl: {optimizer: muon}}", ["this one is rl.optimizer.kind", 'write optimizer: {kind: "muon"}']),
        ("set: {rl: {critic: {piece: squared}}}", ["rl.critic.loss", 'write critic: {loss: {"piece": "squared"}}']),
        ("set: {rl: {critic_lambda: 0.9}}", ["rl.critic_lambda is rl.critic.lam now"]),
        ("set: {rl: {engine: vllm}}", ["rl.engine.name"]),
        ("set: {rl: {overlap: one_off}}", ["rl.overlap has another name now", "asynchrony: {piece: ...}"]),
        ("set: {evaluate: {overlap: drop}}", ["evaluate.overlap has another name now", "contamination: ..."]),
        ("set: {rl: {families: true}}", ["rl.families is rl.include_families now: write include_families: true"]),
        ("set: {prefer: {families: false}}", ["prefer.include_families now"]),
        ("set: {sft: {recompute: true}}", ["sft.recompute is sft.gradient_checkpointing now"]),
        ("set: {rl: {guides: [oracle]}}", ['is rl.group_transforms now: write group_transforms: ["oracle"]']),
        ("set: {rl: {surrogate: clip}}", ['is rl.policy_loss now: write policy_loss: "clip"']),
        ("set: {rl: {lanes: 2}}", ["is rl.engine.concurrent_batches now: write engine: {concurrent_batches: 2}"]),
        ("set: {evaluate: {k: 3}}", ["evaluate.sampling.search_top_k now: write sampling: {search_top_k: 3}"]),
        ("set: {questions: {k: 3}}", ["is questions.search_top_k now: write search_top_k: 3"]),
        ("set: {trajectories: {n: 5}}", ["the stage trajectories is demonstrations now"]),
        (
            "set: {rl: {advantage: {piece: own_group, external: scaled}}}",
            ['external of advantage/own_group is off_policy now: write off_policy: "scaled"'],
        ),
        (
            "set: {rl: {group_transforms: [{piece: replay, behaviour: kept}]}}",
            ["behaviour of group_transform/replay is sampling_logp now"],
        ),
        ("set: {rl: {advantage: training.advantage/gigpo}}", ["set.rl.advantage", "now: write gigpo"]),
        ("set: {evaluate: {metrics: [behaviour]}}", ["set.evaluate.metrics[0]", "now: write format_and_refusal"]),
        ("set: {evaluate: {wave: 64}}", ["evaluate.wave has another name now", "batch_size: ..."]),
        (
            "set: {rl: {rewards: [{piece: reflection, mended: 0.5}]}}",
            ["reward/reflection is corrected now: write corrected: 0.5"],
        ),
        ("set: {evaluate: {top_p: 0.9}}", ["evaluate.top_p is evaluate.sampling.top_p now"]),
        ("set: {rl: {top_p: 0.9}}", ["unknown key 'top_p' of the stage rl"]),
        ("set: {rl: {optimizer: {warmpu: 3}}}", ["unknown key 'warmpu' of rl.optimizer: did you mean 'warmup'"]),
        (
            "set: {prefer: {loss: mnpo}}",
            ["mnpo needs history", "or add {piece: earlier_policies} to prefer.update_rules"],
        ),
        ("set: {prefer: {ratio: attended}}", ["needs attention", "add {piece: attention_weights}"]),
        ("set: {rl: {ratio: attended}}", ["needs attention, which the stage rl does not compute"]),
        (
            "set: {prefer: {loss: metaapo, update_rules: [meta_weight, directions]}}",
            ["meta_weight and update_rule/directions cannot be combined"],
        ),
    ],
)
def test_what_an_update_rule_brings_and_took_over_is_named(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    sentence = refused(text, tmp_path)
    assert all(w in sentence for w in words), sentence


@pytest.mark.parametrize("old_first", [True, False])
@pytest.mark.parametrize(
    "stage, old, new, words",
    [
        (
            "prefer",
            "earlier: 3",
            "update_rules: [{piece: earlier_policies, keep: 2}]",
            "another name now: write update_rules",
        ),
        ("rl", "lr: 0.1", "optimizer: {lr: 0.2}", "rl.lr is rl.optimizer.lr now"),
        ("rl", "tool_calls: 4", "engine: {tool_calls: 8}", "rl.tool_calls is rl.engine.tool_calls now"),
        ("evaluate", "top_p: 0.9", "sampling: {top_p: 0.8}", "evaluate.top_p is evaluate.sampling.top_p now"),
    ],
)
def test_an_old_name_beside_its_new_one_is_refused(tmp_path, monkeypatch, stage, old, new, words, old_first):
    """Whichever stands first, and where a recipe gives the new one: neither wins silently."""
    monkeypatch.chdir(tmp_path)
    both = f"{old}, {new}" if old_first else f"{new}, {old}"
    assert words in refused(f"set: {{{stage}: {{{both}}}}}", tmp_path)
    (tmp_path / "pieces/recipes").mkdir(parents=True)
    recipe = read_yaml(resolve.yaml_files("recipes")["grpo"])
    own = {**recipe, "id": "own", "extends": "", "stages": {stage: parse(f"{{{new}}}", "new")}}
    (tmp_path / "pieces/recipes/own.yaml").write_text(json.dumps({k: v for k, v in own.items() if v != ""}))
    assert words in refused(f"recipe: own\nset: {{{stage}: {{{old}}}}}", tmp_path)


def test_a_rule_brings_what_a_loss_needs_and_counts_where_it_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prefer = made("set: {prefer: {loss: mnpo, update_rules: [earlier_policies]}}", tmp_path)["prefer"]
    assert prefer["params"]["update_rules"] == [{"piece": "earlier_policies", "keep": 2}]
    rules = {n for n in prefer["sources"] if n.startswith("training/preference/update_rule/")}
    assert rules == {f"training/preference/update_rule/{n}.py" for n in ("__init__", "earlier_policies")}


def of_solver(pieces):
    both = f"{{proposer: {{}}, solver: {{{pieces}}}}}"
    return f"set: {{rl: {{lora: {{rank: 2}}, policies: {both}}}}}"


def test_pieces_of_one_policy_are_planned_as_those_of_the_stage(tmp_path, monkeypatch):
    """With all their knobs, the code that they are, and the passes that they need; they are bound where they stand."""
    from tasks.planning.pieces import bind_all

    monkeypatch.chdir(tmp_path)
    plain = made(of_solver(""), tmp_path)["rl"]
    own = made(of_solver("advantage: remax, regularisers: [{piece: kl, coef: 0.5}]"), tmp_path)["rl"]
    solver = own["params"]["policies"]["solver"]
    assert solver["regularisers"][0]["coef"] == 0.5 and len(solver["regularisers"][0]) > 2, "the other knobs too"
    assert own["pieces"]["policies.solver.advantage"] == plain["pieces"]["advantage"]
    assert {"greedy", "reference"} <= set(own["needs"]) and not {"greedy", "reference"} & set(plain["needs"])
    assert "training/rl/advantage/remax.py" in set(own["sources"]) - set(plain["sources"])
    bound = bind_all(own["pieces"], own["params"])["policies"]
    assert bound["proposer"] == {} and bound["solver"]["advantage"].piece == "advantage/remax"
    assert [p.keywords["coef"] for p in bound["solver"]["regularisers"]] == [0.5]
    assert isinstance(own["params"]["policies"]["solver"]["advantage"], dict), "binding leaves the plan as it was"


@pytest.mark.parametrize(
    "pieces, words",
    [
        ("advantage: gppo", ["rl.policies.solver.advantage: there is no piece 'gppo' in advantage"]),
        ("advantage: {std: none}", ["rl.policies.solver.advantage must name a piece", "under the key `piece`"]),
        ("advantage: {piece: grpo, stdd: none}", ["rl.policies.solver.advantage.stdd", "did you mean 'std'"]),
        ("regularisers: {piece: kl}", ["rl.policies.solver.regularisers must be a list of pieces of regulariser"]),
        ("advantage: gae", ["advantage/gae needs value, which is there only where rl.critic.loss is set"]),
    ],
)
def test_mistakes_in_pieces_of_one_policy(tmp_path, monkeypatch, pieces, words):
    monkeypatch.chdir(tmp_path)
    sentence = refused(of_solver(pieces), tmp_path)
    assert all(w in sentence for w in words), sentence


def test_a_policy_is_a_mapping_and_its_name_has_no_dot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "rl.policies.solver must hold keys and values" in refused("set: {rl: {policies: {solver: 3}}}", tmp_path)
    assert "the name 'a.b' has a dot" in refused("set: {rl: {policies: {a.b: {}}}}", tmp_path)


def test_training_concerns_the_stage_problems_only_where_rounds_or_a_model_play(tmp_path, monkeypatch):
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    sources = lambda text: set(made(text, tmp_path)["problems"]["sources"])  # noqa: E731
    assert not any(n.startswith("training/") for n in sources("recipe: grpo"))
    played = sources("recipe: socratic-zero")
    assert {
        "training/rl/curriculum/learnability.py",
        "training/rl/reward/bell.py",
        "tasks/problems/selfplay.py",
    } <= played
    assert "training/learner/learner.py" not in played
    assert "training/rollout/torch_sampler.py" in sources("recipe: socratic-zero\nset: {problems: {model: x}}")


def test_the_judge_concerns_the_stage_rl_only_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    sources = lambda text: set(made(f"recipe: grpo\n{text}", tmp_path)["rl"]["sources"])  # noqa: E731
    theirs = {"tasks/models/judge.py", "synth/preferences/judge.py", "training/rollout/endpoint.py"}
    assert not sources("") & theirs and theirs <= sources("set: {rl: {judge: {model: x}}}")


def test_a_decoder_of_a_layer_that_the_model_will_not_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of = lambda layer, sft="layers: 3": made(  # noqa: E731
        f"set: {{sft: {{{sft}}}, evaluate: {{decoder_tokens: 400, decoders: [greedy, {{piece: steer, layer: {layer}}}]}}}}",
        tmp_path,
    )
    for layer in (3, -4):
        with pytest.raises(UserError, match=rf"evaluate.decoders\[1\] names the layer {layer}, .* has 3: name 0 to 2"):
            of(layer)
    assert of(2) and of(-3) and of(9, "model: some/model"), "a model whose files are not here"
    monkeypatch.setattr(estimate, "size_of", lambda name: SimpleNamespace(layers=2))
    with pytest.raises(UserError, match=r"layer 2, .* has 2"):
        of(2, "model: some/model")


@files_at_rest()
def test_every_shipped_recipe_and_profile_resolves(tmp_path, monkeypatch):
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    known = code.Imports()
    monkeypatch.setattr(code, "Imports", lambda: known)  # no file of code changes between these plans
    for profile, settings in resolve.yaml_files("profiles").items():
        sets = {
            f"{stage}.{knob}" for stage, knobs in (read_yaml(settings).get("stages") or {}).items() for knob in knobs
        }
        for recipe, path in resolve.yaml_files("recipes").items():
            with contextlib.suppress(UserError) if methods.lacking(recipe) else contextlib.nullcontext():
                if path.parent.name == "core":  # with the files that each stage reads; they take most of the time
                    made(f"profile: {profile}\nrecipe: {recipe}", tmp_path)
                else:
                    params = resolve.check_params({"profile": profile, "recipe": recipe}, tmp_path)
                    stages = resolve.resolve(params)[0]
                    resolve.check_asked(recipe, stages)
                    parts.check(stages)
                answered = resolve.asks(recipe).keys() <= sets  # the profile names what the recipe asks of the user
                assert not methods.lacking(recipe) or answered, "it is planned, and METHODS.md says that it is refused"
            assert resolve.read_recipe(recipe)["id"] == recipe


def test_a_recipe_measures_problems_where_it_plays_them(tmp_path):
    """Else a run would train for hours, and end at the stage evaluate."""

    def envs(params, stage):
        stages = resolve.resolve(resolve.check_params(params, tmp_path))[0]
        return {one["piece"]: one for one in stages[stage].params["envs"]}

    for recipe in resolve.yaml_files("recipes"):
        played, measured = (envs({"recipe": recipe}, stage) for stage in ("rl", "evaluate"))
        assert played.keys() <= measured.keys(), recipe
    grid = envs({"recipe": "mgpo-grounding"}, "evaluate")["focus"]["grid"]
    assert grid == envs({"recipe": "mgpo-grounding"}, "rl")["focus"]["grid"] == 4
    assert envs({"set": {"rl": {"envs": [{"piece": "look"}]}}}, "evaluate").keys() == {"search", "single", "look"}
    own = {"rl": {"envs": [{"piece": "look"}]}, "evaluate": {"envs": [{"piece": "single"}]}}
    assert envs({"set": own}, "evaluate").keys() == {"single"}  # what somebody says is taken


def test_what_is_changed_in_one_resolved_recipe_is_in_no_other(tmp_path):
    params = resolve.check_params({"recipe": "grpo"}, tmp_path)
    with files_at_rest():
        one, other = (resolve.resolve(params)[0]["rl"].params for _ in range(2))
        one["optimizer"]["lr"] = -1.0
        one["rewards"].append({"piece": "length"})
        for again in (other, resolve.resolve(params)[0]["rl"].params):
            assert again["optimizer"]["lr"] > 0 and {"piece": "length"} not in again["rewards"]


def test_every_shipped_protocol_says_what_kind_of_evidence_it_is():
    from tasks.lab.behaviour import KINDS, WHERE, kind_of

    for recipe in resolve.yaml_files("recipes"):
        for where in (key for key in WHERE if resolve.read_recipe(recipe).get(key)):
            assert kind_of(recipe, where), (
                f"recipe {recipe}: add to its key `{where}` a line `kind: tautological`, `kind: weak` or `kind: substantive`, the weaker one in "
                f"doubt; what they mean: {KINDS}"
            )


def test_what_a_recipe_asks_of_the_user_has_to_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"on-policy-distillation needs a teacher .*: set rl.teacher in params.yaml"):
        made("recipe: on-policy-distillation", tmp_path)
    assert made("recipe: on-policy-distillation\nset: {rl: {teacher: some/model}}", tmp_path)["rl"]
    with pytest.raises(UserError, match=r"plug-and-play-judge needs a judge"):
        made("recipe: plug-and-play-judge", tmp_path)
    assert plan.plans(tmp_path, lambda params: {**params, "recipe": "plug-and-play-judge"}, to_run=False)
    own = tmp_path / "pieces/recipes"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("id: mine\nextends: on-policy-distillation\n")
    assert list(resolve.asks("mine")) == ["rl.teacher"], "what it extends asks too"


def test_yaml():
    assert parse("a: 1e-4\nb: no\nc: 010\nd: 1_000\ne: .5\nf: true\ng:\nh: 1.e3\ni: -3", "x") == {
        "a": 1e-4,
        "b": "no",
        "c": 10,
        "d": "1_000",
        "e": 0.5,
        "f": True,
        "g": None,
        "h": 1000.0,
        "i": -3,
    }


@pytest.mark.parametrize(
    "data, words",
    [
        (b"a: 1\nb: {c: 1, c: 2}\n", ["line 2", "'c' is given twice"]),
        (b"a:\n\tb: 1\n", ["line 2", "tab"]),
        (b"a: caf\xe9\n", ["line 1", "not UTF-8", "0xe9"]),
        (b"a: [1,\n", ["line"]),
        (b"- 1\n", ["must hold keys and values"]),
        (b"1: x\n", ["not a text"]),
        (
            b"set:\n  evaluate: {judge: {url: http://localhost:1/v1}}\n",
            ["line 2", 'put "http://localhost:1/v1" in quotes', "DVC"],
        ),
        (b"set: {kb: {sources: [a:b]}}\n", ["line 1", 'put "a:b" in quotes']),
    ],
)
def test_bad_yaml(own, tmp_path, data, words):
    (tmp_path / "params.yaml").write_bytes(data)
    with pytest.raises(UserError) as e:
        plan.plans(tmp_path)
    assert all(w in str(e.value) for w in ["params.yaml", *words]), str(e.value)


@pytest.mark.parametrize(
    "text", ["a: {b: http://x:1}", "a: [b:c]", 'a: {b: "http://x:1"}', "a: http://x:1", "a: {b: {c: d, e: [1, 'f:g']}}"]
)
def test_what_dvc_reads_is_what_is_taken(tmp_path, text):
    from dvc.exceptions import DvcException
    from dvc.utils.serialize import load_yaml

    path = tmp_path / "params.yaml"
    path.write_text(text)
    readings = []
    for read in (read_yaml, load_yaml):
        try:
            readings.append(read(path))
        except (UserError, DvcException):
            readings.append(None)
    assert readings[0] == readings[1] and (readings[0] is None) == (text in ("a: {b: http://x:1}", "a: [b:c]"))


@pytest.mark.parametrize("times", [2, 50])
def test_a_parser_that_fails_for_nothing_is_asked_again(monkeypatch, times):
    """As CPython's does while another thread parses; where it goes on failing, that is said."""
    real, left = code.ast.parse, [None] * times

    def flaky(*args, **kwargs):
        if left:
            left.pop()
            raise SystemError("AST constructor recursion depth mismatch (before=63, after=76)")
        return real(*args, **kwargs)

    monkeypatch.setattr(code.ast, "parse", flaky)
    if times == 2:
        assert code.parse("x = 1").body
    else:
        with pytest.raises(SystemError):
            code.parse("x = 1")


def test_what_re_runs_nothing_when_it_is_edited_is_there():
    missing = [name for name in code.PLUMBING if not (code.CODE / name).exists()]
    assert not missing, f"PLUMBING names files that are gone: {missing}"
