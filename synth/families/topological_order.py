"""Order tasks so that each comes after those it needs; any such order is right.

Certificate: the constraints come from a drawn order, which is the reference; from the text Kahn's algorithm makes
another, and the verifier checks both against every constraint. Difficulty axes: tasks, constraints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"tasks": 4, "constraints": 3},
    {"tasks": 6, "constraints": 7},
    {"tasks": 9, "constraints": 13},
    {"tasks": 13, "constraints": 22},
)
CERTIFICATE = ("the drawn order", "Kahn's algorithm over the text")
WORDINGS = Wordings(
    "Order the tasks {tasks}. {pairs}.",
    "The tasks {tasks} are done one after another, with {pairs}. Give a possible order.",
    "Put {tasks} into an order that keeps all of this: {pairs}.",
    "A recipe has the steps {tasks}, and it needs {pairs}. In which order can they be done?",
    "A plan says {pairs}. Write down an order of {tasks} that fits it.",
    answer="Answer with all letters, parted by spaces.",
    tasks="[A-Z](?: [A-Z])*",
    pairs="[A-Z] before [A-Z](?:, [A-Z] before [A-Z])*",
)
_BEFORE = re.compile(r"([A-Z]) before ([A-Z])")
Spec = tuple[list[str], list[tuple[str, str]]]


def topological_order(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the tasks in order. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="topological_order",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, tasks: int, constraints: int) -> tuple[str, Spec]:
    names = rng.sample("ABCDEFGHJKLMNPQRSTUVWXYZ", tasks)
    pairs: set[tuple[str, str]] = set()
    while len(pairs) < constraints:
        i, j = sorted(rng.sample(range(tasks), 2))
        pairs.add((names[i], names[j]))
    listed = sorted(pairs)
    form = f"{sorted(names)} {listed}"
    rng.shuffle(listed)
    return form, (names, listed)


def pose(spec: Spec) -> dict[str, Any]:
    names, pairs = spec
    return {
        "prompt": WORDINGS.write(tasks=" ".join(sorted(names)), pairs=", ".join(f"{a} before {b}" for a, b in pairs)),
        "answer": " ".join(names),
        "verifier": "order",
        "args": {"before": [list(p) for p in pairs]},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    pairs = _BEFORE.findall(read["pairs"])
    left, out = read["tasks"].split(), []
    while left:
        free = [n for n in left if not any(b == n and a in left for a, b in pairs)]
        if not free:
            raise Refused(f"impossible: {' '.join(left)} wait for one another")
        out.append(free[0])
        left.remove(free[0])
    return " ".join(out)
