"""What a cell says where it says nothing: an empty text, `-`, `N/A`, `NaN`, `unknown`.

Such a cell is no fact. Most spellings are unambiguous. A few can be a code or a name: NA is Namibia, Na is
sodium, NAN the airport of Nadi, Nan a province, Null a family. These count as missing if the other values of their
column have another form:

    form       what it is                                  stands among it
    capitals   up to four capital letters: DE, USA         NA, NAN, NULL
    symbol     a capital and at most one small letter: He  Na
    name       one word with a capital first: Phrae        Nan, Null, Nil

Such a value is kept if at least half of the other distinct values of its column have its form; among numbers, dates,
longer words and texts of several words it counts as missing, and so does a single value.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from synth.knowledge.rows import Reading

MISSING = (
    *("", "-", "--", "---", "\N{EN DASH}", "\N{EM DASH}", "?", "n/a", "#n/a", "n.a.", "<na>"),
    *("na", "nan", "null", "nil", "none", "unknown", "undefined", "missing"),
    *("not available", "not applicable", "not known", "no data"),
)
_MAY_BE_NAMES = {"na", "nan", "null", "nil"}
_FORMS = {
    "capitals": re.compile(r"[A-Z]{1,4}"),
    "symbol": re.compile(r"[A-Z][a-z]?"),
    "name": re.compile(r"[^\W\d_a-z][^\W\d_A-Z]{2,}"),
}


def says_nothing(text: str, words: Collection[str] = MISSING) -> bool:
    """Whether a text is one of the words, regardless of its column."""
    return text.strip().casefold() in words


def missing(values: Iterable[str], words: Collection[str] = MISSING) -> set[str]:
    """Which values of one column are missing (by the rule above)."""
    distinct = set(values)
    out = set()
    for text in distinct:
        if says_nothing(text, words) and not (
            text.casefold() in _MAY_BE_NAMES and _stands(text, [v for v in distinct if not says_nothing(v, words)])
        ):
            out.add(text)
    return out


def _stands(text: str, others: Collection[str]) -> bool:
    return any(
        form.fullmatch(text) and 2 * sum(form.fullmatch(v) is not None for v in others) >= len(others) > 0
        for form in _FORMS.values()
    )


def drop_missing(reading: Reading, words: Collection[str] = MISSING) -> None:
    """Remove the rows with a missing object from a reading and count them in `reading.missing`. If the source has no
    records, rows without an object stay: in a list of triples they are a mistake, which the quarantine shows."""
    columns: dict[str, list[str]] = defaultdict(list)
    for row in reading.rows:
        columns[row.relation].append(row.object)
    gone = {relation: missing(values, words) for relation, values in columns.items()}
    kept = []
    for row in reading.rows:
        if row.object in gone[row.relation] and (row.object or reading.listed):
            reading.missing[row.object] += 1
        else:
            kept.append(row)
    reading.rows = kept


def stated(reading: Reading, texts: Iterable[str], words: Collection[str] = MISSING) -> list[bool]:
    """For each text of one column, whether it states a value; the missing ones are counted."""
    texts = list(texts)
    gone = missing(texts, words)
    reading.missing += Counter(t for t in texts if t in gone)
    return [t not in gone for t in texts]
