"""benchmarks/agent_unseen.py with three times its RL: `make bench-agent-unseen-longer`

Protocol, committed before the run: the model SHORT, the RL, the questions, the measure and the claim A of
benchmarks/agent_unseen.py (RL - SFT of pass@1 at depth 2, level 0, is above zero with its 95 % t-interval over five
seeds), with STEPS steps of RL in the place of 40, on SEEDS, of which nothing was measured before. LONG is not asked
again. Why: on the four seeds of that protocol that were there when this was written, 40 steps added 0.07, 0.05, -0.02
and 0.07, and the score of the rollouts still rose from step to step; a run of 24 and one of 60 steps from a weaker
model (benchmarks/agent_long.py, agent_longest.py) added 0.06 and 0.09. Nothing was tried at this length beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import agent, agent_long, agent_unseen

STEPS = 120
SEEDS = (21, 22, 23, 24, 25)
PROTOCOL = replace(agent_unseen.PROTOCOL, name="agent-unseen-longer", seeds=SEEDS, per_cell=1)


def one(protocol: agent.Protocol, seed: int, root: Path) -> dict[str, Any]:
    """RL of one seed from SHORT, and both models in the unseen world."""
    spent = agent_unseen.starts(root)
    knobs = {**agent_unseen.RL, "rl": {**agent_unseen.RL["rl"], "steps": STEPS}}
    spent |= agent.trained(root, agent_long.changed(seed, knobs), stages=("kb", "questions", "rl"))
    models = {name: agent.measured(protocol, seed, root, name, agent_unseen.CHAINS) for name in ("sft", "rl")}
    return {"seed": seed, "cpu_seconds": spent, "models": models, "curve": agent.curve(root)}


if __name__ == "__main__":
    agent.main(PROTOCOL, one, agent_unseen.summarise)
