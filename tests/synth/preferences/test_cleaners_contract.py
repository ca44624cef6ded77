"""What every cleaner promises, checked for every file of synth/preferences/cleaners: a new file is tested the moment it
exists."""

import importlib
import inspect
import math
import typing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from synth.preferences.cleaners._columns import swap_sides
from synth.types import Decision, Message, PreferencePair, to_row

FOLDER = Path(__file__).resolve().parents[3] / "synth" / "preferences" / "cleaners"
ACTIONS = {"keep", "weight", "ask", "remove", "flip"}
COLUMNS = {  # an example of each column that a cleaner may need
    "scores": lambda r: {m: [round(r.gauss(0.3, 1), 3), round(r.gauss(0, 1), 3)] for m in "ab"},
    "ifd": lambda r: [round(r.uniform(0.1, 1.2), 3), round(r.uniform(0.1, 1.2), 3)],
    "votes": lambda r: {a: r.choice((1, 1, 1, 0, -1)) for a in "abcde"},
    "both_orders": lambda r: {a: [r.choice((1, 1, -1)), r.choice((1, 1, 0, -1))] for a in "abc"},
    "out_of_fold": lambda r: round(r.betavariate(4, 1), 6),
    "out_of_fold_blind": lambda r: round(r.betavariate(3, 1), 6),
    "overlap": lambda r: round(r.random(), 6),
    "tags": lambda r: r.sample(["math", "code", "history", "short"], r.randrange(4)),
    "annotator": lambda r: r.choice("pqr"),
    "anchor": lambda r: r.choice((0, 0, 0, 1, -1)),
}


def modules():
    return [importlib.import_module(f"synth.preferences.cleaners.{p.stem}") for p in sorted(FOLDER.glob("[!_]*.py"))]


def cleaner(module):
    return getattr(module, module.__name__.rpartition(".")[2])


def variants():
    for module in modules():
        function = cleaner(module)
        hints = typing.get_type_hints(function)
        settings = [{}] + [
            {k: v}
            for k, hint in hints.items()
            if typing.get_origin(hint) is typing.Literal
            for v in typing.get_args(hint)
        ]
        for knobs in settings:
            label = function.__name__ + "".join(f"[{k}={v}]" for k, v in knobs.items())
            yield pytest.param(module, partial(function, **knobs), id=label)


def pairs(n=40):
    """Pairs of many kinds: related prompts, answers of a small set, an empty side, another script, one prompt asked
    often."""
    r = Random(5)
    answers = [
        "Zelton",
        "It is Zelton, on the river.",
        "I am sorry, I cannot help.",
        "Velm",
        "<answer>4</answer>",
        "是四",
        "x " * 300,
    ]
    out = []
    for i in range(n):
        chosen, rejected = r.sample(answers, 2)
        columns = {name: make(r) for name, make in COLUMNS.items()} | {"group": f"g{i // 2}"}
        out.append(
            PreferencePair.make(
                prompt=[Message(role="user", content=f"What is the capital of country {i % 12}?")],
                chosen=chosen,
                rejected="" if i == 7 else rejected,
                source=f"test/{i}",
                columns=columns,
                split="train",
            )
        )
    return out


PAIRS = pairs()


@pytest.mark.parametrize("module", modules(), ids=lambda m: m.__name__)
def test_signature_and_docstring(module):
    function = cleaner(module)
    parameters = list(inspect.signature(function).parameters.values())
    for p in parameters[1:]:
        assert p.kind is p.KEYWORD_ONLY and p.annotation is not p.empty, f"knob {p.name} needs a type"
        assert isinstance(p.default, (int, float, str, bool, tuple, type(None))), (
            f"knob {p.name} needs a literal default"
        )
    assert len((module.__doc__ or "").splitlines()) >= 4, "the docstring lacks a definition"
    assert getattr(module, "NEEDS", set()) <= set(COLUMNS), "add an example of the new column to COLUMNS"


@pytest.mark.parametrize(("module", "f"), list(variants()))
def test_a_decision_for_every_pair(module, f):
    before = [to_row(p) for p in PAIRS]
    decisions = f(PAIRS)
    assert len(decisions) == len(PAIRS), "a pair was lost"
    assert [to_row(p) for p in PAIRS] == before, "a cleaner judges and changes nothing"
    for d in decisions:
        assert (
            isinstance(d, Decision)
            and d.action in ACTIONS
            and d.reason
            and type(d.score) is float
            and not math.isnan(d.score)
        )
        assert d.step == f.func.__name__
    assert f([]) == []


@pytest.mark.parametrize(("module", "f"), list(variants()))
def test_the_same_twice_and_in_any_order(module, f):
    by_id = dict(zip([p.id for p in PAIRS], f(PAIRS), strict=True))
    assert f(PAIRS) == list(by_id.values())
    mixed = Random(1).sample(PAIRS, len(PAIRS))
    for p, d in zip(mixed, f(mixed), strict=True):
        if "The first of a group is kept" not in module.__doc__:
            assert (d.action, d.reason) == (by_id[p.id].action, by_id[p.id].reason) and d.score == pytest.approx(
                by_id[p.id].score
            )


@pytest.mark.parametrize("module", [m for m in modules() if getattr(m, "NEEDS", set())], ids=lambda m: m.__name__)
def test_a_missing_column_is_a_sentence(module):
    for name in module.NEEDS:
        without = [replace(p, columns={k: v for k, v in p.columns.items() if k != name}) for p in PAIRS]
        with pytest.raises(ValueError, match=name):
            cleaner(module)(without)


def test_turning_twice_gives_the_pair_back():
    for p in PAIRS:
        assert swap_sides(p) != p and to_row(replace(swap_sides(swap_sides(p)), columns={})) == to_row(
            replace(p, columns={})
        )
        back = swap_sides(swap_sides(p)).columns
        approximately = {name: pytest.approx(p.columns[name]) for name in ("out_of_fold", "out_of_fold_blind")}
        assert back == {**p.columns, **approximately}
