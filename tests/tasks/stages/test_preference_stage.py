"""The stages prefer and reward in every kind of round, unit and head: they end, and one that died goes on to the same
bytes."""

import importlib
import json
import shutil

import pytest
import small
from transformers import AutoModelForSequenceClassification

from tasks.core.errors import UserError
from tasks.planning import code, pieces
from tasks.planning.resolve import overlaid
from tasks.runtime import train_loop
from tasks.runtime.stage import Stage, load
from training.learner.world import World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("rounds") / "data"
    root.mkdir()
    small.write_project(root)
    for name in ("kb", "questions", "problems", "demonstrations"):
        play(root, name)
    play(root, "sft", base_steps=3, steps=3)
    for name in ("preferences", "clean"):
        play(root, name)
    return root


@pytest.fixture
def project(data, tmp_path):
    return shutil.copytree(data, tmp_path / "project")


def play(root, name, **other):
    """Run a stage in this process; `other` replaces knobs of its plan. Returns its card."""
    spec = load(name, root)
    params = overlaid(spec["params"], other)
    bound = {k: [params[k]] if isinstance(params[k], dict) else params[k] or [] for k in spec["pieces"]}
    used = [(folder, one["piece"]) for k, folder in spec["pieces"].items() for one in bound[k]]
    needs = {n for folder, piece in used for n in code.constant(pieces.locate(folder, piece), "NEEDS", ())}
    stage = Stage(name, plan={**spec, "params": params, "needs": sorted(needs)}, root=root)
    stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
    with stage.running():
        getattr(importlib.import_module(f"tasks.stages.{name}"), name)(stage, **stage.params)
    return json.loads((root / "artifacts" / name / "card.json").read_text())


QUICK = {
    "steps": 4,
    "pairs_per_step": 6,
    "checkpoint_every": 1,
    "sampling": {"max_turn_tokens": 4},
    "samples_per_prompt": 2,
    "update_rules": [{"piece": "length_penalty", "per_token": 0.01}],
}
KINDS = {
    "aot": {"loss": {"piece": "aot"}},
    "kto": {"loss": {"piece": "kto"}},
    "rpo_em": {"loss": {"piece": "rpo_em", "warmup": 0}},
    "instructions": {"loss": {"piece": "mapl"}},
    "contrast": {"loss": {"piece": "scpo"}, "rounds": [{}, {"renew": True}]},
    "conditioned": {"loss": {"piece": "rewards_in_context"}},
    "meta": {"loss": {"piece": "metaapo"}, "update_rules": [{"piece": "meta_weight"}]},
    "history": {"loss": {"piece": "mnpo"}, "rounds": [{}, {}], "update_rules": [{"piece": "earlier_policies"}]},
    "online": {"rounds": [{"easiest": 0.5}, {"pairs": "sampled", "hardest": 0.5, "renew": True}]},
    "directions": {
        "loss": {"piece": "sft"},
        "rounds": [{"pairs": "sampled"}],
        "update_rules": [{"piece": "directions", "angles": [-45.0, 45.0]}],
    },
    "uncertain": {"rounds": [{"pairs": "sampled"}], "update_rules": [{"piece": "uncertain_pairs", "dim": 16}]},
    "attended": {
        "rounds": [{"layers": [0]}],
        "ratio": {"piece": "attended"},
        "update_rules": [{"piece": "attention_weights", "layers": [0]}],
    },
    "protected": {"rounds": [{"source": "wrong_turns"}, {"source": "injected_errors", "protect": True}]},
    "soup": {
        "update_rules": [{"piece": "averaged_reference"}],
        "rounds": [{"every": 2}],
        "ratio": {"piece": "humanline"},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_that_died_goes_on_to_the_same_bytes(kind, project, monkeypatch):
    play(project, "prefer", **QUICK | KINDS[kind])
    want = small.outputs(project, "prefer")
    shutil.rmtree(project / "artifacts/prefer")
    passed = []

    def dies(point):
        passed.append(point)
        if passed.count("train.step") == 3 and point == "train.step":
            raise KeyboardInterrupt

    monkeypatch.setattr(train_loop, "fault", dies)
    with pytest.raises(KeyboardInterrupt):
        play(project, "prefer", **QUICK | KINDS[kind])
    monkeypatch.undo()
    play(project, "prefer", **QUICK | KINDS[kind])
    assert small.outputs(project, "prefer") == want


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"loss": {"piece": "mapl"}, "rounds": [{"pairs": "sampled"}]},
            "cannot learn from sampled pairs, for its units are of the kind",
        ),
        ({"loss": {"piece": "wdpo"}, "rounds": [{"pairs": "sampled"}]}, "it needs the column 'weight'"),
        (
            {"loss": {"piece": "dpo_pop"}, "pairs_per_step": 5},
            "sees 2 pairs at once, which does not divide pairs_per_step = 5",
        ),
        ({"rounds": [{"source": "nobody"}]}, "no pair has the source 'nobody'; there are: "),
    ],
)
def test_what_cannot_be_is_a_sentence(other, message, project):
    with pytest.raises(UserError, match=message):
        play(project, "prefer", **QUICK | other)


