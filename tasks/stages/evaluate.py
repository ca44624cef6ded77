"""The stage `evaluate`: every model plays the held-out questions; the last one plays them again with a search tool that finds nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa

from synth.contamination import Hit, contaminated
from synth.types import PreferencePair, Problem, Sampling, Scored, Trajectory, digest
from synth.verify import extract_answer
from tasks.disk import tables
from tasks.disk.finished import Finished
from tasks.errors import UserError, nearest
from tasks.measure import OUTCOMES, measure, needed, plain
from tasks.planning.pieces import Pieces
from tasks.play import judges, knowledge, tools
from tasks.play import sets as test_sets
from tasks.play.search import NOTHING
from tasks.stage import Stage
from training.model import load_model
from training.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Rollout

MODELS = {"base": ("sft", "base"), "sft": ("sft", "model"), "prefer": ("prefer", "model"), "rl": ("rl", "model")}  # name -> stage, folder
WATCHED = ("pass@1", "pass@8", "majority@8", "ece", "calls", "tokens")  # of each model, in MLflow; all others are in metrics.json
SCORES = pa.DataFrameSchema(
    {
        "run": tables.text(empty=False),
        "model": tables.text(among=tuple(MODELS)),
        "blanked": pa.Column(bool),
        "problem": tables.text(empty=False),
        "sample": tables.number(0, whole=True),
        "env": tables.text(empty=False),
        "family": tables.text(empty=False),
        "hops": tables.number(0, whole=True),
        "score": tables.number(nullable=True),
        "outcome": tables.text(among=OUTCOMES),
        "calls": tables.number(0, whole=True),
        "turns": tables.number(1, whole=True),
        "tokens": tables.number(0, whole=True),
        "temperature": tables.number(0),
        "top_p": tables.number(0),
        "said": tables.text(),
        "reference": tables.text(),
        "text": tables.text(),
        "confidence": tables.number(0, nullable=True),
        "reward": tables.number(nullable=True),
        "max_turn_tokens": tables.number(1, whole=True),
        "search_k": tables.number(1, whole=True),
    },
    name="scores",
    unique=["run", "problem", "sample"],
)


@dataclass(frozen=True)
class Run:
    """One model on one list of problems with one set of tools."""

    name: str
    model: str
    problems: Sequence[Problem]
    samples: int
    tools: Mapping[str, Callable[..., str]]


def evaluate(
    stage: Stage,
    *,
    models: list = ["base", "sft", "prefer", "rl"],
    against: str = "sft",
    questions: int = 300,
    samples: int = 8,
    per_family: int = 20,
    family_samples: int = 4,
    blanked_samples: int = 2,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_turn_tokens: int = 48,
    max_tokens: int = 512,
    k: int = 3,
    envs: Pieces("training.env") = [{"piece": "search"}, {"piece": "single"}],
    metrics: Pieces("training.evaluate") = [
        {"piece": "pass_at_k", "ks": [1, 8]},
        {"piece": "majority_at_k", "ks": [8]},
        {"piece": "answer_overlap"},
        {"piece": "cost_per_right"},
        {"piece": "calibration"},
        {"piece": "diversity"},
        {"piece": "behaviour"},
        {"piece": "length_bias"},
    ],
    sets: list = [],
    overlap: str = "refuse",
    judge: dict = {},
    traces: int = 48,
    max_unscorable: float = 0.02,
    wave: int = 256,
    device: str = "cpu",
    dtype: str = "float32",
) -> None:
    """`samples` rollouts of each of `questions` test questions per model, `family_samples` of `per_family` problems of each verifiable
    family; differences are taken to the model `against`. `max_unscorable` is the largest share of rollouts without a score before the
    numbers would mean something else.

    sets: test sets of one's own (`tasks/play/sets.py` has the keys). overlap: "refuse" stops where an evaluation row stands in what was
    trained on, and names the rows; "drop" leaves those rows out and counts them. traces: conversations that MLflow shows turn by turn. judge: a
    model that says whose answer is better, a model's or that of `against` (`tasks/play/judges.py` has the keys); it must stand the attacks
    first. A metric that reads `rewards` (best_of_n) has every rollout judged by artifacts/reward."""
    if overlap not in ("refuse", "drop"):
        raise UserError(f"evaluate: overlap = {overlap!r} is neither refuse nor drop")
    wanted = needed(metrics)
    for name in [*models, against]:
        if name not in MODELS:
            raise UserError(f"evaluate: there is no model {name!r}: {nearest(name, MODELS)}")
    asked = held_out(stage.input("questions", "problems.parquet"), questions, stage.seed)
    solved = held_out(stage.input("problems", "problems.parquet"), per_family, stage.seed, by_family=True)
    own = [test_sets.load(stage, spec, i) for i, spec in enumerate(sets)]
    if twice := [name for name, n in Counter(s.name for s in own).items() if n > 1]:
        raise UserError(f"evaluate.sets: two sets are called {twice[0]!r}: give each a name of its own")
    leaked = overlaps(stage, {"questions": asked, "families": solved} | {s.name: s.problems for s in own}, refuse=overlap == "refuse")
    asked, solved = ([p for p in problems if p.id not in leaked] for problems in (asked, solved))
    hosts = {e.piece.rpartition("/")[2]: e() for e in envs}
    search = tools.bound(knowledge.search(stage, k=k), hosts.values())
    blank = {**search, "search": lambda query: NOTHING}
    runs = [Run(name, name, asked, samples, search) for name in models]
    runs += [Run(f"{name}, families", name, solved, family_samples, search) for name in models]
    runs += [
        Run(f"{name}, {s.name}", name, [p for p in s.problems if p.id not in leaked], s.samples, search) for name in models for s in own
    ]
    runs += [Run(f"{models[-1]}, search blanked", models[-1], asked, blanked_samples, blank)]
    for r in runs:
        if not r.problems:
            raise UserError(f"evaluate: every problem of {r.name!r} was trained on: there is nothing left to ask")
    sampling = Sampling(temperature=temperature, top_p=top_p, max_tokens=max_turn_tokens)

    @lru_cache(maxsize=1)  # runs of one model follow each other
    def sampler(name: str) -> tuple[TorchSampler, Renderer]:
        model, tokenizer = load_model(stage.input(*MODELS[name]), dtype=dtype, device=device)
        renderer = Renderer(tokenizer)
        now[:] = [model]
        return TorchSampler(model=model, end_id=renderer.end_id), renderer

    referee = judges.trusted(stage, judge, solved or asked) if judge else None
    scorer = None
    if "rewards" in wanted:
        from tasks.play.rewards import RewardModel

        word = json.loads(stage.input("reward", "card.json").read_text(encoding="utf-8")).get("verdict", "")
        scorer = RewardModel(stage.input("reward", "model"), word, dtype=dtype, device=device)

    def play(run: Run, part: Sequence[Problem]) -> list[Rollout]:
        source, renderer = sampler(run.model)
        player = Player(sampler=source, renderer=renderer, envs=hosts, tools=run.tools, sampling=sampling, max_tokens=max_tokens, wave=wave)
        # The same random numbers for every model: differences between models are paired, and steadier for it.
        return [r for group in player.play(part, run.samples, stage.seed, "evaluate") for r in group.rollouts]

    def probe(rollouts: Sequence[Rollout]) -> list[list[float] | None]:
        from tasks.play.prompts import prompt_features

        return prompt_features(now[0], rollouts, device=device)

    now: list[Any] = []  # the model that plays
    rows: list[dict[str, Any]] = []
    with stage.progress(sum(len(r.problems) * r.samples for r in runs), "rollouts") as bar:
        for run in sorted(runs, key=lambda r: models.index(r.model)):
            for part in resumable(
                stage.finished(run.name),
                run.problems,
                max(1, wave // run.samples),
                partial(play, run),
                scorer,
                probe if "features" in wanted else None,
            ):
                rows += [{"run": run.name, "model": run.model, "blanked": run.tools is blank, **row} for row in part]
                bar.update(len(part), model=run.name)

    missing = sum(r["score"] is None for r in rows)
    if missing > max_unscorable * len(rows):
        first = next(r for r in rows if r["score"] is None)
        raise ValueError(
            f"{missing} of {len(rows)} rollouts could not be scored, more than max_unscorable = {max_unscorable}; the first: problem "
            f"{first['problem']}, {first['reason']}"
        )
    decoding = {"temperature": temperature, "top_p": top_p, "max_turn_tokens": max_turn_tokens, "search_k": k}
    frame = pd.DataFrame([{c: r[c] if c in r else decoding[c] for c in SCORES.columns} for r in rows])
    for column in ("score", "confidence", "reward"):
        frame[column] = frame[column].astype("float64")
    SCORES.validate(frame).to_parquet(stage.out / "scores.parquet", compression="zstd", index=False)
    with (stage.out / "episodes.jsonl").open("w", encoding="utf-8") as f:
        for r in rows:
            if r["messages"] is not None:
                shown = {c: v for c, v in r.items() if c not in ("reference", "text", "features") and (c not in ("reason", "reward") or v)}
                f.write(json.dumps(shown, ensure_ascii=False) + "\n")
    if "features" in wanted:
        frame["features"] = [r["features"] for r in rows]  # read by metrics, and too large to keep
    found = measure(frame, models, against, metrics, [s.name for s in own])
    if any("pass@1" not in values for values in found["models"].values()):
        raise UserError(
            "evaluate: no metric gives pass@1, which the report shows: keep {piece: pass_at_k, ks: [1, ...]} among evaluate.metrics"
        )
    if referee:
        asked_of = {p.id: p for r in runs for p in r.problems}
        seen = [r for r in rows if r["messages"] is not None and not r["blanked"]]
        last = {m: {r["problem"]: answered(r["messages"]) for r in seen if r["model"] == m} for m in models}
        said = referee.compared(last, asked_of, against)
        found["judged"] = plain(said.rates)
        (stage.out / "verdicts.jsonl").write_text("".join(json.dumps(v, ensure_ascii=False) + "\n" for v in said.verdicts), encoding="utf-8")
    (stage.out / "metrics.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    stage.card(
        {
            "rollouts": len(rows),
            "unscorable": missing,
            "questions": len(asked),
            "problems": len(solved),
            "samples": samples,
            **decoding,
            "sets": {s.name: {"source": s.source, "problems": len(s.problems), "quarantined": tables.counts(s.aside)} for s in own},
            "overlap": {"gate": overlap, "dropped": len(leaked)},
            "held_out": digest([p.id for p in asked]),
            **({"judge": said.card} if referee else {}),
        }
    )
    for name, values in found["models"].items():
        stage.log({f"{name}/{m}": v["mean"] for m, v in values.items() if m in WATCHED and v.get("mean") is not None})
    for pair, rates in found.get("judged", {}).items():
        stage.log({f"{pair.partition(' over ')[0]}/win_rate": rates["win_rate"]["mean"]})
    if traces:
        stage.episodes(stage.out / "episodes.jsonl", traces)
    stage.artifact(stage.out / "metrics.json")


def held_out(path: Path, n: int, seed: int, *, by_family: bool = False) -> list[Problem]:
    """n test problems (of each family) chosen by a hash of their id, so that a change of the table's order or size moves few of them."""
    families: dict[str, list[Problem]] = {}
    for p in tables.read(path, Problem):
        if p.split == "test":
            families.setdefault(p.family if by_family else "", []).append(p)
    if not families:
        raise UserError(
            f"{path} holds no problem of the split test: nothing is held out to evaluate on; give the stage before it a larger n_test"
        )
    return [p for family in sorted(families) for p in sorted(families[family], key=lambda p: digest("evaluate", seed, p.id))[:n]]


