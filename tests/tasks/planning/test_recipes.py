"""Every shipped recipe: its file is complete, its pieces exist, and its published numbers come out of the code."""

import json
import re

import pytest

from tasks.core.errors import UserError
from tasks.lab.checks import load, run_checks
from tasks.planning.kinds import settled, slots
from tasks.planning.pieces import bind
from tasks.planning.resolve import yaml_files

NAMES = sorted(yaml_files("recipes"))
FIRST = {"grpo", "dr-grpo", "dapo", "rloo", "reinforce", "dpo", "qae", "nsr-w-reinforce", "high-entropy-tokens"}


def test_the_first_recipes_are_there():
    assert set(NAMES) >= FIRST


@pytest.mark.parametrize("name", NAMES)
def test_file_is_complete(name):
    recipe = load(name)
    assert recipe["id"] == name
    assert {"title", "citation", "source", "mechanism", "leaves_out", "stages"} <= set(recipe)
    assert {"title", "year"} <= set(recipe["citation"])
    assert len(recipe["mechanism"]) > 150 and recipe["leaves_out"]
    kinds = slots()
    for stage, knobs in recipe["stages"].items():
        for knob, value in settled(stage, knobs):
            if (kind := kinds[stage].get(knob)) and value is not None:
                for spec in value if isinstance(value, list) else [value]:
                    bind(kind, {"piece": spec} if isinstance(spec, str) else spec)


@pytest.mark.parametrize("name", NAMES)
def test_numeric_checks(name):
    results = run_checks(load(name))
    assert results, f"the recipe {name} proves nothing: give it a numeric check"
    failed = [f"{r.name}: {d}" for r in results for d in r.differences]
    assert not failed, "\n".join(failed)


def test_a_recipe_inherits_pieces_but_not_checks():
    qae = load("qae")
    assert qae["stages"]["rl"]["policy_loss"]["clip_high"] == 0.28
    assert qae["stages"]["rl"]["advantage"]["piece"] == "quantile"
    assert all(c["piece"] == "advantage/quantile" for c in qae["checks"])


CHECK = {
    "name": "x",
    "piece": "advantage/grpo",
    "given": {"rewards": [[1, 0]]},
    "expect": {"advantages": [[0.7071058, -0.7071058]]},
    "atol": 1e-6,
}


def ran(**changes):
    return run_checks({"id": "mine", "stages": {}, "checks": [CHECK | changes]})[0]


def test_a_check_can_fail():
    assert ran().passed
    assert ran(expect={"advantages": [[0.7071058, -0.70711]]}).differences == (
        "advantages[0][1] is -0.70710578, expected -0.70711 within 1e-06",
    )
    assert not ran(expect={"advantages": [[1, -0.7071058]]}).passed, "an integer is exact"
    assert not ran(expect={"advantages": [[0.7071058]]}).passed
    assert not ran(knobs={"std": "none"}).passed, "knobs of the check reach the piece"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tolerance": 1}, "unknown key 'tolerance'"),
        ({"piece": "advantage.grpo"}, "write kind/name"),
        ({"piece": "training.advantage/gigpo"}, "it is advantage/gigpo now: write advantage/gigpo"),
        ({"piece": "training.guide/replay"}, "write group_transform/replay"),
        ({"piece": "metric/behaviour"}, "it is metric/format_and_refusal now: write format_and_refusal"),
        ({"expect": {"advantage": []}}, "did you mean 'advantages'"),
        (
            {"given": {"reward": [[1, 0]]}},
            "gives 'reward', which a check of advantage does not take: did you mean 'rewards'",
        ),
    ],
)
def test_a_malformed_check_is_one_sentence(changes, message):
    with pytest.raises(UserError, match=message):
        ran(**changes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("certainty: known", "mine.yaml: certainty is source now: write source: secondary"),
        ("certainty: paper", "mine.yaml: certainty is source now: write source: paper"),
        ("sourse: paper", "mine.yaml: unknown key 'sourse': did you mean 'source'"),
    ],
)
def test_a_former_key_of_a_recipe_is_refused_with_the_new_one(tmp_path, monkeypatch, line, message):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text(f"id: mine\n{line}\n")
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    with pytest.raises(UserError, match=re.escape(message)):
        load("mine")


