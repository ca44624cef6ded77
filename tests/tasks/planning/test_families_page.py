"""`espalier families`, and what `make bench-families` and `make bench-reproof` measure."""

from collections import Counter

import pytest

from benchmarks import families as bench
from benchmarks import reproof
from docs.generators.tables import KEYS
from flows import cli
from tasks.planning.families import families
from tasks.planning.pieces import files, module


def test_a_line_for_every_family(capsys, monkeypatch):
    monkeypatch.setattr("tasks.planning.families.time.process_time", iter(range(10**6)).__next__)  # one item each
    assert cli.main(["families"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(files("family")) and len(lines) > 30
    assert all(" | " in line for line in lines[1:])


def test_one_family_and_a_wrong_name(capsys):
    assert cli.main(["families", "base-conversion"]) == 0
    assert "level 4: size 9999999" in capsys.readouterr().out
    assert cli.main(["families", "sudoko"]) == 2
    assert "did you mean 'sudoku'" in capsys.readouterr().err


def test_a_family_of_the_user_runs_from_the_document(tmp_path, monkeypatch):
    document = (bench.ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    folder = tmp_path / "family"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(document.split("```python\n")[1].split("```")[0])
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    (mine,) = [f for f in families(seconds=0) if f.name == "mine"]
    assert len(mine.levels) == 2 and mine.example.startswith("What is ") and mine.certificate[0] == "sum of the values"


def test_the_page_counts_the_families_of_several_wordings_and_all_have_three_levels():
    page = " ".join((bench.ROOT / "docs" / "families.md").read_text(encoding="utf-8").split())
    modules = {name: module("family", name) for name in files("family")}
    worded = [name for name, of in modules.items() if hasattr(of, "WORDINGS")]
    few = [name for name, of in modules.items() if len(of.LADDER) < 3]
    assert f"in {len(worded)} of the {len(modules)} families" in page
    assert f"The other {len(modules) - len(worded)}," in page and not few


def test_what_is_timed():
    by_metric = {r["metric"]: r for r in bench.measure("list_induction", 40, 20.0, "make bench-families")}
    assert all(r.keys() >= KEYS and r["case"] == "list_induction (3 levels)" for r in by_metric.values())
    made, asked = by_metric["scored"]["n"], by_metric["quarantined"]["n"]
    assert asked == 40 and by_metric["quarantined"]["value"] == pytest.approx(100 * (1 - made / asked)) and made < 40
    assert by_metric["generated"]["low"] <= by_metric["generated"]["value"] <= by_metric["generated"]["high"]


def test_repeats_by_hand():
    large, small = Counter(range(5000)), Counter({1: 3, 2: 1, 3: 1})
    share, n, note = reproof.repeats({1: large + Counter([7]), 2: small})
    assert share == pytest.approx(100 / 5001) and n == 5001
    assert note == "; small: 2 (about 3)", "10 pairs of 5 items, 3 of them equal"
    assert reproof.repeats({2: small}) == (0.0, 0, note)


def test_seeds_share_what_the_birthday_formula_says():
    one, two = {1: Counter("aab"), 2: Counter("x")}, {1: Counter("abc"), 2: Counter("xx")}
    assert reproof.shared(one, two) == (2 + 1 + 2) / (1 + 1)
    by_metric = {r["metric"]: r for r in reproof.measure("n_queens", 60, 300, 20.0)}
    assert all(r.keys() >= KEYS and r["n"] for r in by_metric.values())
    assert (
        by_metric["proved again"]["value"] == 100
        and by_metric["proved again"]["n"] == 60
        and by_metric["duplicates"]["n"] < 300
    )
    assert (
        "; small: 1 (about " in by_metric["proved again"]["case"] and by_metric["roots in train and test"]["value"] == 0
    )


def test_a_problem_with_a_wrong_answer_is_not_proved(tmp_path):
    import json
    from dataclasses import replace

    from synth.families.calendar import calendar
    from synth.types import to_row

    good = calendar(1, "train", 0)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(to_row(p)) + "\n" for p in (good, replace(good, answer="0"))))
    assert reproof.prove(path) == 1
