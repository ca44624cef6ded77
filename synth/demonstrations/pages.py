"""Pages of fictional worlds: plain text to train a base model on, before it sees any demonstration.

A model that answers from search results must copy names that it has never seen. Copying is learned fastest from text
that repeats itself: first from name lists written twice, then from pages that state facts in sentences and restate some
of them in other words. Every world is new, so nothing on a page can be memorised, and no page shows a question, a
search or an answer.

Page i is a function of (seed, i) alone. The names-first curriculum follows Olsson et al. 2022, "In-context Learning and
Induction Heads" (arXiv 2209.11895): the copying circuit forms on repeated sequences.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from synth.knowledge.kb import KB, Fact
from synth.knowledge.world import world
from synth.types import seed_for

PER_WORLD = 256  # pages per world


@dataclass(frozen=True, kw_only=True)
class Page:
    """`head` states facts that cannot be guessed; `tail` restates some of them, so that all of it follows from the
    head."""

    head: str
    tail: str


def pages(
    seed: int, first: int, count: int, *, lists: float = 0.3, facts: int = 2, countries: int = 30
) -> Iterator[Page]:
    """Pages first .. first + count - 1. `lists`: share of pages that are name lists written twice; `facts`: number of
    restated facts of a page.

    Raises ValueError for a share outside [0, 1].
    """
    if not 0 <= lists <= 1:
        raise ValueError(f"lists is {lists}: the share of name lists lies between 0 and 1")
    for index in range(first, first + count):
        shelf = _shelf(seed_for(seed, "sft", "pages", "", index // PER_WORLD), countries)
        rng = random.Random(seed_for(seed, "sft", "page", "", index))
        yield _names(shelf.kb, rng) if rng.random() < lists else shelf.page(rng, facts)


def _names(kb: KB, rng: random.Random) -> Page:
    names = [e.name for e in rng.sample(list(kb.entities.values()), 6)]
    return Page(head=" ".join(names) + "\n", tail=" ".join(names))


@lru_cache(maxsize=4)  # a step of training reads fewer pages than a world has, so the next step needs the same world
def _shelf(seed: int, countries: int) -> _Shelf:
    return _Shelf(world(countries=countries, seed=seed))


class _Shelf:
    """Facts of a world by subject and by relation, to place a fact among similar ones."""

    def __init__(self, kb: KB) -> None:
        self.kb, self.facts = kb, list(kb.facts.values())
        self.near: dict[tuple[str, str], list[Fact]] = {}
        for f in self.facts:
            for key in (("subject", f.subject), ("relation", f.relation), ("object", f.object or "")):
                self.near.setdefault(key, []).append(f)

    def page(self, rng: random.Random, count: int) -> Page:
        """`count` facts, each among two that share its subject, relation or object, in sentences; then the facts in
        other words."""
        told = rng.sample(self.facts, count)
        lines = [f.span for f in told]
        for f in told:
            key = rng.choice(
                (("subject", f.subject), ("subject", f.subject), ("relation", f.relation), ("object", f.object or ""))
            )
            lines += [rng.choice(self.near[key]).span for _ in range(2)]
        lines = list(dict.fromkeys(lines))
        rng.shuffle(lines)
        return Page(head="\n".join(lines) + "\n", tail="\n".join(self._restate(f, rng) for f in told))

    def _restate(self, fact: Fact, rng: random.Random) -> str:
        relation = self.kb.relations[fact.relation]
        subject, value = self.kb.text(fact.subject), self.kb.text(fact.object or fact.literal or "")
        form = rng.random()
        if form < 0.5:
            return f"{relation.ask(subject)}: {value}"
        if form < 0.75 and relation.inverse_functional:
            return f"{relation.ask_back(value)}: {subject}"
        return fact.span
