"""Sentences of two kinds, told out of order, and the two of them that answer a question: for the family scattered_facts and
the environment that shows them a few at a time."""

from __future__ import annotations

import re

_TEXT = re.compile(r"((?:[A-Z][^.?]+\. )+)Where does the friend of ([A-Z][a-z]+) live\?")
_FRIEND = re.compile(r"The friend of (\w+) is (\w+)")
_HOME = re.compile(r"(\w+) lives in (\w+)")


def told(question: str) -> tuple[list[str], str]:
    """The sentences of a problem, in their order, and what it asks. Raises ValueError for another text."""
    if not (match := _TEXT.fullmatch(question)):
        raise ValueError(f"roundtrip: {question[:80]!r} asks nothing over sentences")
    return match[1].strip().removesuffix(".").split(". "), question[match.end(1) :]


def evidence(question: str) -> list[tuple[str, str]]:
    """The two facts that answer it, as the names that each joins. Raises ValueError where the text does not state them once."""
    sentences, name = told(question)
    who = name.split()[-2]
    friends = [m[2] for s in sentences if (m := _FRIEND.fullmatch(s)) and m[1] == who]
    homes = [m[2] for s in sentences if (m := _HOME.fullmatch(s)) and friends and m[1] == friends[0]]
    if len(friends) != 1 or len(homes) != 1:
        raise ValueError(f"not_unique: {len(friends)} friends of {who} and {len(homes)} homes are told")
    return [(who, friends[0]), (friends[0], homes[0])]
