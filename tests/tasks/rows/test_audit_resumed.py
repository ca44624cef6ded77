"""A killed `espalier audit FILE --out FOLDER` goes on where it was, to the same bytes."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest
from test_clean_in_parts import rows

from flows.cli import main
from tasks.rows import audit, kept
from tasks.storage import commit, faults, state

pytestmark = pytest.mark.slow
AT = "commit.rename"  # a part is whole, and not yet in its place


@pytest.fixture(autouse=True)
def in_small_parts(monkeypatch):
    monkeypatch.setattr(kept, "SMALL", 0)
    monkeypatch.setattr(audit, "PIECE", 4000)
    monkeypatch.setattr(audit, "COMPARED", 20)
    for module in (commit, state):  # what a killed process has written is there; only a power cut would need this
        monkeypatch.setattr(module, "flush", lambda path: None)


def audited(file: Path, out: Path, *more: str, fault: str = "", code: int = 0) -> int:
    """Audits in a process of its own; the parts that were made. What it says on stderr is in `said` beside `out`."""
    out.parent.mkdir(exist_ok=True)
    log = out.parent / "log"
    log.unlink(missing_ok=True)

    def child() -> None:
        sys.stderr = (out.parent / "said").open("w", buffering=1)  # as long as the process
        os.environ[faults.LOG] = str(log)
        os.environ.pop(faults.ARM, None)
        if fault:
            os.environ[faults.ARM] = fault
        sys.exit(main(["audit", str(file), "--out", str(out), "--processes", "1", *more]))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(300)
    assert process.exitcode == code, (out.parent / "said").read_text()
    return log.read_text().count(AT) if log.exists() else 0


def said(out: Path) -> str:
    return (out.parent / "said").read_text()


def files(out: Path) -> dict[str, bytes]:
    assert not (out.parent / f".{out.name}.part").exists(), "nothing is left to go on with"
    return {p.name: p.read_bytes() for p in out.iterdir()}


def lines(path: Path, seed: int = 3) -> Path:
    some = [json.dumps(row) for row in rows(150, seed)]
    some[40], some[90] = "{", json.dumps({"prompt": "a", "chosen": "b", "rejected": "b"})
    path.write_text("\n".join(some) + "\n", encoding="utf-8")
    return path


def test_an_audit_that_is_killed_goes_on_where_it_was(tmp_path):
    file = lines(tmp_path / "mine.jsonl")
    n = audited(file, tmp_path / "whole" / "out")
    want = files(tmp_path / "whole" / "out")
    card = json.loads(want["card.json"])
    assert n > 10 and {"near_duplicate", "near_contradiction"} <= card["faults"].keys() and card["quarantined"]
    for k in (1, 4, n - 1, n):
        out = tmp_path / str(k) / "out"
        audited(file, out, fault=f"{AT}:{k}=kill", code=-signal.SIGKILL)
        assert not out.exists()
        assert audited(file, out) == n - k + 1, "no part is made twice"
        assert ("goes on with what" in said(out)) == (k > 1)
        assert files(out) == want


def test_other_input_that_is_written_out_as_json_lines_first(tmp_path):
    file, out = tmp_path / "mine.csv", tmp_path / "mine" / "out"
    with file.open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, ["prompt", "chosen", "rejected"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows(150))
    audited(file, tmp_path / "whole" / "out")
    audited(file, out, fault=f"{AT}:5=kill", code=-signal.SIGKILL)
    audited(file, out)
    assert files(out) == files(tmp_path / "whole" / "out")


def test_a_damaged_part_another_threshold_and_another_file(tmp_path):
    file, out = lines(tmp_path / "mine.jsonl"), tmp_path / "mine" / "out"
    n = audited(file, tmp_path / "whole" / "out")
    audited(file, out, fault=f"{AT}:{n}=kill", code=-signal.SIGKILL)
    path = out.parent / ".out.part/read/00001/arrays.npz"
    path.write_bytes(path.read_bytes()[:-1])
    assert audited(file, out) == 2 and "make it anew" in said(out)
    assert files(out) == files(tmp_path / "whole" / "out")
    for what, more in (("settings", ["--threshold", "0.5"]), ("input", [])):
        out = tmp_path / what / "out"
        audited(file, out, fault=f"{AT}:9=kill", code=-signal.SIGKILL)
        if what == "input":
            lines(file, seed=4)
        n = audited(file, tmp_path / f"{what} alone" / "out", *more)
        assert audited(file, out, *more) == n
        assert f"holds parts of a run with other {what}: it begins anew" in said(out)
        assert files(out) == files(tmp_path / f"{what} alone" / "out")
