"""What a cell says where it says nothing, by the company it keeps; and which relations of a table are complete."""

import json

import pytest

from synth.knowledge.ingest import build
from synth.knowledge.missing import missing
from synth.knowledge.sources import read_source

CASES = {
    "numbers": (["12", "7.5", "NA", "NaN", "-", "N/A", "unknown", ""], {"NA", "NaN", "-", "N/A", "unknown", ""}),
    "codes of countries": (["DE", "FR", "NA", "NG", "-"], {"-"}),
    "symbols of elements": (["H", "He", "Na", "Cl", "N/A"], {"N/A"}),
    "airports": (["NAN", "SUV", "AKL"], set()),
    "provinces": (["Nan", "Phrae", "Loei", "nan"], {"nan"}),
    "families": (["Null", "Miller", "Smith", "null", "NULL"], {"null", "NULL"}),
    "longer words": (["Europe", "Asia", "Africa", "NA"], {"NA"}),
    "texts": (["red and blue", "Nan", "pale green", "None"], {"Nan", "None"}),
    "dates": (["1999-01-02", "2001-05-06", "null"], {"null"}),
    "one alone": (["NA"], {"NA"}),
    "words that hold one": (["unknown soldier", "nancy", "no-one"], set()),
}


@pytest.mark.parametrize("values, gone", CASES.values(), ids=CASES)
def test_what_is_missing(values, gone):
    assert missing(values) == gone


def table(tmp_path, records, **options):
    (tmp_path / "t.json").write_text(json.dumps(records))
    reading = read_source(tmp_path / "t.json", "json_records", name="t.json", type="person", **options)
    return reading, build([reading])


PEOPLE = [
    {"name": "Ann", "height": "170", "city": "Oslo", "code": "DE", "friends": ["Bob"]},
    {"name": "Bob", "height": "NA", "city": "unknown", "code": "NA", "friends": []},
    {"name": "Cleo", "height": float("nan"), "city": "Rome", "code": "FR", "friends": ["Ann"]},
    {"name": "N/A", "height": "1"},
]


def test_a_missing_cell_is_no_fact_and_leaves_the_column_numbers(tmp_path):
    reading, built = table(tmp_path, PEOPLE)
    assert {(f.subject, f.relation, f.value) for f in built.kb.facts.values()} == {
        ("person:Ann", "height", "170"),
        ("person:Ann", "city", "Oslo"),
        ("person:Cleo", "city", "Rome"),
        *((f"person:{n}", "code", c) for n, c in (("Ann", "DE"), ("Bob", "NA"), ("Cleo", "FR"))),
        ("person:Ann", "friends", "person:Bob"),
        ("person:Cleo", "friends", "person:Ann"),
    }
    assert built.kb.relations["height"].range == "number" and reading.missing == {"NA": 1, "NaN": 1, "unknown": 1}
    assert [q.reason for q in built.quarantined] == ["missing_name"]


def test_a_relation_of_a_table_is_complete_where_every_record_says(tmp_path):
    """Gaps are unknown: nothing can be said of who lacks a height; that Bob has no friends is listed."""
    _, built = table(tmp_path, PEOPLE)
    assert {r.name for r in built.kb.relations.values() if r.complete} == {"code", "friends"} == set(built.listed)
    _, built = table(tmp_path, [*PEOPLE, {"name": "Dan", "code": "IT", "friends": ["Eve", "Bob", "Ann"]}])
    assert not built.kb.relations["code"].complete, "Eve is a person and no record says anything of her"


def test_a_row_set_aside_or_a_statement_leaves_the_relation_open(tmp_path):
    people = [{"name": "Ann", "age": 3}, {"name": "Bob", "age": 4}]
    fields = {"age": {"path": "age", "complete": False}}
    assert table(tmp_path, people)[1].kb.relations["age"].complete
    assert not table(tmp_path, people, fields=fields)[1].kb.relations["age"].complete
    fields = {"age": {"path": "age", "functional": True}}
    people[1]["age"] = [4, 5]
    assert not table(tmp_path, people, fields=fields)[1].kb.relations["age"].complete


def test_the_words_can_be_changed(tmp_path):
    _, built = table(tmp_path, [{"name": "A", "x": "none"}, {"name": "B", "x": "tbd"}], missing=["TBD"])
    assert [f.value for f in built.kb.facts.values()] == ["none"]
    with pytest.raises(ValueError, match="write a list of texts"):
        table(tmp_path, PEOPLE, missing="tbd")


def test_missing_values_of_csv_sql_and_documents(tmp_path):
    (tmp_path / "t.csv").write_text("subject,relation,object\nA,height,1\nB,height,n/a\nC,height,2\nD,height,\n")
    reading = read_source(tmp_path / "t.csv", "csv_triples", name="t.csv")
    assert reading.missing == {"n/a": 1} and build([reading]).kb.relations["height"].range == "number"
    assert [q.reason for q in build([reading]).quarantined] == ["missing_object"], (
        "a triple without an object is a slip"
    )
    (tmp_path / "t.sql").write_text(
        "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT, size TEXT, hue TEXT);"
        "INSERT INTO a VALUES (1, 'X', '5', 'red'), (2, 'Y', 'NULL', 'blue');"
    )
    built = build([read_source(tmp_path / "t.sql", "sqlite_tables", name="t.sql")])
    assert built.kb.relations["size"].range == "number"
    assert {r.name for r in built.kb.relations.values() if r.complete} == {"hue"}
    (tmp_path / "d").mkdir()
    for name, height in (("Alp", "812 m"), ("Bex", "unknown"), ("Col", "77 m"), ("Dor", "N/A")):
        (tmp_path / "d" / f"{name}.md").write_text(f"# {name}\n\n- Height: {height}\n")
    reading = read_source(tmp_path / "d", "documents", name="d")
    assert reading.missing == {"unknown": 1, "N/A": 1} and not reading.quarantined
    assert sorted(r.object for r in reading.rows if r.relation == "height") == ["77", "812"]
