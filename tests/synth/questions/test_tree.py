"""Patterns: two routes to the same answers, the proof by SQL, and what breaks it."""

import json
import random
import sqlite3

import pytest

from synth.knowledge.kb import KB, Entity, Fact, Relation
from synth.knowledge.world import world
from synth.questions.pattern import Clue, Node, Pattern, answers, canonical, deletions, extension, from_json, to_json
from synth.questions.prove import Prover


def small(*more: Fact, aliases: dict[str, tuple[str, ...]] | None = None, cities: tuple[str, ...] = ()) -> KB:
    """Norvia (capital Zelton), Halia (capital Morra); the Danu flows through both, the Sim through Norvia; Norvia and
    Pol pay in rel."""
    named = {
        "country": ("Norvia", "Halia", "Pol"),
        "city": ("Zelton", "Morra", "Ket", *cities),
        "river": ("Danu", "Sim"),
        "currency": ("rel", "ora"),
    }
    entities = [Entity.make(t, n, aliases=(aliases or {}).get(n, ())) for t, ns in named.items() for n in ns]
    relations = [
        Relation(
            name="capital", domain="country", range="city", label="capital", functional=True, inverse_functional=True
        ),
        Relation(name="river", domain="river", range="country", label="river"),
        Relation(name="currency", domain="country", range="currency", label="currency", functional=True),
        Relation(name="founded", domain="city", range="year", label="founding year", functional=True),
    ]
    pairs = [
        ("country:Norvia", "capital", "city:Zelton"),
        ("country:Halia", "capital", "city:Morra"),
        ("country:Pol", "capital", "city:Ket"),
    ]
    pairs += [
        ("river:Danu", "river", "country:Norvia"),
        ("river:Danu", "river", "country:Halia"),
        ("river:Sim", "river", "country:Norvia"),
    ]
    pairs += [
        ("country:Norvia", "currency", "currency:rel"),
        ("country:Halia", "currency", "currency:ora"),
        ("country:Pol", "currency", "currency:rel"),
    ]
    return KB(
        entities,
        relations,
        [Fact.make(x, r, object=y) for x, r, y in pairs] + [Fact.make("city:Ket", "founded", literal="1901"), *more],
    )


def prover(kb: KB) -> Prover:
    connection = sqlite3.connect(":memory:")
    kb.sqlite(connection)
    return Prover(connection)


def country(*clues: Clue) -> Node:
    return Node(type="country", clues=clues)


RIVER = {name: Clue(relation="river", forward=False, target=f"river:{name}") for name in ("Danu", "Sim")}
REL = Clue(relation="currency", forward=True, target="currency:rel")
CAPITAL_OF = {"relation": "capital", "forward": True}


def test_one_clue_that_is_unique() -> None:
    kb, pattern = small(), Pattern(**CAPITAL_OF, root=country(RIVER["Sim"]))
    assert answers(kb, pattern) == prover(kb).answers(pattern) == {"city:Zelton"}
    assert prover(kb).refute(pattern, "city:Zelton") is None


def test_two_clues_neither_enough() -> None:
    kb, pattern = small(), Pattern(**CAPITAL_OF, root=country(RIVER["Danu"], REL))
    assert extension(kb, pattern.root) == {"country:Norvia"}
    assert prover(kb).refute(pattern, "city:Zelton") is None


def test_not_unique_is_refuted() -> None:
    pattern = Pattern(**CAPITAL_OF, root=country(RIVER["Danu"]))
    reason, evidence = prover(small()).refute(pattern, "city:Zelton")
    assert reason == "not_unique" and "city:Morra" in evidence


def test_wrong_answer_is_refuted() -> None:
    assert prover(small()).refute(Pattern(**CAPITAL_OF, root=country(RIVER["Sim"])), "city:Morra")[0] == "not_unique"


def test_redundant_clue_is_refuted() -> None:
    pattern = Pattern(**CAPITAL_OF, root=country(RIVER["Sim"], REL))  # the Sim alone is enough
    assert prover(small()).refute(pattern, "city:Zelton")[0] == "redundant_clue"


def test_what_is_left_without_any_name_is_asked_once() -> None:
    """Such a query looks through all entities of a type; another relation or another type is another one."""
    proofs, asked = prover(small()), []
    proofs.connection.set_trace_callback(lambda text: asked.append(text) if text.endswith("LIMIT 2") else None)
    for _ in range(2):
        assert proofs.refute(Pattern(**CAPITAL_OF, root=country(RIVER["Sim"])), "city:Zelton") is None
    assert len(asked) == 1
    founded = Pattern(relation="founded", forward=True, root=Node(type="city", clues=()))
    ket = Node(type="city", clues=(Clue(relation="capital", forward=False, target="country:Pol"),))
    assert proofs.refute(Pattern(relation="founded", forward=True, root=ket), "1901")[0] == "redundant_clue"
    assert len(asked) == 2 and len(proofs.answers(founded)) == 1


