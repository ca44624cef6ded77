"""Do the scorers pay what is right, and nothing else? `make bench-graders`

- the table of tests/support/spellings.py: right answers in other spellings, of which none may be refused, and near misses,
  of which none may be paid, for each verifier
- SQL: queries with one change that differ from the reference on some database of the schema (tests/support/sql_mutants.py),
  and queries in other words that do not
- scorings a second of SQL on one core and a child of the pool, in seconds on the clock: each problem once, and eight
  answers to each, as in a group
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from synth.types import Problem, Unscorable
from synth.verify import verify

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.rows import result_row
from tests.support import spellings, sql_mutants

RESULTS = ROOT / "benchmarks" / "results" / "graders.json"
COMMAND = "make bench-graders"


def counted() -> dict[str, Counter]:
    """verifier -> right, refused, wrong, paid."""
    out: dict[str, Counter] = {}
    for case in spellings.table():
        score = verify(case.problem, case.answer)
        tally = out.setdefault(case.problem.verifier, Counter())
        if isinstance(score, Unscorable):
            raise SystemExit(f"{case}: {score.reason}")
        tally["right" if case.right else "wrong"] += 1
        tally["refused" if case.right else "paid"] += (score.value == 1.0) != case.right
    return out


def queries(count: int) -> Counter:
    """The same of changed queries, over `count` problems of each level of both families."""
    tally: Counter = Counter()
    for problem in sql_mutants.problems(count):
        databases = sql_mutants.databases(problem)
        for sql in sql_mutants.mutants(problem.answer).values():
            if sql_mutants.differs(problem, sql, databases):
                tally["wrong"] += 1
                tally["paid"] += verify(problem, sql).value == 1.0
        for sql in sql_mutants.rewrites(problem.answer).values():
            tally["right"] += 1
            tally["refused"] += verify(problem, sql).value != 1.0
        for connection in databases:
            connection.close()
    return tally


def speed(problems: list[Problem], each: int) -> float:
    """Scorings a second of `each` right answers to every problem."""
    begin = time.perf_counter()
    for problem in problems:
        for i in range(each):
            verify(problem, problem.answer + ";" + " " * i + "--")
    return len(problems) * each / (time.perf_counter() - begin)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--problems", type=int, default=12, help="problems of each level of a family of SQL")
    count = arguments.parse_args().problems
    tallies = dict(sorted(counted().items()))
    tallies["all of these"] = sum(tallies.values(), Counter())
    tallies["sql: changed queries, queries in other words"] = queries(count)
    out = []
    for case, tally in tallies.items():
        for kind, false in (("right", "refused"), ("wrong", "paid")):
            out.append(result_row(case, f"{kind} answers", tally[kind], "", COMMAND, tally[kind], better="higher"))
            out.append(result_row(case, false, tally[false], "", COMMAND, tally[kind], better="lower"))
    problems = list(sql_mutants.problems(count))
    verify(problems[0], "SELECT 1")
    for name, each in (("sql: one answer to each problem", 1), ("sql: eight answers to each problem", 8)):
        out.append(
            result_row(name, "scorings a second", round(speed(problems, each)), "/s", COMMAND, len(problems) * each)
        )
    RESULTS.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    total, sql = tallies["all of these"], tallies["sql: changed queries, queries in other words"]
    print(
        f"refused {total['refused'] + sql['refused']} of {total['right'] + sql['right']}, paid {total['paid']} of {total['wrong']}"
    )
    print(f"SQL: {sql['paid']} of {sql['wrong']} changed queries paid; {RESULTS}")
    return int(bool(total["refused"] or total["paid"] or sql["refused"] or sql["paid"] > 0.01 * sql["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
