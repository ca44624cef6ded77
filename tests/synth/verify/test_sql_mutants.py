"""A query that is nearly right is not paid, one that says the same in other words is: on databases drawn by the tests."""

from __future__ import annotations


from synth.types import Problem
from synth.verify import verify
from synth.verify._database import drawn, mutations
from tests.support.sql_mutants import databases, differs, mutants, problems, rewrites


def test_changed_queries_are_told_apart_and_others_words_are_paid():
    told = same = 0
    for problem in problems(1):
        checks = databases(problem)
        wrong = [sql for sql in mutants(problem.answer).values() if differs(problem, sql, checks)]
        assert not [sql for sql in wrong if verify(problem, sql).value == 1.0], problem.answer
        others = rewrites(problem.answer).values()
        assert not [sql for sql in others if differs(problem, sql, checks)], "the tests' own databases disagree"
        assert not [sql for sql in others if verify(problem, sql).value != 1.0], problem.answer
        told, same = told + len(wrong), same + len(others)
    assert told > 100 and same > 40


def test_drawn_databases_keep_keys_references_and_types_and_are_the_same_each_time():
    for problem in problems(1):
        tables = problem.args["tables"]
        variants = list(drawn(tables, problem.answer))
        assert variants == list(drawn(tables, problem.answer)) and len(variants) > 3
        for database in [*variants, *mutations(tables)]:
            for name, table in database.items():
                assert table["columns"] == tables[name]["columns"]
                for row in table["rows"]:
                    assert [type(v) for v in row] == [type(v) for v in tables[name]["rows"][0]]
                if table["columns"][0][0] == "id":
                    assert len({r[0] for r in table["rows"]}) == len(table["rows"])
        for database in variants if "artist" in tables else ():
            for child, at, parent in (("album", 2, "artist"), ("track", 2, "album")):
                assert {r[at] for r in database[child]["rows"]} <= {r[0] for r in database[parent]["rows"]}


def test_tables_of_other_types_have_databases_too():
    tables = {
        "t": {"columns": [["a", "REAL"], ["b", "TEXT"]], "rows": [[0.5, None], [1.5, "x"]]},
        "none": {"columns": [["c", "INTEGER"]], "rows": []},
    }
    fields = {"prompt": "?", "verifier": "sql", "args": {"tables": tables}, "family": "f", "split": "train"}
    problem = Problem.make(answer="SELECT a FROM t WHERE b = 'x' OR b IS NULL", **fields)
    assert verify(problem, "SELECT t.a FROM t WHERE NOT b <> 'x' OR b IS NULL").value == 1.0
    assert verify(problem, "SELECT a FROM t WHERE b = 'x'").value == 0.0
