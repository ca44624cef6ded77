"""Tokenizer, model folders in Hugging Face layout, and the sentences for what cannot be loaded."""

import json
import shutil

import exported
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from training.model import gguf_file
from training.model.attention import NAME, PackedRows
from training.model.model import END, TAGS, head_weight, hidden_states, load_model, new_model, save_model

TOKENS = tiny.tokenizer()


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_comes_back(text):
    assert TOKENS.decode(TOKENS(text, add_special_tokens=False)["input_ids"]) == text


@given(st.lists(st.sampled_from([*TAGS, "x", " ", "7", "\n", "capital"]), max_size=12))
@settings(max_examples=100, deadline=None)
def test_tags_are_one_token_wherever_they_stand_and_survive_decoding(parts):
    text = "".join(parts)
    ids = TOKENS(text, add_special_tokens=False)["input_ids"]
    for tag in TAGS:
        assert ids.count(TOKENS.convert_tokens_to_ids(tag)) == parts.count(tag)
    assert TOKENS.decode(ids) == text == TOKENS.decode(ids, skip_special_tokens=True)


def test_digits_are_split():
    ids = TOKENS("1234 and 58", add_special_tokens=False)["input_ids"]
    assert [t for t in map(TOKENS.decode, ids) if any(c.isdigit() for c in t)] == list("123458")


def test_the_template_is_chatml():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    text = TOKENS.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENS.eos_token == END and TOKENS.encode(END) == [TOKENS.eos_token_id]


def test_a_new_model_is_a_function_of_its_seed_and_leaves_torchs_randomness_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = (tiny.build(seed=s).state_dict() for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a[k], b[k]) for k in a) and any(not torch.equal(a[k], c[k]) for k in a)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    save_model(tiny.build(), TOKENS, path)
    return path


def test_a_saved_model_loads_anywhere_and_says_the_same(folder):
    ours, tokenizer = load_model(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)("The capital of Norvia")["input_ids"])
    assert (
        ids.tolist() == tokenizer("The capital of Norvia")["input_ids"]
        and tokenizer.chat_template == TOKENS.chat_template
    )
    hidden = hidden_states(ours, ids, torch.arange(len(ids)), PackedRows([len(ids)]))
    torch.testing.assert_close(
        hidden @ head_weight(ours).T, theirs(input_ids=ids[None]).logits[0], atol=1e-5, rtol=1e-5
    )
    assert theirs.config.use_cache and theirs.generate(ids[None], max_new_tokens=3, do_sample=False).shape[0] == 1


