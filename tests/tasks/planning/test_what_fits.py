"""Memory by part against what torch counts, on fake tensors where nothing is computed; and `espalier estimate`."""

import json
from functools import partial
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from flows import cli
from tasks.core.errors import UserError
from tasks.planning import estimate, places
from tasks.planning.devices import NETWORK, machines
from training.learner import shard
from training.model.attention import NAME, PackedRows
from training.model.lora import adapt
from training.model.model import checkpointed_layers, head_weight, own_hidden
from training.model.size import Size, size_by_config, size_of

TOKENS, ROW = 2048, 512
SHAPE = {"hidden": 512, "heads": 8, "kv_heads": 4, "head_dim": 64, "intermediate": 1536, "vocabulary": 8192}


def built(kind=Qwen3Config, layers=4, dtype=torch.float32, **shape):
    s = {**SHAPE, **shape}
    config = kind(
        vocab_size=s["vocabulary"],
        hidden_size=s["hidden"],
        num_hidden_layers=layers,
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"],
        head_dim=s["head_dim"],
        intermediate_size=s["intermediate"],
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.set_attn_implementation(NAME)
    parameters = sum(p.numel() for p in model.parameters())
    return model.eval(), Size(parameters=parameters, layers=layers, head_norms=kind is Qwen3Config, **s)


def inputs(tokens=TOKENS):
    return torch.randint(0, 1000, (tokens,)), torch.arange(tokens), PackedRows([ROW] * (tokens // ROW))


def kept_for_backward(model, tokens):
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    held, alive = {}, []

    def pack(x):
        storage = x.untyped_storage()
        alive.append(x)  # or its place in memory is used again
        held[storage._cdata] = 0 if storage._cdata in weights else storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        own_hidden(model, *inputs(tokens))
    return sum(held.values())


@pytest.mark.parametrize(
    ("kind", "dtype", "lora"),
    [
        (LlamaConfig, torch.float32, {}),
        (Qwen3Config, torch.bfloat16, {}),
        (Qwen3Config, torch.bfloat16, {"rank": 8}),
        (Qwen3Config, torch.float32, {"rank": 8, "base": "nf4"}),
        (LlamaConfig, torch.bfloat16, {"rank": 8, "base": "nf4"}),
    ],
)
def test_what_a_layer_keeps_is_counted_tensor_by_tensor(kind, dtype, lora):
    """The difference of three layers and two; fake where that is all weights, since peft and bitsandbytes want real ones."""
    shape = {"hidden": 128, "heads": 2, "kv_heads": 1, "intermediate": 320, "vocabulary": 1024}

    def of(layers):
        with nullcontext() if lora else FakeTensorMode():
            model, size = built(kind, layers, dtype, **shape)
            adapt(model, lora)
            return kept_for_backward(model, ROW) / ROW, size

    (more, size), (less, _) = of(3), of(2)
    counted = size.kept(dtype.itemsize, lora.get("rank", 0), lora.get("base", ""))
    assert counted < more - less <= counted + 32, "two numbers a norm, one a head"


@pytest.mark.parametrize(("dtype", "checkpointing"), [(torch.float32, False), (torch.bfloat16, True)])
def test_the_peak_of_a_step_is_near_what_torch_tracks(dtype, checkpointing):
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model, size = built(dtype=dtype)
        tracker = MemTracker()
        tracker.track_external(model)
        ids, position, rows = inputs()
        with tracker:
            for _ in range(2):  # the second meets the gradients of the first
                tracker.reset_mod_stats()
                with checkpointed_layers(model) if checkpointing else nullcontext():
                    out = own_hidden(model, ids, position, rows)
                (out.sum() + head_weight(model).sum()).backward()
        peak = next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]
    parts = size.parts(TOKENS, bytes_each=dtype.itemsize, checkpointing=checkpointing)
    ours = parts["weights"] + dtype.itemsize * size.parameters + parts["activations"]
    assert 0.97 * peak < ours < 1.1 * peak


@pytest.mark.parametrize(("dtype", "checkpointing"), [(torch.bfloat16, False), (torch.float32, True)])
def test_the_peak_of_a_split_model_is_near_what_torch_tracks(dtype, checkpointing):
    """One of four processes that do not exist: a group whose collectives do nothing."""
    from torch import distributed
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("shard",))
        with FakeTensorMode():
            model, size = built()
            shard.into_shares(model, mesh, dtype)
            tracker = FSDPMemTracker(model, torch.optim.AdamW(model.parameters()))
            ids, position, rows = inputs()
            with tracker:
                with checkpointed_layers(model) if checkpointing else nullcontext():
                    out = model(
                        input_ids=ids[None], position_ids=position[None], rows=rows, use_cache=False, logits_to_keep=1
                    )
                out.logits.sum().backward()
            peak = next(iter(tracker.get_tracker_snapshot("peak").values()))
    finally:
        distributed.destroy_process_group()
    parts = size.parts(TOKENS, bytes_each=dtype.itemsize, checkpointing=checkpointing, shards=4)
    ours = sum(parts[k] for k in ("weights", "gathered", "activations"))
    held = {str(k).rpartition(".")[2]: v for k, v in peak.items()}
    assert held["SHARDED_PARAM"] == pytest.approx(parts["weights"], rel=0.01)
    assert 0.9 * held["Total"] < ours < 1.25 * held["Total"], (held, parts)


BIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


@pytest.fixture
def big(tmp_path, monkeypatch):
    """A folder with the configuration of Qwen3-8B and no weights, named from elsewhere."""
    (tmp_path / "big").mkdir()
    (tmp_path / "big/config.json").write_text(json.dumps(BIG))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    return str(tmp_path / "big")


def test_a_configuration_alone_says_how_large_a_model_is(big, tmp_path):
    size = size_by_config(big)
    assert size.parameters == 8_190_735_360 and size.head_norms and not size.tied
    assert size.root + size.layers * size.layer == size.parameters and size_of(big) is None
    assert size_by_config(tmp_path / "big/config.json") == size
    with pytest.raises(ValueError, match="there is no model /nowhere: name a folder"):
        size_by_config("/nowhere")
    (tmp_path / "big/config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match="must be the configuration of a language model"):
        size_by_config(big)


def test_what_is_said_to_fit_fits_and_less_does_not(big, capsys):
    assert cli.main(["estimate", "--model", big, "--gpus", "8xH200", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["parameters"] == 8_190_735_360
    by_method = {(x["stage"], x["method"]): x for x in output["predicted"]}
    room = estimate.FREE * machines("H200").device.memory
    assert {s for s, _ in by_method} == set(estimate.TRAINED)
    for x in by_method.values():
        assert x["smallest"]["total"] <= room and x["smallest"]["learners"] <= x["quickest"]["learners"] <= 8
        assert sum(x["quickest"]["time"].values()) <= sum(x["smallest"]["time"].values()) + 0.01
    assert by_method["sft", "full"]["smallest"]["shards"] > 1, "16 bytes a weight are more than a device has"
    assert [by_method["sft", m]["smallest"]["learners"] for m in ("lora", "qlora")] == [1, 1]
    assert by_method["sft", "qlora"]["quickest"]["shards"] == 1, "a quantised base is not split"
    assert cli.main(["estimate", "--model", big, "--gpus", "1xH200", "--json"]) == 0
    alone = {(x["stage"], x["method"]): x for x in json.loads(capsys.readouterr().out)["predicted"]}
    assert alone["sft", "full"]["smallest"] is None and alone["sft", "lora"]["smallest"]["learners"] == 1


def test_several_samplers_take_devices_and_share_the_conversations(big, capsys):
    def of(*words):
        words = ["--gpus", "8xH200", "--stage", "rl", "--set", "rl.engine.name=vllm", *words]
        code = cli.main(["estimate", "--model", big, "--json", *words])
        assert code == 0
        return {x["method"]: x for x in json.loads(capsys.readouterr().out)["predicted"]}

    alone, shared = of(), of("--set", "rl.samplers=4")
    for method, x in shared.items():
        assert x["quickest"]["learners"] <= 4 and x["quickest"]["samplers"] == 4, "four of eight devices are left"
        assert "cache" not in x["smallest"]["memory"] and "cache" in alone[method]["smallest"]["memory"]
        assert x["quickest"]["time"]["sampling"] <= alone[method]["quickest"]["time"]["sampling"]
    assert of("--set", "rl.samplers=8")["lora"]["smallest"] is None, "no device is left for a learner"
    assert of("--set", "rl.samplers=4", "--set", "rl.engine.memory=200")["lora"]["smallest"] is None
    words = ["--stage", "rl", "--set", "rl.engine.name=vllm", "--set", "rl.samplers=4"]
    assert cli.main(["estimate", "--model", big, "--gpus", "8xH200", *words]) == 0
    text = capsys.readouterr().out
    assert " samplers " in text and "--set rl.samplers=4" in text


@pytest.mark.parametrize("lora", [[], ["--set", "rl.lora.rank=16"]], ids=["full", "lora"])
def test_the_settings_of_a_plan_of_devices_are_those_that_were_estimated(big, capsys, lora):
    from flows.overrides import merged, overrides
    from tasks.planning import plan

    words = ["estimate", "--model", big, "--gpus", "8xH200", "--stage", "rl", *lora]
    assert cli.main([*words, "--place", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    rows = {(r["order"], r["piece"]): r for r in out["predicted"]}
    assert out["method"] == ("lora" if lora else "full")
    assert (("one step ahead", "carried out") in rows) == bool(lora), "whole weights and a copy fit with adapters alone"
    assert cli.main([*words, "--json"]) == 0
    alone = {x["method"]: x for x in json.loads(capsys.readouterr().out)["predicted"]}[out["method"]]["quickest"]
    assert alone["learners"] == 8
    assert rows["in turn", "symmetric"]["seconds"] == pytest.approx(sum(alone["time"].values()))
    for row in rows.values():
        if row["piece"] != "carried out":
            continue
        place = {k: row["knobs"][k] for k in ("learners", "samplers")}
        assert place["learners"] + place["samplers"] <= 8 and row["saved"] > 0
        assert f"--set rl.samplers={place['samplers']}" in row["set"] and "--set rl.engine.name=vllm" in row["set"]
        assert ("--set rl.asynchrony.piece=one_off" in row["set"]) == (row["order"] == "one step ahead")
        run = [flag.removeprefix("--set ") for flag in row["set"]] + lora[1:]
        changes = overrides(None, [*run, "profile=gpu", f"sft.model={big}"])
        planned = plan.plans(plan.project(), changed=partial(merged, changes=changes), to_run=False)
        assert planned["_run"]["place"]["rl"].items() >= place.items(), "a run takes them"
        one_off = planned["rl"]["params"]["asynchrony"]["piece"] == "one_off"
        assert one_off == (row["order"] == "one step ahead") and planned["rl"]["params"]["engine"]["name"] == "vllm"
        more = ["--set", f"rl.samplers={place['samplers']}", "--set", "rl.engine.name=vllm", "--json"]
        assert cli.main([*words, *more]) == 0
        all_fitting = {x["method"]: x for x in json.loads(capsys.readouterr().out)["predicted"]}[out["method"]]
        if row["order"] == "in turn":
            assert sum(all_fitting["quickest"]["time"].values()) <= row["seconds"] + 0.01
    assert cli.main([*words, "--place"]) == 0
    text = capsys.readouterr().out
    assert "Seconds are predicted" in text and " ".join(rows["in turn", "carried out"]["set"]) in text


def test_the_devices_of_a_stage_are_those_of_its_learners_and_samplers():
    assert places.devices({}) == 1 and places.devices({"learners": 4}) == 4
    assert places.devices({"learners": 4, "samplers": 3}) == 7
    assert places.devices({"learners": 4, "samplers": 3}, nodes=2) == 5, "the first machine runs the samplers"


def test_the_settings_to_copy_are_those_that_were_estimated(big, capsys, monkeypatch):
    from tasks.planning import plan

    assert cli.main(["estimate", "--model", big, "--gpus", "2x8xH100", "--stage", "sft"]) == 0
    text = capsys.readouterr().out
    assert "Every number is predicted" in text and "16 x H100" in text
    (line,) = [x for x in text.splitlines() if x.startswith("  sft (")]
    words = line.partition("--set ")[2].split(" --set ")
    changes = {f"set.{k}": json.loads(v) for k, _, v in (w.partition("=") for w in words)}
    from flows.overrides import merged

    more = {**changes, "profile": "gpu", "set.sft.model": big}
    planned = plan.plans(plan.project(), changed=lambda p: merged(p, more), to_run=False)
    total = estimate.memory(planned, size_by_config(big))["sft"]
    assert f" {total / 2**30:.1f} " in text, "the plan of these settings takes what the table says"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "8xH300"], "there is no device 'H300' here: did you mean"),
        (["--gpus", "8"], "write how many and which, for example 8xH200"),
        (["--gpus", "0xH100"], "it must be one device or more"),
        (["--gpus", "H100", "--stage", "stf"], "--stage stf: did you mean 'sft'"),
        (["--gpus", "H100"], "no model is named"),
        (
            ["--gpus", "8xH200", "--set", "rl.learners=16"],
            "--set rl.learners=16: estimate tries every number of learners",
        ),
        (["--gpus", "8xH200", "--place", "--stage", "sft"], "--place is of the stage rl, and --stage names sft"),
        (["--gpus", "8xH200", "--place", "--stage", "rll"], "--stage rll: did you mean 'rl'"),
        (
            ["--gpus", "8xH200", "--place", "--set", "rl.samplers=2"],
            "estimate tries every number of samplers, learners",
        ),
        (["--gpus", "2x8xH200", "--place"], "--place plans the devices of one machine"),
        (["--gpus", "A10G", "--place", "--set", "rl.samples_per_prompt=512"], "--place: nothing fits A10G"),
        (
            ["--gpus", "8xH200", "--place", "--set", "rl.prompts_per_step=1", "--set", "rl.samples_per_prompt=4"],
            "has 4 rows",
        ),
        (["--gpus", "H100", "--model", "/nowhere"], "there is no model /nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(big, capsys, words, message):
    model = [] if "no model" in message or "--model" in words else ["--model", big]
    extra = ["--set", 'sft.model=""'] if "no model" in message else []
    assert cli.main(["estimate", *words, *model, *extra]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and err.count("\n") == 1


def test_a_name_that_cannot_be_fetched_is_one_sentence(big, monkeypatch):
    from transformers import AutoConfig

    def fails(*_, **__):
        raise OSError("We couldn't connect to the Hub\nmore")

    monkeypatch.setattr(AutoConfig, "from_pretrained", fails)
    with pytest.raises(ValueError, match=r"Qwen/Qwen3-8B is \(We couldn't connect to the Hub\): is it spelled right"):
        size_by_config("Qwen/Qwen3-8B")


def test_machines_are_read(big):
    at = machines("2x8xh100")
    assert (at.nodes, at.each, at.name, at.devices) == (2, 8, "H100", 16)
    assert at.link(8) == at.device.link and at.link(16) == NETWORK and machines("L4").devices == 1
    with pytest.raises(UserError):
        machines("x8xH100")


def test_a_model_without_layers_is_not_split():
    class Flat(nn.Module):
        base_model = nn.Linear(2, 2)

    with pytest.raises(ValueError, match="has no layers by which it could be split"):
        shard.into_shares(Flat(), None, torch.float32)