def test_the_command_line_runs_them(capsys, tmp_path, monkeypatch):
    from flows.cli import main

    assert main(["check", "qae", "grpo", "--numeric"]) == 0
    assert "ok      qae" in capsys.readouterr().out
    assert main(["check"]) == 2
    assert main(["check", "qaf"]) == 2
    assert "did you mean 'qae'" in capsys.readouterr().err
    own = tmp_path / "recipes"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(
        "id: mine\nchecks: [{name: x, piece: advantage/rloo, given: {rewards: [[1, 0]]}, expect: {advantages: [[2.0, 0.0]]}}]\n"
    )
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    assert main(["check", "mine"]) == 1
    assert "advantages[0][0] is 1, expected 2 within 1e-06" in capsys.readouterr().out


def test_evidence_of_older_code_is_named_and_fails_nothing(capsys, tmp_path, monkeypatch):
    """Only what the recipe's own pieces do counts: not their comments, and no environment that the recipe does not name."""
    from flows.cli import main
    from tasks.lab.behaviour import code_of

    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    for folder in ("recipes/evidence", "advantage"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "recipes/mine.yaml").write_text("id: mine\nstages: {rl: {advantage: {piece: own}}}\n")
    assert main(["check", "mine", "--evidence"]) == 2
    assert "no evidence of mine: `espalier check mine --behaviour --record`" in capsys.readouterr().err
    piece = tmp_path / "advantage/own.py"
    piece.write_text(
        '"""About it."""\n\n\ndef own(groups, rewards, state, rng):\n    """Zero."""\n    return 0  # nothing\n'
    )
    evidence = {
        "recipe": "mine",
        "code": code_of("mine"),
        "holds": True,
        "effect": {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 8},
        "protocol": {"metric": "auc", "direction": "higher", "against": "grpo", "task": "mixed"},
        "constants": {"rl.advantage": {"piece": "own"}},
    }
    (tmp_path / "recipes/evidence/mine.json").write_text(json.dumps(evidence))

    def said():
        assert main(["check", "mine", "--evidence"]) == 0
        return capsys.readouterr().out

    assert (
        "holds     as it is    mine  behaviour  auc higher than grpo in mixed: +0.5 [0.25, 0.75], 8 seeds\n" in said()
    )
    piece.write_text('def own(groups, rewards, state, rng):\n    """Nought."""\n\n    return 0\n')
    assert "1 of 1 protocols ran the recipe's pieces as they are; 0 ran other code" in said()
    piece.write_text("def own(groups, rewards, state, rng):\n    return 1\n")
    assert (
        "holds     other code  mine" in (now := said()) and "0 of 1 protocols ran" in now and "1 ran other code" in now
    )


@pytest.mark.parametrize("mean, word", [(0.4, "holds   "), (0.0, "UNSEEN  "), (-0.4, "REVERSED")])
def test_a_protocol_that_ran_says_its_verdict(capsys, monkeypatch, mean, word):
    from flows.cli import main
    from tasks.lab import behaviour

    ran = {
        "holds": mean > 0.1,
        "effect": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "n": 8},
        "protocol": {"metric": "auc", "direction": "higher", "against": "grpo"},
        "seconds": 1.0,
    }
    monkeypatch.setattr(behaviour, "behave", lambda name, where, progress: ran)
    assert main(["check", "gigpo", "--behaviour", "--on-task"]) == (mean <= 0.1)
    assert capsys.readouterr().out.startswith(f"{word}  gigpo  auc higher than grpo: ")


def test_protocols_run_only_where_they_are_asked_for(capsys, monkeypatch):
    from flows.cli import check, main

    ran, numbers = [], []
    monkeypatch.setattr(check, "_behaviour", lambda names, record, keys: ran.append((names, record, keys)) or 0)
    monkeypatch.setattr(check, "_numeric", lambda names: numbers.append(names) or 0)
    assert main(["check", "kimi-k1.5"]) == main(["check", "--all"]) == 0
    assert numbers == [["kimi-k1.5"], NAMES] and not ran
    assert main(["check", "kimi-k1.5", "--behaviour", "--record"]) == 0
    assert ran == [(["kimi-k1.5"], True, ("behaviour", "on_task"))]
    assert main(["check", "kimi-k1.5", "--record"]) == 2
    assert "--record is for protocols: add --behaviour" in capsys.readouterr().err
    assert main(["check", "kimi-k1.5", "--on-task"]) == 2
