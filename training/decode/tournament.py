"""Agentar-Scale-SQL: many candidates are drawn, those without an answer drawn again, equal results put together, and the
groups play a tournament.

"Agentar-Scale-SQL: Advancing Text-to-SQL through Orchestrated Test-Time Scaling" 2025 (arXiv 2509.24403); read in the
abstract, the rules are our reading.

    groups of candidates with one result;  A beats B where its members mostly have the higher reward than B's
    y = a member of argmax_A #{B : A beats B}, the larger group of equals, the best member of it by its reward

A result is the answer in normal form. A candidate without one is drawn again with its text as a hint, up to `repairs`
times. The judge is the reward model, which reads every candidate with a result, out of the same budget. select: "largest"
is the control: the largest group, without a tournament.

Leaves out the two generators and their training: all candidates are the policy's; and execution, where a result is more
than the answer's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Ask, Decoded, Draw, Engine
from training.decode._draws import Drawn, draws
from training.decode._engine import VERDICT

NEEDS = {"reward_model"}
HINT = "\n(That gave no answer. Once more:)\n"


def tournament(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    n: int = 8,
    repairs: int = 2,
    select: Literal["tournament", "largest"] = "tournament",
) -> list[Decoded]:
    drawn = draws(engine, asks, n, rated=select == "tournament")
    for turn in range(repairs):
        _repaired(engine, asks, drawn, turn, rated=select == "tournament")
    out = []
    for one in drawn:
        results = [engine.said(s.ids) for s in one.segments]
        rewards = [-np.inf if r is None or np.isnan(r) else r for r in one.rewards]
        groups: dict[str, list[int]] = {}
        for i, result in enumerate(results):
            if result:
                groups.setdefault(result, []).append(i)
        winner = _winner(list(groups.values()), rewards, select) if groups else list(range(len(results)))
        place = max(winner, key=lambda i: (rewards[i], -i))
        out.append(Decoded(segment=one.segments[place], account=one.account))
    return out


def _winner(groups: Sequence[Sequence[int]], rewards: Sequence[float], select: str) -> Sequence[int]:
    """The group of places that wins; of equals the first."""

    def beats(a: Sequence[int], b: Sequence[int]) -> bool:
        won = [np.sign(rewards[i] - rewards[j]) for i in a for j in b if rewards[i] != rewards[j]]
        return sum(won) > 0

    def wins(k: int) -> int:
        if select == "largest":
            return 0
        return sum(beats(groups[k], other) for j, other in enumerate(groups) if j != k)

    return groups[max(range(len(groups)), key=lambda k: (wins(k), len(groups[k]), -k))]


def _repaired(engine: Engine, asks: Sequence[Ask], drawn: Sequence[Drawn], turn: int, *, rated: bool) -> None:
    """Draw once more, in its place, each candidate that gave no answer, as far as the budget goes."""
    batch: list[tuple[int, int, Draw]] = []
    hint = engine.ids(HINT) if engine.ids is not None else np.zeros(0, dtype=np.int64)
    for i, (ask, one) in enumerate(zip(asks, drawn, strict=True)):
        left = one.account.left
        for j, segment in enumerate(one.segments):
            if engine.said(segment.ids):
                continue
            prompt = np.concatenate([ask.prompt, segment.ids, hint]) if len(hint) else ask.prompt
            cost = len(prompt) + ask.max_tokens
            cost += (len(ask.prompt) + ask.max_tokens + VERDICT) if rated else 0
            if left < cost:
                continue
            left -= cost
            seed = seed_for(ask.seed, "repair", turn, j)
            batch.append((i, j, Draw(account=one.account, prompt=prompt, seed=seed, max_tokens=ask.max_tokens)))
    if not batch:
        return
    segments = engine.sample([d for _, _, d in batch])
    whole = [np.concatenate([asks[i].prompt, s.ids]) for (i, _, _), s in zip(batch, segments, strict=True)]
    values = engine.rate([(d.account, x) for (_, _, d), x in zip(batch, whole, strict=True)]) if rated else None
    for k, (i, j, _) in enumerate(batch):
        drawn[i].segments[j] = segments[k]
        drawn[i].rewards[j] = values[k] if values else None
