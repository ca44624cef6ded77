"""Wrong facts about sentences whose right facts are known, one kind of mistake each."""

import re
from dataclasses import replace

from synth.quantities import find_date, quantity
from tests.support.scripted_reader import Page

UNITS = {"km": "miles", "m": "feet", "metres": "feet", "kilometres": "miles", "sq km": "hectares", "tonnes": "pounds"}
UNITS |= {
    "square kilometres": "square miles",
    "km/h": "mph",
    "days": "weeks",
    "million": "billion",
    "copies": "dollars",
}
Fact = tuple[str, ...]


def wrong(pages: list[Page]) -> list[tuple[str, Page, int, Fact]]:
    """(kind of mistake, page, number of the sentence there, the fact as a model would write it). The sentence itself is changed
    where a fact is denied or doubted, in a copy of the page."""
    out = []
    for at, page in enumerate(pages):
        stranger = pages[(at + 7) % len(pages)].title
        for i, facts in enumerate(page.facts):
            here = {o for _, _, o in facts}
            near = [o for j, some in enumerate(page.facts) if j != i for _, _, o in some if o not in page.sentences[i]]
            for subject, relation, object in facts:
                name = subject if subject in page.title else page.title
                out.append(("swapped", page, i, (object, relation, subject)))
                out.append(("swapped, by name", page, i, (object, relation, name)))
                out.append(("invented", page, i, (subject, relation, "Gustav Oberon")))
                out.append(("invented", page, i, (subject, "favourite colour", object)))
                out.append(("another page's", page, i, (stranger, relation, object)))
                out += [("neighbour's object", page, i, (subject, relation, o)) for o in near[:2]]
                theirs = {o for _, r, o in facts if r == relation}
                out += [("object of another relation", page, i, (subject, relation, o)) for o in here - theirs]
                out += [(kind, page, i, (subject, relation, o)) for kind, o in _altered(object)]
                for kind, sentence in _denied(page.sentences[i]):
                    out.append((kind, _with(page, i, sentence), i, (subject, relation, object)))
    return out


def _altered(object: str) -> list[tuple[str, str]]:
    """The object with another date, number or unit, or cut."""
    out = []
    if find_date(object):
        digits = re.sub(r"^\d+", lambda m: str(int(m[0]) % 28 + 1), object)
        return [
            ("wrong date", digits),
            ("wrong date", object[:-1] + str((int(object[-1]) + 1) % 10)),
            ("wrong date", object[-4:]),
        ]
    if (amount := quantity(object)) is not None:
        out.append(("wrong number", re.sub(r"\d", lambda m: str((int(m[0]) + 1) % 10 or 1), object, count=1)))
        out.append(("wrong number", re.sub(r"(\d)(?=\D*$)", r"\g<1>7", object)))
        unit = re.sub(r"^[\d.,$]+\s*", "", object)
        if unit:
            out.append(("wrong unit", object.replace(unit, UNITS.get(unit, "parsecs"))))
            out.append(
                ("wrong unit", object.removesuffix(unit).strip())
                if amount.unit in UNITS
                else ("wrong unit", f"{object} a day")
            )
        return out
    words = object.split()
    return [("half a name", words[0]), ("half a name", words[-1])] if len(words) > 1 and words[0][0].isupper() else []


def _denied(sentence: str) -> list[tuple[str, str]]:
    denied, n = re.subn(r"\b(was|is|has|were)\b", r"\1 not", sentence, count=1)
    low = sentence[0].lower() + sentence[1:] if sentence.startswith(("He ", "She ", "It ")) else sentence
    return [
        ("denied", denied if n else f"It is not true that {low}"),
        ("doubted", f"Reportedly {low}"),
        ("doubted", f"According to legend, {low}"),
        ("doubted", f"It is thought that {low}"),
    ]


def _with(page: Page, i: int, sentence: str) -> Page:
    return replace(page, sentences=[*page.sentences[:i], sentence, *page.sentences[i + 1 :]])
