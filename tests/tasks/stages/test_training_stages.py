"""The stages sft, reward, prefer and rl at toy size: folders load anywhere, the same seed gives the same bytes,
mistakes are sentences."""

import csv
import importlib
import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import exported
import pytest
import small
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from synth.knowledge.kb import Entity
from synth.types import Problem
from tasks.core.errors import UserError
from tasks.models.teachers import teachers
from tasks.planning import pieces, plan
from tasks.planning.resolve import overlaid
from tasks.runtime.stage import Stage, load
from tasks.stages.rl import load_reference
from tasks.storage import commit, tables
from training.model import gguf_file
from training.model.attention import PackedRows
from training.model.model import head_weight, hidden_states, load_model
from training.model.quantised import layers
from training.model.render import Renderer

DATA = ("kb", "questions", "problems", "demonstrations")
PAIRS = ("preferences", "clean")  # of the SFT model's own answers among others
TRAINED = ("sft", "reward", "prefer", "rl")
MODELS = ("sft/base", "sft/model", "reward/model", "prefer/model", "rl/model")
DISPLEASED = {
    "piece": "reinforce",
    "baseline": 0.5,
}  # an untrained model scores 0: with this baseline it has something to learn from
QUICK = {
    "sft": {"base_steps": 3, "steps": 3},
    "reward": {"steps": 3},
    "prefer": {"steps": 3},
    "rl": {"steps": 2, "advantage": DISPLEASED},
}


def play(root, name, **other):
    """Run a stage in this process; `other` replaces knobs of its plan. Returns its card."""
    spec = load(name, root)
    stage = Stage(name, plan={**spec, "params": overlaid(spec["params"], other)}, root=root)
    stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
    with stage.running():
        getattr(importlib.import_module(f"tasks.stages.{name}"), name)(stage, **stage.params)
    return card(root, name)


def card(root, name):
    return json.loads((root / "artifacts" / name / "card.json").read_text())


