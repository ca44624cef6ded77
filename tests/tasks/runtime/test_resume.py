"""A stage that died anywhere, by anything, goes on and ends with the bytes of one that did not."""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter

import pytest
import room
import small

from tasks.runtime.stage import OUT
from tasks.storage import commit, faults, state
from tasks.tracking import spool

pytestmark = pytest.mark.slow
SEED = 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A project whose stages ran without interruption; <stage>.log lists the fault points that each passed."""
    root = tmp_path_factory.mktemp("small") / "whole"
    os.environ[faults.LOG] = str(root.parent / "plan.log")
    try:
        small.write_project(root, SEED)
    finally:
        del os.environ[faults.LOG]
    for stage in small.STAGES:
        small.run(root, stage, log=root.parent / f"{stage}.log")
    return root


@pytest.fixture
def project(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "project")


def forget(root, stage):
    """As DVC does before a stage runs: its outputs are gone."""
    shutil.rmtree(root / OUT.get(stage, f"artifacts/{stage}"))


def passages(whole, stage):
    """Every passage of a fault point in an unbroken run: (point, which time)."""
    seen, out = Counter(), []
    for line in (whole.parent / f"{stage}.log").read_text().split():
        point = line.removeprefix(f"{stage}/")
        seen[point] += 1
        out.append((point, seen[point]))
    return out


def test_every_fault_point_is_passed_by_some_stage(whole):
    passed = {line.partition("/")[2] for log in whole.parent.glob("*.log") for line in log.read_text().split()}
    assert passed == set(faults.POINTS) - {"checkpoint.shares"}  # of split weights: tests/tasks/runtime/test_ranks.py


@pytest.mark.parametrize("stage", small.STAGES)
def test_killed_twice_at_random_points(project, whole, stage):
    rng = random.Random(f"{SEED} {stage}")
    forget(project, stage)
    for point, number in rng.sample(passages(whole, stage), 2):
        if not (
            project / OUT.get(stage, f"artifacts/{stage}")
        ).exists():  # the second point may lie behind what is left to do
            try:
                small.run(project, stage, fault=f"{point}:{number}=kill", expect=-signal.SIGKILL)
            except AssertionError as e:
                assert " ended with 0" in str(e), e
                forget(project, stage)
        else:
            forget(project, stage)
    small.run(project, stage)
    assert small.outputs(project, stage) == small.outputs(whole, stage)
    assert not list((project / ".espalier/work" / stage).glob("*/")), "nothing is left to resume"


@pytest.mark.parametrize("point", ["plan.write", "commit.seal", "commit.manifest"])
def test_the_plan_killed_in_the_middle(project, whole, point):
    forget(project, "plan")
    small.run(project, "plan", fault=f"{point}=kill", expect=-signal.SIGKILL)
    stderr = small.run(project, "kb", expect=2)
    assert stderr.count("\n") == 1 and "dvc repro" in stderr, "half a plan is read by nobody"
    small.run(project, "plan")
    assert small.outputs(project, "plan") == small.outputs(whole, "plan")


def test_steps_are_not_taken_twice(project, whole, tmp_path):
    forget(project, "prefer")
    small.run(project, "prefer", fault="train.step:5=kill", expect=-signal.SIGKILL)
    stderr = small.run(project, "prefer", log=tmp_path / "log")
    assert "going on after step 4 of 6" in stderr
    assert (tmp_path / "log").read_text().split().count("prefer/train.step") == 2
    assert small.outputs(project, "prefer") == small.outputs(whole, "prefer")


ENDINGS = {  # action -> exit code, words
    "full": (2, "no space left on device: free some space (`espalier gc`"),
    "readonly": (2, "read-only file system: make it writable"),
    "broken": (2, "input/output error: the disk or its connection is at fault"),
    "term": (143, "prefer: ended by SIGTERM"),
}


@pytest.mark.parametrize(
    "action, point",
    list(zip(ENDINGS, ("checkpoint.tensors:2", "commit.seal:3", "commit.manifest:4", "train.step:4"), strict=True)),
)
def test_each_ending_is_one_sentence_and_nothing_is_lost(project, whole, action, point):
    code, words = ENDINGS[action]
    forget(project, "prefer")
    stderr = small.run(project, "prefer", fault=f"{point}={action}", expect=code)
    lines = [line for line in stderr.splitlines() if "steps " not in line]
    assert len(lines) == 1 and words in lines[0] and "Traceback" not in stderr and "goes on from there" in lines[0]
    assert not (project / "artifacts/prefer").exists()
    small.run(project, "prefer")
    assert small.outputs(project, "prefer") == small.outputs(whole, "prefer")


@pytest.mark.parametrize("stage", ["questions", "prefer"])
def test_sigterm_at_every_fault_point(project, whole, stage):
    """One run, ended again and again, each time a point later."""
    forget(project, stage)
    for point in dict.fromkeys(p for p, _ in passages(whole, stage)):
        stderr = small.run(project, stage, fault=f"{point}=term", expect=143)
        assert (
            stderr.count(f"{stage}: ended by SIGTERM; what is finished is kept") == 1 and "Traceback" not in stderr
        ), point
    small.run(project, stage)
    assert small.outputs(project, stage) == small.outputs(whole, stage)


def test_a_clock_that_steps_back_and_forth(project, whole):
    """400 days at a time, at every look at it, and the files of the run that died are from the future."""
    forget(project, "prefer")
    small.run(project, "prefer", fault="train.step:5=kill", expect=-signal.SIGKILL, clock=400 * 86400.0)
    ahead = time.time() + 400 * 86400
    for path in (project / ".espalier/work/prefer").rglob("*"):
        os.utime(path, (ahead, ahead))
    assert "going on after step 4 of 6" in small.run(project, "prefer", clock=-400 * 86400.0)
    assert small.outputs(project, "prefer") == small.outputs(whole, "prefer")
    seconds = state.read(project / ".espalier/measured/prefer.json", else_="the test fails")["seconds"]
    assert 0 <= seconds < 86400, "durations are of the monotonic clock"
    assert (spool.executions(project)[-1][0] / "prefer.jsonl").read_text().count('"FINISHED"') == 1, (
        "the last run is known as the last"
    )


def test_training_that_diverges_is_one_sentence(project):
    plan = project / "artifacts/plan/prefer.json"
    values = json.loads(plan.read_text())
    values["params"]["optimizer"] |= {"lr": 1e30, "warmup": 0}
    plan.write_text(json.dumps(values))
    commit.seal(plan.parent)
    lines = [line for line in small.run(project, "prefer", expect=2).splitlines() if "steps " not in line]
    assert (
        len(lines) == 1
        and lines[0].startswith("error: prefer: the gradient norm is nan at step ")
        and "lower the learning rate" in lines[0]
    )


def half_way(project):
    """The checkpoints of `prefer`, killed after its last step, oldest first."""
    forget(project, "prefer")
    small.run(project, "prefer", fault="train.step:5=kill", expect=-signal.SIGKILL)
    kept = sorted(project.glob(".espalier/work/prefer/*/checkpoints/prefer/step_*"))
    assert [p.name for p in kept] == ["step_0000002", "step_0000004"], "the last two are kept"
    return kept


def test_control_a_state_that_is_not_the_right_one_gives_other_bytes(project, whole):
    """Were the baseline of the advantage not in the checkpoint, the comparisons above would have to see it."""
    forget(project, "rl")
    small.run(project, "rl", fault="train.step:5=kill", expect=-signal.SIGKILL)
    (last,) = project.glob(".espalier/work/rl/*/checkpoints/rl/step_0000004")
    head = json.loads((last / "state.json").read_text())
    pieces = head["state"]["held"]["part experience"]["pieces"]
    assert {"advantage/reinforce", "curriculum/success_band"} <= pieces.keys()
    pieces["advantage/reinforce"]["baseline"] += 0.5
    (last / "state.json").write_text(json.dumps(head))
    commit.seal(last)
    assert "going on after step 4 of 6" in small.run(project, "rl")
    assert (
        small.outputs(project, "rl")["model/model.safetensors"] != small.outputs(whole, "rl")["model/model.safetensors"]
    )


def test_a_damaged_checkpoint_is_left_out_with_a_warning(project, whole):
    *_, last = half_way(project)
    path = last / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    stderr = small.run(project, "prefer")
    assert "its SHA-256 is not that of manifest.json" in stderr and "going on after step 2 of 6" in stderr
    assert small.outputs(project, "prefer") == small.outputs(whole, "prefer")


def test_truncated_checkpoints_mean_a_start_from_nothing(project, whole):
    for folder in half_way(project):
        os.truncate(folder / "state.json", 10)
    assert "going on" not in small.run(project, "prefer")
    assert small.outputs(project, "prefer") == small.outputs(whole, "prefer")


def test_a_work_folder_of_another_version_is_refused_and_kept(project):
    *_, last = half_way(project)
    head = json.loads((last / "state.json").read_text())
    (last / "state.json").write_text(json.dumps({**head, "torch": "1.0.0"}))
    commit.seal(last)
    stderr = small.run(project, "prefer", expect=2)
    assert (
        stderr.count("\n") == 1 and "was written by format 1 with torch 1.0.0" in stderr and "to start again" in stderr
    )
    assert last.exists()


def test_work_of_other_settings_is_not_gone_on_from(project, whole):
    half_way(project)
    plan = project / "artifacts/plan/prefer.json"
    plan.write_text(plan.read_text().replace('"lr": 0.', '"lr": 0.1'))
    commit.seal(plan.parent)
    assert "going on" not in small.run(project, "prefer")
    assert small.outputs(project, "prefer") != small.outputs(whole, "prefer")


def test_a_damaged_input_is_refused_before_any_use(project):
    path = project / "artifacts/sft/model/model.safetensors"
    at, data = path.stat(), bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    stderr = small.run(project, "prefer", expect=2)
    assert stderr.count("\n") == 1 and "artifacts/sft/model/model.safetensors is not what was written" in stderr
    assert "`espalier gc --damaged`" in stderr and not list(project.glob(".espalier/work/prefer/*/checkpoints"))


def test_a_lock_left_by_a_dead_process_holds_nobody(project):
    (project / ".espalier/work/prefer/lock").write_text("999999")
    small.run(project, "prefer")


def test_a_disk_that_is_really_full_and_one_that_is_read_only(whole, tmp_path):
    with room.mounted(tmp_path / "room", 64) as disk:
        project = shutil.copytree(whole, disk.folder / "project")
        forget(project, "prefer")
        disk.leave(150_000)
        stderr = small.run(project, "prefer", expect=2)
        assert "no space left on device: free some space" in stderr and "Traceback" not in stderr
        assert not (project / "artifacts/prefer").exists()
        disk.remount("ro")
        stderr = small.run(project, "prefer", expect=2)
        assert (
            stderr.count("\n") == 1
            and "read-only file system: make it writable" in stderr
            and str(disk.folder) in stderr
        )
        disk.remount("rw")
        disk.leave(32 << 20)
        small.run(project, "prefer")
        assert small.outputs(project, "prefer") == small.outputs(whole, "prefer")
