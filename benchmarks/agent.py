"""Does an agent with search, open and find learn by reinforcement what it was not shown, in a world that it never saw?
`make bench-agent`

Protocol, committed before the run:
- A seed (Protocol.seeds, in this order) is the seed of the whole run: world, questions, demonstrations, order, sampling.
  Everything that SET does not name is the default of the project (profile cpu) with the recipe infoagent; one thread,
  so that two seeds fit two cores.
- All seeds start from one model: that of the stage sft of the default run (seed 0), which knows the search tool alone.
  Per seed: a fictional world; chain questions of one to three hops in which nothing is vague (level 0) and fuzzy trees
  of depth 2 at levels 1 to 4; demonstrations of the oracle with open, find and a detour by search now and then; `sft`
  on these; `rl` from that.
- Measured in a second world of the same size, all of whose names are new: questions of its test roots, per_cell of each
  depth (1 to 3) and level (0 to 4, depths 2 and 3 alone have levels above 0); SAMPLES samples each at temperature 1,
  the same random numbers for both models.
- Reported: the mean over seeds of pass@1 and of tool calls by depth and level, of both models; the paired difference RL
  - SFT at each depth with the 95 % t-interval over seeds. The claim under test: RL - SFT at depth 2, the mean over
  levels 0 to 4, is above zero with its interval. Published beside it: the same over levels 1 to 4, and the slopes of
  difficulty (depth 3 less depth 2, levels 3 and 4 less 1 and 2) of the RL agent's pass@1 and calls. Depth 3 with vague
  clues was never trained on.
- Before any RL step was taken, its number was lowered from 40 to 28 and per_cell from 30 to 20: forty other processes
  shared the two cores.
- A machine with little time runs the first seeds alone (--seeds N); n says how many there are.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning import t_interval
from benchmarks.rows import result_row

SAMPLES = 2
# No numbers and no continents: tables of the one and lists of the other are longer than so small a model reads.
LINKS = "capital currency language border president country mayor flows_through mouth spring mountain_in birthplace teacher seat founder".split()
ENV = {"piece": "search", "tools": ["search", "open", "find"], "max_calls": 10, "max_context": 2400}
COUNTRIES, DEPTHS, LEVELS = 120, (2, 3), (1, 2, 3, 4)
SET: dict[str, dict[str, Any]] = {
    "kb": {"sources": [], "world_countries": COUNTRIES},
    "questions": {
        "n_train": 2000,
        "n_valid": 0,
        "n_test": 0,
        "hops": [0.4, 0.4, 0.2],
        "n_tree_train": 2000,
        "n_tree_valid": 0,
        "n_tree_test": 0,
        "depths": [2],
        "levels": list(LEVELS),
        "only": LINKS,
    },
    "problems": {"families": [{"piece": "list_sorting", "levels": [1]}], "n_train": 10, "n_valid": 0, "n_test": 0},
    "demonstrations": {
        "n": 0,
        "n_valid": 0,
        "n_family": 0,
        "n_browse": 2400,
        "searcher": "oracle",
        "detour": 0.1,
        "max_calls": ENV["max_calls"],
        "max_context": ENV["max_context"],
        "long_calls": 1,
    },
    "sft": {"max_length": 896, "steps": 250, "rows_per_step": 12},
    "rl": {
        "steps": 28,
        "prompts_per_step": 8,
        "samples_per_prompt": 8,
        "refill": 0,
        "filters": [{"piece": "pass_rate_band", "low": 0.1, "high": 0.9}],
        "envs": [ENV],
        "sampling": {"max_turn_tokens": 32, "max_tokens": 896},
    },
}
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What a run of this benchmark, or of one that builds on it, is known by and what it asks."""

    name: str = "agent"
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    per_chain: int = 20  # questions of each depth at level 0
    per_cell: int = 20  # of each depth and level above
    links: Sequence[str] = tuple(LINKS)  # relations of the trees above level 0

    @property
    def command(self) -> str:
        return f"make bench-{self.name}"

    @property
    def result(self) -> Path:
        return ROOT / "benchmarks" / "results" / f"{self.name}.json"

    @property
    def runs(self) -> Path:
        """One file per finished seed: every score and call, and the commit that it ran on."""
        return ROOT / "benchmarks" / "runs" / self.name


