"""A stage in several processes, as its user starts it: one record, one set of outputs, one sentence where one of them
ends; and a run that goes on from what another number of processes left."""

import contextlib
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import small
import yaml
from ray_cluster import TOKEN, ray_cluster
from safetensors.numpy import load_file
from stub_server import stub

from tasks.core.errors import TRANSIENT, UserError
from tasks.lab.placement import _stage
from tasks.planning import plan
from tasks.runtime import ranks
from training.learner.profile import MEASURED
from training.model.model import load_model

CODE = Path(small.__file__).parents[2]
LEARN = ("sft", "reward", "prefer", "rl")
DATA = ("kb", "questions", "problems", "demonstrations")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A project whose policy was trained by one process."""
    root = tmp_path_factory.mktemp("ranks") / "alone"
    small.write_project(root)
    for stage in (*DATA, "sft", "rl"):
        small.run(root, stage)
    return root


def planned(alone, root, shards=1, **learners):
    """A copy of it that has learned nothing, to be trained by so many processes, among which weights may be split."""
    if not root.exists():
        shutil.copytree(alone, root, ignore=shutil.ignore_patterns("work"))
    params = yaml.safe_load((root / "params.yaml").read_text())
    for stage in LEARN:
        params["set"][stage]["learners"] = learners.get(stage, 1)
        params["set"][stage]["shards"] = shards if stage in learners else 1
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    before = {s: (root / f"artifacts/plan/{s}.json").read_bytes() for s in LEARN}
    with contextlib.chdir(root):
        plan.write(root)
    assert before == {s: (root / f"artifacts/plan/{s}.json").read_bytes() for s in LEARN}, "place is identity"
    for stage in learners:
        shutil.rmtree(root / "artifacts" / stage, ignore_errors=True)
    return root


def run_as_users_do(root, stage, expect=0, **env):
    """What the stage said on stderr. Most tests fork their processes (`small.run`): each of these imports torch anew."""
    command = [sys.executable, "-P", "-m", f"flows.{stage}"]
    env = {**os.environ, "PYTHONPATH": str(CODE), **env}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == expect, done.stderr
    return done.stderr


def curve(root, stage):
    """step -> the numbers of curve.csv that no cut of a step changes."""
    with (root / f"artifacts/{stage}/curve.csv").open() as f:
        rows = list(csv.DictReader(f))
    names = [k for k in rows[0] if k not in ("round", "step") and not k.endswith(MEASURED)]
    return {k: [float(r[k] or "nan") for r in rows] for k in names if not k.startswith(("ess", "ratio_p"))}


def processes(root, word):
    """Those that work in a folder and have this word in their command."""
    here = [p for p in psutil.process_iter(["cwd", "cmdline"]) if p.info["cwd"] == str(root)]
    return [p for p in here if any(word in c for c in p.info["cmdline"])]


def same_curve(one, other, stage, most):
    a, b = curve(one, stage), curve(other, stage)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=most, atol=most, err_msg=name)


@pytest.mark.slow
def test_two_processes_make_what_one_makes_and_a_killed_one_costs_nothing(alone, tmp_path):
    two = planned(alone, tmp_path / "two", sft=2)
    run_as_users_do(two, "sft")
    same_curve(alone, two, "sft", 2e-4)
    assert json.loads((two / ".espalier/measured/sft.json").read_text())["value"]["learners"] == 2
    begun = [p for p in (two / ".espalier/spool").glob("*/sft.jsonl") if '"learners": 2' in p.read_text()]
    assert len(begun) == 1 and begun[0].read_text().count('"kind": "end"') == 1, "one of the two speaks"

    killed = planned(alone, tmp_path / "killed", sft=2)
    stderr = small.run(killed, "sft", "sft_1/train.step:8=kill", expect=TRANSIENT)
    sentences = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert (
        len(sentences) == 1 and "sft: process 1 of 2 was ended by SIGKILL" in sentences[0] and "Traceback" not in stderr
    )
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(killed)], "nobody is left"
    one = planned(alone, shutil.copytree(killed, tmp_path / "one"), sft=1)
    assert "going on after step 2 of 7 (sft)" in small.run(killed, "sft")
    assert small.outputs(killed, "sft") == small.outputs(two, "sft")
    assert "going on after step 2 of 7 (sft)" in small.run(one, "sft")
    same_curve(two, one, "sft", 2e-4)


def unfinished(root, stage):
    """The folders in which a stage keeps what it goes on from."""
    return list((root / ".espalier" / "work" / stage).glob("*/"))


KILLS = {  # (stage, shards) -> process/point:passage of that run, each of which goes on from what the one before it has left
    ("sft", 2): (
        "1/train.source:1 1/train.batches:1 0/checkpoint.shares:1 1/checkpoint.shares:1 0/checkpoint.tensors:1 0/commit.rename:1 "
        "0/checkpoint.prune:1 1/state.rename:1 1/commit.seal:1 1/commit.manifest:1 1/commit.rename:1 1/commit.between:1 "
        "1/train.step:3 1/checkpoint.shares:2"
    ),
    ("rl", 1): (
        "0/stage.begin:1 0/train.source:1 1/train.source:1 0/train.batches:1 1/train.batches:2 0/train.step:2 1/train.step:1 "
        "0/checkpoint.save:1 0/checkpoint.tensors:1 0/commit.seal:1 0/commit.manifest:1 0/commit.rename:1 0/commit.between:1 "
        "0/checkpoint.prune:2 0/commit.seal:1 0/commit.manifest:1 0/commit.rename:1 0/commit.between:1 0/state.rename:1 "
        "0/stage.end:1 0/stage.placed:1"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "shards"), KILLS)
def test_each_of_two_is_killed_at_every_fault_point(alone, tmp_path, stage, shards):
    whole = planned(alone, tmp_path / "whole", shards=shards, **{stage: 2})
    small.run(whole, stage, log=tmp_path / "log")
    passed = {x.replace(f"{stage}_1/", "1/").replace(f"{stage}/", "0/") for x in (tmp_path / "log").read_text().split()}
    kills = KILLS[stage, shards].split()
    left_out = passed - {kill.partition(":")[0] for kill in " ".join(KILLS.values()).split()}
    assert not {x for x in left_out if not x.startswith("/")}, (
        "every point that either passes is tried (no stage: the launcher's)"
    )
    root = planned(alone, tmp_path / "killed", shards=shards, **{stage: 2})
    for kill in kills:
        rank, _, point = kill.partition("/")
        stderr = small.run(root, stage, f"{stage}{'_1' if rank == '1' else ''}/{point}=kill", expect=TRANSIENT)
        said = [line for line in stderr.splitlines() if line.startswith("error: ")]
        assert len(said) == 1 and f"{stage}: process {rank} of 2 was ended by SIGKILL" in said[0], (kill, stderr)
        assert "Traceback" not in stderr, kill
        assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(root)], f"{kill}: nobody is left"
    small.run(root, stage)
    assert small.outputs(root, stage) == small.outputs(whole, stage)
    assert not unfinished(root, stage), "nothing is left to resume"
    assert not [p for p in root.rglob("*") if p.name.endswith((".part", ".old"))], "no part of a file is left"


def torchrun(root, *args, code=0, module="torch.distributed.run", **env):
    """What torchrun and the processes that it starts said on stderr."""
    command = [sys.executable, "-P", "-m", module, "--nproc-per-node", *args]
    env = {**os.environ, "PYTHONPATH": f"{CODE}{os.pathsep}{root}", "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.parametrize(("codes", "code"), [("75,2", 2), ("75,-9", 75), ("0,0", 0)])
def test_the_exit_code_is_that_of_the_process_that_failed(tmp_path, codes, code):
    (tmp_path / "ends.py").write_text(
        "import os, sys\n"
        "code = int(os.environ['CODES'].split(',')[int(os.environ['RANK'])])\n"
        "os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)\n"
    )
    torchrun(tmp_path, "2", "-m", "ends", code=code, module="tasks.runtime.torchrun", CODES=codes)


@pytest.mark.slow
def test_processes_of_torchrun_make_what_ours_make_and_one_that_is_killed_is_started_again(alone, tmp_path):
    two = planned(alone, tmp_path / "two", sft=2)
    small.run(two, "sft")
    by = planned(alone, tmp_path / "by", sft=1)  # torchrun says how many
    fault = {"ESPALIER_FAULT": "sft_1/train.step:8=kill", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    stderr = torchrun(by, "2", "--max-restarts", "1", "-m", "flows.sft", **fault)
    assert small.outputs(by, "sft") == small.outputs(two, "sft")
    assert json.loads((by / ".espalier/measured/sft.json").read_text())["value"]["learners"] == 2
    assert stderr.count("going on after step 2 of 7 (sft)") == 1, "messages of the stage are those of one process"
    assert "going on after step 2 of 7 (sft)" in (by / ".espalier/ranks/sft-1.log").read_text()


@pytest.mark.slow
def test_a_process_of_torchrun_that_hangs_is_ended_and_all_are_started_again(alone, tmp_path):
    """The others look. It is the first that hangs, so another has to say it, whose messages go to a log."""
    hung = planned(alone, tmp_path / "hung", sft=1)
    began = time.monotonic()
    args, env = ("2", "--max-restarts", "1", "-m", "flows.sft"), {ranks.SILENCE: "8"}
    env |= {"ESPALIER_FAULT": "sft/train.step:8=hang"}
    stderr = torchrun(hung, *args, module="tasks.runtime.torchrun", **env)
    assert time.monotonic() - began < 200, "not six hours"
    sentences = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1, stderr
    assert re.search(r"sft: process 0 of 2 has computed for \d+ s without a sign while the others", sentences[0])
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(hung)], "nobody is left"
    assert stderr.count("going on after step 2 of 7 (sft)") == 1
    plain = planned(alone, tmp_path / "plain", sft=2)
    small.run(plain, "sft")
    assert small.outputs(hung, "sft") == small.outputs(plain, "sft")


def test_who_of_torchruns_processes_ends_and_who_says_so(tmp_path, monkeypatch, capfd):
    """The first that does not hang says it; the others end a little later, in silence, with the same code."""

    class Ended(Exception):
        pass

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(ranks.os, "_exit", end)
    monkeypatch.setattr(ranks, "FIRST", 0.0)
    files = [tmp_path / f"{rank}.beat" for rank in range(3)]
    for late, speaker in ((0, 1), (1, 0), (2, 0)):
        for rank, file in enumerate(files):
            file.write_text(f"{'computes' if rank == late else 'waits'} {time.monotonic() - 50} 0.01")
        for rank in range(3):
            with pytest.raises(Ended, match=str(TRANSIENT)):
                ranks._watch("sft", files, ranks.Rank(rank, 3, rank), 0.4)
            assert (f"sft: process {late} of 3 has computed for 50 s" in capfd.readouterr().err) is (rank == speaker)


def test_of_another_machine_what_it_says_is_seen_to_change_by_the_own_clock(tmp_path):
    now = time.monotonic()
    files = [tmp_path / "0.beat", tmp_path / "1.beat"]
    for file, since in zip(files, (now - 1, now + 1e6), strict=True):
        file.write_text(f"computes {since} 0.5")
    assert ranks._hung(files, 100.0, far={1: now - 50}) is None
    rank, silent = ranks._hung(files, 100.0, far={1: now - 200})
    assert rank == 1 and silent == pytest.approx(200, abs=5)


def test_more_processes_of_torchrun_than_rows_are_refused(alone, tmp_path):
    root = planned(alone, tmp_path / "five", sft=1)
    stderr = small.run(root, "sft", expect=2, env={"RANK": "0", "WORLD_SIZE": "5", "LOCAL_RANK": "0"})
    (said,) = [line for line in stderr.splitlines() if line]
    assert said == (
        "error: sft: the number of processes is 5, and a step has 4 rows or pairs (rows_per_step): each process needs one; "
        "start at most 4, or raise rows_per_step"
    )


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2])
def test_a_process_that_hangs_is_ended_and_costs_nothing(alone, tmp_path, shards):
    """It computes without a sign, and the other waits: in a sum of gradients, or within its own pass if weights are split."""
    hung = planned(alone, tmp_path / "hung", shards=shards, sft=2)
    began = time.monotonic()
    stderr = small.run(hung, "sft", "sft_1/train.step:8=hang", expect=TRANSIENT, env={ranks.SILENCE: "4"})
    assert time.monotonic() - began < 100, "not six hours"
    sentences = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1 and "Traceback" not in stderr
    assert re.search(r"sft: process 1 of 2 has computed for \d+ s without a sign while the others waited", sentences[0])
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(hung)], "nobody is left"
    assert "going on after step 2 of 7 (sft)" in small.run(hung, "sft", env={ranks.SILENCE: "60"})
    if shards == 1:
        plain = planned(alone, tmp_path / "plain", sft=2)
        small.run(plain, "sft")
        assert small.outputs(hung, "sft") == small.outputs(plain, "sft")


def test_who_hangs_is_the_one_that_was_heard_first(tmp_path):
    now = time.monotonic()
    beats = [tmp_path / f"{rank}.beat" for rank in range(4)]

    def heard(*lines):
        for file, line in zip(beats, lines, strict=True):
            file.unlink(missing_ok=True)
            if line is not None:
                file.write_text(line)
        return ranks._hung(beats, 100.0)

    assert heard(None, "", "computes", f"computes {now} 0.5") is None, "who has not begun is not late"
    assert heard(f"waits {now - 500} 1", f"rests {now - 900} 1", f"computes {now - 99} 1", None) is None
    rank, silent = heard(f"computes {now - 300} 1", f"waits {now - 900} 1", f"computes {now - 400} 1", None)
    assert rank == 2 and silent == pytest.approx(400, abs=5)
    assert heard(f"computes {now - 300} 1", f"waits {now - 900} 45", None, None) is None, "steps have taken long before"
    assert heard(f"computes {now - 500} 1", f"waits {now - 900} 45", None, None)[0] == 0
    assert ranks._hung(beats, 100.0, now - 50) is None, "nobody could be heard while the machine slept"


def test_a_limit_of_silence_that_means_nothing_is_refused(monkeypatch):
    for wrong in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv(ranks.SILENCE, wrong)
        with pytest.raises(UserError, match=f"ESPALIER_SILENCE={wrong} means nothing"):
            ranks._least()
    monkeypatch.setenv(ranks.SILENCE, "")
    assert ranks._least() == ranks.LEAST


@pytest.mark.slow
def test_weights_that_are_split_make_what_whole_ones_make_and_go_on_from_each_other(alone, tmp_path):
    split = planned(alone, tmp_path / "split", shards=2, sft=2)
    stderr = small.run(split, "sft", "sft_1/train.step:8=kill", expect=TRANSIENT)
    assert "sft: process 1 of 2 was ended by SIGKILL" in stderr and "Traceback" not in stderr
    whole = planned(alone, shutil.copytree(split, tmp_path / "whole"), sft=1)
    assert "going on after step 2 of 7 (sft)" in small.run(split, "sft")
    same_curve(alone, split, "sft", 2e-4)
    assert "going on after step 2 of 7 (sft)" in small.run(whole, "sft")
    same_curve(split, whole, "sft", 2e-4)


@pytest.mark.slow
def test_the_first_plays_with_whole_weights_what_all_learn_by_shares(alone, tmp_path):
    split = planned(alone, tmp_path / "split", shards=2, rl=2)
    small.run(split, "rl")
    same_curve(alone, split, "rl", 2e-3)
    assert (split / "artifacts/rl/episodes.jsonl").read_bytes() == (alone / "artifacts/rl/episodes.jsonl").read_bytes()


@pytest.mark.slow
def test_pairs_are_learned_by_shares_in_rounds_that_renew_the_reference_and_sample(alone, tmp_path):
    whole = shutil.copytree(alone, tmp_path / "whole")
    params = yaml.safe_load((whole / "params.yaml").read_text())
    params["set"]["prefer"]["rounds"] = [{"every": 2}, {"pairs": "sampled", "renew": True}]
    params["set"]["reward"]["head"] = {"piece": "ensemble", "heads": 2}
    (whole / "params.yaml").write_text(yaml.safe_dump(params))
    with contextlib.chdir(whole):
        plan.write(whole)
    for stage in ("preferences", "clean"):
        small.run(whole, stage)
    split = planned(whole, tmp_path / "split", shards=2, reward=2, prefer=2)
    for stage in ("reward", "prefer"):
        small.run(whole, stage)
        small.run(split, stage)
        same_curve(whole, split, stage, 2e-3)
        cards = [json.loads((root / f"artifacts/{stage}/card.json").read_text()) for root in (whole, split)]
        assert cards[0].keys() == cards[1].keys()
        assert cards[0]["trained_on"] == cards[1]["trained_on"] and cards[0]["pairs"] == cards[1]["pairs"]
        saved = [load_file(root / f"artifacts/{stage}/model/model.safetensors") for root in (whole, split)]
        assert saved[0].keys() == saved[1].keys()
        for name in saved[0]:
            np.testing.assert_allclose(saved[0][name], saved[1][name], atol=2e-4, err_msg=name)


@pytest.mark.slow
def test_the_first_plays_and_the_others_learn_what_it_played(alone, tmp_path):
    two = planned(alone, tmp_path / "two", rl=2)
    small.run(two, "rl")
    same_curve(alone, two, "rl", 2e-3)
    assert (two / "artifacts/rl/episodes.jsonl").read_bytes() == (alone / "artifacts/rl/episodes.jsonl").read_bytes()


@contextlib.contextmanager
def served(alone, base, n, asynchrony):
    """A project at `base` whose `rl` samples from n stand-ins for servers, and these."""
    shutil.copytree(alone, base, ignore=shutil.ignore_patterns("work"))
    folder = alone / "artifacts/sft/model"
    config = json.loads((folder / "config.json").read_text())
    about = {k: config[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
    about |= {"dtype": "float32", "max_model_len": 4096}
    servers = [stub(config["eos_token_id"], about, model=load_model(folder)[0]) for _ in range(n)]
    urls = ",".join(f"http://127.0.0.1:{server.server_port}" for server in servers)
    params = yaml.safe_load((base / "params.yaml").read_text())
    params["set"]["rl"] |= {"engine": {"name": urls}, "max_mismatch": 1e9, "asynchrony": {"piece": asynchrony}}
    (base / "params.yaml").write_text(yaml.safe_dump(params))
    with contextlib.chdir(base):
        plan.write(base)
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield base, servers
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def anew(servers):
    """For another run: a fork ends without freeing them."""
    for server in servers:
        server.asked.clear()
        server.worker.espalier_holder = None


@pytest.mark.slow
def test_a_plan_of_devices_is_carried_out(alone, tmp_path):
    """Two learners, two servers and sampling a step ahead, as a plan for four devices asks: what one learner makes beside
    the same servers, and twice the same bytes. The servers are stand-ins, named in the place of `samplers`."""
    step = {ahead: _stage.calls({2: 6, 3: 5, 4: 9}, {1: 9, 2: 5, 4: 3}, {}, ahead) for ahead in (False, True)}
    best = _stage.rows(step, 4)[-1]
    assert best.knobs == {"learners": 2, "samplers": 2, "engine": "vllm", "asynchrony": "one_off"} and best.seconds == 6
    with served(alone, tmp_path / "base", best.knobs["samplers"], best.knobs["asynchrony"]) as (base, servers):
        learners = best.knobs["learners"]
        roots = [planned(base, tmp_path / x, rl=n) for x, n in (("one", 1), ("two", learners), ("again", learners))]
        for root in roots:
            small.run(root, "rl")
            assert all(server.asked for server in servers), "both sample"
            anew(servers)
    one, two, again = roots
    same_curve(one, two, "rl", 2e-3)
    assert (two / "artifacts/rl/episodes.jsonl").read_bytes() == (one / "artifacts/rl/episodes.jsonl").read_bytes()
    assert small.outputs(again, "rl") == small.outputs(two, "rl")
    assert set(curve(two, "rl")["lag"]) == {0.0, 1.0}, "every step but the first is sampled a version behind"


def asyncflow(root):
    """The recipe's own pieces, in the place of those of the small project."""
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["recipe"] = "asyncflow"
    for knob in ("asynchrony", "advantage", "curriculum", "regularisers"):
        params["set"]["rl"].pop(knob, None)
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    with contextlib.chdir(root):
        plan.write(root)
    assert json.loads((root / "artifacts/plan/rl.json").read_text())["params"]["asynchrony"]["piece"] == "streamed"


