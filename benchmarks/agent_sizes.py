"""Is what is hard for a small agent hard for a larger one, and what does size gain where? `make bench-agent-sizes`

Protocol, committed before the run; what is not said here is as in benchmarks/agent_unseen.py.
- Three agents (SIZES) learn from the same demonstrations of chains and trees, 200 steps on pages and 800 of SFT, and
  are asked the same questions of worlds that they never saw: ASKED of each cell, in one world for each of SEEDS. Two
  samples of each at temperature 1.
- Reported, as means over worlds with 95 % t-intervals: pass@1 and calls of each agent in each cell, beside the oracle's
  calls; and the gain of the largest over the smallest in each.
- Claims: for each size pass@1 falls from one hop to two and from two to three at level 0, and from level 0 to levels 1
  to 3 at depth 2; and the largest is right more often than the smallest at depth 2, level 0, and at levels 1 to 3.
- Before anything was measured, sizes and steps were lowered (0.2, 0.9 and 2.6 M, 300 and 1,200 steps): the cores are
  shared.
- One training for each size: the intervals are of worlds, not of trainings.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import agent, agent_long, agent_unseen
from benchmarks.learning import t_interval
from benchmarks.rows import result_row, with_intervals

PICTURE = agent.ROOT / "docs" / "images" / "agent-sizes.svg"
SIZES = {  # parameters, with 896 words
    "0.2 M": {"hidden": 64, "layers": 3, "intermediate": 192},
    "0.5 M": {"hidden": 96, "layers": 4, "intermediate": 288},
    "0.9 M": {"hidden": 128, "layers": 4, "intermediate": 384},
}
SFT = {**agent_unseen.SFT, "base_steps": 200, "steps": 800}
LEVELS = (1, 2, 3)  # no tree of these worlds reaches level 4
ASKED = {"1/0": 30, "2/0": 30, "3/0": 30, **{f"2/{level}": 20 for level in LEVELS}}
GROUPS = {
    "depth 1, level 0": ["1/0"],
    "depth 2, level 0": ["2/0"],
    "depth 3, level 0": ["3/0"],
    "depth 2, levels 1 and 2": ["2/1", "2/2"],
    "depth 2, level 3": ["2/3"],
}
VAGUE = [f"2/{level}" for level in LEVELS]
DIFFERENCES = {
    "depth 2 less depth 1, level 0": (["2/0"], ["1/0"]),
    "depth 3 less depth 2, level 0": (["3/0"], ["2/0"]),
    "levels 1 to 3 less level 0, depth 2": (VAGUE, ["2/0"]),
}
PROTOCOL = agent.Protocol(
    name="agent-sizes",
    seeds=(21, 22, 23, 24, 25),
    links=tuple(agent_unseen.RELATIONS),
    per_chain=max(ASKED.values()),
    per_cell=20,
)


def one(protocol: agent.Protocol, seed: int, root: Path) -> dict[str, Any]:
    """All agents in the unseen world of a seed."""
    spent = agents(root.parent)
    spent |= agent.trained(root, agent_long.changed(seed, agent_unseen.LONG), last="kb")
    models = {}
    for size in SIZES:
        kept = root / "artifacts" / size.replace(" ", "-")
        if not kept.exists():
            shutil.copytree(root.parent / size.replace(" ", "-") / "artifacts" / "sft", kept)
        models[size] = agent.measured(protocol, seed, root, kept.name, ASKED)
    return {
        "seed": seed,
        "cpu_seconds": spent,
        "models": models,
        "oracle": agent_unseen.oracle(protocol, seed, root, ASKED),
    }


def agents(folder: Path) -> dict[str, float]:
    """The three agents, trained below `folder` where they are not there yet; CPU seconds of what ran."""
    import torch

    torch.set_num_threads(1)
    spent: dict[str, float] = {}
    first: Path | None = None
    for size, sizes in SIZES.items():
        root = folder / size.replace(" ", "-")
        if first is not None and not root.exists():
            ignore = shutil.ignore_patterns("sft")
            shutil.copytree(first / "artifacts", root / "artifacts", ignore=ignore)
        first = first or root
        knobs = {**agent_unseen.LONG, "sft": {**SFT, **sizes}}
        ran = agent.trained(root, agent_long.changed(agent_long.START_SEED, knobs), last="sft")
        spent |= {f"{size}, {stage}": seconds for stage, seconds in ran.items()}
    return spent


def summarise(protocol: agent.Protocol, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results in the one shape of all benchmarks."""
    small, *_, large = SIZES
    device = f"{os.cpu_count()} CPU cores, {platform.machine()}"
    out: list[dict[str, Any]] = []

    def add(case: str, metric: str, values: list[float], unit: str, better: str) -> None:
        value, low, high = t_interval(values)
        more = {"better": better, "low": low, "high": high, "device": device, "torch": version("torch")}
        out.append(result_row(case, metric, value, unit, protocol.command, len(runs), **more))

    def of(run: dict[str, Any], size: str, cells: list[str], what: str = "scores") -> float:
        return agent.per_seed(run, size, what, cells)

    for case, cells in GROUPS.items():
        for size in SIZES:
            add(case, f"pass@1, {size}", [of(r, size, cells) for r in runs], "share", "higher")
        add(case, "gained by size", [of(r, large, cells) - of(r, small, cells) for r in runs], "share", "higher")
        for size in SIZES:
            add(case, f"calls, {size}", [of(r, size, cells, "calls") for r in runs], "calls", "lower")
        add(case, "calls, oracle", [agent_unseen.of_oracle(r, cells) for r in runs], "calls", "lower")
    for case, (hard, easy) in DIFFERENCES.items():
        for size in SIZES:
            add(case, f"pass@1, {size}", [of(r, size, hard) - of(r, size, easy) for r in runs], "share", "lower")
    add(
        "depth 2, levels 1 to 3",
        "gained by size",
        [of(r, large, VAGUE) - of(r, small, VAGUE) for r in runs],
        "share",
        "higher",
    )
    return out


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A panel for pass@1 and one for calls: a line per agent over the kinds of questions, and the oracle's calls."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    known = {(r["case"], r["metric"]): r for r in rows}
    colours = dict(zip(SIZES, ("#8a93a3", "#3b73c4", "#14865a"), strict=True)) | {"oracle": "#1d2330"}
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.6))
    for panel, metric in zip(panels, ("pass@1", "calls"), strict=True):
        for who in [*SIZES, *(["oracle"] if metric == "calls" else [])]:
            line = [known[case, f"{metric}, {who}"] for case in GROUPS]
            panel.errorbar(
                range(len(line)),
                *with_intervals(line),
                fmt="--" if who == "oracle" else "-",
                color=colours[who],
                label=who if who == "oracle" else f"{who} parameters",
                capsize=2,
            )
        names = ["1 hop", "2 hops", "3 hops", "2 hops,\nlevels 1, 2", "2 hops,\nlevel 3"]
        panel.set(title=metric, xticks=range(len(GROUPS)), xticklabels=names)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    agent.main(PROTOCOL, one, summarise)
    plot(json.loads(PROTOCOL.result.read_text(encoding="utf-8")), PICTURE)
