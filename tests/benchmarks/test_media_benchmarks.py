"""The benchmarks of what media cost, and of what one recipe does to a flow."""

import json

import numpy as np
import pytest

from benchmarks import few_step_flow, media_gains, media_minutes, screen_judge
from synth.scenes import draw
from synth.types import Problem
from tasks.lab.behaviour import evidence_of
from training.env.control.modes import CENTRES


def test_a_cluster_counts_where_enough_samples_lie_in_it():
    assert few_step_flow.covered(np.repeat(CENTRES, 5, axis=0)) == 8
    # 2 of 80 each.
    assert few_step_flow.covered(np.concatenate([np.repeat(CENTRES[:1], 78, axis=0), CENTRES[1:3]])) == 1
    assert few_step_flow.covered(CENTRES * 1.5) == 0  # beside them


def test_every_recipe_of_the_table_has_the_seconds_and_steps_of_its_protocol():
    for kind, listed in media_minutes.RECIPES.items():
        for name in listed.split():
            seconds, steps = media_minutes.of_recipe(name, kind)
            evidence = evidence_of(name, "on_task") or evidence_of(name)
            assert evidence is not None and seconds["n"] == 2 * evidence["protocol"]["seeds"]
            assert 0 < seconds["value"] * seconds["n"] <= evidence["seconds"] + seconds["n"]
            assert steps["value"] == evidence["protocol"]["steps"]


def test_the_table_is_by_the_evidence_of_today_and_no_recipe_takes_over_fifteen_minutes():
    """Evidence that is made again gives other rows."""
    kept = json.loads(media_minutes.RESULTS.read_text(encoding="utf-8"))
    rows = [r for r in kept if not r["case"].startswith("warm start")]
    for here, now in zip(rows, media_minutes.of_recipes(), strict=True):
        assert (here["case"], here["metric"], here["value"]) == (now["case"], now["metric"], now["value"]), (
            "read the evidence anew: `python -m benchmarks.media_minutes recipes`, then `make tables`"
        )
    assert max(r["value"] for r in rows if r["unit"] == "seconds") < 15 * 60
    assert max(r["value"] for r in kept if r["case"].startswith("warm start")) < 3 * 60


def test_recipes_are_read_anew_and_no_warm_start_is_measured(tmp_path, monkeypatch):
    kept = [{"case": "warm start: modes", "value": 4.0}, {"case": "vision: geo-r1", "value": 1e9}]
    monkeypatch.setattr(media_minutes, "RESULTS", tmp_path / "kept.json")
    monkeypatch.setattr(media_minutes, "of_start", None)
    media_minutes.RESULTS.write_text(json.dumps(kept))
    media_minutes.main(["recipes"])
    first, *rest = json.loads(media_minutes.RESULTS.read_text())
    assert first == kept[0] and [r["value"] for r in rest] == [r["value"] for r in media_minutes.of_recipes()]


def test_an_unknown_warm_start_is_named():
    with pytest.raises(SystemExit, match="no warm start 'pixels': those known are pictures, shared"):
        media_minutes.main(["pixels"])


@pytest.mark.parametrize(("name", "steps", "prompts"), [("geo-r1", 64, 4), ("rewardmap", 96, 8)])
def test_a_recipe_and_its_control_learn_by_one_setting(name, steps, prompts, monkeypatch):
    """What gains are taken over is blind in the control alone; a recipe of LONGER has the longer setting on both sides."""
    runs = []

    class Here:
        tools = {"draw": "drawn", "page": "drawn"}

    def train(task, recipe, changes, steps, seed, *, here):
        runs.append((task, recipe, changes["prompts_per_step"], steps, seed, here.tools["draw"] == "drawn"))
        return {"pass1": float(steps)}

    monkeypatch.setattr(media_gains, "train", train)
    monkeypatch.setattr(media_gains, "world", lambda task: Here())
    monkeypatch.setattr(media_gains, "replace", lambda here, tools: type("Blind", (), {"tools": tools}))
    assert media_gains.gain(name, 3, "") == media_gains.gain(name, 3, "noise") == (0, steps)
    task = media_gains.protocol(name)["task"]
    assert runs == [(task, name, prompts, n, 3, sees) for sees in (True, False) for n in (0, steps)]


def test_recipes_that_learn_for_longer_are_measured():
    assert set(media_gains.LONGER) <= set(media_gains.NAMES)


def test_frames_of_a_short_clip_come_in_another_order_too():
    """Of two frames every second shuffle changes nothing."""
    for k in range(20):
        colour = ("red", "blue")[k % 2]
        text = f"Clip of 32 in 2 frames: {colour} ring {k % 4} 3 4, 2 {k // 4 % 3} 4\nWhich way does the {colour} ring move?"
        problem = Problem.make(prompt=text, answer=str(k), verifier="exact", family="clip_questions", split="test")
        before, after = draw(problem), media_gains.shuffled(problem)
        assert (after[0] == before[1]).all() and (after[1] == before[0]).all() and (before[0] != before[1]).any()


def test_a_judge_is_as_good_as_the_pairs_that_it_orders():
    assert screen_judge.area([0.9, 0.4, 0.4], [True, True, False]) == 0.75  # one pair in order, one tie
    assert screen_judge.area([0.1, 0.8], [True, False]) == 0.0