def test_a_saved_folder_holds_nothing_of_how_it_was_run(folder, tmp_path):
    assert {p.suffix for p in folder.iterdir()} == {".json", ".safetensors", ".jinja"}
    assert all(NAME not in p.read_text() for p in folder.glob("*.json") if p.name != "tokenizer.json")
    save_model(*load_model(folder), tmp_path / "again")
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_saving_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "stale.bin").write_text("x")
    save_model(tiny.build(), TOKENS, tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"] and not (tmp_path / "m" / "stale.bin").exists()


def test_no_progress_bar_of_transformers(folder, tmp_path, capfd):
    save_model(*load_model(folder), tmp_path / "m")
    assert capfd.readouterr() == ("", "")


def broken(folder, tmp_path, *, drop=()):
    path = tmp_path / "broken"
    shutil.copytree(folder, path)
    for name in drop:
        (path / name).unlink()
    return path


@pytest.mark.parametrize(
    ("drop", "sentence"),
    [
        (("tokenizer.json", "tokenizer_config.json"), "has no tokenizer .no tokenizer.json.: copy the tokenizer files"),
        (("chat_template.jinja",), "no chat template: use an instruct model, or put a chat_template.jinja"),
        (("model.safetensors",), "no file named model.safetensors.*a .bin file is a pickle and is never loaded"),
    ],
)
def test_a_folder_that_lacks_a_file_is_one_sentence(folder, tmp_path, drop, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        load_model(broken(folder, tmp_path, drop=drop))
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there_and_a_name_that_cannot_be_fetched(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="there is no model folder"):
        load_model(tmp_path / "nothing")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="cannot load nobody/nothing .*is it spelled right") as caught:
        load_model("nobody/nothing")
    assert "\n" not in str(caught.value)


def test_a_pickle_is_never_loaded(folder, tmp_path):
    path = broken(folder, tmp_path, drop=("model.safetensors",))
    torch.save(tiny.build().state_dict(), path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="never loaded"):
        load_model(path)


def test_the_vocabulary_is_rounded_up():
    model = new_model(
        TOKENS, hidden=8, layers=1, heads=1, kv_heads=1, intermediate=8, max_length=32, init_range=0.02, seed=0
    )
    assert head_weight(model).shape[0] % 16 == 0 and 0 <= head_weight(model).shape[0] - len(TOKENS) < 16


def test_a_tokenizer_that_knows_more_than_its_model_is_one_sentence(tmp_path):
    save_model(tiny.build(vocabulary=tiny.Vocabulary(100)), tiny.tokenizer(), tmp_path / "m")
    with pytest.raises(
        ValueError, match=rf"knows {len(tiny.tokenizer())} ids and its model 112: .*resize_token_embeddings"
    ):
        load_model(tmp_path / "m")


# --- what people hand over
# --------------------------------------------------------------------------------------------


def cut(path):
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def beside(path):
    (path / "model-00002.safetensors.incomplete").write_bytes(b"")


def without_layers(path):
    config = json.loads((path / "config.json").read_text())
    more = {"num_hidden_layers": config["num_hidden_layers"] + 1, "layer_types": None}
    (path / "config.json").write_text(json.dumps(config | more))


def scores(path):
    AutoModelForSequenceClassification.from_pretrained(path, num_labels=1).save_pretrained(path)


def own_code(path):
    config = json.loads((path / "config.json").read_text())
    auto = {"AutoConfig": "modeling_mine.MyConfig", "AutoModelForCausalLM": "modeling_mine.Mine"}
    (path / "config.json").write_text(json.dumps(config | {"model_type": "mine", "auto_map": auto}))
    (path / "modeling_mine.py").write_text("raise SystemExit('it was run')\n")


def config_cut(path):
    (path / "config.json").write_text((path / "config.json").read_text()[:40])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (cut, "model.safetensors is not whole .* the download broke off"),
        (beside, "holds model-00002.safetensors.incomplete, half a download"),
        (without_layers, "lacks .* of the weights of a Qwen3ForCausalLM .*the download is not complete"),
        (scores, "a model with a head that scores texts, and a language model is wanted"),
        (own_code, "needs code of its own, which its files bring and which would run with all your rights"),
        (config_cut, "config.json is not JSON"),
    ],
)
def test_what_is_no_whole_language_model_is_one_sentence(folder, tmp_path, change, sentence):
    path = broken(folder, tmp_path)
    change(path)
    with pytest.raises(ValueError, match=sentence) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_the_tokenizer_of_another_model_is_one_sentence(tmp_path):
    save_model(tiny.build(vocabulary=tiny.Vocabulary(5000)), tiny.tokenizer(), tmp_path / "m")
    with pytest.raises(ValueError, match="knows [0-9]+ ids and its model 5008: it is another model's"):
        load_model(tmp_path / "m")


def test_too_little_memory_is_said_before_anything_is_loaded(folder, monkeypatch):
    class Full:
        available = 1000

    monkeypatch.setattr("training.model.model.psutil.virtual_memory", lambda: Full)
    monkeypatch.setattr("training.model.model.AutoModelForCausalLM.from_pretrained", None)
    with pytest.raises(ValueError, match="GiB are free on cpu; bfloat16 takes half .dtype.: a model of 0.00 billion"):
        load_model(folder)


def test_a_gguf_file_is_taken(tmp_path):
    model = exported.build("llama")
    gguf_file.write(model, exported.tokenizer(), tmp_path / "a.gguf")
    for place in (tmp_path / "a.gguf", tmp_path):
        got, tokenizer = load_model(place)
        assert tokenizer.chat_template == exported.tokenizer().chat_template
        torch.testing.assert_close(head_weight(got), head_weight(model), atol=0, rtol=0)
    half, _ = load_model(tmp_path / "a.gguf", dtype="bfloat16")
    for name, weight in half.named_parameters():
        assert torch.equal(weight, got.get_parameter(name).to(torch.bfloat16)), "rounded once"
    assert all(torch.equal(v, got.get_buffer(name)) for name, v in half.named_buffers()), "and nothing else is"
    save_model(got, tokenizer, tmp_path / "again")
    again, _ = load_model(tmp_path / "again")
    assert "quantization_config" not in (tmp_path / "again/config.json").read_text()
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in got.state_dict().items()), "it is saved as others are"
