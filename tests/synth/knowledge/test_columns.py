"""Tables of which nobody said what their columns are: what is a number, a day, a flag, a thing; and the words for it."""

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml
from pyarrow import ipc

from flows.cli import main
from synth.knowledge.ingest import build
from synth.knowledge.kb import Relation
from synth.knowledge.rows import Reading, Row
from synth.knowledge.sources import read_source
from synth.knowledge.words import label_of, singular, thing_of, unit_of, wording
from tasks.knowledge import bases
from tasks.knowledge.guess import guess

KINDS = ("nonmetal", "noble gas", "metal", "halogen")
NAMES = "Arvium Belon Corite Dulnium Esterium Farion Gorium Halium Ithium Jorium Kelvium Lorium Mirium Norium Ostium "
NAMES += (
    "Pellium Quarium Rostium Selium Torium Urdium Velium Wolmium Xerium Yorium Zelium Abrium Brolium Crelium Dorium"
)


def elements() -> list[dict]:
    """Thirty made-up elements: classes, units, days, flags, gaps."""
    return [
        {
            "symbol": f"{name[0]}{'abcdefghijklmnopqrstuvwxyz'[i % 26]}",
            "ElementName": name,
            "category": KINDS[i * 7 % 4],
            "melting": f"{1_000 + i * i * 13:,} K" if i % 9 else "N/A",
            "discovered_by": ("Ann Lo", "Bo Ro", "Cy Mo", "Di Go", "unknown")[i * 3 % 5],
            "found_on": f"{3 + i % 9} May {1700 + i * 7}",
            "seen_at": f"2024-05-{1 + i % 28:02}T12:30:00Z",
            "stable": bool(i % 3),
            "period": 1 + i % 6,
        }
        for i, name in enumerate(NAMES.split())
    ]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("elements.json").write_text(json.dumps({"source": "a", "data": {"elements": elements()}}))
    return Path("elements.json")


def test_a_flat_table_without_a_schema_gives_questions(table, capsys):
    assert guess(table) == {
        "kind": "json_records",
        "path": "elements.json",
        "records": "data.elements",
        "type": "element",
        "id": "ElementName",
    }
    assert main(["kb", "build", "elements.json", "--out", "kb"]) == 0
    kb = bases.load(Path("kb"))
    assert {r.name: r.range for r in kb.relations.values()} == {
        "symbol": "string",
        "category": "category",
        "melting": "number",
        "discovered_by": "discoverer",
        "found_on": "date",
        "found_on_year": "year",
        "seen_at": "date",
        "seen_at_year": "year",
        "stable": "string",
        "period": "number",
    }
    assert kb.forward("element:Belon", "melting") == ("1013",) and kb.forward("element:Arvium", "melting") == ()
    assert kb.forward("element:Belon", "found_on") == ("1707-05-04",)
    assert kb.forward("element:Belon", "seen_at") == ("2024-05-02",)
    assert kb.forward("element:Belon", "stable") == ("stable",) and kb.forward("element:Belon", "category") == (
        "category:halogen",
    )
    assert {r.name for r in kb.relations.values() if not r.complete} == {"melting", "discovered_by"}
    capsys.readouterr()
    assert main(["questions", "grow", "--kb", "kb", "--out", "q", "--n", "20", "--depths", "2"]) == 0
    rows = [json.loads(line) for line in Path("q/questions.jsonl").read_text().splitlines()]
    assert len(rows) >= 15 and not any("melting" in r["formalization"] for r in rows)
    assert main(["verify", "q/questions.jsonl", "--kb", "kb"]) == 0
    assert not any("category of" in r["question"] or " a a " in r["question"] for r in rows)
    assert main(["kb", "build", "--schema", "kb/schema.yaml", "--out", "again"]) == 0
    assert bases.load(Path("again")).digest() == kb.digest(), "the schema that was written reads the same"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_the_same_table_in_other_files(table, suffix):
    rows = [{**r, "stable": "yes" if r["stable"] else "no"} for r in elements()]
    if suffix == "jsonl":
        text = "".join(json.dumps(r) + "\n" for r in rows)
    else:
        mark = {"csv": ",", "tsv": "\t"}[suffix]
        text = "".join(mark.join(f'"{c}"' for c in r) + "\n" for r in [list(rows[0]), *(r.values() for r in rows)])
    Path(f"elements.{suffix}").write_text(text)
    kb = bases.build_base([guess(table)], Path("a")), bases.build_base([guess(Path(f"elements.{suffix}"))], Path("b"))
    assert kb[0]["kb"] == kb[1]["kb"]


