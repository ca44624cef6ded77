"""Is speculation exact, and what does it save? `make bench-speculation`

PROTOCOL, committed before the first run.

Exact. A model of two layers over six ids, one prompt, answers of at most four tokens, top_k 4: few enough to list with their
probabilities. 100,000 whole answers of each of `speculate` (learned and uniform drafts) and `draft_tree` are counted, and the
chi-square of the counts is held against its bound at 1 in 1,000; answers that are expected less than five times count as one. A rule
that is wrong in one place (after a draft that is not kept it draws from the model and not from the rest) gives 20,000 answers, which
must exceed the bound. What the model says behind a row of ids is computed once and remembered; the first 200 answers are drawn
again without that memory and must be the same.

Fast. SmolLM2-135M-Instruct (135 million parameters; `make smollm`), float32, one thread. Its own rollouts at temperature 1 on 64 train
problems of the four families of bench-decoders (40 tokens each) are what the draft head learns from: 300 steps, drafts among 4,096
ids; chain and tree have the same head. Then 16 test problems (four of each family), one at a time, 32 tokens at most, at temperature 0 and 1:

    none              no drafts: a token a pass, by the same code (draft_tree, c_peak 1)
    chain of 1, of 3  speculate, depth 1 (at temperature 0 alone) and 3
    tree of 15        draft_tree, depth 6, top_k 4, 15 nodes
    tree, not taught  the same with a head that has learned nothing, at temperature 0: the control

Measured of each answer, mean and 95 % t-interval over the 16: tokens per pass; CPU seconds and wall seconds of a token without
drafts over those with them (others may use the machine: CPU seconds are the ones to read); at temperature 0 the share of answers
that are those of `none`; the largest difference between a token's log-prob and that of a plain pass. A GPU is modelled, not measured: a pass of
few tokens costs as much as one of one token, and each layer of drafts costs its share of the parameters that a pass reads:

    predicted = tokens per pass / (1 + depth * (draft head + its rows of the head) / parameters)

No setting was chosen by these numbers. A first, larger size (96 rollouts, a head for each decoder, 8 problems of 48 tokens) was stopped
while its heads learned, for its time on a busy machine; nothing had been measured. A second asked 4 questions, which left it open whether a chain of
one draft is faster (1.29 [0.98, 1.60] by CPU seconds); 16 were set for that reason, before they were asked, and nothing else was changed.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scipy.stats import chi2

from benchmarks.learning import t_interval
from benchmarks.real import smollm2
from synth.types import Message, Problem, Sampling, seed_for
from tasks.core.paths import CODE
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode._drafts import Answer, Draft, drawn
from training.decode.speculate import Drafter, Rule, answered
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states, load_model, new_model
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

RESULTS = CODE / "benchmarks" / "results"
END, ASKED, LONGEST = 2, np.array([4, 3, 5, 5]), 4
EXACT, WRONG, AGAIN = 100_000, 20_000, 200
DRAFTERS: dict[str, dict[str, Any]] = {
    "speculate": {"piece": "speculate", "depth": 2, "steps": 60},
    "speculate, uniform drafts": {"piece": "speculate", "depth": 2, "draft": "uniform"},
    "draft_tree": {"piece": "draft_tree", "depth": 2, "nodes": 6, "top_k": 2, "steps": 60},
}
TAUGHT, ROLLOUT, STEPS, WORDS, QUESTIONS, TOKENS = 64, 40, 300, 4096, 16, 32
CHAIN, TREE = {"piece": "speculate"}, {"piece": "draft_tree", "depth": 6, "top_k": 4, "nodes": 15}
FAST: dict[str, dict[str, Any]] = {
    "none": {**TREE, "c_peak": 1},
    "chain of 1": {**CHAIN, "depth": 1},
    "chain of 3": {**CHAIN, "depth": 3},
    "tree of 15": TREE,
}


# --- exact


class Six:
    """In the place of a tokenizer: six ids."""

    eos_token_id, pad_token_id = END, 0

    def __len__(self) -> int:
        return 6


def small_engine() -> Engine:
    model = new_model(
        Six(),  # type: ignore[arg-type]
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=64,
        max_length=64,
        init_range=0.2,
        seed=0,
    )
    return Engine(
        sampler=TorchSampler(model, END), text=str, said=str, sampling=Sampling(max_tokens=LONGEST, top_k=LONGEST)
    )


def own_answers(source: Engine) -> list[Example]:
    """What the model says itself, for drafts to be learned from."""
    rng = np.random.default_rng(5)
    asks = [Ask(prompt=rng.integers(3, 6, 4), seed=i, max_tokens=8) for i in range(20)]
    done = bind("decode", {"piece": "sample"})(source, asks, None)
    return [
        Example(prompt=a.prompt, chosen=d.segment.ids, rejected=d.segment.ids) for a, d in zip(asks, done, strict=True)
    ]


class Known:
    """In the place of a cache of keys and values: the ids that were read; what the model says of them is computed once."""

    def __init__(self, model: Any, memo: dict[tuple[int, ...], Any]) -> None:
        self.model, self.memo, self.row, self.device = model, memo, [], torch.device("cpu")
        self.held = np.zeros(1, dtype=np.int64)

    def window(self, lo: int, hi: int) -> None:
        pass

    def features(self, row: tuple[int, ...]) -> Any:
        if row not in self.memo:
            cache = CachedRows(1)
            self.memo[row] = hidden_states(self.model, torch.tensor([row]), cache.begin(len(row)), cache)[0, -1]
        return self.memo[row]

    def read(self, ids: Any, parents: Any) -> Any:
        before = self.row[: int(self.held[0])]
        parents = range(-1, len(ids) - 1) if parents is None else parents
        self.new = [int(i) for i in ids]
        paths: list[list[int]] = []
        for i, parent in zip(self.new, parents, strict=True):
            paths.append([*(paths[parent] if parent >= 0 else []), i])
        self.row = [*before, *self.new]
        self.before, self.held[0] = before, len(self.row)
        return torch.stack([self.features((*before, *path)) for path in paths])

    def follow(self, path: Sequence[int]) -> None:
        self.row = [*self.before, *(self.new[i] for i in path)]
        self.held[0] = len(self.row)


def remembering(source: Engine) -> Engine:
    """What the model says behind each row of ids is computed once: the same numbers, sooner."""
    memo: dict[tuple[int, ...], Any] = {}
    computed: dict[bytes, Any] = {}

    class Remembered(Answer):
        def read(self, ids: Any, parents: Any = None) -> Any:
            self.account.charge("policy", len(ids))
            if not isinstance(self.cache, Known):
                self.cache = Known(source.sampler.model, memo)  # type: ignore[assignment]
            return self.cache.read(ids, parents)  # type: ignore[attr-defined]

        def chances(self, features: Any) -> Any:
            keys = [f.tobytes() for f in features.numpy()]
            for key, f in zip(keys, features, strict=True):
                if key not in computed:
                    (computed[key],) = super().chances(f[None])
            return [computed[key] for key in keys]

    return replace(source, answer=Remembered)


def statistic(counts: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Chi-square of counts [m] under p [m], and its bound at 1 in 1,000."""
    want = p * counts.sum()
    at = want > 0
    return float(((counts - want)[at] ** 2 / want[at]).sum()), float(chi2.ppf(0.999, at.sum() - 1))


