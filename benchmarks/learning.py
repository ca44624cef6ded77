"""Does reinforcement learning teach what more supervised fine-tuning does not? `make bench-learning`

Protocol, committed before the run:
- Five run seeds (SEEDS). A seed is the seed of the whole run: world, questions, demonstrations, initial weights,
  sampling. Everything else is the default of the project (params.yaml as committed, profile cpu).
- Per seed: the data stages, `sft`, `rl` from the SFT model, and the control `sft continued`: the SFT stage again from
  the SFT model, on the same demonstrations, for as many steps as fit into the seconds that the RL steps took (rollouts
  included), with a fresh schedule.
- All are asked the same N_QUESTIONS held-out questions, whose roots no training question touches: SAMPLES samples each
  at temperature 1 with the same random numbers, and one greedy answer; the RL model once more with search results
  blanked ("nothing found"), BLANKED samples.
- Reported: the mean over seeds of pass@1, pass@8, greedy accuracy and tool calls, and of the paired differences to SFT
  and to the control (by hops of the question, too: added after the runs, from the same scores); the interval is the 95
  % t-interval over the five seeds. The claim under test: RL - SFT >= 5 points of pass@1 with an interval above zero,
  and the blanked accuracy below half of the accuracy with search. The control is published whatever it shows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

SEEDS = (101, 202, 303, 404, 505)
N_QUESTIONS, SAMPLES, BLANKED = 400, 8, 2
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "benchmarks" / "runs" / "learning"  # one file per finished seed: every score, and the commit it ran on
DATA = ("kb", "questions", "problems", "demonstrations")
COMMAND = "make bench-learning"


def one(seed: int, root: Path) -> dict:
    """Train and measure one seed below `root`, which is made a small project of its own."""
    import csv

    from synth.types import Problem, Sampling
    from tasks.knowledge import knowledge
    from tasks.knowledge.search_tool import NOTHING
    from tasks.planning import pieces, plan
    from tasks.runtime.stage import Stage
    from tasks.storage import tables
    from training.env.search import search as search_env
    from training.model.model import load_model
    from training.model.render import Renderer
    from training.rollout.play import Player
    from training.rollout.torch_sampler import TorchSampler

    root.mkdir(parents=True, exist_ok=True)
    if not (root / "data").exists():
        (root / "data").symlink_to(ROOT / "data")
    plans = plan.plans(ROOT, changed=lambda params: {**params, "seed": seed})

    def run(name: str, **other) -> dict[str, float]:
        spec = dict(plans[name], params=plans[name]["params"] | other)
        stage = Stage(name, plan=spec, root=root)
        if not stage.target.exists() or other:
            stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
            module = __import__(f"tasks.stages.{name}", fromlist=[name])
            with stage.running():
                getattr(module, name)(stage, **stage.params)
        return stage.measured()[name]

    spent = {name: run(name)["seconds"] for name in (*DATA, "sft", "rl")}
    curve = {name: list(csv.DictReader((root / "artifacts" / name / "curve.csv").open())) for name in ("sft", "rl")}
    timing = {name: _seconds(root, name, curve[name]) for name in ("sft", "rl")}
    learned = [s for s, r in zip(timing["sft"], curve["sft"], strict=True) if r["round"] == "sft"]
    budget, each = sum(timing["rl"]), sorted(learned)[len(learned) // 2]
    kept = root / "artifacts" / "sft"
    first = root / "first"
    if not first.exists():
        kept.rename(first)
    began = time.monotonic()
    spent["sft continued"] = run("sft", model=str(first / "model"), steps=max(1, round(budget / each)))["seconds"]
    spent["sft continued, wall"] = time.monotonic() - began
    models = {"sft": first / "model", "sft continued": kept / "model", "rl": root / "artifacts" / "rl" / "model"}
    reader = Stage("evaluate", plan=plans["evaluate"], root=root)
    questions = [
        p for p in tables.read(root / "artifacts" / "questions" / "problems.parquet", Problem) if p.split == "test"
    ][:N_QUESTIONS]
    tool, out = knowledge.search(reader, k=plans["evaluate"]["params"]["sampling"]["search_top_k"]), {}
    for name, path in models.items():
        model, tokenizer = load_model(path)
        renderer = Renderer(tokenizer)
        cases = {name: (tool, SAMPLES, 1.0), f"{name}, greedy": (tool, 1, 0.0)}
        if name == "rl":
            cases["rl, search blanked"] = (lambda query: NOTHING, BLANKED, 1.0)
        for case, (search, samples, temperature) in cases.items():
            player = Player(
                sampler=TorchSampler(model, renderer.end_id),
                renderer=renderer,
                envs={"search": search_env()},
                tools={"search": search},
                sampling=Sampling(temperature=temperature, max_tokens=48),
            )
            groups = player.play(questions, samples, seed, "bench")
            out[case] = {
                "scores": [[float(v) for v in g.rewards] for g in groups],
                "calls": sum(r.info["calls"] for g in groups for r in g.rollouts)
                / sum(len(g.rollouts) for g in groups),
                "hops": [int(p.difficulty["hops"]) for p in questions],
            }
    return {"seed": seed, "seconds": spent, "rl_seconds": budget, "cases": out}


def _seconds(root: Path, name: str, curve: list[dict]) -> list[float]:
    """Seconds of each training step: they are no output, so they lie beside what was measured of the stage."""
    import csv

    if "step_seconds" not in curve[0]:
        curve = list(csv.DictReader((root / ".espalier" / "measured" / f"{name}.csv").open()))
    return [float(r["step_seconds"]) for r in curve]


def summarise(runs: list[dict]) -> list[dict]:
    """Results in the one shape of all benchmarks."""
    from training.metrics.pass_at_k import pass_at_k

    def per_seed(case: str, metric: str, hops: int = 0) -> list[float]:
        values = []
        for r in runs:
            c = r["cases"][case]
            scores = [s for s, h in zip(c["scores"], c["hops"], strict=True) if hops in (0, h)]
            values.append(
                c["calls"]
                if metric == "calls"
                else pass_at_k(scores, ks=[int(metric[5:])], resamples=1)[metric]["mean"]
            )
        return values

    versions = {"python": platform.python_version(), **{p: _version(p) for p in ("torch", "transformers")}}

    def result(
        case: str, metric: str, values: list[float], unit: str, better: str, peers: dict[str, list[float]]
    ) -> dict:
        mean, low, high = t_interval(values)
        means = {k: sum(v) / len(v) for k, v in peers.items()}
        best = max(means.values()) if means and better == "higher" else min(means.values(), default=None)
        return {
            "case": case,
            "metric": metric,
            "value": mean,
            "unit": unit,
            "better": better,
            "low": low,
            "high": high,
            "n": len(values),
            "peers": means,
            "ratio_to_best_peer": None if not best else mean / best,
            "device": "2 CPU cores",
            "versions": versions,
            "command": COMMAND,
        }

    names = ("sft", "sft continued")
    out = []
    for metric in ("pass@1", "pass@8"):
        out.append(
            result(
                "RL on held-out roots, temperature 1",
                metric,
                per_seed("rl", metric),
                "share",
                "higher",
                {n: per_seed(n, metric) for n in names},
            )
        )
    out.append(
        result(
            "RL on held-out roots, greedy",
            "pass@1",
            per_seed("rl, greedy", "pass@1"),
            "share",
            "higher",
            {n: per_seed(f"{n}, greedy", "pass@1") for n in names},
        )
    )
    for n in names:
        for metric in ("pass@1", "pass@8"):
            gains = [a - b for a, b in zip(per_seed("rl", metric), per_seed(n, metric), strict=True)]
            out.append(result(f"RL minus {n}, temperature 1", metric, gains, "share", "higher", {}))
        gains = [
            a - b for a, b in zip(per_seed("rl, greedy", "pass@1"), per_seed(f"{n}, greedy", "pass@1"), strict=True)
        ]
        out.append(result(f"RL minus {n}, greedy", "pass@1", gains, "share", "higher", {}))
    for hops in (1, 2, 3):
        gains = [a - b for a, b in zip(per_seed("rl", "pass@1", hops), per_seed("sft", "pass@1", hops), strict=True)]
        out.append(
            result(
                f"RL minus sft, questions of {hops} hop{'s' * (hops > 1)}, temperature 1",
                "pass@1",
                gains,
                "share",
                "higher",
                {},
            )
        )
    out.append(
        result(
            "RL, search results blanked",
            "pass@1",
            per_seed("rl, search blanked", "pass@1"),
            "share",
            "lower",
            {"with search": per_seed("rl", "pass@1")},
        )
    )
    out.append(
        result(
            "RL on held-out roots, temperature 1",
            "tool calls",
            per_seed("rl", "calls"),
            "calls",
            "lower",
            {n: per_seed(n, "calls") for n in names},
        )
    )
    out.append(result("seconds of the RL steps", "seconds", [r["rl_seconds"] for r in runs], "s", "lower", {}))
    return out


def t_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and two-sided t-interval over seeds; (mean, mean, mean) of one value."""
    import numpy as np

    from tasks.evaluation.interval import half_width

    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, mean, mean
    half = float(half_width(np.array(values), level))
    return mean, mean - half, mean + half


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def seeds_done() -> list[dict]:
    """The finished seeds, each with the commit that it ran on."""
    return [json.loads((RUNS / f"{seed}.json").read_text()) for seed in SEEDS if (RUNS / f"{seed}.json").exists()]


