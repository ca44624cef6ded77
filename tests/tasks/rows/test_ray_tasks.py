"""Parts made by tasks of a Ray cluster are those of one process, whatever ends on the way."""

import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import afar
import psutil
import pytest
import tiny
import yaml
from bases import write_base
from ports import free_port
from ray_cluster import ray_cluster
from sealed import seal
from test_clean_in_parts import rows, small
from test_shards import chats

from flows.cli import main
from flows.cli._before import check
from synth.knowledge.world import world
from synth.preferences.imported import Reader
from synth.types import Demonstration, Message, PreferencePair, Problem, Quarantined
from tasks.core.errors import UserError
from tasks.planning import plan
from tasks.planning.pieces import bind
from tasks.rows import audit as auditing
from tasks.rows import tokens
from tasks.rows.conversations import conversations
from tasks.rows.read import Origins
from tasks.rows.tokens import TokenRows
from tasks.runtime import ray_tasks
from tasks.runtime.ray_tasks import tasks
from tasks.runtime.stage import OUT, Stage, graph
from tasks.stages.clean import clean
from tasks.stages.demonstrations import demonstrations
from tasks.stages.problems import problems
from tasks.stages.questions import questions
from tasks.stages.sft import sft
from tasks.storage import tables
from tasks.storage.finished import Finished
from tasks.storage.shards import Parts
from training.model.render import Renderer

CODE = Path(__file__).parents[3]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    with ray_cluster(cpus=1) as cluster:
        yield cluster


def pool_of(cluster):
    return tasks(cluster.address, "sft.ray", CODE, Path("pyproject.toml"))


def workers(cluster):
    every = psutil.Process(cluster.nodes[0].pid).children(recursive=True)
    return [p for p in every if p.status() != psutil.STATUS_ZOMBIE and "ray::part" in " ".join(p.cmdline())]


def test_results_in_order_whoever_ends(cluster, tmp_path, capfd):
    with pool_of(cluster) as pool:
        assert list(pool.imap(afar.doubled, range(7))) == [2 * i for i in range(7)]
        assert capfd.readouterr().err == ""
        jobs = [(i, str(tmp_path / f"{i}") if i in (2, 5) else "") for i in range(7)]
        assert list(pool.imap(afar.ends_once, jobs)) == [2 * i for i in range(7)]
        stderr = capfd.readouterr().err
        assert (
            stderr.count("is done again: its Ray worker died") == 2 and "sft.ray: job 3" in stderr and "job 6" in stderr
        )
        results = pool.imap(afar.doubled, range(7))
        first = [next(results)]
        psutil.Process(pool.cluster.process.pid).kill()
        assert [*first, *results] == [2 * i for i in range(7)]
        with pytest.raises(UserError, match=r"sft.ray: job 1 ended 3 workers of the Ray cluster \(its Ray worker died"):
            list(pool.imap(afar.ends, [1]))
        with pytest.raises(LookupError, match="there is no 3") as e:
            list(pool.imap(afar.missing, [1, 2, 3]))
        assert "afar.py" in "".join(e.value.__notes__)
    assert pool.cluster.process is None


def test_parts_of_killed_writers_are_whole(cluster, tmp_path):
    here, there = Parts(tmp_path / "here"), Parts(tmp_path / "there")
    jobs = [(k, "") for k in range(6)]
    want = {at.name: (at / "x").read_text() for at in here.each(jobs, afar.written)}
    assert list(want) == [f"{k:05d}" for k in range(6)] and want["00003"] == "3" * 99
    there.made(4, partial(afar.written, job=(4, "")))
    before = (there.at(4) / "x").stat().st_mtime_ns
    with pool_of(cluster) as pool:
        some = [(k, str(tmp_path / "killed") if k == 3 else "") for k in range(6)]
        assert {at.name: (at / "x").read_text() for at in there.each(some, afar.written, pool.imap)} == want
        assert list(there.each(some, afar.ends, pool.imap)) == there.there(), "what is there is not made again"
    assert (there.at(4) / "x").stat().st_mtime_ns == before and all(there.has(k) for k in range(6))
    assert len(list(there.folder.glob(".00003.*.part"))) == 1, "the half part of the killed writer"
    with pytest.raises(UserError, match=r"00000 was written on another machine and is not here: share the file system"):
        list(Parts(tmp_path / "elsewhere").each(jobs, afar.written, lambda write, missing: (None for _ in missing)))


