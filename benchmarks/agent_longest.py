"""benchmarks/agent_long.py with more of its RL: `make bench-agent-longest`

Protocol, committed before the run: all of benchmarks/agent_long.py, its start model, its measures and its claim (RL -
SFT of pass@1 at depth 2, level 0, is above zero with its interval), with STEPS steps of RL in the place of 24, on
SEEDS, of which nothing was measured before. Why: the 24 steps raised it on each of the first three seeds (0.02, 0.09,
0.08), but three are few for an interval, and of the 16 groups of a step about five were right now and then wrong, so
all of RL had learned from some 120 groups.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks import agent, agent_long

STEPS = 60
SEEDS = (4, 5, 6, 7, 8)
PROTOCOL = replace(agent_long.PROTOCOL, name="agent-longest", seeds=SEEDS)

if __name__ == "__main__":
    longer = {**agent_long.RL, "rl": {**agent_long.RL["rl"], "steps": STEPS}}
    agent.main(PROTOCOL, partial(agent_long.one, rl=longer))
