"""Preference pairs of the user's own for the stage `preferences`, in every layout of `synth/preferences/imported.py`.

Further keys of an entry: `clean: false` keeps its pairs from the cleaners (a folder that `espalier clean` wrote has been
cleaned, so it is read like that); `scale` and `ratings` as of `espalier clean`; `limit`, characters of a side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from synth.preferences.imported import Reader
from synth.types import PreferencePair, Quarantined
from tasks.core.errors import UserError
from tasks.rows import read
from tasks.runtime.stage import Stage

KEYS = ("clean", "scale", "ratings", "limit")
CLEANED = "cleaned"  # the column that marks a pair which no cleaner may judge


def pairs(
    stage: Stage, files: Sequence[Any], protect: Sequence[str] = (), rows_per_shard: int = read.ROWS_PER_SHARD
) -> read.ReadRows:
    """The pairs of all files. Raises UserError for a file that yields none."""

    def make(entry: read.Entry, rows: Iterable[Any]) -> Iterator[tuple[str, PreferencePair] | Quarantined]:
        more = entry.more
        wanted = more.get("clean", not entry.is_cleaned(stage))
        if not isinstance(wanted, bool):
            raise UserError(
                f"{entry.where}: clean is {wanted!r}: write true, or false for pairs that are clean already"
            )
        given: dict[str, tuple[str, float]] = {}  # place -> the split and weight that the row states
        reader = Reader(
            name=entry.name,
            scale=tuple(more.get("scale", ())),
            ratings=more.get("ratings", "best_worst"),
            limit=int(more.get("limit", 200_000)),
        )
        try:
            for one in reader.pairs(_noted(rows, given)):
                if isinstance(one, Quarantined):
                    yield replace(one, stage=stage.name)
                    continue
                place = one.source
                split, weight = given.get(place.partition(", answers ")[0], ("", 1.0))
                columns = dict(one.columns)
                if weight != 1.0:
                    columns["weight"] = weight
                if not wanted:
                    columns[CLEANED] = True
                split = read.split_for(entry, {"split": split}, read.question(one.prompt))
                yield place, replace(one, source=entry.name, columns=columns, split=split)
        except UserError:
            raise
        except ValueError as e:
            raise UserError(f"{entry.where}: {e}") from None

    return read.read(stage, files, make, PreferencePair, more=KEYS, protect=protect, rows_per_shard=rows_per_shard)


def _noted(rows: Iterable[Any], given: dict[str, tuple[str, float]]) -> Iterator[Any]:
    for item in rows:
        if not isinstance(item, Quarantined) and isinstance(item[1], Mapping):
            split, weight = item[1].get("split"), item[1].get("weight", 1.0)
            known = isinstance(weight, int | float) and not isinstance(weight, bool) and weight > 0
            if split or (known and weight != 1.0):
                given[item[0]] = (str(split or ""), float(weight) if known else 1.0)
        yield item
