"""A vision-language model through our packed rows, cache and tokens: transformers' own forward pass is the oracle."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from synth.types import Message, Problem, Sampling, from_row, to_row
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.attention import PackedRows
from training.model.model import hidden_states, load_model, new_vision_model, save_model, train_tokenizer
from synth.pictures import HELD, name_of, picture_key
from training.types import Shown, picture_ids
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler
from training.types import Segment

SIZE = 32


def pixels(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def model_and_tokenizer():
    tokenizer = train_tokenizer(["how many red squares are there? one two three"], 320)
    model = new_vision_model(
        tokenizer,
        hidden=32,
        layers=2,
        heads=2,
        intermediate=64,
        max_length=128,
        picture=SIZE,
        patch=8,
        vision_hidden=32,
        vision_layers=1,
        seed=1,
    ).eval()
    tokenizer.picture_tokens = 4
    return model, tokenizer


def asked(name: str, text: str = "<image>how many red?") -> list[Message]:
    return [Message(role="user", content=text, media=(name,))]


def test_packed_rows_are_what_transformers_computes(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    names = [HELD.add(pixels(i)) for i in (1, 2)]
    renderer, place = Renderer(tokenizer), model.config.image_token_id
    rows = [renderer.prompt(asked(n)) for n in names]
    with torch.no_grad():
        ours = hidden_states(
            model,
            torch.from_numpy(np.concatenate(rows)),
            torch.from_numpy(np.concatenate([np.arange(len(r)) for r in rows])),
            PackedRows([len(r) for r in rows]),
        )
        theirs = []
        body = model.base_model
        body.text_model.set_attn_implementation("sdpa")
        try:
            for i, row in zip((1, 2), rows, strict=True):
                ids = torch.from_numpy(np.where(row < 0, place, row))[None]
                shown = torch.from_numpy(pixels(i)).permute(2, 0, 1)[None, None] / 127.5 - 1
                theirs.append(body(input_ids=ids, pixel_values=shown, use_cache=False).last_hidden_state[0])
        finally:
            body.text_model.set_attn_implementation("espalier")
    torch.testing.assert_close(ours, torch.cat(theirs), atol=1e-5, rtol=0)


def test_sampler_and_learner_agree_on_rows_with_pictures(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    renderer = Renderer(tokenizer)
    names = [HELD.add(pixels(i)) for i in (1, 2, 1, 1)]
    prompts = [renderer.prompt(asked(n, "<image>" + "how many red squares are there? " * 2)) for n in names]
    sampler = TorchSampler(model=model, end_id=renderer.end_id)
    session = sampler.open(prompts, [1, 2, 3, 4])
    first = session.generate(Sampling(max_tokens=5))
    # A picture in mid-row.
    session.observe([0, 1, 2, 3], [renderer.observation(asked(names[0], "now this <image>"))] * 4)
    second = session.generate(Sampling(max_tokens=5))
    told = renderer.observation(asked(names[0], "now this <image>"))
    rows = []
    for prompt, a, b in zip(prompts, first, second, strict=True):
        parts = [prompt, a.ids, told, b.ids]
        trainable = np.concatenate([np.full(len(x), i % 2 == 1) for i, x in enumerate(parts)])
        rows.append(Row(ids=np.concatenate(parts), trainable=trainable))
    batch = pack(rows)
    assert batch.prefixes, "rows that begin alike share their first tokens"
    logp = score(model, batch).logp[batch.trainable].numpy()
    np.testing.assert_allclose(
        logp, np.concatenate([s.logp for pair in zip(first, second, strict=True) for s in pair]), atol=2e-5
    )


def test_a_picture_changes_the_answer_and_its_gradient_reaches_the_tower(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    renderer = Renderer(tokenizer)
    one, two = (renderer.prompt(asked(HELD.add(pixels(i)))) for i in (1, 2))
    turn = renderer.turn("three")
    rows = [
        Row(ids=np.concatenate([p, turn]), trainable=np.arange(len(p) + len(turn)) >= len(p)) for p in (one, two, one)
    ]
    logp = score(model, pack(rows)).logp[pack(rows).trainable].reshape(3, -1)
    assert torch.equal(logp[0], logp[2]) and not torch.allclose(logp[0], logp[1], atol=1e-6)
    model.zero_grad()
    hidden_states(
        model, torch.from_numpy(one), torch.arange(len(one)), PackedRows([len(one)])
    ).square().sum().backward()
    tower = [p.grad for p in model.base_model.vision_model.embeddings.parameters()]
    assert all(g is not None and float(g.abs().max()) > 0 for g in tower)
    model.zero_grad()


def test_a_saved_model_sees_the_same(model_and_tokenizer, tmp_path):
    model, tokenizer = model_and_tokenizer
    save_model(model, tokenizer, tmp_path / "model")
    again, theirs = load_model(tmp_path / "model")
    assert theirs.picture_tokens == 4
    name = HELD.add(pixels(1))
    ids = Renderer(theirs).prompt(asked(name))
    with torch.no_grad():
        a, b = (
            hidden_states(m, torch.from_numpy(ids), torch.arange(len(ids)), PackedRows([len(ids)]))
            for m in (model, again)
        )
    assert torch.equal(a, b)


def test_black_and_large_pictures_are_read(model_and_tokenizer):
    model, _ = model_and_tokenizer
    black, large = HELD.add(np.zeros((SIZE, SIZE, 3), dtype=np.uint8)), HELD.add(pixels(5, 3 * SIZE))
    ids = np.concatenate([picture_ids(n, 4) for n in (black, large)])
    with torch.no_grad():
        seen = hidden_states(model, torch.from_numpy(ids), torch.arange(8), PackedRows([8]))
    assert torch.isfinite(seen).all()


def test_ids_name_the_picture():
    name = name_of(pixels(3))
    words = np.arange(5)
    segment = Segment(ids=np.concatenate([words, picture_ids(name, 4), picture_ids(name, 4), words]), role="env")
    key = picture_key(name)
    assert segment.media == (Shown(key, 5, 4), Shown(key, 9, 4))
    assert Segment(ids=words, role="env").media == ()


def test_text_cannot_become_a_picture(model_and_tokenizer):
    _, tokenizer = model_and_tokenizer
    renderer, name = Renderer(tokenizer), name_of(pixels(3))
    hostile = f"\ue000{name}\ue001 <image>"
    assert (renderer.prompt([Message(role="user", content=hostile)]) >= 0).all()
    assert (renderer.observation([Message(role="tool", content=hostile)]) >= 0).all()


def test_a_message_with_pictures_survives_a_table():
    shown = Problem.make(
        prompt=[Message(role="user", content="<image>how many?", media=("ab" * 32,))],
        answer="1",
        verifier="exact",
        family="scenes",
        split="train",
    )
    plain = Problem.make(prompt="<image>how many?", answer="1", verifier="exact", family="scenes", split="train")
    assert from_row(Problem, to_row(shown)) == shown and shown.id != plain.id
    assert "media" not in to_row(plain)["prompt"]  # rows without pictures keep their bytes


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t: Renderer(t).prompt(asked("ab" * 32, "no place")), "shows 1 pictures and has 0 places"),
        (lambda t: Renderer(blind(t)).prompt(asked("ab" * 32)), "reads text alone: choose a vision-language model"),
        (lambda t: name_of(np.zeros((4, 4), dtype=np.uint8)), r"must be \[height, width, 3\] of uint8"),
        (lambda t: picture_ids("ab" * 32, 5000), "it may have 1 to 4096"),
    ],
)
def test_bad_pictures_are_one_sentence(model_and_tokenizer, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(model_and_tokenizer[1])


def test_a_picture_that_the_model_was_not_given_is_named(model_and_tokenizer):
    model, _ = model_and_tokenizer
    ids = torch.from_numpy(picture_ids("cd" * 32, 4))
    with pytest.raises(LookupError, match="load the pictures that belong to"):
        hidden_states(model, ids, torch.arange(4), PackedRows([4]))
    HELD.add(pixels(1))
    many = torch.from_numpy(picture_ids(name_of(pixels(1)), 5))
    with pytest.raises(ValueError, match="reads 4 of each"):
        hidden_states(model, many, torch.arange(5), PackedRows([5]))


# As the templates of SmolVLM and Idefics3: a message is a list of parts, a string would lose its text.
PARTS = (
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}{% if m.content[0].type == 'image' %}:{% else %}: {% endif %}"
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}<image>{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def test_a_template_of_parts_gets_parts_and_a_picture_its_frame(model_and_tokenizer):
    tokenizer = copy.deepcopy(model_and_tokenizer[1])
    tokenizer.chat_template = PARTS
    tokenizer.add_tokens(["<fake_token_around_image>", "<global-img>"], special_tokens=True)
    renderer, name = Renderer(tokenizer), name_of(pixels(3))
    ids = renderer.prompt(asked(name, "look: <image>how many?"))
    edge, whole = tokenizer.convert_tokens_to_ids(["<fake_token_around_image>", "<global-img>"])
    (shown,) = Segment(ids=ids, role="env").media
    assert ids[shown.start - 2 : shown.start].tolist() == [edge, whole] and ids[shown.start + shown.tokens] == edge
    assert renderer.decode(ids).replace("<fake_token_around_image>", "").replace("<global-img>", "") == (
        "<|im_start|>User: look: how many?<|im_end|>\nAssistant:"
    )
    # text that spells the frame is broken up, as any special token
    assert edge not in renderer.prompt([Message(role="user", content="<fake_token_around_image>")])


def blind(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.picture_tokens = 0
    return other
