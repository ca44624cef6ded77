"""Families of several wordings: each wording is used and read back, and a harder level asks more of the solver."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from statistics import mean

import pytest

import synth.families
from synth.families._sample import Refused
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem

MODULES = {m.name: import_module(f"synth.families.{m.name}") for m in pkgutil.iter_modules(synth.families.__path__)}
WORDED = {name: module for name, module in MODULES.items() if hasattr(module, "WORDINGS")}


def work(solve, question: str) -> int:
    """Lines of Python that an answer takes."""
    lines = 0

    def count(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        solve(question)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("name", WORDED)
def test_each_wording_is_used_and_a_harder_level_takes_more_work(name):
    module = WORDED[name]
    forms, used, efforts = module.WORDINGS.forms, set(), []
    assert len(set(forms)) >= 5 and len(module.LADDER) >= 3
    for level in range(1, len(module.LADDER) + 1):
        drawn = [getattr(module, name)(21, "train", i, levels=[level]) for i in range(20)]
        questions = [p.question for p in drawn if isinstance(p, Problem)]
        for question in questions:
            (form,) = [
                f for f, reader in zip(forms, module.WORDINGS.readers, strict=True) if reader.fullmatch(question)
            ]
            used.add(form)
        efforts.append(mean(work(module.solve, question) for question in questions[:4]))
    assert len(used) == len(forms), f"never used: {set(forms) - used}"
    assert all(a <= 1.1 * b for a, b in zip(efforts, efforts[1:], strict=False)) and efforts[-1] > efforts[0], efforts


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


def test_lists_and_integers_by_hand():
    assert integers("(3, -4) and 12") == [3, -4, 12]
    assert [listed(list("abc")[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert listed(["2", "5"], "or") == "2 or 5"
