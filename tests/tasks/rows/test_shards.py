"""The user's rows in shards: the same rows as in memory, whatever a shard holds and whenever a run was ended."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tiny

from synth.types import Demonstration, ListDigest, Message, Quarantined, digest
from tasks.core.errors import UserError
from tasks.rows import read as reading
from tasks.rows import tokens
from tasks.rows.conversations import conversations
from tasks.rows.read import Origins, OwnRow, chance, root_of, shares
from tasks.rows.tokens import TokenRows
from tasks.runtime.stage import Stage
from tasks.stages.demonstrations import demonstrations
from tasks.stages.preferences import preferences
from tasks.stages.problems import problems
from tasks.storage import commit, tables
from tasks.storage.shards import Shards, write_part
from training.learner.rows import demonstration_row
from training.model.render import Renderer

ROOT = Path(__file__).parents[3]


def chats(rng, n):
    """Rows of few questions, with splits, copies, bad lines and rows that are no conversation."""
    rows = []
    for i in range(n):
        row = {"prompt": f"Question {rng.randrange(n // 3 + 1)}?", "completion": f"{rng.randrange(3)} or {i % 2}"}
        if rng.random() < 0.15:
            row["split"] = rng.choice(["train", "valid", "test", "dev"])
        kind = rng.random()
        rows.append("{no" if kind < 0.05 else json.dumps({"prompt": ""} if kind < 0.1 else row))
        if rng.random() < 0.2:
            rows.append(rng.choice(rows))
    return "".join(f"{r}\n" for r in rows)


def stage_of(root, function, **params):
    return Stage(function.__name__, plan={"params": params, "seed": 7}, root=root, deps=["data"])


def made(root, function, rows_per_shard=50_000, **params):
    """Name -> bytes of what a stage writes."""
    stage = stage_of(root, function, **params)
    with stage.running():
        function(stage, rows_per_shard=rows_per_shard, **params)
    return {p.name: p.read_bytes() for p in sorted(stage.target.iterdir())}


def in_memory(stage, files):
    """(rows, places, quarantined as (place, reason, evidence)) by what each step says of all rows at once."""
    rows, own, aside, paths, seen = [], {}, [], set(), {}
    for entry in reading.entries(stage.name, files):
        good = []
        if entry.use:
            paths.add(entry.path)
        for item in entry.rows(stage):
            if isinstance(item, Quarantined):
                aside.append((item.id, item.reason, item.evidence))
                continue
            place, row = item
            if row.get("split") in reading.SPLITS:
                paths.add(entry.path)
            if not row.get("completion"):
                aside.append((place, "no_question", "the cell prompt is blank"))
                continue
            messages = (
                Message(role="user", content=row["prompt"]),
                Message(role="assistant", content=row["completion"]),
            )
            split = reading.split_for(entry, row, row["prompt"])
            one = Demonstration.make(problem=place, messages=messages, split=split)
            if one.id in seen:
                aside.append((place, "duplicate", f"{place} is the same as {seen[one.id]}"))
                continue
            seen[one.id] = place
            good.append(one)
            own[one.id] = (entry.path, place)
        rows += good
    asks = {r.id: root_of(r.messages[0].content) for r in rows}
    if not any(r.split == "test" for r in rows):
        free = [r for r in rows if own[r.id][0] not in paths]
        pool = {asks[r.id] for r in free if r.split == "train"}
        pool = pool if len(pool) > 1 else {asks[r.id] for r in free} - pool
        if pool:
            first = min(pool, key=lambda a: digest("own", a))
            rows = [replace(r, split="test") if asks[r.id] == first and r in free else r for r in rows]
    held = {asks[r.id]: own[r.id][1] for r in rows if r.split != "train"}
    gone = [r for r in rows if r.split == "train" and asks[r.id] in held]
    for place, prompt in sorted(((own[r.id][1], asks[r.id]) for r in gone), key=lambda x: x[0]):
        why = f"{prompt!r} is asked by {held[prompt]} too, which is not trained on"
        aside.append((place, "held_out", why))
    rows = [r for r in rows if r not in gone]
    return rows, [own[r.id][1] for r in rows], aside


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_are_those_of_all_rows_at_once(tmp_path, seed):
    rng = Random(seed)
    same = chats(rng, 10)  # the same lines of files of the same name are copies
    for folder in ("x", "y"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        text = same + chats(rng, rng.choice([4, 40])) + json.dumps({"prompt": folder, "completion": "A"}) + "\n"
        (tmp_path / "data" / folder / "a.jsonl").write_text(text)
    files = ["data/x/a.jsonl", {"path": "data/y/a.jsonl", **({"use": "train"} if seed % 3 == 0 else {})}]
    stage = stage_of(tmp_path, demonstrations, files=files)
    own = conversations(stage, files, rows_per_shard=rng.choice([1, 3, 7, 1000]))
    rows, places, aside = in_memory(stage, files)
    assert list(own.rows) == rows and [o.place for o in own.own] == places
    assert [(q.id, q.reason, q.evidence.partition(": {no")[0]) for q in own.quarantined] == [
        (place, reason, why.partition(": {no")[0]) for place, reason, why in aside
    ]
    assert (len(own.rows), len(own.quarantined)) == (len(rows), len(aside))
    counted = Counter({k: v for n in own.counts.values() for k, v in n.items() if k not in ("read", "kept")})
    assert sum(n["kept"] for n in own.counts.values()) == len(rows)
    assert sum(n["read"] for n in own.counts.values()) == len(rows) + len(aside) and counted["duplicate"]


def test_a_problem_that_is_there_twice(tmp_path):
    (tmp_path / "data").mkdir()
    rows = [{"question": f"{i % 7} + 1", "answer": str(i % 7 + 1), "verifier": "number"} for i in range(30)]
    (tmp_path / "data" / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    out = [made(tmp_path, problems, k, files=["data/sums.jsonl"]) for k in (50_000, 4)]
    assert out[0] == out[1]
    aside = tables.read(tmp_path / "artifacts/problems/quarantine.parquet", Quarantined)
    assert Counter(q.reason for q in aside) == {"duplicate": 23}
    assert aside[0].evidence == "sums.jsonl line 8 is the same as sums.jsonl line 1"
    assert aside[-1].evidence == "sums.jsonl line 30 is the same as sums.jsonl line 2"


@pytest.mark.parametrize("rows_per_shard", [1, 10, 49, 50])
def test_a_stage_writes_the_same_bytes_however_many_rows_a_shard_has(tmp_path, rows_per_shard):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text(chats(Random(5), 50))
    votes = [
        {
            "prompt": f"Q {i // 3}",
            "response_a": "x",
            "response_b": f"y {i // 3}",
            "preference": "ab"[i % 2],
            "annotator": f"w{i % 3}",
        }
        for i in range(60)
    ]
    (tmp_path / "data" / "votes.jsonl").write_text("".join(json.dumps(r) + "\n" for r in votes))
    sums = [{"question": f"{i} + {i}", "answer": str(2 * i), "verifier": "number"} for i in range(40)]
    (tmp_path / "data" / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*sums, *sums[:9]]))
    for function, file in ((demonstrations, "a"), (preferences, "votes"), (problems, "sums")):
        files = [{"path": f"data/{file}.jsonl", "weight": 2}]
        whole = made(tmp_path, function, files=files)
        assert made(tmp_path, function, rows_per_shard, files=files) == whole, function.__name__


SCRIPT = """
import sys
from tasks.runtime.stage import Stage
from tasks.stages.demonstrations import demonstrations
files = ["data/a.jsonl"]
stage = Stage("demonstrations", plan={"params": {"files": files}, "seed": 7}, root=sys.argv[1], deps=["data"])
with stage.running():
    demonstrations(stage, rows_per_shard=10, files=files)
