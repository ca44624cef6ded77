"""Logged results of several prompts, learned from and tried on questions that were held out: which prompt for which question.

A row of a log is {"query": ..., "prompt": ..., "score": ...}: a question, the prompt that it was asked with (its text or a name), and the
result from 0 to 1; true and false are 1 and 0. No model is asked anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synth.types import Quarantined, seed_for
from tasks.core.errors import UserError
from tasks.rows.files import rows
from training.decode.prompt_choice import PromptValues, learned
from training.metrics import half_width

Logged = tuple[str, str, float]  # question, prompt, result


@dataclass(frozen=True)
class Learned:
    """prompts: in the order in which the log names them; values: what the whole log says of them."""

    prompts: tuple[str, ...]
    values: PromptValues

    def choose(self, query: str) -> tuple[str, float]:
        """The prompt for a question, and the result that is expected."""
        best = self.values.pick(query)
        return self.prompts[best], float(self.values.of(query)[best])


def read_log(where: str, *, split: str = "train") -> list[Logged]:
    """The rows of a log. Raises UserError for a row without the three keys, and for a result that is no number from 0 to 1."""
    out = []
    for place, row in _rows(where, split):
        lacking = [k for k in ("query", "prompt", "score") if not isinstance(row, Mapping) or row.get(k) is None]
        if lacking:
            raise UserError(
                f'{place} has no {lacking[0]!r}: a row of a log is {{"query": ..., "prompt": ..., "score": 0 to 1}}'
            )
        try:
            score = float(row["score"])
        except (TypeError, ValueError):
            score = -1.0
        if not 0 <= score <= 1:
            raise UserError(f"{place}: score is {row['score']!r}: say how good the answer was as a number from 0 to 1")
        out.append((str(row["query"]), str(row["prompt"]), score))
    return out


def read_queries(where: str, *, split: str = "train") -> list[str]:
    """The questions of a file. Raises UserError for a row without one."""
    out = []
    for place, row in _rows(where, split):
        if not isinstance(row, Mapping) or not isinstance(row.get("query"), str):
            raise UserError(f"{place} has no 'query': a row is {{\"query\": ...}}, as in the log")
        out.append(row["query"])
    return out


def _rows(where: str, split: str) -> list[tuple[str, Any]]:
    out = []
    for row in rows(where, split=split):
        if isinstance(row, Quarantined):
            raise UserError(f"{where}: a line cannot be read ({row.reason}): write one JSON object a line")
        out.append((f"{where}, {row[0]}" if where not in row[0] else row[0], row[1]))
    return out


def learn(log: Sequence[Logged], *, l2: float = 1.0) -> Learned:
    """Raises UserError where there is nothing to choose."""
    prompts = tuple(dict.fromkeys(p for _, p, _ in log))
    place = {p: i for i, p in enumerate(prompts)}
    try:
        return Learned(prompts, learned([(q, place[p], y) for q, p, y in log], len(prompts), l2=l2))
    except ValueError as e:
        raise UserError(f"the log: {e}") from e


def held_out(log: Sequence[Logged], *, share: float = 0.3, seed: int = 0, l2: float = 1.0) -> dict[str, Any]:
    """What the choice is worth: learned from the questions that the hash leaves, tried on the `share` of those that were asked with
    every prompt.

    Returns {questions, rows: name -> {mean, low, high}, chosen: prompt -> times}. Names: chosen for each question; the best on average, and
    `random`, a prompt by chance; `best`, as an oracle would choose; `gain`, chosen against best on average. Empty where fewer than two
    questions are tried, or the rest does not name every prompt."""
    if not 0 < share < 1:
        raise UserError(f"the share of questions that are held out is {share}: it lies between 0 and 1")
    by: dict[str, dict[str, list[float]]] = {}
    for q, p, y in log:
        by.setdefault(q, {}).setdefault(p, []).append(y)
    prompts = tuple(dict.fromkeys(p for _, p, _ in log))
    whole = [q for q, got in by.items() if len(got) == len(prompts)]
    tried = {q for q in whole if seed_for(seed, "held out", q) / 2**63 < share}
    rest = [row for row in log if row[0] not in tried]
    if len(tried) < 2 or {p for _, p, _ in rest} != set(prompts):
        return {}
    known = learn(rest, l2=l2)
    scores = np.array([[np.mean(by[q][p]) for p in known.prompts] for q in sorted(tried)])
    picks = [known.values.pick(q) for q in sorted(tried)]
    worth = {
        "chosen for each question": scores[np.arange(len(scores)), picks],
        "best on average": scores[:, known.values.pick("", "average")],
        "random": scores.mean(1),
        "best": scores.max(1),
    }
    worth["gain"] = worth["chosen for each question"] - worth["best on average"]
    return {
        "questions": len(scores),
        "rows": {k: _interval(v) for k, v in worth.items()},
        "chosen": {p: picks.count(i) for i, p in enumerate(known.prompts)},
    }


def _interval(values: np.ndarray) -> dict[str, float]:
    mean, half = float(values.mean()), float(half_width(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}
