"""Proof by SQL: what satisfies a pattern, found by queries over the tables of a knowledge base, without any code of the
generator.

A constant stands for what a reader sees: every entity with that name, case ignored. One query answers a
pattern: the clue of each variable that leads soonest to a constant is resolved from its end ("x IN (SELECT ...)"), all
others are checked for each x ("EXISTS (SELECT ...)"). In which order that happens changes the time, never the result.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache

from synth.questions.pattern import (
    FAR,
    MAYBE,
    SURELY,
    Clue,
    Named,
    Node,
    Nothing,
    Pattern,
    Span,
    Than,
    Third,
    constants,
    deletions,
    nesting,
    steps,
    to_json,
)

_DEEP = 3  # variables in each other that are found before they are checked: SQLite parses few EXISTS in each other
_LAST_OF_THIRD = f"MAX(0, (SELECT COUNT(*) FROM quantity WHERE relation = ?) * {MAYBE} / 30 - 1)"  # may be counted in
_BEYOND_SURE = (
    f"(SELECT COUNT(*) FROM quantity WHERE relation = ?) * {SURELY} / 30"  # the first value that is not surely in it
)


class Prover:
    """Answers patterns over the tables `entity` and `fact` that `KB.sqlite` wrote into `connection`, which it indexes
    anew in TEMP tables.

    symmetric   relations whose words do not tell their direction ("shares a border with"): what is listed of them one
                way is added the other way, so that both are read
    """

    def __init__(self, connection: sqlite3.Connection, *, symmetric: Iterable[str] = ()) -> None:
        self.connection = connection
        for relation in symmetric:
            connection.execute(
                "INSERT OR IGNORE INTO fact (id, subject, relation, object, source, span) "
                "SELECT 'other way ' || f.id, f.object, f.relation, f.subject, f.source, f.span FROM fact f "
                "WHERE f.relation = ? AND f.object IS NOT NULL AND NOT EXISTS (SELECT 1 FROM fact g "
                "WHERE g.relation = f.relation AND g.subject = f.object AND g.object = f.subject)",
                (relation,),
            )
        connection.executescript(
            """
            CREATE TEMP TABLE IF NOT EXISTS called AS
                SELECT id AS entity, lower(name) AS text, 1 AS main FROM entity
                UNION SELECT e.id, lower(a.value), 0 FROM entity e, json_each(e.aliases) a
                      WHERE e.aliases <> '[]' AND lower(a.value) <> lower(e.name);
            CREATE INDEX IF NOT EXISTS called_text ON called(text);
            CREATE INDEX IF NOT EXISTS called_entity ON called(entity);
            CREATE TEMP TABLE IF NOT EXISTS quantity AS
                SELECT f.relation, f.subject, CAST(CASE r.range WHEN 'date' THEN replace(f.literal, '-', '') ELSE f.literal END AS REAL) AS value
                FROM fact f JOIN relation r ON r.name = f.relation
                WHERE f.literal IS NOT NULL AND r.range IN ('number', 'year', 'date');
            CREATE INDEX IF NOT EXISTS quantity_value ON quantity(relation, value, subject);
            CREATE INDEX IF NOT EXISTS quantity_subject ON quantity(subject, relation, value);
            """
        )
        self._named: list[tuple[str, list[str | float]]] = []  # SELECTs of the query being written, and their values
        self._known_two = lru_cache(maxsize=16_384)(self._two)
        self._is_entity = lru_cache(maxsize=4096)(self._has_entity)

    def answers(self, pattern: Pattern, *, limit: int = -1) -> set[str]:
        """The distinct answers, at most `limit` of them where it is not negative."""
        values: list[str | float] = [pattern.relation]
        column, end = ("COALESCE(a.object, a.literal)", "a.subject") if pattern.forward else ("a.subject", "a.object")
        self._named = []
        among = self._among(pattern.root, end, values)
        text = f"SELECT DISTINCT {column} FROM fact a WHERE a.relation = ? AND {among} LIMIT {int(limit)}"
        return {row[0] for row in self._run(text, values)}

    def _two(self, pattern: Pattern) -> bool:
        """Whether there are two answers."""
        return (self._two_answers if constants(pattern.root) else self._two_anywhere)(pattern)

    def _two_answers(self, pattern: Pattern) -> bool:
        return len(self.answers(pattern, limit=2)) == 2

    def _two_anywhere(self, pattern: Pattern) -> bool:
        """`_two_answers` of a pattern without a constant: from the facts that are asked for, one after the other up to the second
        answer, since nothing says where in the world its entities are."""
        assert isinstance(pattern.root, Node)
        values: list[str | float] = [pattern.relation, pattern.root.type]
        # + : SQLite would go through the index of all subjects, to see each answer once
        column, end = ("COALESCE(a.object, a.literal)", "a.subject") if pattern.forward else ("+a.subject", "a.object")
        self._named = []
        tests = [self._test(clue, "x0", 1, values) for clue in pattern.root.clues]
        inside = " AND ".join([f"x0.id = {end} AND x0.type = ?", *tests])
        text = f"SELECT DISTINCT {column} FROM fact a WHERE a.relation = ? AND EXISTS (SELECT 1 FROM entity x0 WHERE {inside}) LIMIT 2"
        return len(self._run(text, values).fetchall()) == 2

    def _run(self, text: str, values: list[str | float]) -> sqlite3.Cursor:
        """A query behind the SELECTs that it names: each in the other they would be too deep for SQLite to parse."""
        if self._named:
            named = ", ".join(f"n{i}(id) AS ({inside})" for i, (inside, _) in enumerate(self._named))
            text, values = f"WITH {named} {text}", [v for _, some in self._named for v in some] + values
        return self.connection.execute(text, values)

    def members(self, node: Node, *, limit: int = -1) -> set[str]:
        """The ids of the entities that satisfy a node."""
        values: list[str | float] = []
        self._named = []
        return {row[0] for row in self._run(f"{self._select(node, values)} LIMIT {int(limit)}", values)}

    def holds(self, node: Node, entity: str) -> bool:
        """Whether an entity satisfies a node."""
        values: list[str | float] = [entity, node.type]
        self._named = []
        tests = [self._test(clue, "x0", 1, values) for clue in node.clues]
        text = " AND ".join(["SELECT 1 FROM entity x0 WHERE x0.id = ? AND x0.type = ?", *tests])
        return self._run(text, values).fetchone() is not None

    def refute(self, pattern: Pattern, answer: str) -> tuple[str, str] | None:
        """None where `answer` is the only one and every clue is needed for that; else the reason code and the
        evidence."""
        answers = self.answers(pattern, limit=5)
        if answers != {answer}:
            return "not_unique", f"{len(answers)} answers by SQL: {', '.join(sorted(answers))}"
        for root in deletions(pattern.root):
            smaller = Pattern(relation=pattern.relation, forward=pattern.forward, root=root)
            # Without the name of an entity it is one of few patterns.
            named = any(map(self._is_entity, constants(root)))
            if not (self._two if named else self._known_two)(smaller):
                return "redundant_clue", f"the same answer without a clue: {to_json(root)}"
        return None

    def refute_tree(
        self, pattern: Pattern, root: str, answer: str, witnesses: Mapping[int, str] | None = None
    ) -> tuple[str, str] | None:
        """As `refute`, for a pattern that asks a described root: moreover `root` alone satisfies the description, and
        there are two clues or more. No clue suffices alone then: what remains without another one still has two
        answers.

        witnesses   of deletion i (in the order of `deletions`) an entity that satisfies what is left of the description
        and has another
                    answer: then its word is checked by one query about it alone. Without one, all entities are
                    searched.
        """
        assert isinstance(pattern.root, Node)
        answers = self.members(pattern.root, limit=5)
        if answers != {root}:
            return "not_unique", f"{len(answers)} entities by SQL: {', '.join(sorted(answers))}"
        if (clash := self._asked(pattern, root)) != {answer}:
            return "not_unique", f"{len(clash)} answers by SQL: {', '.join(sorted(clash)[:5])}"
        if len(pattern.root.clues) < 2:
            return "single_clue", "one clue alone describes the root: another is needed, so that none suffices"
        for i, smaller in enumerate(deletions(pattern.root)):
            other = (witnesses or {}).get(i)
            if other is not None:
                if not self.holds(smaller, other) or not self._asked(pattern, other) - {answer}:
                    return "redundant_clue", f"{other} is no other answer without a clue: {to_json(smaller)}"
            elif (
                len(self.answers(Pattern(relation=pattern.relation, forward=pattern.forward, root=smaller), limit=2))
                < 2
            ):
                return "redundant_clue", f"the same answer without a clue: {to_json(smaller)}"
        return None

    def _asked(self, pattern: Pattern, root: str) -> set[str]:
        column, end = ("COALESCE(object, literal)", "subject") if pattern.forward else ("subject", "object")
        return {
            r[0]
            for r in self.connection.execute(
                f"SELECT {column} FROM fact WHERE {end} = ? AND relation = ?", (root, pattern.relation)
            )
        }

    def cut(self, relation: str, largest: bool) -> float:
        """The last value that may be counted into the top (or bottom) third of a relation's values. Raises ValueError where
        it has none."""
        order, values = "DESC" if largest else "ASC", [relation, relation]
        text = f"SELECT value FROM quantity WHERE relation = ? ORDER BY value {order} LIMIT 1 OFFSET {_LAST_OF_THIRD}"
        row = self.connection.execute(text, values).fetchone()
        if row is None:
            raise ValueError(f"{relation!r}, whose values have no third")
        return row[0]

    # ---- a term as SQL; `values` are the parameters in the order of the text

    def _select(self, node: Node, values: list, depth: int = 0) -> str:
        """SELECT of the ids that satisfy a node: one clue from its end, the others checked."""
        x = f"x{depth}"
        lead = min(range(len(node.clues)), key=lambda i: (steps(node.clues[i]), i), default=None)
        clue = None if lead is None else node.clues[lead]
        driven = isinstance(clue, Clue) and steps(clue) < FAR
        parts = []
        if isinstance(clue, Clue) and driven:
            mine, other = ("subject", "object") if clue.forward else ("object", "subject")
            values.append(clue.relation)
            if isinstance(clue.target, Span):
                values += [clue.target.low, clue.target.high]
                parts.append(
                    f"{x}.id IN (SELECT q.subject FROM quantity q WHERE q.relation = ? AND q.value BETWEEN ? AND ?)"
                )
            elif isinstance(clue.target, str | Node):  # no other is as near as FAR
                among = self._among(clue.target, f"f.{other}", values, depth + 1)
                parts.append(f"{x}.id IN (SELECT f.{mine} FROM fact f WHERE f.relation = ? AND {among})")
        values.append(node.type)
        parts.append(f"{x}.type = ?")
        parts += [self._test(c, x, depth + 1, values) for i, c in enumerate(node.clues) if not (driven and i == lead)]
        return f"SELECT {x}.id FROM entity {x} WHERE {' AND '.join(parts)}"

    def _among(self, term: str | Node, column: str, values: list, depth: int = 0) -> str:
        """The condition that a column holds one of a term's members, from the end."""
        if isinstance(term, Node):
            own: list[str | float] = []
            text = self._select(term, own, depth)
            self._named.append((text, own))
            return f"{column} IN (SELECT id FROM n{len(self._named) - 1})"
        return self._constant(term, column, values)

    def _constant(self, value: str, column: str, values: list) -> str:
        values.append(value)
        if self._is_entity(value):
            return f"{column} IN (SELECT entity FROM called WHERE text = (SELECT text FROM called WHERE entity = ? AND main))"
        return f"{column.replace('.object', '.literal')} = ?"

    def _has_entity(self, id: str) -> bool:
        return self.connection.execute("SELECT 1 FROM entity WHERE id = ?", (id,)).fetchone() is not None

    def _test(self, clue: Clue | Named, x: str, depth: int, values: list) -> str:
        """The condition that entity row `x` satisfies a clue."""
        if isinstance(clue, Named):
            values += [clue.initial, clue.words, clue.words]
            return f"upper(substr({x}.name, 1, 1)) = ? AND (? = 0 OR length({x}.name) - length(replace({x}.name, ' ', '')) + 1 = ?)"
        target, f = clue.target, f"f{depth}"
        mine, other = ("subject", "object") if clue.forward else ("object", "subject")
        if isinstance(target, Nothing):
            values.append(clue.relation)
            return f"NOT EXISTS (SELECT 1 FROM fact {f} WHERE {f}.{mine} = {x}.id AND {f}.relation = ?)"
        if isinstance(target, Span | Third | Than):
            values.append(clue.relation)
            return (
                f"EXISTS (SELECT 1 FROM quantity {f} WHERE {f}.subject = {x}.id AND {f}.relation = ? AND "
                f"{self._compare(clue.relation, target, f, depth, values)})"
            )
        values.append(clue.relation)
        start = f"EXISTS (SELECT 1 FROM fact {f} WHERE {f}.{mine} = {x}.id AND {f}.relation = ?"
        if isinstance(target, str):
            # + : SQLite would go through all that have this literal, not the few of the entity
            literal = "" if self._is_entity(target) else "+"
            return f"{start} AND {literal}{self._constant(target, f'{f}.{other}', values)})"
        if nesting(target) >= _DEEP:
            return f"{start} AND {self._among(target, f'{f}.{other}', values, depth + 1)})"
        values.append(target.type)
        y = f"x{depth}"
        tests = [self._test(c, y, depth + 1, values) for c in target.clues]
        inside = " AND ".join([f"{y}.id = {f}.{other} AND {y}.type = ?", *tests])
        return f"{start} AND EXISTS (SELECT 1 FROM entity {y} WHERE {inside}))"

    def _compare(self, relation: str, target: Span | Third | Than, f: str, depth: int, values: list) -> str:
        if isinstance(target, Span):
            values += [target.low, target.high]
            return f"{f}.value BETWEEN ? AND ?"
        if isinstance(target, Third):
            sign, order = (">", "DESC") if target.largest else ("<", "ASC")
            sign, offset = (sign, _BEYOND_SURE) if target.sure else (f"{sign}=", _LAST_OF_THIRD)
            values += [relation, relation]
            # The subquery does not depend on the row, so SQLite runs it once.
            return f"{f}.value {sign} (SELECT value FROM quantity WHERE relation = ? ORDER BY value {order} LIMIT 1 OFFSET {offset})"
        sign = ">" if target.larger else "<"
        values.append(relation)
        among = self._among(target.other, f"v{depth}.subject", values, depth + 1)
        return f"EXISTS (SELECT 1 FROM quantity v{depth} WHERE v{depth}.relation = ? AND {f}.value {sign} v{depth}.value AND {among})"
