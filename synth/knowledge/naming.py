"""Infers which field of a record is its name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synth.knowledge.words import label_of

_OTHERS = re.compile(r"\b(?:contact|user|file|host|nick|sur|last|first|middle|ship)\b")


def unlike(records: Sequence[Any]) -> list[str]:
    """Candidate name columns if none is called a name: first those whose texts differ in all records and begin with a
    letter, else any that differ in all."""
    some = [r for r in records if isinstance(r, Mapping)]
    columns = list(dict.fromkeys(k for r in some for k in r if "." not in k))
    values = {c: [str(r[c]).strip() for r in some if isinstance(r.get(c), str | int)] for c in columns}
    whole = [
        c for c, v in values.items() if len(v) == len(some) == len(set(v)) and all(v) and len(max(v, key=len)) <= 80
    ]
    texts = [c for c in whole if all(v[:1].isalpha() and len(v) > 2 for v in values[c])]
    return texts or whole


def named(records: Sequence[Any], type: str = "") -> list[str]:
    """The paths at which records have a name: short, distinct texts in nearly all records, under a key that contains
    name or title. Order: the plainest path, then one that contains the type, then the shortest texts; a user's,
    contact's or file's name last."""
    values: dict[str, list[str]] = defaultdict(list)
    some = [r for r in records if isinstance(r, Mapping)]
    for record in some:
        for path, text in _texts(record):
            values[path].append(text)
    names = []
    for path, texts in values.items():
        parts = [p for p in path.lower().split(".") if p != "text"]
        place = 0 if parts in (["name"], ["title"]) else 1 if any("name" in p or "title" in p for p in parts) else 2
        mean = sum(map(len, texts)) / len(texts)
        if place < 2 and len(texts) >= 0.9 * len(some) and len(set(texts)) >= 0.9 * len(texts) and 2 < mean <= 60:
            words = label_of(path.replace(".", " ")).lower()
            place += (_OTHERS.search(words) is not None) + (place == 1 and (type not in words or not type))
            names.append((place, "short" not in path, len(parts), mean, path))
    return [path for *_, path in sorted(names)]


def _texts(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if "." in key:  # a dot joins keys
            continue
        if isinstance(value, Mapping):
            yield from _texts(value, f"{path}{key}.")
        elif isinstance(value, str) and value.strip():
            yield f"{path}{key}", value.strip()
