"""A folder is whole or absent, and one flipped bit anywhere in it is noticed before it is read."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tasks.core.errors import UserError
from tasks.storage import commit, faults
from tasks.storage.commit import Damaged

CODE = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "made"
    (root / "model").mkdir(parents=True)
    (root / "card.json").write_text('{"n": 3}')
    (root / "model" / "weights").write_bytes(bytes(range(40)))
    commit.seal(root)
    return root


def refused(folder, name=""):
    commit._hash.cache_clear()
    with pytest.raises(Damaged, match="fix it") as e:
        commit.check(folder, name, remedy="fix it")
    assert "\n" not in str(e.value)
    return str(e.value)


def test_what_was_sealed_is_accepted(folder):
    for name in ("", "card.json", "model", "model/weights"):
        commit.check(folder, name)
    before = (folder / "manifest.json").read_bytes()
    commit.seal(folder)
    assert (folder / "manifest.json").read_bytes() == before, "sealing again changes nothing"


@pytest.mark.parametrize("name", ["card.json", "model/weights", "manifest.json"])
def test_every_flipped_bit_is_noticed(folder, name):
    path = folder / name
    good, at = path.read_bytes(), path.stat()
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= 1 << (i % 8)
        path.write_bytes(bad)
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))  # DVC trusts size and time stamp; we do not
        refused(folder)


@pytest.mark.parametrize("size", [0, 1, 39])
def test_a_truncated_file_is_noticed(folder, size):
    os.truncate(folder / "model/weights", size)
    assert f"has {size} bytes instead of 40" in refused(folder, "model")
    commit.check(folder, "card.json")  # the other file is as it was


def test_missing_added_and_unsealed(folder):
    (folder / "model" / "adapter").write_text("x")
    assert "nothing is known of it" in refused(folder, "model")
    (folder / "model" / "adapter").unlink()
    (folder / "card.json").unlink()
    assert "it is missing" in refused(folder)
    (folder / "manifest.json").unlink()
    assert "is not whole" in refused(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1}', '{"version": 1, "files": {"a": 3}}', '{"version": 2, "files": {}}', "\x00"]
)
def test_a_manifest_that_is_none(folder, text):
    (folder / "manifest.json").write_text(text)
    refused(folder)


PLACE = """
import sys
import tempfile
from pathlib import Path
from tasks.storage import commit
part, target = Path("part"), Path("target")
part.mkdir(exist_ok=True)
(part / "a").write_text("new")
(part / "b").write_text("new")
commit.place(part, target)
"""


@pytest.mark.parametrize("point", [p for p in faults.POINTS if p.startswith("commit.")])
def test_killed_anywhere_the_target_is_the_old_one_the_new_one_or_absent(tmp_path, point):
    env = {**os.environ, "PYTHONPATH": str(CODE)}
    subprocess.run([sys.executable, "-c", PLACE.replace('"new"', '"old"')], cwd=tmp_path, env=env, check=True)
    done = subprocess.run([sys.executable, "-c", PLACE], cwd=tmp_path, env={**env, faults.ARM: f"{point}=kill"})
    assert done.returncode == -9, "the point was not passed"
    if (tmp_path / "target").exists():
        commit.check(tmp_path / "target")
        assert len({p.read_text() for p in (tmp_path / "target").glob("[ab]")}) == 1
    subprocess.run([sys.executable, "-c", PLACE], cwd=tmp_path, env=env, check=True)
    commit.check(tmp_path / "target")
    assert (tmp_path / "target/a").read_text() == "new" and sorted(p.name for p in tmp_path.iterdir()) == ["target"]


def test_a_target_on_another_file_system(tmp_path):
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=memory) as other:
        for text in ("old", "new"):
            part = tmp_path / "part"
            part.mkdir()
            (part / "a").write_text(text)
            commit.place(part, Path(other) / "new" / "target")
            shutil.rmtree(part)
        commit.check(Path(other) / "new" / "target")
        assert (Path(other) / "new" / "target" / "a").read_text() == "new"
        assert [p.name for p in (Path(other) / "new").iterdir()] == ["target"]


@pytest.mark.parametrize("armed", ["x", "rl/train.step", "train.step:0=kill", "train.step=explode", "train.stop=kill"])
def test_an_arming_that_means_nothing_is_refused(armed, monkeypatch):
    monkeypatch.setenv(faults.ARM, armed)
    with pytest.raises(UserError, match=faults.ARM):
        faults.fault("train.step")


def test_points_count_their_passages_and_belong_to_a_stage(tmp_path, monkeypatch):
    monkeypatch.setenv(faults.LOG, str(tmp_path / "log"))
    monkeypatch.setenv(faults.ARM, "rl/train.step:2=full")
    monkeypatch.setattr(faults, "stage", "sft")
    faults.fault("train.step"), faults.fault("train.step")
    monkeypatch.setattr(faults, "stage", "rl")
    faults.fault("train.step")
    with pytest.raises(OSError, match="No space left"):
        faults.fault("train.step")
    assert (tmp_path / "log").read_text().split() == ["sft/train.step"] * 2 + ["rl/train.step"] * 2
    with pytest.raises(LookupError, match="add it to POINTS"):
        faults.fault("train.unheard")


def test_unarmed_points_do_nothing(monkeypatch):
    monkeypatch.delenv(faults.ARM, raising=False)
    monkeypatch.delenv(faults.LOG, raising=False)
    for point in faults.POINTS:
        faults.fault(point)


def test_manifests_list_sizes_and_hashes(folder):
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(listed) == {"card.json", "model/weights"} and listed["model/weights"]["bytes"] == 40


@pytest.mark.parametrize(
    ("text", "message"), [("", "no JSON object"), ("[1]", "no JSON object"), (None, "is a directory")]
)
def test_a_file_of_a_folder_without_a_manifest_is_an_object_or_a_sentence(tmp_path, text, message):
    path = tmp_path / "card.json"
    path.write_text('{"n": 1}')
    assert commit.read_object(path) == {"n": 1}
    path.unlink()
    path.mkdir() if text is None else path.write_text(text)
    with pytest.raises(Damaged, match=message):
        commit.read_object(path, remedy="fix it")


def test_new_folders_are_flushed_into_those_above(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(commit, "flush", lambda p: done.append(p))
    assert commit.make_folder(tmp_path / "a/b") == tmp_path / "a/b"
    assert done == [tmp_path, tmp_path / "a"] and (tmp_path / "a/b").is_dir()
    commit.make_folder(tmp_path / "a/b")
    assert len(done) == 2
