"""Sums of numbers written as words of several languages.

Certificate: words made by the rules of each language on the values against words of the text taken apart. Difficulty
axes: terms, size of the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"terms": 2, "size": 20}, {"terms": 2, "size": 60}, {"terms": 3, "size": 99}, {"terms": 5, "size": 99})
CERTIFICATE = ("words made by rules", "words of the text taken apart")
WORDINGS = Wordings(
    "What is {sum}?",
    "Compute {sum}.",
    "Work out this sum of numbers from several languages: {sum}.",
    "A traveller notes {sum}. What does it come to?",
    "Find the value of {sum}.",
    answer="Answer with one integer in digits.",
    sum=r"[^\d?.:]+",
)
UNITS = {
    "English": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
    "German": "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
    "Dutch": "een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien zeventien achttien negentien",
    "French": "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf",
    "Spanish": "uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho diecinueve",
}
TENS = {
    "English": "twenty thirty forty fifty sixty seventy eighty ninety",
    "German": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "Dutch": "twintig dertig veertig vijftig zestig zeventig tachtig negentig",
    "French": "vingt trente quarante cinquante soixante",
    "Spanish": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
}
_TWENTIES = (
    "veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve".split()
)
Spec = list[tuple[int, str]]  # signed numbers and their languages


def number_words(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="number_words",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int) -> tuple[str, Spec]:
    spec = [(rng.choice((1, 1, -1)) * rng.randint(2, size), rng.choice(sorted(UNITS))) for _ in range(terms)]
    spec[0] = (abs(spec[0][0]), spec[0][1])
    return f"{spec[0]} {sorted(spec[1:])}", spec


def say(n: int, language: str) -> str:
    """A number from 1 to 99 as a word."""
    units, tens = UNITS[language].split(), TENS[language].split()
    if n < 20:
        return units[n - 1]
    ten, unit = divmod(n, 10)
    if language == "French":
        if ten >= 8:
            return f"quatre-vingt{'s' if n == 80 else '-' + units[n - 81]}"
        if ten == 7:
            return "soixante et onze" if n == 71 else f"soixante-{units[n - 61]}"
        return tens[ten - 2] + ("" if not unit else " et un" if unit == 1 else f"-{units[unit - 1]}")
    if not unit:
        return tens[ten - 2]
    if language == "English":
        return f"{tens[ten - 2]}-{units[unit - 1]}"
    if language == "Spanish":
        return _TWENTIES[unit - 1] if ten == 2 else f"{tens[ten - 2]} y {units[unit - 1]}"
    if language == "German":
        return f"{'ein' if unit == 1 else units[unit - 1]}und{tens[ten - 2]}"
    return f"{units[unit - 1]}{'ën' if units[unit - 1][-1] == 'e' else 'en'}{tens[ten - 2]}"


def pose(spec: Spec) -> dict[str, Any]:
    told = [f"{say(abs(n), language)} ({language})" for n, language in spec]
    signs = ["", *(" minus " if n < 0 else " plus " for n, _ in spec[1:])]
    return {
        "prompt": WORDINGS.write(sum="".join(s + t for s, t in zip(signs, told, strict=True))),
        "answer": str(sum(n for n, _ in spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": " ".join(f"{n:+}" for n, _ in spec),
    }


def solve(question: str) -> str:
    total, text = 0, f" plus {WORDINGS.read(question)['sum']}"
    for sign, word, language in re.findall(r" (plus|minus) ([^()]+) \((\w+)\)", text):
        total += taken_apart(word, language) * (1 if sign == "plus" else -1)
    return str(total)


def taken_apart(word: str, language: str) -> int:
    """The value of a word: the parts that it is made of, added up."""
    if language not in UNITS:
        raise Refused(f"roundtrip: {language!r} is no known language")
    values = {w: i for i, w in enumerate(UNITS[language].split(), 1)}
    values |= {w: 10 * i for i, w in enumerate(TENS[language].split(), 2)}
    if word in values:
        return values[word]
    if language in ("German", "Dutch"):
        for ten in TENS[language].split():
            if word.endswith(ten) and (head := re.fullmatch("(.+?)(?:und|en|ën)", word.removesuffix(ten))):
                return values[ten] + {**values, "ein": 1}.get(head[1], 100)
    if language == "Spanish" and word.startswith("veinti"):
        rest = word.removeprefix("veinti").translate({0xE9: "e", 0xF3: "o"})
        return 20 + values.get(rest, 100)
    total = 0
    for part in re.split("[- ]", word.replace("quatre-vingts", "quatre-vingt").replace("quatre-vingt", "octante")):
        total += 80 if part == "octante" else 0 if part in ("et", "y") else values.get(part, 1000)
    return total
