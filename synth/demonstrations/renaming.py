"""Conversations rewritten with other names, so that a model cannot memorise what it should read and copy.

Every name of a knowledge base in a conversation is replaced by a made-up name, the same one everywhere: in the
question, the calls, the results and the answer. Entity substitution is what Longpre et al. 2021, "Entity-Based
Knowledge Conflicts in Question Answering" (arXiv 2109.05052), found to make readers rely on the passage; here it is
done to demonstrations, so that a model trained on few of them learns to search and not the names.

A made-up name has as many words as the name and each begins with the same letter, because a question may mention
either. An answer that is a number becomes another number with as many digits everywhere; its rank among the numbers of
the conversation stays, so that every comparison between them stays true. Other numbers, dates and lower-case names
stay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from synth.knowledge.sources.documents import mentioned
from synth.knowledge.world import FIRST, LAST
from synth.types import Message

_WORD = re.compile(r"[^\W\d_][\w'\u2019-]*")
_NUMBER = re.compile(r"(?<!\w)\d+(?:[.,]\d+)*(?!\w)")
_ANSWER = re.compile(r"<answer>([1-9]\d{1,8})</answer>")
_STARTS: dict[str, list[str]] = {}
for _syllable in FIRST:
    _STARTS.setdefault(_syllable[0], []).append(_syllable)


def known_names(names: Iterable[str]) -> dict[str, str]:
    """Names in the form for `renamed`. If two differ only in capitals, one stands for both."""
    return {n.lower(): n for n in names}


def renamed(messages: Sequence[Message], known: Mapping[str, str], rng: Random) -> list[Message]:
    """The conversation with every name of `known` that it mentions replaced (no two by the same, none by one that is
    known), and its answer too if that is a number."""
    given: dict[str, str] = {}
    number, another = _made_up_number(messages, rng)

    def other(name: str) -> str:
        if name not in given:
            tries = (_made_up(name, 1 + (n > 9), rng) for n in range(30))
            given[name] = next((m for m in tries if m.lower() not in known and m not in given.values()), name)
        return given[name]

    def plain(text: str) -> str:
        return _NUMBER.sub(lambda match: another if match[0] == number else match[0], text) if number else text

    def told(text: str) -> str:
        parts, end = [], 0
        for start, stop, name in mentioned(text, known):
            parts += [plain(text[end:start]), other(name)]
            end = stop
        return "".join([*parts, plain(text[end:])])

    return [replace(m, content=told(m.content)) for m in messages]


def _made_up(name: str, size: int, rng: Random) -> str:
    """A name of as many words; each begins with the same letter and has `size` further syllables. Lower-case words
    stay."""

    def word(match: re.Match[str]) -> str:
        old = match[0]
        return (
            rng.choice(_STARTS.get(old[0], [old[0]])) + "".join(rng.choices(LAST, k=size)) if old[0].isupper() else old
        )

    return _WORD.sub(word, name)


def _made_up_number(messages: Sequence[Message], rng: Random) -> tuple[str, str]:
    """The whole number that is the answer, and a replacement between its neighbours; ("", "") if the answer is not a
    whole number."""
    answer = _ANSWER.fullmatch(messages[-1].content) if messages else None
    if not answer:
        return "", ""
    value, size = int(answer[1]), len(answer[1])
    rest = [float(n.replace(",", "")) for m in messages for n in _NUMBER.findall(m.content) if n.count(".") < 2]
    low = max([10 ** (size - 1), *(int(n) + 1 for n in rest if n < value)])
    high = min([10**size - 1, *(math.ceil(n) - 1 for n in rest if n > value)])
    return answer[1], str(rng.randint(low, high))
