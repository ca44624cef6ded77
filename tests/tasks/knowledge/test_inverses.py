"""Relations that say the same turned round: noticed from all pairs, stated in the schema, and never used from both ends."""

import json
import random

import numpy as np
import pytest
import yaml

from flows.cli import main
from synth.knowledge.inverses import difference, inverses, left_aside
from synth.knowledge.kb import KB, Entity, Fact, Relation, passages
from synth.knowledge.postings import Postings
from synth.questions.fuzzy_tree import FuzzyTrees
from synth.questions.pattern import Clue, Node, from_json, relations_of
from synth.types import Problem
from tasks.knowledge.schema import read_inverses, read_schema
from tasks.problems import grow

PAIRS = [("Ann", "Bo"), ("Ann", "Cy"), ("Dee", "Eli")]


def family(parents=PAIRS, children=None, **complete: bool) -> KB:
    """parent (x is the parent of y) and child (x is the child of y), by default the same pairs turned round."""
    children = [(y, x) for x, y in parents] if children is None else children
    people = sorted({p for pair in (*parents, *children) for p in pair})
    relations = [
        Relation(name=n, domain="person", range="person", label=n, complete=complete.get(n, False))
        for n in ("parent", "child")
    ]
    facts = [
        Fact.make(f"person:{x}", name, object=f"person:{y}")
        for name, pairs in (("parent", parents), ("child", children))
        for x, y in pairs
    ]
    return KB([Entity.make("person", p) for p in people], relations, facts)


def test_all_pairs_turned_round_are_noticed():
    assert inverses(Postings.of(family())) == {"parent": "child", "child": "parent"}


@pytest.mark.parametrize(
    "children",
    [
        [(y, x) for x, y in PAIRS[:-1]],  # one is missing
        [*((y, x) for x, y in PAIRS), ("Ann", "Eli")],  # one is too many
        [("Bo", "Ann"), ("Cy", "Dee"), ("Eli", "Dee")],  # one is another
        PAIRS,  # the same, not turned round
    ],
)
def test_one_pair_that_differs_is_enough(children):
    assert inverses(Postings.of(family(children=children))) == {}


def test_one_pair_alone_shows_nothing():
    assert inverses(Postings.of(family(PAIRS[:1]))) == {}


def test_a_relation_is_not_its_own_inverse_and_values_have_none():
    both = [*PAIRS, *((y, x) for x, y in PAIRS)]
    kb = family(both, [("Ann", "Bo"), ("Cy", "Dee")])
    assert inverses(Postings.of(kb)) == {}


def test_how_many_pairs_differ():
    kb = family(children=[("Bo", "Ann"), ("Cy", "Dee"), ("Eli", "Dee")])
    assert difference(Postings.of(kb), 0, 1) == 2
    assert difference(Postings.of(family()), 0, 1) == 0


def test_a_person_says_that_there_is_none():
    assert inverses(Postings.of(family()), apart=["child"]) == {}


def test_the_complete_one_gives_the_clues():
    found = {"parent": "child", "child": "parent"}
    assert left_aside(found, family().relations) == {"parent": "child"}
    assert left_aside(found, family(parent=True).relations) == {"child": "parent"}


