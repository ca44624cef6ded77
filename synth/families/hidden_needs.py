"""What does somebody need? Needs are listed with the signs that they show; two signs are seen, and one need has both.

A world for conversations whose user has a state that is not shown (SAGE and RLVER, Wang et al. 2025; CogFlow, arXiv
2509.22546). Certificate: the drawn signs intersected as sets of bits; from the text every need is checked against both
signs. No single sign suffices. Difficulty axes: needs, signs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"needs": 4, "signs": 5}, {"needs": 6, "signs": 7}, {"needs": 8, "signs": 9}, {"needs": 10, "signs": 10})
CERTIFICATE = ("intersection of bit sets", "every need against every sign of the text")
KINDS = "comfort advice company praise rest space trust play order hope".split()
SIGNS = "tearful quiet restless angry tired proud lost busy pale tense".split()
WORDINGS = Wordings(
    "Needs and their signs: {needs}. Somebody is {a} and {b}. What is needed?",
    "Somebody is {a} and {b}. Needs show themselves by signs: {needs}. Which need is it?",
    "What does somebody need who is {a} and {b}? Needs and their signs: {needs}.",
    "The signs of needs are these: {needs}. What is the need of somebody who is {a} and {b}?",
    "A friend is {a} and {b}. Going by the signs of each need ({needs}), what does the friend need?",
    answer="Answer with the need alone.",
    needs="[a-z]+: [a-z ]+(?:; [a-z]+: [a-z ]+)*",
    a="[a-z]+",
    b="[a-z]+",
)


def hidden_needs(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the need. `levels` are the levels to draw from; env "user" has it played
    in turns (training/env/user.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="hidden_needs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, needs: int, signs: int) -> tuple[str, tuple]:
    while True:
        names, words = rng.sample(KINDS, needs), rng.sample(SIGNS, signs)
        masks = [sum(1 << s for s in rng.sample(range(signs), rng.choice((2, 3)))) for _ in names]
        pairs = [(a, b) for a in range(signs) for b in range(signs) if a != b]
        rng.shuffle(pairs)
        for a, b in pairs:
            having = [[n for n, m in enumerate(masks) if m >> s & 1] for s in (a, b)]
            both = set(having[0]) & set(having[1])
            if len(both) == 1 and min(map(len, having)) > 1:
                hidden = both.pop()
                return f"{sorted(zip(names, masks, strict=True))} {words} {sorted((a, b))}", (
                    names,
                    masks,
                    words,
                    hidden,
                    a,
                    b,
                )


def pose(spec: tuple) -> dict[str, Any]:
    names, masks, words, hidden, a, b = spec
    listed = "; ".join(
        f"{n}: {' '.join(w for s, w in enumerate(words) if m >> s & 1)}" for n, m in zip(names, masks, strict=True)
    )
    return {
        "prompt": WORDINGS.write(needs=listed, a=words[a], b=words[b]),
        "answer": names[hidden],
        "verifier": "exact",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    fits = [
        name
        for name, _, words in (entry.partition(": ") for entry in fields["needs"].split("; "))
        if {fields["a"], fields["b"]} <= set(words.split())
    ]
    if len(fits) != 1:
        raise Refused(f"{'not_unique' if fits else 'impossible'}: {' '.join(fits) or 'nothing'} has both signs")
    return fits[0]
