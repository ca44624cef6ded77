"""A plan of typed tools for what is asked of a text: which tools, in which order?

For planners that are paid by what their plan does when it is executed, as in OpenAGI (Ge et al. 2023, arXiv 2304.04370).
Certificate: the drawn plan, run on samples by the verifier; from the text the phrases are translated tool by tool, and the
plan must give the same. Difficulty axes: tools of the plan.

Many plans do the same: capitals, turning around and dropping vowels come in any order, and words that are cut and put together again are
the text. If plans were drawn alike, a fifth to a half of the long ones would do one thing, and a plan that does it would earn as much.
So first what is done is drawn, each function of a text alike, then one of the plans that do it. No tool comes twice, and no
shorter plan gives the same for all samples. The normal form is the first of the plans that do the same: they lie in one split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split
from synth.verify.pipeline import TOOLS, run

LADDER = ({"tools": 2}, {"tools": 3}, {"tools": 4}, {"tools": 5})
CERTIFICATE = ("the drawn plan, executed", "the phrases of the text, tool by tool")
PHRASES = {
    "upper": "write it in capitals",
    "mirror": "turn it around",
    "devowel": "drop the vowels",
    "split": "cut it into words",
    "length": "count the signs",
    "sort": "put the words in order",
    "unique": "keep each word once",
    "reverse": "reverse the order of the words",
    "initials": "take the first letter of each word",
    "join": "make one text of them",
    "first": "take the first word",
    "longest": "take the longest word",
    "count": "say how many words there are",
    "sizes": "take the length of each word",
    "total": "add them up",
    "largest": "take the largest",
    "smallest": "take the smallest",
}
WORDS = "ana bo cedar dune eel fig gnu halo iris jute kiwi loom".split()
TEXTS = 200  # by what they give for so many, plans are told apart
WORDINGS = Wordings(
    "A text comes in. {tasks}.",
    "Of any text: {tasks}.",
    "Wanted of a text, in this order: {tasks}.",
    "Plan this for a text: {tasks}.",
    "What is to be done with a text: {tasks}.",
    answer=f"Tools: {', '.join(TOOLS)}. Answer with their names in order.",
    tasks="[a-z; ]+",
)
Plan = tuple[str, ...]
Spec = tuple[Plan, tuple[str, ...]]


def tool_pipelines(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: names of tools. `levels` are the rungs of the ladder to draw from; env "assemble" has the plan put
    together tool by tool, with the reference as its demonstration."""
    problem = item(
        seed,
        split,
        index,
        levels,
        family="tool_pipelines",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )
    if not isinstance(problem, Problem) or env != "assemble":
        return problem
    return replace(problem, lineage={**problem.lineage, "demonstration": [*problem.answer.split(), "done"]})


def draw(rng: Random, *, tools: int) -> tuple[str, Spec]:
    same = rng.choice(functions(tools))
    plan = rng.choice(same)
    shorter = [plans[0] for k in range(1, tools) for plans in functions(k)]
    while True:
        samples = tuple(_text(rng) for _ in range(3))
        meant = [run(plan, s) for s in samples]
        if all(any(run(x, s) != m for s, m in zip(samples, meant, strict=True)) for x in shorter):
            return f"{list(same[0])}", (plan, samples)


@cache
def functions(tools: int) -> tuple[tuple[Plan, ...], ...]:
    """What plans of so many tools do that no shorter one does: for each such function of a text, the plans that do it, sorted."""
    rng = Random(0)
    texts: list[Any] = [_text(rng) for _ in range(TEXTS)]
    given, known, same = {(): texts}, {repr(texts)}, defaultdict(list)
    for _ in range(tools):
        given = {
            (*plan, name): [f(x) for x in values]
            for plan, values in given.items()
            for name, (takes, _, f) in TOOLS.items()
            if name not in plan and takes == (TOOLS[plan[-1]][1] if plan else "text")
        }
        known.update(same)
        same = defaultdict(list)
        for plan in sorted(given):
            if (does := repr(given[plan])) not in known:
                same[does].append(plan)
    return tuple(tuple(plans) for plans in same.values())


def _text(rng: Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 6)))


def pose(spec: Spec) -> dict[str, Any]:
    plan, samples = spec
    return {
        "prompt": WORDINGS.write(tasks="; ".join(PHRASES[name] for name in plan)),
        "answer": " ".join(plan),
        "verifier": "pipeline",
        "args": {"samples": list(samples)},
    }


def solve(question: str) -> str:
    names = {phrase: name for name, phrase in PHRASES.items()}
    phrases = WORDINGS.read(question)["tasks"].split("; ")
    if unknown := [x for x in phrases if x not in names]:
        raise Refused(f"roundtrip: nothing does {unknown[0]!r}")
    return " ".join(names[x] for x in phrases)