def overlaps(stage: Stage, held_out: Mapping[str, Sequence[Problem]], *, refuse: bool) -> set[str]:
    """The ids of problems that were trained on: every problem of the split train, every demonstration and every pair is compared.

    Raises UserError with the rows where `refuse`; all of them are then in overlap.jsonl of the work folder.
    """
    trained = list(training_texts(stage))
    hits: list[Hit] = []
    for name, problems in held_out.items():
        texts = [(p.id, str(p.lineage.get("question", p.question))) for p in problems]
        # Of questions and families only the same text counts: what one template makes is alike by construction, and split by its root.
        hits += contaminated(texts, trained, near=name not in ("questions", "families"))
    if hits and refuse:
        path = stage.out / "overlap.jsonl"
        path.write_text("".join(json.dumps(vars(h), ensure_ascii=False) + "\n" for h in hits), encoding="utf-8")
        first = "; ".join(f"{h.text[:80]!r} is {h.overlap:.0%} of {h.where} {h.trained}" for h in hits[:3])
        raise UserError(
            f"evaluate: {len(hits)} evaluation rows stand in what was trained on ({first}; all in {path.relative_to(stage.root)}): "
            "take them out of one of the two, or set evaluate.overlap to drop"
        )
    return {h.row for h in hits}


def training_texts(stage: Stage) -> Iterator[tuple[str, str, str]]:
    """(id, where, text) of all that any model of the run may have learned from."""
    for source in ("questions", "problems"):
        for p in tables.read(stage.input(source, "problems.parquet"), Problem):
            if p.split == "train":
                yield p.id, f"artifacts/{source}", p.question
    for t in tables.read(stage.input("trajectories", "trajectories.parquet"), Trajectory):
        yield t.id, "artifacts/trajectories", next((m.content for m in t.messages if m.role == "user"), "")
    for pair in tables.read(stage.input("clean", "pairs.parquet"), PreferencePair):
        if pair.split == "train":
            for text in (*(m.content for m in pair.prompt if m.role == "user"), pair.chosen, pair.rejected):
                yield pair.id, "artifacts/clean", text