def deviation(source: Engine, decode: Any, fitted: Any, n: int) -> tuple[float, float, int]:
    """Chi-square of n answers to one prompt under the model's own distribution of them, its bound, and how many outcomes
    are told apart; an answer that ended is one."""
    counts: Counter[tuple[int, ...]] = Counter()
    for first in range(0, n, 2000):
        asks = [Ask(prompt=ASKED, seed=i, max_tokens=LONGEST) for i in range(first, min(first + 2000, n))]
        counts.update(tuple(d.segment.ids.tolist()) for d in decode(source, asks, fitted))
    probability: dict[tuple[int, ...], float] = {}
    open_: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    words = len(source.read_out()[1])
    for length in range(LONGEST):
        rows = [(*row, v) for row, _ in open_ for v in range(words)]
        each = np.exp(source.logp([(ASKED, np.array(row)) for row in rows])).reshape(len(open_), words)
        cut = np.where(each >= np.sort(each, 1)[:, -LONGEST : -LONGEST + 1], each, 0)  # top_k
        behind = np.array([[p] for _, p in open_]) * cut / cut.sum(1, keepdims=True)
        now = {row: float(p) for row, p in zip(rows, behind.ravel(), strict=True) if p > 0}
        probability |= {row: p for row, p in now.items() if row[-1] == END or length == LONGEST - 1}
        open_ = [(row, p) for row, p in now.items() if row[-1] != END]
    often = [row for row, p in probability.items() if p * n >= 5]
    want = np.array([probability[row] for row in often])
    got = np.array([counts[row] for row in often], dtype=float)
    value, bound = statistic(np.append(got, n - got.sum()), np.append(want, max(1 - want.sum(), 0)))
    return value, bound, len(often)


def not_from_the_rest(p: Any, q: Any, token: int, sampling: Sampling, rng: np.random.Generator) -> tuple[int, bool]:
    """The wrong rule: a draft that is not kept is followed by a draw from the model."""
    keep = rng.random() * float(q[token]) < float(p[token])
    return (token, True) if keep else (drawn(p, sampling, rng), False)


