"""Questions as V@/C@ triples: ours exported, others' read and inspected, with a knowledge base and without."""

import json
import sqlite3

import pytest

from synth.knowledge.kb import KB, Entity, Fact, Relation
from synth.questions.fuzzy.triples import Formal, inspect, read, triples_of
from synth.questions.pattern import Clue, Named, Node, Nothing, Pattern, Span, Than, Third

TYPES = {
    "capital": ("country", "city"),
    "currency": ("country", "money"),
    "river": ("river", "country"),
    "mayor": ("city", "person"),
}
FACTS = (
    ("Norvia", "capital", "Zelton"),
    ("Pol", "capital", "Morra"),
    ("Halia", "capital", "Dan"),
    ("Norvia", "currency", "Rel"),
    ("Pol", "currency", "Rel"),
    ("Halia", "currency", "Cro"),
    ("Sim", "river", "Norvia"),
    ("Sim", "river", "Halia"),
    ("Zelton", "mayor", "Lio"),
    ("Morra", "mayor", "Ana"),
    ("Dan", "mayor", "Lio"),
)


@pytest.fixture(scope="module")
def tables() -> sqlite3.Connection:
    relations = [Relation(name=r, domain=a, range=b, label=r) for r, (a, b) in TYPES.items()]
    named = {
        Entity.make(TYPES[r][k], x, aliases=["the Rell"] if x == "Rel" else [])
        for s, r, o in FACTS
        for k, x in ((0, s), (1, o))
    }
    facts = [Fact.make(f"{TYPES[r][0]}:{s}", r, object=f"{TYPES[r][1]}:{o}") for s, r, o in FACTS]
    connection = sqlite3.connect(":memory:")
    KB(sorted(named, key=lambda e: e.id), relations, facts).sqlite(connection)
    return connection


def formal(*triples: tuple[str, str, str], question: str = "Which city?", answer: str = "Zelton") -> Formal:
    return Formal(id="1", question=question, answer=answer, triples=triples)


ASK = ("V@X", "capital", "?")
RIVER, MONEY = ("C@Sim", "river", "V@X"), ("V@X", "currency", "C@THE rell")


def test_a_clean_question(tables: sqlite3.Connection) -> None:
    """The constants hang on a variable that is not the one whose attribute is asked."""
    clean = formal(("V@Y", "mayor", "V@P"), ("V@X", "capital", "V@Y"), ("V@X", "currency", "C@Cro"), ("V@P", "is", "?"))
    assert inspect(clean).clean and inspect(clean).answers is None
    asks_mayor = formal(("V@X", "capital", "V@Y"), ("V@X", "currency", "C@Cro"), ("V@Y", "mayor", "?"), answer="Lio")
    finding = inspect(asks_mayor, tables)
    assert finding.clean and finding.answers == ("person:Lio",) and finding.redundant == ()


@pytest.mark.parametrize(
    ("question", "finding"),
    [
        (formal(ASK, RIVER), {"beside": (1,)}),
        (formal(("C@Norvia", "capital", "?")), {"beside": (0,)}),
        (formal(ASK, ("V@X", "near", "V@Z"), ("V@Z", "near", "C@Pol")), {"beside": ()}),
        (formal(ASK, ("C@Sim", "river", "C@Norvia")), {"pairs": (1,), "unconnected": ()}),
        (formal(ASK, ("V@A", "currency", "V@B")), {"unconnected": (1,)}),
        (formal(ASK, question="Is it Zelton or another city?"), {"leak": "the question says the answer"}),
        (formal(ASK, ("V@X", "capital", "C@zelton")), {"leak": "a constant is the answer"}),
        (formal(("V@X", "capital", "?city"), RIVER), {"beside": (1,)}),
    ],
)
def test_what_a_question_shows_without_a_knowledge_base(question: Formal, finding: dict) -> None:
    inspected = inspect(question)
    assert {k: getattr(inspected, k) for k in finding} == finding
    assert inspected.answers is None and inspected.redundant is None


def test_what_a_knowledge_base_adds(tables: sqlite3.Connection) -> None:
    assert inspect(formal(ASK, RIVER), tables).answers == ("city:Dan", "city:Zelton")
    both = inspect(formal(ASK, RIVER, MONEY), tables)  # an alias, and case ignored
    # Constants beside what is asked.
    assert both.answers == ("city:Zelton",) and both.redundant == () and not both.clean
    spare = inspect(formal(ASK, RIVER, MONEY, ("V@Y", "currency", "C@Cro")), tables)
    assert spare.redundant == (3,) and spare.unconnected == (3,)
    assert inspect(formal(ASK, ("V@X", "currency", "C@Gold")), tables).unknown == ("C@Gold",)
    assert inspect(formal(ASK, ("V@X", "anthem", "V@Y")), tables).unknown == ("anthem",)
    cyclic = formal(
        ("V@X", "capital", "V@Y"),
        ("V@Y", "mayor", "V@P"),
        ("V@Z", "capital", "V@W"),
        ("V@W", "mayor", "V@P"),
        ("V@X", "currency", "C@Cro"),
        ("V@Z", "currency", "?"),
    )
    assert inspect(cyclic, tables).answers == ("money:Cro", "money:Rel"), (
        "the mayor of two capitals: a graph, not a tree"
    )


