"""The stage rl with several policies: a run that was killed ends with the bytes of one that was not; what is saved speaks as
what was trained; mistakes are sentences."""

import contextlib
import csv
import json
import shutil
import signal
import threading

import pytest
import small
import stand_in_vllm
import torch
from safetensors.torch import load_file
from stub_server import stub

from training.model.model import load_model

pytestmark = pytest.mark.slow
RL = {
    "include_questions": False,
    "include_families": True,
    "envs": [{"piece": "second_look"}],
    "lora": {"rank": 2},
    "policies": {
        "one": {"roles": ["pioneer"]},
        "other": {
            "roles": ["observer"],
            "optimizer": {"lr": 0.01},
            "advantage": {"piece": "reinforce", "baseline": 0.4},
            "regularisers": [{"piece": "kl", "coef": 0.01}],
        },
    },
    "exchange": 2,
    "critic": {"loss": {"piece": "squared"}},  # one for each
}


def project(root, **rl):
    """A project whose problems are played by two, made up to the stage rl."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(small.SIZES, "problems", {**small.SIZES["problems"], "env": "second_look"})
        # what the toy says is never an answer, and with this baseline it learns from that
        learns = {"advantage": {"piece": "reinforce", "baseline": 0.5}, "curriculum": {"piece": "uniform"}}
        turns = {"sampling": {"max_turn_tokens": 24}}
        patched.setitem(small.SIZES, "rl", {**small.SIZES["rl"], **learns, **turns, **RL, **rl})
        small.write_project(root)
    return root


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = project(tmp_path_factory.mktemp("several") / "whole")
    for stage in ("kb", "questions", "problems", "demonstrations", "sft", "rl"):
        small.run(root, stage)
    return root


def test_killed_in_the_middle_it_ends_with_the_same_bytes(whole, tmp_path):
    root = shutil.copytree(whole, tmp_path / "project")
    shutil.rmtree(root / "artifacts/rl")
    small.run(root, "rl", fault="train.step:4=kill", expect=-signal.SIGKILL)
    stderr = small.run(root, "rl")
    assert "going on after step 2 of 6" in stderr or "going on after step 4 of 6" in stderr
    assert small.outputs(root, "rl") == small.outputs(whole, "rl")


def test_what_is_saved(whole):
    out = whole / "artifacts/rl"
    card = json.loads((out / "card.json").read_text())
    assert set(card["policies"]) == {"one", "other"} and all(p["updates"] >= 2 for p in card["policies"].values())
    base, _ = load_model(whole / "artifacts/sft/model")
    model, _ = load_model(out / "model")
    adapters = load_file(out / "policies/one/adapter_model.safetensors")
    other = load_file(out / "policies/other/adapter_model.safetensors")
    assert adapters.keys() == other.keys() and any(not torch.equal(w, other[n]) for n, w in adapters.items())
    name = "model.layers.0.self_attn.q_proj"
    a, b = (adapters[f"base_model.model.{name}.lora_{x}.weight"] for x in "AB")
    want = base.state_dict()[f"{name}.weight"] + 2.0 * b @ a  # alpha is twice the rank
    assert torch.allclose(model.state_dict()[f"{name}.weight"], want, atol=1e-6) and b.abs().max() > 0
    turns = [json.loads(line).get("turns") for line in (out / "episodes.jsonl").read_text().splitlines()]
    assert all(t[0] == "pioneer: one" for t in turns)  # steps 0, 1 and 4, 5: the exchange has come twice
    head = (out / "curve.csv").read_text().splitlines()[0].split(",")
    assert {"one/reward", "other/reward", "one/entropy", "other/grad_norm", "other/critic_loss"} <= set(head)


def test_evaluate_lets_each_play_its_roles(whole, tmp_path):
    root = shutil.copytree(whole, tmp_path / "project")
    with pytest.MonkeyPatch.context() as patched:
        for stage, knobs in (("problems", {"env": "second_look"}), ("rl", RL)):
            patched.setitem(small.SIZES, stage, {**small.SIZES[stage], **knobs})
        more = {"models": ["sft", "rl"], "envs": [{"piece": "search"}, {"piece": "second_look"}], "questions": 1}
        patched.setitem(
            small.SIZES, "evaluate", {**small.SIZES["evaluate"], **more, "sampling": {"max_turn_tokens": 24}}
        )
        small.write_project(root)
    for stage in ("preferences", "clean", "evaluate"):
        small.run(root, stage)
    lines = [json.loads(line) for line in (root / "artifacts/evaluate/episodes.jsonl").read_text().splitlines()]
    of = {m: {e["problem"]: e for e in lines if e["run"] == f"{m}, families"} for m in ("sft", "rl")}
    assert of["rl"] and all("speakers" not in e for e in of["sft"].values())
    assert all(e["speakers"][0] == "pioneer: one" for e in of["rl"].values())
    episodes = [e for e in lines if e["run"] == "rl"]
    assert episodes and all(set(e["speakers"]) == {": one"} for e in episodes)  # no roles: the first


@pytest.mark.parametrize(
    "rl, words",
    [
        ({"policies": {"pioner": {}, "observer": {}}}, "nobody plays 'pioneer' in the environment second_look"),
        ({"policies": {"pioneer": {}, "observer": {}, "judge": {}}}, "judge plays 'judge', which no environment has"),
        (
            {"envs": [{"piece": "search"}, {"piece": "second_look"}], "include_questions": True},
            "search, which has no roles",
        ),
        ({"policies": {}}, "rl.exchange is 2, and there is one policy"),
        ({"lora": {}}, "needs adapters of its own"),
        ({"group_transforms": [{"piece": "hints"}]}, "rl.group_transforms works with one policy alone"),
    ],
)
def test_mistakes_are_sentences(whole, tmp_path, rl, words):
    root = shutil.copytree(whole, tmp_path / "project")
    project(root, **rl)
    shutil.rmtree(root / "artifacts/rl")
    stderr = small.run(root, "rl", expect=2)
    assert words in stderr and "Traceback" not in stderr


@contextlib.contextmanager
def server(root, **more):
    """A stand-in of a vLLM server of the model that the stage trains."""
    folder = root / "artifacts/sft/model"
    config = json.loads((folder / "config.json").read_text())
    sizes = {k: config[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
    about = {"dtype": "float32", "max_model_len": 4096, "max_loras": 2, "max_lora_rank": 8, **sizes, **more}
    port = stub(config["eos_token_id"], about, adapters=stand_in_vllm.Adapters(folder))
    threading.Thread(target=port.serve_forever, daemon=True).start()
    try:
        yield port
    finally:
        port.shutdown()
        port.server_close()


def test_a_server_samples_for_both(whole, tmp_path):
    """The whole stage: each step's rollouts are those of the adapters of now, as the learner finds."""
    root = shutil.copytree(whole, tmp_path / "project")
    with server(root) as port:
        project(root, engine={"name": f"http://127.0.0.1:{port.server_port}"}, max_mismatch=1e-6)
        shutil.rmtree(root / "artifacts/rl")
        small.run(root, "rl")
    with (root / "artifacts/rl/curve.csv").open() as f:
        steps = list(csv.DictReader(f))
    assert len(steps) == 6 and all(float(s["mismatch_max"]) < 1e-3 for s in steps)
    card = json.loads((root / "artifacts/rl/card.json").read_text())
    told = [name.split("-")[0] for name in port.adapters.told]
    for name, one in card["policies"].items():
        assert one["updates"] >= 2 and told.count(name) - one["updates"] in (0, 1), "at first, and after each update"
    assert port.loads == 0 and len(port.asked) > 0
    assert not list((root / ".espalier").rglob("adapter_*")), "nothing is left of what was laid for it"
    with server(root, max_lora_rank=1) as port:
        project(root, engine={"name": f"http://127.0.0.1:{port.server_port}"})
        stderr = small.run(root, "rl", expect=2)
    assert "error: rl.engine: the server" in stderr and "--max-lora-rank 8, or set a lower lora.rank" in stderr