"""


def test_a_run_that_is_killed_goes_on_after_its_last_shard(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text(chats(Random(5), 50))
    whole = made(tmp_path, demonstrations, 10, files=["data/a.jsonl"])
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ESPALIER_FAULT": "commit.rename:4=kill"}
    run = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], env=env, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    stage = stage_of(tmp_path, demonstrations, files=["data/a.jsonl"])
    assert sorted(p.name for p in (stage.work / "own" / "0").glob("0*")) == ["00000", "00001", "00002"]
    made_again = []
    monkeypatch.setattr(
        reading.Spool,
        "_write",
        lambda self, at, *a, _f=reading.Spool._write: (made_again.append(at.name), _f(self, at, *a)),
    )
    assert made(tmp_path, demonstrations, 10, files=["data/a.jsonl"]) == whole
    assert made_again[0] == ".00003.part" and len(made_again) == len(set(made_again))


def begun(tmp_path, monkeypatch):
    """A run of 10 rows a shard that ended before its tables were written."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text(chats(Random(5), 50))
    with monkeypatch.context() as m:
        m.setattr("tasks.stages.demonstrations.write", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made(tmp_path, demonstrations, 10, files=["data/a.jsonl"])
    return stage_of(tmp_path, demonstrations, files=["data/a.jsonl"]).work / "own" / "0"


def test_another_number_of_rows_for_a_half_done_stage_is_refused(tmp_path, monkeypatch):
    folder = begun(tmp_path, monkeypatch)
    with pytest.raises(
        UserError, match=r"shards of 10 rows lie in .*own/0.*set demonstrations.rows_per_shard back to 10"
    ):
        made(tmp_path, demonstrations, 20, files=["data/a.jsonl"])
    assert folder.is_dir()
    made(tmp_path, demonstrations, 10, files=["data/a.jsonl"])
    assert not folder.exists()
    made(tmp_path, demonstrations, 20, files=["data/a.jsonl"])  # a run that has ended binds no other


def test_a_damaged_shard_is_made_anew(tmp_path, monkeypatch, capsys):
    folder = begun(tmp_path, monkeypatch)
    whole = (folder / "00001" / "rows.parquet").read_bytes()
    (folder / "00001" / "rows.parquet").write_bytes(whole[:-9] + b"x" + whole[-8:])
    once = made(tmp_path, demonstrations, 10, files=["data/a.jsonl"])
    assert "00001/rows.parquet is not what was written" in capsys.readouterr().err
    assert once == made(tmp_path, demonstrations, files=["data/a.jsonl"])


def test_a_part_is_whole_or_absent(tmp_path, monkeypatch):
    shards = Shards(tmp_path / "s", 5)
    with monkeypatch.context() as m:
        m.setattr(commit, "fault", lambda point: 1 / 0 if point == "commit.manifest" else None)
        with pytest.raises(ZeroDivisionError):
            shards.made(0, lambda at: (at / "x").write_text("half") and None)
    assert not shards.has(0)
    shards.made(0, lambda at: (at / "x").write_text("whole") and None)
    assert shards.has(0) and (shards.at(0) / "x").read_text() == "whole"
    shards.made(0, lambda at: 1 / 0)  # it is there
    with pytest.raises(UserError, match="1 shards of 5 rows lie in"):
        Shards(tmp_path / "s", 6)


def some(n, start=0):
    say = lambda i: [
        Message(role="user", content=f"q {i}"),
        Message(role="assistant", content=f"a {i * i} " + "x" * (i % 4)),
    ]  # noqa: E731
    return [Demonstration.make(problem=f"p{i}", messages=say(i), split="train") for i in range(start, start + n)]


def test_a_table_of_several_row_groups(tmp_path, monkeypatch):
    path, rows = tmp_path / "t.parquet", some(25)
    tables.write(path, rows, Demonstration)
    monkeypatch.setattr(tables, "GROUP_ROWS", 10)
    tables.write(tmp_path / "g.parquet", iter(rows), Demonstration)
    assert tables.raw(path) == tables.raw(tmp_path / "g.parquet")
    assert tables.read(tmp_path / "g.parquet", Demonstration) == rows
    assert [len(t) for t in tables.parts(tmp_path / "g.parquet", rows=8)] == [8, 8, 8, 1]
    with pytest.raises(
        UserError, match=f"was about to be written with two rows of Demonstration of the same id, {rows[2].id}"
    ):
        tables.write(path, [*rows, rows[2]], Demonstration)
    monkeypatch.setattr(tables, "GROUP_TEXT", 1000)
    tables.write(tmp_path / "g.parquet", rows, Demonstration)
    assert tables.read(tmp_path / "g.parquet", Demonstration) == rows


def test_a_repeated_id_is_found_when_a_table_is_read_in_parts(tmp_path, monkeypatch):
    rows = some(20)
    with tables.Writer(tmp_path / "t.parquet", Demonstration, checked=True) as out:
        for row in [*rows, rows[0]]:
            out.add(row)
    monkeypatch.setattr(tables, "READ", 8)
    monkeypatch.setattr(tables.each, "__defaults__", tables.each.__defaults__)
    with pytest.raises(UserError, match=r"(two rows|bad rows) of Demonstration"):
        tables.read(tmp_path / "t.parquet", Demonstration)


@pytest.mark.parametrize("context_weight", [0.0, 0.2, 1.0])
def test_tokens_on_disk_are_the_rows_of_memory(tmp_path, monkeypatch, context_weight):
    monkeypatch.setattr(tokens, "ROWS", 7)
    renderer, demos = Renderer(tiny.tokenizer()), some(30)
    own = [
        OwnRow(id=d.id, file="f", place="p", weight=1 + i % 4 / 2, loss="last" if i % 5 == 0 else "all")
        for i, d in enumerate(demos[3:])
    ]
    tables.write(tmp_path / "own.parquet", own, OwnRow)
    at = {o.id: o for o in own}
    lasts = [at[d.id].loss == "last" if d.id in at else False for d in demos]
    wanted = [
        demonstration_row(renderer, d.messages, context_weight, last=x) for d, x in zip(demos, lasts, strict=True)
    ]
    most = int(np.median([len(r.ids) for r in wanted]))
    kept = [i for i, r in enumerate(wanted) if len(r.ids) <= most]
    knobs = {"origins": Origins(tmp_path), "seed": 3, "context_weight": context_weight, "max_length": most}
    rows = TokenRows(tmp_path / "tokens", iter(demos), renderer, **knobs)
    assert len(kept) < 30 and rows.kept.tolist() == kept and rows.lengths.tolist() == [len(r.ids) for r in wanted]
    for row, i in zip(rows, kept, strict=True):
        assert np.array_equal(row.ids, wanted[i].ids) and row.ids.dtype == wanted[i].ids.dtype
        assert np.array_equal(row.trainable, wanted[i].trainable)
        assert np.array_equal(row.columns["loss_weight"], wanted[i].columns["loss_weight"])
    assert rows.taught.tolist() == [int((wanted[i].columns["loss_weight"] == 1).sum()) for i in kept]
    names = [demos[i].id for i in kept]
    weights = {o.id: o.weight for o in own}
    assert rows.weight.tolist() == [weights.get(i, 1.0) for i in names]
    assert rows.drawn.tolist() == [chance(3, i) for i in names]
    assert len(shares(rows.weight, rows.drawn)) > len(kept)
    monkeypatch.setattr(tokens, "demonstration_tokens", lambda *a, **k: 1 / 0)
    again = TokenRows(tmp_path / "tokens", iter(demos), renderer, **knobs)
    assert np.array_equal(again[len(kept) - 1].ids, wanted[kept[-1]].ids)


def test_the_ids_of_a_picture_are_whole_on_disk(tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.picture_tokens = 3
    shows = Message(role="user", content="<image>how many?", media=("f" * 64,))
    talk = [shows, Message(role="assistant", content="two")]
    demos = [*some(2), Demonstration.make(problem="p", messages=talk, split="train"), *some(2, 5)]
    tables.write(tmp_path / "own.parquet", [], OwnRow)
    knobs = {"origins": Origins(tmp_path), "seed": 3, "context_weight": 0.5, "max_length": 99}
    rows = TokenRows(tmp_path / "tokens", iter(demos), renderer := Renderer(tokenizer), **knobs)
    for row, d in zip(rows, demos, strict=True):
        want = demonstration_row(renderer, d.messages, 0.5)
        assert np.array_equal(row.ids, want.ids) and np.array_equal(
            row.columns["loss_weight"], want.columns["loss_weight"]
        )
    assert sum(rows[2].ids < 0) == 3


def test_a_digest_of_texts_one_by_one():
    for texts in ([], ["a"], ["a", 'b"\n', "ü"]):
        name = ListDigest()
        for t in texts:
            name.add(t)
        assert name.name() == digest(texts)


def test_two_writers_of_one_part_leave_it_whole(tmp_path, monkeypatch):
    """As Ray begins a task again that it thinks dead: both write, and what is placed first stays. The second time one comes between the
    look of the other and its rename."""
    together = threading.Barrier(2)

    def write(folder):
        (folder / "rows.txt").write_text("the same bytes\n" * 1000)
        together.wait(30)

    for k in range(8):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda who, at=tmp_path / f"{k:05d}": write_part(at, write, f".{who}"), "ab"))
    between = iter([lambda: write_part(tmp_path / "last", lambda f: (f / "x").write_text("1"), ".b")])
    monkeypatch.setattr(
        commit, "fault", lambda point: next(between, lambda: None)() if point == "commit.between" else None
    )
    write_part(tmp_path / "last", lambda f: (f / "x").write_text("2"), ".a")
    assert (tmp_path / "last/x").read_text() == "1", "the first stays"
    assert sorted(p.name for p in tmp_path.iterdir()) == [*(f"{k:05d}" for k in range(8)), "last"]
    for part in tmp_path.iterdir():
        commit.check(part)
    assert len({commit.file_hash(p) for p in tmp_path.glob("0*/rows.txt")}) == 1
