"""Code that a model brings runs only if the user allowed it by the model's name."""

import json
import shutil

import pytest
import tiny
import torch

from flows.cli import main
from tasks.export import folder as hub
from tasks.export import parity
from training.model import remote_code
from training.model.model import hidden_states, load_model, save_model
from training.model.attention import PackedRows
from training.model.size import size_by_config

CODE = """
from transformers import Qwen3Config, Qwen3ForCausalLM

class MineConfig(Qwen3Config):
    model_type = "mine"

class Mine(Qwen3ForCausalLM):
    config_class = MineConfig
"""
MAP = {"AutoConfig": "modeling_mine.MineConfig", "AutoModelForCausalLM": "modeling_mine.Mine"}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder of an architecture that only its own code knows."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # or each name is asked for six times
    monkeypatch.setattr(remote_code, "_NAMES", set())
    folder = tmp_path / "mine"
    save_model(tiny.build(), tiny.tokenizer(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"model_type": "mine", "architectures": ["Mine"], "auto_map": MAP})
    )
    (folder / "modeling_mine.py").write_text(CODE)
    return folder


def states(model):
    ids = torch.arange(3, 12)
    return hidden_states(model, ids, torch.arange(9), PackedRows([9]))


def test_it_is_refused_with_the_words_that_allow_it(mine):
    with pytest.raises(ValueError, match=f"read it, then allow this model by name .{remote_code.VARIABLE}={mine}") as e:
        load_model(mine)
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match="allow this model by name"):
        size_by_config(mine)


def test_a_name_allows_that_model_alone(mine, tmp_path):
    other = shutil.copytree(mine, tmp_path / "other")
    (other / "modeling_mine.py").write_text(CODE + "\nraise SystemExit('it was run')\n")
    remote_code.allow(["some/name", str(mine)])
    model, _ = load_model(mine)
    assert type(model).__name__ == "Mine" and model.config.model_type == "mine"
    torch.testing.assert_close(states(model), states(tiny.build()), atol=1e-5, rtol=0)
    assert size_by_config(mine).layers == tiny.build().config.num_hidden_layers
    with pytest.raises(ValueError, match="allow this model by name"):
        load_model(other)


def test_what_was_trained_from_it_may_run_the_same_code_and_no_other(mine, tmp_path, monkeypatch):
    remote_code.allow([str(mine)])
    model, tokenizer = load_model(mine)
    save_model(model, tokenizer, tmp_path / "sft")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "again"))
    again, _ = load_model(tmp_path / "sft")
    assert torch.equal(states(again), states(model))
    checked = hub.check(again, tokenizer, parity.ask(again, tokenizer, ["Who are you?", "1 + 1?"]), tmp_path / "sft")
    assert checked[0].reader.startswith("transformers")
    saved = tmp_path / "sft" / "modeling_mine.py"
    saved.write_text(saved.read_text() + "\nraise SystemExit('it was run')\n")
    with pytest.raises(ValueError, match="allow this model by name"):
        load_model(tmp_path / "sft")


def test_code_in_a_folder_below_counts_too(mine, tmp_path):
    folder = shutil.copytree(mine, tmp_path / "hides")
    (folder / "below").mkdir()
    (folder / "below/modeling_other.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"]["AutoModelForCausalLM"] = "below/modeling_other.Mine"
    (folder / "config.json").write_text(json.dumps(config))
    remote_code.allow([str(mine)])
    assert not remote_code.allowed(folder)
    shutil.copytree(folder / "below", mine / "below")
    assert remote_code.allowed(folder), "the listed model has it too"


@pytest.mark.parametrize("file", ["config.json", "video_preprocessor_config.json"])
def test_a_folder_cannot_borrow_the_code_of_a_repository_that_is_not_listed(file, mine, tmp_path):
    folder = shutil.copytree(mine, tmp_path / "borrows")
    config = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    config["auto_map"] = {**config.get("auto_map", {}), "AutoModelForCausalLM": "someone/else--modeling_mine.Mine"}
    (folder / file).write_text(json.dumps(config))
    remote_code.allow([str(mine)])
    assert remote_code.allowed(mine) and not remote_code.allowed(folder)


def test_the_variable_is_read_where_a_command_starts(mine, monkeypatch):
    assert main(["recipes", "--json"]) == 0 and not remote_code.allowed(mine)
    monkeypatch.setenv("ESPALIER_REMOTE_CODE", f" {mine} ,")
    assert main(["recipes", "--json"]) == 0 and remote_code.allowed(mine)
