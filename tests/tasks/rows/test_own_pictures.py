"""Pictures of the user's own: from files to problems, the table beside them, and the stage `rl`."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from synth.types import Message, Problem, Quarantined, Scored
from tasks.core.errors import UserError
from tasks.rows.pictures import Refused, decoded
from tasks.runtime.stage import Stage
from tasks.stages.evaluate import row
from tasks.stages.problems import problems
from tasks.storage import pictures, tables
from synth.pictures import HELD, Pictures, name_of
from training.types import Rollout


def png(pixels, mode="RGB", **more):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "png", **more)
    return file.getvalue()


def scene(seed, size=16):
    return np.random.default_rng(seed).integers(1, 256, (size, size, 3), dtype=np.uint8)


def run(root, rows, **more):
    (root / "data").mkdir(exist_ok=True)
    (root / "data/asked.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    stage = Stage("problems", plan={"params": {}, "seed": 7}, root=root)
    with stage.running():
        problems(stage, files=[{"path": "data/asked.jsonl", **more}])
    return root / "artifacts/problems"


def pictures_of(root, n):
    (root / "data").mkdir(exist_ok=True)
    for i in range(n):
        (root / f"data/{i}.png").write_bytes(png(scene(i)))


def test_a_table_carries_the_pictures_of_its_rows_once(tmp_path, monkeypatch):
    pictures_of(tmp_path, 30)
    rows = [{"question": "How many?", "answer": i % 4, "images": f"{i}.png"} for i in range(30)]
    again = {"question": "<image>Which of <image> is red?", "answer": "left", "images": ["0.png", "1.png"]}
    table = run(tmp_path, [*rows, again]) / "problems.parquet"
    assert tables.raw(pictures.beside(table)).num_rows == 30
    monkeypatch.setattr("synth.pictures.HELD.held", {})
    monkeypatch.setattr("synth.pictures.HELD.names", {})
    kept = tables.read(table, Problem)
    assert len(kept) == 31 and len({p.id for p in kept}) == 31 and {p.split for p in kept} >= {"train", "test"}
    for i, p in enumerate(kept[:30]):
        assert p.question.startswith("<image>How many?")
        np.testing.assert_array_equal(HELD.of(p.prompt[0].media[0]), scene(i))
    assert kept[30].prompt[0].media == (name_of(scene(0)), name_of(scene(1)))


def test_the_same_question_about_the_same_picture_is_never_in_two_splits(tmp_path):
    pictures_of(tmp_path, 2)
    question = {"question": "How many?", "answer": 1}
    rows = [
        {**question, "images": "0.png", "split": "test"},
        {**question, "images": "0.png", "answer": 2, "split": "train"},  # the same picture
        {**question, "images": "1.png", "split": "train"},
    ]
    folder = run(tmp_path, rows)
    assert [p.lineage["place"] for p in tables.read(folder / "problems.parquet", Problem)] == [
        "asked.jsonl line 1",
        "asked.jsonl line 3",
    ]


def moving(n):
    file, frames = io.BytesIO(), [Image.fromarray(scene(i)) for i in range(n)]
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:])
    return file.getvalue()


BAD = {
    "empty.png": (b"", "bad_picture"),
    "film.gif": (moving(3), "several_frames"),
    "cut.png": (png(scene(1, 64))[:2000], "bad_picture"),
    "text.png": (b"no picture", "bad_picture"),
    "black.png": (png(np.zeros((8, 8, 3), np.uint8)), "blank_picture"),
    "large.png": (png(np.full((4097, 4097), 255, np.uint8), "1"), "large_picture"),
    "deep.png": (png(np.full((8, 8), 7, np.int32), "I;16"), "picture_mode"),
    "no.png": (None, "missing_picture"),
    "../up.png": (None, "picture_elsewhere"),
}


def test_a_bad_picture_is_quarantined_with_its_reason(tmp_path):
    pictures_of(tmp_path, 1)
    for name, (content, _) in BAD.items():
        if content is not None:
            (tmp_path / "data" / name).write_bytes(content)
    ask = {"question": "How many?", "answer": "1"}
    rows = [{**ask, "images": name} for name in BAD] + [{**ask, "images": ["0.png"]}]
    rows += [{**ask, "question": "<image> or <image>?", "images": "0.png"}, {**ask, "images": 3}]
    no_frames = {**ask, "question": "<image>Which way does it move?"}  # a clip without frames
    rows += [{**no_frames, "images": []}, {**no_frames, "images": None}]
    text = [{**no_frames, "answer": "2"}, {"question": "How?", "answer": "3", "images": None}]  # no pictures are meant
    folder = run(tmp_path, [*rows, *text])
    kept = tables.read(folder / "problems.parquet", Problem)
    assert [p.answer for p in kept] == ["1", "2", "3"] and [len(p.prompt[-1].media) for p in kept] == [1, 0, 0]
    quarantined = tables.read(folder / "quarantine.parquet", Quarantined)
    assert [q.reason for q in quarantined] == [r for _, r in BAD.values()] + [
        "pictures",
        "bad_picture",
        "pictures",
        "pictures",
    ]
    assert all(name.removeprefix("../") in q.evidence for name, q in zip(BAD, quarantined, strict=False))


def test_a_reason_says_the_name_of_the_row_wherever_the_rows_are(tmp_path):
    """An mp4, a file that is cut, one that nobody may open, and bytes, of which Pillow would name the address."""

    def reasons(folder):
        folder.mkdir()
        for name, (content, _) in BAD.items():
            if content is not None:
                (folder / name).write_bytes(content)
        (folder / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(64))
        (folder / "cut.tiff").write_bytes(b"II*\0" + bytes(2))
        sentences = []
        for given in (*BAD, "clip.mp4", "cut.tiff", {"bytes": b"no picture", "path": "a.png"}, {"bytes": b"none"}):
            with pytest.raises(Refused) as refused:
                decoded(given, folder)
            sentences.append(str(refused.value))
        return sentences

    first, second = reasons(tmp_path / "one"), reasons(tmp_path / "another")
    assert first == second
    assert not any(str(tmp_path) in reason or " at 0x" in reason for reason in first)
    assert "bad_picture: clip.mp4 cannot be decoded (it is no picture that Pillow knows)" in first


def test_a_file_that_may_not_be_read_is_named_as_in_the_row(tmp_path, monkeypatch):
    (tmp_path / "0.png").write_bytes(png(scene(1)))

    def refuse(path, *args, **more):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(
        Refused, match=r"^bad_picture: 0\.png cannot be decoded \(\[Errno 13\] Permission denied: '0\.png'\)$"
    ):
        decoded("0.png", tmp_path)


def test_a_description_that_nobody_can_draw_is_quarantined(tmp_path):
    """A clip without frames among them: else the stage rl would end at it, after all that comes before."""
    drawn = {
        "Clip of 32 in 2 frames: blue ring 0 0 4, 1 0 4": "",
        "Clip of 32 in 0 frames: blue ring": "describes no clip",
        "Clip of 32 in 3 frames: blue ring 0 0 4": "has 1 entries for 3 frames",
        "Scene of 32: red ring 4 at 3 1": "",
        "Scene of 32: purple ring 4 at 3 1": "colours are red",
        "Scene of 31: red ring 4 at 3 1": "a side of 31 pixels: 8, 16, ... up to 1024",
        "Scene of 99999992: red ring 4 at 3 1": "a side of 99999992 pixels",
        "How many": "describes no picture",
    }
    rows = [{"question": f"{text}\nWhich?", "answer": "ring"} for text in drawn]
    folder = run(tmp_path, rows, env="look", ask="")
    assert len(tables.read(folder / "problems.parquet", Problem)) == 2
    quarantined = tables.read(folder / "quarantine.parquet", Quarantined)
    assert [q.reason for q in quarantined] == ["no_picture"] * 6
    assert all(words in q.evidence for words, q in zip(filter(None, drawn.values()), quarantined, strict=True))
    with pytest.raises(UserError):  # with a line about the form of the answer after the question nothing is described
        run(tmp_path, rows, env="look")


@pytest.mark.filterwarnings("ignore")  # of Pillow, about what it can still read
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_is_a_picture_or_a_reason(seed):
    """Any byte of a PNG, GIF or JPEG may be another one."""
    rng = np.random.default_rng(seed)
    for kind in ("png", "gif", "jpeg", "bmp", "tiff"):
        file = io.BytesIO()
        Image.fromarray(scene(seed)).save(file, kind)
        for _ in range(60):
            data = bytearray(file.getvalue())
            for at in rng.integers(0, min(len(data), 120), 3):
                data[at] = rng.integers(0, 256)
            try:
                assert decoded({"bytes": bytes(data)}, None).shape[2] == 3
            except ValueError as e:
                assert str(e).partition(":")[0] in ("bad_picture", "large_picture", "picture_mode", "several_frames")


@pytest.mark.parametrize("given", [{"bytes": b""}, {"bytes": b"", "path": "a.png"}, {"path": None}, {}, None, ""])
def test_a_value_of_an_image_column_without_a_picture_is_one_sentence(given):
    with pytest.raises(Refused, match="^(bad|missing)_picture: "):
        decoded(given, None)


def test_without_pillow_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("tasks.rows.pictures.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"need Pillow: pip install 'espalier\[vision\]'"):
        decoded({"bytes": png(scene(1))}, None)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_other_modes_and_sizes_become_rgb(mode):
    file = io.BytesIO()
    Image.fromarray(scene(1)[:, :9]).convert(mode).save(file, "tiff")
    assert decoded({"bytes": file.getvalue()}, None).shape == (16, 9, 3)


def test_what_is_transparent_is_white_and_exif_turns():
    clear = np.dstack([np.zeros((4, 6, 3), np.uint8), np.zeros((4, 6), np.uint8)])
    assert (decoded(Image.fromarray(clear), None) == 255).all()
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn clockwise
    np.testing.assert_array_equal(
        decoded({"bytes": png(scene(2)[:, :5], exif=exif)}, None), np.rot90(scene(2)[:, :5], -1)
    )


def test_pictures_that_are_not_those_of_the_table_are_one_sentence(tmp_path):
    pictures_of(tmp_path, 2)
    table = run(tmp_path, [{"question": "How many?", "answer": 1, "images": f"{i}.png"} for i in range(2)])
    table, file = table / "problems.parquet", pictures.beside(table / "problems.parquet")
    whole = file.read_bytes()
    pictures.write(table, [name_of(scene(0))])
    with pytest.raises(UserError, match="lacks the picture"):
        tables.read(table, Problem)
    file.write_bytes(whole[:-40])
    with pytest.raises(UserError, match="cannot be read"):
        tables.read(table, Problem)
    other = Pictures({int(name_of(scene(1))[:13], 16) >> 2: scene(0)})
    pictures.write(table, [name_of(scene(1))], other)
    with pytest.raises(UserError, match="not those of its name"):
        tables.read(table, Problem)
    file.unlink()
    with pytest.raises(UserError, match="is not beside it"):
        tables.read(table, Problem)


@pytest.mark.parametrize("size", [1, 7, 128, 129, 300])
def test_a_picture_in_a_kept_conversation_is_a_png_that_others_read(size):
    """A larger one has every k-th pixel, so that no side is over 128."""
    given = scene(size, size)[:, : max(1, size - 3)]
    url = pictures.data_url(given)
    head, _, data = url.partition(",")
    k = -(-size // 128)
    assert head == "data:image/png;base64" and len(Image.open(io.BytesIO(base64.b64decode(data))).getbands()) == 3
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), given[::k, ::k])


def test_what_a_conversation_showed_is_kept_with_it(tmp_path):
    """Pictures that an environment drew on the way too: no table has them."""
    names = [HELD.add(scene(k)) for k in (50, 51)]
    talk = (
        Message(role="user", content="<image>Where?", media=(names[0],)),
        Message(role="assistant", content="<act>click 1 2</act>"),
        Message(role="tool", content="<image>", media=(names[1],)),
    )
    problem = Problem.make(prompt=talk[:1], answer="a", verifier="exact", family="f", split="test")
    played = Rollout(problem=problem, group="g", segments=(), score=Scored(value=1.0), info={"messages": talk})
    request, acted, seen = row(played, 0)["messages"]
    assert request["pictures"] == [pictures.data_url(scene(50))] and seen["pictures"] == [pictures.data_url(scene(51))]
    assert acted == {"role": "assistant", "content": "<act>click 1 2</act>"}
    assert row(played, 1)["messages"] is None
