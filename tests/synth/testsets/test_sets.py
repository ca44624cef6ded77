"""Test sets that people have: layouts, bad rows, hostile tests, and the gate against what was trained on."""

import json
from pathlib import Path

import pytest

from synth.testsets.contamination import contaminated
from synth.testsets.layouts.gsm8k import gsm8k
from synth.testsets.layouts.llmbar import llmbar
from synth.testsets.layouts.mbpp import call, mbpp
from synth.testsets.layouts.plain import plain
from synth.types import Scored
from synth.verify import verify
from tasks.core.errors import UserError
from tasks.evaluation import testsets
from tasks.runtime.stage import Stage

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


def load(root, **spec):
    return testsets.load(Stage("evaluate", root=root, deps=["data"]), spec, 0)


def write(root, rows, name="data/mine.jsonl"):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n", encoding="utf-8")
    return name


def value(problem, answer):
    score = verify(problem, answer)
    return score.value if isinstance(score, Scored) else score


def test_gsm8k():
    p = gsm8k({"question": "16 - 3 - 4 = ?", "answer": "16 - 3 - 4 = <<9>>9\n#### 1,009"}, 0)
    assert (p.answer, p.verifier, p.split, p.family) == ("1,009", "number", "test", "gsm8k")
    assert value(p, "1009") == 1.0 and value(p, "9") == 0.0 and "<answer>" in p.question
    for wrong in ("no number", "#### about nine"):
        with pytest.raises(ValueError, match="no_number"):
            gsm8k({"question": "x", "answer": wrong}, 0)


def test_mbpp_reads_its_tests_as_data_and_runs_answers_in_the_sandbox():
    row = {
        "text": "Add one.",
        "code": "def f(x):\n    return x + 1",
        "test_list": ["assert f(1) == 2", "assert f(-1) == 0"],
    }
    p = mbpp(row, 0)
    assert p.args["inputs"] == [[1], [-1]] and p.args["expected"] == [2, 0] and "f(1) == 2" in p.question
    assert value(p, p.answer) == 1.0 and value(p, "def f(x):\n    return x") == 0.0
    assert call("assert g((1, 2), 'a') == [True, None]") == ("g", [[1, 2], "a"], [True, None])
    for hostile in (
        "assert f(__import__('os')) == 1",
        "import os",
        "assert f(1) == open('x')",
        "f(1)",
        "assert f(x=1) == 2",
        "assert f(1) == {1}",
    ):
        with pytest.raises(ValueError, match="test_not_literal"):
            mbpp({**row, "test_list": [hostile]}, 0)


def test_llmbar_in_both_orders():
    row = {"input": "Say hello.", "output_1": "hello", "output_2": "no", "label": 1}
    plainly, swapped = llmbar(row, 0), llmbar(row, 0, swapped=True)
    assert (plainly.answer, swapped.answer) == ("1", "2") and "1: no\nOutput 2: hello" in swapped.question
    with pytest.raises(ValueError, match="wrong_label"):
        llmbar({**row, "label": 0}, 0)


def test_plain_rows():
    assert plain({"prompt": "2 + 2", "target": 4}, 0).verifier == "number"
    names = plain({"ask": "Who?", "gold": ["Bob", "Robert"]}, 0, question="ask", answer="gold")
    assert names.verifier == "exact" and value(names, "robert") == 1.0
    with pytest.raises(ValueError, match="missing_field: none of question.*it has text"):
        plain({"text": "x"}, 0)


def test_a_file_with_bad_rows(tmp_path):
    rows = [
        {"question": "a?", "answer": "1"},
        {"question": "a?", "answer": "1"},
        {"question": "b?"},
        {"question": " ", "answer": "2"},
        "[1]",
    ]
    loaded = load(tmp_path, name="mine", path=write(tmp_path, rows))
    assert len(loaded.problems) == 1 and [q.reason for q in loaded.quarantined] == [
        "duplicate",
        "missing_field",
        "empty",
        "not_a_row",
    ]
    assert loaded.quarantined[1].evidence.startswith("data/mine.jsonl, row 2:")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"path": "data/none.jsonl"}, "does not exist"),
        ({"path": "data/mine.jsonl", "layout": "gsm9k"}, "did you mean 'gsm8k'"),
        ({"path": "data/mine.jsonl", "limt": 3}, "did you mean 'limit'"),
        ({"path": "data/mine.jsonl", "layout": "llmbar"}, "no row of data/mine.jsonl is a problem"),
        ({"path": "data/bad.jsonl"}, "line 2, is not JSON"),
        ({"path": "data/mine.jsonl", "hub": "x/y"}, "either a file"),
        ({}, "either a file"),
    ],
)
def test_what_is_refused(tmp_path, spec, message):
    write(tmp_path, [{"question": "a?", "answer": "1"}])
    write(tmp_path, ['{"question": "a"}', "{"], "data/bad.jsonl")
    with pytest.raises(UserError, match=message):
        load(tmp_path, name="mine", **spec)