def test_a_value_that_does_not_fit_its_column_is_set_aside(tmp_path):
    rows = [{"name": f"N{i}", "width": f"{i} km", "on": f"{1 + i} May 1900"} for i in range(20)]
    rows[3] |= {"width": "3 miles", "on": "sometime"}
    (tmp_path / "t.json").write_text(json.dumps(rows))
    built = build([read_source(tmp_path / "t.json", "json_records", name="t", type="road")])
    assert sorted(q.reason for q in built.quarantined) == ["not_a_date", "other_unit"]
    r = built.kb.relations["width"]
    assert r.sentence("N1", ["1"]) == "The width of N1 is 1 kilometres." and not r.complete
    assert r.ask_back("5") == "a road with a width of 5 kilometres"


def test_a_relation_that_holds_both_ways(tmp_path):
    rows = [{"name": a, "friends": b} for a, b in (("Ann", ["Bob", "Cy"]), ("Bob", ["Ann"]), ("Cy", ["Ann"]))]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    r = build([read_source(tmp_path / "t.json", "json_records", name="t", type="person")]).kb.relations["friends"]
    assert r.range == "person" and r.ask("A") == "a person who is a friend of A" == r.ask_back("A")


def test_what_was_guessed_is_written_when_it_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("things.json").write_text('[{"name": "A"}, {"name": "B"}]')
    assert main(["kb", "build", "things.json", "--out", "kb"]) == 2
    error = capsys.readouterr().err
    assert "no fact can be read" in error and "kb.schema.yaml: change the line `id: name` there" in error
    assert yaml.safe_load(Path("kb.schema.yaml").read_text())["sources"][0]["type"] == "thing"


NOUNS = {"movies": "movie", "countries": "country", "people": "person", "boxes": "box", "classes": "class"}
NOUNS |= {"series": "series", "status": "status", "glass": "glass", "Order Details": "Order Detail", "movie": "movie"}


@pytest.mark.parametrize("noun", NOUNS)
def test_singular(noun):
    assert singular(noun) == NOUNS[noun]


def test_labels_and_things():
    assert label_of("CompanyName") == "company name" and label_of("GDP") == "GDP"
    assert thing_of("category_name") == "category" and thing_of("discoveredBy") == "discoverer"
    assert wording("founded", "firm", "year")["label"] == "founding year"
    assert wording("year_discovered", "x", "year")["label"] == "discovery year"
    assert wording("created_at", "x", "date")["label"] == "creation date"
    assert wording("isOpen", "shop", "string", flag=True)["label"] == "open status"
    assert wording("city", "shop", "city", single=True)["inverse"] == "a {domain} in {y}"
    assert wording("first lit", "tower", "year")["label"] == "year of first lighting"
    assert wording("last_updated", "page", "date")["label"] == "date of last update"


PHRASES = {  # (column, domain, range) -> the subject given the object, the object given the subject
    ("country", "author", "country"): ("an author from Y", "the country that Y is from"),
    ("city", "author", "string"): ("an author from Y", "the city of Y"),
    ("country", "bridge", "country"): ("a bridge in Y", "the country that Y is in"),
    ("valley", "hut", "valley"): ("a hut in Y", "the valley that Y is in"),
    ("room", "painting", "room"): ("a painting in Y", "the room that Y is in"),
    ("room", "author", "room"): ("the author whose room is Y", "the room of Y"),
    ("birth place", "author", "town"): ("an author who was born in Y", "the birthplace of Y"),
    ("birthplace", "horse", "town"): ("the horse whose birthplace is Y", "the birthplace of Y"),
    ("next stop", "stop", "stop"): ("the stop whose next stop is Y", "the next stop after Y"),
    ("previous", "stop", "stop"): ("the stop whose previous stop is Y", "the previous stop before Y"),
    ("next rival", "club", "team"): ("the club whose next rival is Y", "the next rival of Y"),
    ("line", "station", "line"): ("a station on Y", "the line of Y"),
    ("line", "author", "line"): ("the author whose line is Y", "the line of Y"),
}


