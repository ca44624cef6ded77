"""The profiles resolve, and `gpu` moves every stage that has a device, on the code path that `cpu` takes."""

import re

import pytest
import yaml

from synth.types import Problem
from synth.verify import extract_answer
from tasks.core.errors import UserError
from tasks.core.paths import CODE
from tasks.planning import plan, rates, resolve
from tasks.planning.pieces import bind
from tasks.tracking import spool


@pytest.fixture
def plans_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)

    def plans(profile):
        (tmp_path / "params.yaml").write_text(f"profile: {profile}\nrecipe: grpo\n")
        return {n: p["params"] for n, p in plan.plans(tmp_path).items() if n != "_run"}

    return plans


def test_every_profile_resolves_and_says_what_it_is(plans_of):
    profiles = resolve.yaml_files("profiles")
    assert set(profiles) >= {"cpu", "gpu"}
    for name, path in profiles.items():
        assert plans_of(name) and resolve.read_yaml(path)["title"] and resolve.read_yaml(path)["threads"] >= 1


def test_cpu_is_the_defaults(plans_of):
    assert not resolve.read_yaml(resolve.yaml_files("profiles")["cpu"])["stages"]


def test_quick_is_the_default_run_cut_down_and_its_page_says_where(plans_of):
    """The same stages and models of the same size; a number that is changed is cut, or is one of these."""
    quick, whole = (dict(spool.flat(plans_of(name))) for name in ("quick", "cpu"))
    changed = {k: (whole[k], v) for k, v in quick.items() if whole[k] != v}
    other = {"questions.hops", "sft.made_up_names", "demonstrations.n"}
    assert changed.keys() > other and all(0 < v < old for k, (old, v) in changed.items() if k not in other)
    page = (CODE / "docs/quick.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    assert {k: (yaml.safe_load(a), yaml.safe_load(b)) for k, a, b in told} == changed


def test_gpu_moves_every_stage_that_has_a_device(plans_of):
    gpu = plans_of("gpu")
    devices = {n: (p["device"], p["dtype"]) for n, p in gpu.items() if "device" in p}
    assert set(devices) >= {"sft", "reward", "prefer", "rl", "evaluate"} and set(devices.values()) == {
        ("cuda", "bfloat16")
    }
    assert gpu["sft"]["model"] == "Qwen/Qwen3-0.6B" and gpu["rl"]["optimizer"]["lr"] == 1e-6
    rl, evaluate = gpu["rl"], gpu["evaluate"]
    measured = {k: v for k, v in evaluate["sampling"].items() if k != "top_p"}
    assert rl["envs"] == evaluate["envs"] and rl["sampling"] == measured, "what is learned is what is measured"


def test_a_hub_model_is_told_a_protocol_that_the_environments_read(plans_of):
    envs = {e["piece"]: bind("env", e)() for e in plans_of("gpu")["rl"]["envs"]}
    problem = Problem.make(prompt="q?", answer="the answer alone", verifier="exact", family="toy", split="train")
    queries = []
    state, messages = envs["search"].start(problem, {"search": lambda query: queries.append(query) or "found"})
    told = messages[0]
    assert told.role == "system" and str(envs["search"].max_calls) in told.content
    for _ in range(envs["search"].max_calls):
        _, over, _ = envs["search"].step(state, told.content.replace("<answer>", "").replace("</answer>", ""))
        assert not over
    assert queries == ["a few key words"] * envs["search"].max_calls
    assert envs["search"].step(state, told.content)[2].value == 1.0
    _, messages = envs["single"].start(problem, {})
    assert messages[0].role == "system" and extract_answer(messages[0].content) == "result"


def test_instructions_are_written_once_and_reach_every_stage(plans_of, tmp_path):
    gpu = plans_of("gpu")
    told = {(n, e["piece"]): e["instructions"] for n, p in gpu.items() for e in p.get("envs", ())}
    assert {n for n, _ in told} >= {"sft", "reward", "prefer", "rl", "evaluate"}
    assert len(set(told.values())) == 2 and all(told.values()), "one text for each environment"
    path = tmp_path / "params.yaml"
    path.write_text("profile: gpu\nrecipe: search-r1\ninstructions: {search: Look it up.}\n")
    mine = plan.plans(tmp_path)
    assert (
        mine["rl"]["params"]["envs"][0]["instructions"]
        == mine["sft"]["params"]["envs"][0]["instructions"]
        == "Look it up."
    )


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        (
            "set: {rl: {envs: [{piece: search, instructions: Be quick.}]}}",
            "write them once, in params.yaml under `instructions: {search",
        ),
        (
            "instructions: {serch: x}",
            "params.yaml: instructions: there is no piece 'serch' in env: did you mean 'search'",
        ),
        ("instructions: {search: 3}", "instructions.search must be a text"),
    ],
)
def test_a_model_that_would_be_trained_on_other_prompts_than_it_plays_is_refused(plans_of, tmp_path, params, sentence):
    (tmp_path / "params.yaml").write_text(f"recipe: grpo\n{params}\n")
    with pytest.raises(UserError) as caught:
        plan.plans(tmp_path)
    assert sentence in str(caught.value)


def test_rates_of_a_model_from_scratch_beside_a_pretrained_one_are_said(plans_of, tmp_path):
    def warned(text):
        (tmp_path / "params.yaml").write_text(text)
        return rates.warnings(plan.plans(tmp_path))

    (warning,) = warned("recipe: grpo\nset: {sft: {model: /models/m}}\n")
    assert "sft muon" in warning and "rl 0.001" in warning and "profile=pretrained-cpu" in warning
    for name in ("pretrained-cpu", "gpu"):
        assert not warned(f"profile: {name}\nrecipe: grpo\nset: {{sft: {{model: /models/m}}}}\n")
    assert not warned("recipe: grpo\n"), "nothing is pretrained"


def test_pretrained_cpu_has_the_rates_of_fine_tuning(plans_of):
    plans = plans_of("pretrained-cpu")
    for name in rates.TRAINED:
        assert plans[name]["optimizer"]["kind"] == "adamw" and plans[name]["optimizer"]["lr"] <= 2e-5
