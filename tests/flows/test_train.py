"""`espalier train`: the method is chosen by the columns, the project it writes plans, and its stages end in a report."""

import importlib
import json

import pytest

from flows import cli
from tasks.planning import pieces, plan
from tasks.core.config import read_yaml
from tasks.runtime.stage import Stage, load

SUMS = [(a, b) for a in range(10) for b in range(10)]
ROWS = {
    "pairs": [
        {"prompt": f"{a} plus {b}?", "chosen": f"It is {a + b}.", "rejected": f"It is {a - b}, no."} for a, b in SUMS
    ],
    "chats": [{"instruction": f"{a} plus {b}?", "output": f"It is {a + b}."} for a, b in SUMS],
    "sums": [{"question": f"{a} plus {b}?", "answer": a + b} for a, b in SUMS],
}
TINY = {
    "sft": {
        "base_steps": 2,
        "base_lists_steps": 1,
        "base_rows": 4,
        "steps": 3,
        "hidden": 16,
        "layers": 1,
        "heads": 2,
        "kv_heads": 1,
        "intermediate": 32,
        "vocab_size": 400,
        "max_length": 256,
    },
    "prefer": {"steps": 2, "pairs_per_step": 4},
    "rl": {"steps": 1, "prompts_per_step": 2, "samples_per_prompt": 2},
    "evaluate": {"per_family": 3, "samples": 4},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def made(folder, *words):
    assert cli.main(["train", *words, "--no-run", "--set", "tracking=off"]) == 0
    return folder


@pytest.mark.parametrize(
    "file, words, method, stages",
    [
        ("pairs", [], "dpo", ["demonstrations", "preferences", "clean", "sft", "prefer"]),
        ("pairs", ["--method", "ipo"], "ipo", ["demonstrations", "preferences", "clean", "sft", "prefer"]),
        ("pairs", ["--model", "owner/name"], "dpo", ["preferences", "clean", "sft", "prefer"]),
        ("chats", [], "sft", ["demonstrations", "sft"]),
        ("sums", [], "grpo", ["problems", "demonstrations", "sft", "rl"]),
        ("sums", ["--method", "sft"], "sft", ["demonstrations", "sft"]),
        ("sums", ["--model", "owner/name", "--method", "rloo"], "rloo", ["problems", "sft", "rl"]),
    ],
)
def test_the_project_that_it_writes(folder, file, words, method, stages):
    made(folder, "--data", f"{file}.jsonl", *words)
    root = folder / f"{file}-{method}"
    graph, params = read_yaml(root / "dvc.yaml"), read_yaml(root / "params.yaml")
    assert set(graph["stages"]) == {"plan", *stages, "evaluate", "report"}
    assert all(s["cmd"] == f"python -P -m flows.{name}" for name, s in graph["stages"].items())
    outs = {o for s in graph["stages"].values() for o in s["outs"]}
    reads = [d for s in graph["stages"].values() for d in s.get("deps", []) if d.startswith("artifacts/")]
    assert all(d in outs or any(d.startswith(f"{o}/") for o in outs) for d in reads)
    assert params["recipe"] == ("" if method == "sft" else method)
    assert params["set"]["sft"].get("model", "") == ("owner/name" if "--model" in words else "")
    assert (root / f"data/{file}.jsonl").read_bytes() == (folder / f"{file}.jsonl").read_bytes()


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--data", "none.jsonl"], "none.jsonl does not exist"),
        (["--data", "sums.jsonl", "--method", "dpo"], "learns from preference pairs"),
        (["--data", "pairs.jsonl", "--method", "dpoo"], "did you mean 'dpo'"),
        (["--data", "odd.jsonl"], "needed are chosen and rejected"),
        (["--data", "empty.jsonl"], "no row to learn from"),
        (["--data", "boss.jsonl"], "'boss', 'content': 'x'} is no chat message: it needs role (system"),
        (["--data", "half.jsonl"], "no row that can be learned from (no_answer: the cell answer is blank)"),
        (["--data", "pairs.jsonl", "--model", "/nowhere"], "--model /nowhere does not exist"),
        (["--data", "pairs.jsonl", "--set", "prefer.stepps=3"], "did you mean 'steps'"),
    ],
)
def test_mistakes_are_sentences(folder, capsys, words, sentence):
    (folder / "odd.jsonl").write_text('{"a": 1}\n')
    (folder / "empty.jsonl").write_text("")
    (folder / "boss.jsonl").write_text('{"messages": [{"role": "boss", "content": "x"}]}\n')
    (folder / "half.jsonl").write_text('{"question": "1 + 1?", "answer": ""}\n')
    assert cli.main(["train", *words, "--no-run"]) == 2
    assert sentence in capsys.readouterr().err
    assert not [p for p in folder.iterdir() if p.is_dir()]  # nothing is in the way of the same command, put right


