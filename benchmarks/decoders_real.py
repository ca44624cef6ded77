"""Decoders at equal compute on a pretrained model: `make smollm && python -m benchmarks.decoders_real`

PROTOCOL, committed before the first run.

The model is SmolLM2-135M-Instruct (GGUF, Q4_1, float32 arithmetic), untouched. Questions are sums of a number from 4 to 15 and one
from 2 to 9, asked in chat behind one worked example; the last number of an answer of at most 12 tokens counts. The kind of
question was chosen with others (sums of other sizes, products, differences, colours, places of words), so that greedy is neither
always nor never right; no decoder but greedy and single draws was looked at. Seeds 11, 22, 33, 44, 55 draw the questions and the
answers: 6 questions each, and 40 others whose draws, four each, give at most 10 pairs of a right and a wrong answer. Temperature
0.7 where a decoder names none.

A second size, declared as such: the first (10 to 29, 24 others) ended in its third seed, where 4 pairs were found and decoders that
are fitted need 5; of the two seeds before it, one was 0 of 6 for all but two decoders, the other 2 of 6 for most.

Scorer, in the place of a reward model: the probability that the model itself gives an answer (no verifier, nothing is learned). It
reads the conversation, and is charged for it.

Compared. Every decoder answers within a budget of 5 times a prompt and its longest answer. Greedy, majority of k and best of n are
run again with what a decoder did spend, on average, as their budget (what one answer needs, where it spent less; rounded up to a
quarter of it). Forward tokens of all models count; fitting does not. Settings are defaults but for what says how much is drawn,
and shorter fits. `witness` and `cognition_of_thought` do not apply.

A second run, `--fitted`, declared as such and committed before it: `t_pop` and `draft_tree`, which the first left out for the CPU time of their
fits. The same questions, pairs, budget and peers, the first three seeds, defaults but for shorter drafts. A first size, with three more decoders
and five seeds, was stopped in its first seed for its time on a busy machine; no score was seen or kept. Not run are those three: on seed 1, which
does not count, four episodes of `rlot` took 9 CPU seconds (its default is 400: 15 minutes a seed), a step of `fr_ponder` in groups of 4
took 15 (40 steps of 8: 20 minutes), one of `dynamic_control` 36 (30 steps of 8: 36 minutes). A fit of a few steps would say nothing of them.

A third run, `--learned`, declared as such and committed before it: those three, with their defaults, all five seeds. Rows with a changed stream
have since come to share what comes before the change, equal rows are read once, and the scorer remembers what it has read; on seed 1 a step
of `fr_ponder` now takes 6 CPU seconds and one of `dynamic_control` 12 (its groups of 8 are of 16 prompts), 32 episodes of `rlot` 10. No score was seen.

The second run is made again on all five seeds, declared before it: the first three alone were run for their time, and were not seen to differ from
greedy.

Intervals: t over the seeds; a difference to a peer is paired by seed. `--quick` measures the CPU seconds of a decoder on a seed of its own, and
shows no score.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.decoders import PEERS, RESULTS, SEEDS, World, kept, summary
from benchmarks.real import smollm2
from synth.types import Message, Sampling, seed_for
from tasks.planning.pieces import bind
from training.decode import Engine, Example
from training.model.model import load_model
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

TASK, AT, QUESTIONS, JUDGED, PAIRS, LONGEST, TEMPERATURE = "sums", 5, 6, 40, 10, 12, 0.7
COMMAND = "python -m benchmarks.decoders_real"
DECODERS: tuple[dict[str, Any], ...] = (
    *PEERS,
    {"piece": "sample"},
    {"piece": "tournament", "n": 2},
    {"piece": "rosa", "turns": 3},
    {"piece": "plans", "k": 4, "plan_tokens": 3},
    {"piece": "steer"},
    {"piece": "brt_align"},
    {"piece": "model_surgery"},
    {"piece": "speculate", "words": 1024, "steps": 100},
)
LEARNED: tuple[dict[str, Any], ...] = ({"piece": "rlot"}, {"piece": "fr_ponder"}, {"piece": "dynamic_control"})
FITTED: tuple[dict[str, Any], ...] = (
    {"piece": "t_pop"},
    {"piece": "draft_tree", "words": 1024, "steps": 100},
)
BY_OPTION = {"": DECODERS, "--fitted": FITTED, "--learned": LEARNED}


@dataclass(frozen=True)
class Sum:
    """a + b."""

    a: int
    b: int

    @property
    def asked(self) -> Message:
        return Message(role="user", content=f"What is {self.a} + {self.b}?")

    @property
    def said(self) -> Message:
        return Message(role="assistant", content=f"{self.a} + {self.b} = {self.a + self.b}")


class Pretrained(World):
    """Questions of a seed for a pretrained model, which scores its own answers."""

    def __init__(self, model: Any, renderer: Renderer, seed: int) -> None:
        self.seed, self.model, self.renderer = seed, model, renderer
        every = [Sum(a, b) for a in range(4, 16) for b in range(2, 10)]
        order = np.random.default_rng(seed_for(seed, "sums")).permutation(len(every))
        drawn = [every[i] for i in order]
        self.shown, self.test, others = drawn[0], drawn[1 : QUESTIONS + 1], drawn[QUESTIONS + 1 :][:JUDGED]  # type: ignore[assignment]
        self.longest, self.sampling = LONGEST, Sampling(max_tokens=LONGEST, temperature=TEMPERATURE)
        self.peers: dict[tuple[str, float], float] = {}
        self.read: dict[bytes, float] = {}  # rewards by what the scorer has read: fits ask of the same answers again
        self.pairs = self._pairs(others)

    def prompt(self, p: Any) -> np.ndarray:
        return np.array(self.renderer.prompt([self.shown.asked, self.shown.said, p.asked]), dtype=np.int64)

    def number(self, ids: np.ndarray) -> str:
        return ([""] + re.findall(r"\d+", self.renderer.decode(ids)))[-1]

    def right(self, p: Any, ids: np.ndarray) -> bool:
        return self.number(ids) == str(p.a + p.b)

    def _pairs(self, sums: Sequence[Sum]) -> list[Example]:
        prompts = [self.prompt(p) for p in sums for _ in range(4)]
        seeds = [seed_for(self.seed, "judged", i) for i in range(len(prompts))]
        drawn = TorchSampler(self.model, self.renderer.end_id).open(prompts, seeds).generate(self.sampling)
        out = []
        for i, p in enumerate(sums):
            draws = [s.ids for s in drawn[4 * i : 4 * i + 4]]
            good = [self.right(p, ids) for ids in draws]
            if len(out) < PAIRS and len(set(good)) == 2:
                better, worse = draws[good.index(True)], draws[good.index(False)]
                out.append(Example(prompt=prompts[4 * i], chosen=better, rejected=worse))
        return out

    def engine(self) -> Engine:
        own = Engine(
            sampler=TorchSampler(self.model, self.renderer.end_id), text=self.renderer.decode, said=self.number
        )
        before = self.prompt(self.test[0])[-3:]  # what the template writes before an answer

        def rewards(rows: Sequence[np.ndarray]) -> list[float]:
            if not rows:
                return []
            new = list({key: r for r in rows if (key := r.tobytes()) not in self.read}.values())
            split = [max(i for i in range(3, len(r)) if np.array_equal(r[i - 3 : i], before)) for r in new]
            if new:
                values = np.exp(own.logp([(r[:i], r[i:]) for r, i in zip(new, split, strict=True)]))
                self.read |= {r.tobytes(): float(v) for r, v in zip(new, values, strict=True)}
            return [self.read[r.tobytes()] for r in rows]

        return Engine(
            sampler=TorchSampler(self.model, self.renderer.end_id),
            text=self.renderer.decode,
            said=self.number,
            sampling=self.sampling,
            rewards=rewards,
            ids=self.renderer.encode,
        )

    def peer(self, name: str, share: float) -> float:
        """Right answers, in per cent, of a peer with that many times a prompt and its longest answer."""
        quarters = max(4, math.ceil(4 * share - 1e-9))
        if name == "greedy":  # one answer, whatever it may spend
            quarters = 4
        if (name, quarters) not in self.peers:
            decode = bind("decode", next(p for p in PEERS if p["piece"] == name))
            budgets = [round(quarters * n / 4) for n in self.one]
            self.peers[name, quarters] = self.answered(decode, None, budgets)[0]
        return self.peers[name, quarters]

    @property
    def one(self) -> list[int]:
        return [len(self.prompt(p)) + self.longest for p in self.test]


def measured(world: Pretrained, decoders: Sequence[dict[str, Any]] = DECODERS) -> list[dict[str, Any]]:
    """A row for each decoder: task, seed, decoder, times, right, spent, seconds, and its peers'."""
    rows: list[dict[str, Any]] = [{"task": TASK, "seed": world.seed, "decoder": "", "auc": world.auc()}]
    for spec in decoders:
        name, begun = spec["piece"], time.process_time()
        decode = bind("decode", spec)
        fitted = decode.fit(world.engine(), world.pairs) if decode.fit else None  # type: ignore[attr-defined]
        fit = time.process_time() - begun
        right, spent = world.answered(decode, fitted, [AT * n for n in world.one])
        row = {"task": TASK, "seed": world.seed, "decoder": name, "times": AT, "right": right, "spent": spent}
        if name in ("greedy", "majority", "best_of_n"):  # a peer with the whole budget is itself
            world.peers.setdefault((name, 4 if name == "greedy" else 4 * AT), right)
        row["peers"] = {p["piece"]: world.peer(p["piece"], spent / float(np.mean(world.one))) for p in PEERS}
        rows.append({**row, "fit": fit, "seconds": time.process_time() - begun})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="decoders at equal forward tokens on a pretrained model, five seeds")
    parser.add_argument("--model", default="", help="GGUF or folder in the place of SmolLM2")
    other = parser.add_mutually_exclusive_group()
    for option, about in (
        ("--fitted", "second run: t_pop and draft_tree"),
        ("--learned", "third run: fits that play or roll out"),
    ):
        other.add_argument(option, dest="run", action="store_const", const=option, default="", help=f"the {about}")
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--finished", action="store_true", help="run nothing: write the results of the seeds that are finished"
    )
    one.add_argument("--quick", action="store_true", help="CPU seconds of a seed of its own; nothing is written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if not args.finished:
        model, tokenizer = load_model(args.model or smollm2())
        renderer = Renderer(tokenizer)
    decoders, run = BY_OPTION[args.run], "real" + args.run[1:]  # real, real-fitted, real-learned
    if args.quick:
        for row in measured(Pretrained(model, renderer, 1), decoders)[1:]:
            print({k: row[k] for k in ("decoder", "spent", "fit", "seconds")}, flush=True)
        return 0
    for seed in SEEDS:
        rows += kept(
            f"{run}-{seed}",
            None if args.finished else lambda seed=seed: measured(Pretrained(model, renderer, seed), decoders),
        )
    seeds = [s for s in SEEDS if any(r["seed"] == s for r in rows)]
    results = summary(rows, seeds, (TASK,), AT, f"{COMMAND} {args.run}".strip())
    files = {"decoders": f"decoders-{run}"} | ({} if args.run else {"decoders-judge": "decoders-real-judge"})
    for name, file in files.items():
        (RESULTS / f"{file}.json").write_text(json.dumps(results[name], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
