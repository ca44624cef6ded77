"""A sum of numbers that are written as words of German, French or Spanish.

Certificate: whole numbers on the values against the words read by their parts. Difficulty axes: size of the numbers, how many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 60, "many": 2}, {"size": 99, "many": 2}, {"size": 999, "many": 2}, {"size": 999, "many": 4})
CERTIFICATE = ("whole numbers", "the words read by their parts")
WORDINGS = Wordings(
    "What is the sum of the {language} numbers {some}?",
    "Add the numbers {some}, which are written in {language}.",
    "In {language}, a list reads {some}. What do its numbers make together?",
    "Translate the {language} numbers {some} into digits and add them. What is the total?",
    "A bill in {language} has the amounts {some}. Find their total.",
    answer="Answer with one integer in digits.",
    language=r"German|French|Spanish",
    some=r"[a-zß\u00c0-\u017f, -]+",
)
Spec = tuple[str, list[int]]
GERMAN = "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()
GERMAN_TENS = "  zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ")
FRENCH = "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf".split()
FRENCH_TENS = "  vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split(" ")
SPANISH = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete "
    "veintiocho veintinueve"
).split()
SPANISH_TENS = "   treinta cuarenta cincuenta sesenta setenta ochenta noventa".split(" ")
SPANISH_HUNDREDS = (
    " ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos".split(" ")
)


def foreign_numbers(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="foreign_numbers",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, many: int) -> tuple[str, Spec]:
    spec = rng.choice(("German", "French", "Spanish")), [rng.randint(size // 10 + 1, size) for _ in range(many)]
    return f"{spec[0]} {spec[1]}", spec


def german(n: int) -> str:
    hundreds, rest = divmod(n, 100)
    tens, ones = divmod(rest, 10)
    small = GERMAN[rest] if rest < 20 else (GERMAN[ones] + "und" if ones else "") + GERMAN_TENS[tens]
    small = "eins" if rest == 1 else small if rest else ""
    return (GERMAN[hundreds] + "hundert" if hundreds else "") + small


def french(n: int) -> str:
    hundreds, rest = divmod(n, 100)
    tens, ones = divmod(rest, 10)
    ones += 10 * (tens in (7, 9))
    if rest < 20:
        small = FRENCH[rest] if rest else ""
    elif rest == 80:
        small = "quatre-vingts"
    elif ones == 0:
        small = FRENCH_TENS[tens]
    else:
        small = FRENCH_TENS[tens] + (" et " if ones in (1, 11) and tens < 8 else "-") + FRENCH[ones]
    above = "" if not hundreds else "cent" if hundreds == 1 else f"{FRENCH[hundreds]} cent{'' if rest else 's'}"
    return f"{above} {small}".strip()


def spanish(n: int) -> str:
    if n == 100:
        return "cien"
    hundreds, rest = divmod(n, 100)
    tens, ones = divmod(rest, 10)
    small = SPANISH[rest] if rest < 30 else SPANISH_TENS[tens] + (f" y {SPANISH[ones]}" if ones else "")
    return f"{SPANISH_HUNDREDS[hundreds]} {small if rest else ''}".strip()


def pose(spec: Spec) -> dict[str, Any]:
    language, numbers = spec
    say = {"German": german, "French": french, "Spanish": spanish}[language]
    return {
        "prompt": WORDINGS.write(language=language, some=", ".join(map(say, numbers))),
        "answer": str(sum(numbers)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


# what each part of a word adds, the longest first; a part that multiplies stands apart
PARTS = {
    "German": {w: i for i, w in enumerate(GERMAN)} | {w: 10 * i for i, w in enumerate(GERMAN_TENS) if w} | {"eins": 1},
    "French": {w: i for i, w in enumerate(FRENCH)}
    | {"vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60, "quatre-vingt": 80}
    | {"quatre-vingts": 80},
    "Spanish": {w: i for i, w in enumerate(SPANISH)}
    | {w: 10 * i for i, w in enumerate(SPANISH_TENS) if w}
    | {w: 100 * i for i, w in enumerate(SPANISH_HUNDREDS) if w}
    | {"cien": 100},
}
HUNDRED = {"German": "hundert", "French": "cents?", "Spanish": "(?!)"}


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    values = PARTS[read["language"]]
    parts = "|".join(sorted(map(re.escape, values), key=len, reverse=True))
    total = 0
    for text in read["some"].split(", "):
        before, hundred, after = _cut(text, HUNDRED[read["language"]])
        total += 100 * ((_sum(before, parts, values) or 1) if hundred else 0) + _sum(after, parts, values)
    return str(total)


def _cut(text: str, hundred: str) -> tuple[str, bool, str]:
    match = re.search(hundred, text)
    return (text[: match.start()], True, text[match.end() :]) if match else ("", False, text)


def _sum(text: str, parts: str, values: dict[str, int]) -> int:
    return sum(values[w] for w in re.findall(parts, text))
