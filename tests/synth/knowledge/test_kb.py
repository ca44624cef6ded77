"""The knowledge base: both directions from memory and by SQL, checks at construction, digest, density, merge,
passages."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.knowledge.kb import KB, Entity, Fact, Relation, merge, passages
from synth.knowledge.world import world

CAPITAL = Relation(
    name="capital",
    domain="country",
    range="city",
    functional=True,
    inverse_functional=True,
    complete=True,
    label="capital",
)
BORDER = Relation(
    name="border",
    domain="country",
    range="country",
    label="border",
    passage="{x} shares a border with {y}.",
    forward="a country beside {x}",
    inverse="a country beside {y}",
)
RANK = Relation(name="rank", domain="country", range="number", functional=True, label="area rank")


def country(name):
    return Entity.make("country", name)


def small(**changes):
    parts = {
        "entities": [country("A"), country("B"), country("C"), Entity.make("city", "Z")],
        "relations": [CAPITAL, BORDER, RANK],
        "facts": [
            Fact.make("country:A", "capital", object="city:Z"),
            Fact.make("country:A", "border", object="country:B"),
            Fact.make("country:A", "border", object="country:C"),
            Fact.make("country:A", "rank", literal="2"),
            Fact.make("country:B", "rank", literal="2"),
        ],
    }
    return KB(**{**parts, **changes})


def test_forward_backward_and_text():
    kb = small()
    assert kb.forward("country:A", "border") == ("country:B", "country:C")
    assert kb.backward("rank", "2") == ("country:A", "country:B") and kb.backward("capital", "city:Z") == ("country:A",)
    assert kb.forward("country:B", "capital") == () == kb.backward("rank", "9")
    assert kb.text("city:Z") == "Z" and kb.text("2") == "2"


def test_words_of_a_relation():
    assert CAPITAL.sentence("Norvia", ["Zelton"]) == "The capital of Norvia is Zelton."
    assert BORDER.sentence("el Sur", ["A", "B", "C"]) == "El Sur shares a border with A, B and C."
    assert (CAPITAL.ask("Norvia"), CAPITAL.ask_back("Zelton")) == (
        "the capital of Norvia",
        "the country whose capital is Zelton",
    )
    assert (CAPITAL.query("Norvia"), CAPITAL.query_back("Zelton")) == (
        "capital of Norvia",
        "country with capital Zelton",
    )
    assert CAPITAL.ask("{label} {y}") == "the capital of {label} {y}"  # braces of a name are a name


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_sql_says_what_memory_says(seed):
    kb = world(countries=8, seed=seed)
    with sqlite3.connect(":memory:") as db:
        kb.sqlite(db)
        assert db.execute("SELECT count(*) FROM entity").fetchone() == (len(kb.entities),)
        for f in kb.facts.values():
            value = "literal" if kb.relations[f.relation].literal else "object"
            there = db.execute(
                f"SELECT {value} FROM fact WHERE subject = ? AND relation = ?", (f.subject, f.relation)
            ).fetchall()
            back = db.execute(
                f"SELECT subject FROM fact WHERE relation = ? AND {value} = ?", (f.relation, f.value)
            ).fetchall()
            assert {v for (v,) in there} == set(kb.forward(f.subject, f.relation)) and {s for (s,) in back} == set(
                kb.backward(f.relation, f.value)
            )
        assert dict(db.execute("SELECT name, functional FROM relation").fetchall()) == {
            r.name: int(r.functional) for r in kb.relations.values()
        }


A, B, Z, NOWHERE = "country:A", "country:B", "city:Z", "city:Nowhere"


@pytest.mark.parametrize(
    "facts, words",
    [
        ([Fact.make(A, "capitol", object=Z)], "unknown relation"),
        ([Fact.make("country:Q", "capital", object=Z)], "unknown subject"),
        ([Fact.make(A, "capital", object=NOWHERE)], "not a known 'city'"),
        ([Fact.make(A, "capital", object=B)], "not a known 'city'"),
        ([Fact.make(A, "capital", literal="Z")], "must have an object alone"),
        ([Fact.make(A, "rank", object=Z)], "must have a literal alone"),
        ([Fact.make(A, "rank")], "must have a literal alone"),
        ([Fact.make(Z, "capital", object=Z)], "domain of the relation"),
        (
            [Fact.make(A, "rank", literal="1"), Fact.make(A, "rank", literal="2")],
            "2 objects under the functional relation 'rank'",
        ),
        (
            [Fact.make(A, "capital", object=Z), Fact.make(B, "capital", object=Z)],
            "2 subjects under the inverse functional relation 'capital'",
        ),
        ([Fact.make(A, "capital", object=Z)] * 2, "given twice"),
    ],
)
def test_a_wrong_fact_is_refused(facts, words):
    with pytest.raises(ValueError, match=words):
        small(facts=facts)


def test_digest_is_of_content_not_of_order_or_place():
    kb = small()
    turned = small(
        entities=list(kb.entities.values())[::-1],
        facts=[
            Fact.make(f.subject, f.relation, object=f.object, literal=f.literal, source="elsewhere")
            for f in kb.facts.values()
        ][::-1],
    )
    assert turned.digest() == kb.digest()
    assert small(facts=list(kb.facts.values())[1:]).digest() != kb.digest()
    assert (
        small(
            relations=[CAPITAL, BORDER, Relation(name="rank", domain="country", range="number", label="area rank")]
        ).digest()
        != kb.digest()
    )


def test_density_counts_walks_that_never_turn_back():
    chain = Relation(
        name="next", domain="country", range="country", functional=True, inverse_functional=True, label="next"
    )
    line = KB(
        [country(x) for x in "ABCD"],
        [chain],
        [Fact.make(f"country:{a}", "next", object=f"country:{b}") for a, b in ("AB", "BC", "CD")],
    )
    density = line.density()  # A-B-C-D: only the two ends begin three steps; B and C begin two at most
    assert (
        density["walks"] == {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.0}
        and density["depth"] == 3
        and density["edges_per_entity"] == 0.75
    )
    star = KB(
        [country(x) for x in "ABCD"],
        [Relation(name="in", domain="country", range="country", functional=True, label="in")],
        [Fact.make(f"country:{a}", "in", object="country:D") for a in "ABC"],
    )
    assert star.density()["walks"] == {
        1: 0.75,
        2: 0.0,
        3: 0.0,
        4: 0.0,
    }  # D has three subjects: no way back from it is the only one


def test_merge_unites_and_keeps_only_what_both_promise():
    other = KB(
        [Entity.make("country", "A", aliases=["Alpha"]), country("D")],
        [Relation(name="border", domain="country", range="country", complete=True, label="frontier")],
        [Fact.make("country:D", "border", object="country:A"), Fact.make("country:D", "border", object="country:D")],
    )
    whole = merge([small(), other])
    assert whole.entities["country:A"].aliases == ("Alpha",) and len(whole.entities) == 5 and len(whole.facts) == 7
    assert whole.relations["border"] == BORDER and whole.relations["capital"].functional
    with pytest.raises(ValueError, match="rename one of them"):
        merge([small(), KB([], [Relation(name="capital", domain="company", range="city", label="capital")], [])])


def test_passages_state_every_fact_once():
    kb = small(
        facts=[Fact.make("country:A", "border", object=f"country:{x}") for x in "BC"]
        + [Fact.make("country:A", "rank", literal="2")]
    )
    pages = passages(kb, objects=4)
    assert [p.text for p in pages] == ["A shares a border with B and C.", "The area rank of A is 2."]
    assert [p.text for p in passages(kb, objects=1)][:2] == ["A shares a border with B.", "A shares a border with C."]
    big = world(countries=30, seed=1)
    stated = [f for p in passages(big) for f in p.facts]
    assert sorted(stated) == sorted(big.facts) and len({p.id for p in passages(big)}) == len(passages(big))
