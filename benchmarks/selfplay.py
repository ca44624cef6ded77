"""Does self-play that looks at failures teach a small model more than uniform problems? `make bench-selfplay`

The protocol is benchmarks/runs/selfplay/protocol.json, committed before the first run. For each seed a small model is
trained from nothing on worked answers; then each arm plays rounds of propose, certify, attempt, score, and learns by RL
(GRPO) on what was certified so far. Raw results lie in benchmarks/runs/selfplay/<seed>.json, one entry per arm, and are
not made again. `--seeds 1 2` runs some seeds, `--tiny` checks the script within a minute (its numbers are thrown away).
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.rows import result_row
from synth.demonstrations.worked_answer import worked_answer
from synth.selfplay.ledger import Ledger
from synth.selfplay.loop import Cell, Loop, cells
from synth.selfplay.propose.ladder import ladder
from synth.selfplay.propose.rewrite import rewrite
from synth.selfplay.propose.teacher import teacher
from synth.selfplay.propose.weak_skills import weak_skills
from synth.selfplay.spec import certify
from synth.types import Problem, Quarantined, Sampling, Scored, seed_for
from training.metrics import half_width
from tasks.planning.pieces import bind
from tasks.problems.proposing import imitation
from tasks.problems.selfplay import registry
from tasks.problems.trained import Played, context
from training.env.propose import propose
from training.env.single import single
from training.learner.learner import Learner, Optim, nll
from training.learner.loop import Round, run
from training.learner.rows import demonstration_row, weighted
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.rl.advantage.grpo import grpo
from training.rl.curriculum.learnability import learnability
from training.rl.curriculum.uniform import uniform
from training.rl.experience import Experience
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.proposer import Pool, Proposing
from training.rl.ratio.token import token
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Batch

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "benchmarks" / "runs" / "selfplay"
PROTOCOL = json.loads((RUNS / "protocol.json").read_text(encoding="utf-8"))
COMMAND = "make bench-selfplay"


def anywhere(problems, state, rng, n):
    """Cells drawn uniformly."""
    return [int(i) for i in rng.integers(len(problems), size=n)]


LENGTH = 384  # tokens of a conversation; recorded runs had 256, before wordings of these families became longer
GRPO: dict[str, Any] = {"advantage": grpo, "max_unscorable": 1.0}
ARMS = {
    "uniform": (ladder, anywhere),
    "socratic-zero": (teacher, partial(learnability, target=0.5)),
    "sws": (partial(weak_skills, share=0.5), partial(learnability, target=0.0, weak_errors=0.0)),
    "clpo": (partial(rewrite, share=0.5), partial(learnability, target=0.0, all_open=True)),
}


class Setting:
    """Families, cells and held-out problems of the protocol, for one seed."""

    def __init__(self, p: dict[str, Any], seed: int) -> None:
        self.families = registry([bind("family", {"piece": name}) for name in p["families"]])
        self.cells = [c for c in cells(self.families, seed) if c.level in p["families"][c.family]]
        self.held = [q for c in self.cells for q in self.items(c, "test", seed, p["held"])]
        few = lambda c: p["weak"]["share"] if c.family == p["weak"]["family"] else 1.0  # noqa: E731
        each = p["sft"]["demonstrations"] / sum(map(few, self.cells))
        self.demos = [q for c in self.cells for q in self.items(c, "train", seed + 1000, round(each * few(c)))]

    def items(self, cell: Cell, split: str, seed: int, n: int) -> list[Problem]:
        drawn = (self.families[cell.family].make(seed, split, i, levels=[cell.level]) for i in range(3 * n))
        return [q for q in drawn if isinstance(q, Problem)][:n]


def trained(p: dict[str, Any], setting: Setting, seed: int) -> tuple[nn.Module, Renderer]:
    """The model after SFT on the worked answers, and its renderer."""
    shown = [worked_answer(q).messages for q in setting.demos]
    tokenizer = train_tokenizer([m.content for messages in shown for m in messages], p["sft"]["vocabulary"])
    renderer = Renderer(tokenizer)
    sizes = {"hidden": p["sft"]["hidden"], "layers": p["sft"]["layers"], "intermediate": 3 * p["sft"]["hidden"]}
    first = seed_for(seed, "bench", "init")
    model = new_model(tokenizer, heads=4, kv_heads=2, max_length=LENGTH, init_range=0.05, seed=first, **sizes)
    rows = [demonstration_row(renderer, messages, 0.1) for messages in shown]

    def source(step: int) -> tuple[list[Batch], dict]:
        rng = np.random.default_rng(seed_for(seed, "bench", "sft", "", step))
        return [weighted([rows[i] for i in rng.integers(len(rows), size=p["sft"]["rows"])], "cpu")], {}

    learner = Learner(
        model,
        Optim(lr=p["sft"]["lr"], warmup=20, steps=p["sft"]["steps"], decay="cosine", final=0.1, weight_decay=0.01),
    )
    for _ in run(
        [Round(name="sft", role="policy", source=source, objective=nll, steps=p["sft"]["steps"])], {"policy": learner}
    ):
        pass
    return model, renderer


def player(model: nn.Module, renderer: Renderer, max_tokens: int = 64) -> Player:
    sampling = Sampling(temperature=1.0, max_tokens=max_tokens)
    return Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"single": single(), "propose": propose()},
        max_tokens=LENGTH,
        sampling=sampling,
    )


def accuracy(playing: Player, problems: list[Problem], answers: int) -> dict[str, float]:
    """pass@1 at temperature 1: the share of right ones of `answers` draws for each problem, by cell and in all."""
    groups = playing.play(problems, answers, "held")
    right: dict[str, list[float]] = {"all": []}
    for group in groups:
        for rollout in group.rollouts:
            hit = float(isinstance(rollout.score, Scored) and rollout.score.value == 1.0)
            right.setdefault(f"{rollout.problem.family}/{rollout.problem.difficulty['level']}", []).append(hit)
            right["all"].append(hit)
    return {name: float(np.mean(hits)) for name, hits in sorted(right.items())}


class Solving:
    """The solver of an arm, from a copy of the SFT model, that learns by GRPO on `pool`: what all arms have in common."""

    def __init__(self, name: str, p: dict[str, Any], setting: Setting, seed: int, start: tuple[nn.Module, Renderer]):
        torch.manual_seed(seed)
        self.name, self.p, self.setting, self.seed = name, p, setting, seed
        model = copy.deepcopy(start[0])
        self.playing = player(model, start[1])
        self.pool: list[Problem] = []
        self.experience = Experience(
            problems=self.pool,
            player=self.playing,
            curriculum=uniform,
            prompts_per_step=p["prompts"],
            samples_per_prompt=p["samples"],
            seed=seed,
            **GRPO,
        )
        many = p["rounds"] * p["steps"]
        self.learner = Learner(model, Optim(lr=p["lr"], warmup=5, steps=many, decay="constant", weight_decay=0.0))
        self.rounds: list[dict[str, Any]] = []
        self.began = time.process_time()
        self.before = accuracy(self.playing, setting.held, p["answers"])

    def learn(self, **told: Any) -> None:
        """The steps of a round. told: what this arm says of the round's proposals."""
        seen = learn_from(self.experience, self.learner, "policy", len(self.rounds), self.p["steps"])
        mute = [m["solve_none"] + m["solve_all"] for m in seen]
        counts = Counter(f"{q.family}/{q.difficulty['level']}" for q in self.pool)
        self.rounds.append({"pool": dict(sorted(counts.items())), "mute": float(np.mean(mute)), **told})
        print(f"  seed {self.seed} {self.name:<22} round {len(self.rounds) - 1} {self.rounds[-1]}", flush=True)

    def result(self) -> dict[str, Any]:
        """Held-out accuracy before and after, and what each round was made of."""
        after = accuracy(self.playing, self.setting.held, self.p["answers"])
        print(f"  seed {self.seed} {self.name:<22} held out {self.before['all']:.3f} -> {after['all']:.3f}", flush=True)
        seconds = round(time.process_time() - self.began, 1)
        return {"before": self.before, "after": after, "rounds": self.rounds, "seconds": seconds}