def main() -> None:
    parser = argparse.ArgumentParser(description="RL against SFT and SFT continued, five seeds")
    parser.add_argument("--seed", type=int, help="train and measure this one seed (what the benchmark starts for each)")
    parser.add_argument("--fresh", action="store_true", help="forget the finished seeds of benchmarks/runs/learning")
    parser.add_argument("--only-summary", action="store_true", help="train nothing: results from the finished seeds")
    parser.add_argument("--folder", type=Path, default=ROOT / ".espalier" / "bench" / "learning")
    args = parser.parse_args()
    RUNS.mkdir(parents=True, exist_ok=True)
    if args.seed is not None:
        measured = one(args.seed, args.folder / str(args.seed))
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        (RUNS / f"{args.seed}.json").write_text(json.dumps({**measured, "commit": commit}, separators=(",", ":")))
        return
    for seed in () if args.only_summary else SEEDS:
        if args.fresh:
            (RUNS / f"{seed}.json").unlink(missing_ok=True)
        if not (RUNS / f"{seed}.json").exists():  # a finished seed is not run again
            print(f"seed {seed}", file=sys.stderr, flush=True)
            subprocess.run(
                [sys.executable, "-m", "benchmarks.learning", "--seed", str(seed), "--folder", str(args.folder)],
                check=True,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "2"},
            )
    runs = seeds_done()
    print(
        f"seeds {', '.join(str(r['seed']) for r in runs)} of {', '.join(map(str, SEEDS))}; commits {', '.join(sorted({r['commit'] for r in runs}))}"
    )
    (RESULTS / "learning.json").write_text(json.dumps(summarise(runs), indent=1) + "\n")
    for r in summarise(runs):
        print(
            f"{r['case']:45} {r['metric']:10} {r['value']:.3f}  [{r['low']:.3f}, {r['high']:.3f}]  "
            + "  ".join(f"{k} {v:.3f}" for k, v in r["peers"].items())
        )


if __name__ == "__main__":
    main()
