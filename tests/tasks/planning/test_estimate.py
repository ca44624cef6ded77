"""What a run from a pretrained model takes, said from the model's files alone."""

import re
from pathlib import Path

import exported
import pytest
import tiny
import torch
import yaml

from flows import cli
from tasks.planning import estimate, plan
from tasks.rows import guess
from tests.training.learner.test_learner import rows
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import pack
from training.model import gguf_file, size
from training.model.lora import adapt
from training.model.model import n_parameters, save_model

BIG = size.Size(
    parameters=8_000_000_000,
    layers=36,
    hidden=4096,
    intermediate=12288,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocabulary=151_936,
)


@pytest.fixture
def folder(tmp_path):
    save_model(tiny.build(), tiny.tokenizer(), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def plans(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)

    def made(**stages):
        params = {"profile": "pretrained-cpu", "recipe": "grpo", "set": {"sft": {"model": "/models/m"}, **stages}}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
        return plan.plans(tmp_path)

    return made


def test_a_folder_says_how_large_its_model_is(folder):
    model, sizes = tiny.build(), size.size_of(folder)
    assert sizes.parameters == n_parameters(model)
    assert (sizes.layers, sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim) == (2, 32, 4, 2, 8)
    adapt(model, {"rank": 5})
    assert 5 * sizes.matrix * sizes.layers == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_a_gguf_says_the_same_as_the_folder_it_was_made_of(tmp_path):
    model = exported.build("qwen3")
    save_model(model, exported.tokenizer(), tmp_path / "model")
    gguf_file.write(model, exported.tokenizer(), tmp_path / "a.gguf")
    assert size.size_of(tmp_path / "a.gguf") == size.size_of(tmp_path / "model")


@pytest.mark.parametrize("broken", ["", "{", "{}", '{"num_attention_heads": 4}'])
def test_what_says_too_little_is_not_guessed(tmp_path, broken):
    (tmp_path / "config.json").write_text(broken)
    assert size.size_of(tmp_path) is None and size.size_of("Qwen/Qwen3-0.6B") is None
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert size.size_of(tmp_path / "a.gguf") is None


def test_the_state_of_a_step_is_what_torch_holds():
    """Weights, gradients and moments; what is left of the estimate is activations, logits and the process."""
    model = tiny.build()
    learner = Learner(model, Optim())
    learner.step(pack(rows()), nll)
    held = sum(
        t.numel() * t.element_size()
        for t in (
            *model.parameters(),
            *(p.grad for p in model.parameters()),
            *(v for o in learner.optimizers for s in o.state.values() for v in s.values() if v.dim()),
        )
    )
    estimated = size.Size(**{**vars(BIG), "parameters": n_parameters(model)}).training(0) - size.PROCESS
    assert held == estimated


def test_what_takes_less_takes_less():
    full = BIG.training(4096)
    assert BIG.training(4096, checkpointing=True) < full and BIG.training(512) < full
    assert BIG.training(512, lora=16) < BIG.training(512) / 2
    half = BIG.training(0, bytes_each=2) - size.PROCESS
    assert half == BIG.parameters * (2 + (2 + 4) + 12), (
        "gradients of a micro-batch and their float32 sum, moments and copies"
    )


def test_a_quantised_base_is_counted_by_its_bits():
    """Of 8 billion weights, 36 x (2 x 4096 x 4096 + 2 x 4096 x 1024 + 3 x 4096 x 12288) are quantised."""
    assert BIG.linear == 36 * 192_937_984
    half, four = (BIG.training(0, bytes_each=2, lora=16, base=base) - size.PROCESS for base in ("", "nf4"))
    adapters = 16 * BIG.matrix * BIG.layers
    assert half == BIG.parameters * 2 + adapters * (2 + (2 + 4) + 12)
    held = (BIG.parameters - BIG.linear) * 2 + BIG.linear * 4.5 / 8
    assert four == held + adapters * (4 + 12) + 4096 * 12288 * 2, "one matrix is unpacked at a time"
    assert BIG.loading(2) == size.PROCESS + BIG.parameters * 2 > four


def test_a_stage_with_a_quantised_base_takes_what_loading_takes_at_least(plans):
    lora = {"rank": 16, "base": "nf4"}
    planned = plans(sft={"lora": lora, "dtype": "bfloat16", "tokens_per_microbatch": 512})
    assert estimate.memory(planned, BIG)["sft"] == BIG.loading(2)
    planned = plans(rl={"lora": {"rank": 16}})
    needed = estimate.of_stage(
        planned["rl"], BIG, dtype="bfloat16", gradient_checkpointing=True, tokens_per_microbatch=512
    )
    (line,) = estimate.warnings(plans(), BIG, needed)
    assert "--set prefer.lora.rank=16 --set prefer." in line


def known(name):
    """Sizes by the models' config.json."""
    shape = ("parameters", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocabulary")
    numbers = {
        "SmolLM2-135M": (134_515_008, 30, 576, 1536, 9, 3, 64, 49_152),
        "Qwen3-0.6B": (596_049_920, 28, 1024, 3072, 16, 8, 128, 151_936),
        "Qwen3-1.7B": (1_720_574_976, 28, 2048, 6144, 16, 8, 128, 151_936),
        "Qwen3-8B": (8_190_735_360, 36, 4096, 12_288, 32, 8, 128, 151_936),
    }
    return size.Size(**dict(zip(shape, numbers[name], strict=True)))


def test_the_table_of_the_page_is_this_arithmetic():
    text = (Path(__file__).parents[3] / "docs/real-model.md").read_text()
    rows = [r.strip("| ").split(" | ") for r in text.splitlines() if re.match(r"\| (SmolLM2|Qwen3)-", r)]
    assert len(rows) == 4
    for name, *cells in rows:
        model = known(name)
        ways = [{}, {"bytes_each": 2}, {"bytes_each": 2, "lora": 16}, {"bytes_each": 2, "lora": 16, "base": "nf4"}]
        want = [model.training(4096, checkpointing=True, **way) / 2**30 for way in ways]
        row = [f"{x:.1f}" for x in want]
        row[3] += f" / {model.loading(2) / 2**30:.1f}"
        assert cells == row, " | ".join([name, *row])


def test_too_little_memory_is_said_before_the_run_with_what_fits(plans):
    planned = plans()
    needed = estimate.memory(planned, BIG)
    assert set(needed) == {"sft", "reward", "prefer", "rl"} and needed["rl"] > needed["sft"], "it has a reference too"
    assert not estimate.warnings(planned, BIG, max(needed.values()))
    (line,) = estimate.warnings(planned, BIG, 0.8 * max(needed.values()))
    assert (
        "prefer takes about" in line
        and "8.00 billion weights" in line
        and "--set prefer.lora.rank=16 takes about" in line
    )
    (line,) = estimate.warnings(planned, BIG, 1e9)
    assert "take a smaller model" in line
    (line,) = estimate.warnings(planned, BIG, max(needed.values()) - 1)
    assert "--set prefer.gradient_checkpointing=true takes about" in line, "what changes least comes first"


def test_a_dry_run_says_time_and_memory_of_a_pretrained_model(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("training.learner.profile.reached", lambda device, dtype: 1e6)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    assert cli.main(["init", "mine"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    threads = torch.get_num_threads()
    try:
        assert cli.main(["run", "--dry-run", "--set", "profile=pretrained-cpu", "--set", f"sft.model={folder}"]) == 0
    finally:
        torch.set_num_threads(threads)
    text = capsys.readouterr().out
    (line,) = [x for x in text.splitlines() if x.startswith("  sft")]
    assert "at most about" in line and line.endswith("GiB") and "with every row as long as it may be" in text
    work = estimate.work(
        plan.plans(tmp_path / "mine", changed=lambda p: p | {"profile": "pretrained-cpu"}), size.size_of(folder)
    )
    assert work["sft"] == 6 * size.size_of(folder).parameters * 150 * 8 * 768


def test_rows_of_the_user_bound_the_time_by_their_bytes(tmp_path, plans):
    rows = ['{"prompt": "two", "completion": "2"}', '{"prompt": "twenty", "completion": "20"}', "not json"]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    planned = plans()
    own = {"files": [{"path": "mine.jsonl"}]}
    known = guess.tokens(tmp_path, {"demonstrations": {"params": own}})
    assert known == {"sft": (len(rows[0]) + len(rows[1])) / 2 + 64}
    assert estimate.work(planned, BIG, known)["sft"] == pytest.approx(
        estimate.work(planned, BIG)["sft"] * known["sft"] / planned["sft"]["params"]["max_length"]
    )
    assert estimate.work(planned, BIG, {"sft": 1e9}) == estimate.work(planned, BIG), "longer rows are left out"
    for other in (own | {"mix": True}, {"files": ["owner/name"]}, {"files": []}):
        assert guess.tokens(tmp_path, {"demonstrations": {"params": other}}) == {}