@pytest.mark.slow
def test_asyncflow_runs_with_two_learners_beside_servers_and_again_to_the_same_bytes(alone, tmp_path):
    """The servers answer by the seed of a turn alone, so that which weights it got depends on timing, but not what it says."""
    with served(alone, tmp_path / "base", 2, "streamed") as (base, servers):
        asyncflow(base)
        roots = [planned(base, tmp_path / name, rl=2) for name in ("two", "again")]
        for root in roots:
            small.run(root, "rl")
            assert all(server.asked for server in servers), "both sample"
            anew(servers)
    two, again = (small.outputs(root, "rl") for root in roots)
    timed = {"curve.csv", "manifest.json"}  # the curve has the age of the weights
    assert {k: v for k, v in two.items() if k not in timed} == {k: v for k, v in again.items() if k not in timed}
    curves = [curve(root, "rl") for root in roots]
    for of in curves:
        assert len(of["lag_max"]) == 6 and set(of["lag_max"]) == {0.0, 1.0}, (
            "sampled ahead, and no older than one update"
        )
    assert [{k: v for k, v in of.items() if not k.startswith("lag")} for of in curves[1:]] == [
        {k: v for k, v in curves[0].items() if not k.startswith("lag")}
    ]


@pytest.mark.slow
def test_asyncflow_with_two_learners_goes_on_after_a_kill(alone, tmp_path):
    """The first samples by itself, from a copy of the weights; a text depends on when new ones came."""
    base = shutil.copytree(alone, tmp_path / "base", ignore=shutil.ignore_patterns("work"))
    asyncflow(base)
    root = planned(base, tmp_path / "two", rl=2)
    assert "process 1 of 2 was ended by SIGKILL" in small.run(root, "rl", "rl_1/train.step:3=kill", expect=TRANSIENT)
    assert "going on after step 2 of 6 (rl)" in small.run(root, "rl")
    with (root / "artifacts/rl/curve.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert [int(r["step"]) for r in rows] == list(range(6)) and {float(r["rollouts"]) for r in rows} == {4.0}
    assert max(float(r["lag_max"]) for r in rows) <= 1, "no older than one update"


@pytest.mark.slow
def test_one_of_two_is_killed_while_weights_are_published_and_while_turns_are_sampled(alone, tmp_path):
    """The servers see these moments: when they are asked to load weights, and for a turn."""
    with served(alone, tmp_path / "base", 2, "sync") as (base, servers):
        whole, killed = (planned(base, tmp_path / name, rl=2) for name in ("whole", "killed"))
        small.run(whole, "rl")
        anew(servers)
        for rank, method, number in ((0, "espalier_load", 6), (0, "turn", 9), (1, "turn", 6), (1, "espalier_load", 4)):
            kill = killing(killed, rank, method, number)
            for server in servers:
                server.before = kill
            stderr = small.run(killed, "rl", expect=TRANSIENT)
            assert f"rl: process {rank} of 2 was ended by SIGKILL" in stderr and "Traceback" not in stderr
            assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(killed)], "nobody is left"
        for server in servers:
            server.before = lambda method: None
        assert "going on after step 4 of 6 (rl)" in small.run(killed, "rl")
    assert small.outputs(killed, "rl") == small.outputs(whole, "rl")
    assert not unfinished(killed, "rl"), "no weights are left either"


