"""The documents say what the results say: every generated block equals what its file gives, and a result is whole."""

import json
import re

import pytest

from docs.generators import tables

RESULT = {
    "case": "RL",
    "metric": "pass@1",
    "value": 0.5,
    "unit": "",
    "better": "higher",
    "low": 0.45,
    "high": 0.55,
    "n": 5,
    "peers": {},
    "ratio_to_best_peer": None,
    "device": "2 cores",
    "versions": {"torch": "2.13"},
    "command": "make bench-learning",
}


@pytest.mark.parametrize("path", tables.documents(), ids=lambda p: p.name)
def test_documents_are_generated(path):
    text = path.read_text(encoding="utf-8")
    assert text == tables.generated(text), f"{path.name} is not what benchmarks/results say: run `make tables`"
    assert len(re.findall(r"<!-- table:", text)) == len(tables.BLOCK.findall(text)), (
        f"{path.name} has a block without its end or with an odd name"
    )


@pytest.mark.parametrize("path", sorted(tables.RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_results_are_whole(path):
    assert all(r["better"] in ("higher", "lower") and r["command"] for r in tables.results(path))


def made(tmp_path, *results):
    (tmp_path / "toy.json").write_text(json.dumps(results))
    return tables.generated(
        "a\n<!-- table:toy -->\nold\n<!-- /table -->\nb\n<!-- table:none -->\n<!-- /table -->\n", tmp_path
    )


def test_a_row_per_case_and_a_column_per_metric(tmp_path):
    text = made(
        tmp_path,
        RESULT,
        RESULT | {"case": "SFT", "value": 0.4, "low": None},
        RESULT | {"metric": "seconds", "unit": "s", "value": 1234.5, "low": None},
    )
    assert text.splitlines()[:9] == [
        "a",
        "<!-- table:toy -->",
        "|  | pass@1 | seconds (s) |",
        "| --- | ---: | ---: |",
        "| RL | 0.500 [0.450, 0.550] | 1,234 |",
        "| SFT | 0.400 |  |",
        "",
        "Measured by `make bench-learning`; 2 cores; n = 5; torch 2.13.",
        "<!-- /table -->",
    ]
    assert "old" not in text and "b\n<!-- table:none -->\nNot measured yet: `make bench-none`" in text
    assert tables.generated(text, tmp_path) == text


def test_many_sizes_are_a_range(tmp_path):
    few, many = (made(tmp_path, *(RESULT | {"case": str(n), "n": 1000 * n} for n in range(1, k))) for k in (4, 30))
    assert "; n = 1000, 2000, 3000;" in few and "; n = 1,000 to 29,000;" in many


def test_peers_stand_beside(tmp_path):
    text = made(tmp_path, RESULT | {"peers": {"other": 0.25}, "ratio_to_best_peer": 2.0})
    assert (
        "| case | metric | here | other | times the best peer |" in text
        and "| RL | pass@1 | 0.500 [0.450, 0.550] | 0.250 | 2.00 |" in text
    )


def test_a_table_of_a_control_has_no_ratio(tmp_path):
    control = RESULT | {"peers": {"other": 0.25}, "ratio_to_best_peer": 2.0}
    (tmp_path / "toy.json").write_text(json.dumps([control, control | {"case": "SFT"}]))
    text = tables.generated("<!-- table:toy no-ratio first=1 -->\n<!-- /table -->", tmp_path)
    assert "| case | metric | here | other |\n" in text and "2.00" not in text and "SFT" not in text
    assert tables.generated(text, tmp_path) == text
    with pytest.raises(ValueError, match="no option 'ratio'"):
        tables.generated("<!-- table:toy ratio -->\n<!-- /table -->", tmp_path)


def test_numbers_inside_a_sentence(tmp_path):
    (tmp_path / "toy.json").write_text(json.dumps([RESULT | {"peers": {"other": 0.25}}]))
    marks = "a <!-- value:toy|RL|pass@1 -->?<!-- / --> b <!-- peer:toy|RL|pass@1|other --><!-- / --> c"
    text = tables.generated(marks, tmp_path)
    assert "-->0.500 [0.450, 0.550]<!--" in text and "-->0.250<!--" in text
    assert tables.generated(text, tmp_path) == text
    least = "<!-- least:toy|pass@1 --><!-- / -->"
    (tmp_path / "toy.json").write_text(json.dumps([RESULT, RESULT | {"case": "SFT", "value": 0.125, "low": None}]))
    assert "-->0.125<!--" in tables.generated(least, tmp_path)
    assert "-->1<!--" in tables.generated("<!-- count:pyproject.toml --><!-- / -->", tmp_path)
    with pytest.raises(LookupError, match="toy|RL|nothing"):
        tables.generated("<!-- value:toy|RL|nothing --><!-- / -->", tmp_path)


def test_a_result_without_its_command_is_refused(tmp_path):
    with pytest.raises(ValueError, match="result 0: lacks command"):
        made(tmp_path, {k: v for k, v in RESULT.items() if k != "command"})