@pytest.mark.parametrize("column, domain, range", PHRASES)
def test_columns_that_have_a_phrase_of_their_own(column, domain, range):
    r = Relation(name="r", domain=domain, range=range, **wording(column, domain, range, single=True))
    assert (r.ask_back("Y"), r.ask("Y")) == PHRASES[column, domain, range]


def test_triples_are_worded_as_columns_are():
    said = {
        "birth_place": ("architect", "town", "Ann was born in Olm."),
        "country": ("town", "country", "Olm is in Vesta."),
        "next_station": ("station", "station", "The next station after East is West."),
        "made_in": ("film", "country", "The made in of Fog is Vesta."),
    }
    names = {"architect": "Ann", "town": "Olm", "station": "East", "film": "Fog"}
    rows = []
    for relation, (a, b, _) in said.items():
        y = {"country": "Vesta", "station": "West"}.get(b, "Olm")
        rows.append(
            Row(subject=names[a], relation=relation, object=y, subject_type=a, object_type=b, source="s", span="s")
        )
    kb = build([Reading(rows=rows)]).kb
    for relation, (a, b, text) in said.items():
        y = {"country": "Vesta", "station": "West"}.get(b, "Olm")
        assert kb.relations[relation].sentence(names[a], [y]) == text
    stated = build([Reading(rows=rows)], edited={"country": {"label": "land"}}).kb.relations["country"]
    assert stated.ask_back("Y") == "the town whose land is Y"  # what a person says stands


def test_the_years_of_a_last_date(tmp_path):
    (tmp_path / "t.csv").write_text(
        "tower,Last restored\n" + "".join(f"Tower {a},19{i + 10}-05-0{i + 1}\n" for i, a in enumerate("ABCDEF"))
    )
    relations = build([read_source(tmp_path / "t.csv", "csv_records", name="t", type="tower")]).kb.relations
    assert [relations[r].label for r in ("Last restored", "Last restored_year")] == [
        "date of last restoration",
        "year of last restoration",
    ]


def test_units_in_heads_dates_with_dots_and_places(tmp_path):
    units = {"Height (cm)": "cm", "Weight kg": "kg", "price_eur": "eur", "Length [m]": "m", "share (in %)": "%"}
    none = ("Revenue (m)", "size m", "temp min", "vitamin k", "kg", "height", "Team (old)")
    assert {c: unit_of(c) for c in units} == units and {unit_of(c) for c in none} == {""}
    (tmp_path / "boats.csv").write_text(
        "boat,Weight kg,Stored at,Last service\n"
        + "".join(
            f"Boat {a},{14 + i % 3},{'Mill' if i % 2 else 'North'} Shed,{i + 1}.9.2024\n"
            for i, a in enumerate("ABCDEF")
        )
    )
    kb = build([read_source(tmp_path / "boats.csv", "csv_records", name="b", type="boat")]).kb
    weight, stored, service = (kb.relations[r] for r in ("Weight kg", "Stored at", "Last service"))
    assert weight.sentence("Boat A", ["14"]) == "The weight of Boat A is 14 kilograms."
    assert (stored.range, stored.sentence("Boat A", ["North Shed"])) == ("place", "Boat A is stored at North Shed.")
    assert (stored.ask("Boat A"), stored.ask_back("Mill Shed")) == (
        "the storage place of Boat A",
        "a boat that is stored at Mill Shed",
    )
    assert service.range == "date" and kb.forward("boat:Boat A", "Last service") == ("2024-09-01",)
    assert wording("born_in", "person", "place", single=True)["passage"] == "{x} was born in {y}."


