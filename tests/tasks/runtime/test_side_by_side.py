"""Stages at the same time: what may begin when, and a run of DVC whose stages meet."""

import threading
import time

import grid
import pytest
import toy

from flows.cli.run import _side_by_side, cost
from tasks.core.errors import StageError
from tasks.results import snapshots
from tasks.runtime.side_by_side import Budget, Cost, walk

ORDER = {"a": set(), "b": set(), "c": {"a"}, "d": {"b", "c"}}


def play(order=ORDER, cost=lambda name: Cost(), budget=Budget(4, 4), fails=(), meet=""):
    """Walk it with stages that note who runs beside them: (what ran, the most at a time, [(name, devices)]). Those of
    `meet` wait for each other, two by two."""
    now, most, seen, lock = set(), [], [], threading.Lock()
    both = threading.Barrier(2, timeout=300)

    def bring(name, devices, stopped):
        with lock:
            assert all(x in [s for s, _ in seen] and x not in now for x in order[name]), "what it reads is not done"
            now.add(name)
            most.append(set(now))
            seen.append((name, devices))
        if name in meet:
            both.wait()  # two of these are under way at once, or this raises
        time.sleep(0.05)
        with lock:
            now.discard(name)
        if name in fails:
            raise StageError(f"the stage {name} failed", transient=False)
        return name != "b"

    return walk(order, bring, cost, budget), most, seen


def test_a_stage_begins_when_what_it_reads_is_done():
    ran, most, seen = play(meet="ab")
    assert sorted(ran) == ["a", "c", "d"] and {"a", "b"} in most and seen[-1][0] == "d"
    assert all(len(x) == 1 for x in play(budget=Budget(1, 4))[1]), "one at a time"


def test_cores_and_devices_are_a_budget():
    assert all(len(x) == 1 for x in play(cost=lambda name: Cost(cores=3))[1]), "3 + 3 of 4"
    assert play(cost=lambda name: Cost(cores=9))[0], "one that takes more than there is runs alone"
    wide = {n: set() for n in "abcd"}
    _, most, seen = play(wide, lambda name: Cost(devices=2), Budget(4, 8, 4), meet="abcd")
    assert max(map(len, most)) == 2 and all(d in ([0, 1], [2, 3]) for _, d in seen)


def test_a_failure_ends_the_run_after_what_runs_beside_it():
    with pytest.raises(StageError, match="the stage a failed"):
        play(fails=("a",))
    wide = {n: set() for n in "abcd"}
    with pytest.raises(StageError):
        play(wide, fails=("a", "b"), budget=Budget(2, 4))


def test_each_process_of_a_stage_takes_its_threads():
    rl = {"params": {"device": "cpu"}, "threads": 2}
    place = {"questions": {"workers": 3, "ray": ""}, "rl": {"learners": 2, "shards": 1, "samplers": 1, "players": 1}}
    plans = {"kb": {"params": {}}, "questions": {"params": {}}, "rl": rl, "_run": {"place": place}}
    assert [cost(plans, name) for name in ("kb", "questions", "rl")] == [Cost(cores=1), Cost(cores=3), Cost(cores=4)]
    plans["rl"] = {"params": {"device": "cuda"}, "threads": 2}
    assert cost(plans, "rl") == Cost(cores=4, devices=2) and cost({}, "other") == Cost()


@pytest.mark.slow
def test_stages_of_dvc_meet_and_give_the_bytes_of_one_after_the_other(tmp_path, monkeypatch):
    """Two stages that wait for each other, so that they end only where both run at a time."""
    root = grid.project(tmp_path / "mine")
    for key, value in {**toy.WHO, "MARKS": str(tmp_path)}.items():
        monkeypatch.setenv(key, value)
    (root / "meet.py").write_text(
        "import os, pathlib, sys, time\n"
        "me, other = sys.argv[1:]\n"
        "marks = pathlib.Path(os.environ['MARKS'])\n"
        "(marks / f'up-{me}').touch()\n"
        "until = time.monotonic() + 900\n"
        "while not (marks / f'up-{other}').exists():\n"
        "    assert time.monotonic() < until, 'alone'\n"
        "    time.sleep(0.05)\n"
        "pathlib.Path(f'artifacts/{me}').mkdir(parents=True, exist_ok=True)\n"
        "pathlib.Path(f'artifacts/{me}/x').write_text(pathlib.Path('artifacts/plan/evaluate.json').read_text())\n"
    )
    for me, other in (("kb", "sft"), ("sft", "kb")):
        with (root / "dvc.yaml").open("a") as f:
            f.write(
                f"  {me}:\n    cmd: python meet.py {me} {other}\n    deps: [meet.py, artifacts/plan/evaluate.json]\n"
                f"    outs: [artifacts/{me}]\n"
            )
    toy.git(root, "add", "-A")
    toy.git(root, "commit", "-qm", "two that meet")
    monkeypatch.chdir(root)
    lines = []
    env = {"ESPALIER_EXECUTION": "run-1", "MARKS": str(tmp_path)}
    assert _side_by_side(root, {"seed": 3}, env, 3, 4, lines.append) == 0, lines
    assert "run-1" in snapshots.experiments(root) and "seed: 0" in (root / "params.yaml").read_text()
    lock = {s: d for s, d in snapshots.snapshot(root, "run-1").digests.items()}
    assert lock.keys() == {"plan", "evaluate", "kb", "sft"}, "no stage's entry of dvc.lock is lost"
    (root / "params.yaml").write_text("seed: 3\nset: {}\n")
    toy.sh(root, "repro", "-q", "-f")
    assert snapshots.snapshot(root, "workspace").digests == lock
    assert _side_by_side(root, {}, env, 3, 4, lines.append) == 0