def test_tokens_and_an_audit_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "ROWS", 7)
    messages = lambda i: [
        Message(role="user", content=f"q {i}"),
        Message(role="assistant", content="word " * (i % 5 + 1)),
    ]  # noqa: E731
    demos = [Demonstration.make(problem=f"{i}", messages=messages(i), split="train") for i in range(30)]
    knobs = {"origins": Origins(tmp_path), "seed": 3, "context_weight": 0.2, "max_length": 20}
    renderer = Renderer(tiny.tokenizer())
    TokenRows(tmp_path / "here", iter(demos), renderer, **knobs)
    with pool_of(cluster) as pool:
        TokenRows(tmp_path / "there", iter(demos), renderer, **knobs, imap=pool.imap)
    files = lambda at: {p.relative_to(at): p.read_bytes() for p in at.rglob("*") if p.is_file()}  # noqa: E731
    assert files(tmp_path / "there") == files(tmp_path / "here") and len(files(tmp_path / "here")) > 9

    monkeypatch.setattr(auditing, "PIECE", 4000)
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(150)))
    assert main(["audit", str(file), "--out", str(tmp_path / "alone"), "--processes", "1"]) == 0
    assert main(["audit", str(file), "--out", str(tmp_path / "many"), "--ray", cluster.address]) == 0
    assert files(tmp_path / "many") == files(tmp_path / "alone")
    with pytest.raises(
        UserError, match=r"the machine .* of the Ray cluster has no .* of 5 bytes: share its file system"
    ):
        auditing._of_this_file(auditing._read, str(file), 5, None)


def test_pairs_are_cleaned_as_by_one_process(cluster, tmp_path, monkeypatch):
    file, files = (
        tmp_path / "mine.jsonl",
        lambda at: {p.name: p.read_bytes() for p in at.iterdir() if p.suffix == ".jsonl"},
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(150)))
    counted, imap = Counter(), ray_tasks.RayPool.imap

    def noted(self, function, jobs):
        def each():
            for job in jobs:
                counted[function.func.__name__ if isinstance(function, partial) else function.__name__] += 1
                if counted.total() == 4:  # done again, if it was at work
                    for process in workers(cluster)[:1]:
                        process.kill()
                yield job

        return imap(self, function, each())

    monkeypatch.setattr(ray_tasks.RayPool, "imap", noted)
    small(monkeypatch)
    assert main(["clean", str(file), "--out", str(tmp_path / "alone")]) == 0 and not counted
    assert main(["clean", str(file), "--out", str(tmp_path / "many"), "--ray", cluster.address]) == 0
    assert files(tmp_path / "many") == files(tmp_path / "alone") and len(files(tmp_path / "many")) == 5
    assert min(counted[name] for name in ("_decided", "_told", "_copies")) > 0

    pairs = [
        p
        for p in Reader(name="mine").pairs((f"line {i}", r) for i, r in enumerate(rows(90), 1))
        if isinstance(p, PreferencePair)
    ]
    tables.write(tmp_path / "artifacts/preferences/pairs.parquet", pairs, PreferencePair)
    seal(tmp_path)
    counted.clear()

    def made(**place):
        with (stage := Stage("clean", root=tmp_path)).running():
            clean(
                stage,
                cleaners=[bind("synth.preferences.cleaners", {"piece": n}) for n in ("duplicates", "text_rules")],
                **place,
            )
        shutil.rmtree(stage.work, ignore_errors=True)
        return {p.name: p.read_bytes() for p in stage.target.iterdir()}

    alone = made()
    assert not counted and made(ray=cluster.address) == alone and len(counted) == 2


def test_conversations_are_those_of_one_process(cluster, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text(chats(Random(5), 50))
    (tmp_path / "data" / "b.jsonl").write_text(chats(Random(6), 20))
    params = {"files": ["data/a.jsonl", {"path": "data/b.jsonl", "weight": 2}]}

    def stage():
        return Stage("demonstrations", plan={"params": params, "seed": 7}, root=tmp_path, deps=["data"])

    def made(**place):
        with (begun := stage()).running():
            demonstrations(begun, **params, **place)
        return {p.name: p.read_bytes() for p in begun.target.iterdir()}

    alone = made()
    assert made(rows_per_shard=10, ray=cluster.address) == alone
    with stage().running() as begun:  # a run that ended: some shards are there
        conversations(begun, params["files"], rows_per_shard=10)
        shutil.rmtree(begun.work / "own" / "0" / "00002")
        for k in range(1, 9):
            shutil.rmtree(begun.work / "own" / "1" / f"{k:05d}", ignore_errors=True)
        with pool_of(cluster) as pool:
            own = conversations(begun, params["files"], rows_per_shard=10, imap=pool.imap)
        assert list(own.rows) == list(conversations(begun, params["files"], rows_per_shard=10).rows)
        (begun.out / "x").touch()


def test_what_does_not_answer_is_said_before_anything_is_spent(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(5)))
    Path("mine.csv").write_text("prompt,chosen,rejected\na,b,c\n")
    assert main(["audit", "mine.jsonl", "--ray", address]) == 2
    assert f"--ray: nobody answers at {address} within 5 s" in capsys.readouterr().err
    assert main(["audit", "mine.jsonl", "--ray", "http://head:1"]) == 2
    assert "--ray is http://head:1, which is no address of a Ray cluster" in capsys.readouterr().err
    assert main(["audit", "mine.csv", "--ray", address]) == 2
    assert "mine.csv is another kind: write it as .jsonl" in capsys.readouterr().err
    Path("params.yaml").write_text(yaml.safe_dump({"set": {}}))
    before = plan.plans(tmp_path)
    assert main(["clean", "mine.jsonl", "--ray", address]) == 2 and not Path("mine.cleaned").exists()
    assert f"--ray: nobody answers at {address} within 5 s" in capsys.readouterr().err
    Path("params.yaml").write_text(yaml.safe_dump({"set": {"sft": {"ray": address}, "clean": {"ray": address}}}))
    after = plan.plans(tmp_path)
    for name in ("sft", "clean"):
        assert after["_run"]["place"][name]["ray"] == address
        assert after[name] == before[name], "place is no identity"
    assert not any("tasks/runtime/ray_tasks.py" in p.get("sources", ()) for p in after.values())
    with pytest.raises(UserError, match=f"sft.ray: nobody answers at {address}"):
        sft(Stage("sft", plan={"seed": 1}, root=tmp_path, deps=[]), ray=address)


