"""Test sets that are not played as conversations: choices, scored by their likelihood under the model, and tasks of
lm-evaluation-harness (tasks/evaluation/harness.py) and of Inspect (tasks/evaluation/inspect_tasks.py), which have their
own prompts and metrics.

    set:
      evaluate:
        sets:
        - {name: science, layout: choices, path: data/arc.jsonl, chat: true}
        - {name: arc, task: arc_easy, limit: 500, fewshot: 5}
        - {name: mine, task: my_task, tasks: data/tasks}
        - {name: facts, inspect: data/facts.py@facts, limit: 100}

Keys of the second kind: task (a task or group of the harness); tasks (a folder below data/ with task files of your own);
limit (items, drawn by hash); fewshot (examples before each item, in the place of the task's own number); chat (whether
prompts go through the model's chat template; of choices too). Of the third: inspect (FILE.py@TASK below data/, or
MODULE@TASK of a package that is installed); limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from synth.types import Message, Problem
from tasks.core.errors import UserError, nearest
from tasks.evaluation.scored_set import Benchmark, Player, Row
from tasks.evaluation.testsets import TestSet, load
from tasks.runtime.stage import Stage
from training.learner.continuations import continuation_logp
from training.metrics import interval
from training.metrics._tests import sign_flip
from training.metrics.paired import paired
from training.model.render import Renderer

KEYS = {"task": {"name", "task", "tasks", "limit", "fewshot", "chat"}, "inspect": {"name", "inspect", "limit"}}
PACKAGES = {"task": ("lm_eval", "lm-evaluation-harness", "harness"), "inspect": ("inspect_ai", "Inspect", "inspect")}


def is_benchmark(spec: Any) -> bool:
    """Whether an entry of `evaluate.sets` is such a benchmark, and not a list of problems to be played."""
    return isinstance(spec, Mapping) and (bool(KEYS.keys() & spec.keys()) or spec.get("layout") == "choices")


def load_benchmark(stage: Stage, spec: Mapping[str, Any], i: int) -> Benchmark:
    """Raises UserError for an entry that cannot be read, and if its package is not installed."""
    kind = next((k for k in KEYS if k in spec), None)
    if kind is None:
        return of_choices(load(stage, {k: v for k, v in spec.items() if k != "chat"}, i), bool(spec.get("chat")))
    where = f"evaluate.sets[{i}]"
    for key in spec:
        if key not in KEYS[kind]:
            raise UserError(f"{where}: unknown key {key!r}: {nearest(key, KEYS[kind])}")
    if not isinstance(spec.get("name"), str) or not spec["name"].strip() or "," in spec["name"]:
        raise UserError(f"{where} must have a name without a comma, for example {{name: arc, task: arc_easy}}")
    module, called, extra = PACKAGES[kind]
    if find_spec(module) is None:
        raise UserError(f"{where}: tasks of {called} need its package: pip install 'espalier[{extra}]'")
    if kind == "inspect":
        from tasks.evaluation import inspect_tasks

        return inspect_tasks.load_task(stage, spec, where)
    from tasks.evaluation import harness

    return harness.load_task(stage, spec, where)


def of_choices(test_set: TestSet, chat: bool) -> Benchmark:
    """Multiple choice. acc: the choice with the largest summed log-probability is right; acc_norm: with the largest per
    character of the choice, as lm-evaluation-harness takes it."""
    problems = {p.id: p for p in test_set.problems}

    def score(player: Player, items: Sequence[str]) -> list[Row]:
        continuations, places = [], []
        for item in items:
            pairs = choice_ids(player.renderer, problems[item], chat)
            places.append(slice(len(continuations), len(continuations) + len(pairs)))
            continuations += pairs
        logps = np.array([s for s, _ in continuation_logp(player.model, continuations, longest=player.longest)])
        return [
            {"item": item, "set": test_set.name, **chosen(problems[item], logps[at])}
            for item, at in zip(items, places, strict=True)
        ]

    texts = tuple((p.id, str(p.lineage["question"])) for p in test_set.problems)
    return Benchmark(test_set.name, test_set.source, texts, score, test_set.quarantined)


def choice_ids(renderer: Renderer, problem: Problem, chat: bool) -> list[tuple[list[int], list[int]]]:
    """(ids before, ids of the choice) of each choice: both are tokenised together and split where the first ends."""
    begin, choices = str(problem.lineage["begin"]), problem.lineage["choices"]
    if chat:
        before = renderer.prompt([Message(role="user", content=begin)]).tolist()
        return [(before, renderer.encode(c).tolist()) for c in choices]
    before = renderer.tokenizer.encode(begin)
    return [(before, renderer.tokenizer.encode(f"{begin} {c}")[len(before) :]) for c in choices]


def chosen(problem: Problem, sums: np.ndarray) -> dict[str, float]:
    """acc and acc_norm of one item from the summed log-probs [choices]; of equal values the first counts."""
    gold, lengths = problem.lineage["gold"], np.array([len(c) for c in problem.lineage["choices"]])
    return {"acc": float(sums.argmax() == gold), "acc_norm": float((sums / lengths).argmax() == gold)}


def scored(
    stage: Stage, benchmarks: Sequence[Benchmark], models: Sequence[str], leaked: set[str], player: Callable
) -> list[Row]:
    """The rows of every model and item that was not trained on; `player(name)` loads a model."""
    rows: list[Row] = []
    for model in models if benchmarks else ():
        for b in stage.progress(list(benchmarks), f"sets, {model}"):
            items = [i for i, _ in b.texts if i not in leaked]
            if not items:
                raise UserError(
                    f"evaluate: every item of the set {b.name!r} was trained on: there is nothing left to ask"
                )
            finished = stage.finished(f"{model}, set {b.name}")
            part = finished("rows", lambda b=b, items=items, model=model: b.score(player(model), items))
            rows += [{"model": model, **row} for row in part]
    return rows


def summarised(
    benchmarks: Sequence[Benchmark], rows: Sequence[Row], models: Sequence[str], against: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """({set: {model: {metric: {"mean", "low", "high", "n"}}}}, {"rl - sft, set, metric": paired difference with p}).

    A metric that is not a mean over items has the task's value over all items, and no difference."""
    sets: dict[str, Any] = {}
    difference: dict[str, Any] = {}
    of_set = {name: b for b in benchmarks for name in dict.fromkeys(r["set"] for r in rows if _of(b, r))}
    for name, b in of_set.items():
        by_model = {m: [r for r in rows if r["model"] == m and r["set"] == name] for m in models}
        for model, model_rows in by_model.items():
            metrics = [k for k in model_rows[0] if k not in ("model", "item", "set", "shown")]
            out = sets.setdefault(name, {}).setdefault(model, {})
            for metric in metrics:
                whole = b.summary(metric, model_rows) if b.summary else None
                values = [r[metric] for r in model_rows]
                shares = whole is None and all(0 <= v <= 1 for v in values)
                out[metric] = dict(whole) if whole is not None else interval(values, shares=shares)
                if whole is None and model != against and against in by_model:
                    old = {r["item"]: r[metric] for r in by_model[against]}
                    two = [[[r[metric]] for r in model_rows], [[old[r["item"]]] for r in model_rows]]
                    p = sign_flip([a[0] - c[0] for a, c in zip(*two, strict=True)])
                    key = f"{model} - {against}, {name}, {metric}"
                    difference[key] = {**paired(*two)["difference"], "p": p}
    return sets, difference


def _of(b: Benchmark, row: Row) -> bool:
    return row["set"] == b.name or str(row["set"]).startswith(f"{b.name}/")


def written(rows: Sequence[Row]) -> str:
    """A line per model and item."""
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
