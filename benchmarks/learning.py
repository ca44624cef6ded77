"""Do preference optimisation and reinforcement learning teach what cheaper things do not? `make bench-learning`

Protocol, committed before the run:
- Five run seeds (SEEDS). A seed is the seed of the whole run: world, questions, demonstrations, initial weights,
  sampling. Everything else is the default of the project (params.yaml as committed, profile cpu), on one thread
  (`--threads`). All seeds run on one commit; a finished seed of another commit is run again.
- Per seed: the data stages, `sft`, `preferences`, `clean`, `reward`, `prefer`, `rl`, and what RL is held against. All
  start from the SFT model. The three that train are the stage `sft` again with a fresh schedule, for as many steps as
  fit into the seconds that the RL steps took, sampling included:
    sft continued      on the same demonstrations
    sft, more shown    on as many further demonstrations as RL saw problems (questions and families alike)
    rejection sampling on the start's own right answers: as many rollouts of as many problems as RL played, drawn from
                       the start, each different right conversation once; sampling comes out of the seconds
    best of n          no training: the tokens that RL sampled are spent on the held-out questions in the place of
                       training, n answers of the start each. Which of them counts: the most frequent (majority), the
                       one that the reward model of the run likes best (reward model), or the one that the verifier
                       says is right (verifier: nobody has it when an answer is wanted; the ceiling of the other two).
    prefer, cleaned    the stage `prefer` on the cleaned pairs alone, by DPO at lr 2e-4
    prefer, noisy      the same on the pairs as they came, wrong labels among them: what cleaning is worth
- All are asked the same N_QUESTIONS held-out questions, whose roots no training question touches: SAMPLES samples each
  at temperature 1 with the same random numbers, and one greedy answer; PER_FAMILY held-out problems of each verifiable
  family, FAMILY_SAMPLES samples each; the RL model the questions once more with search results blanked.
- Reported: the mean over seeds, and of the paired differences RL - each control and prefer - sft; the interval is the
  95 % t-interval over the seeds. The claims under test: prefer - sft >= 6 points of pass@1 with an interval above zero;
  RL - sft >= 5 points with an interval above zero; RL better than sft on the families; blanked accuracy below half of
  the accuracy with search. The controls are published whatever they show.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.rows import result_row

SEEDS = (101, 202, 303, 404, 505)
N_QUESTIONS, SAMPLES, BLANKED = 400, 8, 2
PER_FAMILY, FAMILY_SAMPLES, MOST = 100, 4, 64
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURE = ROOT / "docs" / "images" / "learning.svg"
RUNS = ROOT / "benchmarks" / "runs" / "learning"  # one file per finished seed: every score, and the commit it ran on
STAGES = ("kb", "questions", "problems", "demonstrations", "sft", "preferences", "clean", "reward", "prefer", "rl")
CONTROLS = ("sft continued", "sft, more shown", "rejection sampling")
TRAINED = ("sft", "prefer", "rl", "prefer, cleaned", "prefer, noisy", *CONTROLS)
CHOSEN = ("majority", "reward model", "verifier")
COMMAND = "make bench-learning"


class Seed:
    """One seed below `root`, which is made a small project of its own. `sizes`: stage -> knobs in the place of the
    defaults, for a test."""

    def __init__(self, seed: int, root: Path, sizes: dict[str, dict] | None = None, threads: int = 2) -> None:
        from tasks.planning import plan

        self.seed, self.root = seed, root
        root.mkdir(parents=True, exist_ok=True)
        if not (root / "data").exists():
            (root / "data").symlink_to(ROOT / "data")

        self.plans = plan.plans(ROOT, changed=lambda params: {**self.changed(params, sizes or {}), "seed": seed})
        for planned in self.plans.values():
            planned["threads"] = threads

    def changed(self, params: dict, sizes: dict[str, dict]) -> dict:
        """params.yaml with these sizes."""
        return {**params, "set": params["set"] | {s: {**params["set"].get(s, {}), **k} for s, k in sizes.items()}}

    def params(self, name: str) -> dict[str, Any]:
        return self.plans[name]["params"]

    def stage(self, name: str, root: Path | None = None, **other: Any) -> Any:
        from tasks.runtime.stage import Stage

        plan = self.plans[name]
        return Stage(name, plan={**plan, "params": {**plan["params"], **other}}, root=root or self.root)

    def run(self, name: str, root: Path | None = None, **other: Any) -> Path:
        """Run a stage, if that is not done; its folder. `root`: where, if not in the seed's own project."""
        from tasks.planning import pieces

        stage = self.stage(name, root, **other)
        if not stage.target.exists():
            stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
            with stage.running():
                getattr(__import__(f"tasks.stages.{name}", fromlist=[name]), name)(stage, **stage.params)
        return stage.target

    def preferred(self, root: Path, *, lr: float, **other: Any) -> Path:
        """The model of the stage `prefer` with this learning rate."""
        optimizer = {**self.params("prefer")["optimizer"], "lr": lr}
        return self.run("prefer", root, optimizer=optimizer, **other) / "model"

    def beside(self, name: str, *inputs: str) -> Path:
        """A project beside, which reads kb, questions, problems and the stages `inputs` of this one."""
        root = self.root / "beside" / name.replace(", ", "-").replace(" ", "-")
        (root / "artifacts").mkdir(parents=True, exist_ok=True)
        for other in ("kb", "questions", "problems", *inputs):
            if not (here := root / "artifacts" / other).exists():
                here.symlink_to(self.root / "artifacts" / other)
        return root

    def steps(self, name: str) -> list[float]:
        """Seconds of each training step: they are no output, so they lie beside what was measured of the stage."""
        with (self.root / ".espalier" / "measured" / f"{name}.csv").open() as f:
            return [float(r["step_seconds"]) for r in csv.DictReader(f)]

    def curve(self, name: str) -> list[dict[str, str]]:
        with (self.root / "artifacts" / name / "curve.csv").open() as f:
            return list(csv.DictReader(f))

    def problems(self, name: str, split: str) -> list[Any]:
        from synth.types import Problem
        from tasks.storage import tables

        rows = tables.read(self.root / "artifacts" / name / "problems.parquet", Problem)
        return [p for p in rows if p.split == split]

    def player(self, model: Path, *, temperature: float = 1.0, blanked: bool = False) -> Any:
        from synth.types import Sampling
        from tasks.knowledge import knowledge
        from tasks.knowledge.search_tool import NOTHING
        from training.env.search import search
        from training.env.single import single
        from training.model.model import load_model
        from training.model.render import Renderer
        from training.rollout.play import Player
        from training.rollout.torch_sampler import TorchSampler

        policy, tokenizer = load_model(model)
        renderer = Renderer(tokenizer)
        sampling = self.params("evaluate")["sampling"]
        tool = (
            (lambda query: NOTHING) if blanked else knowledge.search(self.stage("evaluate"), k=sampling["search_top_k"])
        )
        return Player(
            sampler=TorchSampler(policy, renderer.end_id),
            renderer=renderer,
            envs={"search": search(), "single": single()},
            tools={"search": tool},
            sampling=Sampling(temperature=temperature, max_tokens=sampling["max_turn_tokens"]),
        )