PROTOCOL = Protocol()


def one(protocol: Protocol, seed: int, root: Path) -> dict[str, Any]:
    """Train one seed below `root`, which is made a small project of its own, and measure both models in the unseen
    world."""
    import torch

    torch.set_num_threads(1)
    sft = {**SET["sft"], "model": str(base(root.parent))}
    spent = trained(root, {"seed": seed, "recipe": "infoagent", "set": {**SET, "sft": sft}})
    return {
        "seed": seed,
        "cpu_seconds": spent,
        "models": {name: measured(protocol, seed, root, name) for name in ("sft", "rl")},
        "curve": curve(root),
    }


def measured(
    protocol: Protocol, seed: int, root: Path, name: str, questions_per_cell: Mapping[str, int] | None = None
) -> dict[str, dict[str, list[list[float]]]]:
    """Cell -> scores and calls [questions][samples] of a model in the unseen world; kept below `root` once they are
    there. `asked`: cell -> how many of its questions (default: all of all cells)."""
    import torch

    from synth.types import Sampling
    from tasks.knowledge import knowledge
    from training.env.search import search
    from training.model.model import load_model
    from training.model.render import Renderer
    from training.rollout.play import Player
    from training.rollout.torch_sampler import TorchSampler

    kept = root / f"measured-{name}.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    cells = unseen(protocol, seed, root)
    cells = cells if questions_per_cell is None else first(cells, questions_per_cell)
    model, tokenizer = load_model(root / "artifacts" / name / "model")
    renderer = Renderer(tokenizer)
    player = Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"search": search(**{k: v for k, v in ENV.items() if k != "piece"})},
        tools={"search": knowledge.load(root / "unseen" / "passages.parquet")},
        max_tokens=SET["rl"]["sampling"]["max_tokens"],
        sampling=Sampling(temperature=1.0, max_tokens=SET["rl"]["sampling"]["max_turn_tokens"]),
    )
    every = [p for problems in cells.values() for p in problems]
    groups = {g.rollouts[0].problem.id: g for g in player.play(every, SAMPLES, seed, "bench")}
    counts = {
        cell: {
            "scores": [[float(v) for v in groups[p.id].rewards] for p in problems],
            "calls": [[float(r.info["calls"]) for r in groups[p.id].rollouts] for p in problems],
        }
        for cell, problems in cells.items()
    }
    kept.write_text(json.dumps(counts), encoding="utf-8")
    return counts


def base(folder: Path) -> Path:
    """The SFT model of the default run, trained where it is not there yet."""
    model = folder / "base" / "artifacts" / "sft" / "model"
    if not model.exists():
        trained(folder / "base", {}, last="sft")
    return model


STAGES = ("kb", "questions", "problems", "demonstrations", "sft", "rl")


def trained(root: Path, changes: dict[str, Any], last: str = "rl", stages: Sequence[str] = STAGES) -> dict[str, float]:
    """`stages` of params.yaml up to `last`, with `changes`, below `root`, each once; CPU seconds of each that ran."""
    from tasks.planning import pieces, plan
    from tasks.runtime.stage import Stage

    root.mkdir(parents=True, exist_ok=True)
    if not (root / "data").exists():
        (root / "data").symlink_to(ROOT / "data")
    plans = plan.plans(ROOT, changed=lambda params: {**params, **changes})
    spent = {}
    for name in stages[: stages.index(last) + 1]:
        stage = Stage(name, plan={**plans[name], "threads": 1}, root=root)
        if not stage.target.exists():
            began = time.process_time()
            stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
            module = __import__(f"tasks.stages.{name}", fromlist=[name])
            with stage.running():
                getattr(module, name)(stage, **stage.params)
            spent[name] = time.process_time() - began
    return spent