def test_other_files_and_a_folder_in_the_layout_of_the_hub(tmp_path):
    (tmp_path / "data/hub").mkdir(parents=True)
    (tmp_path / "data/mine.csv").write_text("question,answer\na?,1\n")
    (tmp_path / "data/mine.json").write_text('[{"question": "a?", "answer": "1"}]')
    (tmp_path / "data/hub/test.jsonl").write_text('{"question": "a?", "answer": "1"}\n')
    assert (
        len(load(tmp_path, name="a", path="data/mine.csv").problems)
        == len(load(tmp_path, name="b", path="data/mine.json").problems)
        == 1
    )
    assert len(load(tmp_path, name="c", hub=str(tmp_path / "data/hub"), split="test").problems) == 1


def test_check_sets_wrong_references_aside(tmp_path):
    rows = [
        {"text": "Add one.", "code": f"def f(x):\n    return x + {i}", "test_list": ["assert f(1) == 2"]}
        for i in (1, 2)
    ]
    loaded = load(tmp_path, name="code", layout="mbpp", path=write(tmp_path, rows), check=True)
    assert len(loaded.problems) == 1 and [q.reason for q in loaded.quarantined] == ["wrong_reference"]


def test_an_operator_makes_another_question():
    held = [("a", "Compute 84 - 38."), ("b", "Is 3 < 4?"), ("c", "A well-known town")]
    near = [("t1", "x", "Compute 84 + 38."), ("t2", "x", "is 3 > 4"), ("t3", "x", "Compute 84 38")]
    assert not contaminated(held, near)
    same = [("t1", "x", "compute 84 - 38"), ("t2", "x", "Is 3<4"), ("t3", "x", "a well known town")]
    assert [h.row for h in contaminated(held, same)] == ["a", "b", "c"]


def test_the_gate_finds_the_same_text_and_most_of_a_text():
    held = [
        ("h1", "What is the capital of Norvia?"),
        ("h2", " ".join(f"word{i}" for i in range(40))),
        ("h3", "Something else entirely, never seen"),
    ]
    trained = [
        ("t1", "pairs", "what is the CAPITAL of Norvia"),
        ("t2", "pairs", " ".join(f"word{i}" for i in range(5, 38)) + " and more"),
    ]
    hits = contaminated(held, trained)
    assert [(h.row, h.trained) for h in hits] == [("h1", "t1"), ("h2", "t2")] and hits[0].overlap == 1.0 > hits[
        1
    ].overlap > 0.6
    assert [h.row for h in contaminated(held, trained, near=False)] == ["h1"]
    assert not contaminated(held, [("t", "x", "What is the capital of Zelkor?")]), "a shared template is no leak"


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data beside the checkout (GSM8K and LLMBar)")
def test_real_files_are_read(tmp_path):
    (tmp_path / "data").symlink_to(SHARED.resolve())
    stage = Stage("evaluate", root=tmp_path)
    questions = testsets.load(stage, {"name": "gsm8k", "layout": "gsm8k", "path": "data/gsm8k/test.jsonl"}, 0)
    assert len(questions.problems) > 1300 and not questions.quarantined
    judged = testsets.load(
        stage, {"name": "judge", "layout": "llmbar", "path": "data/llmbar/Natural/dataset.json", "limit": 50}, 0
    )
    assert len(judged.problems) == 50
    trained = [(p.id, "pairs", p.lineage["question"]) for p in questions.problems[:3]]
    hits = contaminated([(p.id, p.lineage["question"]) for p in questions.problems], trained)
    assert {h.row for h in hits} == {t[0] for t in trained}