def test_it_is_run_as_by_the_command(folder, monkeypatch):
    given = []
    monkeypatch.setattr("flows.cli.run.run", lambda args: given.append(vars(args)) or 0)
    assert cli.main(["train", "--data", "pairs.jsonl", "--set", "tracking=off"]) == 0
    assert given[0].keys() == vars(cli.parser()[0].parse_args(["run"])).keys()


@pytest.mark.parametrize(
    "rows, message",
    [
        (
            "prompt,answer\n1 plus 1?,2\n2 plus 2?,\n,5\n",
            "2 of 3 rows cannot be used; the first: mine.csv row 2: missing_field: answer is empty",
        ),
        (
            "prompt,completion\n,two\n2 plus 2?,It is four\n",
            "1 of 2 rows cannot be used; the first: mine.csv row 1: no_question: the cell prompt is blank",
        ),
        (
            "prompt,completion\nOne?,\n2 plus 2?,It is four\n",
            "1 of 2 rows cannot be used; the first: mine.csv row 1: no_answer: the cell completion is blank",
        ),
        (
            "prompt,chosen,rejected\nHi?,yes,no\nHo?,,no\n",
            "1 of 2 rows cannot be used; the first: mine.csv row 2: empty_side: chosen is blank",
        ),
        ("prompt,answer\n1 plus 1?,2\n", ""),
    ],
)
def test_rows_that_cannot_be_used_are_said_before_the_run(folder, capsys, rows, message):
    (folder / "mine.csv").write_text(rows)
    made(folder, "--data", "mine.csv")
    err = capsys.readouterr().err
    assert message in err and err.startswith("warning: " if message else "")


def test_what_clean_wrote_is_a_file_to_train_on(folder, capsys):
    assert cli.main(["clean", "pairs.jsonl", "--out", "cleaned"]) == 0
    made(folder, "--data", "cleaned")
    kept = len((folder / "cleaned/cleaned.jsonl").read_text().splitlines())
    assert f"dpo on {kept} preference pairs" in capsys.readouterr().out
    assert read_yaml(folder / "cleaned-dpo/params.yaml")["set"]["preferences"]["files"] == ["data/cleaned"]


def test_one_bad_row_at_the_top_does_not_hide_the_others(folder):
    with (folder / "chats.jsonl").open("r+") as f:
        rest = f.read()
        f.seek(0)
        f.write('{"messages": [{"role": "boss", "content": "x"}]}\n' + rest)
    made(folder, "--data", "chats.jsonl")
    assert read_yaml(folder / "chats-sft/params.yaml")["recipe"] == ""


@pytest.mark.parametrize("file, method", [("pairs", "dpo"), ("chats", "sft"), ("sums", "grpo")])
def test_its_stages_end_in_a_report(folder, monkeypatch, file, method):
    made(folder, "--data", f"{file}.jsonl")
    root = folder / f"{file}-{method}"
    monkeypatch.chdir(root)
    plan.write(root)
    for name in [s for s in read_yaml(root / "dvc.yaml")["stages"] if s != "plan"]:
        spec = load(name, root)
        stage = Stage(name, plan={**spec, "threads": 1}, root=root)
        stage.params = pieces.bind_all(stage.pieces, {**stage.params, **TINY.get(name, {})}, stage.settings)
        with stage.running():
            getattr(importlib.import_module(f"tasks.stages.{name}"), name)(stage, **stage.params)
    summary = json.loads((root / "reports/summary.json").read_text())
    metric = {"dpo": "pair_accuracy", "sft": "nll", "grpo": "pass@1"}[method]
    trained = {"dpo": "prefer", "sft": "sft", "grpo": "rl"}[method]
    assert set(summary["models"]) >= {"base", trained} and metric in summary["models"][trained]
    assert trained != "prefer" or f"prefer - sft, {metric}" in summary["rows"]["difference"]
    assert "held-out" in (root / "reports/index.html").read_text()


def test_rates_and_memory_of_stages_that_the_project_lacks_are_not_warned_of(folder, monkeypatch, capsys):
    made(folder, "--data", "pairs.jsonl", "--model", "owner/name")
    monkeypatch.chdir(folder / "pairs-dpo")
    assert cli.main(["run", "--dry-run"]) == 0
    text = capsys.readouterr()
    assert "prefer  (has not run yet)" in text.out and "reward" not in text.err
