"""Screens as trees and as lists of elements: what renders, what is paid, and pairs by render."""

from __future__ import annotations

import pytest

from synth.families.screen_designs import LADDER, screen_designs
from synth.families.screen_tasks import screen_tasks
from synth.preferences.makers.by_render import by_render
from synth.scenes.screens import pixels, seen
from synth.scenes.trees import DEEP, holds, laid_out
from synth.types import PreferencePair, Problem, Quarantined
from synth.verify import verify
from synth.verify.elements import matched

TREE = '{"row": [{"button": "red"}, {"col": [{"field": "blue"}, {"button": "green"}]}]}'


def test_a_tree_is_laid_out_by_rows_and_columns_and_seen_in_the_pixels():
    screen = laid_out(TREE)
    assert [(w.name, w.x, w.y) for w in screen.widgets] == [
        ("red button", 0, 0),
        ("blue field", 1, 0),
        ("green button", 1, 1),
    ]
    assert seen(pixels(screen)).widgets == screen.widgets
    assert holds(screen, "red button", "left of", "green button") and holds(
        screen, "blue field", "above", "green button"
    )
    assert not holds(screen, "red button", "above", "blue field") and not holds(
        screen, "red button", "above", "no such"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"row": []}',
        '{"button": "pink"}',
        '{"button": ["red"]}',
        '{"row": [{"button": "red"}], "col": []}',
        '{"slider": "red"}',
        '{"row": [{"button": "red"}, {"button": "red"}]}',
        '{"col": ['
        + ", ".join(f'{{"button": "{c}"}}' for c in ("red", "green", "blue", "yellow"))
        + ', {"field": "red"}]}',
        '{"row": [' * DEEP + '{"button": "red"}' + "]}" * DEEP,
        '{"row": [' * 200,
        "[" * 599,
    ],
)
def test_what_renders_to_nothing_is_one_sentence(text):
    with pytest.raises(ValueError) as e:
        laid_out(text)
    assert "\n" not in str(e.value) and len(str(e.value)) < 300


def test_designs_of_every_level_are_certified():
    problems = [screen_designs(0, "train", i, levels=(1 + i % len(LADDER),)) for i in range(30)]
    assert all(isinstance(p, Problem) and verify(p, p.answer).value == 1.0 for p in problems)
    assert {len(p.args["widgets"]) for p in problems} == {2, 3, 4}


def test_elements_are_a_set_with_types():
    problems = [screen_tasks(0, "train", i, asks=("elements",)) for i in range(12)]
    for p in problems:
        turned = "; ".join(reversed(p.answer.split("; ")))
        assert verify(p, turned).value == verify(p, p.answer).value == 1.0
        other = p.answer.replace("button", "x").replace("field", "button").replace("x", "field")
        score = verify(p, other)
        assert score.value == 0.0 and score.parts["iou"] == 1.0 and score.parts["type"] == 0.0
    # By the sum of overlaps, 1/2 + 1/2, and not by the first that overlaps most, 1 alone.
    given = [("a", (0, 0, 4, 1)), ("a", (2, 0, 4, 1))]
    assert sorted(matched(given, [("a", (0, 0, 2, 1)), ("a", (0, 0, 4, 1))])) == [(0, 0), (1, 1)]


def test_pairs_prefer_what_renders_then_what_is_better():
    p = screen_designs(0, "train", 0, levels=(1,))
    assert isinstance(p, Problem)
    first = p.args["widgets"][0].split()
    part = f'<answer>{{"{first[1]}": "{first[0]}"}}</answer>'
    right, broken = f"<answer>{p.answer}</answer>", "<answer>{</answer>"

    def pair(*texts):
        return by_render(0, p, 0, lambda *a, **k: list(texts), samples=len(texts))

    for texts, chosen, rejected in (((part, right), right, part), ((broken, part), part, broken)):
        result = pair(*texts)
        assert isinstance(result, PreferencePair) and (result.chosen, result.rejected) == (chosen, rejected)
    assert [pair(a, b).reason for a, b in ((broken, broken), (part, part))] == ["none_valid", "no_contrast"]
    other = screen_tasks(0, "train", 0)
    assert isinstance(other, Problem)
    assert isinstance(q := by_render(0, other, 0, lambda *a, **k: ["x"]), Quarantined) and q.reason == "not_drawn"
    with pytest.raises(ValueError, match="at least 2"):
        by_render(0, p, 0, lambda *a, **k: ["x"], samples=1)