def test_a_cluster_is_asked_only_where_its_stage_has_something_to_do(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    monkeypatch.setattr("tasks.runtime.dvc.changed_data", lambda root: {})  # as after a run of all
    Path("params.yaml").write_text(yaml.safe_dump({"set": {"sft": {"ray": f"127.0.0.1:{free_port()}"}}}))
    plan.write(tmp_path)
    for name in graph(tmp_path):
        (tmp_path / OUT.get(name, f"artifacts/{name}")).mkdir(parents=True, exist_ok=True)
    check(tmp_path, [plan.plans(tmp_path)])
    (tmp_path / "artifacts" / "demonstrations").rmdir()
    with pytest.raises(UserError, match=r"sft.ray: nobody answers at .* leave sft.ray out to work on this machine"):
        check(tmp_path, [plan.plans(tmp_path)])


def test_questions_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    write_base(tmp_path / "artifacts" / "kb", world(countries=25, seed=4))
    seal(tmp_path)
    params = {"n_train": 12, "n_valid": 2, "n_test": 3, "n_tree_train": 3, "depths": [2], "levels": [1, 2]}

    def made(**place):
        stage = Stage("questions", plan={"seed": 1, "params": params}, root=tmp_path, deps=["artifacts/kb"])
        with stage.running():
            questions(stage, **params, **place)
        return {p.name: p.read_bytes() for p in stage.target.iterdir()}

    alone = made()
    assert (
        made(ray=cluster.address) == alone
        and len(tables.read(tmp_path / "artifacts/questions/problems.parquet", Problem)) == 20
    )
    with monkeypatch.context() as m:
        m.setattr("tasks.stages.questions._Chains.one_search_answers", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made(ray=cluster.address)
    work = Stage("questions", plan={"seed": 1, "params": params}, root=tmp_path, deps=["artifacts/kb"]).work
    files = {"chains": "questions", "maker": "trees"}
    known = {
        (name, key)
        for name, file in files.items()
        for key in Finished(work / f"{file}.jsonl", Problem, Quarantined).keys()
    }
    keys_made, imap = [], ray_tasks.RayPool.imap

    def noted(name, jobs):
        for job in jobs:
            keys_made.extend((name, "/".join(map(str, key))) for key in job)
            yield job

    def watched(self, function, jobs):
        return imap(self, function, noted(function.args[1][0].__name__, jobs))

    monkeypatch.setattr(ray_tasks.RayPool, "imap", watched)
    assert made(ray=cluster.address) == alone, "a run that ended goes on"
    assert len(known) >= 20 and not known & set(keys_made), "nothing is made again"


def test_problems_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    families = [{"piece": "countdown", "levels": [1, 2]}, {"piece": "linear_equations", "levels": [1]}]
    params = {"families": families, "n_train": 20, "n_valid": 2, "n_test": 3}
    bound = {**params, "families": [bind("synth.families", f) for f in families]}

    def stage():
        return Stage("problems", plan={"seed": 1, "params": params}, root=tmp_path, deps=[])

    def made(**place):
        with (begun := stage()).running():
            problems(begun, **bound, **place)
        return {p.name: p.read_bytes() for p in begun.target.iterdir()}

    alone = made()
    keys_made, imap = list[str](), ray_tasks.RayPool.imap

    def noted(jobs):
        for job in jobs:
            keys_made.extend("/".join(map(str, key)) for key in job)
            yield job

    monkeypatch.setattr(ray_tasks.RayPool, "imap", lambda self, function, jobs: imap(self, function, noted(jobs)))
    assert made(ray=cluster.address) == alone and len(keys_made) > 50
    keys_made.clear()
    with monkeypatch.context() as m:
        m.setattr("tasks.stages.problems._Kept.check", lambda kept: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made()
    known = set(Finished(stage().work / "problems.jsonl", Problem, Quarantined).keys())
    assert made(ray=cluster.address) == alone, "a run that ended goes on"
    assert len(known) >= 50 and not known & set(keys_made), "nothing is made again"
