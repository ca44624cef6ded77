"""Which illness fits a patient's findings? Illnesses of a made-up medicine are listed with their findings, five of them
are the options, and the answer is a letter.

For recipes that learn from option letters alone, as AlphaMed does (Liu et al. 2025, arXiv 2505.17952). Certificate:
findings as sets of bits against words of the text; one illness of the list has all findings that are there and none of
those that are not, and no finding is superfluous. Difficulty axes: illnesses, findings, clues (how much the case tells),
remarks that tell nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"illnesses": 5, "findings": 6, "clues": 2, "remarks": 0},
    {"illnesses": 6, "findings": 8, "clues": 2, "remarks": 1},
    {"illnesses": 8, "findings": 9, "clues": 3, "remarks": 1},
    {"illnesses": 10, "findings": 10, "clues": 3, "remarks": 2},
)
CERTIFICATE = ("findings as sets of bits", "every illness of the text against every finding of the case")
ILLNESSES = "arol bexa cumi dorin elva fusa gorat hilm ivor kesta lumo nardi".split()
FINDINGS = "fever rash cough pallor tremor thirst cramps vertigo chills itching".split()
REMARKS = ("It is raining.", "The bus was late.", "An aunt waits outside.", "It is a Monday.")
WORDINGS = Wordings(
    "Illnesses: {list}. A patient has {case}. {remarks}Which illness is it? {options}.",
    "{list} (illnesses and their findings). {remarks}Seen today: {case}. What is it? {options}.",
    "Findings by illness: {list}. The case: {case}. {remarks}Name the illness: {options}.",
    "The book says {list}. {remarks}Somebody comes with {case}. Which one fits? {options}.",
    "Known are {list}. Examined: {case}. {remarks}The diagnosis is {options}.",
    answer="Answer with one letter.",
    list="[a-z:, ;]+",
    case="[a-z, ]+",
    remarks="(?:[A-Z][a-zA-Z ]+[.] )*",
    options="A [a-z]+, B [a-z]+, C [a-z]+, D [a-z]+, E [a-z]+",
)
Spec = tuple[
    tuple[str, ...], tuple[int, ...], tuple[str, ...], tuple[tuple[int, bool], ...], tuple[int, ...], tuple[str, ...]
]


def case_vignettes(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a letter from A to E. `levels` are the rungs of the ladder to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="case_vignettes",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, illnesses: int, findings: int, clues: int, remarks: int) -> tuple[str, Spec]:
    while True:
        names, words = tuple(rng.sample(ILLNESSES, illnesses)), tuple(rng.sample(FINDINGS, findings))
        masks = tuple(sum(1 << f for f in rng.sample(range(findings), rng.choice((2, 3)))) for _ in names)
        options = rng.sample(range(illnesses), 5)
        hidden = rng.choice(options)
        case = tuple((f, bool(masks[hidden] >> f & 1)) for f in rng.sample(range(findings), clues))
        needed = all(len(_fits(masks, case[:i] + case[i + 1 :])) > 1 for i in range(clues))
        if needed and _fits(masks, case) == [hidden]:
            told = tuple(rng.sample(REMARKS, remarks))
            known = sorted(
                (n, tuple(sorted(w for f, w in enumerate(words) if m >> f & 1)))
                for n, m in zip(names, masks, strict=True)
            )
            form = f"{known} {sorted((words[f], there) for f, there in case)}"
            return form, (names, masks, words, case, tuple(options), told)


def _fits(masks: Sequence[int], case: Sequence[tuple[int, bool]]) -> list[int]:
    there = sum(1 << f for f, there in case if there)
    missing = sum(1 << f for f, there in case if not there)
    return [i for i, m in enumerate(masks) if m & there == there and not m & missing]


def pose(spec: Spec) -> dict[str, Any]:
    names, masks, words, case, options, told = spec
    hidden = options.index(_fits(masks, case)[0])
    known = "; ".join(
        f"{n}: {', '.join(w for f, w in enumerate(words) if m >> f & 1)}" for n, m in zip(names, masks, strict=True)
    )
    return {
        "prompt": WORDINGS.write(
            list=known,
            case=listed([words[f] if there else f"no {words[f]}" for f, there in case]),
            remarks="".join(f"{x} " for x in told),
            options=", ".join(f"{letter} {names[i]}" for letter, i in zip("ABCDE", options, strict=True)),
        ),
        "answer": "ABCDE"[hidden],
        "verifier": "choice",
        "working": f"It is {names[options[hidden]]}.",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    known = {name: set(words.split(", ")) for name, _, words in (x.partition(": ") for x in read["list"].split("; "))}
    case = read["case"].replace(" and ", ", ").split(", ")
    fits = [n for n, has in known.items() if all((x.removeprefix("no ") in has) != x.startswith("no ") for x in case)]
    if len(fits) != 1:
        raise Refused(f"{'not_unique' if fits else 'impossible'}: {' '.join(fits) or 'nothing'} fits the case")
    letters = {name: letter for letter, name in (x.split(" ") for x in read["options"].split(", "))}
    if fits[0] not in letters:
        raise Refused(f"impossible: {fits[0]} is no option")
    return letters[fits[0]]