def unseen(protocol: Protocol, seed: int, root: Path) -> dict[str, list[Any]]:
    """Cell, as "depth/level" -> test questions of a second world, none of whose names the first one has."""
    from synth.knowledge.kb import merge
    from synth.knowledge.world import world
    from synth.questions.entity_tree import EntityTrees, entity_tree
    from synth.types import seed_for
    from tasks.knowledge import bases, knowledge
    from tasks.problems import grow

    folder = root / "unseen"
    known = {e.name for e in knowledge.kb_at(root / "artifacts" / "kb").entities.values()}
    other = seed_for(seed, "bench", "unseen") % 2**31
    kb = merge([world(countries=COUNTRIES, seed=other, avoid=known)])
    if not folder.exists():
        folder.mkdir()
        bases.write(folder, kb, [], [])
    chains = EntityTrees(kb, knowledge.load(folder / "passages.parquet"), seed=other)
    accepted, _ = entity_tree(chains, {("test", hops): protocol.per_chain for hops in (1, *DEPTHS)})
    cells: dict[str, list[Any]] = {}
    for p in accepted:
        cells.setdefault(f"{p.difficulty['hops']:.0f}/0", []).append(p)
    for level in LEVELS:
        trees = {("test", d): protocol.per_cell for d in DEPTHS}
        for p in grow.grow(folder, trees, seed=other, levels=[level], only=list(protocol.links))[0]:
            cells.setdefault(f"{p.difficulty['hops']:.0f}/{level}", []).append(p)
    return dict(sorted(cells.items()))


def first(cells: Mapping[str, list[Any]], questions_per_cell: Mapping[str, int]) -> dict[str, list[Any]]:
    """So many questions of each cell, without the cells of which the world has none."""
    return {cell: cells[cell][:n] for cell, n in questions_per_cell.items() if cell in cells}


def curve(root: Path) -> list[float]:
    """Mean score of the rollouts of each RL step."""
    with (root / "artifacts" / "rl" / "curve.csv").open(encoding="utf-8") as f:
        return [float(r["reward"]) for r in csv.DictReader(f)]


def mean(values: list[list[float]]) -> float:
    """The mean over questions of the means over samples."""
    return sum(sum(v) / len(v) for v in values) / len(values)


def per_seed(run: dict[str, Any], model: str, what: str, cells: list[str]) -> float:
    """The mean over cells of the mean score ("scores") or calls of a model; cells of which its world has no question are left
    out."""
    there = [c for c in cells if c in run["models"][model]]
    return sum(mean(run["models"][model][c][what]) for c in there) / len(there)


