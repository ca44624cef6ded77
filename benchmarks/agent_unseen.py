"""Does the agent learn at depth 2 in a world that it never saw, and does difficulty grow with depth and vagueness?
`make bench-agent-unseen`

Protocol, committed before the run; what is not said here is as in benchmarks/agent.py and benchmarks/agent_long.py.
- Two models that have seen nothing but the world of seed 0, and that under made-up names (numbers that are answers
  among them). Both are of 0.9 M parameters, four layers, and begin with the same 500 steps on pages. LONG then has
  2,400 steps of SFT on demonstrations of chains and trees; SHORT has 600 on chains of one and two hops alone: fewer
  demonstrations, where RL has room (LONG is right about 0.95 of the two-hop chains of seed 101's unseen world; twelve
  steps of RL on trees did not raise its 0.34 there, and more do not fit the time).
- LONG says how difficulty grows: per seed, ASKED questions of each cell of an unseen world, whose entities and facts
  stand in nothing that was trained on. Trees may speak of continents, too: with links alone the oracle makes as many
  calls at level 3 as at level 1 (5.1, 5.1, 5.3, 6.1 at depth 2, levels 1 to 4), with them 5.1, 5.2, 7.1, 7.5. Trees of
  depth 3 were not trained on.
- SHORT is where each seed's RL begins, in the training world of the seed, of which it saw no demonstration, on chains
  of one and two hops. It is measured before and after RL on CHAINS questions of each cell of the same unseen world.
- Two samples of each question at temperature 1, the same random numbers for all models.
- Claims, each with its 95 % t-interval over the five SEEDS, of which nothing was measured before:
  A  RL - SFT of pass@1 at depth 2, level 0, is above zero (the claim that agent_long.py and agent_longest.py missed).
  B  With depth LONG's pass@1 falls and its calls rise: at level 0 depth 2 less 1 and 3 less 2, at levels 1 to 4 depth 3
  less 2.
  C  With vagueness they do, too: at depth 2, levels 1 and 2 less level 0.
  D  And further: at depth 2, levels 3 and 4 less levels 1 and 2. On seed 101 LONG shows nothing of it (20 questions of
  each level: 0.30, 0.28,
     0.58, 0.20 right; 5.4, 5.5, 5.1, 5.5 calls), so a miss is likely. The calls of the oracle stand beside.
- Tried on seed 101 alone: 40 steps of RL on chains, three in ten of one hop, at a learning rate of 0.001: 0.26 to 0.33
  at two hops (60 questions). Two to eight of the 16 groups of a step were right now and then; so here nine in ten have
  two hops, and the rate is 0.0015.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import agent, agent_long
from benchmarks.learning import t_interval
from benchmarks.rows import result_row

SEEDS = (11, 12, 13, 14, 15)
RELATIONS = [*agent.LINKS, "continent"]  # of trees
SFT = {**agent_long.START["sft"], "max_length": 896, "layers": 4, "base_steps": 500, "context_weight": 0.1}
LONG: dict[str, dict[str, Any]] = {
    "questions": {"n_train": 3000, "hops": [0.25, 0.5, 0.25], "n_tree_train": 4400, "only": RELATIONS},
    "demonstrations": {"n_browse": 6500},
    "sft": {**SFT, "steps": 2400},
}
SHORT: dict[str, dict[str, Any]] = {
    "questions": {"n_train": 3000, "hops": [0.4, 0.6], "n_tree_train": 0},
    "demonstrations": {"n_browse": 3000},
    "sft": {**SFT, "steps": 600},  # from the base of LONG
}
RL: dict[str, dict[str, Any]] = {
    "questions": {"n_train": 2000, "hops": [0.1, 0.9], "n_tree_train": 0},
    "rl": {"steps": 40, "prompts_per_step": 16, "optimizer": {"lr": 1.5e-3}},
}
TREES = {f"{depth}/{level}": n for depth, n in ((2, 30), (3, 12)) for level in agent.LEVELS}
ASKED = {"1/0": 30, "2/0": 30, "3/0": 30, **TREES}
CHAINS = {"1/0": 30, "2/0": 120}
PROTOCOL = agent.Protocol(
    name="agent-unseen",
    seeds=SEEDS,
    links=tuple(RELATIONS),
    per_chain=max(CHAINS.values()),
    per_cell=max(TREES.values()),
)


def one(protocol: agent.Protocol, seed: int, root: Path) -> dict[str, Any]:
    """RL of one seed from SHORT; LONG, SHORT and what RL made of it in the unseen world."""
    spent = starts(root)
    spent |= agent.trained(root, agent_long.changed(seed, RL), stages=("kb", "questions", "rl"))
    models = {
        name: agent.measured(protocol, seed, root, name, per_cell)
        for name, per_cell in (("long", ASKED), ("sft", CHAINS), ("rl", CHAINS))
    }
    return {
        "seed": seed,
        "cpu_seconds": spent,
        "models": models,
        "oracle": oracle(protocol, seed, root),
        "curve": agent.curve(root),
    }


def starts(root: Path) -> dict[str, float]:
    """LONG and SHORT, trained where they are not there yet, as the artifacts `long` and `sft` of a seed; CPU seconds of
    what ran."""
    import torch

    torch.set_num_threads(1)
    spent = {}
    for name, knobs in (("long", LONG), ("short", SHORT)):
        if name == "short":
            knobs = {
                **knobs,
                "sft": {**knobs["sft"], "model": str(root.parent / "long" / "artifacts" / "sft" / "base")},
            }
        seconds_of = agent.trained(root.parent / name, agent_long.changed(agent_long.START_SEED, knobs), last="sft")
        spent |= {f"{name}, {stage}": seconds for stage, seconds in seconds_of.items()}
    for name, kept in (("long", "long"), ("short", "sft")):
        if not (root / "artifacts" / kept).exists():
            shutil.copytree(root.parent / name / "artifacts" / "sft", root / "artifacts" / kept)
    return spent


def oracle(protocol: agent.Protocol, seed: int, root: Path, asked: Mapping[str, int] = ASKED) -> dict[str, list[int]]:
    """Cell -> the calls that the oracle makes for each question that is asked: a lower bound of the work."""
    from synth.search.index import build_index, pages_of_kb
    from synth.search.searchers import World, run
    from synth.search.searchers.oracle import oracle
    from tasks.knowledge import knowledge

    cells = agent.unseen(protocol, seed, root)
    kb = knowledge.kb_at(root / "unseen")
    index, world = build_index(pages_of_kb(kb)), World.of(kb)
    return {c: [run(oracle, p, index, world).calls for p in some] for c, some in agent.first(cells, asked).items()}


def summarise(protocol: agent.Protocol, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results in the one shape of all benchmarks: a row of LONG per cell, the differences between cells, and what RL
    adds to SHORT."""
    device = f"{os.cpu_count()} CPU cores, {platform.machine()}"
    out: list[dict[str, Any]] = []

    def row(case: str, more: tuple[str, Sequence[str]], less: tuple[str, Sequence[str]] | None = None) -> None:
        for metric, unit, better, what in (
            ("pass@1", "share", "higher", "scores"),
            ("tool calls", "calls", "lower", "calls"),
        ):
            values = [
                agent.per_seed(r, more[0], what, more[1]) - (agent.per_seed(r, less[0], what, less[1]) if less else 0.0)
                for r in runs
            ]
            add(case, metric, values, unit, better)
        if more[0] == "long":
            values = [of_oracle(r, more[1]) - (of_oracle(r, less[1]) if less else 0.0) for r in runs]
            add(case, "tool calls, oracle", values, "calls", "lower")

    def add(case: str, metric: str, values: list[float], unit: str, better: str) -> None:
        value, low, high = t_interval(values)
        out.append(
            result_row(
                case,
                metric,
                value,
                unit,
                protocol.command,
                len(runs),
                better=better,
                low=low,
                high=high,
                device=device,
                torch=version("torch"),
            )
        )

    for cell in CHAINS:
        at = f"depth {cell[0]}, level 0"
        row(f"{at}: short SFT", ("sft", [cell]))
        row(f"{at}: RL from it", ("rl", [cell]))
        row(f"{at}: RL less SFT", ("rl", [cell]), ("sft", [cell]))
    if any("long" not in r["models"] for r in runs):  # benchmarks/agent_unseen_longer.py
        return out
    for cell in sorted(c for c in ASKED if all(c in r["models"]["long"] for r in runs)):
        row(f"depth {cell[0]}, level {cell[2]}: long SFT", ("long", [cell]))
    for case, more, less in (
        ("level 0: depth 2 less depth 1", _at(2, 0), _at(1, 0)),
        ("level 0: depth 3 less depth 2", _at(3, 0), _at(2, 0)),
        ("levels 1 to 4: depth 3 less depth 2", _at(3, *agent.LEVELS), _at(2, *agent.LEVELS)),
        ("depth 2: levels 1 and 2 less level 0", _at(2, 1, 2), _at(2, 0)),
        ("depth 2: levels 3 and 4 less levels 1 and 2", _at(2, 3, 4), _at(2, 1, 2)),
        ("depth 3: levels 3 and 4 less levels 1 and 2", _at(3, 3, 4), _at(3, 1, 2)),
    ):
        row(f"{case}: long SFT", ("long", more), ("long", less))
    return out


def _at(depth: int, *levels: int) -> list[str]:
    return [f"{depth}/{level}" for level in levels]


def of_oracle(run: dict[str, Any], cells: Sequence[str]) -> float:
    """The mean over cells of the oracle's mean calls."""
    there = [run["oracle"][c] for c in cells if c in run["oracle"]]
    return sum(sum(calls) / len(calls) for calls in there) / len(there)


if __name__ == "__main__":
    agent.main(PROTOCOL, one, summarise)