def resumable(
    finished: Finished,
    problems: Sequence[Problem],
    size: int,
    play: Callable[[Sequence[Problem]], list[Rollout]],
    scorer: Callable[[Sequence[Rollout]], list[float]] | None = None,
    probe: Callable[[Sequence[Rollout]], list[list[float] | None]] | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Rows of the rollouts of `problems`, `size` problems at a time. A part that is finished is not played again."""

    def rows(part: Sequence[Problem]) -> list[dict[str, Any]]:
        counts: Counter[str] = Counter()
        out, played = [], play(part)
        rewards = scorer(played) if scorer else [None] * len(played)
        features = probe(played) if probe else [None] * len(played)
        for r, reward, seen in zip(played, rewards, features, strict=True):
            out.append({**row(r, counts[r.group]), "reward": reward, **({"features": seen} if probe else {})})
            counts[r.group] += 1
        return out

    for lo in range(0, len(problems), size):
        yield finished(str(lo), lambda lo=lo: rows(problems[lo : lo + size]))


def row(rollout: Rollout, sample: int) -> dict[str, Any]:
    """What is kept of one rollout; the conversation itself of each problem's first sample only."""
    problem, score = rollout.problem, rollout.score
    written = [m.content for m in rollout.info["messages"] if m.role == "assistant"]
    last = next((s.logp for s in reversed(rollout.segments) if s.logp is not None), None)
    return {
        "problem": problem.id,
        "sample": sample,
        "env": problem.env,
        "family": problem.family,
        "hops": int(problem.difficulty.get("hops", 0)),
        "score": score.value if isinstance(score, Scored) else None,
        "reason": "" if isinstance(score, Scored) else score.reason,
        "outcome": outcome(rollout),
        "calls": int(rollout.info.get("calls", 0)),
        "turns": rollout.turns,
        "tokens": rollout.n_model,
        "said": extract_answer(written[-1]) or "" if written else "",
        "text": "\n".join(written),
        "confidence": None if last is None else float(np.exp(np.sum(last, dtype=np.float64))),
        "answer": problem.answer,
        "reference": problem.answer,
        "messages": [{"role": m.role, "content": m.content} for m in rollout.info["messages"]] if sample == 0 else None,
    }


def answered(messages: Sequence[Mapping[str, str]]) -> str:
    """The last words of the model, "" where it never spoke."""
    return next((m["content"] for m in reversed(messages) if m["role"] == "assistant"), "")


def outcome(rollout: Rollout) -> str:
    """How an episode ended, one of OUTCOMES."""
    if not isinstance(rollout.score, Scored):
        return "unscorable"
    parts = rollout.score.parts
    if rollout.score.value >= 0.999:
        return "right"
    if parts.get("truncated"):
        return "truncated"
    if parts.get("answered", 1.0):
        return "wrong"
    return "out_of_calls" if parts.get("malformed") == 0.0 else "malformed"
