"""A fictional world: countries, cities, rivers, mountains, seas, languages, currencies, people and companies with
made-up names.

None of it is in a pre-training corpus, so an answer can only come from search. All facts except borders and the courses
of rivers have one object, so that hops chain in either direction; names are two or three syllables of a fixed list, so
that a small BPE vocabulary spells them in as many tokens.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypedDict

from synth.knowledge.kb import KB, Entity, Fact, Relation
from synth.types import seed_for

FIRST = (
    "Ba Bel Bor Bra Cal Cor Da Del Dor Dra Fa Fel Fin Gal Gor Gra Ha Hel Hor Ja Jel Jor Ka Kel Kor Kra La Lem Lor Ma Mel Mor "
    "Na Nel Nor Pa Pel Por Pra Ra Rel Ros Sa Sel Sil Sor Ta Tel Tor Tra Va Vel Vin Vor Wa Wel Wor Za Zel Zor"
).split()
LAST = (
    "ba ban bel bria by ca can cor da dan del don dra fa fen gal gan gor ka ken kin la lan lia lin lo ma man mar mia mo "
    "na nel nia nor pa pel pia ra ran ria ris ro sa sel sia son ta tan tel tia ton tor va van via vin za zan zia"
).split()

# Entities per country; every kind has at least two, so that no relation is constant.
KINDS = {
    "country": 1.0,
    "city": 2.0,
    "river": 0.5,
    "mountain": 0.5,
    "sea": 0.1,
    "continent": 0.05,
    "language": 0.4,
    "currency": 0.5,
    "person": 2.0,
    "company": 0.5,
}


class _Known(TypedDict, total=False):
    """What is known of a relation: flags of `Relation`."""

    functional: bool
    inverse_functional: bool
    complete: bool


_ONE: _Known = {"functional": True, "complete": True}
_PAIR: _Known = {"functional": True, "inverse_functional": True, "complete": True}
# Where the shipped atlas knows the same relation, the wording here is the same (a test compares them).
# fmt: off
RELATIONS = (
    Relation(name="capital", domain="country", range="city", label="capital", **_PAIR),
    Relation(name="continent", domain="country", range="continent", label="continent", inverse="a country on the continent {y}", **_ONE),
    Relation(name="currency", domain="country", range="currency", label="currency", inverse="a country whose currency is {y}", **_ONE),
    Relation(name="language", domain="country", range="language", label="language", passage="As language {x} uses {y}.",
             forward="the language of {x}", inverse="a country whose language is {y}", **_ONE),
    Relation(name="border", domain="country", range="country", label="border", passage="{x} shares a border with {y}.",
             forward="a country that shares a border with {x}", inverse="a country that shares a border with {y}", complete=True),
    Relation(name="president", domain="country", range="person", label="president", **_PAIR),
    Relation(name="country", domain="city", range="country", label="country", passage="{x} is a city in the country {y}.",
             forward="the country of the city {x}", inverse="a city in {y}", **_ONE),
    Relation(name="mayor", domain="city", range="person", label="mayor", **_PAIR),
    Relation(name="flows_through", domain="river", range="country", label="course", passage="The course of {x} is through {y}.",
             forward="a country that the river {x} flows through", inverse="a river that flows through {y}", complete=True),
    Relation(name="mouth", domain="river", range="sea", label="mouth", passage="The mouth of the river {x} is at {y}.",
             forward="the sea at the mouth of the river {x}", inverse="a river with its mouth at {y}", **_ONE),
    Relation(name="spring", domain="river", range="mountain", label="spring", passage="The spring of the river {x} is on {y}.",
             forward="the mountain with the spring of the river {x}", inverse="the river with its spring on {y}", **_PAIR),
    Relation(name="length", domain="river", range="number", label="length", passage="The length of the river {x} is {y} km.",
             forward="the length in km of the river {x}", inverse="a river {y} km long", **_ONE),
    Relation(name="mountain_in", domain="mountain", range="country", label="country", passage="{x} is a mountain in the country {y}.",
             forward="the country of the mountain {x}", inverse="a mountain in {y}", **_ONE),
    Relation(name="height", domain="mountain", range="number", label="height", passage="The height of {x} is {y} m.",
             forward="the height in m of {x}", inverse="a mountain {y} m high", **_ONE),
    Relation(name="birthplace", domain="person", range="city", label="birthplace", inverse="a person whose birthplace is {y}", **_ONE),
    Relation(name="born", domain="person", range="year", label="birth year", inverse="a person whose birth year is {y}", **_ONE),
    Relation(name="teacher", domain="person", range="person", label="teacher", inverse="a person whose teacher is {y}", **_ONE),
    Relation(name="seat", domain="company", range="city", label="seat", passage="The seat of the company {x} is {y}.",
             forward="the seat of the company {x}", inverse="a company whose seat is {y}", **_ONE),
    Relation(name="founder", domain="company", range="person", label="founder", passage="The founder of the company {x} is {y}.",
             forward="the founder of the company {x}", inverse="the company whose founder is {y}", **_PAIR),
)
# fmt: on


def names(rng: random.Random, n: int, *, avoid: Collection[str] = ()) -> list[str]:
    """`n` different names in random order, none in `avoid`: of two syllables where these suffice, else of three, else of four,
    of which there are nearly 13 million.

    Raises ValueError where four do not suffice either.
    """
    pool = [f + last for f in FIRST for last in LAST]
    if n > len(pool) - len(set(avoid) & set(pool)):
        pool = [f + m + last for f in FIRST for m in LAST for last in LAST]
    free = sorted(set(pool) - set(avoid))
    if n <= len(free):
        return rng.sample(free, n)
    total = len(FIRST) * len(LAST) ** 3  # too many to be listed: each is written from its number
    if n + len(avoid) > total:
        raise ValueError(f"{n} names are more than the {total} that four syllables give: make a smaller world")
    drawn = map(_of_four, rng.sample(range(total), n + len(avoid)))
    avoid = set(avoid)
    return [name for name in drawn if name not in avoid][:n]


def _of_four(number: int) -> str:
    """The name of four syllables with this number. No two numbers have the same name: a name is split into syllables in one
    way only."""
    tail = []
    for _ in range(3):
        number, i = divmod(number, len(LAST))
        tail.append(LAST[i])
    return FIRST[number] + "".join(reversed(tail))


def world(*, countries: int, seed: int, avoid: Collection[str] = ()) -> KB:
    """A world of about 7.5 entities per country; the same seed gives the same bytes. `avoid`: names that something else
    bears.

    Raises ValueError for fewer than three countries (borders need them).
    """
    entities, facts = told(countries=countries, seed=seed, avoid=avoid)
    return KB(entities, RELATIONS, facts)


def told(*, countries: int, seed: int, avoid: Collection[str] = ()) -> tuple[list[Entity], Iterator[Fact]]:
    """The entities of `world`, and its facts, which are made as they are asked for."""
    if countries < 3:
        raise ValueError(f"a world of {countries} countries is too small: ask for 3 or more, or for 0 to have none")
    rng = random.Random(seed_for(seed, "world", "kb", "", countries))
    counts = {kind: max(2, round(share * countries)) for kind, share in KINDS.items()}
    name = iter(names(rng, sum(counts.values()), avoid=avoid))
    entities = {kind: [Entity.make(kind, next(name), source="world") for _ in range(n)] for kind, n in counts.items()}
    return [e for kind in entities.values() for e in kind], _facts(rng, countries, entities)


def _facts(rng: random.Random, countries: int, entities: Mapping[str, Sequence[Entity]]) -> Iterator[Fact]:
    relations = {r.name: r for r in RELATIONS}

    def say(subject: Entity, relation: str, value: Entity | str) -> Fact:
        known = value if isinstance(value, str) else value.name
        where = {"literal": value} if isinstance(value, str) else {"object": value.id}
        span = relations[relation].sentence(subject.name, [known])
        return Fact.make(subject.id, relation, source="world", span=span, **where)

    lands, cities, people = entities["country"], entities["city"], entities["person"]
    presidents, mayors, founders = (rng.sample(people, len(people)) for _ in range(3))
    around = _neighbours(rng, countries)
    for i, land in enumerate(lands):
        yield say(land, "capital", cities[i])
        for kind in ("continent", "currency", "language"):
            yield say(land, kind, rng.choice(entities[kind]))
        for j in around[i]:
            yield say(land, "border", lands[j])
        yield say(land, "president", presidents[i])
    home = [i if i < countries else rng.randrange(countries) for i in range(len(cities))]
    for i, city in enumerate(cities):
        yield say(city, "country", lands[home[i]])
        yield say(city, "mayor", mayors[i])
    springs = rng.sample(entities["mountain"], len(entities["mountain"]))
    peaks = [rng.randrange(countries) for _ in springs]
    for mountain, i in zip(springs, peaks):
        yield say(mountain, "mountain_in", lands[i])
        yield say(mountain, "height", str(rng.randrange(900, 9000)))
    for river, mountain, i in zip(entities["river"], springs, peaks):
        course = [i]  # begins in the country of its mountain and crosses borders, never back
        for _ in range(rng.randrange(3)):
            course += (
                rng.sample([j for j in around[course[-1]] if j not in course], k=1)
                if set(around[course[-1]]) - set(course)
                else []
            )
        for j in course:
            yield say(river, "flows_through", lands[j])
        yield say(river, "spring", mountain)
        yield say(river, "mouth", rng.choice(entities["sea"]))
        yield say(river, "length", str(rng.randrange(200, 7000)))
    for i, person in enumerate(people):
        yield say(person, "birthplace", rng.choice(cities))
        yield say(person, "born", str(rng.randrange(1900, 2000)))
        yield say(person, "teacher", people[(i + rng.randrange(1, len(people))) % len(people)])
    for company, founder in zip(entities["company"], founders):
        yield say(company, "seat", rng.choice(cities))
        yield say(company, "founder", founder)


def _neighbours(rng: random.Random, n: int) -> list[list[int]]:
    """Borders of n countries, both ways: a ring, so that all hang together, and half as many chords. Degree 2 to about
    6, mean 3."""
    around: list[set[int]] = [{(i - 1) % n, (i + 1) % n} for i in range(n)]
    for _ in range(n // 2):
        a, b = rng.sample(range(n), 2)
        around[a].add(b)
        around[b].add(a)
    return [sorted(near) for near in around]
