"""Problems whose answers are spread within a level: where one answer is by far the most common among random problems,
whoever always gives it would be paid for most of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

T = TypeVar("T")


def by_answer(rng: Random, once: Callable[[Random], tuple[int | None, T]], draws: int) -> T:
    """A random problem whose answer is one of those among `draws` problems, each of them equally likely.

    once    draws a problem with its answer, or None in place of the answer where the problem cannot be used
    draws   how many problems are drawn: more of them spread the answers more evenly; all are drawn anew while none of
            them can be used
    """
    while True:
        problems: dict[int, T] = {}
        for answer, problem in _drawn(rng, once, draws):
            problems.setdefault(answer, problem)
        if problems:
            return problems[rng.choice(sorted(problems))]


def _drawn(rng: Random, once: Callable[[Random], tuple[int | None, T]], draws: int) -> Iterator[tuple[int, T]]:
    for _ in range(draws):
        answer, problem = once(rng)
        if answer is not None:
            yield answer, problem
