"""docs/METHODS.md is what the recipes and their evidence say; the leaderboard resumes and claims nothing from few seeds."""

import json

import pytest

from benchmarks import leaderboard
from benchmarks.tables import KEYS
from tasks.methods import page
from tasks.planning.resolve import yaml_files


def test_the_page_is_current():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "make methods"


def test_the_page_has_a_row_for_every_recipe_and_its_pieces():
    text = page.page()
    for name in yaml_files("flows.recipes"):
        assert f"[{name}](../flows/recipes/{name}.yaml)" in text
    row = next(line for line in text.splitlines() if line.startswith("| [ppo]"))
    assert "squared, gae, clip" in row and "| 3 |" in row and "1707.06347" in row


def test_a_change_of_evidence_changes_the_page(tmp_path, monkeypatch):
    before = page.page()
    evidence = {"recipe": "opo", "holds": True, "effect": {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 8},
                "protocol": {"metric": "auc", "direction": "higher", "against": "grpo", "task": "mixed", "claim": "It helps"}}  # fmt: skip
    (tmp_path / "opo.json").write_text(json.dumps(evidence))
    monkeypatch.setattr(page, "evidence_path", lambda name: tmp_path / f"{name}.json")
    assert "**holds**: auc higher than grpo in `mixed`, +0.5 [0.25, 0.75], 8 seeds" in page.page() != before


def test_the_leaderboard_resumes_and_leaves_out_what_has_few_seeds(tmp_path, monkeypatch):
    played = []
    metrics = dict.fromkeys(leaderboard.METRICS, 0.5)

    def play(recipe, world, seed):
        played.append((recipe, world, seed))
        return {"key": leaderboard.key(recipe, world, seed), "recipe": recipe, "world": world, "seed": seed, "metrics": metrics}

    monkeypatch.setattr(leaderboard, "play", play)
    monkeypatch.setattr(leaderboard, "RUNS", tmp_path / "runs.jsonl")
    monkeypatch.setattr(leaderboard, "RESULTS", tmp_path)
    monkeypatch.setattr(leaderboard, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["leaderboard", "--worlds", "many"])
    monkeypatch.setattr(leaderboard, "RECIPES", ("grpo", "dapo"))
    for _ in range(2):
        leaderboard.main()
    assert len(played) == 10, "what is there is not run again"
    found = json.loads((tmp_path / "leaderboard.json").read_text())
    assert {r["case"] for r in found} == {"many: grpo", "many: dapo"} and all(r.keys() >= KEYS and r["n"] == 5 for r in found)
    assert len(list((tmp_path / ".espalier/spool").glob("*/*.jsonl"))) == 10, "every run is spooled for MLflow"
    few = [r for r in leaderboard.rows() if r["seed"] < 5 or r["recipe"] == "grpo"]
    assert {r["case"] for r in leaderboard.results(few)} == {"many: grpo"}


def test_a_changed_protocol_runs_again(monkeypatch):
    before = leaderboard.key("grpo", "many", 1)
    monkeypatch.setattr(leaderboard, "STEPS", leaderboard.STEPS + 1)
    assert leaderboard.key("grpo", "many", 1) != before


@pytest.mark.parametrize("name", leaderboard.RECIPES)
def test_every_recipe_of_the_leaderboard_is_one(name):
    assert name in yaml_files("flows.recipes")