def under(rule: Rule) -> Any:
    """`speculate` with a rule of one's own for what becomes of a draft."""
    depth = DRAFTERS["speculate, uniform drafts"]["depth"]
    return lambda source, asks, fitted: [answered(source, a, fitted, depth, source.sampling, rule) for a in asks]


def exact(n: int = EXACT, wrong: int = WRONG) -> list[dict[str, Any]]:
    out = []
    for name, spec in DRAFTERS.items():
        begun, source, decode = time.process_time(), small_engine(), bind("decode", spec)
        fitted = decode.fit(source, own_answers(source))  # type: ignore[attr-defined]
        asks = [Ask(prompt=ASKED, seed=i, max_tokens=LONGEST) for i in range(AGAIN)]
        plain = [d.segment.ids.tolist() for d in decode(source, asks, fitted)]
        known = remembering(source)
        same = plain == [d.segment.ids.tolist() for d in decode(known, asks, fitted)]
        value, bound, outcomes = deviation(known, decode, fitted, n)
        row = {"case": name, "answers": n, "value": value, "bound": bound, "outcomes": outcomes, "same": same}
        out.append({**row, "seconds": time.process_time() - begun})
        print(out[-1], flush=True)
    source = small_engine()
    fitted = bind("decode", DRAFTERS["speculate, uniform drafts"]).fit(source, own_answers(source))  # type: ignore[attr-defined]
    value, bound, outcomes = deviation(remembering(source), under(not_from_the_rest), fitted, wrong)
    row = {"case": "a wrong rule", "answers": wrong, "value": value, "bound": bound, "outcomes": outcomes, "same": True}
    out.append({**row, "seconds": 0.0})
    print(out[-1], flush=True)
    return out


# --- fast


def asked(split: Any, n: int) -> list[Problem]:
    """n problems of the four families, one of each in turn."""
    import importlib

    from benchmarks.decoders import TASKS

    make = [getattr(importlib.import_module(f"synth.families.{t}"), t) for t in TASKS]
    out: list[Problem] = []
    i = 0
    while len(out) < n:
        problem = make[len(out) % len(make)](11, split, i, levels=(1,))
        i += 1
        if isinstance(problem, Problem):
            out.append(problem)
    return out


class Target:
    """The real model, and what a head learns of it."""

    def __init__(self, path: str) -> None:
        model, self.tokenizer = load_model(path)
        self.renderer = Renderer(self.tokenizer)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.sampler = TorchSampler(model, self.renderer.end_id, renderer=self.renderer)
        self.asks = [self._prompt(p) for p in asked("test", QUESTIONS)]
        prompts = [self._prompt(p) for p in asked("train", TAUGHT)]
        self.lessons: list[Example] = []
        for first in range(0, TAUGHT, 32):
            few = prompts[first : first + 32]
            session = self.sampler.open(few, [seed_for(0, "rollout", first + i) for i in range(len(few))])
            for prompt, s in zip(few, session.generate(Sampling(max_tokens=ROLLOUT)), strict=True):
                self.lessons.append(Example(prompt=prompt, chosen=s.ids, rejected=s.ids))

    def _prompt(self, p: Problem) -> np.ndarray:
        return np.array(self.renderer.prompt([Message(role="user", content=p.prompt[0].content)]), dtype=np.int64)

    def engine(self, temperature: float) -> Engine:
        sampling = Sampling(temperature=temperature, max_tokens=TOKENS)
        return Engine(sampler=self.sampler, text=str, said=str, sampling=sampling)

    def answers(self, decode: Any, fitted: Any, temperature: float) -> list[dict[str, Any]]:
        """Of each question: ids, passes, CPU and wall seconds, and the largest gap of a log-prob."""
        engine, out = self.engine(temperature), []
        for i, prompt in enumerate(self.asks):
            ask = Ask(prompt=prompt, seed=seed_for(0, "asked", i), max_tokens=TOKENS)
            cpu, wall = time.process_time(), time.perf_counter()
            (done,) = decode(engine, [ask], fitted)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            out.append(
                {
                    "ids": done.segment.ids.tolist(),
                    "passes": done.account.passes,
                    "cpu": cpu,
                    "wall": wall,
                    "logp": done.segment.logp.tolist(),
                    "forward": done.account.spent,
                }
            )
        return out


