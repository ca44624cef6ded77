"""docs/METHODS.md is what the recipes and their evidence say; the leaderboard resumes and claims nothing from few
seeds."""

import json
from functools import cache

import pytest

from benchmarks import leaderboard
from docs.generators.tables import KEYS
from docs.generators import methods as page
from tasks.core.paths import CODE
from tasks.lab import behaviour
from tasks.planning.resolve import read_recipe, yaml_files


@cache
def shipped() -> str:
    """The page of what is shipped: reading all recipes takes a while."""
    return page.page()


def test_the_page_is_current():
    assert page.PAGE.read_text(encoding="utf-8") == shipped(), "make methods"


def test_the_page_has_a_row_for_every_recipe_and_its_pieces():
    text = shipped()
    for name, path in yaml_files("recipes").items():
        assert f"[{name}](../{path.relative_to(CODE).as_posix()})" in text
    row = next(line for line in text.splitlines() if line.startswith("| [ppo]"))
    assert "squared, gae, clip" in row and "| 3 |" in row and "1707.06347" in row


def test_what_is_shown_by_tests_is_shown_by_tests_that_there_are():
    shown = {(name, test) for name in yaml_files("recipes") for test in (read_recipe(name).get("shown") or {}).values()}
    assert shown
    rows = shipped().splitlines()
    for name, test in shown:
        path, _, function = test.partition("::")
        assert f"def {function}(" in (CODE / path).read_text(encoding="utf-8"), f"{name}: there is no {test}"
        assert f"](../{path})" in next(line for line in rows if line.startswith(f"| [{name}]"))


def test_what_a_benchmark_measured_stands_as_evidence():
    rows = shipped().splitlines()
    for name in ("tool-light", "rar2", "synrewrite", "retro-star"):
        row = next(line for line in rows if line.startswith(f"| [{name}]"))
        assert f"**holds**, {page.BY_BENCHMARK[name]}: " in row and "5 seeds (`make bench-search-methods`)" in row
    assert "calls lower than best_vs_worst" in next(line for line in rows if line.startswith("| [tool-light]"))


def test_a_change_of_evidence_changes_the_page(tmp_path, monkeypatch):
    before = shipped()
    evidence = {
        "recipe": "opo",
        "holds": True,
        "effect": {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 8},
        "protocol": {"metric": "auc", "direction": "higher", "against": "grpo", "task": "mixed", "claim": "It helps"},
    }
    monkeypatch.setattr(behaviour, "evidence_path", lambda name, where: tmp_path / where / f"{name}.json")
    for where in ("behaviour", "on_task"):
        (tmp_path / where).mkdir()
        (tmp_path / where / "opo.json").write_text(json.dumps(evidence))
    now = page.page()
    for words in (
        "| **holds**, weak: auc higher than grpo in `mixed`, +0.5 [0.25, 0.75], 8 seeds",
        "; on a task **holds**, substantive: auc higher than grpo in `mixed`, +0.5 [0.25, 0.75], 8 seeds",
    ):
        assert words in now and words not in before
    for words in (
        "2 protocols have run, 1 in small worlds and 1 on the project's own tasks",
        "**1 of them are substantive, and 1 of these ran the constants that the recipe ships: 1 hold, 0 reversed; 0 of the 1 are second looks",
        "| weak | small world | 1: 1 hold, 0 reversed | 0 | 0 | 0 |",
    ):
        assert words in now and words not in before