def steps(learner: Learner, role: str, source: Any, n: int, objective: Any = None) -> None:
    """n steps of a learner, of GRPO if no objective is given."""
    policy = PolicyObjective(ratio=token, policy_loss=clip)
    how = {"objective": objective} if objective else {"objective": policy, "prepare": policy.prepare}
    for _ in run([Round(name=role, role=role, steps=n, source=source, **how)], {role: learner}):
        pass


def learn_from(experience: Experience, learner: Learner, role: str, number: int, n: int) -> list[dict[str, float]]:
    """The n steps of round `number` by GRPO; the metrics of what was played in each."""
    seen: list[dict[str, float]] = []

    def source(step: int) -> Any:
        batches, metrics = experience(number * n + step)
        seen.append(dict(metrics))
        return batches, metrics

    steps(learner, role, source, n)
    return seen


def arm(name: str, p: dict[str, Any], setting: Setting, seed: int, start: tuple[nn.Module, Renderer]) -> dict[str, Any]:
    """An arm of ARMS of one seed: a program proposes."""
    solver = Solving(name, p, setting, seed, start)
    proposes, choose = ARMS[name]
    loop = Loop(
        families=setting.families,
        cells=setting.cells,
        ledger=Ledger(":memory:", {}),
        propose=proposes,
        choose=choose,
        solve=Played(solver.playing),
        pay=lambda proposals: [0.0] * len(proposals),
        seed=seed,
        rounds=p["rounds"],
        proposals=p["proposals"],
        attempts=p["attempts"],
    )
    for summary in loop.run():
        solver.pool[:] = loop.accepted.values()
        solver.learn(success=summary["success"], quarantined=summary["quarantined"])
    return solver.result()