def killing(root, rank, method, number):
    """What kills the process `rank` of a run when the servers are asked for the method the so many-th time."""
    asked = []

    def before(asks):
        if asks != method or asked.append(asks) or len(asked) != number:
            return
        (launcher,) = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(root) and p.children()]
        sorted(launcher.children(), key=lambda p: p.pid)[rank].kill()

    return before


@pytest.mark.slow
def test_players_change_no_byte_and_no_plan(alone, tmp_path):
    root = shutil.copytree(alone, tmp_path / "played", ignore=shutil.ignore_patterns("work"))
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["set"]["rl"]["players"] = 2
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    before = (root / "artifacts/plan/rl.json").read_bytes()
    with contextlib.chdir(root):
        plan.write(root)
    assert (root / "artifacts/plan/rl.json").read_bytes() == before, "place is identity"
    shutil.rmtree(root / "artifacts/rl")
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(small.run, root, "rl")
        while not (players := processes(root, "spawn_main")) and not running.done():
            time.sleep(0.02)
        players[0].kill()
    assert "player 1 of 2 ended (SIGKILL)" in running.result()
    assert small.outputs(root, "rl") == small.outputs(alone, "rl")
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(root)], "nobody is left"


@pytest.mark.slow
def test_players_on_ray_change_no_byte_and_no_plan(alone, tmp_path):
    pytest.importorskip("ray")
    root = shutil.copytree(alone, tmp_path / "played", ignore=shutil.ignore_patterns("work"))
    before = (root / "artifacts/plan/rl.json").read_bytes()
    shutil.rmtree(root / "artifacts/rl")
    with ray_cluster() as cluster:
        params = yaml.safe_load((root / "params.yaml").read_text())
        params["set"]["rl"] |= {"players": 2, "ray": cluster.address}
        (root / "params.yaml").write_text(yaml.safe_dump(params))
        with contextlib.chdir(root):
            plan.write(root)
        assert (root / "artifacts/plan/rl.json").read_bytes() == before, "place is identity"
        with ThreadPoolExecutor(1) as beside:
            running = beside.submit(small.run, root, "rl", env=TOKEN)
            while not (players := processes(root, "ray::Seat")) and not running.done():
                time.sleep(0.02)
            players[0].kill()
        assert "(its Ray actor died)" in running.result()
    assert small.outputs(root, "rl") == small.outputs(alone, "rl")
    assert json.loads((root / "artifacts/plan/_run.json").read_text())["place"]["rl"]["ray"] == cluster.address
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(root)], "nobody is left"