def test_rows_are_read_or_set_aside() -> None:
    row = {"id": 7, "question": "?", "answer": "x", "formalization": [list(ASK), list(RIVER)], "urls": []}
    texts = [
        json.dumps(r)
        for r in (
            row,
            row | {"formalization": json.dumps([list(ASK)])},
            {"question": "?"},
            row | {"formalization": [["V@X", "r"]]},
            row | {"formalization": [["C@", "r", "?"]]},
            row | {"formalization": [["V@X", "r", "V@Y"]]},
            row | {"formalization": "no list"},
            row | {"formalization": 3},
            row | {"formalization": [["V@X", "", "?"]]},
            row | {"formalization": [["V@X", "r", None]]},
            row | {"formalization": "__import__('os').system('true')"},
        )
    ] + ["{"]
    questions, quarantined = read([(f"line {i}", t) for i, t in enumerate(texts)])
    assert [f.triples for f in questions] == [(ASK, RIVER), (ASK,)] and questions[0].id == "7"
    assert [q.id for q in quarantined] == [f"line {i}" for i in range(2, 12)]
    assert (
        "lacks the key 'formalization'" in quarantined[0].evidence
        and "no name behind the @" in quarantined[2].evidence
        and "neither V@variable" in quarantined[7].evidence
        and "what is asked" in quarantined[3].evidence
    )


@pytest.mark.parametrize(
    "written",
    [
        "[['V@X', 'capital', '?'], ['C@Sim', 'river', 'V@X']]",  # as Python prints it
        [{"subject": "V@X", "relation": "capital", "object": "?"}, ["Sim", "river", "v@X"]],
        [["V@X", "capital", " ? "], ["C @ Sim", "river", "V@ X"]],
        [["V@X", "capital", "?"], [["C@Sim"], "river", ["V@X"]]],
    ],
)
def test_what_others_write_is_read_as_the_same_triples(written: object) -> None:
    rows = [("line 1", json.dumps({"question": "q", "answer": "a", "formalization": written}))]
    questions, quarantined = read(rows)
    assert not quarantined and questions[0].triples == (ASK, RIVER)


def test_lists_numbers_and_the_only_variable() -> None:
    def triples(written: object) -> tuple:
        return read([("1", json.dumps({"question": "q", "answer": "a", "formalization": written}))])[0][0].triples

    assert triples([["?", "genre", ["C@jazz", "C@rock"]]]) == (("?", "genre", "C@jazz"), ("?", "genre", "C@rock"))
    assert triples([["?", "founded", 1950]]) == (("?", "founded", "C@1950"),)
    assert triples([["V@X", "born", "C@Pol"], ["C@Lio", "teacher", "V@X"]]) == (
        ("?", "born", "C@Pol"),
        ("C@Lio", "teacher", "?"),
    )


def test_a_bare_type_beside_what_is_asked_is_a_weaker_finding() -> None:
    kind = ("V@X", "is a", "C@country")
    far = ("V@X", "near", "V@Z"), ("V@Z", "near", "C@Pol")
    only = inspect(formal(ASK, kind, *far))
    assert only.beside == only.weak == (1,) and only.clean
    both = inspect(formal(ASK, kind, RIVER))
    assert both.beside == (1, 2) and both.weak == (1,) and not both.clean
    assert not inspect(formal(ASK, ("V@X", "is", "C@Norvia"))).weak, "that says which one"
    assert not inspect(formal(ASK, ("C@country", "instance of", "V@X"))).weak


def test_ours_are_exported_with_vague_values_in_words() -> None:
    inside = Node(type="city", clues=(Clue(relation="mayor", forward=True, target="person:Lio"),))
    clues = (
        Clue(relation="capital", forward=True, target=inside),
        Named(initial="N", words=2),
        Clue(relation="size", forward=True, target=Third(largest=True)),
        Clue(relation="size", forward=True, target=Span(low=1.0, high=2.0, said="between 1 and 2")),
        Clue(relation="river", forward=False, target=Nothing()),
        Clue(relation="size", forward=True, target=Than(larger=True, other="country:Pol")),
    )
    pattern = Pattern(relation="currency", forward=True, root=Node(type="country", clues=clues))
    assert triples_of(pattern, lambda x: x.split(":")[1]) == [
        ["V@city2", "mayor", "C@Lio"],
        ["V@country1", "capital", "V@city2"],
        ["V@country1", "name of 2 words begins with", "C@N"],
        ["V@country1", "size", "C@top third"],
        ["V@country1", "size", "C@between 1 and 2"],
        ["C@none", "river", "V@country1"],
        ["V@country1", "size above that of", "C@Pol"],
        ["V@country1", "currency", "?"],
    ]
    assert inspect(formal(*map(tuple, triples_of(pattern)))).unconnected == ()
