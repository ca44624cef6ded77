"""`espalier merge`: one model folder of several, and what the merge gained and lost on test sets."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from synth.types import Problem, Sampling, digest
from tasks.core.errors import UserError, nearest
from tasks.evaluation import testsets
from tasks.evaluation.merging import compared, merged
from tasks.planning.pieces import bind, files, find
from tasks.runtime.models import model_path
from training.env.single import single
from training.model.model import load_model, save_model
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

RECORD = "merge.json"  # file beside the weights: what they were merged from, and what it gained and lost
PROMPT = 2048  # tokens that a question may have beside its answer
BATCH = 32  # questions that are answered at once


def merge(
    root: Path,
    method: str,
    base: str,
    models: Sequence[str],
    out: Path,
    *,
    knobs: Mapping[str, Any],
    texts: Path | None = None,
    seed: int = 0,
    tests: Sequence[str] = (),
    limit: int = 0,
    samples: int = 1,
    max_tokens: int = 256,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Write the merged model to `out`, which must not exist.

    tests       test sets as FILE or FILE:LAYOUT, a task each, named by its file; base, models and merge answer them
    limit       questions of each, drawn by hash; 0: all
    samples     answers to each question: one is the likeliest, several are drawn at temperature 1
    max_tokens  of an answer

    Returns what `evaluation.merging.compared` says of the tests; {} without tests. Raises UserError.
    """
    if out.exists():
        raise UserError(f"{out} is there already: name a folder that is not, or remove it")
    known = [p.name for p in inspect.signature(find("merge", method)).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in knobs:
        if name not in known:
            raise UserError(f"merge: {method} has no knob {name!r}: {nearest(name, known)}")
    if texts is not None and not texts.is_file():
        raise UserError(f"--texts {texts} does not exist: name a file with a prompt per line")
    if min(samples, max_tokens) < 1 or limit < 0:
        raise UserError(
            f"merge: {samples} answers of {max_tokens} tokens to {limit} questions: answers and tokens are 1 or more, 0 questions are all"
        )
    tasks = _tasks(tests, limit, seed)
    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()] if texts else []
    piece = bind("merge", {"piece": method, **knobs})
    places = [(name, model_path(root, name)) for name in (base, *models)]
    try:
        network, tokenizer = merged(piece, places[0], places[1:], texts=lines, seed=seed)
    except (ValueError, OSError) as e:
        raise UserError(str(e).strip().splitlines()[0]) from e
    save_model(network, tokenizer, out)
    record: dict[str, Any] = {
        "method": method,
        "base": base,
        "models": list(models),
        "knobs": dict(knobs),
        "seed": seed,
    }
    measures: dict[str, Any] = {}
    if tasks:
        sampling = Sampling(temperature=0.0 if samples == 1 else 1.0, max_tokens=max_tokens)
        rows = _answered(str(out), network, tokenizer, tasks, samples, sampling, seed, progress)
        del network  # one model in memory at a time
        for name, path in places:
            rows += _answered(name, *load_model(path), tasks, samples, sampling, seed, progress)
        measures = compared(rows, str(out), [name for name, _ in places])
        record["measured"] = {"tests": list(tests), "samples": samples, "max_tokens": max_tokens, "tasks": measures}
    (out / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return measures


def _tasks(tests: Sequence[str], limit: int, seed: int) -> dict[str, list[Problem]]:
    """Name of a test set -> its problems. Raises UserError for one that cannot be read, or played in one turn."""
    out: dict[str, list[Problem]] = {}
    for spec in tests:
        file, sign, kind = spec.rpartition(":")
        path, kind = (Path(file), kind) if sign and not Path(spec).exists() else (Path(spec), "plain")
        if not path.is_file():
            raise UserError(f"--evaluate {spec}: {path} does not exist: name a file of questions and answers")
        if kind.replace("-", "_") not in files(testsets.FOLDER):
            raise UserError(f"--evaluate {spec}: there is no layout {kind!r}: {nearest(kind, files(testsets.FOLDER))}")
        problems, wrong = testsets.problems_of(
            testsets.read(path), find(testsets.FOLDER, kind), path.stem, str(path), {}
        )
        problems = sorted(problems, key=lambda p: digest("merge", seed, p.id))[: limit or None]
        if not problems:
            why = wrong[0].evidence if wrong else "it has no rows"
            raise UserError(f"--evaluate {spec}: no row of {path} is a question of the layout {kind}; the first: {why}")
        if other := next((p for p in problems if p.env != "single" or "choices" in p.lineage), None):
            how = "by its choices" if "choices" in other.lineage else f"in the environment {other.env}"
            raise UserError(
                f"--evaluate {spec}: {path} is not answered in one turn but measured {how}: do that with the stage evaluate and its "
                "knob merges (docs/merging.md)"
            )
        if path.stem in out:
            raise UserError(f"--evaluate: two files are called {path.stem}: rename one, tasks are told apart by it")
        out[path.stem] = problems
    return out


def _answered(
    name: str,
    model: Any,
    tokenizer: Any,
    tasks: Mapping[str, Sequence[Problem]],
    samples: int,
    sampling: Sampling,
    seed: int,
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A row for each answer of a model: run, problem, sample, family (the task) and score."""
    renderer = Renderer(tokenizer)
    player = Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={"single": single()},
        sampling=sampling,
        max_tokens=PROMPT + sampling.max_tokens,
        batch_size=BATCH,
    )
    rows: list[dict[str, Any]] = []
    for task, problems in tasks.items():
        progress(f"{name} answers {len(problems)} questions of {task}")
        for group in player.play(problems, samples, seed, "merge", task):
            rows += [
                {"run": name, "problem": group.rollouts[0].problem.id, "sample": i, "family": task, "score": float(v)}
                for i, v in enumerate(group.rewards)
            ]
    return rows
