"""Families of several wordings: each wording is used and read back, and a harder level asks more of the solver."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from statistics import mean

import pytest

import synth.families
from synth.families._sample import Refused
from synth.families._wordings import Wordings, by_kind, integers, listed, read_kind
from synth.types import Problem

MODULES = {m.name: import_module(f"synth.families.{m.name}") for m in pkgutil.iter_modules(synth.families.__path__)}
OLDER = {name: m for name, m in MODULES.items() if hasattr(m, "solve") and not hasattr(m, "WORDINGS")}
NOT_IN_LINES = {  # families whose levels are not in the order of the lines that the second route executes -> why
    "calendar": "from level 2 on a third of the questions ask for a weekday, which is one count of days; level 1 has none of these",
    "countdown": "of larger numbers fewer divide one another, so a search over all ways to combine four of them is shorter at level 4",
    "nim_heaps": "level 2 has three heaps of at most 7 after two of at most 12, level 4 four of at most 7 after three of at most 11",
    "unit_conversion": "longer numbers; the factors to all units are found, however far the one asked for lies",
}
LINES = 20_000
WORDED = {name: module for name, module in MODULES.items() if hasattr(module, "WORDINGS")}


def _query_plan(module, problem: Problem) -> None:
    """The second route of a family that asks for a query: the plan that is read from the text, evaluated by loops."""
    tables = problem.args["tables"]
    plan = module.read(problem.question)
    if module.__name__.endswith("music_shop_sql"):
        module.evaluate(*plan, tables)
    else:
        module.evaluate(plan, tables[plan[1]])


def second_route(module, problem: Problem) -> None:
    _query_plan(module, problem) if problem.verifier == "sql" else module.solve(problem.question)


def work(module, problem: Problem) -> int:
    """Lines of Python that the second route takes."""
    lines = 0

    def count(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        second_route(module, problem)
    finally:
        sys.settrace(before)
    return lines


def effort(module, problems: Iterable[Problem], lines: int = LINES) -> float:
    """The mean work of the second route on the first problems: on two, on four unless they take very long, and on more
    while all take less than `lines`."""
    efforts: list[int] = []
    for problem in problems:
        efforts.append(work(module, problem))
        if sum(efforts) > lines and len(efforts) >= (4 if sum(efforts) < 10 * lines else 2):
            break
    return mean(efforts)


def drawn(name: str, level: int, count: int) -> Iterator[Problem]:
    """The problems among `count` items of a level."""
    items = (getattr(MODULES[name], name)(21, "train", i, levels=[level]) for i in range(count))
    return (p for p in items if isinstance(p, Problem))


def in_order(efforts: list[float]) -> bool:
    """Whether no level takes over a tenth less work than the one before it, and the last one more than the first."""
    return all(a <= 1.1 * b for a, b in zip(efforts, efforts[1:], strict=False)) and efforts[-1] > efforts[0]


@pytest.mark.parametrize("name", WORDED)
def test_each_wording_is_used_and_a_harder_level_takes_more_work(name):
    module = WORDED[name]
    kinds = by_kind(module.WORDINGS)
    forms = {(kind, form) for kind, wordings in kinds.items() for form in wordings.forms}
    used, efforts = set(), []
    assert all(len(set(wordings.forms)) >= 5 for wordings in kinds.values()) and len(module.LADDER) >= 3
    for level in range(1, len(module.LADDER) + 1):
        problems = list(drawn(name, level, 20))
        for problem in problems:
            (form,) = [
                (kind, f)
                for kind, wordings in kinds.items()
                for f, reader in zip(wordings.forms, wordings.readers, strict=True)
                if reader.fullmatch(problem.question)
            ]
            used.add(form)
        efforts.append(effort(module, problems))
    assert used == forms, f"never used: {forms - used}"
    assert name in NOT_IN_LINES or in_order(efforts), efforts


@pytest.mark.parametrize("name", sorted(OLDER.keys() - NOT_IN_LINES.keys()))
def test_a_harder_level_of_other_families_takes_more_work_too(name):
    module = OLDER[name]
    levels = range(1, len(module.LADDER) + 1)
    efforts = [effort(module, drawn(name, level, 60), 3 * LINES) for level in levels]
    assert in_order(efforts), efforts


def test_few_families_are_excused_from_the_order_of_levels():
    assert NOT_IN_LINES.keys() < OLDER.keys() | WORDED.keys() and len(NOT_IN_LINES) <= 4


def test_levels_that_get_easier_are_not_in_order():
    assert (
        in_order([10, 9.5, 20]) and not in_order([10, 8, 20]) and not in_order([10, 10]) and not in_order([10, 11, 9])
    )


def test_a_question_is_read_by_what_wrote_it():
    words = Wordings("Add {a} to {b}.", "{a} plus {b}, then {a} again?", answer="One integer.", b="[a-z]+")
    for b in ("x", "y", "z"):
        assert words.read(words.write(a=-3, b=b)) == {"a": "-3", "b": b}
    assert {words.write(a=1, b=b) for b in "abcdefgh"} <= {
        text for b in "abcdefgh" for text in (f"Add 1 to {b}. One integer.", f"1 plus {b}, then 1 again? One integer.")
    }
    assert words.write(a=1, b="x") == words.write(b="x", a=1)
    for other in ("Add 1 to X. One integer.", "1 plus x, then 2 again? One integer.", "Add 1 to x."):
        with pytest.raises(Refused, match="roundtrip"):
            words.read(other)


def test_a_question_of_several_kinds_is_read_by_its_kind():
    kinds = {
        "add": Wordings("Add {a} to {b}.", "{a} plus {b}?", answer="One integer."),
        "double": Wordings("Double {a}.", "Twice {a}?", answer="One integer."),
    }
    assert read_kind(kinds, kinds["double"].write(a=4)) == ("double", {"a": "4"})
    assert read_kind(kinds, kinds["add"].write(a=4, b=5)) == ("add", {"a": "4", "b": "5"})
    with pytest.raises(Refused, match="roundtrip"):
        read_kind(kinds, "Halve 4. One integer.")
    assert by_kind(kinds) == kinds and by_kind(kinds["add"]) == {"": kinds["add"]}


def test_lists_and_integers_by_hand():
    assert integers("(3, -4) and 12") == [3, -4, 12]
    assert [listed(list("abc")[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert listed(["2", "5"], "or") == "2 or 5"
