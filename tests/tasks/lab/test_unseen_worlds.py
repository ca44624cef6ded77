"""Worlds that measure what neither side has learned from: it is made of the same words or tools and is none of the problems trained on."""

from typing import Any, cast

import numpy as np
import pytest

from synth.types import Problem
from synth.verify import verify
from synth.verify.pipeline import misfit
from tasks.lab import episodes, registry, stage_worlds, starts, tone_worlds


@pytest.mark.parametrize("make", [episodes.velic_apart, episodes.assembly])
def test_what_is_measured_is_made_of_what_is_learned_from_and_is_none_of_it(make):
    stage = make()
    train, held = stage.problems[: -stage.held], stage.problems[-stage.held :]
    assert (len(train), len(held)) == (12, 4)
    words = {x for p in train for x in p.answer.split()}
    assert all(set(p.answer.split()) <= words for p in held)
    assert not {p.answer for p in held} & {p.answer for p in train}
    assert all(p.lineage["demonstration"] for p in train), "the control clones them"


def test_a_sentence_is_right_one_time_in_eight_at_first():
    stage = episodes.velic_apart()
    p = stage.problems[0]
    shares = stage.says(p, 0, "")
    right = sum(share for text, share in shares.items() if f"<answer>{p.answer}<" in text)
    assert sum(shares.values()) == pytest.approx(1.0) and right == pytest.approx(0.5**3)


def test_a_planner_says_what_fits_and_the_right_tool_half_of_the_time():
    stage = episodes.assembly()
    p = stage.problems[0]
    first, second, *_ = p.lineage["demonstration"]
    shares = stage.says(p, 0, "Say one tool at a time. Now: text.")
    assert shares[first] == pytest.approx(0.5) and sum(shares.values()) == pytest.approx(1.0)
    assert not any(misfit([x]) for x in shares) and "done" not in shares
    assert "done" in stage.says(p, 1, "Now: words.")


def test_tables_are_read_as_they_are():
    stage = episodes.readings_of_markets()
    families = [p.family for p in stage.problems]
    assert [families.count(x) for x in ("response", "reading", "equilibrium")] == [16, 16, 4] and stage.held == 4
    for p in (p for p in stage.problems if p.family == "reading"):
        told, _, question = p.question.rpartition(". Row chooses ")
        row, column = question.partition(". ")[0].split(", Column ")
        cell = next(c for c in told.rpartition(": ")[2].split("; ") if c.startswith(f"{row} {column} "))
        assert p.answer == cell.split()[2 if question.endswith("What does Row get?") else 3]
        assert len(stage.says(p, 0, "")) == 4, "the right payoff and a wrong one, with thoughts and without"


def test_proofs_are_checked_where_they_are_measured_whatever_was_learned_in(monkeypatch):
    told, nothing = object(), cast(Any, None)
    p = Problem.make(prompt="q", answer="a = b", verifier="exact", env="retry", family="proofs", split="test")
    task = starts.Task(train=[p], held=[p], shown=[], solved=[], envs={"retry": told})
    plain = starts.Start(world=nothing, base=nothing, renderer=nothing, envs={"retry": told}, task=task)
    monkeypatch.setattr(starts, "start", lambda name: plain)
    here = starts.checked_proofs()
    assert [p.env for p in here.measured] == ["checked"] and here.envs["checked"] is told
    assert [p.env for p in task.train] == ["retry"]


def test_ten_arms_with_nothing_planted_differ_by_seed_and_the_rule_is_asked():
    measures = [registry.train("any_arms", "rlhf-targeted-exploration", {}, 60, seed) for seed in (1, 2)]
    assert measures[0]["regret"] != measures[1]["regret"] and all(x["regret"] > 0 for x in measures)


def test_strangers_share_themes_and_no_word_with_clients():
    clients, strangers = tone_worlds._clients(), tone_worlds._strangers()
    words = {x for p in clients for x in p.question.split()}
    assert not words & {x for p in strangers for x in p.question.split()}
    meant = lambda people: [tone_worlds.inferred(p.question, tone_worlds.MEANT) for p in people]
    assert sorted(meant(clients)) == sorted(meant(strangers))
    base = registry.train("clients_apart", "base", {}, 0, 1)
    assert base["passes"] == pytest.approx(0.7 / 6, abs=0.03), "seven in ten are right, one tone of six is the best"


@pytest.mark.slow
def test_no_stage_of_yi_lightning_lowers_the_held_out_measure_by_a_point():
    changes = {"prefer": {"optimizer": {"lr": 3e-4}}}
    begun, ended = (registry.train("staged", x, changes, 12, 101) for x in ("base", "yi-lightning"))
    assert ended["lost"] <= 0.01 and ended["solved"] >= begun["solved"] + 0.1


def test_the_sums_of_the_stages_are_right_and_unseen():
    train, held = stage_worlds._problems("train"), stage_worlds._problems("test")
    assert not {p.question for p in train} & {p.question for p in held}
    for p in held:
        solution = p.lineage["solution"]
        assert solution[: len(p.question)] == "".join(str(x) for x in np.cumsum([int(c) for c in p.question]) % 10)
        assert (
            solution == f"{solution[: len(p.question)]}<answer>{p.answer}</answer>"
            and getattr(verify(p, p.answer), "value", 0.0) == 1.0
        )