def test_second_looks_are_counted_in_the_headline():
    """Of substantive protocols with shipped constants alone, in the sentence that says how many hold."""
    effect = {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    protocol = {"direction": "higher", "metric": "pass1", "against": "reinforce", "task": "countdown"}
    one = {"recipe": "opo", "holds": True, "effect": effect, "protocol": protocol}
    reversed_again = {**one, "holds": False, "effect": {**effect, "low": -2.0, "high": -1.0}, "earlier": [{}]}
    changed = {**one, "protocol": {**protocol, "set": {"ratio": {"piece": "sequence"}}}}
    headline = page._headline({"behaviour": [one], "on_task": [one, reversed_again, changed]})
    assert "**3 of them are substantive, and 2 of these ran" in headline and ": 1 hold, 1 reversed; " in headline
    assert headline.endswith("1 of the 2 are second looks (0 hold, 1 reversed).**")


def test_what_a_benchmark_measured_has_a_kind():
    assert page.BY_BENCHMARK.keys() == page.measured().keys() and set(page.BY_BENCHMARK.values()) <= page.KINDS.keys()


def test_evidence_of_other_constants_than_the_recipe_ships_now_is_older():
    from tasks.lab.behaviour import constants_of, outdated

    now = constants_of("dapo")
    assert now["rl.minibatches"] == 4 and "rl.samples_per_prompt" not in now
    then = {**now, "rl.minibatches": 1}
    assert outdated({"recipe": "dapo", "constants": now, "code": "0"}) == []
    assert outdated({"recipe": "dapo", "constants": then, "code": "0"}) == ["rl.minibatches"]
    assert outdated({"recipe": "dapo", "constants": {"rl.minibatches": 1}}) == ["rl.minibatches"]  # of before the key
    assert outdated({"recipe": "dapo"}) == []
    del then["rl.minibatches"]
    assert outdated({"recipe": "dapo", "constants": then, "code": "0"}) == ["rl.minibatches"]


def row(recipe, task, seed, **metrics):
    metrics = {"pass1": 0.5, "pass8": 0.75, "seconds": 1.0, **metrics}
    return {
        "key": leaderboard.key(recipe, task, seed),
        "recipe": recipe,
        "task": task,
        "seed": seed,
        "metrics": metrics,
    }


@pytest.fixture
def board(tmp_path, monkeypatch):
    """The leaderboard with two recipes, in a folder of its own; what it has played."""
    played = []

    def play(recipe, task, seed):
        played.append((recipe, task, seed))
        return row(recipe, task, seed, pass1=0.5 + (recipe == "dapo") * (0.1 + seed / 100))

    monkeypatch.setattr(leaderboard, "play", play)
    monkeypatch.setattr(leaderboard, "RUNS", tmp_path / "runs.jsonl")
    monkeypatch.setattr(leaderboard, "RESULTS", tmp_path)
    monkeypatch.setattr(leaderboard, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["leaderboard", "--tasks", "hops"])
    monkeypatch.setattr(leaderboard, "RECIPES", ("grpo", "dapo"))
    return played


def test_the_leaderboard_resumes_and_leaves_out_what_has_few_seeds(tmp_path, board):
    for _ in range(2):
        leaderboard.main()
    assert len(board) == len(set(board)) == 20, (
        "start, two recipes and more demonstrations, of five seeds; what is there is not run again"
    )
    results = json.loads((tmp_path / "leaderboard-hops.json").read_text())
    assert {r["case"] for r in results} == {"start", "sft continued", "grpo", "dapo"}
    assert (
        all(r.keys() >= KEYS and r["n"] == 5 for r in results)
        and json.loads((tmp_path / "leaderboard-requests.json").read_text()) == []
    )
    assert len(list((tmp_path / ".espalier/spool").glob("*/*.jsonl"))) == 20, "every run is spooled for MLflow"
    few = [r for r in leaderboard.rows() if r["seed"] < 5 or r["recipe"] == "grpo"]
    assert {r["case"] for r in leaderboard.results(few, "hops")} == {"grpo"}


def test_gains_are_over_the_same_seeds(board):
    leaderboard.main()
    gains = {
        r["case"]: r for r in leaderboard.results(leaderboard.rows(), "hops") if r["metric"] == "pass@1 against grpo"
    }
    assert gains["dapo"]["value"] == pytest.approx(0.13) and gains["dapo"]["low"] > 0 and "grpo" not in gains


def test_it_stops_when_its_time_is_over_and_says_what_is_left(board, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["leaderboard", "--tasks", "hops", "--minutes", "0"])
    leaderboard.main()
    assert not board and "20 of 20 runs are left" in capsys.readouterr().err


def test_a_changed_protocol_runs_again(monkeypatch):
    before = {t: leaderboard.key("grpo", t, 1) for t in leaderboard.TASKS}
    monkeypatch.setitem(leaderboard.TOKENS, "hops", leaderboard.TOKENS["hops"] + 1)
    assert {t for t in leaderboard.TASKS if leaderboard.key("grpo", t, 1) != before[t]} == {"hops"}
    monkeypatch.setitem(leaderboard.COMMON, "lr", 2 * leaderboard.COMMON["lr"])
    assert all(leaderboard.key("grpo", t, 1) != before[t] for t in leaderboard.TASKS)


@pytest.mark.parametrize("name", leaderboard.RECIPES)
def test_every_recipe_of_the_leaderboard_is_one(name):
    assert name in yaml_files("recipes")
