"""The coverage report finds what is planted, counts every recipe on its axes, and lists cells that nothing covers."""

import json

from flows import cli
from tasks.lab.coverage import AXES, coverage, of_the_library, pieces

ONE = {
    "rl": {"advantage": {"piece": "grpo"}, "policy_loss": {"piece": "clip"}, "rewards": [{"piece": "overlong"}]},
    "questions": {"n_train": 5},
}
TWO = {"prefer": {"loss": "dpo"}, "evaluate": {"samples": 4}}


def test_three_planted_holes_are_found():
    covered = coverage({"one": ONE, "two": TWO})
    assert (
        covered.axes["data"] == ("one",)
        and covered.axes["advantages"] == ("one",)
        and covered.axes["evaluation"] == ("two",)
    )
    assert [a for a in AXES if not covered.axes[a]] == ["context", "system"], "two axes"
    assert "policy gradient, by token" in covered.empty and covered.cells["clipped", "answer"] == ("one",)
    assert covered.cells["offline pairs", "answer"] == ("two",)
    assert (
        "advantage/rloo" in covered.unused
        and "advantage/grpo" not in covered.unused
        and "preference_loss/dpo" not in covered.unused
    )


def test_pieces_of_lists_and_single_ones():
    assert pieces("rl", ONE["rl"]) == ["advantage/grpo", "policy_loss/clip", "reward/overlong"]
    assert pieces("prefer", {"loss": "apo-down", "optimizer": {"lr": 1}}) == ["preference_loss/apo_down"]
    assert pieces("rl", {"critic": {"loss": "squared", "lr": 1}}) == ["value_loss/squared"]


def test_the_library_settles_every_axis():
    covered = of_the_library()
    assert covered.recipes > 60 and all(covered.axes[a] for a in AXES)
    for cell in (
        ("clipped", "answer"),
        ("clipped", "turn"),
        ("clipped with a critic", "token"),
        ("policy gradient", "answer"),
        ("offline pairs", "answer"),
    ):
        assert covered.cells[cell], cell


def test_the_command(capsys):
    assert cli.main(["recipes", "--coverage"]) == 0
    output = capsys.readouterr().out
    assert "Nothing covers:" in output and "advantages" in output
    assert cli.main(["recipes", "--json"]) == 0
    assert {"id", "title", "citation"} <= set(json.loads(capsys.readouterr().out)[0])
