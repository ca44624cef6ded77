"""Numeric checks of decoders: a model whose outputs and residual stream are given by the check.

The account is that of the real engine: the scripted model has the `open` of a sampler, and nothing else is replaced.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import Sampling
from training.decode import Ask, Engine, Example
from training.types import Segment

_TEXT = 5000  # the id that stands for a text of the log is this and its place
_ANSWER = 1000  # the first id of a draw is this and its place in the list: what it says is looked up by it
_ASKED = 900  # the id of the first token of a prompt whose streams are given


class _Script:
    """Draws, in order, however many are asked for at a time; the last one again once all are said."""

    model = None
    version = 0

    def __init__(self, draws: Sequence[Mapping[str, Any]]) -> None:
        self.draws, self.said = draws, 0
        self.edits: list[Any] = []

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int], edits: Sequence[Any] = ()) -> Any:
        script, rows = self, len(prompts)
        self.edits = list(edits)

        class Session:
            def generate(self, sampling: Sampling) -> list[Segment]:
                return [script.turn(sampling) for _ in range(rows)]

        return Session()

    def turn(self, sampling: Sampling) -> Segment:
        place = min(self.said, len(self.draws) - 1)
        self.said += 1
        n = min(int(self.draws[place].get("tokens", 1)), sampling.max_tokens)
        draw = self.draws[place]
        alike = next(i for i, d in enumerate(self.draws) if d == draw)
        ids = np.full(n, _ANSWER + alike, dtype=np.int64)
        stop = "length" if draw.get("goes_on") else "end"
        return Segment(ids=ids, role="model", logp=np.zeros(n, dtype=np.float32), stop=stop)


class _Engine(Engine):
    """An engine of one layer whose streams are those of the check."""

    given: dict[bytes, Tensor]  # row -> its streams
    at: dict[int, Tensor]  # id -> the stream at it, in rows that are not given as a whole
    sums: Callable[[np.ndarray], float]
    gates: dict[str, Tensor]
    bytes_per_token = 0  # type: ignore[assignment]
    layers = 1  # type: ignore[assignment]

    def layer(self, layer: int) -> int:
        return 0

    def streams(self, rows: Sequence[np.ndarray], layers: Sequence[int]) -> list[Tensor]:
        whole = (self.given.get(row.tobytes()) for row in rows)
        stacked = [
            torch.stack([self.at[i] for i in row.tolist()]) if x is None else x
            for x, row in zip(whole, rows, strict=True)
        ]
        return [x.expand(len(layers), -1, -1) for x in stacked]

    def logp(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return np.array([self.sums(ids) for _, ids in rows])

    def weights(self, ending: str) -> dict[str, tuple[int, Tensor]]:
        return {name: (0, weight) for name, weight in self.gates.items()}

    @contextmanager
    def changed(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        yield

    def fitting(self, vector: Tensor) -> Tensor:
        return vector

    def read_out(self) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        return (lambda x: x), torch.eye(1)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.tolist() if isinstance(value, Tensor | np.ndarray) else value


def _prompt(given: Mapping[str, Any], read: np.ndarray, told: Callable[[str], np.ndarray]) -> np.ndarray:
    """What is asked: a text, the prompt whose streams are given, or as many tokens as are said."""
    if "asked" in given:
        return told(given["asked"])
    return read if len(read) else np.zeros(int(given.get("prompt", 1)), dtype=np.int64)


def _called(name: str, given: Mapping[str, Any]) -> Any:
    """The result of a function of a file of training/decode, `file.function`; lists are arrays where it takes arrays."""
    file, _, function = name.partition(".")
    called = getattr(importlib.import_module(f"training.decode.{file}"), function)
    takes = inspect.signature(called).parameters
    return _plain(called(**{k: torch.tensor(v) if takes[k].annotation == "Tensor" else v for k, v in given.items()}))


def decode(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The runner of checks of decoders (`DecodePiece` says what they give and expect)."""
    if "call" in given:
        return {"value": _called(given["call"], given["with"])}
    draws = given.get("draws") or [{"says": "it", "tokens": 1}]
    script = _Script(draws)

    def place(ids: np.ndarray) -> Mapping[str, Any]:
        return draws[int(ids[-1]) - _ANSWER]

    texts: list[str] = []

    def told(words: str) -> np.ndarray:
        texts.append(words)
        return np.array([_TEXT + len(texts) - 1], dtype=np.int64)

    def text(ids: np.ndarray) -> str:
        if len(ids) and ids[-1] >= _TEXT:
            return texts[int(ids[-1]) - _TEXT]
        if len(ids) and ids[-1] < _ANSWER:
            return ""
        return " ".join(str(draws[p]["says"]) for p, _ in groupby(int(i) - _ANSWER for i in ids))

    engine = _Engine(
        sampler=script,
        text=text,
        said=text,
        rewards=(lambda rows: [float(place(r)["reward"]) for r in rows]) if "reward" in draws[0] else None,
    )
    engine.sums = lambda ids: float(place(ids)["logp"])
    if "ref_logp" in draws[0]:
        engine.reference = reference = _Engine(sampler=script, text=text, said=text, called="reference")
        reference.sums = lambda ids: float(place(ids)["ref_logp"])
    engine.given, examples = {}, []
    engine.gates = {n: torch.tensor(w, dtype=torch.float64) for n, w in given.get("weights", {}).items()}
    prompt_stream = torch.tensor(given.get("prompt_stream", ()), dtype=torch.float64)
    prompt = np.arange(len(prompt_stream), dtype=np.int64) + _ASKED
    engine.at = dict(zip(prompt.tolist(), prompt_stream, strict=True))
    engine.at |= {
        _ANSWER + i: torch.tensor(d["stream"], dtype=torch.float64) for i, d in enumerate(draws) if "stream" in d
    }
    ratings = given.get("ratings") or [{}] * len(given.get("chosen", ()))
    for i, sides in enumerate(zip(given.get("chosen", ()), given.get("rejected", ()), strict=True)):
        rows = [np.full(len(side), 2 * i + k, dtype=np.int64) for k, side in enumerate(sides)]
        for row, side in zip(rows, sides, strict=True):
            streams = torch.tensor(side, dtype=torch.float64)
            engine.given[np.concatenate([prompt, row]).tobytes()] = (
                torch.cat([prompt_stream, streams]) if len(prompt) else streams
            )
        examples.append(Example(prompt=prompt, chosen=rows[0], rejected=rows[1], ratings=ratings[i]))
    for question, better, worse in given.get("log", ()):
        examples.append(Example(prompt=told(question), chosen=told(better), rejected=told(worse)))
    fitted = piece.fit(engine, examples) if piece.fit else None
    ask = Ask(
        prompt=_prompt(given, prompt, told),
        seed=0,
        max_tokens=int(given.get("max_tokens", 8)),
        forward_tokens=int(given.get("forward_tokens", 0)),
    )
    (done,) = piece(engine, [ask], fitted)
    out: dict[str, Any] = {"says": engine.text(done.segment.ids), "tokens": dict(done.account.tokens)}
    if fitted is not None:
        out["fitted"] = {k: _plain(v) for k, v in vars(fitted).items()}
    if "stream" in given and script.edits:
        stream = torch.tensor(given["stream"], dtype=torch.float64)
        position = torch.arange(len(stream)) + len(ask.prompt)
        for layer in script.edits[0].layers:
            stream = script.edits[0](layer, stream, position)
        out["stream"] = stream.tolist()
    return out
