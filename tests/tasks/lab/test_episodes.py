"""Worlds of conversations: what the base policy is shown is played in the real environments, and recipes play in their
own."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from synth.types import Message, Problem, Scored
from synth.verify import verify
from tasks.lab import arena, behaviour, episodes
from training.env.retry import retry
from training.env.wait import wait


@pytest.mark.parametrize("name", episodes.WORLDS)
def test_what_the_base_policy_says_is_understood(name):
    """No turn is malformed, every episode ends with a score, and the same episodes come again."""
    stage = episodes.WORLDS[name]()
    assert name not in arena.WORLDS and len(episodes.WORLDS[name].__doc__) > 40
    distinct, rng = set(), np.random.default_rng(0)
    for env in stage.shown:
        for problem in stage.problems * 4:
            state, messages = env.start(problem, stage.tools)
            over, heard, t = False, messages[-1].content, 0
            while not over:
                texts = stage.says(problem, t, heard)
                weights = np.array(list(texts.values()))
                assert (weights > 0).all()
                text = list(texts)[rng.choice(len(weights), p=weights / weights.sum())]
                told, over, score = env.step(state, text)
                distinct.add(text)
                history = state.pop("history", None)
                heard, t = heard if over else (history or told)[-1].content, t + 1
            assert (
                isinstance(score, Scored)
                and not score.parts.get("malformed")
                and not score.parts.get("failed")
                and score.parts.get("format", 1) == 1
            )
    assert len(distinct) > 2
    assert episodes._demonstrations(name, stage) == episodes._demonstrations(name, episodes.WORLDS[name]())


def test_a_rewritten_history_is_a_row_of_its_own():
    stage = episodes.WORLDS["partners"]()
    rows = episodes._demonstrations("partners", stage)
    heard = [row for row in rows if row[0].content == "Your half of the question: ... is it"]
    assert heard and all([m.role for m in row] == ["user", "user", "assistant"] for row in heard)


def test_a_recipe_plays_in_its_own_environment_and_parts_of_scores_are_measured():
    here = episodes.hosted("again", steps=1)
    bound = partial(retry, most=1)
    bound.piece = "env/retry"
    player = here.player(envs=[bound], max_turn_tokens=4, max_tokens=64)
    assert player.envs["retry"].most == 1 and here.envs["retry"].most == 3
    assert player.sampler.model is not here.base
    groups = player.play(here.world.problems[:2], 3, 1)
    means = episodes.parts(groups)
    assert means["part.tries"] == np.mean([r.score.parts.get("tries", 0.0) for g in groups for r in g.rollouts])
    assert behaviour._sampled("part.tries") and not behaviour._sampled("auc")


def test_parts_that_are_declared_are_zero_where_no_score_has_them():
    """A protocol that measures one of them would fail for a policy that has not learned the form, or never comes to an end."""
    problem = Problem.make(
        prompt=[Message(role="user", content="Which elements are shown?")],
        answer="button 1 1 7 7",
        verifier="elements",
        family="screen_tasks",
        env="retry",
        split="test",
    )
    rollouts = [SimpleNamespace(problem=problem, score=verify(problem, reply)) for reply in ("nothing", "")]
    means = episodes.parts([SimpleNamespace(rollouts=rollouts)])
    of_verifier, of_env = ("parsed", "iou", "type", "exact"), ("tries", "distinct", "right", "answered")
    assert means == {f"part.{name}": 0.0 for name in (*of_verifier, *of_env)}
    rollouts.append(SimpleNamespace(problem=problem, score=verify(problem, "button 1 1 7 7")))
    assert episodes.parts([SimpleNamespace(rollouts=rollouts)])["part.exact"] == pytest.approx(1 / 3)


def test_a_second_look_gains_what_the_last_verdict_scores_more_than_the_first():
    env, problem = wait(times=1), episodes.appeals().problems[0]
    right, wrong = (f"<answer>{x}</answer>" for x in (problem.answer, "3"))

    def gained(*turns):
        state, _ = env.start(problem, {})
        return [env.step(state, text) for text in turns][-1][2].parts["gained"]

    assert [gained(*t) for t in ((wrong, right), (right, wrong), (right, right), (wrong, wrong), ("", right))] == [
        1.0,
        -1.0,
        0.0,
        0.0,
        1.0,
    ]
