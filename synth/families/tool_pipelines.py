"""A plan of typed tools for what is asked of a text: which tools, in which order?

For planners that are paid by what their plan does when it is executed, as in OpenAGI (Ge et al. 2023, arXiv 2304.04370).
Certificate: the drawn plan, run on samples by the verifier; from the text the phrases are translated tool by tool, and the
plan must give the same. No tool comes twice, and every one matters: a plan without one of them gives something else for some sample. Difficulty axes:
tools of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split
from synth.verify.pipeline import TOOLS, misfit, run

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
    "join": "make one text of them",
    "count": "say how many words there are",
    "sizes": "take the length of each word",
    "total": "add them up",
    "largest": "take the largest",
}
WORDS = "ana bo cedar dune eel fig gnu halo iris jute kiwi loom".split()
WORDINGS = Wordings(
    "A text comes in. {tasks}.",
    "Of any text: {tasks}.",
    "Wanted of a text, in this order: {tasks}.",
    "Plan this for a text: {tasks}.",
    "What is to be done with a text: {tasks}.",
    answer="Tools: upper, mirror, devowel, split, length, sort, unique, join, count, sizes, total, largest. Answer with their names in order.",
    tasks="[a-z; ]+",
)
Spec = tuple[tuple[str, ...], tuple[str, ...]]


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
    while True:
        plan: list[str] = []
        while len(plan) < tools:
            now = TOOLS[plan[-1]][1] if plan else "text"
            if not (fits := [n for n, (takes, _, _) in TOOLS.items() if takes == now and n not in plan]):
                break
            plan.append(rng.choice(fits))
        samples = tuple(" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 6))) for _ in range(3))
        if len(plan) == tools and all(_matters(plan, k, samples) for k in range(tools)):
            return f"{plan}", (tuple(plan), samples)


def _matters(plan: Sequence[str], k: int, samples: Sequence[str]) -> bool:
    """Whether the plan without its k-th tool gives something else, or does not fit."""
    less = [*plan[:k], *plan[k + 1 :]]
    return bool(misfit(less)) or any(run(less, s) != run(plan, s) for s in samples)


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