def curve(root, name):
    with (root / "artifacts" / name / "curve.csv").open() as f:
        return list(csv.DictReader(f))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A project with its data and one run of every training stage."""
    root = tmp_path_factory.mktemp("stages") / "whole"
    root.mkdir()
    small.write_project(root)
    for name in (*DATA, "sft", *PAIRS, *TRAINED[1:]):
        play(root, name, **QUICK.get(name, {}))
    return root


@pytest.fixture
def project(whole, tmp_path):
    """The same data and models, to train on in other ways."""
    return shutil.copytree(whole, tmp_path / "project")


@pytest.mark.parametrize("folder", MODELS)
def test_every_model_loads_anywhere_and_says_the_same(whole, folder):
    path = whole / "artifacts" / folder
    theirs, tokenizer = AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    ids = torch.tensor(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "What is the capital ?"}], add_generation_prompt=True
        )["input_ids"]
    )
    ours, _ = load_model(path)
    hidden = hidden_states(ours, ids, torch.arange(len(ids)), PackedRows([len(ids)]))
    torch.testing.assert_close(
        hidden @ head_weight(ours).T, theirs(input_ids=ids[None]).logits[0], atol=1e-5, rtol=1e-5
    )


def test_every_stage_moves_the_weights(whole):
    weights = {m: (whole / "artifacts" / m / "model.safetensors").read_bytes() for m in MODELS}
    assert len(set(weights.values())) == len(MODELS)


@pytest.mark.parametrize("name", TRAINED)
def test_curves_and_cards(whole, name):
    rows = curve(whole, name)
    assert [int(r["step"]) for r in rows] == list(range({"sft": 6, "rl": 2}.get(name, 3)))
    assert all(math.isfinite(float(r["loss"])) for r in rows if r["loss"])
    assert not [k for k in rows[0] if k.endswith("seconds")], "times are no output"
    kept = card(whole, name)
    assert kept["parameters"] > 0 and len(kept["trained_on"]) == 64
    json.loads(json.dumps(kept, allow_nan=False))


def test_preference_starts_at_ln_2(whole):
    first = curve(whole, "prefer")[0]
    assert float(first["accuracy"]) == 0.0 and abs(float(first["margin"])) < 1e-3
    stage = load("prefer", whole)["params"]
    sft = -stage["sft_weight"] * float(first["chosen_logp"])  # of the sums; the stage divides each by its length
    assert math.log(2) - 1e-4 <= float(first["loss"]) <= math.log(2) + sft


def test_rl_plays_what_it_says(whole):
    rows, kept = curve(whole, "rl"), card(whole, "rl")
    assert kept["rollouts"] == sum(float(r["rollouts"]) for r in rows) == 2 * 2 * 2
    assert all(float(r["mismatch_kl"]) < 1e-4 for r in rows if r["mismatch_kl"]), "sampler and learner agree"
    episodes = [json.loads(line) for line in (whole / "artifacts/rl/episodes.jsonl").read_text().splitlines()]
    train = {p.id for p in tables.read(whole / "artifacts/questions/problems.parquet", Problem) if p.split == "train"}
    assert len(episodes) == 4 and {e["problem"] for e in episodes} <= train


@pytest.mark.parametrize("name", TRAINED)
def test_the_same_seed_gives_the_same_bytes_anywhere(whole, project, name):
    play(project, name, **QUICK[name])
    assert small.outputs(project, name) == small.outputs(whole, name)


def test_another_seed_gives_another_model(whole, project):
    path = project / "artifacts/plan/prefer.json"
    spec = json.loads(path.read_text())
    path.write_text(json.dumps(spec | {"seed": spec["seed"] + 1}))
    commit.seal(path.parent)
    play(project, "prefer", **QUICK["prefer"])
    one, two = ((r / "artifacts/prefer/model/model.safetensors").read_bytes() for r in (whole, project))
    assert one != two


# --- other settings
# ----------------------------------------------------------------------------------------------------


def test_minibatches_and_epochs_stretch_the_schedule(project):
    """Every optimizer step moves along the schedule, so that it ends with the run."""
    play(
        project,
        "rl",
        steps=3,
        epochs=2,
        minibatches=2,
        optimizer={"warmup": 0, "decay": "linear", "lr": 1e-3},
        samples_per_prompt=4,
        regularisers=pieces_of("kl", coef=0.01),
    )
    rates = [float(r["lr"]) for r in curve(project, "rl") if r["lr"]]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 1e-4, (
        "the last step averages four rates above the final one"
    )


def test_with_made_up_names_no_name_of_the_world_is_shown(project, monkeypatch):
    from tasks.stages import sft

    names = [e.name for e in tables.read(project / "artifacts/kb/entities.parquet", Entity)]
    told, real = [], sft.demonstration_row

    def seen(renderer, messages, weight, **more):
        told.append(messages)
        return real(renderer, messages, weight, **more)

    monkeypatch.setattr(sft, "demonstration_row", seen)
    shutil.rmtree(project / "artifacts/sft")
    play(project, "sft", base_steps=1, steps=3, made_up_names=1.0)
    shown = [[m.content for m in messages] for messages in told]
    assert len(told) == 3 * 4
    games = ["\n".join(x) for x in shown if len(x) > 2]
    assert games and not [n for n in names for text in games if re.search(rf"\b{n}\b", text)]


def pieces_of(name, **knobs):
    return [{"piece": name, **knobs}]


@pytest.mark.parametrize(
    ("name", "knobs", "sentence"),
    [
        ("sft", {"max_length": 5}, "longer than max_length"),
        ("sft", {"made_up_names": 2.0}, "made_up_names is 2.0"),
        ("sft", {"device": "cuda:99"}, "device is 'cuda:99'"),
        ("sft", {"optimizer": {"kind": "adam"}}, "kind is 'adam'; choose 'adamw' or 'muon' or 'sgd'"),
        ("prefer", {"max_length": 5}, "no cleaned pair of the split train is left"),
        ("reward", {"max_length": 5}, "no cleaned pair of the split train is left"),
        ("rl", {"sampling": {"temperature": 0.0}}, "temperature is 0.0"),
        ("rl", {"optimizer": {"decay": "steps"}}, "decay is 'steps'"),
        ("rl", {"sampling": {"max_tokens": 20}}, "more than max_tokens = 20"),
        ("rl", {"router_replay": True}, "router_replay: a Qwen3ForCausalLM has no router"),
        ("rl", {"router_replay": True, "engine": {"name": "vllm"}}, "router_replay is on, and the experts that vllm"),
    ],
)
def test_a_setting_that_cannot_work_is_one_sentence(project, monkeypatch, name, knobs, sentence):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=sentence) as caught:
        play(project, name, **knobs)
    assert "\n" not in str(caught.value)
    assert small.outputs(project, name), "what an earlier run made is still there"


@pytest.mark.parametrize("name", ["reward", "prefer", "rl"])
def test_rows_longer_than_a_sliding_window_are_refused_when_the_model_is_loaded(project, name):
    folder = project / "artifacts/sft"
    path = folder / "model/config.json"
    config = json.loads(path.read_text())
    kinds = ["sliding_attention"] * config["num_hidden_layers"]
    windowed = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0, "layer_types": kinds}
    path.write_text(json.dumps(config | windowed))
    commit.seal(folder)
    with pytest.raises(ValueError, match="looks back 16 tokens only .sliding window.*to 16 or less"):
        play(project, name)


def test_adapters_learn_on_a_base_of_four_bits_in_every_stage(project):
    pytest.importorskip("bitsandbytes", reason="pip install 'espalier[qlora]'")
    lora = {"rank": 2, "base": "nf4", "merge": False}
    play(project, "sft", lora=lora, model=str(project / "artifacts/sft/model"), **QUICK["sft"])
    for name in ("prefer", "rl"):
        play(project, name, lora=lora, **QUICK[name])
    for name in ("sft", "prefer", "rl"):
        assert (project / f"artifacts/{name}/model/adapter/base.json").exists()
        load_model(project / f"artifacts/{name}/model")
    assert abs(float(curve(project, "prefer")[0]["margin"])) < 1e-3, "policy and reference are the same four bits"
    folder = SimpleNamespace(input=lambda *where: project / "artifacts" / Path(*where))
    reference = load_reference(folder, "", None, "float32", "cpu", lora)
    assert any(layers(reference)) and not any(layers(load_reference(folder, "", None, "float32", "cpu", {})))


def test_a_teacher_may_be_a_hub_name_in_every_place_that_promises_it(project, tmp_path, monkeypatch):
    """The Hub is its own cache here: models--OWNER--NAME with refs and snapshots, and no network."""
    cache = tmp_path / "hub"
    there = cache / "models--ours--small"
    shutil.copytree(project / "artifacts/sft/model", there / "snapshots/0a1b")
    (there / "refs").mkdir()
    (there / "refs/main").write_text("0a1b")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    stage = Stage("rl", root=project, deps=["artifacts"])
    tokenizer = load_model(project / "artifacts/sft/model")[1]
    reference = load_reference(stage, "ours/small", tokenizer, "float32", "cpu", {})
    several = teachers(stage, ["ours/small", "artifacts/sft/model"], tokenizer, "float32", "cpu", 1.0)
    for model in (reference, *(t.model for t in several.each)):
        torch.testing.assert_close(head_weight(model), head_weight(load_model(there / "snapshots/0a1b")[0]))
    for load_it in (
        lambda name: load_reference(stage, name, tokenizer, "float32", "cpu", {}),
        lambda name: teachers(stage, name, tokenizer, "float32", "cpu", 1.0),
    ):
        with pytest.raises(ValueError, match="cannot load ours/other .*spelled right"):
            load_it("ours/other")
        with pytest.raises(UserError, match="artifacts/no/model does not exist"):
            load_it("artifacts/no/model")


def test_a_model_path_without_a_tokenizer(project, tmp_path):
    bare = shutil.copytree(project / "artifacts/sft/model", tmp_path / "bare")
    for path in bare.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ValueError, match="has no tokenizer .no tokenizer.json.: copy the tokenizer files"):
        play(project, "sft", model=str(bare))


def test_a_gguf_is_taken_with_a_sentence(project, tmp_path, capsys):
    pytest.importorskip("gguf", reason="pip install 'espalier[gguf]'")
    model, tokenizer = exported.build("qwen3"), exported.tokenizer()
    gguf_file.write(model, tokenizer, tmp_path / "a.gguf")
    play(project, "sft", model=str(tmp_path / "a.gguf"), steps=0)
    assert (
        "a.gguf is a GGUF file: its weights are taken out of their quantisation into float32" in capsys.readouterr().err
    )
    mine, theirs = load_model(project / "artifacts/sft/model")[0].state_dict(), model.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.allclose(t, theirs[n]) for n, t in mine.items())


def test_half_a_gguf_is_one_sentence_wherever_it_was_cut(tmp_path):
    pytest.importorskip("gguf", reason="pip install 'espalier[gguf]'")
    whole, cut = tmp_path / "a.gguf", tmp_path / "cut.gguf"
    gguf_file.write(exported.build("qwen3"), exported.tokenizer(), whole)
    data = whole.read_bytes()
    for size in (0, 3, 20, 300, len(data) // 4, len(data) // 2, len(data) - 40):
        cut.write_bytes(data[:size])
        with pytest.raises(ValueError, match="cut.gguf is no whole GGUF file .*fetch it again") as caught:
            load_model(cut)
        assert "\n" not in str(caught.value)


def test_truncated_sampling_is_no_setting_of_rl(tmp_path, monkeypatch):
    """The learner's log-probs are of the whole distribution; a ratio to a truncated one would be of two different
    policies."""
    monkeypatch.chdir(tmp_path)
    for knob in ("top_p", "top_k"):
        setting = {"rl": {"sampling": {knob: 1}}}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump({"recipe": "grpo", "set": setting}))
        with pytest.raises(UserError, match=f"rl.*{knob}"):
            plan.plans(tmp_path)


# --- a Hub model
# -------------------------------------------------------------------------------------------------------


def test_the_gpu_profile_reaches_its_first_optimizer_step_with_a_local_model(project, monkeypatch):
    """The same code path on a CPU: a folder in the place of the Hub id, bfloat16, instructions in the prompt."""
    local = shutil.copytree(project / "artifacts/sft/model", project / "local")
    few = {"device": "cpu", "checkpoint_every": 1}
    quick = {
        "sft": {**few, "model": str(local), "steps": 1, "rows_per_step": 4},
        "reward": {**few, "steps": 1, "pairs_per_step": 4},
        "prefer": {**few, "steps": 1, "pairs_per_step": 4, "leave_out": []},
        "rl": {
            **few,
            "steps": 1,
            "prompts_per_step": 2,
            "samples_per_prompt": 2,
            "sampling": {"max_turn_tokens": 8},
            "advantage": DISPLEASED,
        },
    }
    monkeypatch.chdir(project)
    shutil.rmtree(project / "pieces")
    settings = {k: v for k, v in small.SIZES.items() if k in DATA}
    (project / "params.yaml").write_text(
        yaml.safe_dump({"recipe": "grpo", "profile": "gpu", "tracking": "off", "set": {**settings, **quick}})
    )
    plan.write(project)
    assert load("preferences", project)["params"]["sampling"]["max_turn_tokens"] == 512
    shown, real = {}, Renderer.prompt
    for name in TRAINED:
        prompts = shown.setdefault(name, {})
        monkeypatch.setattr(
            Renderer,
            "prompt",
            lambda r, m, *tools, prompts=prompts: prompts.update({m[-1].content: tuple(m)}) or real(r, m, *tools),
        )
        assert load(name, project)["params"]["dtype"] == "bfloat16"
        play(project, name)
        assert json.loads((project / "artifacts" / name / "model/config.json").read_text())["dtype"] == "bfloat16"
        assert 0 < float(curve(project, name)[-1]["grad_norm"]) < math.inf
    assert "<search>" in json.loads((project / "artifacts/rl/episodes.jsonl").read_text().splitlines()[0])["text"], (
        "it was told the protocol"
    )
    for name, prompts in shown.items():
        assert prompts and all(m[0].role == "system" for m in prompts.values()), (
            f"{name}: every prompt has the instructions"
        )
    assert len({prompts[q] for prompts in shown.values() for q in prompts if q in shown["rl"]}) == len(shown["rl"]), (
        "one prompt each"
    )
