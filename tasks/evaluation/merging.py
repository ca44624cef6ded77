"""Merges of models that were trained from the same base: their inputs, and what each merge gained and lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from synth.types import seed_for
from tasks.core.errors import UserError
from tasks.evaluation.measure import by_problem, correct, difference, over, plain
from training.metrics.mean import mean
from training.model.model import load_model
from training.model.render import Renderer
from training.model.residual import input_sizes

RIGHT = 0.999  # the mean score from which a problem counts as solved


def merged(
    piece: Any,
    base: tuple[str, Path | str],
    models: Sequence[tuple[str, Path | str]],
    *,
    texts: Sequence[str] = (),
    seed: int = 0,
    dtype: str = "float32",
    device: str = "cpu",
    longest: int = 0,
) -> tuple[nn.Module, Any]:
    """The merged model and its tokenizer, the base's.

    base, models   (name, folder or Hub id) each; the names are used in messages
    texts          prompts whose activations a piece may need

    Raises UserError for models of different shapes or tokenizers, and if the piece refuses.
    """
    called = piece.piece.partition("/")[2]
    if not models:
        raise UserError(f"merge: {called} merges one model or more into {base[0]}, and none was named")
    network, tokenizer = load_model(base[1], dtype=dtype, device=device, longest=longest)
    root = {n: p.detach().cpu() for n, p in network.named_parameters()}
    words, others = tokenizer.get_vocab(), []
    for name, path in models:
        other, its = load_model(path, dtype=dtype)
        weights = {n: p.detach() for n, p in other.named_parameters()}
        wrong = next((n for n in root if n not in weights or weights[n].shape != root[n].shape), None)
        wrong = wrong or next((n for n in weights if n not in root), None)
        if wrong:
            one, two = (list(w[wrong].shape) if wrong in w else "none" for w in (root, weights))
            raise UserError(
                f"merge: {base[0]} and {name} have different shapes ({wrong}: {one} and {two}): only models that were "
                "trained from one and the same model can be merged"
            )
        if its.get_vocab() != words:
            raise UserError(
                f"merge: {base[0]} and {name} have different tokenizers: the rows of their embeddings mean other texts; "
                "merge models that were trained from one and the same model"
            )
        others.append(weights)
    sizes: Mapping[str, Tensor] = {}
    if "activations" in piece.needs:
        if not texts:
            raise UserError(
                f"merge: {called} looks at what enters the weights, so it needs prompts: name a file with --texts"
            )
        renderer = Renderer(tokenizer)
        sizes = input_sizes(network, [renderer.encode(t) for t in texts])
    rng = torch.Generator().manual_seed(seed_for(seed, "merge", called) % 2**63)
    try:
        weights = piece(root, others, {n: s.cpu() for n, s in sizes.items()}, rng)
    except ValueError as e:
        raise UserError(f"merge: {called}: {e}") from e
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(weights[name])
    return network, tokenizer


def label(piece: Any) -> str:
    """The label of a merge with its knobs in tables: `ties (density=0.5)`."""
    knobs = ", ".join(f"{k}={v}" for k, v in piece.keywords.items())
    return piece.piece.partition("/")[2] + (f" ({knobs})" if knobs else "")


def measured(
    frame: pd.DataFrame, runs: Mapping[str, str], models: Sequence[str], metrics: Sequence[Callable]
) -> dict[str, Any]:
    """Per merge, by its label: its metrics, and against each model the paired difference, with the problems that it
    alone solves (`gained`) and that the model alone solves (`lost`), in all and per family. runs: run -> label."""
    by_run = {str(run): rows for run, rows in frame.groupby("run")}
    out: dict[str, Any] = {}
    for run, name in runs.items():
        if run not in by_run:
            continue
        mine = by_run[run]
        out[name] = over(metrics, mine)
        for model in models:
            theirs = by_run[model]
            theirs = theirs[theirs["problem"].isin(mine["problem"])]
            out[name][f"over {model}"] = {
                "difference": difference(mine, pd.DataFrame(theirs)),
                **changed(mine, pd.DataFrame(theirs)),
                "families": {
                    str(family): changed(part, pd.DataFrame(theirs[theirs["family"] == family]))
                    for family, part in mine.groupby("family")
                },
            }
    return plain(out)


def compared(rows: Sequence[Mapping[str, Any]], merge: str, models: Sequence[str]) -> dict[str, Any]:
    """Per task, and `all` of several: what each of the models and the merge is right in, and what the merge gained and lost.

    rows  run, problem, sample, family (the task) and score of each answer

    Returns {task: {"right": {run: {mean, low, high, n}}, "over": {model: {"difference", "gained", "lost"}}}}, the difference with
    its interval, p and p by Holm for the number of all differences of the tasks.
    """
    frame = pd.DataFrame(rows)
    parts = {str(task): part for task, part in frame.groupby("family", sort=False)}
    out: dict[str, Any] = {}
    for task, part in (parts | ({"all": frame} if len(parts) > 1 else {})).items():
        by_run = {str(run): pd.DataFrame(own) for run, own in part.groupby("run")}
        out[task] = {
            "right": {run: mean(by_problem(by_run[run]))["score"] for run in (*models, merge)},
            "over": {
                m: {"difference": difference(by_run[merge], by_run[m]), **changed(by_run[merge], by_run[m])}
                for m in models
            },
        }
    correct({f"{task}, {m}": out[task]["over"][m]["difference"] for task in parts for m in models})
    return plain(out)


def changed(mine: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, int]:
    """How many problems the first solves in all its samples and the second does not, and the other way round."""
    solved = [[sum(s) / len(s) >= RIGHT for s in by_problem(rows)] for rows in (mine, theirs)]
    return {
        "gained": sum(a and not b for a, b in zip(*solved, strict=True)),
        "lost": sum(b and not a for a, b in zip(*solved, strict=True)),
    }
