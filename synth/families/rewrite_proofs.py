"""A proof that two words are equal, by a few equations between words.

Certificate: breadth-first search from the first word on the values against a search from both ends on the text; the
checker (synth/verify/rewriting.py) must accept both proofs. Difficulty axes: equations that may be used, and the steps
of the shortest proof.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split
from synth.verify.rewriting import Kernel, follow

LADDER = (
    {"equations": 3, "steps": 2},
    {"equations": 4, "steps": 3},
    {"equations": 6, "steps": 4},
    {"equations": 6, "steps": 5},
)
CERTIFICATE = ("breadth-first search", "search from both ends")
RULES = tuple(
    tuple(rule.split("=")) for rule in "ab=ba bc=cb ac=ca aa=b bb=c cc=a aba=c bcb=a cac=b abc=aa".split()
)  # those that problems choose from
LONGEST = 7  # letters of a word
WORDINGS = Wordings(
    "Equations between words: {rules}. Prove that {first} = {last}.",
    "Given that {rules}, show that {first} = {last}.",
    "These words are equal: {rules}. Derive {last} from {first}.",
    "By the equations {rules}, turn the word {first} into {last}.",
    "Let {rules}. Why is {first} equal to {last}?",
    answer="An equation may be used either way on any part of a word, once in a step. Answer with all words from the first to the last, = between them.",
    rules="[a-z=; ]+",
    first="[a-z]+",
    last="[a-z]+",
)
Rules = tuple[tuple[str, ...], ...]
Spec = tuple[Rules, tuple[str, ...]]


def rewrite_proofs(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), kernel: Kernel = "own"
) -> Problem | Quarantined:
    """Problem `index` of a split: words with = between them. `levels` are the levels to draw from; `kernel` decides about proofs: own, or
    metamath, the kernel of a theorem prover, where that program is installed."""
    more = {} if kernel == "own" else {"kernel": kernel}
    return item(
        seed,
        split,
        index,
        levels,
        family="rewrite_proofs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=partial(pose, **more),
        solve=solve,
    )


def draw(rng: Random, *, equations: int, steps: int) -> tuple[str, Spec]:
    while True:
        chosen = sorted(rng.sample(range(len(RULES)), equations))
        rules = tuple(RULES[i] for i in chosen)
        first = "".join(rng.choice("abc") for _ in range(rng.randint(3, 5)))
        before, depth = reached(first, rules, steps)
        if ends := sorted(w for w, d in depth.items() if d == steps):
            last = rng.choice(ends)
            return f"{chosen} {sorted((first, last))}", (rules, back(before, last))


def reached(first: str, rules: Rules, steps: int) -> tuple[Mapping[str, str], Mapping[str, int]]:
    """Words that at most so many steps lead to: the word before, and the fewest steps."""
    before, depth, waiting = {first: ""}, {first: 0}, deque([first])
    while waiting:
        word = waiting.popleft()
        if depth[word] == steps:
            continue
        for other in follow(word, rules):
            if other not in depth and len(other) <= LONGEST:
                before[other], depth[other] = word, depth[word] + 1
                waiting.append(other)
    return before, depth


def back(before: Mapping[str, str], last: str) -> tuple[str, ...]:
    """The words from the first to `last`."""
    words = [last]
    while before[words[-1]]:
        words.append(before[words[-1]])
    return tuple(reversed(words))


def pose(spec: Spec, **more: str) -> dict[str, Any]:
    rules, words = spec
    stated = "; ".join(" = ".join(rule) for rule in rules)
    return {
        "prompt": WORDINGS.write(rules=stated, first=words[0], last=words[-1]),
        "answer": " = ".join(words),
        "verifier": "rewriting",
        "args": {"equations": [list(r) for r in rules], "first": words[0], "last": words[-1], **more},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    rules = [rule.split(" = ") for rule in read["rules"].split("; ")]
    sides = [{read["first"]: [read["first"]]}, {read["last"]: [read["last"]]}]
    edges = [list(s) for s in sides]
    for turn in range(2 * LADDER[-1]["steps"]):
        if met := sorted(set(sides[0]) & set(sides[1])):
            there, here = sides[0][met[0]], sides[1][met[0]]
            return " = ".join([*there, *reversed(here[:-1])])
        known, new = sides[turn % 2], []
        for word in edges[turn % 2]:
            for k in range(len(word)):
                for a, b in (*rules, *([b, a] for a, b in rules)):
                    other = word[:k] + b + word[k + len(a) :]
                    if word.startswith(a, k) and len(other) <= LONGEST and other not in known:
                        known[other] = [*known[word], other]
                        new.append(other)
        edges[turn % 2] = new
    raise Refused("impossible: no proof of so few steps joins the two words")
