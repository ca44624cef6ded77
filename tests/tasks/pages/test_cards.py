"""Folders of data are read by `datasets.load_dataset` as they are, and what their README.md says to run does run."""

import json
import re
import runpy

import pytest
import yaml

from synth.preferences.imported import Reader
from tasks.rows.clean import clean_rows, write
from tasks.runtime.stage import Stage
from tasks.stages.preferences import preferences

ROWS = [{"prompt": f"What is {i}?", "chosen": f"It is {i}.", "rejected": f"It is {i + 1}."} for i in range(40)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def shown(folder, tmp_path, monkeypatch, capsys, where):
    """What the snippet of a folder's README.md prints."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "snippet.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(where)
    runpy.run_path(str(tmp_path / "snippet.py"))
    return capsys.readouterr().out


def test_the_folder_of_a_stage_is_a_data_set(tmp_path, monkeypatch, capsys):
    from datasets import load_dataset

    (tmp_path / "data").mkdir()
    lines = [*map(json.dumps, ROWS), json.dumps({"prompt": "x", "chosen": "same", "rejected": "same"})]
    (tmp_path / "data/pairs.jsonl").write_text("\n".join(lines) + "\n")
    stage = Stage("preferences", plan={"params": {}, "seed": 7}, root=tmp_path)
    with stage.running():
        preferences(stage, files=["data/pairs.jsonl"])
    front = yaml.safe_load((stage.target / "README.md").read_text().split("---\n")[1])
    assert [c["config_name"] for c in front["configs"] if c.get("default")] == ["pairs"]
    assert load_dataset(str(stage.target), split="train").num_rows == 40, "without a name: the rows to train on"
    assert load_dataset(str(stage.target), "quarantine", split="train")[0]["reason"] == "identical_sides"
    assert shown(stage.target, tmp_path, monkeypatch, capsys, tmp_path).startswith("40 {")


def test_what_clean_wrote_is_a_data_set_whatever_the_prompts_are(tmp_path, monkeypatch, capsys):
    from datasets import load_dataset

    talk = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "2?"},
    ]
    rows = [*ROWS, ROWS[0], {**ROWS[1], "prompt": talk}]  # a question, and a conversation: one type for the column
    out = tmp_path / "out"
    write(clean_rows([(f"line {i}", r) for i, r in enumerate(rows)], Reader(name="mine")), out)
    n = len((out / "cleaned.jsonl").read_text().splitlines())
    kept, removed = (load_dataset(str(out), name, split="train") for name in ("cleaned", "removed"))
    assert kept.num_rows == n == load_dataset(str(out), split="train").num_rows > 30 and removed.num_rows == 1
    assert all(isinstance(p, list) for p in kept["prompt"]), (
        "where one prompt is a conversation, all are written as one"
    )
    assert removed["chosen"] == [[{"role": "assistant", "content": "It is 0."}]]
    assert shown(out, tmp_path, monkeypatch, capsys, out).startswith(f"{n} {{")