def learned(
    name: str, p: dict[str, Any], setting: Setting, seed: int, start: tuple[nn.Module, Renderer]
) -> dict[str, Any]:
    """The arm whose proposer is a model too, as with `espalier selfplay --learn`: a copy of the SFT model imitates a
    program that draws cells uniformly, then learns by GRPO what the bell pays for proposals that the solver of that
    moment attempts. As many proposals a round as the other arms."""
    solver, q = Solving(name, p, setting, seed, start), p["proposer"]
    model, renderer = copy.deepcopy(start[0]), start[1]
    proposer = Learner(model, Optim(lr=q["lr"][name], warmup=5, steps=10**6, decay="constant", weight_decay=0.0))
    steps(proposer, "proposer", imitation(setting.cells, renderer, seed), q["imitate"], nll)
    pool = Pool(solver.pool)
    for problem in (x for c in setting.cells for x in setting.items(c, "train", seed, q["first"])):
        pool.add(problem)

    def certified(text: str) -> Problem | Quarantined:
        item = certify(text, families=setting.families, seed=seed)
        if isinstance(item, Problem) and item.difficulty["level"] not in p["families"][item.family]:
            return Quarantined(id=item.id, stage="problems", reason="spec_invalid", evidence="no cell of the protocol")
        return item

    playing = player(model, renderer, q["tokens"])
    proposing = Proposing(player=playing, solver=solver.playing, pool=pool, attempts=p["attempts"], certify=certified)
    asking = Experience(
        problems=[context(family) for family in sorted(p["families"])],
        player=proposing,  # type: ignore[arg-type]  # plays as a Player does
        rewards=[bind("reward", {"piece": "bell"})],  # type: ignore[arg-type]
        curriculum=uniform,
        prompts_per_step=q["prompts"],
        samples_per_prompt=q["samples"],
        seed=seed_for(seed, "bench", "propose"),
        **GRPO,
    )
    for number in range(p["rounds"]):
        before = len(solver.pool)
        seen = learn_from(asking, proposer, "proposer", number, q["steps"])
        solver.learn(certified=len(solver.pool) - before, reward=float(np.mean([m["reward"] for m in seen])))
    return solver.result()


EVERY = {**dict.fromkeys(ARMS, arm), **dict.fromkeys(PROTOCOL["proposer"]["lr"], learned)}


def report(runs: dict[int, dict[str, Any]]) -> list[dict]:
    """Per arm: how much higher held-out accuracy is after it than after `uniform`, and what it gained, over the seeds
    that have both."""
    out = []
    for name in EVERY:
        seeds = [s for s, r in sorted(runs.items()) if name in r and "uniform" in r]
        if len(seeds) < 2:
            continue
        gained = {
            n: np.array([runs[s][n]["after"]["all"] - runs[s][n]["before"]["all"] for s in seeds])
            for n in (name, "uniform")
        }
        cases = {"gain of held-out accuracy": gained[name]}
        if name != "uniform":
            cases["gain over uniform"] = gained[name] - gained["uniform"]
        out += [result(name, metric, values, "points", COMMAND, times=100) for metric, values in cases.items()]
    return out


def result(
    case: str, metric: str, values: np.ndarray, unit: str, command: str, *, times: float = 1.0
) -> dict[str, Any]:
    """A row of the results from a value of each seed: `times` the mean, with the 95 % interval of Student's t."""
    mean, half = float(values.mean()), float(half_width(values))
    low, high = times * (mean - half), times * (mean + half)
    return result_row(
        case,
        metric,
        times * mean,
        unit,
        command,
        len(values),
        low=low,
        high=high,
        one_core=True,
        torch=torch.__version__,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=PROTOCOL["seeds"])
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tiny: dict[str, Any] = {
        "rounds": 1,
        "proposals": 8,
        "attempts": 2,
        "steps": 1,
        "held": 2,
        "prompts": 2,
        "samples": 2,
        "proposer": PROTOCOL["proposer"] | {"imitate": 2, "prompts": 2, "samples": 2, "steps": 1},
    }
    p = PROTOCOL | tiny | {"sft": PROTOCOL["sft"] | {"demonstrations": 80, "steps": 3}} if args.tiny else PROTOCOL
    for seed in args.seeds:
        path = RUNS / f"{seed}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not args.tiny else {}
        setting = Setting(p, seed)
        start = trained(p, setting, seed) if set(EVERY) - set(known) else None
        for name, play in EVERY.items():
            if name not in known:
                known[name] = play(name, p, setting, seed, start)
                if not args.tiny:
                    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    if args.tiny:
        return 0
    runs = {
        s: json.loads((RUNS / f"{s}.json").read_text(encoding="utf-8"))
        for s in PROTOCOL["seeds"]
        if (RUNS / f"{s}.json").exists()
    }
    if results := report(runs):
        (ROOT / "benchmarks" / "results" / "selfplay.json").write_text(
            json.dumps(results, indent=1) + "\n", encoding="utf-8"
        )
    for r in results:
        print(
            f"{r['case']}, {r['metric']}: {r['value']:+.1f} [{r['low']:+.1f}, {r['high']:+.1f}] points, {r['n']} seeds"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