def one(seed: int, root: Path, sizes: dict[str, dict] | None = None, threads: int = 1) -> dict:
    """Train and measure one seed."""
    here = Seed(seed, root, sizes, threads)
    for name in STAGES:
        here.run(name)
    start, rl = root / "artifacts" / "sft" / "model", here.curve("rl")
    budget, tokens = sum(here.steps("rl")), sum(float(r["tokens"]) for r in rl)
    learned = [s for s, r in zip(here.steps("sft"), here.curve("sft"), strict=True) if r["round"] == "sft"]
    each = median(learned)
    models = {name: root / "artifacts" / name / "model" for name in ("sft", "prefer", "rl")}
    models["prefer, cleaned"], models["prefer, noisy"] = on_pairs_of_the_stage(here)
    begun = time.monotonic()
    right = lay_own_right_answers(here, start)
    sampling = time.monotonic() - begun
    lay_more_demonstrations(here)
    for name in CONTROLS:
        if name == "rejection sampling" and not right:  # there is nothing to learn from
            models[name] = start
            continue
        side = here.beside(name, *(["demonstrations"] if name == "sft continued" else []))
        seconds = budget - (sampling if name == "rejection sampling" else 0.0)
        models[name] = here.run("sft", side, model=str(start), steps=max(1, round(seconds / each))) / "model"
    out: dict[str, Any] = {}
    problems = here.problems("questions", "test")[:N_QUESTIONS]
    families = [p for f in by_family(here.problems("problems", "test")).values() for p in f[:PER_FAMILY]]
    for name, path in models.items():
        out[name] = played(here.player(path), problems, SAMPLES, seed)
        out[f"{name}, greedy"] = played(here.player(path, temperature=0.0), problems, 1, seed)
        out[f"{name}, families"] = played(here.player(path), families, FAMILY_SAMPLES, seed)
    out["rl, search blanked"] = played(here.player(models["rl"], blanked=True), problems, BLANKED, seed)
    out |= best_of(here, start, problems, tokens)
    card = json.loads((root / "artifacts" / "reward" / "card.json").read_text())
    return {
        "seed": seed,
        "threads": threads,
        "rl_seconds": budget,
        "prefer_seconds": sum(here.steps("prefer")),
        "step_seconds": {n: median(here.steps(n)) for n in ("sft", "prefer", "rl")},
        "rl_tokens": tokens,
        "rl_rollouts": sum(float(r["rollouts"]) for r in rl),
        "reward": {"valid_accuracy": card.get("valid_accuracy"), "sources": card.get("valid_by_source", {})},
        "cases": out,
    }


