"""What `make drill` counts is what its parts print and write."""

import json

import drill_all
import pytest

SERVICES = {
    "espalier ui": {"answered": 0, "of": 40, "beside 280 idle connections": True},
    "espalier serve": {"answered": 2, "of": 40, "beside 280 idle connections": False},
}
SUITES = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>'


def said():
    """What the drill of services prints: a line for each, then all."""
    lines = [f"{name} {found}" for name, found in SERVICES.items()]
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
