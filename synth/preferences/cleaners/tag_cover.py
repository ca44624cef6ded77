"""A subset whose prompts cover all tags: InsTag-Cmp and InsTag-Div of PrefCleanBench (arXiv:2509.23564, 2025), after
InsTag (2308.07074).

Prompts are visited by falling number of tags; one that bears a tag not yet covered is kept.
    repeat = true    when no prompt adds a tag, the cover is emptied and what is left visited again, until `limit` pairs
    are kept (Cmp)
    repeat = false   one pass; it ends when all tags are covered, and the rest of `limit` is drawn at random
    (Div)
The draw is without replacement: the published code draws with it and so repeats pairs. This is a choice of size, not of
quality: the sides of a pair are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.preferences.cleaners._columns import refusal, verdict
from synth.types import Decision, PreferencePair, seed_for

NEEDS = {"tags"}


def tag_cover(
    pairs: Sequence[PreferencePair], *, repeat: bool = True, limit: int = 6000, seed: int = 0
) -> Sequence[Decision]:
    """Decision "remove" with reason not_sampled, else "keep" with covers_tag or drawn; score = number of tags.

    seed: of the draw, which depends on ids and not on the order of rows. Raises ValueError where a pair lacks tags, or
    for limit < 1.
    """
    if limit < 1:
        raise ValueError(f"tag_cover: limit = {limit} must be at least 1")
    for pair in pairs:
        if not isinstance(pair.columns.get("tags"), list | tuple) or not all(
            isinstance(t, str) for t in pair.columns["tags"]
        ):
            raise refusal(pair, "tags", "a list of texts")
    tags = [set(pair.columns["tags"]) for pair in pairs]
    left = sorted(range(len(pairs)), key=lambda i: (-len(tags[i]), pairs[i].id))
    chosen: list[int] = []
    while left and len(chosen) < limit:
        taken = _one_pass(left, tags, limit - len(chosen))
        chosen += taken
        left = [i for i in left if i not in set(taken)]
        if not taken or not repeat:
            break
    covering = set(chosen)
    drawn = set(sorted(left, key=lambda i: seed_for("tag_cover", seed, pairs[i].id))[: limit - len(chosen)])
    return [
        verdict(
            "tag_cover",
            i not in covering | drawn,
            "remove",
            ("not_sampled", "covers_tag" if i in covering else "drawn"),
            len(t),
        )
        for i, t in enumerate(tags)
    ]


def _one_pass(order: Sequence[int], tags: Sequence[set[str]], n: int) -> list[int]:
    """At most n rows, in order, that each bear a tag which no earlier one bears."""
    covered: set[str] = set()
    taken: list[int] = []
    for i in order:
        if len(taken) == n:
            break
        if not tags[i] <= covered:
            covered |= tags[i]
            taken.append(i)
    return taken
