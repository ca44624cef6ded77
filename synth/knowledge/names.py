"""Parses names as sources write them: lists with notes and measures, values with remarks; decides when two spellings
are the same name.

list   =  item { ";" item }  |  item { ", " item }          a comma inside brackets separates nothing
item   =  name { note | measure } [ ("and" | ",") item ]    "and" only after a note or a measure, so that
note   =  "(" text ")"  |  "[" text "]"                     Trinidad and Tobago is one name
measure = number unit, or a number with a point or commas    so that Apollo 11 is one name
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from synth.knowledge.text import tidy
from synth.quantities import without_note

_NOTE = r"[(\[][^()\[\]]{0,120}[)\]]"
_MEASURE = (
    r"(?:[-\N{EN DASH}]\s?)?(?:\d+(?:,\d{3})+|\d+\.\d+|\d[\d.,]*\s?(?:%|(?:sq |square |cubic )?(?:km|m|mi|ft|miles|metres|meters|feet|kilometres|kilometers|ha|nm)))"
    r"(?:\s?(?:%|(?:sq )?(?:km|m|mi)))?"
)
_TAIL = re.compile(rf"(?:\s*{_NOTE}|\s+{_MEASURE})\s*$")
_ABOUT = re.compile(r"\s+(?:less than|more than|about|approximately|at least|nearly)$")  # "German less than 1%"
_AND = re.compile(
    rf"(?:(?:{_NOTE}|\s{_MEASURE})\s+and\s+|(?:\((?:singular|plural)\)|\s{_MEASURE})(?:\s?{_NOTE})?\s?,\s+"
    r"(?!(?:of|including|excluding|not|with|which|est|about|less|more|plus|or)\b))(?=[^\W\d_])"
)
_LONGEST = 80  # characters of a name in a list
_UNCLEAR = re.compile(r"\w\([^()]{0,20}\)|[()\[\]{}]|\bor\b|\band/or\b|/\s|;")


def names(text: str) -> list[str]:
    """The names of a list: "Andorra 55 km; Belgium (2) 556 km" -> Andorra, Belgium; "Germany 11%, Italy 9% (2023)" ->
    Germany, Italy; "Russia (northeast) 4,133 km and Russia (northwest) 46 km" -> Russia."""
    if len(text) >= 20_000:
        return []
    text = re.split(r"\s*\bnotes?\s?[:-]\s", text, maxsplit=1)[0]
    text = re.sub(r"\s*\[[^()\[\]]{0,40}\]", "", text)
    listed = without_note(text) if "," in text or ";" in text else text
    parts = [
        bare for part in _parts(listed) for item in _items(part) if (bare := _bare(item)) and len(bare) <= _LONGEST
    ]
    return list(dict.fromkeys(parts))


def _parts(text: str) -> Iterator[str]:
    """The text split at its semicolons, else at its commas, outside brackets."""
    mark, begun, depth = (";" if ";" in text else ","), 0, 0
    for i, c in enumerate(text):
        depth = max(0, depth + (c in "([") - (c in ")]"))
        if c == mark and not depth and (mark == ";" or text[i + 1 : i + 2].isspace()):
            yield text[begun:i]
            begun = i + 1
    yield text[begun:]


def _items(part: str) -> list[str]:
    ends = [m for m in _AND.finditer(part) if part.count("(", 0, m.end()) <= part.count(")", 0, m.end())]
    starts = [0, *(m.end() for m in ends)]
    return [part[a : b if b is None else b.end()] for a, b in zip(starts, [*ends, None], strict=True)]


def _bare(item: str) -> str:
    item = re.sub(r"(?:\s+and|\s?,)\s*$", "", item)
    if item.count(")") > item.count("("):  # its list began with a bracket
        item = item.rstrip(" ).")
    for _ in range(4):  # bounded, so that hostile text cannot cause a long loop
        shorter = _TAIL.sub("", item[-200:])
        if len(shorter) == len(item[-200:]):
            break
        item = item[:-200] + shorter
    bare = tidy(re.sub(_NOTE, "", item)).strip(" .-\N{EN DASH}")
    return _ABOUT.sub("", bare)


def plain_value(text: str) -> list[str]:
    """The answers in a text, each without notes and, after a name, without its measure: "Pretoria
    (administrative); Cape Town (legislative)" -> Pretoria, Cape Town; "Inyangani 2,592 m" -> Inyangani. Empty if the
    answer is ambiguous: "Lao(s) or Laotian". A text that does not begin with a letter is not changed."""
    text = without_note(text)
    out = []
    for part in (item for some in (_parts(text) if ";" in text else [text]) for item in _items(some)):
        word = re.match(r"\s*[^\W\d_]", part)
        bare = re.sub(rf"\s+{_NOTE}(?=\s)", "", _bare(part)) if word else tidy(without_note(part)).strip(" .")
        if word and _UNCLEAR.search(bare):
            return []
        out += [bare] if bare else []
    return list(dict.fromkeys(out))


def unbroken(name: str) -> str:
    """A name without the traces of its layout: "Saint- Chef" -> Saint-Chef, "Olm , Karsund" -> "Olm, Karsund", quotes around
    all of it."""
    name = re.sub(r"(?<=[^\W\d_])- (?=[A-Z])", "-", re.sub(r" (?=[,;])", "", name))
    quoted = _QUOTED.fullmatch(name)
    return quoted[1] if quoted else name


def listed(text: str) -> list[str]:
    """The short things of a list in one text: "cars, refined oil, and timber (2023)" -> cars, refined oil, timber. Empty where a
    part is longer than a few words, or holds a number."""
    text = re.split(r"\s*\bnotes?\s?[:-]\s", text, maxsplit=1)[0]
    some = (part for whole in _parts(without_note(text)) for part in _parts(whole))
    parts = [_bare(part) for part in some]
    parts = [re.sub(r"^(?:and|or|also|other) ", "", part) for part in parts if part and part.lower() not in _REST]
    plain = all(len(p.split()) <= _FEW and not re.search(r"[\d:()]|\b(?:is|are|was|were|has|have)\b", p) for p in parts)
    return list(dict.fromkeys(parts)) if plain else []


_QUOTED = re.compile(
    r"[\"\N{LEFT DOUBLE QUOTATION MARK}]([^\"\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}]+)[\"\N{RIGHT DOUBLE QUOTATION MARK}]"
)
_REST = {"other", "others", "unspecified", "unknown", "none", "etc", "mixed"}
_FEW = 5  # words of a thing in a list

# ---- two spellings of one name


def fold(name: str) -> str:
    """The common form of a name's spellings: no accents, lower case, no joining or shortening marks, no leading
    article; "Congo, Democratic Republic of the" is put into natural order."""
    if _BARE.fullmatch(name):  # most names: nothing to take apart
        return name.lower().removeprefix("the ")
    parts = name.split(", ") if "," in name else ()
    if len(parts) == 2 and re.search(r"\b(?:of|the|Republic|Islands|States?|Federation)\b", parts[1]):
        name = f"{parts[1]} {parts[0]}"
    plain = name
    if not name.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    plain = _MARKS.sub(" ", plain.replace("&", " and ")).casefold()
    return " ".join(plain.split()).removeprefix("the ")


_BARE = re.compile(r"[A-Za-z0-9]+(?: [A-Za-z0-9]+)*")
_MARKS = re.compile(r"['\N{RIGHT SINGLE QUOTATION MARK}`.,-]+")
_SMALL = {"of", "the", "and", "for", "in", "de", "la", "du", "des", "di", "da", "del", "a", "an"}
_STATE = _SMALL | {
    "republic",
    "kingdom",
    "federation",
    "democratic",
    "people s",
    "peoples",
    "islamic",
    "state",
    "union",
}


_DROPPED = _STATE | {"people", "s"}


def initials(name: str) -> set[str]:
    """The acronyms of a name of two words or more, with and without its lower-case words."""
    words = fold(name).split()
    big = [w for w in words if w not in _SMALL]
    return {"".join(w[0] for w in some) for some in (words, big) if len(big) > 1}


class Same(NamedTuple):
    """Two names of one type that may refer to the same thing."""

    type: str
    name: str
    other: str
    why: str


def resolve(
    counts: Mapping[str, Mapping[str, int]],
    listed: Mapping[str, Collection[str]],
    decided: Mapping[str, Mapping[str, str]],
    sources: Mapping[tuple[str, str], Collection[int]] = {},
) -> tuple[dict[tuple[str, str], str], list[Same]]:
    """((type, name) -> its canonical name, the doubtful names).

    counts    type -> name -> in how many rows
    listed    type -> names that have their own record or page: two of these are never merged
    decided   type -> name -> the name that it stands for; itself if it is separate
    sources   (type, name) -> the numbers of the sources that have its record or page: two names of different sources
              may be merged

    Names of one type are merged if they differ only in accents, case, marks or the order around a comma, or if one is
    the only acronym (three letters or more) of the other. The name with a record is kept, else the most frequent one.
    Doubtful are acronyms of two letters, two records that differ this little, and names that differ only in words for
    states ("Republic of Moldova").
    """
    out: dict[tuple[str, str], str] = {}
    doubtful: list[Same] = []
    for type_, some in counts.items():
        own, given = listed.get(type_, ()), decided.get(type_, {})
        order = sorted(some, key=lambda n: (n not in own, -some[n], n))
        for name, stands_for in given.items():
            if name in some and name != stands_for:
                out[type_, name] = stands_for
        free = [n for n in order if n not in given]
        for group in _grouped(free, fold):
            for other in group[1:]:
                apart = other in own and not _of_two(sources.get((type_, group[0])), sources.get((type_, other)))
                if apart or (len(other) <= 3 and other.casefold() == group[0].casefold()):
                    doubtful.append(Same(type_, group[0], other, "they differ in accents, case or marks alone"))
                else:
                    out[type_, other] = group[0]
        left = [n for n in free if (type_, n) not in out]
        doubtful += _acronyms(type_, left, own, out)
        left = [n for n in left if (type_, n) not in out]
        for group in _grouped(left, _without_state):
            others = [n for n in group[1:] if fold(n) != fold(group[0])]
            doubtful += [Same(type_, group[0], n, "they differ in words of states alone") for n in others]
    return out, doubtful


def _of_two(one: Collection[int] | None, other: Collection[int] | None) -> bool:
    """Whether a record and a page, or two records, are of different sources."""
    return bool(one and other and not set(one) & set(other))


def _acronyms(
    type_: str, names_: Sequence[str], own: Collection[str], out: dict[tuple[str, str], str]
) -> Iterator[Same]:
    of: dict[str, list[str]] = defaultdict(list)
    short = [n for n in names_ if re.fullmatch(r"(?:[A-Z]\.?){2,6}", n)]
    for name in names_ if short else ():
        for letters in initials(name):
            of[letters].append(name)
    for name in short:
        letters = name.replace(".", "").casefold()
        longer = of.get(letters, [])
        if len(longer) == 1 and len(letters) > 2 and name not in own:
            out[type_, name] = longer[0]
        else:
            yield from (Same(type_, n, name, "one may be the acronym of the other") for n in longer)


def _without_state(name: str) -> str:
    folded = fold(name)
    words = folded.split()
    return folded if _DROPPED.isdisjoint(words) else " ".join(w for w in words if w not in _DROPPED)


def _grouped(names_: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    """Names with one key, in their order, where there are several. A list for each key would take most of the memory, as
    most have one name."""
    first: dict[str, str] = {}
    more: dict[str, list[str]] = {}
    for name in names_:
        if k := key(name):
            known = first.setdefault(k, name)
            if known is not name:
                more.setdefault(k, [known]).append(name)
    return [more[k] for k in first if k in more] if more else []
