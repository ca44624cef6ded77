"""Preference pairs from a policy's own episodes: two alternative next turns of a conversation, of which one led to
better scores.

Episodes of one problem that share a conversation up to an assistant turn are samples of the outcome of each turn
written there. A turn's value is the mean score of the episodes through it, shrunk towards the mean of all episodes at
this point with the weight of one episode, so that a single lucky episode does not decide: (sum of its scores + mean of
the place) / (number of its episodes + 1). The best turn of a place is chosen over the worst where their values differ
by `gap`. For a single turn that is the best of n against the worst of n; for longer episodes it is the preference over
steps of Xie et al. 2024, "Monte Carlo Tree Search Boosts Reasoning via Iterative Preference Learning" (arXiv
2405.00451), on plain rollouts instead of a tree search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.types import Message, PreferencePair, Problem, Quarantined


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A whole conversation and its score by the verifier; `score` is None if it could not be scored. `begins` is the
    number of its messages that were there before the policy spoke."""

    messages: tuple[Message, ...]
    score: float | None
    begins: int


def own_answers(
    problem: Problem, episodes: Sequence[Episode], *, most: int = 2, gap: float = 0.25
) -> list[PreferencePair | Quarantined]:
    """At most `most` pairs of a problem, those with the greatest difference first; one quarantined row if all episodes
    have the same value."""
    places: dict[tuple[Message, ...], dict[str, list[float]]] = {}
    for episode in episodes:
        if episode.score is None:
            continue
        for i in range(episode.begins, len(episode.messages)):
            if episode.messages[i].role == "assistant":
                turns = places.setdefault(episode.messages[:i], {})
                turns.setdefault(episode.messages[i].content, []).append(episode.score)
    candidates = []
    for place, turns in places.items():
        scores = [s for mine in turns.values() for s in mine]
        prior = sum(scores) / len(scores)
        value = {text: (sum(mine) + prior) / (len(mine) + 1) for text, mine in turns.items() if text.strip()}
        if len(value) > 1:
            best, worst = max(value, key=lambda t: (value[t], t)), min(value, key=lambda t: (value[t], t))
            if (margin := value[best] - value[worst]) >= gap:
                candidates.append((margin, place, best, worst))
    if not candidates:
        seen = sorted({e.score for e in episodes if e.score is not None})
        return [
            Quarantined(
                id=f"{problem.id}/own_answers",
                stage="preferences",
                reason="no_better_turn",
                evidence=f"{len(episodes)} episodes with the scores {seen} hold no two turns of one place whose values differ by {gap}",
            )
        ]
    candidates.sort(key=lambda f: (-f[0], len(f[1]), f[2], f[3]))
    return [
        PreferencePair.make(
            prompt=place,
            chosen=best,
            rejected=worst,
            source=f"own_answers/{problem.env}",
            problem=problem.id,
            margin=margin,
            columns={"group": problem.lineage.get("root", problem.id)},
            split=problem.split,
        )
        for margin, place, best, worst in candidates[:most]
    ]
