"""Copy from a passage of invented records the words that answer a question, to the character.

Certificate: the span comes from the drawn record; from the text, a pattern of the one sentence that names the asked
record finds it, and no other sentence may name that record. Difficulty axes: records, distractors with the same
fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, read_kind
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
_PASSAGE = r"[\w ,]+\.(?: [\w ,]+\.)*"
WORDINGS = {
    "who": Wordings(
        "{text} Who signed ledger {n}?",
        "{text} By whom was ledger {n} signed?",
        "Read these notes. {text} Which person signed ledger {n}?",
        "An archive says: {text} Give the name of the person who signed ledger {n}.",
        "Find the signer of ledger {n} in this text: {text}",
        answer="Answer with first and last name, copied from the text.",
        text=_PASSAGE,
        n=r"\d+",
    ),
    "where": Wordings(
        "{text} Where was ledger {n} signed?",
        "{text} In which place was ledger {n} signed?",
        "Read these notes. {text} Which place is named for ledger {n}?",
        "An archive says: {text} Give the place where ledger {n} was signed.",
        "Find the place where ledger {n} was signed in this text: {text}",
        answer="Answer with one word, copied from the text.",
        text=_PASSAGE,
        n=r"\d+",
    ),
    "day": Wordings(
        "{text} When was ledger {n} signed?",
        "{text} On which day was ledger {n} signed?",
        "Read these notes. {text} Which date is named for ledger {n}?",
        "An archive says: {text} Give the date on which ledger {n} was signed.",
        "Find the date of ledger {n} in this text: {text}",
        answer="Answer with day and month, copied from the text.",
        text=_PASSAGE,
        n=r"\d+",
    ),
}
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
    kind = rng.choice(sorted(WORDINGS))
    return f"{kind} {drawn}", (kind, drawn, [rng.choice(SENTENCES).format(**m) for m in drawn])


def pose(spec: tuple[str, list[dict[str, str]], list[str]]) -> dict[str, Any]:
    kind, records, sentences = spec
    record = records[len(records) // 2]
    return {
        "prompt": WORDINGS[kind].write(text=" ".join(sentences), n=record["n"]),
        "answer": record[kind],
        "verifier": "literal",
    }


def solve(question: str) -> str:
    field, read = read_kind(WORDINGS, question)
    passage, number = read["text"], read["n"]
    values = []
    for sentence in re.findall(r"[^.]+\.", passage):
        for pattern in _PATTERNS:
            match = pattern.fullmatch(sentence.strip())
            if match and match["n"] == number:
                values.append(match[field])
    if len(values) != 1:
        raise Refused(f"{'not_unique' if values else 'impossible'}: ledger {number} stands in {len(values)} sentences")
    return values[0]