def test_the_column_that_names(tmp_path):
    rows = [{"CustomerID": f"X{i}", "ContactName": f"Jo {i}", "CompanyName": f"Firm {i} and Sons"} for i in range(9)]
    (tmp_path / "Customers.json").write_text(json.dumps(rows))
    assert (guess(tmp_path / "Customers.json")["id"], guess(tmp_path / "Customers.json")["type"]) == (
        "CompanyName",
        "customer",
    )
    (tmp_path / "codes.csv").write_text("n,label,x\n1,alpha,5\n2,beta,5\n")
    assert guess(tmp_path / "codes.csv")["id"] == "label"


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_tables_of_arrow(tmp_path, suffix):
    rows = [{"name": f"N{i}", "size": i, "since": date(1900 + i, 2, 3), "tags": ["a", "b"][: i % 3]} for i in range(9)]
    path, table = tmp_path / f"firms.{suffix}", pa.Table.from_pylist(rows)
    if suffix == "parquet":
        pq.write_table(table, path)
    elif suffix == "feather":
        feather.write_feather(table, path)
    else:
        with ipc.new_stream(path, table.schema) as out:
            out.write_table(table)
    assert guess(path)["kind"] == "arrow_records" and guess(path)["type"] == "firm"
    kb = build([read_source(path, "arrow_records", name="t", type="firm")]).kb
    assert kb.forward("firm:N4", "since") == ("1904-02-03",) and kb.forward("firm:N4", "size") == ("4",)
    assert kb.forward("firm:N1", "tags") in (("a",), ("tag:a",)) and kb.relations["tags"].complete
    path.write_bytes(b"no table at all")
    with pytest.raises(ValueError, match="is no Parquet or Arrow file"):
        read_source(path, "arrow_records", name="t")


def test_code_templates_and_heads_are_no_facts_and_titles_differ(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "intro.md").write_text(
        "---\nlayout: page\nowner: Ann\n---\n# Intro\n\nCapital: Zelton\n\n```yaml\ncity: Danu\n```\n\n"
        "`key: x` is set\n\nsite: {{ site.name }}\n\n| Field | Value |\n|---|---|\n| River | Selk |\n"
    )
    (tmp_path / "intro.md").write_text("# Intro\n\nCapital: Danu\n")
    (tmp_path / "b.html").write_text(
        "<header><h1>The Book</h1></header><main><h1>Chapter</h1><pre>mode: fast</pre><p>Owner: Bob</p></main>"
    )
    (tmp_path / "c.odt").write_bytes(b"PK")
    reading = read_source(tmp_path, "documents", name="d")
    assert {(r.subject, r.relation, r.object) for r in reading.rows} == {
        ("Intro", "owner", "Ann"),
        ("Intro", "capital", "Zelton"),
        ("Intro", "river", "Selk"),
        ("Intro (d)", "capital", "Danu"),
        ("Chapter", "owner", "Bob"),
    }
    assert not reading.quarantined and reading.skipped == {"d/c.odt": "no reader of documents knows .odt"}
    assert "city: Danu" in reading.documents[0].text, "search still finds it"
    (tmp_path / "members.xlsx").write_bytes(b"")
    assert "a source of its own" in read_source(tmp_path, "documents", name="d").skipped["d/members.xlsx"]


CAPITALS = (
    "country,capital,people,highest,note\n"
    'Aland,"Pret (administrative capital); Cape (legislative capital)",Aland(s),"Maf 3,450 m",Aa (north)\n'
    "Bland,Vien (Viang),Lao(s) or Laotian,Bia 2817 m,Aa (south)\n"
    'Cland,Zelton,Clander,"Sel 1,200 m",Bb (north)\n'
)


@pytest.mark.parametrize("edited", [None, {"capital": {"range": "string"}, "highest": {"range": "string"}}])
def test_the_answers_in_a_column_are_names_alone(tmp_path, edited):
    """Lists, measures and endings in brackets are read; a note that tells two names apart stays."""
    (tmp_path / "t.csv").write_text(CAPITALS)
    built = build([read_source(tmp_path / "t.csv", "csv_records", name="t.csv", type="land")], edited=edited)
    facts = {(f.subject[5:], f.relation, built.kb.text(f.value)) for f in built.kb.facts.values()}
    assert {o for _, r, o in facts if r == "capital"} == {"Pret", "Cape", "Vien", "Zelton"}
    assert not built.kb.relations["capital"].functional and built.produced == built.accepted + 1
    assert {o for _, r, o in facts if r == "people"} == {"Aland", "Clander"}
    assert {o for _, r, o in facts if r == "highest"} == {"Maf", "Bia", "Sel"}
    assert {o for _, r, o in facts if r == "note"} == {"Aa (north)", "Aa (south)", "Bb (north)"}
    assert [q.reason for q in built.quarantined] == ["unclear"]
