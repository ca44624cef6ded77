"""Decoders at equal compute: which is worth its forward tokens? `make bench-decoders`

PROTOCOL, committed before the first run.

Tasks. Four families of the project at level 1: integer_arithmetic, modular_arithmetic, common_divisors, letter_counts. A
model of two layers (width 48) reads frequent words whole and all else sign by sign, and learns 300 steps of 32 of the
family's train problems; it answers without working. The reward model begins as that model: the log-odds of right
against wrong after the conversation, learned in 150 steps from answers to 500 other train problems, four draws each, that
the verifier has scored. Preference pairs are a right and a wrong draw of one of these problems, at most 60. No setting of a
decoder was chosen here: defaults, but for what says how much is drawn, which follows the budget and the length of answers,
and shorter training for `rlot` (100 episodes) and `fr_ponder` (5 steps of groups of 4), whose fit would cost most of the run. Seeds 11, 22, 33, 44,
55 draw the problems, the models and the answers. 40 test problems a task and seed, temperature 1 where a decoder names none.

Compared. Every decoder answers within a budget of 8 times a prompt and its longest answer (`majority`, `best_of_n`,
`tournament` and `rosa` also within 1, 2 and 4 times, for the plot). A decoder that does not fill the budget is
not charged for the rest: greedy, majority of k and best of n are run again with what it did spend, on average, as their
budget (or what one answer needs, where it spent less). Forward tokens of all models count, the training of what a decoder fits does not.
A second look, declared as such: `dynamic_control` (steps of 5, groups of 4, its one dimension which of a pair is preferred) has been added, and all
was run again; nothing else is changed.
Not applicable: `witness` (no question states a predicate), `cognition_of_thought` (no principle is at stake).

A first size of this protocol was stopped after two of twenty cells, for their CPU time; no score had been printed or kept.

Intervals: t over the seeds, of the mean over the four tasks; a difference to a peer is paired by seed. CPU seconds, not
wall: `--quick` measures one task and seed and writes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student

from synth.types import Problem, Sampling, Scored, seed_for
from synth.verify import verify
from tasks.core.paths import CODE
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import new_model
from training.rollout.torch_sampler import TorchSampler

TASKS = ("integer_arithmetic", "modular_arithmetic", "common_divisors", "letter_counts")
SEEDS = (11, 22, 33, 44, 55)
END, RIGHT, WRONG = 2, 3, 4
STEPS, REWARD_STEPS, QUESTIONS, JUDGED, PAIRS = 300, 150, 40, 500, 60
TIMES, AT = (1, 2, 4, 8), 8
PEERS = ({"piece": "greedy"}, {"piece": "majority", "k": 0}, {"piece": "best_of_n", "n": 0})
SCALING = ("majority", "best_of_n", "tournament", "rosa")  # those of the plot
DECODERS: tuple[dict[str, Any], ...] = (
    *PEERS,
    {"piece": "sample"},
    {"piece": "tournament", "n": 3},
    {"piece": "rosa"},
    {"piece": "t_pop"},
    {"piece": "plans", "k": 4, "plan_tokens": 2},
    {"piece": "rlot", "piece_tokens": 2, "episodes": 100},
    {"piece": "fr_ponder", "steps": 5, "group": 4},
    {"piece": "steer"},
    {"piece": "dynamic_control", "steps": 5, "group": 4},
    {"piece": "brt_align"},
    {"piece": "model_surgery"},
    {"piece": "speculate"},
    {"piece": "draft_tree"},
)
RUNS = CODE / ".espalier" / "bench-decoders"  # a file for each task and seed that is finished
RESULTS, PICTURE = CODE / "benchmarks" / "results", CODE / "docs" / "images" / "decoders.svg"


class Words:
    """In the place of a tokenizer: words of three letters and more that many prompts have, and single signs."""

    eos_token_id, pad_token_id = END, 0

    def __init__(self, texts: Sequence[str]) -> None:
        words = Counter(w for text in texts for w in set(re.findall(r"[A-Za-z]{3,}", text)))
        signs = {c for text in texts for c in text} | set("-0123456789")
        self.known = ["", "", "", "", "", *sorted(signs), *sorted(w for w, n in words.items() if n > len(texts) / 50)]
        self.place = {w: i for i, w in enumerate(self.known) if w}
        self.token = re.compile("|".join(re.escape(w) for w in sorted(self.place, key=len, reverse=True)))

    def __len__(self) -> int:
        return len(self.known)

    def ids(self, text: str) -> np.ndarray:
        return np.array([self.place[w] for w in self.token.findall(text)], dtype=np.int64)

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        return "".join(self.known[i] if i < len(self.known) else "?" for i in map(int, ids))


class World:
    """A task with a model that has learned it, a reward model, and preference pairs."""

    def __init__(self, task: str, seed: int) -> None:
        self.seed, make = seed, getattr(importlib.import_module(f"synth.families.{task}"), task)
        problems = lambda split, n: [  # noqa: E731
            p for i in range(n) if isinstance(p := make(seed, split, i, levels=(1,)), Problem)
        ]
        every = problems("train", 2000 + JUDGED)
        train, others = every[:2000], every[2000:]
        self.test = problems("test", QUESTIONS)
        self.words = Words([p.prompt[0].content for p in [*train, *others, *self.test]])
        self.model = self._learned([self._row(p, self.words.ids(p.answer)) for p in train], STEPS, "policy")
        self.longest = max(len(self.words.ids(p.answer)) for p in train) + 1
        self.sampling = Sampling(max_tokens=self.longest)
        rows, self.pairs = self._judged(others)
        self.judge = self._learned(rows, REWARD_STEPS, "reward", deepcopy(self.model))

    def prompt(self, p: Problem) -> np.ndarray:
        return self.words.ids(p.prompt[0].content + "\n" if "\n" in self.words.place else p.prompt[0].content)

    def right(self, p: Problem, ids: np.ndarray) -> bool:
        score = verify(p, self.words.text(ids[ids != END]))
        return isinstance(score, Scored) and score.value == 1

    def _row(self, p: Problem, answer: np.ndarray) -> Row:
        ids = np.concatenate([self.prompt(p), answer, [END]])
        return Row(ids=ids, trainable=np.arange(len(ids)) >= len(self.prompt(p)))

    def _learned(
        self, rows: Sequence[Row], steps: int, name: str, start: torch.nn.Module | None = None
    ) -> torch.nn.Module:
        rng = np.random.default_rng(seed_for(self.seed, "rows", name))
        model = start or new_model(
            self.words,  # type: ignore[arg-type]
            hidden=48,
            layers=2,
            heads=4,
            kv_heads=2,
            intermediate=96,
            max_length=128,
            init_range=0.1,
            seed=seed_for(self.seed, "model", name),
        )
        learner = Learner(model, Optim(lr=5e-3 if start is None else 2e-3, warmup=10, steps=steps))
        for _ in range(steps):
            learner.step(pack([rows[i] for i in rng.integers(len(rows), size=32)]), nll)
        return model

    def _judged(self, problems: Sequence[Problem]) -> tuple[list[Row], list[Example]]:
        """Conversations with their verdict, and pairs of a right and a wrong draw."""
        prompts = [self.prompt(p) for p in problems for _ in range(4)]
        session = TorchSampler(self.model, END).open(
            prompts, [seed_for(self.seed, "judged", i) for i in range(len(prompts))]
        )
        drawn = [s.ids for s in session.generate(self.sampling)]
        rows, pairs = [], []
        for i, p in enumerate(problems):
            draws = drawn[4 * i : 4 * i + 4]
            good = [self.right(p, ids) for ids in draws]
            for ids, ok in zip(draws, good, strict=True):
                whole = np.concatenate([prompts[4 * i], ids, [RIGHT if ok else WRONG]])
                rows.append(Row(ids=whole, trainable=np.arange(len(whole)) == len(whole) - 1))
            if len(pairs) < PAIRS and len(set(good)) == 2:
                pairs.append(
                    Example(prompt=prompts[4 * i], chosen=draws[good.index(True)], rejected=draws[good.index(False)])
                )
        return rows, pairs

    def auc(self) -> float:
        """Of a right and a wrong draw for test problems: how often, in per cent, the reward model likes the right one
        more."""
        engine = self.engine()
        prompts = [self.prompt(p) for p in self.test for _ in range(4)]
        drawn = engine.sampler.open(prompts, list(range(len(prompts)))).generate(self.sampling)
        good = np.array([self.right(self.test[i // 4], s.ids) for i, s in enumerate(drawn)])
        assert engine.rewards is not None
        liked = np.array(engine.rewards([np.concatenate([p, s.ids]) for p, s in zip(prompts, drawn, strict=True)]))
        return 100 * float((liked[good][:, None] > liked[~good]).mean()) if 0 < good.sum() < len(good) else 50.0

    def engine(self) -> Engine:
        judge = Engine(sampler=TorchSampler(self.judge, END), text=self.words.text, said=str)

        def rewards(rows: Sequence[np.ndarray]) -> list[float]:
            if not rows:
                return []
            odds = [judge.logp([(row, np.array([token])) for row in rows]) for token in (RIGHT, WRONG)]
            return (odds[0] - odds[1]).tolist()

        return Engine(
            sampler=TorchSampler(self.model, END),
            text=self.words.text,
            said=lambda ids: self.words.text(ids[ids != END]),
            sampling=self.sampling,
            rewards=rewards,
            ids=self.words.ids,
        )

    def answered(self, decode: Any, fitted: Any, budgets: Sequence[int]) -> tuple[float, float]:
        """Share of right answers, in per cent, and forward tokens of an answer."""
        asks = [
            Ask(prompt=self.prompt(p), seed=seed_for(self.seed, "ask", i), max_tokens=self.longest, forward_tokens=b)
            for i, (p, b) in enumerate(zip(self.test, budgets, strict=True))
        ]
        done = decode(self.engine(), asks, fitted)
        right = [self.right(p, d.segment.ids) for p, d in zip(self.test, done, strict=True)]
        return 100 * float(np.mean(right)), float(np.mean([d.account.spent for d in done]))


def measured(task: str, seed: int) -> list[dict[str, Any]]:
    """A row for each decoder and budget: task, seed, decoder, times, right, spent, seconds, and its peers'."""
    world = World(task, seed)
    rows: list[dict[str, Any]] = [{"task": task, "seed": seed, "decoder": "", "auc": world.auc()}]
    one = [len(world.prompt(p)) + world.longest for p in world.test]
    peer = {p["piece"]: bind("decode", p) for p in PEERS}
    for spec in DECODERS:
        name, begun = spec["piece"], time.process_time()
        decode = bind("decode", spec)
        fitted = decode.fit(world.engine(), world.pairs) if decode.fit else None  # type: ignore[attr-defined]
        for times in TIMES if name in SCALING else (AT,):
            if name == "tournament":
                decode = bind("decode", {**spec, "n": max(1, times // 2)})
            if name == "rosa":
                decode = bind("decode", {**spec, "turns": times})
            right, spent = world.answered(decode, fitted, [times * n for n in one])
            row = {"task": task, "seed": seed, "decoder": name, "times": times, "right": right, "spent": spent}
            if times == AT:
                share = spent / float(np.mean(one))
                budgets = [max(n, round(share * n)) for n in one]
                row["peers"] = {p: world.answered(d, None, budgets)[0] for p, d in peer.items()}
            rows.append({**row, "seconds": time.process_time() - begun})
    return rows


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval."""
    mean, n = float(np.mean(values)), len(values)
    half = float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def summary(
    rows: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    tasks: Sequence[str] = TASKS,
    at: int = AT,
    command: str = "make bench-decoders",
) -> dict[str, list[dict[str, Any]]]:
    """Results by the name of their file: `decoders` at the budget AT beside their peers, `decoders-budgets` at all
    budgets, `decoders-judge` what the reward model tells apart."""
    about = {
        "device": f"{platform.machine()}, one core",
        "versions": {"torch": torch.__version__},
        "command": command,
        "ratio_to_best_peer": None,
        "n": len(seeds),
        "peers": {},
    }
    out: dict[str, list[dict[str, Any]]] = {"decoders": [], "decoders-budgets": [], "decoders-judge": []}

    def add(file: str, case: str, metric: str, unit: str, better: str, mine: Sequence[dict[str, Any]], of: Any) -> None:
        values = [float(np.mean([of(r) for r in mine if r["seed"] == s])) for s in seeds]
        mean, low, high = (round(x, 1) + 0.0 for x in interval(values))  # not -0.0
        measured = {"case": case, "metric": metric, "value": mean, "low": low, "high": high, "unit": unit}
        out[file].append({**measured, "better": better, **about})

    for task in tasks:
        mine = [r for r in rows if r["task"] == task and not r["decoder"]]
        add("decoders-judge", task, "right draw above a wrong one", "%", "higher", mine, lambda r: r["auc"])
    for name in dict.fromkeys(r["decoder"] for r in rows if r["decoder"]):
        for times in sorted({*TIMES, at}):
            mine = [r for r in rows if r["decoder"] == name and r["times"] == times]
            for file, case in (("decoders-budgets", f"{name}, {times} times"), ("decoders", name)):
                if mine and (file == "decoders-budgets" or times == at):
                    add(file, case, "right answers", "%", "higher", mine, lambda r: r["right"])
                    add(file, case, "forward tokens", "", "lower", mine, lambda r: r["spent"])
            for p in mine[0]["peers"] if mine and times == at else ():
                title = f"minus {p} at the same tokens"
                add("decoders", name, title, "points", "higher", mine, lambda r, p=p: r["right"] - r["peers"][p])
    return out


def plot(results: Sequence[dict[str, Any]], path: Path = PICTURE) -> None:
    """Right answers over forward tokens, with intervals over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    points: dict[str, list[tuple[float, float, float, float]]] = {}
    value = {(r["case"], r["metric"]): r for r in results}
    for case in dict.fromkeys(r["case"] for r in results):
        right, spent = value[case, "right answers"], value[case, "forward tokens"]
        points.setdefault(case.partition(",")[0], []).append(
            (spent["value"], right["value"], right["low"], right["high"])
        )
    figure, axis = plt.subplots(figsize=(8, 5))
    colours = plt.get_cmap("tab20")
    for i, (name, mine) in enumerate(points.items()):
        x, y, low, high = (np.array(v) for v in zip(*sorted(mine), strict=True))
        axis.errorbar(
            x,
            y,
            yerr=[y - low, high - y],
            marker="o",
            markersize=4,
            linewidth=1.4,
            capsize=2,
            label=name,
            color=colours(i),
        )
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.set_xlabel("forward tokens of an answer, all models together")
    axis.set_ylabel("right answers, % (four tasks, 95 % over seeds)")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def kept(name: str, run: Callable[[], list[dict[str, Any]]] | None) -> list[dict[str, Any]]:
    """The rows of a run, from its file if it is finished, else run now (None: then there are none)."""
    path = RUNS / f"{name}.json"
    if not path.exists():
        if run is None:
            return []
        begun = time.process_time()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run()), encoding="utf-8")
        print(f"{name}: {time.process_time() - begun:.0f} CPU seconds", flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description="decoders at equal forward tokens, four tasks, five seeds")
    parser.add_argument(
        "--finished", action="store_true", help="run nothing: write the results of the seeds that are finished"
    )
    parser.add_argument("--quick", action="store_true", help="one task, a seed of its own; nothing is written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.quick:
        for row in measured(TASKS[0], 1):
            print(row, flush=True)
        return 0
    rows = []
    for seed in SEEDS:
        for task in TASKS:
            rows += kept(f"{task}-{seed}", None if args.finished else partial(measured, task, seed))
    per_seed = Counter(r["seed"] for r in rows if not r["decoder"])
    seeds = [s for s in SEEDS if per_seed[s] == len(TASKS)]
    results = summary([r for r in rows if r["seed"] in seeds], seeds)
    for name, mine in results.items():
        (RESULTS / f"{name}.json").write_text(json.dumps(mine, indent=1) + "\n", encoding="utf-8")
    plot(results["decoders-budgets"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