def fast(path: str) -> dict[str, Any]:
    begun = time.process_time()
    target = Target(path)
    tree = bind("decode", {"piece": "draft_tree", "steps": STEPS, "words": WORDS})
    head = tree.fit(target.engine(1.0), target.lessons)  # type: ignore[attr-defined]
    chain = Drafter(
        net=head.net,
        embedding=head.embedding,
        head=head.head,
        few=head.few,
        weight=head.weight,
        vocabulary=head.vocabulary,
        loss=head.loss,
    )
    fit_of = {"draft_tree": head, "speculate": chain}
    net = Draft(head.head.shape[1], seed_for(0, "draft"))  # as it began
    plain = replace(head, net=net)
    share = (sum(p.numel() for p in head.net.parameters()) + head.weight.numel()) / target.parameters
    out: dict[str, Any] = {
        "parameters": target.parameters,
        "share": share,
        "fit_seconds": time.process_time() - begun,
        "rollout_tokens": sum(len(e.chosen) for e in target.lessons),
        "cases": {},
    }
    print({k: v for k, v in out.items() if k != "cases"}, flush=True)
    for temperature in (0.0, 1.0):
        cases = {name: (spec, fit_of[spec["piece"]]) for name, spec in FAST.items()}
        if temperature == 1:
            del cases["chain of 1"]
        if temperature == 0:
            cases["tree of 15, not taught"] = (TREE, plain)
        for name, (spec, fitted) in cases.items():
            rows = target.answers(bind("decode", {**spec, "words": WORDS}), fitted, temperature)
            if temperature == 1:  # log-probs behind a top_k and the like are of what is left: at temperature 1 of all
                for prompt, row in zip(target.asks, rows, strict=True):
                    want = target.sampler.logp(prompt, np.array(row["ids"]))
                    row["gap"] = float(np.abs(np.asarray(want) - np.array(row["logp"])).max())
            out["cases"][f"{name}, temperature {temperature:g}"] = rows
            print(name, temperature, sum(len(r["ids"]) for r in rows), sum(r["cpu"] for r in rows), flush=True)
    return out


DEPTH = {"none": 0, "chain of 1": 1, "chain of 3": 3, "tree of 15": 6, "tree of 15, not taught": 6}


def about(device: str, n: int) -> dict[str, Any]:
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {
        "device": f"{platform.machine()}, {device}",
        "versions": versions,
        "command": "make bench-speculation",
        "ratio_to_best_peer": None,
        "n": n,
        "peers": {},
    }


def of_exact(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for r in rows:
        for metric, key in (
            ("answers", "answers"),
            ("outcomes told apart", "outcomes"),
            ("chi-square", "value"),
            ("bound at 1 in 1,000", "bound"),
        ):
            value = round(float(r[key]), 1)
            one = {"case": r["case"], "metric": metric, "value": value, "low": value, "high": value, "unit": ""}
            out.append({**one, "better": "lower", **about("one core", 1)})
    return out


def of_fast(run: dict[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for case, rows in run["cases"].items():
        name, _, temperature = case.rpartition(", temperature ")
        none = run["cases"][f"none, temperature {temperature}"]

        def add(metric: str, values: Sequence[float], unit: str = "", better: str = "higher", case: str = case) -> None:
            mean, low, high = (round(float(x), 3) for x in t_interval(list(values)))
            one = {"case": case, "metric": metric, "value": mean, "low": low, "high": high, "unit": unit}
            out.append({**one, "better": better, **about("one thread of a shared CPU", len(values))})

        per_pass = [(len(r["ids"]) - 1) / max(r["passes"], 1) for r in rows]  # the first token is the prompt's
        add("tokens per pass", per_pass)
        for key, metric in (("cpu", "times as fast, CPU seconds"), ("wall", "times as fast, wall seconds")):
            each = [a[key] / len(a["ids"]) / (b[key] / len(b["ids"])) for a, b in zip(none, rows, strict=True)]
            add(metric, each)
        add("times as fast, GPU, predicted", [x / (1 + DEPTH[name] * run["share"]) for x in per_pass])
        add("forward tokens of an answer", [r["forward"] for r in rows], better="lower")
        if temperature == "0":
            same = [100.0 * (a["ids"] == b["ids"]) for a, b in zip(none, rows, strict=True)]
            add("the same answers as without drafts", same, "%")
        else:
            add("largest gap of a log-prob", [r["gap"] for r in rows], "nats", "lower")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--exact", action="store_true", help="the distribution alone")
    parser.add_argument("--speed", action="store_true", help="the real model alone")
    parser.add_argument("--model", default="", help="GGUF or folder in the place of SmolLM2")
    parser.add_argument(
        "--runs", type=Path, default=CODE / "benchmarks" / "runs" / "speculation.json", help="what was measured"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.exact or not args.speed:
        rows = of_exact(exact())
        (RESULTS / "speculation-exact.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if args.speed or not args.exact:
        run = fast(args.model or smollm2())
        args.runs.write_text(json.dumps(run, separators=(",", ":")) + "\n", encoding="utf-8")
        results = of_fast(run)
        (RESULTS / "speculation.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for r in results:
            print(f"{r['case']:40} {r['metric']:34} {r['value']:.3f} [{r['low']:.3f}, {r['high']:.3f}]")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
