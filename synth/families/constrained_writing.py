"""Write words that keep every clause of a list: how many, the last one, one that must occur, a letter that must not.

Certificate: the clauses are read off a drawn sequence of words, which keeps them; from the text another sequence is put
together, and the verifier must accept it too. Any text that keeps the clauses is right. Difficulty axes: clauses,
words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"words": 4, "clauses": 2},
    {"words": 6, "clauses": 3},
    {"words": 8, "clauses": 4},
    {"words": 14, "clauses": 6},
)
CERTIFICATE = ("clauses read off drawn words", "words put together from the text")
WORDS = (
    "apple bird cloud dance eagle forest garden harbor island jungle kettle lantern meadow needle ocean pepper quiet river silver "
    "thunder under valley winter yellow zebra amber bridge copper desert ember falcon glass hollow iron jewel kind lemon marble north "
    "olive pearl quick rose stone tulip"
).split()
SAYS = {
    "words": "exactly {} words",
    "begins": "the first word begins with {}",
    "ends": "the last word is {}",
    "holds": "one word is {}",
    "lacks": "no letter {}",
    "capitals": "exactly {} words in capitals",
    "longest": "no word longer than {} letters",
}
_CLAUSE = "(?:" + "|".join(text.replace("{}", r"\w+") for text in SAYS.values()) + ")"
WORDINGS = Wordings(
    "Write words: {clauses}.",
    "Make up a line of words that keeps all of this: {clauses}.",
    "Words are wanted: {clauses}. Write some.",
    "A poet needs a line like this: {clauses}. Write one.",
    "Which words fit these rules: {clauses}?",
    answer="Answer with the words only, parted by spaces.",
    clauses=f"{_CLAUSE}(?:, {_CLAUSE})*",
)
_PATTERNS = [(kind, re.compile(text.replace("{}", r"(\w+)"))) for kind, text in SAYS.items()]


def constrained_writing(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: some words. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="constrained_writing",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, words: int, clauses: int) -> tuple[str, tuple[list[str], list[dict[str, Any]]]]:
    absent: list[str] = []
    while not absent:  # a letter that no word has
        chosen = [rng.choice(WORDS) for _ in range(rng.randint(max(3, words // 2), words))]
        absent = sorted(set("abcdefghijklmnoprstuvwyz") - set("".join(chosen)))
    loud = set(rng.sample(range(len(chosen)), rng.randint(1, len(chosen) - 1))) if clauses > 3 else set()
    rules: list[dict[str, Any]] = [
        {"kind": "words", "n": len(chosen)},
        {"kind": "begins", "text": chosen[0][0]},
        {"kind": "ends", "text": chosen[-1]},
        {"kind": "holds", "text": rng.choice(chosen)},
        {"kind": "lacks", "text": rng.choice(absent)},
        {"kind": "longest", "n": max(map(len, chosen))},
    ]
    kept = [rules[0], *rng.sample(rules[1:], clauses - 1 - bool(loud))] + (
        [{"kind": "capitals", "n": len(loud)}] if loud else []
    )
    rng.shuffle(kept)
    text = [w.upper() if i in loud else w for i, w in enumerate(chosen)]
    form = sorted(f"{c['kind']} {c.get('n', c.get('text'))}" for c in kept)
    return str(form), (text, kept)


def pose(spec: tuple[list[str], list[dict[str, Any]]]) -> dict[str, Any]:
    words, rules = spec
    listed = ", ".join(SAYS[c["kind"]].format(c.get("n", c.get("text"))) for c in rules)
    return {
        "prompt": WORDINGS.write(clauses=listed),
        "answer": " ".join(words),
        "verifier": "clauses",
        "args": {"clauses": rules},
    }


def solve(question: str) -> str:
    want: dict[str, str] = {}
    for text in WORDINGS.read(question)["clauses"].split(", "):
        match = next(((kind, m[1]) for kind, p in _PATTERNS if (m := p.fullmatch(text))), None)
        if match is None:
            raise Refused(f"roundtrip: {text!r} is no clause")
        want[match[0]] = match[1]
    n, lacks, longest = int(want["words"]), want.get("lacks", "?"), int(want.get("longest", 99))
    usable = [
        w
        for w in ("".join(c * k) for k in (1, 2) for c in "abcdefghijklmnopqrstuvwxyz")
        if lacks not in w and len(w) <= longest
    ]
    out = [usable[0]] * n
    out[0] = want.get("begins", out[0])
    out[-1] = want.get("ends", out[-1])
    if "holds" in want and want["holds"] not in out:  # where no clause has taken the place already
        free = [
            i
            for i in range(n)
            if not (i == 0 and "begins" in want and want["holds"][0] != want["begins"])
            and not (i == n - 1 and "ends" in want)
        ]
        if not free:
            raise Refused(f"impossible: no place is left for {want['holds']}")
        out[free[-1]] = want["holds"]
    for i in range(int(want.get("capitals", 0))):
        out[i] = out[i].upper()
    return " ".join(out)
