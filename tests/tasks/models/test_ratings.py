"""Two checkpoints rate problems, and a filter drops by their rates."""

from types import SimpleNamespace

import numpy as np
import pytest

from tasks.core.errors import UserError
from tasks.lab import toy
from tasks.models.ratings import configured, rated
from training.rl.filter.two_models import two_models

SPEC = {"weak": "a", "strong": "b", "tries": 4}


def test_rates_are_shares_of_scored_answers_and_stand_in_the_lineage():
    problems = toy.problems(3)
    says = {"a": ([1, 0, 0, np.nan], [0.5, 0, 0, 0], [np.nan] * 4), "b": ([1, 1, 1, 0], [0] * 4, [1] * 4)}
    calls = []

    def player_of(folder):
        def play(some, tries, *seed):
            calls.append((folder, len(some), tries, seed))
            first = seed[-1]
            return [SimpleNamespace(rewards=np.array(says[folder][first + i])) for i in range(len(some))]

        return SimpleNamespace(play=play)

    out = rated(SPEC, problems, player_of, 7, at_once=2)
    # One right of three scored; what is paid half is not solved; no score, no rate.
    assert [p.lineage["rates"] for p in out] == [
        {"weak": pytest.approx(1 / 3), "strong": 0.75},
        {"weak": 0.0, "strong": 0.0},
        {"strong": 1.0},
    ]
    assert [p.id for p in out] == [p.id for p in problems]
    assert [x[:3] for x in calls] == [("a", 2, 4), ("a", 1, 4), ("b", 2, 4), ("b", 1, 4)]
    assert len({x[3] for x in calls}) == 4, "each draws from its own stream"


def test_the_filter_reads_the_rates_of_the_problem():
    from dataclasses import replace

    groups = toy.groups([[1, 0], [1, 0], [1, 0], [1, 0]])
    rates = [{"weak": 1.0, "strong": 1.0}, {"weak": 0.0, "strong": 0.0}, {"weak": 0.5, "strong": 0.25}, {"strong": 1.0}]
    groups = [
        replace(
            g,
            rollouts=tuple(replace(r, problem=replace(r.problem, lineage={"rates": rate})) for r in g.rollouts),
        )
        for g, rate in zip(groups, rates, strict=True)
    ]
    verdicts = two_models(groups, [g.rewards for g in groups], {}, np.random.default_rng(0))
    assert verdicts == ["too_easy", "too_hard", "mislabelled", None]


@pytest.mark.parametrize(
    "spec, says",
    [
        ({"weak": "a"}, "strong is missing"),
        ({**SPEC, "tires": 3}, "unknown key 'tires'"),
        ({**SPEC, "tries": 0}, "tries is 0: give the number"),
    ],
)
def test_a_wrong_setting_is_one_sentence(spec, says):
    with pytest.raises(UserError, match=says):
        configured(spec)
