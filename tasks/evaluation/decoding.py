"""Decoders used as samplers: their inputs from a project, and their metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from synth.preferences.rated import rated
from synth.types import PreferencePair, Sampling, digest
from synth.verify import extract_answer
from synth.verify.exact import normalise
from tasks.core.errors import UserError
from tasks.evaluation.measure import by_problem, over, plain
from training.decode import Ask, DecodingSampler, Engine, Example
from training.metrics.mean import mean
from training.model.render import Renderer

STOPPED = ("input_guard", "output_guard")  # columns of a turn that a guard wrote (training/decode/guarded.py)
Rewards = Callable[[Sequence[np.ndarray]], Sequence[float]]


def label(decode: Any) -> str:
    """The label of a decoder with its knobs in tables and names of files: `majority (k=8)`. A value that is not short and plain
    is there by its digest."""
    knobs = ", ".join(f"{k}={_short(v)}" for k, v in decode.keywords.items())
    return decode.piece.partition("/")[2] + (f" ({knobs})" if knobs else "")


def _short(value: Any) -> str:
    text = str(value)
    return text if re.fullmatch(r"[\w.+-]{0,24}", text) else digest("knob", text)[:8]


def examples(pairs: Iterable[PreferencePair], renderer: Renderer) -> list[Example]:
    """Preference pairs as ids, from which a decoder learns."""
    return [
        Example(
            prompt=renderer.prompt(list(p.prompt)),
            chosen=renderer.turn(p.chosen),
            rejected=renderer.turn(p.rejected),
            ratings=rated(p),
        )
        for p in pairs
    ]


def decoding(
    decode: Any,
    sampler: Any,
    renderer: Renderer,
    *,
    rewards: Rewards | None,
    pairs: Callable[[], Sequence[PreferencePair]],
    forward_tokens: int,
    reference: Callable[[], Any] | None = None,
) -> DecodingSampler:
    """A decoder that replaces `sampler`, fitted first if it has to learn something. reference: gives a sampler of the model
    that preference training began with. Raises UserError if the decoder refuses, and if it needs a reward model or a
    reference and there is none."""

    def said(ids: np.ndarray) -> str:
        text = renderer.decode(ids)
        answer = extract_answer(text)
        return normalise(text if answer is None else answer)[:200]

    engine = Engine(
        sampler=sampler, text=renderer.decode, said=said, sampling=Sampling(), rewards=rewards, ids=renderer.encode
    )
    if "reference" in decode.needs and reference is not None:
        engine.reference = replace(engine, sampler=reference(), rewards=None, called="reference")
    name = decode.piece.partition("/")[2]
    fitted = None
    if decode.fit is not None:
        try:
            learned_from = examples(pairs(), renderer)
        except ValueError as e:
            raise UserError(str(e)) from e
        if not learned_from:
            raise UserError(
                f"the decoder {name} learns from preference pairs, and artifacts/clean/pairs.parquet holds none of the "
                "split train: run the stage clean first (`dvc repro clean`), or take another decoder"
            )
        try:
            fitted = decode.fit(engine, learned_from)
        except ValueError as e:
            raise UserError(f"the decoder {name}: {e}") from e

    def refusing(*args: Any) -> Any:
        try:
            return decode(*args)
        except ValueError as e:
            raise UserError(f"the decoder {name}: {e}") from e

    lacking = ("reward_model" in decode.needs and rewards is None) or (
        "reference" in decode.needs and reference is None
    )
    if engine.writes != "tokens" or lacking:
        # Some refuse with some knobs only: whether this one does shows at a token, now and not at the first request.
        one = np.array([renderer.end_id], dtype=np.int64)
        refusing(engine, [Ask(prompt=one, seed=0, max_tokens=1, forward_tokens=forward_tokens)], fitted)
    return DecodingSampler(engine=engine, decode=refusing, fitted=fitted, forward_tokens=forward_tokens)


def measured(
    frame: pd.DataFrame, rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str], metrics: Sequence[Callable]
) -> dict[str, Any]:
    """Per decoder, by its label: the metrics that read scores alone, the forward tokens per conversation, and, where a
    guard spoke, its turns per conversation. labels: run -> label."""
    out = {}
    counted = {name: [r.get(name, 0) for r in rows] for name in ("forward_tokens", *STOPPED)}
    for run, rows_of in frame.assign(**counted).groupby("run"):
        if str(run) in labels:
            named = ("forward_tokens", *(name for name in STOPPED if bool(rows_of[name].to_numpy().any())))
            out[labels[str(run)]] = over(metrics, rows_of)
            for name in named:
                out[labels[str(run)]] |= mean(by_problem(rows_of, name), name=name)
    return plain(out)