def on_pairs_of_the_stage(here: Seed) -> list[Path]:
    """Models of the stage `prefer` on the pairs of the stage `preferences`: cleaned, and as they were delivered."""
    cleaned, noisy = here.beside("prefer, cleaned", "sft", "clean"), here.beside("prefer, noisy", "sft", "preferences")
    here.run("clean", noisy, cleaners=[])
    return [here.preferred(side, lr=2e-4, rounds=[{}], sft_weight=0.0) for side in (cleaned, noisy)]


def lay_more_demonstrations(here: Seed) -> None:
    """artifacts/demonstrations of "sft, more shown": those of the run, and as many more as RL saw problems."""
    rl, shown = here.params("rl"), here.params("demonstrations")
    saw = rl["steps"] * rl["prompts_per_step"]
    questions, families = here.problems("questions", "train"), by_family(here.problems("problems", "train"))
    pool = len(questions) + (sum(map(len, families.values())) if rl["include_families"] else 0)
    share = len(questions) / pool
    per_family = round(saw * (1 - share) / max(1, len(families)))
    here.run(
        "demonstrations",
        here.beside("sft, more shown"),
        n=min(len(questions), shown["n"] + round(saw * share)),
        n_family=shown["n_family"] + per_family,
    )


def lay_own_right_answers(here: Seed, start: Path) -> int:
    """artifacts/demonstrations of "rejection sampling": right conversations of the start on as many problems as RL saw;
    their number."""
    import numpy as np

    from synth.types import Demonstration, Scored, seed_for
    from tasks.storage import commit, tables

    folder = here.beside("rejection sampling") / "artifacts" / "demonstrations"
    if (folder / commit.MANIFEST).exists():
        return len(tables.read(folder / "demonstrations.parquet", Demonstration))
    rl = here.params("rl")
    pool = here.problems("questions", "train")
    pool += here.problems("problems", "train") if rl["include_families"] else []
    rng = np.random.default_rng(seed_for(here.seed, "bench", "rejection"))
    order = [int(i) for i in rng.permutation(len(pool))]
    drawn = [pool[order[i % len(pool)]] for i in range(rl["steps"] * rl["prompts_per_step"])]
    player, kept = here.player(start), {}
    for lo in range(0, len(drawn), 64):
        for g in player.play(drawn[lo : lo + 64], rl["samples_per_prompt"], here.seed, "rejection", lo):
            for r in g.rollouts:
                if isinstance(r.score, Scored) and r.score.value >= 1:
                    told = Demonstration.make(
                        problem=r.problem.id, messages=r.info["messages"], calls=r.info["calls"], split="train"
                    )
                    kept[told.id] = told
    tables.write(folder / "demonstrations.parquet", list(kept.values()), Demonstration)
    commit.seal(folder)
    return len(kept)


