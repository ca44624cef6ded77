"""What is exported says what the model says, read by the programs that users will read it with; an error planted in the
words or the weights is refused with a sentence, and leaves nothing."""

import json
import shutil
import subprocess
import sys

import exported
import gguf
import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from flows import cli
from synth.types import Message
from tasks.core.errors import UserError
from tasks.export import folder as folders
from tasks.export import gguf as ggufs
from tasks.export import parity, reward
from tasks.export.export import Settings, export
from training.model import gguf_file
from training.model.lora import adapt
from training.model.model import load_model, save_model
from training.model.render import Renderer
from training.preference.reward_model import new_reward_model

PROMPTS = 6


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Folder, model and tokenizer of a tiny Llama, and what it says to a few prompts."""
    path = tmp_path_factory.mktemp("models") / "llama"
    save_model(exported.build("llama"), exported.tokenizer(), path)
    model, tokenizer = load_model(path)
    return path, model, tokenizer, parity.ask(model, tokenizer, parity.questions(path, PROMPTS))


def quietly(root, model, to, out, **settings):
    return export(root, str(model), to, out, Settings(**{"prompts": PROMPTS, **settings}), say=lambda line: None)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_gguf_is_read_as_the_same_model_to_the_bit(kind, tied, tmp_path):
    model = exported.build(kind, tie_word_embeddings=tied, seed=3)
    gguf_file.write(model, exported.tokenizer(), tmp_path / "a.gguf")
    reader = gguf_file.load(tmp_path / "a.gguf")
    model.set_attn_implementation("sdpa")
    ids = torch.from_numpy(np.stack(tiny.ids(20, 20, below=300)))
    assert torch.equal(model(ids).logits, reader(ids).logits)


def test_a_gguf_of_every_quantisation_states_how_far_it_is(llama, tmp_path):
    checks = quietly(tmp_path, llama[0], "gguf", tmp_path / "out", quants=("f32", "f16", "Q8_0", "q4_0"), name="m")
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["m-F16.gguf", "m-F32.gguf", "m-Q4_0.gguf", "m-Q8_0.gguf", "parity.json"]
    exact, half, eight, four = checks
    assert exact.differ == 0 and exact.top1 == 1.0 and exact.prompts == PROMPTS and exact.kl is None
    assert 0 < half.kl < eight.kl < four.kl < 1 and eight.top1 > four.top1
    record = json.loads((tmp_path / "out/parity.json").read_text())
    assert [r["differ"] for r in record["readers"]] == [f.differ for f in checks]


def test_a_tokenizer_that_the_format_has_no_words_for_is_refused(tmp_path):
    save_model(tiny.build(), tiny.tokenizer(), tmp_path / "m")
    with pytest.raises(UserError, match="cuts texts by a rule that GGUF files have no name for"):
        quietly(tmp_path, tmp_path / "m", "gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.part").exists()


@pytest.mark.parametrize(
    "more, why",
    [
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}, "positions .* are scaled"),
        ({"kind": "gpt_neox"}, "no map of tensor names"),
        ({"kind": "qwen2", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}, "sliding window"),
    ],
)
def test_what_a_reader_would_compute_otherwise_is_refused(more, why, tmp_path):
    model = exported.build(**{"kind": "llama", **more})
    with pytest.raises(ValueError, match=why):
        gguf_file.write(model, exported.tokenizer(), tmp_path / "a.gguf")
    assert not list(tmp_path.iterdir())


OTHER = exported.CHAT_TEMPLATE.replace("\n{% endfor", " {% endfor")


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda v: v.update(template=OTHER), "another chat template"),
        (lambda v: v.update(eos=0), "would let it write on"),
        (lambda v: v["tokens"].__setitem__(slice(300, 302), v["tokens"][301:299:-1]), "another vocabulary"),
        (lambda v: v.update(cut="qwen2"), "other ids"),
        (lambda v: v["merges"].reverse(), "other ids|another vocabulary"),
        (lambda v: v["kinds"].__setitem__(2, gguf_file.NORMAL), "other ids"),
    ],
)
def test_wrong_words_planted_in_a_gguf_is_refused(change, why, llama, tmp_path, monkeypatch):
    _, model, tokenizer, replies = llama
    true = gguf_file._vocabulary

    def wrong(*args):
        parts = true(*args)
        change(parts)
        return parts

    monkeypatch.setattr(gguf_file, "_vocabulary", wrong)
    gguf_file.write(model, tokenizer, tmp_path / "a.gguf")
    with pytest.raises(UserError, match=why):
        ggufs.check(model, tokenizer, replies, tmp_path / "a.gguf", "f32")


def test_wrong_weights_planted_in_a_gguf_are_refused(llama, tmp_path, monkeypatch):
    _, model, tokenizer, replies = llama
    monkeypatch.setattr(gguf_file, "_interleaved", lambda data, heads: data)  # as many a converter has forgotten
    gguf_file.write(model, tokenizer, tmp_path / "a.gguf")
    with pytest.raises(UserError, match="greedy tokens differ"):
        ggufs.check(model, tokenizer, replies, tmp_path / "a.gguf", "f32")


def test_as_many_prompts_are_asked_as_were_wanted(tmp_path):
    assert [len(set(parity.questions(tmp_path, n))) for n in (1, 7, 200, 500)] == [1, 7, 200, 500]


def test_the_rules_for_cutting_texts_are_told_apart():
    from tokenizers import Regex, pre_tokenizers

    cuts = {
        name: [
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in rules]).pre_tokenize_str(t)
            for t in gguf_file.PROBES
        ]
        for name, rules in gguf_file.CUTS.items()
    }
    names = list(cuts)
    assert all(cuts[a] != cuts[b] for i, a in enumerate(names) for b in names[:i])


@pytest.mark.parametrize("to", ["hub", "vllm"])
def test_a_folder_is_written_and_read_back(to, llama, tmp_path):
    checks = quietly(tmp_path, llama[0], to, tmp_path / "out", license="mit")
    assert checks[0].differ == 0 and checks[0].prompts == PROMPTS
    assert (tmp_path / "out/README.md").exists() == (to == "hub")
    reader = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert reader.generation_config.eos_token_id == llama[2].eos_token_id


def swapped(path):
    tokenizer = json.loads(path.read_text())
    words = tokenizer["model"]["vocab"]
    a, b = (next(t for t, i in words.items() if i == k) for k in (300, 301))
    words[a], words[b] = words[b], words[a]
    path.write_text(json.dumps(tokenizer))


def edited(path, **changed):
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **changed}))


@pytest.mark.parametrize(
    "plant, why",
    [
        (
            lambda p: (p / "chat_template.jinja").write_text(OTHER),
            "another chat template",
        ),
        (lambda p: (p / "chat_template.jinja").unlink(), "another chat template than the model: none"),
        (lambda p: edited(p / "generation_config.json", eos_token_id=0), "would let it write on"),
        (lambda p: edited(p / "tokenizer_config.json", eos_token="<|endoftext|>"), "would let it write on"),
        (lambda p: swapped(p / "tokenizer.json"), "another vocabulary"),
    ],
)
def test_wrong_words_planted_in_a_folder_are_refused(plant, why, llama, tmp_path):
    path, model, tokenizer, replies = llama
    folders.write(path, model, tokenizer, tmp_path / "out")
    folders.check(model, tokenizer, replies, tmp_path / "out")
    plant(tmp_path / "out")
    with pytest.raises(UserError, match=why):
        folders.check(model, tokenizer, replies, tmp_path / "out")


def test_wrong_weights_planted_in_a_folder_are_refused(llama, tmp_path):
    path, model, tokenizer, replies = llama
    folders.write(path, model, tokenizer, tmp_path / "out")
    file = tmp_path / "out/model.safetensors"
    weights = load_file(file)
    weights["model.layers.1.mlp.down_proj.weight"] *= 1.5
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="greedy tokens differ"):
        folders.check(model, tokenizer, replies, tmp_path / "out")


def test_adapters_that_were_kept_are_loaded_by_peft(llama, tmp_path):
    path, _, tokenizer, _ = llama
    model, _ = load_model(path)
    adapt(model, {"rank": 4, "merge": False}, seed=1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    save_model(model, tokenizer, tmp_path / "tuned")
    checks = quietly(tmp_path, tmp_path / "tuned", "adapter", tmp_path / "out", base=str(path))
    assert checks[0].differ == 0 and checks[0].reader.startswith("peft")
    assert json.loads((tmp_path / "out/adapter_config.json").read_text())["base_model_name_or_path"] == str(path)
    reader, replies = load_model(tmp_path / "tuned")[0], parity.ask(*load_model(tmp_path / "tuned"), ["What is 2 + 3?"])
    weights = load_file(tmp_path / "out/adapter_model.safetensors")
    save_file({n: t * 2 for n, t in weights.items()}, tmp_path / "out/adapter_model.safetensors")
    with pytest.raises(UserError, match="greedy tokens differ"):
        folders.adapter_check(reader, replies, path, tmp_path / "out")


def test_an_adapter_of_a_quantised_base_is_checked_on_that_base_rounded(llama, tmp_path):
    pytest.importorskip("bitsandbytes", reason="pip install 'espalier[qlora]'")
    path, _, tokenizer, _ = llama
    model, _ = load_model(path)
    adapt(model, {"rank": 4, "merge": False, "base": "nf4"}, seed=1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    save_model(model, tokenizer, tmp_path / "tuned")
    checks = quietly(tmp_path, tmp_path / "tuned", "adapter", tmp_path / "out", base=str(path))
    assert checks[0].differ == 0 and checks[0].reader.startswith("peft")
    whole, alone = load_model(tmp_path / "tuned")[0].state_dict(), load_model(tmp_path / "out")[0].state_dict()
    for name, value in whole.items():
        torch.testing.assert_close(alone[name], value, rtol=0, atol=1e-6)


def test_a_folder_of_adapters_alone_is_a_model_like_others(llama, tmp_path):
    path, _, tokenizer, _ = llama
    model, _ = load_model(path)
    adapt(model, {"rank": 4, "merge": False}, seed=1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    save_model(model, tokenizer, tmp_path / "tuned")
    quietly(tmp_path, tmp_path / "tuned", "adapter", tmp_path / "out", base=str(path))
    whole, alone = load_model(tmp_path / "tuned")[0].state_dict(), load_model(tmp_path / "out")[0].state_dict()
    assert whole.keys() == alone.keys()
    for name, value in whole.items():
        torch.testing.assert_close(alone[name], value, rtol=0, atol=1e-6)
    assert any(not torch.equal(v, load_model(path)[0].state_dict()[n]) for n, v in alone.items())
    assert load_model(tmp_path / "out")[1].get_vocab() == tokenizer.get_vocab()
    config = tmp_path / "out/adapter_config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "base_model_name_or_path": None}))
    with pytest.raises(ValueError, match="does not say what the adapter was trained on"):
        load_model(tmp_path / "out")
    config.write_text(json.dumps({**settings, "base_model_name_or_path": str(tmp_path / "gone")}))
    with pytest.raises(ValueError, match="there is no model folder"):
        load_model(tmp_path / "out")
    config.write_text(json.dumps(settings))
    weights = load_file(tmp_path / "out/adapter_model.safetensors")
    save_file({n: t for n, t in weights.items() if "layers.0" not in n}, tmp_path / "out/adapter_model.safetensors")
    with pytest.raises(ValueError, match="does not fit its base"):
        load_model(tmp_path / "out")
    (tmp_path / "out/adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match="a .bin file is a pickle"):
        load_model(tmp_path / "out")


def test_adapters_are_kept_where_they_were_asked_for_alone(llama, tmp_path):
    path, _, tokenizer, _ = llama
    model, _ = load_model(path)
    adapt(model, {"rank": 4})
    save_model(model, tokenizer, tmp_path / "tuned")
    assert not (tmp_path / "tuned/adapter").exists()
    with pytest.raises(UserError, match="keeps no adapter: train it with `lora"):
        quietly(tmp_path, tmp_path / "tuned", "adapter", tmp_path / "out", base=str(path))
    with pytest.raises(ValueError, match="lora.merge is 'no'"):
        adapt(load_model(path)[0], {"rank": 4, "merge": "no"})


def test_kept_adapters_are_the_same_bytes_each_time(llama, tmp_path):
    path, _, tokenizer, _ = llama
    for name in ("a", "b"):
        model, _ = load_model(path)
        adapt(model, {"rank": 4, "merge": False}, seed=1)
        save_model(model, tokenizer, tmp_path / name)
    files = [sorted((p.name, p.read_bytes()) for p in (tmp_path / n / "adapter").iterdir()) for n in "ab"]
    assert files[0] == files[1] and len(files[0]) == 2


def test_the_snippet_on_the_card_runs(llama, tmp_path):
    quietly(tmp_path, llama[0], "hub", tmp_path / "out", license="apache-2.0")
    card = (tmp_path / "out/README.md").read_text()
    assert "license: apache-2.0" in card and (tmp_path / "out/LICENSE").exists()
    snippet = card.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0 and "What is 2 + 3?" in done.stdout, done.stderr


def test_mistakes_are_one_sentence_and_leave_nothing(llama, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    full = tmp_path / "full"
    full.mkdir()
    (full / "a").write_text("")
    for words, why in [
        (["--to", "onnx", "out"], "there is no target 'onnx'"),
        (["--to", "hub", "out"], "name the licence of the model with --license"),
        (["--to", "hub", "--license", "My Own", "out"], "is not the name of a licence"),
        (["--to", "vllm", "full"], "is there already"),
        (["--to", "gguf", "--quant", "q3", "--prompts", "2", "out"], "there is no quantisation 'q3'"),
        (["--to", "vllm", "--prompts", "0", "out"], "takes one prompt or more"),
        (["--to", "adapter", "--prompts", "2", "out"], "name what the adapter .* was trained on with --base"),
    ]:
        assert cli.main(["export", str(llama[0]), *words]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and __import__("re").search(why, lines[0]), lines
        assert sorted(p.name for p in tmp_path.iterdir()) == ["full"]


def scalar(tmp_path):
    """A reward model with a head of its own, as the stage saves it."""
    save_model(exported.build("qwen3"), exported.tokenizer(), tmp_path / "sft")
    model, tokenizer = new_reward_model(tmp_path / "sft", 1, dtype="float32", device="cpu", seed=5)
    model.score.weight.data.normal_(0.0, 1.0, generator=torch.Generator().manual_seed(1))
    save_model(model, tokenizer, tmp_path / "reward")
    return model, tokenizer


def test_a_reward_model_loads_with_the_head_that_was_trained(tmp_path):
    model, tokenizer = scalar(tmp_path)
    quietly(tmp_path, tmp_path / "reward", "hub", tmp_path / "out", license="mit")
    reader = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert torch.equal(reader.score.weight, model.score.weight) and reader.config.num_labels == 1
    card = (tmp_path / "out/README.md").read_text()
    snippet = card.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chat = [Message(role="user", content="What is 2 + 3?"), Message(role="assistant", content="<answer>5</answer>")]
    row = Renderer(tokenizer).demonstration(chat)[0]
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        assert json.loads(done.stdout)[0] == pytest.approx(
            float(model(torch.from_numpy(row)[None]).logits[0, 0]), abs=1e-4
        )


def test_a_head_that_was_lost_or_changed_is_refused(tmp_path):
    model, tokenizer = scalar(tmp_path)
    rows = [Renderer(tokenizer).demonstration(reward._conversation(i, "What?"))[0] for i in range(3)]
    shutil.copytree(tmp_path / "reward", tmp_path / "out")
    reward.check(model, rows, tmp_path / "out")
    weights = load_file(tmp_path / "out/model.safetensors")
    save_file(
        {**weights, "score.weight": weights["score.weight"] * 1.01},
        tmp_path / "out/model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(UserError, match="other rewards than the model"):
        reward.check(model, rows, tmp_path / "out")
    weights.pop("score.weight")
    save_file(weights, tmp_path / "reward/model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="lack score.weight, which would be made up"):
        quietly(tmp_path, tmp_path / "reward", "hub", tmp_path / "again", license="mit")


def test_gguf_of_a_reward_model_is_refused(tmp_path):
    scalar(tmp_path)
    with pytest.raises(UserError, match="written --to hub or --to vllm"):
        quietly(tmp_path, tmp_path / "reward", "gguf", tmp_path / "out")


def test_a_file_that_is_no_gguf_is_one_sentence(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF nothing")
    with pytest.raises(ValueError, match="is no whole GGUF file"):
        gguf_file.contents(tmp_path / "a.gguf")
    assert gguf.GGUF_MAGIC


def test_trl_loads_the_reward_model_with_its_head(tmp_path):
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    model, _ = scalar(tmp_path)
    quietly(tmp_path, tmp_path / "reward", "hub", tmp_path / "out", license="mit")
    turns = [
        [{"role": "user", "content": "What?"}, {"role": "assistant", "content": f"<answer>{x}</answer>"}] for x in "ab"
    ]
    rows = Dataset.from_list([{"chosen": turns[0], "rejected": turns[1]}] * 2)
    about = RewardConfig(output_dir=str(tmp_path / "trl"), use_cpu=True, bf16=False, report_to=[], disable_tqdm=True)
    trainer = RewardTrainer(model=str(tmp_path / "out"), args=about, train_dataset=rows)
    assert torch.equal(trainer.model.score.weight.float(), model.score.weight)
