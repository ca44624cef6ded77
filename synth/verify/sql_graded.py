"""A SQL query, by how much of the right result it gives: for rewards that should not be all or nothing.

Think2SQL, Papicchio et al. 2025 (arXiv 2504.15077), with the measures of QATCH: the mean of

    cell precision   the share of the cells given that are in the right result
    cell recall      the share of the right cells given
    cardinality      fewer rows over more rows

averaged over the databases of `sql`. 1 is given exactly where `sql` gives 1; a result that
only looks like it (other order of cells) stays below. Limits and sandbox are those of `sql`; a query that does not run
is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from synth.types import Problem, Score, Scored
from synth.verify import RIGHT
from synth.verify._database import judged, same
from synth.verify.sql import EXAMPLE as WHOLE
from synth.verify.sql import SECONDS as SECONDS

FORM = "data"
EXAMPLE = WHOLE | {"answer": "SELECT name FROM (SELECT * FROM t WHERE age > 30) AS old"}
ALMOST = 0.95  # the most that a wrong result can get


def sql_graded(
    problem: Problem, answer: str, *, tables: Mapping[str, Any] | None = None, ordered: bool = False
) -> Score:
    """1 where the query is right on all databases, else at most 0.95: the mean of the three measures over the
    databases."""
    worth, right = [], []

    def look(gold: list[tuple], given: list[tuple]) -> None:
        right.append(same(gold, given, ordered))
        worth.append(sum(measures(gold, given)) / 3)

    verdict = judged(problem, answer, tables or {}, look)
    if verdict is not None:
        return verdict
    return RIGHT if all(right) else Scored(value=min(ALMOST, sum(worth) / len(worth)), parts={"parsed": 1.0})


def measures(gold: Sequence[tuple], given: Sequence[tuple]) -> tuple[float, float, float]:
    """(cell precision, cell recall, cardinality) of a result; all 1 where both are empty."""
    one, two = (Counter(repr(cell) for row in rows for cell in row) for rows in (gold, given))
    both = (one & two).total()
    share = lambda n, total: n / total if total else float(not one and not two)  # noqa: E731
    fewer, more = sorted((len(gold), len(given)))
    return share(both, two.total()), share(both, one.total()), fewer / more if more else 1.0
