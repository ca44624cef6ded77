"""What `make drill` counts is what its parts print and write."""

import json

import drill_all
import drill_scaling
import pytest

SERVICES = {
    "espalier ui": {"answered": 0, "of": 40, "beside 280 idle connections": True},
    "espalier serve": {"answered": 2, "of": 40, "beside 280 idle connections": False},
}
SUITES = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>'


def said():
    """What the drill of services prints: a line for each, then all."""
    lines = [f"{name} {counts}" for name, counts in SERVICES.items()]
    return "\n".join([*lines, json.dumps(SERVICES, indent=1), ""])


@pytest.mark.parametrize(
    ("read", "written", "printed", "expected"),
    [
        (drill_all.services, "", said(), (82, 79)),
        (drill_all.kills, '{"fired": 20, "survived": 19}', "", (20, 19)),
        (drill_all.files, '{"commands": 104, "tracebacks": 1}', "", (104, 103)),
        (drill_all.pytest, SUITES, "", (7, 5)),
        (drill_all.printed, "", "some line\n[12, 11]\n", (12, 11)),
    ],
)
def test_a_part_is_counted(read, written, printed, expected, tmp_path):
    (tmp_path / "out").write_text(written)
    assert read(tmp_path / "out", printed) == expected


@pytest.mark.parametrize(
    ("steps", "wrong"), [("345", ""), ("35", "steps [3, 5]"), ("3445", "steps [3, 4, 4, 5]"), ("", "steps []")]
)
def test_a_lost_or_doubled_row_of_a_curve_is_seen(steps, wrong, tmp_path):
    (tmp_path / "curve.csv").write_text("step\n" + "".join(f"{s}\n" for s in steps))
    assert drill_scaling.uneven(tmp_path / "curve.csv") == wrong


def test_kills_of_parts_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(drill_scaling, "RAW", tmp_path / "runs/raw.json")
    monkeypatch.setattr(drill_scaling, "RESULT", tmp_path / "result.json")
    kill = {"part": "player", "fired": True, "wrong": ""}
    drill_scaling.write([kill, kill, kill | {"wrong": "other bytes"}, kill | {"fired": False}])
    counted = {r["metric"]: r["value"] for r in json.loads((tmp_path / "result.json").read_text())}
    assert counted == {"killed": 3, "survived": 2}
    written = (tmp_path / "result.json").read_text()
    drill_scaling.write([kill, kill | {"part": "actor"}], ["actor"])
    rows = json.loads((tmp_path / "result.json").read_text())
    assert rows[:2] == json.loads(written) and [r["n"] for r in rows[2:]] == [1, 1], (
        "another machine may have run these"
    )
    assert sum(p.kills for p in drill_scaling.PARTS.values()) == 42
