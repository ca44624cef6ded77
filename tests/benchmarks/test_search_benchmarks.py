"""What the benchmarks of the agent and of the four systems around search make of what they measured: no training
here."""

import math

import numpy as np
import pytest

from benchmarks import agent, agent_long, agent_longest, search_methods
from tasks.planning import plan
from tests.support import planned

CELLS = ["1/0", "2/0", "2/1", "2/2", "2/3", "2/4", "3/0", "3/1", "3/2", "3/3", "3/4"]


def run(seed: int, gain: float) -> dict:
    """A seed whose scores fall by a tenth with each depth and level, and whose calls are depth + level; RL gains alike
    everywhere."""

    def cells(more: float) -> dict:
        each = {c: (1 - 0.1 * (int(c[0]) + int(c[2])) + more, float(int(c[0]) + int(c[2]))) for c in CELLS}
        return {c: {"scores": [[s, s], [s, s]], "calls": [[n, n], [n, n]]} for c, (s, n) in each.items()}

    return {"seed": seed, "models": {"sft": cells(0.0), "rl": cells(gain)}}


def test_the_agents_numbers_by_depth_and_level():
    results = agent.summarise(agent.PROTOCOL, [run(1, 0.1), run(2, 0.3)])
    rows = {(r["case"], r["metric"]): r for r in results}
    at = rows["depth 2", "pass@1"]
    assert at["value"] == pytest.approx(1 - 0.1 * (2 + 2) + 0.2) and at["peers"] == {
        "sft": pytest.approx(0.6)
    }  # levels 0 to 4: 2 on average
    gain = rows["depth 2", "pass@1, RL less SFT"]
    half = 12.7062047 * 0.1  # t of one degree of freedom at 0.975, times the standard error of 0.1 and 0.3
    assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((0.2, 0.2 - half, 0.2 + half)) and gain["n"] == 2
    assert rows["depth 2, level 0", "pass@1, RL less SFT"]["value"] == pytest.approx(0.2)
    assert rows["depth 3, level 4", "tool calls"]["value"] == 7.0 and len(rows) == len(results)
    assert rows["depth 3 less depth 2, levels 1 to 4", "pass@1, difference"]["value"] == pytest.approx(-0.1)
    assert rows["levels 3 and 4 less levels 1 and 2", "tool calls, difference"]["value"] == pytest.approx(2.0)


def test_the_training_world_has_none_of_the_cells_that_are_vague_and_deep():
    assert agent.SET["questions"]["depths"] == [2] and agent.SET["rl"]["envs"] == [agent.ENV]
    assert agent.SET["demonstrations"]["max_calls"] == agent.ENV["max_calls"]


def test_the_long_protocol_names_knobs_that_there_are_and_plays_by_the_same_rules():
    for knobs, stages in ((agent_long.START, agent.STAGES[:-1]), (agent_long.RL, ("kb", "questions", "rl"))):
        # Raises for a knob that there is not.
        plans = plan.plans(agent.ROOT, changed=lambda params, k=knobs: {**params, **agent_long.changed(1, k)})
        for stage in stages:
            assert planned.holds(plans[stage]["params"], knobs.get(stage, {}))
    assert agent.ENV.items() <= plans["rl"]["params"]["envs"][0].items()
    assert agent_long.START_SEED not in agent.PROTOCOL.seeds and not {
        agent_long.START_SEED,
        *agent.PROTOCOL.seeds[:3],
    } & set(agent_longest.SEEDS)


def test_means_over_what_a_policy_believes():
    assert search_methods.share(np.log([0.2, 0.2, 0.1]), np.array([0.0, 1.0, 5.0])) == pytest.approx(0.7 / 0.5)
    problems, told = search_methods.scoring()
    assert len(problems) == 12 and sum(p for _, p in told) == pytest.approx(12.0)
    mean = {label: 0.0 for label in (0, 1)}
    for (question, reply), p in told:
        label = next(x.lineage["relevant"] for x in problems if x.question == question.content)
        mean[label] += p * int(reply.content.removeprefix("<answer>").removesuffix("</answer>")) / 6
    assert mean[1] == pytest.approx(50.0) and mean[0] == pytest.approx(46.8)


def test_the_judge_reads_scores_and_nothing_else():
    one = search_methods.scoring()[0][1]
    state, _ = search_methods.Judge().start(one, {})
    _, over, score = search_methods.Judge().step(state, "<answer>70</answer>")
    assert over and score.value == 1.0 and score.parts["score"] == 70.0 and score.parts["relevant"] == 1.0
    assert search_methods.Judge().step(state, "<answer>7x</answer>")[2].parts["parsed"] == 0.0
    assert math.isfinite(search_methods.Judge().step(state, "")[2].value)
