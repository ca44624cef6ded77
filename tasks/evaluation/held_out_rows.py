"""Metrics of models on the user's held-out rows: which side of a pair is more likely, and the loss on the answers of a
conversation. Nothing is sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from synth.types import Demonstration, PreferencePair, digest
from tasks.runtime.models import MODELS
from tasks.runtime.stage import Stage
from tasks.storage import tables
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.learner.rows import demonstration_row, pair_rows
from training.metrics._tests import sign_flip
from training.metrics.mean import mean
from training.metrics.paired import paired
from training.model.model import load_model
from training.model.render import Renderer

MOST = 500  # rows of each kind, drawn by hash
AT_ONCE = 16384  # tokens of a pass
Values = dict[str, list[float]]  # metric -> a number for each row


def held_out_rows(
    stage: Stage, models: Sequence[str], against: str, *, max_tokens: int, device: str, dtype: str
) -> dict[str, Any]:
    """{"models": {model: {metric: mean with its interval}}, "difference": {"prefer - sft, pair_accuracy": ...}, "rows"}.

    pair_accuracy   share of held-out pairs whose chosen answer has a higher probability than the rejected one
    pair_margin     the difference of the two log-probabilities, in nats
    nll             nats per token of the assistant's turns in held-out conversations: lower is better

    Empty if the run has no held-out rows of the user.
    """
    pairs = _drawn(stage, "clean", "pairs", PreferencePair)
    talks = _drawn(stage, "demonstrations", "demonstrations", Demonstration)
    out: dict[str, Any] = {"models": {}, "difference": {}, "rows": {"pairs": len(pairs), "conversations": len(talks)}}
    if not pairs and not talks:
        return out
    by_model: dict[str, Values] = {}
    for name in stage.progress(list(models), "own rows"):
        model, tokenizer = load_model(stage.input(*MODELS[name]), dtype=dtype, device=device)
        renderer = Renderer(tokenizer)
        by_model[name] = {**_of_pairs(model, renderer, pairs, max_tokens, device)}
        by_model[name] |= _of_talks(model, renderer, talks, max_tokens, device)
        means = [mean([[x] for x in values], name=metric) for metric, values in by_model[name].items() if values]
        out["models"][name] = {metric: value for one in means for metric, value in one.items()}
    for name in (m for m in models if m != against and against in by_model):
        for metric, values in by_model[name].items():
            old = by_model[against][metric]
            if values and len(values) == len(old):
                two = paired([[x] for x in values], [[x] for x in old])["difference"]
                p = sign_flip([a - b for a, b in zip(values, old, strict=True)])
                out["difference"][f"{name} - {against}, {metric}"] = {**two, "p": p}
    return out


def _drawn(stage: Stage, source: str, table: str, cls: type) -> list[Any]:
    """The held-out rows of the user's own, of a stage that this run has."""
    own = stage.root / "artifacts" / source / "own.parquet"
    if not stage.reads(source) or not own.exists():
        return []
    ids = set(_ids(stage.input(source, "own.parquet")))
    rows = [r for r in tables.read(stage.input(source, f"{table}.parquet"), cls) if r.split == "test" and r.id in ids]
    return sorted(rows, key=lambda r: digest("held out", stage.seed, r.id))[:MOST]


def _ids(path: Any) -> list[str]:
    return tables.raw(path, ["id"]).column("id").to_pylist()


def _sums(model: Any, rows: Sequence[Row], device: str, reduce: Callable[[Any, Any], Any]) -> np.ndarray:
    with torch.no_grad():
        batch = pack(list(rows), device=device)
        logp = score(model, batch, tokens_per_microbatch=AT_ONCE).logp
        return reduce(batch, logp).double().cpu().numpy()


def _of_pairs(
    model: Any, renderer: Renderer, pairs: Sequence[PreferencePair], most: int, device: str
) -> Mapping[str, list[float]]:
    rows, _ = pair_rows(renderer, pairs, most) if pairs else ([], 0)
    if not rows:
        return {}
    sums = _sums(model, rows, device, lambda batch, logp: batch.row_sum(logp))
    margin = sums[0::2] - sums[1::2]
    return {"pair_accuracy": [float(m > 0) for m in margin], "pair_margin": [float(m) for m in margin]}


def _of_talks(
    model: Any, renderer: Renderer, talks: Sequence[Demonstration], most: int, device: str
) -> Mapping[str, list[float]]:
    rows = [r for t in talks if len((r := demonstration_row(renderer, t.messages, 0.0)).ids) <= most]
    if not rows:
        return {}
    sums = _sums(model, rows, device, lambda batch, logp: batch.row_sum(logp))
    return {"nll": [float(-s / r.trainable.sum()) for s, r in zip(sums, rows, strict=True)]}
