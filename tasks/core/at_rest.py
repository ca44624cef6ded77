"""While files are known not to change, what was read from the disk once is not looked up again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SEEN: ContextVar[dict[tuple[Any, ...], Any] | None] = ContextVar("_SEEN", default=None)


@contextmanager
def files_at_rest() -> Iterator[None]:
    """Within it, functions marked with `once_at_rest` remember what they returned. A plan looks thousands of times at
    the same few hundred files, and must see them in one state anyway. Blocks inside a block share what it remembers; at
    the end of the outer one all is forgotten."""
    if _SEEN.get() is not None:
        yield
        return
    token = _SEEN.set({})
    try:
        yield
    finally:
        _SEEN.reset(token)


def once_at_rest(function: Callable[P, R]) -> Callable[P, R]:
    """Called once for each list of arguments within `files_at_rest`, and as ever outside. Its callers must
    not change what it returns; an exception is not remembered."""

    @wraps(function)
    def remembered(*args: P.args, **how: P.kwargs) -> R:
        seen = _SEEN.get()
        if seen is None:
            return function(*args, **how)
        key = (function, args, *sorted(how.items()))
        if key not in seen:
            seen[key] = function(*args, **how)
        return seen[key]

    return remembered
