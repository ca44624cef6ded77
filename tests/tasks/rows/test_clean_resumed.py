"""A killed `espalier clean FILE` goes on where it was, to the same bytes."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.optimize
import sklearn.model_selection
from test_clean_in_parts import of, rows, small

from synth.preferences.cleaning import run_cleaners
from synth.preferences.imported import Reader
from synth.preferences.ledger import Spilled, afresh
from synth.types import PreferencePair
from tasks.core.errors import UserError
from tasks.planning.pieces import bind
from tasks.rows import clean, kept
from tasks.rows.files import reader_of
from tasks.storage import commit, faults, state
from tasks.storage.shards import Parts

FORKED = scipy.optimize, sklearn.model_selection  # what a child would else import anew
pytestmark = pytest.mark.slow
AT = "commit.rename"  # a part is whole, and not yet in its place


@pytest.fixture(autouse=True)
def in_small_parts(monkeypatch):
    small(monkeypatch)
    monkeypatch.setattr(clean, "ROWS", 40)
    monkeypatch.setattr(kept, "SMALL", 0)
    for module in (commit, state):  # what a killed process has written is there; only a power cut would need this
        monkeypatch.setattr(module, "flush", lambda path: None)


def written(path: Path, some: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    return path


def begun(file: Path, out: Path, fault: str = "", log: Path | None = None, **knobs) -> Any:
    """A process of its own that cleans `file`; what it says on stderr is in `said` beside `out`."""

    def child() -> None:
        sys.stderr = (out.parent / "said").open("w", buffering=1)  # as long as the process
        for name, value in ((faults.ARM, fault), (faults.LOG, str(log or ""))):
            os.environ.pop(name, None)
            if value:
                os.environ[name] = value
        clean.clean_file(str(file), out, **knobs)

    out.parent.mkdir(exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    return process


def ended(process: Any, code: int = 0) -> None:
    process.join(300)
    assert process.exitcode == code


def whole(file: Path, out: Path, **knobs) -> int:
    """Cleans without interruption; the parts that were made."""
    log = out.parent / "log"
    ended(begun(file, out, log=log, **knobs))
    return log.read_text().count(AT)


def said(out: Path) -> str:
    return (out.parent / "said").read_text()


def same(out: Path, wanted: Path) -> None:
    """README.md and index.html name no folder but their own."""
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in wanted.iterdir())
    for path in wanted.iterdir():
        assert (out / path.name).read_bytes().replace(bytes(out), bytes(wanted)) == path.read_bytes(), path.name
    assert not (out.parent / f".{out.name}.part").exists(), "nothing is left to go on with"


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path):
    file = written(tmp_path / "mine.jsonl", rows(150))
    n = whole(file, tmp_path / "whole" / "out")
    assert n > 30, "several parts of rows, features and copies, and one of each cleaner"
    for k in sorted({1, 2, 5, 9, n // 2, n}):
        out = tmp_path / str(k) / "out"
        ended(begun(file, out, f"{AT}:{k}=kill"), -signal.SIGKILL)
        assert not out.exists()
        assert whole(file, out) == n - k + 1, "no part is made twice"
        assert ("goes on with what a run that did not end left" in said(out)) == (k > 1)
        same(out, tmp_path / "whole" / "out")


def test_a_run_that_is_killed_again_and_again(tmp_path):
    file, out = written(tmp_path / "mine.jsonl", rows(150)), tmp_path / "again" / "out"
    n = whole(file, tmp_path / "whole" / "out")
    times = 0
    while not (out / "card.json").exists():
        process = begun(file, out, f"{AT}:6=kill")
        process.join(300)
        times += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL)
    assert times == (n - 1) // 5, "each run made five parts"
    same(out, tmp_path / "whole" / "out")


def test_a_process_that_another_kills(tmp_path):
    file, out = written(tmp_path / "mine.jsonl", rows(400)), tmp_path / "mine" / "out"
    whole(file, tmp_path / "whole" / "out")
    process = begun(file, out)
    until = time.monotonic() + 120
    while not list(out.parent.glob(".out.part/*-intransitive")) and time.monotonic() < until:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    ended(process, -signal.SIGKILL)
    ended(begun(file, out))
    same(out, tmp_path / "whole" / "out")


def test_a_run_that_is_killed_while_it_writes_leaves_the_files_before_as_they_were(tmp_path, monkeypatch):
    file, out = written(tmp_path / "mine.jsonl", rows(90)), tmp_path / "mine" / "out"
    whole(file, out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    written(file, rows(150, seed=5))
    whole(file, tmp_path / "whole" / "out")
    with monkeypatch.context() as m:
        m.setattr(clean, "vars", lambda q: os.kill(os.getpid(), signal.SIGKILL), raising=False)  # at the quarantine
        written(file, [*rows(150, seed=5), {"prompt": "a"}])
        ended(begun(file, out), -signal.SIGKILL)
    assert {p.name: p.read_bytes() for p in out.iterdir() if not p.name.startswith(".")} == before
    written(file, rows(150, seed=5))
    ended(begun(file, out))
    same(out, tmp_path / "whole" / "out")


@pytest.mark.parametrize("damage", ["flipped", "cut", "lost", "no manifest"])
def test_a_part_that_is_damaged_is_made_anew(tmp_path, damage):
    file, out = written(tmp_path / "mine.jsonl", rows(150)), tmp_path / "mine" / "out"
    n = whole(file, tmp_path / "whole" / "out")
    ended(begun(file, out, f"{AT}:{n}=kill"), -signal.SIGKILL)
    parts = sorted(p for p in out.parent.glob(".out.part/**/*.*") if p.suffix in (".npz", ".bin"))
    hurt = [
        next(p for p in parts if word in str(p))
        for word in ("00002/pairs", "groups/", "out_of_fold/", "features-3/", "duplicates/")
    ]
    for path in hurt:
        data = bytearray(path.read_bytes())
        if damage == "flipped":
            data[-1] ^= 4
            path.write_bytes(data)
        elif damage == "cut":
            path.write_bytes(data[:-1])
        else:
            (path if damage == "lost" else path.with_name("manifest.json")).unlink()
    assert whole(file, out) == 1 + len(hurt)
    assert said(out).count("make it anew") == len(hurt)
    same(out, tmp_path / "whole" / "out")


def test_parts_of_another_file_or_setting_are_not_used(tmp_path):
    file = written(tmp_path / "mine.jsonl", rows(150))
    ended(begun(file, tmp_path / "killed" / "out", f"{AT}:30=kill"), -signal.SIGKILL)
    parts = tmp_path / "killed" / ".out.part"
    other: dict[str, Callable[[], dict]] = {
        "settings": lambda: {"reader": reader_of(str(file), limit=90)},
        "input": lambda: written(file, rows(150, seed=4)) and {},
    }
    for what, change in other.items():
        out = tmp_path / what / "out"
        shutil.copytree(parts, tmp_path / what / ".out.part")
        knobs = change()
        n = whole(file, tmp_path / f"{what} alone" / "out", **knobs)
        assert whole(file, out, **knobs) == n, "all parts are made anew"
        assert f"holds parts of a run with other {what}: it begins anew" in said(out)
        same(out, tmp_path / f"{what} alone" / "out")
    assert (tmp_path / "input/out/cleaned.jsonl").read_bytes() != (tmp_path / "settings/out/cleaned.jsonl").read_bytes()


def test_what_the_parts_are_a_function_of(tmp_path, monkeypatch):
    file, protected, reviews = (tmp_path / name for name in ("mine.jsonl", "texts.txt", "reviews.jsonl"))
    written(file, rows(20))
    protected.write_text("a text of its own\n")
    reviews.write_text("")

    def parts_of(**knobs) -> str:
        texts = []

        def noted(*_, parts: Parts, **__) -> None:
            texts.append((parts.folder / "of.json").read_text())
            raise UserError("enough")

        with monkeypatch.context() as m, pytest.raises(UserError, match="enough"):
            m.setattr(clean, "clean_rows", noted)
            clean.clean_file(str(file), tmp_path / "out", **{"reader": Reader(name="mine"), **knobs})
        return texts[0]

    changed = [
        parts_of(),
        parts_of(reader=Reader(name="mine", rename={"prompt": "question"})),
        parts_of(reader=Reader(name="mine", scale=("bad", "good"))),
        parts_of(reader=Reader(name="mine", limit=9)),
        parts_of(recipe="rpo-em"),
        parts_of(split="test"),
        parts_of(protect=[str(protected)]),
        parts_of(reviews=reviews),
    ]
    assert len(set(changed)) == len(changed) and parts_of() == changed[0]
    reviews.write_text("\n")
    assert parts_of(reviews=reviews) not in changed
    with monkeypatch.context() as m:
        m.setattr(kept, "version", lambda name: "0")
        assert parts_of() not in changed
    written(file, rows(21))
    assert parts_of() not in changed


def test_two_that_write_into_one_folder(tmp_path):
    file, out = written(tmp_path / "mine.jsonl", rows(20)), tmp_path / "out"
    with (
        kept.kept(file, out, "clean", settings=[], files=[]),
        pytest.raises(UserError, match=r"already writes into .*out \(process \d+\): wait for it"),
    ):
        clean.clean_file(str(file), out)


def test_what_is_refused_leaves_nothing(tmp_path):
    file = written(tmp_path / "mine.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "b"}])
    with pytest.raises(UserError, match="no pair to clean"):
        clean.clean_file(str(file), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.jsonl"]


def test_a_folder_that_holds_what_is_written_keeps_no_parts(tmp_path):
    written(tmp_path / "mine.jsonl", rows(60))
    clean.clean_file(str(tmp_path), tmp_path / "out")
    assert (tmp_path / "out/card.json").exists()


def voted(n: int) -> list[dict]:
    """Rows of three annotators about each pair, far from each other."""
    return [
        {
            "prompt": f"Name {i % n}?",
            "response_a": f"one of {i % n} and more",
            "response_b": f"another than {i % n}",
            "annotator": f"{i // n}",
            "preference": "A" if (i + i // n) % 3 else "B",
        }
        for i in range(3 * n)
    ]


def test_rows_of_several_annotators_are_read_again(tmp_path):
    file, out = written(tmp_path / "mine.jsonl", voted(40)), tmp_path / "mine" / "out"
    n = whole(file, tmp_path / "whole" / "out")
    ended(begun(file, out, f"{AT}:3=kill"), -signal.SIGKILL)
    ended(begun(file, out))
    same(out, tmp_path / "whole" / "out")
    card = json.loads((out / "card.json").read_text())
    assert card["pairs"]["read"] == 40 and n > 7


def test_the_layout_is_that_of_the_first_row(tmp_path):
    """A later part may begin with a row that has other columns."""
    some = rows(90)
    for i in range(38, 60):
        some[i] = {"prompt": some[i]["prompt"], "responses": ["a b", "c d"], "ratings": [1, 2]}
    file, out = written(tmp_path / "mine.jsonl", some), tmp_path / "mine" / "out"
    whole(file, tmp_path / "whole" / "out")
    ended(begun(file, out, f"{AT}:2=kill"), -signal.SIGKILL)
    ended(begun(file, out))
    same(out, tmp_path / "whole" / "out")
    assert json.loads((out / "card.json").read_text())["quarantined"] == {"empty_side": 22}


def test_values_that_are_no_json_are_read_again(tmp_path):
    some = [{**r, "group": date(2026, 1, 1 + i % 20)} for i, r in enumerate(rows(90))]
    for row in some:
        row.pop("votes")
    file, out = tmp_path / "mine.parquet", tmp_path / "mine" / "out"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(some), file)
    whole(file, tmp_path / "whole" / "out")
    ended(begun(file, out, f"{AT}:9=kill"), -signal.SIGKILL)
    ended(begun(file, out))
    same(out, tmp_path / "whole" / "out")


def test_without_a_policy_what_is_removed_in_between_is_found_again(tmp_path):
    pairs = [p for p in Reader(name="mine").pairs(of(rows(240))) if isinstance(p, PreferencePair)]
    names = ["identical_sides", "duplicates", "confident_learning", "length_balance", "blind_margin"]

    def got(parts: Parts | None) -> tuple:
        cleaners = [bind("synth.preferences.cleaners", {"piece": name}) for name in names]
        kept, removed, noise = run_cleaners(Spilled(pairs), cleaners, once=parts.values if parts else afresh)
        return list(kept), list(removed), noise

    want = got(None)
    assert {"duplicates", "length_balance"} <= {p.decisions[-1].step for p in want[1]}
    parts = Parts(tmp_path / "parts")
    assert got(parts) == want
    there = {p.name for p in parts.there()}
    gone = {
        p for p in there if p.endswith(("confident_learning", "length_balance", "out_of_fold_blind", "blind_margin"))
    }
    assert len(gone) == 4
    for part in gone:
        shutil.rmtree(tmp_path / "parts" / part)
    assert got(parts) == want
    assert {p.name for p in parts.there()} == there


def test_values_of_parts_are_those_that_were_made(tmp_path):
    values = {"a": np.array([1.5, np.nan]), "b": np.zeros((0, 3), np.int8), "said": [["x", None, 1]], "none": None}
    parts, times = Parts(tmp_path / "parts"), []
    for _ in range(2):
        got = parts.values("one", lambda: times.append(1) or values)
        assert got.keys() == values.keys() and got["said"] == values["said"] and got["none"] is None
        assert all(
            np.array_equal(got[k], values[k], equal_nan=k == "a") and got[k].dtype == values[k].dtype for k in "ab"
        )
    assert len(times) == 1
