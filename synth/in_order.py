"""What is made of items by a pool, in the order of the items, where some of it is there already."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_order(
    items: Iterable[Item], there: Callable[[Item], bool], make: Callable[[Iterator[Item]], Iterable[Made]]
) -> Iterator[tuple[Item, Made | None]]:
    """Each item with what `make` made of it, in order; with None where it is there already. make: is given those that are not, perhaps
    ahead of what it gives, and gives one thing for each in their order. `there` is asked of an item before the next is taken."""
    begun: deque[tuple[Item, bool]] = deque()  # items up to the last that was looked at, and whether they were there

    def missing() -> Iterator[Item]:
        for item in items:
            begun.append((item, had := there(item)))
            if not had:
                yield item

    for result in make(missing()):
        while begun[0][1]:
            yield begun.popleft()[0], None
        yield begun.popleft()[0], result
    yield from ((item, None) for item, _ in begun)
