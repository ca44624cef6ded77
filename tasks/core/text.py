"""Makes untrusted text (from models, documents, file names, endpoints) safe for a terminal and a page.

On a terminal, control characters move the cursor, set the title, change what a key types; in either place, invisible
ones (bidirectional overrides, tags) show a different text than the actual one. Only `harmless` removes them; `terminal`
applies it to everything that a process prints.
"""

from __future__ import annotations

import html
import json
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

REPLACED = "\N{REPLACEMENT CHARACTER}"
# Controls but tab and line feed; marks, overrides and isolates of direction; line separators; what is never seen (tags,
# zero-width spaces; not the joiners, which scripts and emoji need); halves of a surrogate pair, which cannot be written.
_HARM = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


def harmless(text: str) -> str:
    """The text with U+FFFD in place of characters that control a terminal or hide text."""
    return _HARM.sub(REPLACED, text)


def escape(text: str, quote: bool = True) -> str:
    """The text as HTML shows it, harmless."""
    return html.escape(harmless(text), quote)


def dumps(value: Any, indent: int | None = None) -> str:
    """A value as JSON in which unsafe characters are escaped, so that it reads back the same."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _HARM.sub(lambda match: json.dumps(match[0])[1:-1], text)


def words(value: Any) -> str:
    """A value of a card in plain words: without the braces, brackets or quotes of a programming language."""
    if isinstance(value, Mapping):
        parts = [(str(k).replace("_", " "), v) for k, v in value.items()]
        inner = [f"{k} ({words(v)})" if isinstance(v, Mapping) and v else f"{k} {words(v)}" for k, v in parts]
        return ", ".join(inner) or "none"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(words, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Stream:
    """A text stream that makes everything written to it harmless."""

    def __init__(self, stream: Any) -> None:
        self.own = stream

    def write(self, text: str) -> int:
        self.own.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def own(stream: Any) -> Any:
    """The stream for control characters of our own (a progress line, colours): other text must be made `harmless`
    before it is written there."""
    return stream.own if isinstance(stream, _Stream) else stream


@contextmanager
def terminal() -> Iterator[None]:
    """Everything printed within is harmless, and so is the traceback that ends the process."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (x if isinstance(x, _Stream) else _Stream(x) for x in before)  # type: ignore[assignment]
    sys.excepthook = _traceback
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _traceback(*error: Any) -> None:
    print(harmless("".join(traceback.format_exception(*error))), end="", file=sys.stderr)
