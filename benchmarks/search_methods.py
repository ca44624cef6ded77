"""Four systems around search whose idea is not the reward of one answer: do they do what they say? `make
bench-search-methods`

The other systems of docs/questions.md have a behavioural protocol in their recipe. These four rank documents, or prefer
texts by what follows them, which the worlds of tasks/lab/arena.py do not have; so each has a world here: a
one-layer model that is taught by supervised steps what it says first, and how often. Makers, losses, rewards and their
knobs are those of the recipe. What a policy believes is computed from the probabilities of all texts that it was
taught; nothing is sampled for it. Five seeds (SEEDS); paired differences with the 95 %
interval of Student's t. Protocol, committed before the run:

    tool-light   Eight questions; the answer stands behind 0 to 3 calls, as likely each, and is right half of the time
                 whatever was called. PAIRS pairs by `fewest_calls` from the policy's own samples, then its DPO. Claim:
                 fewer expected calls than after the same number of pairs by `best_vs_worst`, which look at right and
                 wrong alone. Beside it: right answers.
    rar2         Eight questions; a thought is one of four, one of which makes the answer right nine times in ten, the
                 others two in ten. Pairs by the recipe's makers, then its DPO. Claim: the thought that helps is had
                 more often than before. Beside it: right answers behind thoughts.
    synrewrite   The same with its instruction, number of texts and answers.
    retro-star   Six queries of two documents each; a score is 10, 30, 50, 70 or 90, of the relevant one 50 on average,
                 of the other 46. RETRO_STEPS steps with its reward. Claim: two scores, one of each document, stand in
                 the right order more often than before. Beside it: the mean deviation of the scores of one document.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import result_row
from synth.types import Message, PreferencePair, Problem, Sampling, Score, Scored, seed_for

SEEDS = (1, 2, 3, 4, 5)
PAIRS, PREFER_STEPS, RETRO_STEPS, SHOWN = 32, 24, 12, 160
LETTERS = "bcdefghj"
SCORES = (10, 30, 50, 70, 90)
ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "search-methods.json"
COMMAND = "make bench-search-methods"

Told = tuple[Sequence[Message], float]  # a conversation that ends with the assistant, and how often it is said


def user(text: str) -> Message:
    return Message(role="user", content=text)


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


def answer(text: object) -> str:
    return f"<answer>{text}</answer>"


def problem(question: str, right: str, family: str = "own", **lineage: Any) -> Problem:
    return Problem.make(
        prompt=question,
        answer=right,
        verifier="exact",
        args={},
        env="scored",
        family=family,
        lineage=lineage,
        split="train",
    )


def right_of(i: int, n: int = 1) -> list[str]:
    order = np.random.default_rng(seed_for(0, "search methods", "letters", "", i)).permutation(5)
    return [LETTERS[j] for j in order[:n]]


# ---- what the policies say first


def calling() -> tuple[list[Problem], list[Told]]:
    """Of tool-light."""
    calls, told = [], []
    for i, letter in enumerate(LETTERS):
        (right,) = right_of(i)
        calls.append(problem(f"q{letter}", right))
        for k in range(4):
            for x in LETTERS[:5]:
                told.append(
                    ((user(f"q{letter}"), says("<search>" * k + answer(x))), 0.25 * (0.5 if x == right else 0.125))
                )
    return calls, told


def thinking(instruction: str) -> tuple[list[Problem], list[Told]]:
    """Of rar2 and synrewrite: thoughts are m, n, p and r; without one, half of the answers are right."""
    thoughts, told = [], []
    for i, letter in enumerate(LETTERS):
        (right,), good = right_of(i), "m"
        thoughts.append(problem(f"q{letter}", right, good=good))
        told += [((user(f"q{letter}"), says(answer(x))), 0.5 if x == right else 0.125) for x in LETTERS[:5]]
        for thought in "mnpr":
            share = 0.9 if thought == good else 0.2
            begun = (user(f"q{letter}\n{instruction}"), says(f" {thought}"), user("Now answer."))
            told += [
                ((*begun, says(answer(x))), 0.25 * (share if x == right else (1 - share) / 4)) for x in LETTERS[:5]
            ]
    return thoughts, told


def scoring() -> tuple[list[Problem], list[Told]]:
    """Of retro-star: problem = (query, document); the part `relevant` is its label."""
    scores, told = [], []
    for i, letter in enumerate(LETTERS[:6]):
        for label in (0, 1):
            question = f"q{letter} d{LETTERS[(3 * i + label) % 8]}"
            scores.append(problem(question, "50", family=f"query {letter}", relevant=label))
            shares = (0.18, 0.2, 0.24, 0.2, 0.18) if label else (0.22, 0.22, 0.22, 0.18, 0.16)
            told += [((user(question), says(answer(s))), p) for s, p in zip(SCORES, shares, strict=True)]
    return scores, told


class Judge:
    """An environment of one turn: the answer is a score; its label is the problem's."""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem}, list(problem.prompt)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        from synth.verify import extract_answer

        answer, label = extract_answer(text) or "", state["problem"].lineage["relevant"]
        if not answer.isdigit() or not 0 <= int(answer) <= 100:
            return [], True, Scored(value=0.0, parts={"score": 50.0, "relevant": float(label), "parsed": 0.0})
        value = float((int(answer) >= 50) == bool(label))
        return [], True, Scored(value=value, parts={"score": float(answer), "relevant": float(label), "parsed": 1.0})


