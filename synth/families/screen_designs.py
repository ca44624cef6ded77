"""Write a screen as a tree of rows and columns, in JSON, with the widgets that are asked for and where they are to be: any
tree that renders to that is right.

Certificate: the tree that the request was drawn from, against one that a search over rows of widgets finds from the text.
Difficulty axes: widgets and relations."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.scenes.scenes import COLOURS
from synth.scenes.trees import CELLS, holds, laid_out
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"widgets": 2, "relations": 1},
    {"widgets": 3, "relations": 2},
    {"widgets": 4, "relations": 3},
)
CERTIFICATE = ("tree", "search over rows from the text")
LIKE = '{"row": [{"field": "red"}]}'
WORDINGS = Wordings(
    "Draw a screen with {widgets}; {relations}.",
    "Lay out {widgets} on one screen, such that {relations}.",
    "Design a screen: it has {widgets}, and {relations}.",
    "A screen is wanted with {widgets}, on which {relations}.",
    "Put {widgets} on a screen, so that {relations}.",
    answer="Answer with its tree of row and col in JSON, such as {like}.",
    widgets="a [a-z]+ (?:button|field)(?:(?:,| and) a [a-z]+ (?:button|field))*",
    relations="the [a-z, ]+",
    like=re.escape(LIKE),
)
_WIDGET = re.compile(r"(\w+) (button|field)")
_RELATION = re.compile(r"the (\w+ \w+) is (left of|above) the (\w+ \w+)")
Spec = tuple[str, list[str], list[tuple[str, str, str]]]  # tree, names, relations


def screen_designs(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="screen_designs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def written(rows: Sequence[Sequence[str]]) -> str:
    """The tree of rows of names, without the rows and the column that hold one child alone."""

    def of(kind: str, children: list[Any]) -> Any:
        return children[0] if len(children) == 1 else {kind: children}

    leaf = lambda name: dict([name.split()[::-1]])  # noqa: E731
    return json.dumps(of("col", [of("row", [leaf(n) for n in row]) for row in rows]))


def draw(rng: Random, *, widgets: int, relations: int) -> tuple[str, Spec]:
    while True:
        names = [f"{c} {k}" for c, k in rng.sample([(c, k) for c in COLOURS for k in ("button", "field")], widgets)]
        rows: list[list[str]] = [[]]
        for name in names:
            if rows[-1] and rng.random() < 0.5:
                rows.append([])
            rows[-1].append(name)
        tree = written(rows)
        screen = laid_out(tree)
        true = [(a, how, b) for a in names for b in names for how in ("left of", "above") if holds(screen, a, how, b)]
        if len(true) >= relations:
            chosen = rng.sample(true, relations)
            told = rng.sample(names, len(names))
            return f"{told} {chosen}", (tree, told, chosen)


def pose(spec: Spec) -> dict[str, Any]:
    tree, names, relations = spec
    listed = ", ".join(f"a {n}" for n in names[:-1]) + f" and a {names[-1]}"
    related = ", ".join(f"the {a} is {how} the {b}" for a, how, b in relations)
    return {
        "prompt": WORDINGS.write(widgets=listed, relations=related, like=LIKE),
        "answer": tree,
        "verifier": "screen_tree",
        "args": {"widgets": names, "relations": [list(r) for r in relations]},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    names, relations = [" ".join(m) for m in _WIDGET.findall(fields["widgets"])], _RELATION.findall(fields["relations"])
    for order in itertools.permutations(names):
        for cuts in itertools.product((False, True), repeat=len(order) - 1):
            rows = [[order[0]]]
            for name, cut in zip(order[1:], cuts, strict=True):
                rows = [*rows, [name]] if cut else [*rows[:-1], [*rows[-1], name]]
            at = {name: (x, y) for y, row in enumerate(rows) for x, name in enumerate(row)}
            fits = max(len(rows), *map(len, rows)) <= CELLS
            if fits and all(at[a][how == "above"] < at[b][how == "above"] for a, how, b in relations):
                return written(rows)
    raise Refused("impossible: no rows of these widgets are as asked")