def records(n: int = 60) -> list[dict]:
    rng = random.Random(1)
    names = [
        f"{a} {b}"
        for a in ("Anna", "Otto", "Mira", "Piet", "Ilse", "Jonas")
        for b in ("Berg", "Klein", "Solis", "Veld", "Foss", "Hale", "Ryle", "Orlik", "Dekker", "Marten")
    ]
    boss = {name: names[(i - 1) // 2] for i, name in enumerate(names) if i}
    return [
        {
            "name": name,
            "boss": boss.get(name),
            "helpers": [other for other, b in boss.items() if b == name],
            "born": rng.randrange(1900, 1990),
            "town": rng.choice(("Olmhaven", "Karsund", "Verlo", "Tarnby")),
            "pay": rng.randrange(900, 90000),
        }
        for name in names[:n]
    ]


def build(tmp_path, schema: dict | None = None) -> tuple[dict, str]:
    path = tmp_path / "workers.json"
    path.write_text(json.dumps(records()))
    more = []
    if schema is not None:
        stated = yaml.safe_load((tmp_path / "kb" / "schema.yaml").read_text())
        for name, given in schema.items():
            stated["relations"].setdefault(name, {}).update(given)
        (tmp_path / "schema.yaml").write_text(yaml.safe_dump(stated, sort_keys=False))
        more = ["--schema", str(tmp_path / "schema.yaml")]
    sources = [] if more else [str(path)]
    assert main(["kb", "build", *sources, *more, "--out", str(tmp_path / "kb")]) == 0
    return json.loads((tmp_path / "kb" / "card.json").read_text()), (tmp_path / "kb" / "schema.yaml").read_text()


def test_the_command_says_it_and_the_schema_keeps_it(tmp_path, capsys):
    card, schema = build(tmp_path)
    assert card["inverse"] == {"boss": "helpers", "helpers": "boss"}
    assert "boss and helpers say the same turned round" in capsys.readouterr().out
    relations = yaml.safe_load(schema)["relations"]
    assert relations["boss"]["inverse_of"] == "helpers" and relations["helpers"]["inverse_of"] == "boss"
    assert "inverse_of" not in relations["pay"]
    assert read_inverses(tmp_path / "kb" / "schema.yaml") == {"boss": "helpers", "helpers": "boss"}
    assert "inverse_of" not in read_schema(tmp_path / "kb" / "schema.yaml")[1]["boss"]
    again, _ = build(tmp_path, {})
    assert again["inverse"] == card["inverse"] and "not_inverse" not in again
    assert again["kb"] == card["kb"]


def test_the_schema_overrides_it(tmp_path, capsys):
    build(tmp_path)
    card, schema = build(tmp_path, {"boss": {"inverse_of": ""}})
    assert card["apart"] == ["boss"] and "inverse" not in card
    assert yaml.safe_load(schema)["relations"]["boss"]["inverse_of"] == ""
    assert grow.maker(tmp_path / "kb", seed=0, closed_world=True).grower._twins == {}
    capsys.readouterr()
    card, _ = build(tmp_path, {"boss": {"inverse_of": "town"}})
    assert card["not_inverse"] == {"boss": "town"}
    assert "boss is not the inverse of town, as the schema says" in capsys.readouterr().out


def test_no_fact_is_a_clue_from_its_other_end(tmp_path):
    """Neither the asked fact, nor a link that leads back by the other name; and one fact is asked about from one end."""
    build(tmp_path)
    trees = grow.maker(tmp_path / "kb", seed=0, closed_world=True)
    assert trees.grower._twins == {"boss": "helpers"}  # a record says that it has no helpers, and nothing of its boss
    assert "boss" in trees._guess
    made = [trees("train", deep, i) for deep in (2, 3) for i in range(120)]
    patterns = [pattern_of(p) for p in made if isinstance(p, Problem)]
    assert len(patterns) > 30
    assert not [p for p in patterns if p.relation != "boss" and "boss" in relations_of(p)]
    asked = [p for p in patterns if p.relation == "boss"]
    assert asked and any("helpers" in relations_of(p) for p in patterns)
    for p in asked:
        assert isinstance(p.root, Node)
        assert ("helpers", False) not in {(c.relation, c.forward) for c in p.root.clues if isinstance(c, Clue)}


def pattern_of(problem: Problem):
    return from_json(problem.lineage["pattern"])


def test_what_is_asked_of_the_one_left_aside_is_no_clue_of_the_other():
    """helper is functional and asked; who is its boss would be the same fact."""
    rng = random.Random(0)
    names = [
        f"{a}{b}"
        for a in ("An", "Ot", "Mi", "Pi", "Il", "Jo", "Na", "Em")
        for b in ("na", "to", "ra", "et", "se", "as")
    ]
    firms = [f"Firm {i}" for i in range(len(names))]
    relations = [
        Relation(name="chief", domain="firm", range="person", label="chief", functional=True, complete=True),
        Relation(name="firm_led", domain="person", range="firm", label="firm led", functional=True, complete=True),
        Relation(name="pay", domain="person", range="number", label="pay", functional=True, complete=True),
        Relation(name="size", domain="firm", range="number", label="size", functional=True, complete=True),
        Relation(name="town", domain="firm", range="town", label="town", functional=True, complete=True),
        Relation(name="home", domain="person", range="town", label="home", functional=True, complete=True),
    ]
    towns = ["Olm", "Karsund", "Verlo", "Tarnby", "Lisgar", "Morvik"]
    entities = [Entity.make(t, x) for t, some in (("firm", firms), ("person", names), ("town", towns)) for x in some]
    facts = []
    for f, n in zip(firms, rng.sample(names, len(names)), strict=True):
        facts += [
            Fact.make(f"firm:{f}", "chief", object=f"person:{n}"),
            Fact.make(f"person:{n}", "firm_led", object=f"firm:{f}"),
        ]
        facts += [
            Fact.make(f"firm:{f}", "town", object=f"town:{rng.choice(towns)}"),
            Fact.make(f"person:{n}", "home", object=f"town:{rng.choice(towns)}"),
        ]
        facts += [
            Fact.make(f"firm:{f}", "size", literal=str(rng.randrange(9, 900))),
            Fact.make(f"person:{n}", "pay", literal=str(rng.randrange(9, 900))),
        ]
    kb = KB(entities, relations, facts)
    trees = FuzzyTrees.of(kb, passages(kb), seed=1)
    grower = trees.grower
    assert grower._twins == {"firm_led": "chief"}
    person = int(np.flatnonzero(trees.graph.type_of == trees.graph.type_number["person"])[0])
    sides = {(relation, forward) for relation, forward, _ in grower._sides(person, "firm_led", random.Random(0))}
    assert sides == {("home", True)}
    assert ("chief", False) in {(r, f) for r, f, _ in grower._sides(person, "pay", random.Random(0))}
    clues = [c for i in range(40) for c in grower._proposals(person, "firm_led", 3, frozenset(), random.Random(i))]
    assert clues and not [c for c in clues if getattr(c, "relation", "") in ("chief", "firm_led")]
