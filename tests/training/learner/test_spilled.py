"""Rows on disk are those that were given."""

from __future__ import annotations

import numpy as np

from training.learner.pack import Row, pack
from training.learner.spilled import SpilledRows, SpilledUnits


def row(n: int, group: int = 0, scalars=None, **more) -> Row:
    rng = np.random.default_rng([n, group])
    return Row(
        ids=rng.integers(0, 200_000, n), trainable=rng.random(n) < 0.5, group=group, scalars=scalars or {}, **more
    )


def same(a: Row, b: Row) -> bool:
    pairs = [(a.ids, b.ids), (a.trainable, b.trainable), *((a.columns[k], b.columns[k]) for k in a.columns)]
    alike = a.group == b.group and a.scalars == b.scalars and a.columns.keys() == b.columns.keys()
    return alike and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def test_rows_come_back_as_they_were():
    some = [row(n, n % 3, {"margin": n / 7, "weight": 1.0}) for n in (5, 2, 40, 7, 2)]
    some.insert(2, row(6, 1, {"margin": 0.5, "weight": 2.0}, columns={"token_reward": np.linspace(0, 1, 6)}))
    some.append(row(3, 2))  # without the scalars that the others have
    kept = SpilledRows(some)
    assert len(kept) == 7 and all(map(same, kept, some)) and same(kept[-3], some[-3])
    kept.add(row(9, 4, {"margin": -1.0, "weight": 0.0}))  # what is added after rows were read is there too
    assert same(kept[7], row(9, 4, {"margin": -1.0, "weight": 0.0})) and same(kept[1:3][0], some[1])
    whole, again = pack(some[:2]), pack(kept[:2])
    assert whole.ids.tolist() == again.ids.tolist() and whole.totals == again.totals


def test_units_are_the_rows_that_belong_together():
    units = SpilledUnits()
    given = [[row(4), row(5)], [row(6, 1), row(7, 1), row(8, 1), row(9, 1)], [row(3, 2), row(4, 2)]]
    for unit in given:
        units.add(unit)
    assert [len(u) for u in units] == [2, 4, 2] and len(units.rows) == 8
    assert all(same(a, b) for mine, theirs in zip(units, given, strict=True) for a, b in zip(mine, theirs, strict=True))
    assert len(units[1:]) == 2 and same(units[-1][0], given[2][0])
