"""Conversations and problems of the user's own in the stages that read them and learn from them."""

import json
import shutil

import numpy as np
import pytest
import tiny
import yaml

from synth.demonstrations.imported import conversation
from synth.types import Demonstration, Message, Problem, Quarantined, split_of
from tasks.core.errors import UserError
from tasks.rows.read import OwnRow, root_of
from tasks.planning import plan
from tasks.runtime.stage import Stage
from tasks.stages.demonstrations import demonstrations
from tasks.stages.problems import problems
from tasks.storage import tables
from training.learner.rows import demonstration_row
from training.model.render import Renderer

TALK = [("user", "Hello"), ("assistant", "Hi, what is it?"), ("user", "2 + 2"), ("assistant", "4")]
TWO = (Message(role="user", content="2 + 2"), Message(role="assistant", content="4"))


def run(root, function, **params):
    stage = Stage(function.__name__, plan={"params": params, "seed": 7}, root=root)
    with stage.running():
        function(stage, **params)
    return json.loads((stage.target / "card.json").read_text())


def read(root, stage, name, cls):
    return tables.read(root / "artifacts" / stage / f"{name}.parquet", cls)


def put(root, name, rows):
    (root / "data").mkdir(exist_ok=True)
    (root / "data" / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
    return f"data/{name}"


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]},
        {"conversations": [{"from": "human", "value": "2 + 2"}, {"from": "gpt", "value": "4"}]},
        {"prompt": "2 + 2", "completion": "4"},
        {"prompt": [{"role": "user", "content": "2 + 2"}], "completion": [{"role": "assistant", "content": "4"}]},
        {"instruction": "2 + 2", "input": "", "output": "4"},
        {"question": "2 + 2", "answer": "4"},
        {
            "messages": [
                {"role": "user", "content": "2 + 2"},
                {"role": "assistant", "content": "4"},
                {"role": "user", "content": "thanks"},
            ]
        },
    ],
    ids=lambda row: "+".join(row),
)
def test_layouts(row):
    assert conversation(row) == TWO


def test_alpaca_joins_instruction_and_input_and_keeps_the_system_message():
    messages = conversation({"instruction": "Add", "input": "2 and 2", "output": "4", "system": "Be short."})
    assert [m.content for m in messages] == ["Be short.", "Add\n\n2 and 2", "4"]


@pytest.mark.parametrize(
    "row, reason",
    [
        ([1], "not_an_object"),
        ({"text": "x"}, "missing_columns"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no_answer"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no_question"),
        ({"messages": [{"role": r, "content": "x"} for r in ("user", "assistant", "assistant")]}, "not_alternating"),
        ({"messages": "hello"}, "not_messages"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "not_messages"),
        ({"prompt": "x", "completion": "\ud800"}, "not_unicode"),
        ({"prompt": "x", "completion": "  "}, "no_answer"),
        ({"prompt": "x", "completion": None}, "no_answer"),
        ({"prompt": "", "completion": "x"}, "no_question"),
        ({"messages": None, "id": 3}, "no_question"),
    ],
)
def test_rows_that_are_no_conversation_say_why(tmp_path, row, reason):
    put(tmp_path, "a.jsonl", [{"prompt": f"question {i}", "completion": "yes"} for i in range(3)] + [row])
    card = run(tmp_path, demonstrations, files=["data/a.jsonl"])
    assert card["quarantined"] == {reason: 1} and card["accepted"] == 3
    (bad,) = read(tmp_path, "demonstrations", "quarantine", Quarantined)
    assert bad.id == "a.jsonl line 4" and bad.evidence


def test_the_last_turn_alone_is_learned_where_it_says_so(tmp_path):
    talk = {"messages": [{"role": r, "content": c} for r, c in TALK]}
    put(tmp_path, "a.jsonl", [talk])
    run(tmp_path, demonstrations, files=[{"path": "data/a.jsonl", "loss": "last", "use": "train", "weight": 3}])
    (own,) = read(tmp_path, "demonstrations", "own", OwnRow)
    (demonstration,) = read(tmp_path, "demonstrations", "demonstrations", Demonstration)
    assert (own.loss, own.weight, own.place) == ("last", 3.0, "a.jsonl line 1")
    renderer = Renderer(tiny.tokenizer())
    whole = demonstration_row(renderer, demonstration.messages, 0.0)
    last = demonstration_row(renderer, demonstration.messages, 0.0, last=True)
    turn = renderer.turn("4")
    assert last.trainable.sum() == len(turn) < whole.trainable.sum()
    assert np.array_equal(last.ids[last.trainable], turn) and np.array_equal(last.ids, whole.ids)


def test_rows_that_ask_the_same_are_never_parted(tmp_path):
    rows = [{"prompt": f"Question number {i}?", "completion": f"{j}"} for i in range(60) for j in range(2)]
    put(tmp_path, "a.jsonl", rows)
    run(tmp_path, demonstrations, files=["data/a.jsonl"])
    written = read(tmp_path, "demonstrations", "demonstrations", Demonstration)
    by = {}
    for d in written:
        by.setdefault(d.messages[0].content, set()).add(d.split)
    assert all(len(s) == 1 for s in by.values()) and {"train", "test"} <= set().union(*by.values())
    put(tmp_path, "b.jsonl", [{**r, "split": "test" if i % 7 == 0 else "train"} for i, r in enumerate(rows)])
    card = run(tmp_path, demonstrations, files=["data/b.jsonl"])
    assert card["quarantined"]["held_out"] == 18, "the other row of a question that is in the split test"