def best_of(here: Seed, start: Path, problems: Sequence[Any], tokens: float) -> dict[str, Any]:
    """n answers of the start to each question, n such that they have as many tokens as RL sampled; what each way of
    choosing among them is worth."""
    from synth.verify import extract_answer
    from tasks.models.reward_model import RewardModel

    folder = here.root / "artifacts" / "reward"
    word = json.loads((folder / "card.json").read_text()).get("verdict", "")
    judge, player = RewardModel(folder / "model", word), here.player(start)
    first = player.play(problems, 1, here.seed, "bench", "length")
    each = sum(r.n_model for g in first for r in g.rollouts) / len(problems)
    n = int(min(MOST, max(1, tokens // (each * len(problems)))))
    scores: dict[str, list[list[float]]] = {c: [] for c in CHOSEN}
    for lo in range(0, len(problems), 32):
        for g in player.play(problems[lo : lo + 32], n, here.seed, "bench", "best of n"):
            right = [0.0 if math.isnan(v) else float(v) for v in g.rewards]
            answers = [extract_answer(r.info["messages"][-1].content) or "" for r in g.rollouts]
            votes = Counter(s.strip().lower() for s in answers if s)
            most = votes.most_common(1)[0][0] if votes else ""
            liked = judge(g.rollouts)
            at = max(range(len(liked)), key=lambda i: -math.inf if math.isnan(liked[i]) else liked[i])
            scores["majority"].append(
                [next((v for v, s in zip(right, answers, strict=True) if s.strip().lower() == most), 0.0)]
            )
            scores["reward model"].append([right[at]])
            scores["verifier"].append([max(right)])
    return {f"best of n, {c}": {**about(problems), "scores": s, "calls": 0.0, "n": n} for c, s in scores.items()}


def played(player: Any, problems: Sequence[Any], samples: int, seed: int) -> dict[str, Any]:
    groups = player.play(problems, samples, seed, "bench")
    rollouts = [r for g in groups for r in g.rollouts]
    calls = sum(r.info["calls"] for r in rollouts) / max(1, len(rollouts))
    return {**about(problems), "scores": [[float(v) for v in g.rewards] for g in groups], "calls": calls}


def about(problems: Sequence[Any]) -> dict[str, Any]:
    return {"hops": [int(p.difficulty.get("hops", 0)) for p in problems], "families": [p.family for p in problems]}


def by_family(problems: Sequence[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for p in problems:
        out.setdefault(p.family, []).append(p)
    return dict(sorted(out.items()))


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


Among = Callable[[dict, int], bool]  # (a case, the place of a problem) -> whether it counts


def per_seed(runs: list[dict], case: str, metric: str, among: Among = lambda c, i: True) -> list[float]:
    """A metric of one case, of each run."""
    from training.metrics.pass_at_k import pass_at_k

    values = []
    for r in runs:
        c = r["cases"][case]
        scores = [s for i, s in enumerate(c["scores"]) if among(c, i)]
        if metric == "calls":
            values.append(c["calls"])
        else:
            values.append(pass_at_k(scores, ks=[int(metric[5:])], resamples=1)[metric]["mean"])
    return values


def gain(
    runs: list[dict], case: str, other: str, metric: str = "pass@1", among: Among = lambda c, i: True
) -> list[float]:
    """By how much one case is above another, of each run."""
    both = per_seed(runs, case, metric, among), per_seed(runs, other, metric, among)
    return [a - b for a, b in zip(*both, strict=True)]


def result(case: str, metric: str, values: list[float], unit: str = "share", better: str = "higher") -> dict:
    """One result in the shape of all benchmarks; `summarise` says on what it ran."""
    mean, low, high = t_interval(values)
    return result_row(
        case,
        metric,
        mean,
        unit,
        COMMAND,
        len(values),
        better=better,
        low=low,
        high=high,
        **{p: _version(p) for p in ("torch", "transformers")},
    )


def summarise(runs: list[dict]) -> dict[str, list[dict]]:
    """Results in the one shape of all benchmarks, by the name of their file: models and their differences; the same by
    hops and by family; what else was measured."""
    device = f"{runs[0]['threads']} thread(s) of a shared CPU"
    files = {
        "learning": [*_levels(runs), *_gains(runs)],
        "learning-kinds": _by_kind(runs),
        "learning-other": _other(runs),
    }
    return {name: [{**r, "device": device} for r in rows] for name, rows in files.items()}


def _levels(runs: list[dict]) -> list[dict]:
    """How right each model is: a case each, with SHOWN as its metrics."""
    out = []
    for name in TRAINED:
        out += [result(NAMES[name], shown, per_seed(runs, f"{name}{case}", m)) for shown, case, m in SHOWN]
    for chosen in CHOSEN:
        out.append(result(f"best of n of SFT by {chosen}", "pass@1", per_seed(runs, f"best of n, {chosen}", "pass@1")))
    return out


def _gains(runs: list[dict]) -> list[dict]:
    """How much more right one is than another."""
    pairs = [
        ("prefer", "sft"),
        ("prefer", "prefer, cleaned"),
        ("prefer, cleaned", "prefer, noisy"),
        ("rl", "sft"),
        ("rl", "prefer"),
        *(("rl", control) for control in CONTROLS),
    ]
    out = []
    for name, other in pairs:
        title = f"{NAMES[name]} minus {NAMES[other]}"
        out += [result(title, shown, gain(runs, f"{name}{case}", f"{other}{case}", m)) for shown, case, m in SHOWN]
    for chosen in CHOSEN:
        title = f"RL, greedy, minus best of n of SFT by {chosen}"
        out.append(result(title, "pass@1", gain(runs, "rl, greedy", f"best of n, {chosen}")))
    return out


def _by_kind(runs: list[dict]) -> list[dict]:
    """The same by family and by hops, which are the metrics."""
    out = []
    families = sorted(set(runs[0]["cases"]["sft, families"]["families"]))
    amongs: list[Among] = [lambda c, i, family=family: c["families"][i] == family for family in families]
    for name in TRAINED:
        for family, among in zip(families, amongs, strict=True):
            values = per_seed(runs, f"{name}, families", "pass@1", among)
            out.append(result(NAMES[name], family.replace("_", " "), values))
    for name in ("prefer", "rl"):
        title = f"{NAMES[name]} minus SFT"
        for family, among in zip(families, amongs, strict=True):
            values = gain(runs, f"{name}, families", "sft, families", among=among)
            out.append(result(title, family.replace("_", " "), values))
        for hops in (1, 2, 3):
            among = lambda c, i, hops=hops: c["hops"][i] == hops  # noqa: E731
            out.append(result(title, f"{hops} hop{'s' * (hops > 1)}", gain(runs, name, "sft", among=among)))
    return out


def _other(runs: list[dict]) -> list[dict]:
    """RL without what its searches bring back, searches, the reward model, seconds."""
    blanked = per_seed(runs, "rl, search blanked", "pass@1")
    out = [result("RL, search results blanked", "pass@1", blanked, better="lower")]
    counts = [float(r["cases"]["best of n, majority"]["n"]) for r in runs]
    out.append(result("n of best of n", "answers", counts, "answers"))
    for n in ("sft", "prefer", "rl"):
        out.append(result(f"{NAMES[n]}, searches", "calls", per_seed(runs, n, "calls"), "calls", "lower"))
    for source in sorted(runs[0]["reward"]["sources"]):
        accuracies = [r["reward"]["sources"][source]["accuracy"] for r in runs]
        out.append(result(f"reward model, held-out pairs of {source.replace('_', ' ')}", "accuracy", accuracies))
    for name in ("prefer", "rl"):
        seconds = [r[f"{name}_seconds"] for r in runs]
        out.append(result(f"seconds of all {NAMES[name]} steps", "seconds", seconds, "s", "lower"))
    for name in ("sft", "prefer", "rl"):
        seconds = [r["step_seconds"][name] for r in runs]
        out.append(result(f"seconds of one {NAMES[name]} step", "seconds", seconds, "s", "lower"))
    return out


def plot(results: Sequence[dict], path: Path) -> None:
    """What each model is right in, with its interval: the questions, and the families."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"
    import matplotlib.pyplot as plt

    known = {(r["case"], r["metric"]): r for r in results}
    names = [*(NAMES[n] for n in TRAINED), *(f"best of n of SFT by {c}" for c in CHOSEN)]
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, width_ratios=(3, 2))
    for panel, metric, title in zip(panels, ("pass@1", "families"), ("held-out questions", "families"), strict=True):
        for y, name in enumerate(names):
            if r := known.get((name, metric)):
                colour = COLOURS.get(name, "#555555")
                panel.plot([r["low"], r["high"]], [y, y], color=colour, linewidth=2)
                panel.plot(r["value"], y, "o", color=colour, markersize=6)
        if start := known.get((NAMES["sft"], metric)):
            panel.axvline(start["value"], color=COLOURS["SFT"], linewidth=0.8, linestyle=":")
        panel.set_title(f"{title}, pass@1", fontsize=10)
        panel.grid(alpha=0.25, axis="x")
        panel.set_xlim(left=0)
    panels[0].set_yticks(range(len(names)), names, fontsize=9)
    panels[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


# How a metric is called, what its case has behind the name of the model, and the metric
SHOWN = (
    ("pass@1", "", "pass@1"),
    ("pass@8", "", "pass@8"),
    ("greedy", ", greedy", "pass@1"),
    ("families", ", families", "pass@1"),
)
COLOURS = {"SFT": "#b8791f", "prefer": "#5a9e4b", "RL": "#3b73c4"}
NAMES = {
    "sft": "SFT",
    "prefer": "prefer",
    "rl": "RL",
    "prefer, cleaned": "prefer on cleaned pairs",
    "prefer, noisy": "prefer on pairs as they came",
    "sft continued": "SFT continued",
    "sft, more shown": "SFT with as many demonstrations as RL saw problems",
    "rejection sampling": "rejection-sampling SFT",
}


def t_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and two-sided t-interval over seeds; (mean, mean, mean) of one value."""
    import numpy as np

    from training.metrics import half_width

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


def head() -> str:
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return git.stdout.strip()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description="prefer and RL against SFT and what is cheaper, five seeds")
    parser.add_argument("--seed", type=int, help="train and measure this one seed (what the benchmark starts for each)")
    parser.add_argument("--only-summary", action="store_true", help="train nothing: results from the finished seeds")
    parser.add_argument("--folder", type=Path, default=ROOT / ".espalier" / "bench" / "learning")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    RUNS.mkdir(parents=True, exist_ok=True)
    if args.seed is not None:
        import torch

        torch.set_num_threads(args.threads)
        measured = one(args.seed, args.folder / str(args.seed), threads=args.threads)
        (RUNS / f"{args.seed}.json").write_text(json.dumps({**measured, "commit": head()}, separators=(",", ":")))
        return
    for seed in () if args.only_summary else SEEDS:
        done = RUNS / f"{seed}.json"
        if done.exists() and json.loads(done.read_text())["commit"] == head():  # it is not run again
            continue
        print(f"seed {seed}", file=sys.stderr, flush=True)
        subprocess.run(
            [sys.executable, "-m", "benchmarks.learning", "--seed", str(seed), "--folder", str(args.folder / head())]
            + ["--threads", str(args.threads)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(args.threads)},
        )
    runs = seeds_done()
    commits = sorted({r["commit"] for r in runs})
    print(
        f"seeds {', '.join(str(r['seed']) for r in runs)} of {', '.join(map(str, SEEDS))}; commit {', '.join(commits)}"
    )
    if len(commits) != 1:
        sys.exit("error: the finished seeds ran on several commits: run `make bench-learning` to the end on one")
    results = summarise(runs)
    for name, rows in results.items():
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
    plot(results["learning"], PICTURE)
    for r in chain.from_iterable(results.values()):
        print(f"{r['case']:60} {r['metric']:10} {r['value']:.3f}  [{r['low']:.3f}, {r['high']:.3f}]")


if __name__ == "__main__":
    main()
