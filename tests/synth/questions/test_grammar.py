"""The words of guessed columns, of every kind over every type: articles, number and order of what is said."""

import re
from itertools import product

import pytest

from synth.knowledge.kb import Relation
from synth.knowledge.words import article, thing_of, wording
from synth.questions.fuzzy.phrases import SLOT, phrases

TYPES = ("element", "movie", "university", "hour", "order", "person", "product", "unit", "company", "series")
COLUMNS = {  # column -> (range, options)
    "category": ("", {"single": True}),
    "discovered_by": ("", {"single": True}),
    "country": ("", {"single": True}),
    "eye_colour": ("", {"single": True}),
    "products": ("", {}),
    "height": ("number", {"unit": "m"}),
    "UnitsInStock": ("number", {}),
    "year_founded": ("year", {}),
    "OrderDate": ("date", {}),
    "isDiscontinued": ("string", {"flag": True}),
    "symbol": ("string", {}),
}
WRONG = re.compile(
    r"\b(?:a|an|the) (?:a|an|the) |\b(?:a|an) (?!series)\w+[^s]s (?!of|as|is)|\ba [aeio]|\ban [bcdfgjklmnpqrstvwxyz]|\ba hour|\ban uni|  | ,|movy"
    r"|\bis are\b|\{|\}",
    re.IGNORECASE,
)


def relation(type_: str, column: str) -> Relation:
    range_, options = COLUMNS[column]
    range_ = range_ or thing_of(column)
    given = wording(column, type_, range_, **options)
    return Relation(name=column, domain=type_, range=range_, functional=column != "products", **given)


@pytest.mark.parametrize(("type_", "column"), [(t, c) for t, c in product(TYPES, COLUMNS) if t != thing_of(c)])
def test_every_template_over_every_type(type_, column):
    r = relation(type_, column)
    said = [p for forward in (True, False) if forward or not r.literal for p in phrases(r, forward)]
    assert said
    for sentence, p in said:
        text = f"{p.before}Xy{p.after}"
        assert not WRONG.search(text), text
        assert not sentence or text[0].isupper() or text.startswith("Xy"), text
    assert not WRONG.search(f"{r.ask('Xy')} {r.ask_back('Xy')} {r.sentence('Xy', ['Zz'])}")
    assert SLOT not in r.ask("Xy")


def test_articles():
    for noun, said in {"hour": "an", "university": "a", "unit": "a", "umbrella": "an", "one-way street": "a"}.items():
        assert article(noun, noun) == f"{said} {noun}"