def test_redundant_below_the_root() -> None:
    inner = country(RIVER["Sim"], REL)
    pattern = Pattern(
        relation="founded",
        forward=True,
        root=Node(type="city", clues=(Clue(relation="capital", forward=False, target=inner),)),
    )
    kb = small(Fact.make("city:Zelton", "founded", literal="1800"))
    assert answers(kb, pattern) == prover(kb).answers(pattern) == {"1800"}
    assert prover(kb).refute(pattern, "1800")[0] == "redundant_clue"


def test_a_clue_is_redundant_where_every_other_root_has_the_same_answer() -> None:
    """Irredundant for the root is not enough: what counts is the answer."""
    kb = small(Fact.make("city:Zelton", "founded", literal="1901"), Fact.make("city:Morra", "founded", literal="1901"))
    pattern = Pattern(
        relation="founded",
        forward=True,
        root=Node(type="city", clues=(Clue(relation="capital", forward=False, target="country:Norvia"),)),
    )
    assert answers(kb, pattern) == {"1901"} and prover(kb).refute(pattern, "1901")[0] == "redundant_clue"


@pytest.mark.parametrize(
    "extra",
    [Fact.make("river:Sim", "river", object="country:Pol"), Fact.make("river:Sim", "river", object="country:Halia")],
)
def test_one_more_fact_breaks_the_proof(extra: Fact) -> None:
    pattern = Pattern(**CAPITAL_OF, root=country(RIVER["Sim"]))
    assert prover(small()).refute(pattern, "city:Zelton") is None
    assert prover(small(extra)).refute(pattern, "city:Zelton")[0] == "not_unique"


def test_the_proof_is_about_names() -> None:
    """By id the answer is unique; but a second river answers to the name Sim, so the question has two answers, and only
    SQL sees it."""
    kb = small(aliases={"Danu": ("sim",)})
    pattern = Pattern(**CAPITAL_OF, root=country(RIVER["Sim"]))
    assert answers(kb, pattern) == {"city:Zelton"}
    assert prover(kb).answers(pattern) == {"city:Zelton", "city:Morra"}


def test_literal_constants_and_inverse_questions() -> None:
    kb = small()
    pattern = Pattern(
        relation="capital",
        forward=False,
        root=Node(type="city", clues=(Clue(relation="founded", forward=True, target="1901"),)),
    )
    assert answers(kb, pattern) == prover(kb).answers(pattern) == {"country:Pol"}
    assert prover(kb).refute(pattern, "country:Pol") is None


def test_deletions_and_canonical_form() -> None:
    inner = Node(type="city", clues=(Clue(relation="founded", forward=True, target="1901"),))
    root = country(Clue(relation="capital", forward=True, target=inner), REL)
    assert len(list(deletions(root))) == 3
    swapped = country(*reversed(root.clues))
    one, two = (Pattern(relation="currency", forward=True, root=r) for r in (root, swapped))
    assert canonical(one) == canonical(two) != canonical(Pattern(relation="currency", forward=True, root=country(REL)))
    assert from_json(json.loads(json.dumps(to_json(one)))) == one


def test_both_routes_agree_on_random_patterns() -> None:
    """Postings and SQL share no code; on 150 random patterns of depth up to 3, unique or not, they give the same
    sets."""
    kb = world(countries=12, seed=5)
    check, rng, sizes = prover(kb), random.Random(0), set()
    facts = list(kb.facts.values())

    def around(entity: str, depth: int) -> Node:
        touching = [f for f in facts if entity in (f.subject, f.object)]
        clues = []
        for f in rng.sample(touching, min(len(touching), rng.choice((1, 1, 2)))):
            forward = f.subject == entity
            other = f.value if forward else f.subject
            clues.append(
                Clue(
                    relation=f.relation,
                    forward=forward,
                    target=around(other, depth - 1)
                    if depth > 1 and other in kb.entities and rng.random() < 0.6
                    else other,
                )
            )
        return Node(type=kb.entities[entity].type, clues=tuple(clues))

    for _ in range(150):
        fact = rng.choice(facts)
        forward = fact.object is None or rng.random() < 0.5
        pattern = Pattern(
            relation=fact.relation,
            forward=forward,
            root=around(fact.subject if forward else fact.object, rng.randint(1, 3)),
        )
        members = answers(kb, pattern)
        assert members == check.answers(pattern)
        sizes.add(min(len(members), 3))
    assert sizes == {1, 2, 3}
