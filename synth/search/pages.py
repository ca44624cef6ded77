"""A page that is searched, and its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LINE = 400  # characters
MENTIONS = 1024  # lines of other pages that are kept together, as JSON


@dataclass(frozen=True, kw_only=True)
class Page:
    """id: unique; title and aliases: names it opens under; text: its lines; mentions: lines of other pages that belong
    on this one too."""

    id: str
    title: str
    text: str
    aliases: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text, none empty, none longer than `LINE` but for single words of more."""
    for line in text.split("\n"):
        line = " ".join(line.split())
        if len(line) <= LINE:
            if line:
                yield line
            continue
        now = ""
        for piece in _pieces(line):
            if now and len(now) + len(piece) > LINE:
                yield now.strip()
                now = ""
            now += piece
        if now.strip():
            yield now.strip()


def _pieces(line: str) -> Iterator[str]:
    """Sentences, and words where a sentence is too long; together they are the line. A word of more than `LINE` is
    cut."""
    for sentence in re.split(r"(?<=[.!?;] )", line):
        if len(sentence) <= LINE:
            yield sentence
            continue
        for word in re.split(r"(?<= )", sentence):
            yield from (word[i : i + LINE] for i in range(0, len(word), LINE))