@pytest.mark.slow
def test_a_mistake_is_said_once_and_a_process_alone_is_not_two(alone, tmp_path):
    root = planned(alone, tmp_path / "two", sft=2)
    shutil.rmtree(root / "artifacts/demonstrations")
    assert small.run(root, "sft", expect=2).count("artifacts/demonstrations") == 1
    stderr = small.run(root, "sft", expect=2, env={"RANK": "0", "WORLD_SIZE": "1"})
    assert (
        "sft: learners is 2, and this is one of 1 processes: start it with `espalier run`, or with `torchrun" in stderr
    )


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"learners": 0}, "params.yaml: set.sft.learners must be 1 or more, not 0"),
        ({"learners": 5}, "sft.learners is 5, and a step has 4 rows or pairs (rows_per_step): each learner needs one"),
        (
            {"learners": 3, "shards": 2},
            "sft.shards is 2, and sft.learners is 3: weights are split among all learners, or",
        ),
        ({"learners": 1.5}, "params.yaml: set.sft.learners must be int, not 1.5"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(tmp_path, monkeypatch, knobs, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"set": {"sft": {"rows_per_step": 4, **knobs}}}))
    with pytest.raises(UserError) as e:
        plan.plans(tmp_path)
    assert message in str(e.value)


def test_a_control_task_has_one_player(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"recipe": "lare", "set": {"rl": {"players": 2}}}))
    with pytest.raises(UserError, match="rl.players is 2, and the environments of rl.control are arrays"):
        plan.plans(tmp_path)


@pytest.mark.parametrize(
    ("codes", "message", "code"),
    [
        ([None, 2], "error: sft: too long", 2),
        ([ranks.LOST, -9], "error: sft: process 1 of 2 was ended by SIGKILL, and the others with it;", TRANSIENT),
        ([-15, None], "error: sft: process 0 of 2 was ended by SIGTERM, and the others with it;", TRANSIENT),
        ([ranks.LOST, ranks.LOST], "error: sft: its processes lost each other;", TRANSIENT),
        ([2, ranks.LOST], "", 2),
    ],
)
def test_whose_fault_it_was(tmp_path, capfd, codes, message, code):
    for rank in range(2):
        (tmp_path / f"{rank}").write_text("warm\nerror: sft: too long\n")
    assert ranks._blame("sft", codes, [tmp_path / "0", tmp_path / "1"]) == code
    assert capfd.readouterr().err.startswith(message)