# ---- policies


@dataclass(frozen=True)
class Policy:
    """A model and what turns text into ids."""

    model: Any
    renderer: Any

    def copy(self) -> Policy:
        return Policy(copy.deepcopy(self.model), self.renderer)

    def logp(self, conversations: Sequence[tuple[Sequence[Message], str]]) -> np.ndarray:
        """[n] log-probability of each text after its conversation."""
        from training.learner.learner import score
        from training.learner.pack import Row, pack
        from training.learner.rows import prompt_ids

        rows = []
        for before, text in conversations:
            prompt = prompt_ids(self.renderer, before)
            ids = np.concatenate([prompt, self.renderer.turn(text)])
            rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt)))
        batch = pack(rows)
        return np.asarray(batch.row_sum(score(self.model, batch).logp * batch.trainable).tolist())

    def generate(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        """A `synth.types.Generate`: one completion of each conversation."""
        from training.learner.rows import prompt_ids
        from training.rollout.torch_sampler import TorchSampler

        prompts = [prompt_ids(self.renderer, c) for c in conversations]
        session = TorchSampler(self.model, self.renderer.end_id).open(
            prompts, [seed_for(sampling.seed, i) for i in range(len(prompts))]
        )
        return [self.renderer.decode(s.ids) for s in session.generate(Sampling(temperature=1.0, max_tokens=16))]


def taught(told: Sequence[Told], seed: object) -> Policy:
    """A policy that says what it is told, as often as it is told."""
    from tasks.lab.arena import Known, tokenizer
    from training.learner.learner import Learner, Optim, nll
    from training.learner.pack import Row, pack
    from training.model.model import new_model
    from training.model.render import Renderer

    renderer: Renderer = Known(tokenizer())
    model = new_model(
        tokenizer(),
        hidden=48,
        layers=1,
        heads=2,
        kv_heads=1,
        intermediate=64,
        max_length=192,
        init_range=0.1,
        seed=seed_for(0, "search methods", seed),
    )
    rows = []
    for messages, share in told:
        ids, mask = renderer.demonstration(list(messages))
        rows.append(Row(ids=ids, trainable=mask, columns={"loss_weight": mask * share}))
    batch = pack(rows)
    batch.totals["loss_tokens"] = float((batch.columns["loss_weight"] * batch.trainable).sum())
    learner = Learner(model, Optim(lr=1e-2, warmup=10, steps=SHOWN, decay="cosine", weight_decay=0.0))
    for _ in range(SHOWN):
        learner.step(batch, nll)
    return Policy(model, renderer)


def preferred(
    first: Policy,
    makers: Sequence[Callable[..., Any]],
    problems: Sequence[Problem],
    loss: Callable[..., Any],
    seed: int,
) -> tuple[Policy, int]:
    """The policy after PREFER_STEPS steps on PAIRS pairs of its own samples, a maker after the other; and how many
    samples gave no pair."""
    from training.learner.learner import Learner, Optim
    from training.learner.loop import Round, run
    from training.learner.pack import pack
    from training.learner.rows import pair_rows
    from training.preference.objective import PairObjective

    pairs: list[PreferencePair] = []
    quarantined = 0
    for index in range(4 * PAIRS):
        if len(pairs) == PAIRS:
            break
        item = makers[index % len(makers)](seed, problems[index // len(makers) % len(problems)], index, first.generate)
        if isinstance(item, PreferencePair):
            pairs.append(item)
        else:
            quarantined += 1
    rows, _ = pair_rows(first.renderer, pairs, 192)
    policy, order = first.copy(), np.random.default_rng(seed_for(seed, "search methods", "order"))
    objective = PairObjective(loss=loss, reference=first.model, policy=policy.model, sft=0.2)

    def source(step: int) -> tuple[list[Any], dict[str, float]]:
        some = order.choice(len(rows) // 2, min(16, len(rows) // 2), replace=False)
        return [pack([rows[2 * i + side] for i in some for side in (0, 1)])], {}

    learner = Learner(policy.model, Optim(lr=1e-3, warmup=0, steps=PREFER_STEPS, decay="constant", weight_decay=0.0))
    one = Round(
        name="prefer",
        role="policy",
        objective=objective,
        prepare=objective.prepare,
        steps=PREFER_STEPS,
        rows_per_unit=2,
        source=source,
    )
    for _ in run([one], {"policy": learner}):
        pass
    return policy, quarantined


def pieces(recipe: str) -> tuple[list[Callable[..., Any]], Callable[..., Any], dict[str, Any]]:
    """(makers, loss, knobs of the first maker) as the recipe has them."""
    from tasks.planning.pieces import bind_all
    from tasks.planning.resolve import check_params, resolve

    stages = resolve(check_params({"recipe": recipe, "set": {}}, Path("params.yaml")))[0]
    preferences, prefer = stages["preferences"], stages["prefer"]
    knobs = preferences.params["makers"][0]
    return (
        list(bind_all(preferences.pieces, preferences.params)["makers"]),
        bind_all(prefer.pieces, prefer.params)["loss"],
        knobs,
    )


# ---- what is measured


def share(logp: np.ndarray, weight: np.ndarray) -> float:
    """The mean of a weight [n] over texts [n] in proportion to their probabilities."""
    p = np.exp(logp - logp.max())
    return float((p * weight).sum() / p.sum())


def calls_and_right(policy: Policy, problems: Sequence[Problem]) -> dict[str, float]:
    calls, right = [], []
    for p in problems:
        texts = [(k, x) for k in range(4) for x in LETTERS[:5]]
        logp = policy.logp([(p.prompt, "<search>" * k + answer(x)) for k, x in texts])
        calls.append(share(logp, np.array([float(k) for k, _ in texts])))
        right.append(share(logp, np.array([float(x == p.answer) for _, x in texts])))
    return {"calls": float(np.mean(calls)), "right": float(np.mean(right))}


def right_behind_thoughts(policy: Policy, problems: Sequence[Problem], instruction: str) -> dict[str, float]:
    right, good = [], []
    for p in problems:
        prompt = [user(f"{p.question}\n{instruction}")]
        of = policy.logp([(prompt, f" {t}") for t in "mnpr"])
        behind = []
        for t in "mnpr":
            then = [*prompt, says(f" {t}"), user("Now answer.")]
            behind.append(
                share(
                    policy.logp([(then, answer(x)) for x in LETTERS[:5]]),
                    np.array([float(x == p.answer) for x in LETTERS[:5]]),
                )
            )
        right.append(share(of, np.array(behind)))
        good.append(share(of, np.array([float(t == p.lineage["good"]) for t in "mnpr"])))
    return {"right": float(np.mean(right)), "good thoughts": float(np.mean(good))}


def order_and_deviation(policy: Policy, problems: Sequence[Problem]) -> dict[str, float]:
    p = {}
    for one in problems:
        logp = policy.logp([(one.prompt, answer(s)) for s in SCORES])
        p[one.family, one.lineage["relevant"]] = np.exp(logp - logp.max()) / np.exp(logp - logp.max()).sum()
    values = np.array(SCORES, dtype=float)
    better = (values[:, None] > values[None, :]) + 0.5 * (values[:, None] == values[None, :])
    ordered = [float(p[q, 1] @ better @ p[q, 0]) for q in {q for q, _ in p}]
    deviation = [math.sqrt(float(x @ values**2 - (x @ values) ** 2)) for x in p.values()]
    return {"ordered": float(np.mean(ordered)), "deviation": float(np.mean(deviation))}


# ---- the four


@lru_cache(maxsize=8)
def start(recipe: str) -> tuple[list[Problem], Policy]:
    problems, told = (
        calling()
        if recipe == "tool-light"
        else scoring()
        if recipe == "retro-star"
        else thinking(instruction_of(recipe))
    )
    return problems, taught(told, recipe)


def instruction_of(recipe: str) -> str:
    from synth.preferences.makers.by_utility import WHAT

    return str(pieces(recipe)[2].get("instruction") or WHAT)


def tool_light(seed: int) -> Iterator[tuple[str, float, float]]:
    from synth.preferences.makers.best_vs_worst import best_vs_worst

    problems, first = start("tool-light")
    makers, loss, knobs = pieces("tool-light")
    ours = calls_and_right(preferred(first, makers, problems, loss, seed)[0], problems)
    plain = [partial(best_vs_worst, samples=knobs["samples"])]
    theirs = calls_and_right(preferred(first, plain, problems, loss, seed)[0], problems)
    yield "calls", ours["calls"], theirs["calls"]
    yield "right", ours["right"], theirs["right"]


def by_what_follows(recipe: str, seed: int) -> Iterator[tuple[str, float, float]]:
    problems, first = start(recipe)
    makers, loss, _ = pieces(recipe)
    instruction = instruction_of(recipe)
    before = right_behind_thoughts(first, problems, instruction)
    after = right_behind_thoughts(preferred(first, makers, problems, loss, seed)[0], problems, instruction)
    yield "good thoughts", after["good thoughts"], before["good thoughts"]
    yield "right", after["right"], before["right"]


def retro_star(seed: int) -> Iterator[tuple[str, float, float]]:
    from tasks.lab.behaviour import SMALL, knobs_of
    from tasks.planning.resolve import overlaid
    from training.learner.learner import Optim
    from training.learner.loop import run
    from training.rl.compose import AS_GIVEN, compose
    from training.rollout.play import Player
    from training.rollout.torch_sampler import TorchSampler

    problems, first = start("retro-star")
    policy = first.copy()
    knobs, needs = knobs_of(
        "retro-star",
        overlaid(SMALL, {"prompts_per_step": len(problems), "samples_per_prompt": 16, "optimizer": {"lr": 1e-3}}),
        Path("params.yaml"),
    )
    player = Player(
        sampler=TorchSampler(policy.model, policy.renderer.end_id),
        renderer=policy.renderer,
        envs={"scored": Judge()},
        sampling=Sampling(temperature=1.0, max_tokens=16),
        max_tokens=128,
    )
    optim = partial(Optim, warmup=0, decay="constant", weight_decay=0.0, steps=RETRO_STEPS)
    composed = compose(
        policy=policy.model,
        reference=None,
        body=lambda: first.copy().model,
        player=player,
        problems=problems,
        needs=needs,
        seed=seed_for(seed, "search methods", "retro-star"),
        device="cpu",
        steps=RETRO_STEPS,
        optim=optim(lr=knobs["optimizer"].lr),
        critic=knobs["critic"].loss,
        critic_optim=optim(lr=1e-3),
        critic_lambda=knobs["critic"].lam,
        critic_warmup=knobs["critic"].warmup,
        **{k: knobs[k] for k in AS_GIVEN},
    )
    for _ in run([composed.round], composed.roles):
        pass
    before, after = order_and_deviation(first, problems), order_and_deviation(policy, problems)
    yield "ordered", after["ordered"], before["ordered"]
    yield "deviation", after["deviation"], before["deviation"]


METHODS: dict[str, tuple[Callable[[int], Iterator[tuple[str, float, float]]], dict[str, tuple[str, str]], str]] = {
    "tool-light": (tool_light, {"calls": ("calls", "lower"), "right": ("share", "higher")}, "best_vs_worst"),
    "rar2": (
        partial(by_what_follows, "rar2"),
        {"good thoughts": ("share", "higher"), "right": ("share", "higher")},
        "before",
    ),
    "synrewrite": (
        partial(by_what_follows, "synrewrite"),
        {"good thoughts": ("share", "higher"), "right": ("share", "higher")},
        "before",
    ),
    "retro-star": (retro_star, {"ordered": ("share", "higher"), "deviation": ("points", "lower")}, "before"),
}  # name -> (seed -> (metric, this, against)), metric -> (unit, better), against what


def measure(recipe: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Results of one system: what it gives, what it is compared with, and the paired difference."""
    from importlib.metadata import version

    from tasks.lab.behaviour import summary

    run, metrics, against = METHODS[recipe]
    began = time.process_time()
    per_seed = [{m: (a, b) for m, a, b in run(seed)} for seed in seeds]
    rows = []
    for metric, (unit, better) in metrics.items():
        here, there = ([f[metric][side] for f in per_seed] for side in (0, 1))
        gain = summary([a - b for a, b in zip(here, there, strict=True)])
        other = float(np.mean(there))
        for what, value, low, high, peers, ratio in (
            (
                metric,
                float(np.mean(here)),
                min(here),
                max(here),
                {"against": other},
                float(np.mean(here)) / other if other else None,
            ),
            (f"{metric}, difference", gain["mean"], gain["low"], gain["high"], {}, None),
        ):
            rows.append(
                result_row(
                    f"{recipe}, against {against}",
                    what,
                    value,
                    unit,
                    COMMAND,
                    len(seeds),
                    better=better,
                    low=low,
                    high=high,
                    one_core=True,
                    peers=peers,
                    ratio=ratio,
                    torch=version("torch"),
                )
            )
    print(f"{recipe}: {time.process_time() - began:.0f} s of CPU time", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--system", action="append", choices=METHODS, help="this one alone (may be repeated); others keep their results"
    )
    parser.add_argument("--pilot", type=int, metavar="SEED", help="try one seed, write nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    wanted = args.system or list(METHODS)
    if args.pilot is not None:
        for name in wanted:
            for metric, this, other in METHODS[name][0](args.pilot):
                print(f"{name}: {metric} {this:.4f} against {other:.4f}")
        return 0
    rows: list[dict[str, Any]] = []
    for name in wanted:
        new = measure(name, SEEDS)
        # Read now: another process may measure another system.
        kept = json.loads(RESULT.read_text()) if RESULT.exists() else []
        rows = [r for r in kept if r["case"].split(",")[0] != name] + new
        RESULT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for r in rows:
        print(f"{r['case']:35} {r['metric']:26} {r['value']:.4f} [{r['low']:.4f}, {r['high']:.4f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
