"""A sample of `make drill-files`: what a run leaves is damaged, and every command that is cheap ends with a sentence."""

import os
import random
import shutil

import drill_files
import pytest
import yaml

pytestmark = pytest.mark.slow
SEED, SAMPLE = 5, 6


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    root = drill_files.project(tmp_path_factory.mktemp("damaged") / "pristine")
    for row in drill_files.tried(root, ".gitignore", "version", list(drill_files.QUICK)):
        assert not row["trace"], "a command fails without any damage"
    return root


def test_no_damage_is_a_traceback(pristine):
    rng = random.Random(SEED)
    side = [f for f in drill_files.left(pristine) if f.startswith(".espalier/")]
    others = [f for f in drill_files.left(pristine) if f not in side]
    cases = [(rng.choice(files), way) for way in drill_files.WAYS for files in (side, others)]
    rows = [r for f, w in rng.sample(cases, SAMPLE) for r in drill_files.tried(pristine, f, w, list(drill_files.QUICK))]
    assert not [(r["file"], r["way"], r["command"], r["trace"]) for r in rows if r["trace"]]


def test_a_model_that_was_flipped_in_the_cache_is_made_anew(pristine, tmp_path, capfd):
    """DVC restores by size and time stamp: the run ended with code 0 and a model that nobody had trained."""
    root = shutil.copytree(pristine, tmp_path / "p", symlinks=True)
    right = (root / "artifacts/evaluate/scores.parquet").read_bytes()
    (object_,) = [p for p in (root / ".dvc/cache").rglob("*") if p.is_file() and p.read_bytes() == right]
    drill_files.damage(object_, "flipped")
    shutil.rmtree(root / "artifacts/evaluate")
    with drill_files.inside(root):
        assert drill_files.cli.main(["run", "-q"]) == 0
    stderr = capfd.readouterr().err
    assert "scores.parquet is not what was written" in stderr and "made anew now" in stderr
    assert (root / "artifacts/evaluate/scores.parquet").read_bytes() == right == object_.read_bytes()


def test_a_list_of_files_that_was_flipped_in_the_cache_is_made_anew(pristine, tmp_path, capfd):
    """DVC restored the folder with a file of another name, hashed it again, and gave that to dvc.lock: every later run
    restored it, whatever was removed."""
    root = shutil.copytree(pristine, tmp_path / "p", symlinks=True)
    folder = root / "artifacts/evaluate"
    right = {p.name: p.read_bytes() for p in folder.iterdir()}
    md5 = yaml.safe_load((root / "dvc.lock").read_text())["stages"]["evaluate"]["outs"][0]["md5"]
    listing = root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    at, text = listing.stat(), listing.read_bytes()
    listing.chmod(0o644)
    listing.write_bytes(text.replace(b'"scores.parquet"', b'"scoras.parquet"'))
    os.utime(listing, ns=(at.st_atime_ns, at.st_mtime_ns))
    listing.chmod(at.st_mode & 0o7777)
    shutil.rmtree(folder)
    with drill_files.inside(root):
        assert drill_files.cli.main(["run", "-q"]) == 0
    assert "made anew now" in capfd.readouterr().err
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == right


def test_a_run_goes_on_without_the_side_files(pristine):
    """Each of these ended `espalier run` in a traceback, with tracking off too."""
    for name in ("measured/rl.json", "params.before.json", "spool/*/execution.json"):
        (path,) = list((pristine / ".espalier").glob(name))[:1]
        rows = list(drill_files.tried(pristine, path.relative_to(pristine).as_posix(), "empty", [["run", "-q"]]))
        assert [(r["code"], r["trace"]) for r in rows] == [(0, "")], rows
