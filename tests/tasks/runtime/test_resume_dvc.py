"""DVC alone, and the whole process group, killed in the middle of a stage: the same command ends with the same bytes
and no process."""

import random

import drill
import pytest

from tasks.runtime import dvc

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    project = drill.Project(tmp_path_factory.mktemp("drill") / "project")
    log = project.make("questions")
    project.keep()
    return project, [p for p in drill.passages(log) if p[0] == "questions"]


def test_an_unbroken_run_passes_the_points_of_its_rows(unbroken):
    assert {p for _, p, _ in unbroken[1]} >= {
        "stage.begin",
        "rows.append",
        "rows.half",
        "commit.rename",
        "stage.placed",
    }


@pytest.mark.parametrize("victim", ["dvc", "group"])
def test_killed_in_the_middle(unbroken, victim):
    project, points = unbroken
    _, point, number = random.Random(victim).choice(points)
    assert project.kill("questions", point, number, victim), "the point was not reached"
    assert project.again("questions") == ""


def test_a_lock_file_that_a_kill_cut_off_is_put_right(unbroken):
    project, _ = unbroken
    (project.root / ".dvc/tmp/rwlock").write_text('{"write": {"artifacts/qu')
    assert project.dvc("status").wait(drill.PATIENCE) != 0, "DVC alone gives up"
    with dvc.alone(project.root):
        pass
    assert project.dvc("status").wait(drill.PATIENCE) == 0


def test_cache_objects_that_nothing_names_are_found_and_removed(unbroken):
    project, _ = unbroken
    stray = project.root / ".dvc/cache/files/md5/00/" / ("0" * 30)
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_text("stray")
    named = sorted(p for p in (project.root / ".dvc/cache/files/md5").glob("*/*") if p != stray)
    assert dvc.unnamed(project.root) == [stray]
    dvc.collect(project.root)
    assert sorted((project.root / ".dvc/cache/files/md5").glob("*/*")) == named
