"""A knowledge base as columns answers as the one of objects, in the same order, and refuses the same."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from synth.knowledge.compact import CompactKB, passages_of
from synth.knowledge.kb import KB, Entity, Fact, Relation, each_passage, passages
from synth.knowledge.postings import Postings
from synth.knowledge.world import world
from synth.questions.entity_tree import EntityTrees, entity_tree
from synth.types import to_row
from tasks.knowledge import knowledge
from tasks.knowledge.search_tool import Search
from tasks.problems.grow import chains
from tasks.storage import tables


def small() -> KB:
    """A world with names of two types, aliases, a value that is the id of an entity, a fact about itself, and relations
    without facts."""
    kb = world(countries=12, seed=2)
    first, second, *_ = kb.entities.values()
    odd = [
        Entity.make("city", first.name, aliases=["Old Town", "Ürü"], source="by hand"),
        Entity.make("country", "Twin", aliases=[second.name]),
        Entity.make("note", "about"),
    ]
    said = Relation(name="said", domain="note", range="string", label="words")
    likes = Relation(name="likes", domain="country", range="country", label="friend")
    facts = [
        Fact.make("note:about", "said", literal=first.id, source="a", span="b"),
        Fact.make("note:about", "said", literal="1950"),
        Fact.make(second.id, "likes", object=second.id),
        Fact.make(second.id, "likes", object=first.id),
        Fact.make(first.id, "likes", object=second.id),
    ]
    empty = Relation(name="empty", domain="note", range="note", label="none")
    return KB([*kb.entities.values(), *odd], [*kb.relations.values(), said, likes, empty], [*kb.facts.values(), *facts])


def compact(kb: KB) -> CompactKB:
    return CompactKB(iter(kb.entities.values()), iter(kb.relations.values()), iter(kb.facts.values()))


def bare(values) -> list:
    """Without what columns do not know."""
    return [replace(v, source="", **({"span": ""} if isinstance(v, Fact) else {})) for v in values]


def test_every_answer_is_that_of_objects_in_the_same_order() -> None:
    kb = small()
    columns = compact(kb)
    assert list(columns.entities) == list(kb.entities) and list(columns.facts) == list(kb.facts)
    assert list(columns.entities.values()) == bare(kb.entities.values())
    assert list(columns.facts.values()) == bare(kb.facts.values())
    assert [columns.facts[f] for f in kb.facts] == bare(kb.facts.values())
    assert len(columns.entities) == len(kb.entities) and len(columns.facts) == len(kb.facts)
    assert columns.digest() == kb.digest() and columns.relations == kb.relations
    values = [*kb.entities, *{f.value for f in kb.facts.values()}, "nobody", "country:nobody"]
    for x in values:
        assert columns.text(x) == kb.text(x)
        assert (x in columns.entities) == (x in kb.entities)
        entity = kb.entities.get(x)
        assert columns.entities.get(x) == (None if entity is None else replace(entity, source=""))
        assert list(columns.touching(x)) == bare(kb.touching(x))
        alone = {(f.id, True) for f in kb.touching(x) if f.subject == x and len(kb.backward(f.relation, f.value)) == 1}
        alone |= {
            (f.id, False) for f in kb.touching(x) if f.object == x and len(kb.forward(f.subject, f.relation)) == 1
        }
        for base in (columns, kb):
            found = [(f.id, forward) for f, forward in base.alone(x)]
            assert {*found} == alone and len(found) == len(alone)
        for r in [*kb.relations, "unheard"]:
            assert columns.forward(x, r) == kb.forward(x, r) and columns.backward(r, x) == kb.backward(r, x)
            assert columns.facts_of(x, r) == tuple(bare(kb.facts_of(x, r)))
            assert columns.facts_to(r, x) == tuple(bare(kb.facts_to(r, x)))
            for forward in (True, False):
                assert list(columns.ends(x, r, forward)) == list(kb.ends(x, r, forward))
                assert columns.n_ends(x, r, forward) == kb.n_ends(x, r, forward) == len(list(kb.ends(x, r, forward)))
    for r in [*kb.relations, "unheard"]:
        assert list(columns.pairs(r)) == list(kb.pairs(r)) and list(columns.listed(r)) == list(kb.listed(r))
        assert columns.mutual(r) == kb.mutual(r)
        for forward in (True, False):
            (some, share), (same, other) = columns.askable(r, forward), kb.askable(r, forward)
            assert (list(some), [some[i] for i in range(len(some))], share) == (list(same), list(same), other)
    assert {kb.mutual(r) for r in kb.relations} == {True, False}
    assert [(s, r, list(facts)) for s, r, facts in columns.stated()] == [(s, r, bare(f)) for s, r, f in kb.stated()]
    assert (
        columns.n_facts() == kb.n_facts()
        and columns.density() == kb.density()
        and columns.density(deepest=2)["depth"] == 2
    )
    assert list(each_passage(columns, objects=2)) == passages(kb, objects=2)
    for name in ("ids", "names", "types", "literals"):
        assert list(getattr(Postings.of(columns), name)) == list(getattr(Postings.of(kb), name))
    for e in kb.entities.values():
        for type_ in ("country", "city", "nothing"):
            assert columns.called(type_, e.name) == kb.called(type_, e.name)
    with pytest.raises(KeyError):
        columns.entities["nobody"]
    with pytest.raises(KeyError):
        columns.facts["none"]


def test_tables_for_proofs_have_the_same_rows() -> None:
    def rows(kb: KB) -> list:
        connection = sqlite3.connect(":memory:")
        kb.sqlite(connection)
        facts = "SELECT id, subject, relation, object, literal FROM fact ORDER BY id"
        return [
            connection.execute(q).fetchall() for q in (facts, "SELECT id, name, type, aliases FROM entity ORDER BY id")
        ]

    assert rows(small()) == rows(compact(small()))


def test_what_objects_refuse() -> None:
    kb = small()
    entities, relations, facts = ([*x.values()] for x in (kb.entities, kb.relations, kb.facts))
    capital, height = (next(f for f in facts if f.relation == r) for r in ("capital", "height"))
    other = next(f for f in facts if f.relation == "capital" and f != capital)
    for wrong in (
        (entities + entities[:1], relations, facts),
        (entities, relations + relations[:1], facts),
        (entities, relations, facts + facts[:1]),
        (entities, relations, [*facts, Fact.make("nobody", "capital", object=capital.object)]),
        (entities, relations, [*facts, Fact.make(capital.subject, "unheard", literal="x")]),
        (entities, relations, [*facts, Fact.make(capital.subject, "capital", object=capital.subject)]),
        (
            entities,
            relations,
            [f for f in facts if f != other] + [Fact.make(capital.subject, "capital", object=other.object)],
        ),
        (entities, relations, [*facts, Fact.make(height.subject, "height", literal="7")]),
        (
            entities,
            relations,
            [f for f in facts if f != other] + [Fact.make(other.subject, "capital", object=capital.object)],
        ),
    ):
        said = []
        for of in (KB, CompactKB):
            with pytest.raises(ValueError) as error:
                of(*map(iter, wrong))
            said.append(str(error.value))
        assert said[0] == said[1]


def test_passages_are_read_as_they_were_given() -> None:
    some = passages(small())
    columns = passages_of(iter(some))
    assert list(columns) == some and columns[1:3] == some[1:3] and columns[-1] == some[-1] and len(columns) == len(some)
    with pytest.raises(IndexError):
        columns[len(some)]


@pytest.mark.parametrize("closed_world", [False, True])
def test_questions_are_the_same(tmp_path: Path, closed_world: bool) -> None:
    kb = small()
    for name, cls, values in (
        ("entities", Entity, kb.entities.values()),
        ("relations", Relation, kb.relations.values()),
        ("facts", Fact, kb.facts.values()),
    ):
        tables.write(tmp_path / f"{name}.parquet", values, cls)
    tables.write(tmp_path / "passages.parquet", passages(kb), type(passages(kb)[0]))
    counts = {("train", 1): 40, ("train", 2): 40, ("train", 3): 40, ("valid", 2): 5, ("test", 1): 10}
    knobs = {"seed": 3, "closed_world": closed_world, "max_guess": 0.3}
    of_files = entity_tree(chains(tmp_path, k=3, **knobs), counts)
    of_objects = entity_tree(EntityTrees(kb, Search(passages(kb)), **knobs), counts)
    for mine, other in zip(of_files, of_objects, strict=True):
        assert list(map(to_row, mine)) == list(map(to_row, other))
    assert len(of_files[0]) > 80 and of_files[1]
    assert isinstance(knowledge.kb_at(tmp_path, CompactKB), CompactKB)