def summarise(protocol: Protocol, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results in the one shape of all benchmarks."""
    from importlib.metadata import version

    cells = sorted(set.intersection(*(set(r["models"]["rl"]) for r in runs)))
    device = f"{os.cpu_count()} CPU cores, {platform.machine()}"

    def result(
        case: str, metric: str, values: list[float], unit: str, better: str, peers: dict[str, list[float]]
    ) -> dict[str, Any]:
        value, low, high = t_interval(values)
        means = {k: sum(v) / len(v) for k, v in peers.items()}
        best = next(iter(means.values()), None)
        return result_row(
            case,
            metric,
            value,
            unit,
            protocol.command,
            len(values),
            better=better,
            low=low,
            high=high,
            peers=means,
            ratio=value / best if best else None,
            device=device,
            torch=version("torch"),
        )

    def both(case: str, some: list[str]) -> list[dict[str, Any]]:
        seen = {(m, w): [per_seed(r, m, w, some) for r in runs] for m in ("rl", "sft") for w in ("scores", "calls")}
        return [
            result(case, "pass@1", seen["rl", "scores"], "share", "higher", {"sft": seen["sft", "scores"]}),
            result(case, "tool calls", seen["rl", "calls"], "calls", "lower", {"sft": seen["sft", "calls"]}),
        ]

    def among(depths: tuple[int, ...], levels: tuple[int, ...]) -> list[str]:
        return [c for c in cells if int(c[0]) in depths and int(c[2]) in levels]

    out = []
    groups = {
        "depth 1": among((1,), (0,)),
        "depth 2": among((2,), (0, *LEVELS)),
        "depth 2, level 0": among((2,), (0,)),
        "depth 2, levels 1 to 4": among((2,), LEVELS),
        "depth 3": among((3,), (0, *LEVELS)),
    }
    for case, some in groups.items():
        gains = [per_seed(r, "rl", "scores", some) - per_seed(r, "sft", "scores", some) for r in runs]
        out += [*both(case, some), result(case, "pass@1, RL less SFT", gains, "share", "higher", {})]
    for cell in cells:
        if cell not in ("1/0", "2/0"):
            out += both(f"depth {cell[0]}, level {cell[2]}", [cell])
    slopes = {
        "depth 3 less depth 2, levels 1 to 4": (among((3,), LEVELS), among((2,), LEVELS)),
        "depth 2, level 0 less depth 1": (among((2,), (0,)), among((1,), (0,))),
        "levels 1 to 4 less level 0, depth 2": (among((2,), LEVELS), among((2,), (0,))),
        "levels 3 and 4 less levels 1 and 2": (among(DEPTHS, (3, 4)), among(DEPTHS, (1, 2))),
    }
    for case, (hard, easy) in slopes.items():
        for what, metric, unit in (("scores", "pass@1", "share"), ("calls", "tool calls", "calls")):
            out.append(
                result(
                    case,
                    f"{metric}, difference",
                    [per_seed(r, "rl", what, hard) - per_seed(r, "rl", what, easy) for r in runs],
                    unit,
                    "lower" if what == "scores" else "higher",
                    {},
                )
            )
    return out


def main(
    protocol: Protocol = PROTOCOL,
    one: Callable[[Protocol, int, Path], dict[str, Any]] = one,
    summarise: Callable[[Protocol, list[dict[str, Any]]], list[dict[str, Any]]] = summarise,
) -> None:
    """Train and measure; `one` trains a seed, `summarise` makes results of all of them (benchmarks/agent_unseen.py has
    its own)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="train and measure this one seed (what the benchmark starts for each)")
    parser.add_argument(
        "--measure", choices=("sft", "rl"), help="measure this model of the seed alone, while another process trains"
    )
    parser.add_argument("--seeds", type=int, default=len(protocol.seeds), help="the first N of the protocol's seeds")
    parser.add_argument("--only-summary", action="store_true", help="train nothing: results from the finished seeds")
    parser.add_argument("--folder", type=Path, default=ROOT / ".espalier" / "bench" / protocol.name)
    args = parser.parse_args()
    protocol.runs.mkdir(parents=True, exist_ok=True)
    if args.measure:
        measured(protocol, args.seed, args.folder / str(args.seed), args.measure)
        return
    if args.seed is not None:
        measured_seed = one(protocol, args.seed, args.folder / str(args.seed))
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        (protocol.runs / f"{args.seed}.json").write_text(
            json.dumps({**measured_seed, "commit": commit}, separators=(",", ":")) + "\n"
        )
        return
    for seed in () if args.only_summary else protocol.seeds[: args.seeds]:
        if not (protocol.runs / f"{seed}.json").exists():  # a finished seed is not run again
            print(f"seed {seed}", file=sys.stderr, flush=True)
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    f"benchmarks.{protocol.name.replace('-', '_')}",
                    "--seed",
                    str(seed),
                    "--folder",
                    str(args.folder),
                ],
                check=True,
                cwd=ROOT,
            )
    runs = [
        json.loads((protocol.runs / f"{seed}.json").read_text())
        for seed in protocol.seeds
        if (protocol.runs / f"{seed}.json").exists()
    ]
    rows = summarise(protocol, runs)
    protocol.result.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for r in rows:
        print(
            f"{r['case']:40} {r['metric']:25} {r['value']:.3f}  [{r['low']:.3f}, {r['high']:.3f}]  "
            + "  ".join(f"{k} {v:.3f}" for k, v in r["peers"].items())
        )


if __name__ == "__main__":
    main()
