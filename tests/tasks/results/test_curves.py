"""Learning curves over seeds: what belongs together, its interval by hand, the page, and the runs that MLflow gets."""

import json

import pytest
import states

from flows import cli
from tasks.core.errors import UserError
from tasks.results import curves as task
from tasks.results import curves_page as pages
from tasks.results.snapshots import snapshot


def finished(root, *, seed, lr, rewards, name):
    """Commit an experiment of this seed: its rl has these rewards, its evaluation a tenth of the last one."""
    states.write(root, lr=lr, right={0, 1})
    at = root / "artifacts"
    for plan in (at / "plan").glob("*.json"):
        plan.write_text(json.dumps(json.loads(plan.read_text()) | {"seed": seed}))
    lines = [f"{i},rl,{r},{i + seed}" for i, r in enumerate(rewards)]
    (at / "rl/curve.csv").write_text("\n".join(["step,round,reward,odd<column>", *lines]) + "\n")
    (at / "evaluate/metrics.json").write_text(
        json.dumps({"models": {"rl": {"pass@1": {"mean": rewards[-1] / 10}, "calls": {"mean": 1.0}}}})
    )
    states.commit(root, name)
    states.git(root, "update-ref", f"refs/exps/ab/cdef/{name}", "HEAD")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    states.git(root, "init", "-q")
    for seed, rewards in ((0, (1, 2, 5)), (1, (2, 2, 6)), (2, (3, 2, 7))):
        finished(root, seed=seed, lr=0.1, rewards=rewards, name=f"s{seed}")
    finished(root, seed=0, lr=0.5, rewards=(1, 1, 1), name="hot")
    return root


def found(root, *names):
    return task.curves([snapshot(root, n) for n in names])


def test_states_that_differ_in_the_seed_alone_are_one_curve(root):
    got = found(root, "s0", "s1", "s2", "hot")
    assert [(g["name"], g["seeds"]) for g in got["groups"]] == [
        ("grpo", [0, 1, 2]),
        ("grpo, rl.optimizer.lr=0.5, other training/x.py", [0]),
    ]
    curve = got["curves"]["rl"]["reward"]["grpo"]
    # At step 0: 1, 2, 3 have mean 2 and deviation 1; t(0.975, 2) = 4.302653, over the root of 3 2.484138.
    assert curve["mean"] == [2.0, 2.0, 6.0] and curve["step"] == [0, 1, 2]
    assert curve["low"] == pytest.approx([-0.484138, 2.0, 3.515862], abs=1e-6) and curve["high"][0] == pytest.approx(
        4.484138, abs=1e-6
    )
    alone = got["curves"]["rl"]["reward"]["grpo, rl.optimizer.lr=0.5, other training/x.py"]
    assert alone["low"] is None and alone["mean"] == [1.0, 1.0, 1.0], "one seed has no interval"
    score = got["scores"]["rl"]["pass@1"]["grpo"]
    assert (
        score["mean"] == pytest.approx(0.6)
        and score["values"] == [0.5, 0.6, 0.7]
        and "calls" not in got["scores"]["rl"]
    )
    assert "round" not in got["curves"]["rl"], "words are no curve"


def test_a_seed_counts_once(root):
    got = found(root, "s0", "s1", "workspace", "hot")
    assert [g["seeds"] for g in got["groups"]] == [[0, 1], [0]]
    assert got["copies"] == ["hot: workspace has its seed 0 and every setting"]


def test_steps_that_one_seed_lacks_are_not_averaged(root, tmp_path):
    finished(root, seed=3, lr=0.1, rewards=(4, 4), name="short")
    got = found(root, "s0", "s1", "short")
    assert got["curves"]["rl"]["reward"]["grpo"]["step"] == [0, 1]


def test_what_is_gone_is_named_and_what_has_no_plan_is_refused(root, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    snapshot(copy, "s1").path("artifacts/rl/curve.csv").unlink()
    got = found(copy, "s0", "s1")
    assert [m for m in got["missing"] if "rl/" in m] == ["s1: artifacts/rl/curve.csv"]
    assert len(got["curves"]["rl"]["reward"]["grpo"]["values"]) == 1
    assert "artifacts/rl/curve.csv" in pages.page(got)
    shutil.rmtree(copy / ".dvc/cache")
    with pytest.raises(UserError, match="s0 .* has no plan that can be had"):
        found(copy, "s0")


def test_more_settings_than_colours_are_refused(root, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for i in range(task.MOST):
        finished(copy, seed=0, lr=1.0 + i, rewards=(1, 1), name=f"lr{i}")
    with pytest.raises(UserError, match="name fewer"):
        found(copy, "s0", *(f"lr{i}" for i in range(task.MOST)))


def test_the_page_draws_bands_and_escapes(root):
    html = pages.page(found(root, "s0", "s1", "s2", "hot"))
    assert html.count('class="band') == 2, "reward and the odd column of three seeds; a single seed has a line alone"
    assert (
        "odd<column>" not in html
        and "odd&lt;column&gt;" in html
        and "mean score over step: grpo ends at 6 (3.516 to 8.484)" in html
    )
    assert "<script" not in html and "60.0%" in html and "35.2 to 84.8" in html


def test_long_curves_are_smoothed_seed_by_seed():
    values = [[float((i + s) % 2) for i in range(100)] for s in (0, 1)]
    svg = pages.plot({"a": {"step": list(range(100)), "values": values}}, {"a": "rl"}, "y")
    assert "a ends at 0.5" in svg and 'class="line c-rl"' in svg and 'class="band b-rl"' in svg


def test_the_command_line_and_what_mlflow_gets(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(root)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (root / "dvc.yaml").write_text("stages: {}\n")
    assert cli.main(["curves", "s0", "s1", "s2", "--log"]) == 0
    output = capsys.readouterr().out
    assert (
        "grpo: 3 seeds (0, 1, 2)" in output and "60.0%  35.2 to 84.8" in output and "in MLflow: grpo, 3 seeds" in output
    )
    assert (root / ".espalier/compare/curves.html").exists()
    from tasks.tracking import observe

    ship = observe.Shipping(root)
    (run,) = ship.client.search_runs([ship.experiment])
    last = {
        k: (m.step, m.value)
        for k in ("rl/reward", "rl/reward_low", "rl/reward_high")
        for m in ship.client.get_metric_history(run.info.run_id, k)[-1:]
    }
    assert (
        last["rl/reward"] == (2, 6.0)
        and last["rl/reward_low"] == (2, pytest.approx(3.515862))
        and run.info.status == "FINISHED"
    )
    assert [a.path for a in ship.client.list_artifacts(run.info.run_id)] == ["curves.html"]
    assert cli.main(["curves", "s0", "s1", "s2", "--log"]) == 0
    assert "in MLflow already" in capsys.readouterr().out and len(ship.client.search_runs([ship.experiment])) == 1
    assert cli.main(["curves", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["groups"]) == 2, "the workspace and every experiment"
    assert cli.main(["curves", "nothing"]) == 2
