"""Copy from a passage of invented records the words that answer a question, to the character.

Certificate: the span comes from the drawn record; from the text, a pattern of the one sentence that names the asked
record finds it, and no other sentence may name that record. Difficulty axes: records, distractors with the same
fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"records": 2}, {"records": 4}, {"records": 7}, {"records": 11})
CERTIFICATE = ("the drawn record", "a pattern over the passage, one match")
FIRST = "Tora Milo Runa Ivo Selma Oskar Lina Per Nadia Emil".split()
LAST = "Lind Varga Holt Osei Brandt Kato Novak Silva Moreau Quist".split()
PLACES = "Velm Torrin Askel Duna Morfa Kesti Brale Osta".split()
MONTHS = "January March May June August October November".split()
SENTENCES = (
    "Ledger {n} was signed by {who} in {where} on {day}.",
    "On {day}, {who} signed ledger {n} in {where}.",
    "In {where}, ledger {n} was signed on {day} by {who}.",
)
QUESTIONS = {
    "who": "Who signed ledger {}?",
    "where": "Where was ledger {} signed?",
    "day": "When was ledger {} signed?",
}
_TEXT = re.compile(r"(.+\.) (Who signed|Where was|When was) ledger (\d+)(?: signed)?\? Copy it from the text\.")
_PATTERNS = [re.compile(re.sub(r"\\\{(\w+)\\\}", lambda m: f"(?P<{m[1]}>.+?)", re.escape(s))) for s in SENTENCES]


def span_extraction(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: words of the passage. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="span_extraction",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, records: int) -> tuple[str, tuple[str, list[dict[str, str]], list[str]]]:
    numbers = rng.sample(range(1000, 10_000), records)
    drawn = [
        {
            "n": str(n),
            "who": f"{rng.choice(FIRST)} {rng.choice(LAST)}",
            "where": rng.choice(PLACES),
            "day": f"{rng.randint(1, 30)} {rng.choice(MONTHS)}",
        }
        for n in numbers
    ]
    kind = rng.choice(sorted(QUESTIONS))
    return f"{kind} {drawn}", (kind, drawn, [rng.choice(SENTENCES).format(**m) for m in drawn])


def pose(spec: tuple[str, list[dict[str, str]], list[str]]) -> dict[str, Any]:
    kind, records, sentences = spec
    record = records[len(records) // 2]
    return {
        "prompt": f"{' '.join(sentences)} {QUESTIONS[kind].format(record['n'])} Copy it from the text.",
        "answer": record[kind],
        "verifier": "literal",
    }


def solve(question: str) -> str:
    passage, ask, number = parsed(_TEXT, question).groups()
    field = {"Who signed": "who", "Where was": "where", "When was": "day"}[ask]
    values = []
    for sentence in re.findall(r"[^.]+\.", passage):
        for pattern in _PATTERNS:
            match = pattern.fullmatch(sentence.strip())
            if match and match["n"] == number:
                values.append(match[field])
    if len(values) != 1:
        raise Refused(f"{'not_unique' if values else 'impossible'}: ledger {number} stands in {len(values)} sentences")
    return values[0]
