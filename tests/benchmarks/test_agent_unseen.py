"""What benchmarks/agent_unseen.py makes of what it measured, and that it names knobs that there are: no training
here."""

import pytest

from benchmarks import agent, agent_long, agent_longest, agent_unseen
from tasks.planning import plan
from tests.support import planned


def run(seed: int, gain: float) -> dict:
    """A seed whose scores fall by a tenth with each depth and level, and whose calls are depth + level; RL gains alike
    everywhere."""

    def cells(names: dict, more: float) -> dict:
        each = {c: (1 - 0.1 * (int(c[0]) + int(c[2])) + more, float(int(c[0]) + int(c[2]))) for c in names}
        return {c: {"scores": [[s, s]], "calls": [[n, n]]} for c, (s, n) in each.items()}

    long, chains = agent_unseen.ASKED, agent_unseen.CHAINS
    models = {"long": cells(long, 0.0), "sft": cells(chains, 0.0), "rl": cells(chains, gain)}
    return {"seed": seed, "models": models, "oracle": {c: [1, int(c[0])] for c in long}}


def test_cells_the_differences_between_them_and_what_rl_adds():
    rows = agent_unseen.summarise(agent_unseen.PROTOCOL, [run(1, 0.1), run(2, 0.3)])
    at = {(r["case"], r["metric"]): r for r in rows}
    assert len(at) == len(rows) and {r["n"] for r in rows} == {2}
    gain = at["depth 2, level 0: RL less SFT", "pass@1"]
    half = 12.7062047 * 0.1  # t of one degree of freedom at 0.975, times the standard error of 0.1 and 0.3
    assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((0.2, 0.2 - half, 0.2 + half))
    assert at["depth 2, level 0: RL from it", "pass@1"]["value"] == pytest.approx(1.0)
    assert at["depth 3, level 4: long SFT", "tool calls"]["value"] == 7.0
    assert at["depth 3, level 4: long SFT", "tool calls, oracle"]["value"] == 2.0
    for case, fall in (
        ("level 0: depth 2 less depth 1", 1),
        ("levels 1 to 4: depth 3 less depth 2", 1),
        ("depth 2: levels 1 and 2 less level 0", 1.5),
        ("depth 2: levels 3 and 4 less levels 1 and 2", 2),
    ):
        assert at[f"{case}: long SFT", "pass@1"]["value"] == pytest.approx(-0.1 * fall)
        assert at[f"{case}: long SFT", "tool calls"]["value"] == pytest.approx(fall)


def test_the_protocol_names_knobs_that_there_are_and_seeds_of_which_nothing_was_measured():
    started = (agent_unseen.LONG, agent.STAGES[:-1]), (agent_unseen.SHORT, agent.STAGES[:-1])
    for knobs, stages in (*started, (agent_unseen.RL, ("kb", "questions", "rl"))):
        # Raises for a knob that there is not.
        plans = plan.plans(agent.ROOT, changed=lambda params, k=knobs: {**params, **agent_long.changed(1, k)})
        for stage in stages:
            assert planned.holds(plans[stage]["params"], knobs.get(stage, {}))
    assert not {agent_long.START_SEED, *agent.PROTOCOL.seeds, *agent_longest.SEEDS} & set(agent_unseen.SEEDS)
