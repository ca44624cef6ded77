"""Cheap features of one answer to a prompt, from text alone: its composition, and where its words occurred before.

Nothing here solves or verifies the task: no equation is computed, no order checked, no fact looked up. The features ask
whether an answer is *consistent* with its surroundings: do its words occur in the question, in the last search results,
in its own working?
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import sub
from typing import Any

import numpy as np

from synth.types import Message, PreferencePair

_TOKEN = re.compile(r"\w+|[-+*/=]")
_SIGNS = "-+*/="
_ASCII = "".join(map(chr, range(128)))
_SPACED = str.maketrans(_ASCII, "".join(c.lower() if c.isalnum() or c in "_" + _SIGNS else " " for c in _ASCII))
BLIND = {"length", "words"}  # features that a detector blind to length ignores
_TAGGED = re.compile(r"<(\w+)>([^<]*)</\1>\s*$")


NAMES = (
    "length",
    "words",
    "in question",
    "of question",
    "same multiset as numbers of question",
    "in working",
    "same multiset as working",
    "asked before",
    "in last result",
    "in any result",
    "in first line",
    "line fits last query",
    "line fits question",
    "new",
)
Known = dict[tuple[tuple[Message, ...], str, str], tuple[str, str, str, np.ndarray]]


def features(prompt: Sequence[Message], answer: str) -> dict[str, float]:
    """name -> value. Each occurs twice, alone and combined with the kind of prompt (`kind`), because a good feature of
    one kind can be bad in another."""
    tag, numbers = reader(prompt)(answer)
    values = {**dict(zip(NAMES, numbers, strict=True)), f"tag {tag}": 1.0}
    about = kind(prompt)
    return values | {f"{about}: {name}": value for name, value in values.items()}


def differences(
    pairs: Sequence[PreferencePair],
    extra: Callable[[str], Mapping[str, float]] | None = None,
    known: Known | None = None,
) -> tuple[Any, list[str]]:
    """([pairs, names] features of the chosen minus those of the rejected side, sparse beyond 1000 names; the names in
    alphabetical order).

    extra: further values of a text. known: what was read of pairs before; what is read now is added.
    """
    from scipy.sparse import coo_array

    known = {} if known is None else known
    keys = [(p.prompt, p.chosen, p.rejected) for p in pairs]
    by_prompt: dict[tuple[Message, ...], list[tuple[tuple[Message, ...], str, str]]] = {}
    for key in keys:
        if key not in known:
            by_prompt.setdefault(key[0], []).append(key)
    for prompt, mine in by_prompt.items():  # a prompt or answer that several pairs share is read once
        read, about = reader(prompt), kind(prompt)
        read_texts = {text: read(text) for text in dict.fromkeys(text for key in mine for text in key[1:])}
        for key in mine:
            (good, a), (bad, b) = read_texts[key[1]], read_texts[key[2]]
            known[key] = (about, f"tag {good}", f"tag {bad}", np.array(a) - np.array(b))
    rows = [known[key] for key in keys]
    more = [list(map(sub, extra(p.chosen).values(), extra(p.rejected).values())) for p in pairs] if extra else []
    names = {n for about in {r[0] for r in rows} for name in NAMES for n in (name, f"{about}: {name}")}
    names |= {n for about, tag in {(r[0], t) for r in rows for t in r[1:3]} for n in (tag, f"{about}: {tag}")}
    names |= set(extra("")) if extra else set()
    at = {name: j for j, name in enumerate(sorted(names))}
    plain = np.array([at[name] for name in NAMES])
    of_kind = {about: np.array([at[f"{about}: {name}"] for name in NAMES]) for about in {r[0] for r in rows}}
    n = len(rows)
    values = np.stack([r[3] for r in rows])
    parts = [(np.repeat(np.arange(n), len(NAMES)), np.tile(plain, n), values.ravel())]
    parts.append((parts[0][0], np.concatenate([of_kind[r[0]] for r in rows]), values.ravel()))
    turned = [
        (i, j, v)
        for i, (k, good, bad, _) in enumerate(rows)
        if good != bad
        for t, v in ((good, 1.0), (bad, -1.0))
        for j in (at[t], at[f"{k}: {t}"])
    ]
    if turned:
        i, j, v = map(np.array, zip(*turned, strict=True))
        parts.append((i, j, v))
    if extra:
        columns = np.array([at[name] for name in extra("")])
        parts.append((np.repeat(np.arange(n), len(columns)), np.tile(columns, n), np.array(more, dtype=float).ravel()))
    row, column, value = (np.concatenate(x) for x in zip(*parts, strict=True))
    there = value != 0
    table = coo_array((value[there], (row[there], column[there])), shape=(n, len(at))).tocsr()
    return (table if len(at) > 1000 else table.toarray()), list(at)


def reader(prompt: Sequence[Message]) -> Callable[[str], tuple[str, tuple[float, ...]]]:
    """(tag, values of NAMES) of an answer to `prompt`: what they take from the prompt is read once, for both sides of a
    pair."""
    prompt_tokens = tokens(next((m.content for m in reversed(prompt) if m.role == "user"), ""))
    read = [m.content for m in prompt if m.role == "tool"]
    earlier = set(tokens(" ".join(m.content for m in prompt if m.role == "assistant")))
    last = read[-1].split("\n") if read else []
    lines = [set(tokens(line)) for line in last]
    question, numbers = set(prompt_tokens), _numbers(prompt_tokens)
    context = set(tokens(prompt[-2].content)) if read else question
    in_last, in_any = set(tokens(" ".join(last))), set(tokens(" ".join(read)))
    told = question | earlier | in_any

    def of(answer: str) -> tuple[str, tuple[float, ...]]:
        tagged = _TAGGED.search(answer)
        tag, payload = (tagged[1], tagged[2]) if tagged else ("", answer)
        words = _words(payload)
        final, working = set(words), tokens(answer[: tagged.start()] if tagged else "")
        beside = [line for line in lines if final and final <= line]
        return tag, (
            len(answer) / 50,
            len(words) / 5,
            share(final, question),
            share(question, final),
            jaccard(_numbers(Counter(words)), numbers) if numbers else 0.0,
            share(final, working.keys()),
            jaccard(Counter(words), working) if working else 0.0,
            share(final, earlier),
            share(final, in_last),
            share(final, in_any),
            share(final, lines[0]) if lines else 0.0,
            max((share(context, line) for line in beside), default=0.0),
            max((share(question, line) for line in beside), default=0.0),
            len(final & told) / len(final) if final else 0.0,
        )

    return of


def kind(prompt: Sequence[Message]) -> str:
    """The kind of a prompt: its number of results read (up to 2), or the first word of a question that has numbers in
    it."""
    question = next((m.content for m in reversed(prompt) if m.role == "user"), "")
    read = sum(m.role == "tool" for m in prompt)
    first = next(iter(re.findall(r"\w+", question.lower())), "")
    return first if not read and len(re.findall(r"\d+", question)) > 1 else f"{min(read, 2)} read"


def tokens(text: str) -> Counter[str]:
    return Counter(_words(text)) if text else Counter()


def _words(text: str) -> list[str]:
    """The words and signs of a text in lower case: what _TOKEN finds, for ASCII in half of its time."""
    if not text.isascii():
        return _TOKEN.findall(text.lower())
    spaced = text.translate(_SPACED)
    for sign in _SIGNS:
        if sign in spaced:
            spaced = spaced.replace(sign, f" {sign} ")
    return spaced.split()


def _numbers(words: Counter[str]) -> Counter[str]:
    return Counter({w: n for w, n in words.items() if w.isdigit()})


def share(a: AbstractSet[str], b: AbstractSet[str]) -> float:
    """The share of the words of a that occur in b; 0 where a is empty."""
    return len(a & b) / len(a) if a and b else 0.0


def jaccard(a: Counter[str], b: Counter[str]) -> float:
    """Multiset Jaccard similarity; 0 where one is empty."""
    if not a or not b:
        return 0.0
    both = sum(min(a[w], b[w]) for w in a.keys() & b.keys())
    return both / (a.total() + b.total() - both)
