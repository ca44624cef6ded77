"""The agent of benchmarks/agent.py with the training that its first protocol was too short for: `make bench-agent-long`

Protocol, committed before the run: all of benchmarks/agent.py, its claim and its seeds, with LONG in the place of its numbers. The first protocol
showed why: after 250 steps the SFT model answers one training question in ten and hardly any of the unseen world's beyond one hop, so of the
eight prompts of an RL step one or two have a group that is right now and then wrong: there was nothing to improve on. And it wrote names that
it knew in the place of names that it read, so the world that it learns from has twice as many, and each is seen half as often.
"""

from __future__ import annotations

from benchmarks import agent

LONG = {
    "kb": {"world_countries": 2 * agent.COUNTRIES},
    "questions": {"n_train": 3000, "n_tree_train": 3000},
    "trajectories": {"n_browse": 5000},
    "sft": {"steps": 1500},
    "rl": {"steps": 80, "prompts_per_step": 12},
}

if __name__ == "__main__":
    for stage, knobs in LONG.items():
        agent.SET[stage] |= knobs
    agent.PER_CELL = 40
    agent.main("agent-long")
