"""The vision-language classes of transformers through our packed rows, with pictures of several sizes in one batch: their own
forward pass, on what their own processors make of the pictures, is the oracle for values and gradients."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from synth.pictures import HELD, picture_key
from synth.types import Message, Sampling
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model import lora, vision
from training.model.attention import PackedRows, SharedRows
from training.model.model import hidden_states, load_model, save_model, train_tokenizer
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

SIDE = 16  # pixels of a token in all of them
SIZES = ((32, 48), (32, 32), (64, 32), (48, 48), (16, 64))  # height, width
TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2}
TEXT |= {"num_key_value_heads": 1, "max_position_embeddings": 256, "initializer_range": 0.2}
TEXT |= {"bos_token_id": None, "eos_token_id": None}
ROPE = {"rope_type": "default", "rope_theta": 100.0}  # fast angles, so that a wrong position is a large error


def _one_size(config: Any, vocab: int, pad: int) -> Any:
    return config(
        vision_config={"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        | {"image_size": 32, "patch_size": 8, "initializer_range": 0.2},
        text_config={"model_type": "llama", "vocab_size": vocab, "pad_token_id": pad, **TEXT},
        scale_factor=2,
        image_token_id=pad,
        pad_token_id=pad,
    )


def _qwen2_5(vocab: int, pad: int) -> Any:
    rope = {**ROPE, "mrope_section": [2, 3, 3]}
    return Qwen2_5_VLConfig(
        vision_config={"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 8}
        | {"out_hidden_size": 32, "window_size": 32, "fullatt_block_indexes": [1], "initializer_range": 0.2},
        text_config={"vocab_size": vocab, "rope_parameters": rope, "pad_token_id": pad, **TEXT},
        image_token_id=vocab - 1,
        video_token_id=vocab - 2,
    )


def _qwen3(vocab: int, pad: int) -> Any:
    rope = {**ROPE, "mrope_section": [2, 3, 3], "mrope_interleaved": True}
    return Qwen3VLConfig(
        vision_config={"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 8}
        | {"out_hidden_size": 32, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
        | {"initializer_range": 0.2},
        text_config={"vocab_size": vocab, "rope_parameters": rope, "head_dim": 16, "pad_token_id": pad, **TEXT},
        image_token_id=vocab - 1,
        video_token_id=vocab - 2,
    )


def _qwen_processor() -> Any:
    size = {"shortest_edge": 2 * SIDE**2, "longest_edge": 12 * SIDE**2}
    return Qwen2VLImageProcessorPil(patch_size=8, merge_size=2, size=size)


CLASSES = {
    "smolvlm": (
        SmolVLMForConditionalGeneration,
        lambda vocab, pad: _one_size(SmolVLMConfig, vocab, pad),
        lambda: SmolVLMImageProcessorPil(
            do_image_splitting=False, size={"longest_edge": 32}, max_image_size={"longest_edge": 32}
        ),
    ),
    "idefics3": (
        Idefics3ForConditionalGeneration,
        lambda vocab, pad: _one_size(Idefics3Config, vocab, pad),
        lambda: Idefics3ImageProcessorPil(
            do_image_splitting=False, size={"longest_edge": 32}, max_image_size={"longest_edge": 32}
        ),
    ),
    "qwen2_5_vl": (Qwen2_5_VLForConditionalGeneration, _qwen2_5, _qwen_processor),
    "qwen3_vl": (Qwen3VLForConditionalGeneration, _qwen3, _qwen_processor),
}
QWEN = ("qwen2_5_vl", "qwen3_vl")


@dataclass(frozen=True)
class Loaded:
    """A class of transformers, loaded by us and by its own."""

    kind: str
    ours: Any
    theirs: Any
    renderer: Renderer
    processor: Any

    def hidden(self, ids: torch.Tensor, rows: Any, position: torch.Tensor) -> torch.Tensor:
        return hidden_states(self.ours, ids, position, rows)

    def oracle(self, row: np.ndarray, names: list[str]) -> torch.Tensor:
        """[n, d]: what transformers computes of one row with these pictures."""
        place = self.theirs.config.image_token_id
        given: dict[str, Any] = {"input_ids": torch.from_numpy(np.where(row < 0, place, row))[None]}
        pictures = [HELD.of(n) for n in names]
        if not names:
            pass
        elif self.kind in QWEN:
            inputs = self.processor(images=pictures, return_tensors="pt")
            given |= {"mm_token_type_ids": torch.from_numpy((row < 0).astype(np.int32))[None], **inputs}
        else:  # pictures of another size are resized by us: the processors' filter (Lanczos) is not in torch
            keys = [picture_key(n) for n in names]
            pixels = vision.shown(keys, 32, torch.device("cpu"), torch.float32)
            for i, x in enumerate(pictures):
                if x.shape[:2] == (32, 32):
                    pixels[i] = self.processor(images=[[x]], return_tensors="pt")["pixel_values"][0, 0]
            given |= {"pixel_values": pixels[None]}
        return self.theirs.model(**given, use_cache=False).last_hidden_state[0]


@pytest.fixture(scope="module", params=CLASSES)
def loaded(request, tmp_path_factory) -> Loaded:
    kind, folder = request.param, tmp_path_factory.mktemp(request.param) / "model"
    of, config, processor = CLASSES[kind]
    tokenizer: Any = train_tokenizer(["how many red squares are there? one two three"], 318)
    tokenizer.add_tokens(["<|vision_start|>", "<|vision_end|>"], special_tokens=True)
    torch.manual_seed(3)
    model = of._from_config(config(336, tokenizer.pad_token_id), dtype=torch.float32)
    save_model(model, tokenizer, folder)
    processor().save_pretrained(folder)
    ours, tokenizer = load_model(folder)
    theirs = of.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()
    return Loaded(kind, ours.eval(), theirs, Renderer(tokenizer), processor())


def pixels(seed: int, size: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def rows_of(loaded: Loaded) -> list[tuple[np.ndarray, list[str]]]:
    """Rows with one, two and no pictures, of different sizes, and the pictures of each."""
    names = [HELD.add(pixels(i, size)) for i, size in enumerate(SIZES)]
    shown = [names[:1], names[1:3], [], names[3:], [names[0], names[0]]]
    prompts = [
        [Message(role="user", content="how many " + "<image> red? " * len(s) + "three", media=tuple(s))] for s in shown
    ]
    return [(loaded.renderer.prompt(p), s) for p, s in zip(prompts, shown, strict=True)]


def packed(rows: list[np.ndarray]) -> tuple[torch.Tensor, PackedRows, torch.Tensor]:
    lengths = [len(r) for r in rows]
    position = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))
    return torch.from_numpy(np.concatenate(rows)), PackedRows(lengths), position


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * max(1.0, float(theirs.abs().max())))


def test_values_and_gradients_are_those_of_transformers(loaded):
    given = rows_of(loaded)
    ours = loaded.hidden(*packed([r for r, _ in given]))
    theirs = torch.cat([loaded.oracle(r, names) for r, names in given])
    close(ours, theirs)
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    for model, out in ((loaded.ours, ours), (loaded.theirs, theirs)):
        model.zero_grad()
        (out * direction).sum().backward()
    own = dict(loaded.theirs.named_parameters())
    seen = [name for name, p in loaded.ours.named_parameters() if p.grad is not None]
    assert any("vis" in name for name in seen)
    for name in seen:
        close(dict(loaded.ours.named_parameters())[name].grad, own[name].grad)
    for model in (loaded.ours, loaded.theirs):
        model.zero_grad()


def test_a_swapped_picture_and_a_plain_position_would_be_seen(loaded, monkeypatch):
    """The comparison above is not blind: each of these mistakes is a hundred times its tolerance."""
    given = [r for r, _ in rows_of(loaded)]
    with torch.no_grad():
        right = loaded.hidden(*packed(given))
        at = int(np.flatnonzero(given[4] < 0)[0])
        other = given[4].copy()
        square = [HELD.add(pixels(i, SIZES[0])) for i in (0, 7)]
        first, second = (loaded.renderer.prompt([Message(role="user", content="<image>", media=(n,))]) for n in square)
        other[other < 0] = np.tile(second[second < 0], 2)
        assert np.array_equal(given[4][at : at + 2], first[first < 0][:2])
        assert float((loaded.hidden(*packed([*given[:4], other])) - right).abs().max()) > 1e-3
        if loaded.kind in QWEN:
            monkeypatch.setattr(vision, "_placed", lambda *a: a[4].expand(3, *a[4].shape))
            assert float((loaded.hidden(*packed(given)) - right).abs().max()) > 1e-3


def test_rows_that_continue_others_stand_where_they_would_alone(loaded):
    """A picture before the fork, one after it, and a fork of a fork."""
    a, b = (HELD.add(pixels(i, size)) for i, size in ((11, (32, 48)), (12, (64, 16))))
    whole = loaded.renderer.prompt([Message(role="user", content="<image> red?", media=(a,))])
    tails = [
        loaded.renderer.observation([Message(role="user", content=text, media=media)])
        for text, media in (("two <image> red?", (b,)), ("how many?", ()))
    ]
    longer = np.concatenate([whole, *tails[:1]])
    rows = [whole, longer, np.concatenate([whole, tails[1]]), np.concatenate([longer, tails[1]])]
    stream = np.concatenate([whole, tails[0], tails[1], tails[1]])
    n, m = len(whole), len(tails[0])
    after = [(((0, n),), m), (((0, n),), len(tails[1])), (((0, n), (n, m)), len(tails[1]))]
    position = np.concatenate(
        [np.arange(n), *(np.arange(sum(k for _, k in pieces), sum(k for _, k in pieces) + x) for pieces, x in after)]
    )
    with torch.no_grad():
        shared = loaded.hidden(torch.from_numpy(stream), SharedRows([n], after), torch.from_numpy(position))
        alone = loaded.hidden(*packed(rows))
    ends = np.cumsum([len(r) for r in rows])
    kept = [np.arange(end - x, end) for end, x in zip(ends, (n, m, len(tails[1]), len(tails[1])), strict=True)]
    close(shared, alone[np.concatenate(kept)])


def test_sampler_and_learner_agree(loaded):
    """Pictures in the prompt and in mid-row, prompts that several share, and conversations that join."""
    names = [HELD.add(pixels(20 + i, size)) for i, size in enumerate(SIZES)]

    def asks(i: int) -> np.ndarray:
        return loaded.renderer.prompt([Message(role="user", content="<image>how many red?", media=(names[i],))])

    told = [
        loaded.renderer.observation([Message(role="user", content="now <image>", media=(names[i],))]) for i in (3, 0, 2)
    ]
    prompts = [asks(0), asks(1), asks(0)]
    session = TorchSampler(model=loaded.ours, end_id=loaded.renderer.end_id).open(prompts, [1, 2, 3])
    parts: list[list[Any]] = [[p] for p in prompts]
    for part, segment in zip(parts, session.generate(Sampling(max_tokens=4)), strict=True):
        part += [segment]
    session.observe([2, 0], [told[1], told[0]])
    joined = session.join([2, 0], [asks(2)], [9])
    parts += [[asks(2)]]
    parts[2] += [told[1]]
    parts[0] += [told[0]]
    spoke = [2, 0, *joined]
    session.rows = spoke
    for i, segment in zip(spoke, session.generate(Sampling(max_tokens=4)), strict=True):
        parts[i] += [segment]
    spoke = [0, *joined]  # rows change places
    session.observe(spoke, [told[2], told[1]])
    parts[0], parts[joined[0]] = [*parts[0], told[2]], [*parts[joined[0]], told[1]]
    for i, segment in zip(spoke, session.generate(Sampling(max_tokens=4)), strict=True):
        parts[i] += [segment]
    ids = [[x if isinstance(x, np.ndarray) else x.ids for x in part] for part in parts]
    mine = [
        [np.full(len(x if isinstance(x, np.ndarray) else x.ids), not isinstance(x, np.ndarray)) for x in p]
        for p in parts
    ]
    batch = pack([Row(ids=np.concatenate(i), trainable=np.concatenate(m)) for i, m in zip(ids, mine, strict=True)])
    with torch.no_grad():
        learned = score(loaded.ours, batch).logp[batch.trainable].numpy()
    sampled = [x.logp for part in parts for x in part if not isinstance(x, np.ndarray)]
    np.testing.assert_allclose(learned, np.concatenate(sampled), atol=5e-5)


def test_a_saved_model_reads_pictures_as_before(loaded, tmp_path):
    save_model(loaded.ours, loaded.renderer.tokenizer, tmp_path / "again")
    assert not (tmp_path / "again" / "preprocessor_config.json").exists()  # config.json says the same
    again, tokenizer = load_model(tmp_path / "again")
    given = [r for r, _ in rows_of(loaded)]
    assert tokenizer.picture_tokens == loaded.renderer.picture_tokens
    with torch.no_grad():
        ids, rows, position = packed(given)
        assert torch.equal(loaded.hidden(ids, rows, position), hidden_states(again, ids, position, rows))


def test_adapters_learn_in_the_tower_too_and_are_merged_when_saved(loaded, tmp_path):
    model = copy.deepcopy(loaded.ours)
    lora.adapt(model, {"rank": 2}, seed=1)
    tower = [p for n, p in model.named_parameters() if p.requires_grad and "vis" in n and "lora_B" in n]
    assert tower
    with torch.no_grad():
        for p in tower:
            p.normal_(std=0.1)
        ids, rows, position = packed([r for r, _ in rows_of(loaded)])
        adapted = hidden_states(model, ids, position, rows)
        save_model(model, loaded.renderer.tokenizer, tmp_path / "merged")
        close(hidden_states(load_model(tmp_path / "merged")[0], ids, position, rows), adapted)
        assert float((adapted - loaded.hidden(ids, rows, position)).abs().max()) > 1e-3


GRIDS = vision.Grids(patch=14, merge=2, frames=2, least=3136, most=200_000, mean=(0.5,) * 3, std=(0.5,) * 3)


def test_sizes_are_those_of_the_processors():
    rng = np.random.default_rng(0)
    for height, width in rng.integers(8, 1600, (500, 2)).tolist():
        want = smart_resize(height, width, factor=28, min_pixels=3136, max_pixels=200_000)
        assert GRIDS.of(height, width) == (want[0] // 28, want[1] // 28)
    large = vision.Grids(**{**vars(GRIDS), "most": 1 << 40}).of(4000, 4000)
    assert large[0] * large[1] <= 4096  # what ids can count


def test_a_picture_of_another_size_is_resized_as_the_processors_do():
    processor = Qwen2VLImageProcessorPil(
        patch_size=14, merge_size=2, size={"shortest_edge": 3136, "longest_edge": 9000}
    )
    ramp = np.arange(50 * 90 * 3).reshape(50, 90, 3)
    picture = (127 + 100 * np.sin(ramp / 400)).astype(np.uint8)
    inputs = processor(images=[picture], return_tensors="pt")
    told = json.loads(processor.to_json_string())
    grids = vision.as_read(
        {
            "model_type": "qwen2_5_vl",
            "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
        },
        told,
    )
    assert isinstance(grids, vision.Grids)
    ours = vision.cut(grids, [picture_key(HELD.add(picture))], torch.device("cpu"), torch.float32)
    assert ours.shape == inputs["pixel_values"].shape
    step = 1 / 255 / min(grids.std)
    assert (
        float((ours - inputs["pixel_values"]).abs().max()) <= 1.01 * step
    )  # Pillow rounds after each of its two passes
    assert float((ours - inputs["pixel_values"]).abs().mean()) < 0.25 * step


@pytest.mark.parametrize("kind", QWEN)
def test_a_model_without_its_preprocessor_is_one_sentence(kind, tmp_path):
    of, config, _ = CLASSES[kind]
    tokenizer: Any = train_tokenizer(["how many red squares are there? one two three"], 318)
    save_model(of._from_config(config(336, 0), dtype=torch.float32), tokenizer, tmp_path / "model")
    with pytest.raises(ValueError, match="preprocessor_config.json says, and there is none .* copy it from the model"):
        load_model(tmp_path / "model")


def _told(**changes: Any) -> dict[str, Any]:
    return json.loads(_qwen_processor().to_json_string()) | changes


VISION = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 16}, "has patch_size 16, and here it is 14"),
        ({"merge_size": 4}, "has merge_size 4, and here it is 2"),
        ({"do_normalize": False}, "has do_normalize False, and here it is 1"),
        ({"rescale_factor": 1.0}, "has rescale_factor 1.0, and here it is 0.00392157"),
        ({"resample": 2}, "has resample 2, and here it is 3"),
        ({"size": {"height": 224, "width": 224}, "min_pixels": None, "max_pixels": None}, "says no size or no colours"),
        ({"image_mean": None}, "says no size or no colours"),
    ],
)
def test_a_preprocessor_that_asks_for_something_else_is_one_sentence(changes, message):
    """Read past in silence, the model would be shown other numbers than it has learned from."""
    config = {"model_type": "qwen2_5_vl", "vision_config": VISION}
    told = _told(patch_size=14, merge_size=2, temporal_patch_size=2)
    assert isinstance(vision.as_read(config, told), vision.Grids)
    with pytest.raises(ValueError, match=message):
        vision.as_read(config, told | changes)


def test_other_colours_of_a_model_of_one_size_are_one_sentence():
    config = {"model_type": "smolvlm", "vision_config": {"image_size": 32, "patch_size": 8}, "scale_factor": 2}
    assert vision.as_read(config, {"image_mean": [0.5] * 3, "image_std": None}) == 4
    with pytest.raises(ValueError, match=r"of a smolvlm has image_std \[0.5, 0.5, 0.2\], and here it is 0.5"):
        vision.as_read(config, {"image_std": [0.5, 0.5, 0.2]})


@pytest.mark.parametrize("kind", QWEN)
def test_a_processor_as_transformers_5_saves_it_is_read(kind, tmp_path):
    """In processor_config.json, among those of texts and films; where both files are there it comes first, as in transformers."""
    of, config, processor = CLASSES[kind]
    tokenizer: Any = train_tokenizer(["how many red squares are there? one two three"], 318)
    save_model(of._from_config(config(336, 0), dtype=torch.float32), tokenizer, tmp_path / "model")
    told = json.loads(processor().to_json_string())
    (tmp_path / "model/processor_config.json").write_text(json.dumps({"image_processor": told, "processor_class": "X"}))
    grids = load_model(tmp_path / "model")[1].picture_tokens
    assert isinstance(grids, vision.Grids) and grids.mean == tuple(told["image_mean"])
    (tmp_path / "model/preprocessor_config.json").write_text(json.dumps(told | {"image_mean": [0.1, 0.2, 0.3]}))
    assert load_model(tmp_path / "model")[1].picture_tokens == grids
    (tmp_path / "model/processor_config.json").write_text(json.dumps({"processor_class": "X"}))
    assert load_model(tmp_path / "model")[1].picture_tokens.mean == (0.1, 0.2, 0.3)


def test_another_class_is_refused_in_one_sentence(tmp_path):
    tokenizer: Any = train_tokenizer(["how many red squares are there? one two three"], 318)
    vision_config = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64}
    vision_config |= {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    config = LlavaConfig(vision_config=vision_config, text_config={"model_type": "llama", "vocab_size": 336, **TEXT})
    save_model(LlavaForConditionalGeneration._from_config(config), tokenizer, tmp_path / "model")
    with pytest.raises(ValueError) as told:
        load_model(tmp_path / "model")
    assert (
        "these are supported: SmolVLM, Idefics3, Qwen2.5-VL, Qwen3-VL" in str(told.value) and len(str(told.value)) < 300
    )


def test_a_picture_as_thin_as_a_line_is_one_sentence():
    with pytest.raises(ValueError, match="2 x 900 pixels is over 200 times as long as wide"):
        GRIDS.of(2, 900)