SUMS = [{"question": f"What is {a} plus {b}?", "answer": a + b} for a in range(10) for b in range(10)]


def test_problems_of_ones_own_are_checked_and_measured_under_their_name(tmp_path):
    put(tmp_path, "sums.jsonl", [*SUMS, {"question": "x", "answer": "y", "verifier": "nmber"}, {"answer": "1"}])
    card = run(tmp_path, problems, families=[], files=["data/sums.jsonl"])
    kept = read(tmp_path, "problems", "problems", Problem)
    assert card["accepted"] == 100 == len(kept) and {p.family for p in kept} == {"sums"}
    assert {q.id: q.reason for q in read(tmp_path, "problems", "quarantine", Quarantined)} == {
        "sums.jsonl line 101": "unknown_verifier",
        "sums.jsonl line 102": "missing_field",
    }
    assert kept[0].lineage["place"] == "sums.jsonl line 1" and kept[0].verifier == "number"
    assert kept[0].lineage["solution"] == "<answer>0</answer>"


def test_a_reward_function_of_ones_own_needs_no_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "pieces/verifier/short_words.py"
    own.parent.mkdir(parents=True)
    own.write_text(
        "from synth.types import Scored\n\n\ndef short_words(problem, answer, **args):\n"
        "    said = answer.split()\n"
        "    return Scored(value=sum(len(w) <= 4 for w in said) / max(1, len(said)), parts={'parsed': 1.0})\n"
    )
    put(tmp_path, "asked.jsonl", [{"prompt": f"Say something about {i}."} for i in range(20)])
    run(tmp_path, problems, files=[{"path": "data/asked.jsonl", "verifier": "short_words"}])
    kept = read(tmp_path, "problems", "problems", Problem)
    assert len(kept) == 20 and {p.verifier for p in kept} == {"short_words"}
    with pytest.raises(UserError, match="there is no verifier 'short_word'.*did you mean 'short_words'"):
        run(tmp_path, problems, files=[{"path": "data/asked.jsonl", "verifier": "short_word"}])


def test_the_lighter_file_is_played_less(tmp_path):
    for name in ("a", "b"):
        put(tmp_path, f"{name}.jsonl", [{"question": f"{name}: {r['question']}", "answer": r["answer"]} for r in SUMS])
    files = [{"path": "data/a.jsonl", "weight": 4}, "data/b.jsonl"]
    card = run(
        tmp_path, problems, files=[{**(f if isinstance(f, dict) else {"path": f}), "use": "train"} for f in files]
    )
    assert card["files"]["data/a.jsonl"]["kept"] == 100 and 10 < card["files"]["data/b.jsonl"]["kept"] < 45


def test_the_words_of_the_stage_that_learns_reach_the_stage_that_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = {"set": {"sft": {"files": ["data/a.jsonl"], "mix": True}, "rl": {"files": ["data/sums.jsonl"]}}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    plans = plan.plans(tmp_path)
    assert plans["demonstrations"]["params"]["files"] == ["data/a.jsonl"] and plans["demonstrations"]["params"]["mix"]
    assert plans["problems"]["params"]["files"] == ["data/sums.jsonl"] and "files" not in plans["rl"]["params"]
    assert plans["rl"]["params"]["include_families"] and not plans["rl"]["params"]["include_questions"]
    params["set"]["rl"] |= {"include_questions": True, "mix": False}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    assert plan.plans(tmp_path)["rl"]["params"]["include_questions"]
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


def talks(words, **more):
    return [{"prompt": f"What is {w}?", "completion": f"{w} is {i}.", **more} for i, w in enumerate(words)]


def splits(root, rows, **entry):
    run(root, demonstrations, files=[{"path": put(root, "few.jsonl", rows), **entry}])
    return [d.split for d in read(root, "demonstrations", "demonstrations", Demonstration)]


def test_of_few_questions_one_is_held_out_all_the_same(tmp_path, capsys):
    """By their hash alone all of these would be learned, and a run would train and then find nothing to measure."""
    words = [w for w in map(str, range(60)) if split_of(f"own:{root_of(f'What is {w}?')}") == "train"][:6]
    rows = talks(words)
    twice = [*rows, *({**r, "completion": f"{r['completion']} Surely."} for r in rows)]
    splits_made = splits(tmp_path, twice)
    assert sorted(set(splits_made)) == ["test", "train"] and splits_made.count("test") == 2, (
        "both answers to the one question"
    )
    assert "12 kept (10 train, 2 test)" in capsys.readouterr().err
    assert set(splits(tmp_path, talks(words, split="train"))) == {"train"}, "what a file says is done"
    assert set(splits(tmp_path, rows, use="train")) == {"train"}
    assert splits(tmp_path, rows[:1]) == ["train"], "one question cannot be parted"
