"""Sampling beside learning, with a tool that takes 200 ms: what is hidden, what the simulator said, and a thousand
conversations at once. `make bench-asynchrony`

A model of a million parameters plays conversations of three turns; the tool between two turns sleeps 200 ms, `CALLS` of
them at a time, so the machine computes nothing while it waits. Modes take turns, `RUNS` times. Of each run: seconds of
all steps but the first two. *hidden* is (seconds of sync - seconds of the mode) / the smaller of what sync spent
sampling and learning: 0 where nothing overlaps, 1 where the smaller part costs no time. *predicted* is what `simulate`
makes of the seconds of each step of the sync run of the same turn.

*asleep*: the parts that the paper of AsyncFlow's simulation has (sampling and reward 1.2, reference and update 0.9), as
seconds of sleep times ASLEEP: what two threads save where nothing is computed; `share of sync` is the time by that of
one after the other.

A thousand conversations: one batch, `WIDE` tools at a time; the peak of this process's memory beyond what it held before
it played.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from benchmarks.learning import t_interval
from benchmarks.rows import result_row
from synth.types import Message, Problem, Sampling, Scored
from training.learner.learner import Learner, Optim
from training.learner.loop import Round, run
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.rl.advantage.grpo import grpo
from training.rl.ahead import Ahead, simulate
from training.rl.asynchrony.one_off import one_off
from training.rl.asynchrony.streamed import streamed
from training.rl.asynchrony.sync import sync
from training.rl.curriculum.uniform import uniform
from training.rl.experience import Experience
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.ratio.token import token
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

ROOT = Path(__file__).resolve().parents[1]
RESULTS, RAW = ROOT / "benchmarks/results/asynchrony.json", ROOT / "benchmarks/runs/asynchrony.json"
TOOL, TURNS, CALLS, WIDE, LEFT_OUT = 0.2, 3, 32, 250, 2
ASLEEP, PARTS = 0.25, (1.2, 0.9)
MODES = {"sync": sync, "one_off": one_off, "streamed 1": streamed, "streamed 3": lambda: streamed(staleness=3)}
LENGTH = 24


@dataclass
class Waiting:
    """`turns` turns, with a tool of `seconds` between; what a turn says is no matter, a limit ends it; the score is a
    share of its letters."""

    turns: int = TURNS
    seconds: float = TOOL

    def start(self, problem, tools):
        return {"n": 0, "calls": 0}, list(problem.prompt)

    def step(self, state, text):
        state["n"] += 1
        if state["n"] == self.turns:
            return [], True, Scored(value=sum(ord(c) % 2 for c in text) / max(1, len(text)))
        time.sleep(self.seconds)
        state["calls"] += 1
        return [Message(role="tool", content="The capital of Norvia is Zelton .")], False, None


class Ended(TorchSampler):
    """A turn that the limit cut counts as ended: a model of nothing hardly ever ends one itself."""

    def open(self, prompts, seeds):
        from dataclasses import replace

        session = super().open(prompts, seeds)
        generate = session.generate
        session.generate = lambda sampling: [replace(s, stop="end") for s in generate(sampling)]
        return session


def made():
    texts = [f"What is the capital of Norvia ? {i} Zelton is the capital of Norvia ." for i in range(200)]
    tokenizer = train_tokenizer(texts, vocab_size=1024)
    model = new_model(
        tokenizer, hidden=128, layers=4, heads=4, kv_heads=2, intermediate=384, max_length=1024, init_range=0.06, seed=0
    )
    problems = [
        Problem.make(
            prompt=f"What is the capital of Norvia ? {i}",
            answer="1",
            verifier="exact",
            env="waiting",
            family="f",
            split="train",
        )
        for i in range(64)
    ]
    return tokenizer, model, problems


def player(model, tokenizer, calls, *, tool=None, length=LENGTH, **more):
    renderer = Renderer(tokenizer)
    sampling = Sampling(max_tokens=length)
    return Player(
        sampler=Ended(model, renderer.end_id),
        renderer=renderer,
        envs={"waiting": tool or Waiting()},
        sampling=sampling,
        calls=calls,
        **more,
    )


def steps_of(mode, steps, *, tool=None, length=LENGTH, prompts=8, learn=0.0):
    """Seconds of all steps but the first, and of sampling and learning in each; `learn`: seconds of sleep in each pass
    of the learner."""
    tokenizer, policy, problems = made()
    how = MODES[mode]()
    sampled = copy.deepcopy(policy) if how.staleness else policy
    experience = Experience(
        problems=problems,
        player=player(sampled, tokenizer, CALLS, tool=tool, length=length),
        advantage=grpo,
        curriculum=uniform,
        prompts_per_step=prompts,
        samples_per_prompt=8,
    )
    loss = PolicyObjective(ratio=token, policy_loss=clip)

    def objective(stats, batch):
        time.sleep(learn)
        return loss(stats, batch)

    ahead = Ahead(experience, policy, how, steps) if how.staleness else None
    rounds = [
        Round(
            name="rl", role="policy", source=ahead or experience, objective=objective, prepare=loss.prepare, steps=steps
        )
    ]
    sampling, learning, lag, ends = [], [], [], []
    try:
        for _, _, m in run(rounds, {"policy": Learner(policy, Optim(lr=1e-4, warmup=0))}):
            ends.append(time.monotonic())
            sampling.append(m["rollout_seconds"])
            idle = m["rollout_seconds"] if ahead is None else m["waited_seconds"]
            learning.append(m["step_seconds"] - idle)
            lag.append(m.get("lag", 0.0))
    finally:
        if ahead is not None:
            ahead.close()
    k = LEFT_OUT
    return {
        "seconds": ends[-1] - ends[k - 1],
        "sampling": sampling[k:],
        "learning": learning[k:],
        "lag": float(np.mean(lag[k:])),
    }


def overlapped(runs, steps):
    turns = [{mode: steps_of(mode, steps) for mode in MODES} for _ in range(runs)]
    rows = []
    for mode in MODES:
        rows.append((f"{steps - LEFT_OUT} steps, {mode}", "seconds", [t[mode]["seconds"] for t in turns], "s", "lower"))
        if mode == "sync":
            continue
        stale = MODES[mode]().staleness
        hidden, sampled = [], []
        for t in turns:
            plain = t["sync"]
            less = min(sum(plain["sampling"]), sum(plain["learning"]))
            hidden.append((plain["seconds"] - t[mode]["seconds"]) / less)
            sampled.append(simulate(plain["sampling"], plain["learning"], stale).hidden)
        rows.append((f"{steps - LEFT_OUT} steps, {mode}", "hidden", hidden, "share of the smaller part", "higher"))
        rows.append((f"{steps - LEFT_OUT} steps, {mode}", "predicted", sampled, "share of the smaller part", "higher"))
        rows.append((f"{steps - LEFT_OUT} steps, {mode}", "lag", [t[mode]["lag"] for t in turns], "updates", "lower"))
    return rows, turns


def asleep(runs, steps):
    """The time of what sleeps side by side, by that of one after the other."""
    sample, learn = (ASLEEP * x for x in PARTS)
    knobs = {"tool": Waiting(turns=2, seconds=sample), "length": 2, "prompts": 2, "learn": learn}
    turns = [{mode: steps_of(mode, steps, **knobs)["seconds"] for mode in ("sync", "streamed 1")} for _ in range(runs)]
    case = f"{steps - LEFT_OUT} steps of {sample:.2f} and {learn:.3f} s asleep, streamed 1"
    return [(case, "share of sync", [t["streamed 1"] / t["sync"] for t in turns], "", "lower")]


def thousand():
    tokenizer, model, problems = made()
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # noqa: E731
    before, begin = peak(), time.monotonic()
    groups = player(model, tokenizer, WIDE, batch_size=1000).play((problems * 2)[:125], 8, "thousand")
    seconds = time.monotonic() - begin
    turns = sum(r.turns for g in groups for r in g.rollouts)
    assert turns == 3000
    case = f"1,000 conversations of {TURNS} turns, tool {TOOL * 1000:.0f} ms"
    return [
        (case, "seconds", [seconds], "s", "lower"),
        (case, "memory", [peak() - before], "MB beyond the model", "lower"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(2)
    load = [os.getloadavg()[0]]
    rows = thousand()  # first: the peak of the process only grows
    more, raw = overlapped(args.runs, args.steps)
    more += asleep(args.runs, args.steps)
    load.append(os.getloadavg()[0])
    out = []
    for case, metric, values, unit, better in rows + more:
        mean, low, high = t_interval(values) if len(values) > 1 else (values[0],) * 3
        out.append(
            result_row(
                case,
                metric,
                mean,
                unit,
                "make bench-asynchrony",
                len(values),
                better=better,
                low=low,
                high=high,
                device=f"{os.cpu_count()} CPU cores, load {min(load):.0f} to {max(load):.0f}",
                torch=version("torch"),
            )
        )
        print(f"{case:<45} {metric:<10} {mean:8.3f} {unit}", flush=True)
    RESULTS.write_text(json.dumps(out, indent=1) + "\n")
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()