@pytest.mark.parametrize(
    ("stage", "other", "message"),
    [
        ("prefer", {"rounds": [{}, {"protect": True}]}, r"prefer.rounds\[1\]: protect and layers hold updates"),
        ("prefer", {"rounds": [{"layers": [0]}]}, r"prefer.rounds\[0\]: protect and layers hold updates"),
        (
            "prefer",
            {"update_rules": [{"piece": "length_penalty"}, {"piece": "earlier_policies"}]},
            "the update rule earlier_policies reads the policy's whole weights: leave it out, or set shards=1",
        ),
        ("reward", {"head": {"piece": "gated"}}, "this head learns beside a body that does not, .* set shards=1"),
    ],
)
def test_what_needs_whole_weights_is_refused_where_they_are_split(stage, other, message, project, monkeypatch):
    monkeypatch.setattr(f"tasks.stages.{stage}.together", lambda *how: World(mesh="of two"))
    with pytest.raises(UserError, match=message):
        play(project, stage, **QUICK | other if stage == "prefer" else {"steps": 3, "pairs_per_step": 4, **other})


@pytest.mark.parametrize("head", ["scalar", "ensemble", "gated", "tail_circuit"])
def test_reward_models_with_heads(head, project):
    knobs = {
        "head": {"piece": head},
        "facts": head == "scalar",
        "best_of_n": 4,
        "best_of_problems": 3,
        "sampling": {"max_turn_tokens": 4},
    }
    card = play(project, "reward", steps=3, pairs_per_step=4, **knobs)
    assert (
        card["head"] == head
        and card["valid"]["calibration_error"] >= 0
        and [c["n"] for c in card["best_of"]["curve"]] == [1, 2, 4]
    )
    folder = project / "artifacts/reward/model"
    outputs = {"scalar": 1, "ensemble": 11, "gated": 3, "tail_circuit": 3}[head]
    assert AutoModelForSequenceClassification.from_pretrained(folder).num_labels == outputs
    assert json.loads((folder / "head.json").read_text())["head"] == head and (
        folder / "head.safetensors"
    ).exists() == (head in ("gated", "tail_circuit"))


def test_a_reward_model_with_facts_reads_them_before_the_question(project, monkeypatch):
    seen = {}
    from training.preference import reward_rows as module

    rows = module.two_rows

    def watched(renderer, pairs, limit):
        pairs = list(pairs)
        seen.setdefault("pairs", pairs)
        return rows(renderer, pairs, limit)

    monkeypatch.setattr(module, "two_rows", watched)
    play(project, "reward", steps=2, pairs_per_step=4, facts=True)
    prompt = seen["pairs"][0].prompt
    assert prompt[0].role == "system" and prompt[0].content and prompt[1].role == "user"


def test_pairs_with_a_planted_error_teach_only_where_a_round_names_them(project):
    left_out = ["wrong_turns", "injected_errors"]
    with pytest.raises(
        UserError,
        match="all pairs are of sources in leave_out .*gave none: train sft for longer .*there are: injected_errors/countdown",
    ):
        play(project, "prefer", leave_out=left_out)
    kept = play(project, "prefer", leave_out=left_out, rounds=[{"source": "injected_errors"}])
    assert 0 < kept["pairs"] < play(project, "prefer", leave_out=[])["pairs"]
