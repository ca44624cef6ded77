"""Vague values: words mean their bounds and nothing else, and the value lies within."""

import random
import re

import pytest

from synth.knowledge.kb import KB, Entity, Fact, Relation
from synth.questions.fuzzy.graph import Graph
from synth.questions.fuzzy.grow import Closed, Grower
from synth.questions.fuzzy.spans import core, read_span, span, spell, value_of
from synth.questions.pattern import Span


@pytest.mark.parametrize(
    ("words", "kind", "bounds"),
    [
        ("about 1,300", "number", (1170, 1430)),  # a tenth either way
        ("about 0.25", "number", (0.225, 0.275)),
        ("about 2.5 million", "number", (2_250_000, 2_750_000)),
        ("between 1,200 and 1,500", "number", (1150, 1550)),  # and what rounds to an end
        ("between 93 and 100", "number", (92.5, 100.5)),
        ("between 0 and 3", "number", (-0.05, 3.05)),
        ("between 1 million and 10 million", "number", (0.95e6, 10.05e6)),
        ("between 1990 and 1994", "year", (1990, 1994)),
        ("in the 1990s", "year", (1990, 1999)),
        ("in the 19th century", "year", (1800, 1900)),
        ("in the early 20th century", "year", (1900, 1939)),
        ("in the mid 20th century", "year", (1930, 1969)),
        ("in the late 20th century", "year", (1960, 2000)),
        ("in 1992", "date", (19920101, 19921231)),
        ("in the 1990s", "date", (19900101, 19991231)),
        ("in 1992", "year", None),  # a year alone is no vague year
        ("about 1,300", "year", None),
        ("roughly 1,300", "number", None),
    ],
)
def test_words_mean_bounds(words: str, kind: str, bounds: tuple | None) -> None:
    read = read_span(words, kind)
    assert read == pytest.approx(bounds) if bounds else read is None


@pytest.mark.parametrize(
    ("words", "kind", "within", "without"),
    [
        ("about 1,300", "number", (1250, 1300, 1350), (1249, 1351)),
        ("between 10 and 100", "number", (10.6, 11, 99), (10, 10.5, 99.6, 100)),
        ("between 1,200 and 1,500", "number", (1251, 1449), (1200, 1250, 1450, 1500)),
        ("between 1990 and 1994", "year", (1991, 1993), (1990, 1994)),
        ("in the 1990s", "year", (1990, 1999), (1989, 2000)),
        ("in the late 20th century", "year", (1971, 1999), (1967, 1970, 2000)),
        ("in the mid 20th century", "date", (19360101, 19641231), (19351231, 19650101)),
        ("in the 20th century", "year", (1901, 1999), (1900, 2000)),
    ],
)
def test_the_core_is_what_every_reader_means(words: str, kind: str, within: tuple, without: tuple) -> None:
    low, high = core(words, kind)
    assert all(low <= x <= high for x in within) and not any(low <= x <= high for x in without)


def test_no_value_lies_at_an_end_of_its_words() -> None:
    """Nor rounds to one: "between 10 and 100" is not said of 10, nor of 99.7."""
    rng, first_words = random.Random(1), set()
    for value in [*map(float, range(1, 130)), *(10.0**k for k in range(-2, 7)), 9.99, 0.096, 1960.0, 1_049_999.0]:
        for level in (1, 2, 3):
            s = span(value, "number", level, rng)
            low, high = core(s.said, "number")
            assert s.low < low <= value <= high < s.high
            first_words.add(s.said.split()[0])
            ends = [float(x.replace(",", "")) for x in re.findall(r"[\d,.]+", s.said)]
            assert s.said.startswith("about") or "illion" in s.said or value not in ends
    for year in range(1890, 2011):
        for level in (1, 2, 3, 4):
            low, high = core(span(float(year), "year", level, rng).said, "year")
            assert low <= year <= high
    assert first_words == {"about", "between"}


def test_every_span_holds_its_value_and_wider_levels_hold_more() -> None:
    rng = random.Random(0)
    wider = 0
    for _ in range(400):
        value = float(round(10 ** rng.uniform(-1, 9), rng.choice((0, 2))) or 1)
        spans = [span(value, "number", level, rng) for level in (1, 2, 3)]
        for s in filter(None, spans):
            assert s.low <= value <= s.high and read_span(s.said, "number") == (s.low, s.high)
        if all(spans):
            wider += spans[0].high - spans[0].low <= spans[2].high - spans[2].low
    assert wider > 300
    for _ in range(200):
        year = float(rng.randrange(100, 2025))
        spans = [span(year, "year", level, rng) for level in (1, 2, 3, 4)]
        sizes = [s.high - s.low for s in spans]
        assert all(s.low <= year <= s.high for s in spans) and sizes == sorted(sizes)
        day = year * 10_000 + 520
        assert all(
            s is None or s.low <= day <= s.high for s in (span(day, "date", level, rng) for level in (1, 2, 3, 4))
        )


def test_what_has_no_vague_words() -> None:
    rng = random.Random(0)
    assert span(0.0, "number", 1, rng) is span(-5.0, "number", 2, rng) is span(33.0, "year", 3, rng) is None


def test_a_value_does_not_stand_in_the_middle_of_its_range() -> None:
    middles = {round((s.low + s.high) / 2) for i in range(50) if (s := span(12_345.0, "number", 2, random.Random(i)))}
    assert len(middles) >= 5


def test_numbers_are_spelled_and_read() -> None:
    assert [spell(x) for x in (1300.0, 2.5e6, 0.25, 1e12, 12_345_678.0)] == [
        "1,300",
        "2.5 million",
        "0.25",
        "1 trillion",
        "12.3457 million",
    ]
    assert (
        value_of("1992-05-20", "date") == 19920520
        and value_of("-7.5", "number") == -7.5
        and value_of("many", "number") != value_of("many", "number")
    )


def test_a_share_stays_within_a_hundred_percent() -> None:
    rng = random.Random(0)
    spans = [
        span(value, "number", level, rng, most=100.0)
        for value in (96.0, 99.5, 100.0, 12.0)
        for level in (1, 2, 3)
        for _ in range(20)
    ]
    assert {s.said for s in spans if s and s.said.startswith("between 9")} and all(
        s.high <= 100.5 for s in spans if s and s.said.startswith("between")
    )
    assert span(100.0, "number", 3, rng, most=100.0) is None and span(200.0, "number", 3, rng).said.endswith(" 1,000")
    relation = Relation(
        name="forest",
        domain="country",
        range="number",
        label="share of forest",
        functional=True,
        inverse="a country with forest on {y} percent of its land",
    )
    kb = KB(
        [Entity.make("country", n) for n in "ABC"],
        [relation],
        [Fact.make(f"country:{n}", "forest", literal=v) for n, v in zip("ABC", ("98", "100", "3"))],
    )
    graph = Graph.of(kb)
    texts = {
        c.target.said
        for i in range(60)
        if (
            c := Grower(graph, closed_world=True)._value(
                graph.end("country:A"), "forest", 2, Closed.of({0}, lambda x: False), random.Random(i)
            )
        )
        and isinstance(c.target, Span)
    }
    assert any(s.endswith(" and 100") for s in texts) and all(read_span(s, "number")[1] <= 100.5 for s in texts)
