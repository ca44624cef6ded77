"""Tables as sources: CSV records, JSON folders with readers of their own, SQLite with foreign keys; and what is wrong
with them."""

import json
import sqlite3
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from synth.knowledge.ingest import build
from synth.knowledge.names import names
from synth.knowledge.sources import read_source
from synth.knowledge.world import RELATIONS
from synth.knowledge.sources.sqlite_tables import _open, inferred, snake

DATA = Path(__file__).parents[4] / "shared" / "data"
needs = pytest.mark.skipif(not DATA.is_dir(), reason="the real data are not beside this checkout (../shared/data)")
SHOP = """
CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY, Name TEXT);
CREATE TABLE Album (AlbumId INTEGER PRIMARY KEY, Title TEXT, ArtistId INTEGER REFERENCES Artist, Released TEXT, Cover BLOB);
CREATE TABLE Person (PersonId INTEGER PRIMARY KEY, FirstName TEXT, LastName TEXT, Title TEXT, Boss INTEGER REFERENCES Person(PersonId));
CREATE TABLE List (ListId INTEGER PRIMARY KEY, Name TEXT);
CREATE TABLE ListAlbum (ListId INTEGER REFERENCES List(ListId), AlbumId INTEGER REFERENCES Album(AlbumId), PRIMARY KEY (ListId, AlbumId));
INSERT INTO Artist VALUES (1, 'Ann'), (2, 'Bob');
INSERT INTO Album VALUES (1, 'First', 1, '1999-05-03 00:00:00', x'00'), (2, 'Live', 1, NULL, NULL), (3, 'Live', 2, NULL, NULL),
  (4, 'Live', 2, NULL, NULL), (5, 'Lost', 9, NULL, NULL), (6, NULL, 2, NULL, NULL);
INSERT INTO Person VALUES (1, 'Eva', 'Lo', 'Chief', NULL), (2, 'Jo', 'Ro', 'Clerk', 1), (3, 'Al', 'Mo', 'Clerk', 3);
INSERT INTO List VALUES (1, 'Hits');
INSERT INTO ListAlbum VALUES (1, 1), (1, 2), (7, 1), (1, 77);
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.sql").write_text(SHOP)
    return tmp_path / "shop.sql"


def facts(built):
    return {(f.subject, f.relation, f.value) for f in built.kb.facts.values()}


def test_foreign_keys_are_relations_between_entities(shop):
    reading = read_source(shop, "sqlite_tables", name="shop.sql")
    built = build([reading])
    triples = facts(built)
    assert ("album:First", "artist", "artist:Ann") in triples and ("list:Hits", "list_album", "album:First") in triples
    assert ("album:First", "released", "1999-05-03") in triples and ("album:First", "released_year", "1999") in triples
    assert ("person:Jo Ro", "boss", "person:Eva Lo") in triples and ("person:Jo Ro", "title", "title:Clerk") in triples
    assert {s for s, _, _ in triples if s.startswith("album:Live")} == {
        "album:Live (Ann)",
        "album:Live (Bob) #3",
        "album:Live (Bob) #4",
    }
    assert ("album:album 6", "artist", "artist:Bob") in triples  # a row without a name
    assert Counter(q.reason for q in built.quarantined) == {"unknown_reference": 3, "self_reference": 1}
    assert built.produced == built.accepted + len(built.quarantined)
    assert built.kb.relations["artist"].functional and not built.kb.relations["list_album"].functional
    assert built.kb.relations["released"].range == "date"
    assert built.kb.relations["list_album"].sentence("Hits", ["First"]) == "Hits includes the album First."


@pytest.mark.parametrize(
    "table, said",
    {
        "loans": "a member who borrowed Fog",
        "HomeRental": "a member who rented Fog",
        "items": "a member who has Fog",
    }.items(),
)
def test_what_people_did_is_the_name_of_the_table(tmp_path, table, said):
    script = "CREATE TABLE members (id INTEGER PRIMARY KEY, name TEXT);\n"
    script += "CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT);\n"
    script += f"CREATE TABLE {table} (m INTEGER REFERENCES members(id), b INTEGER REFERENCES books(id));\n"
    script += "INSERT INTO members VALUES (1, 'Ann'), (2, 'Bo');\nINSERT INTO books VALUES (1, 'Fog'), (2, 'Sea');\n"
    script += f"INSERT INTO {table} VALUES (1, 1), (2, 1), (2, 2);\n"
    (tmp_path / "x.sql").write_text(script)
    built = build([read_source(tmp_path / "x.sql", "sqlite_tables", name="x.sql")])
    (link,) = (r for r in built.kb.relations.values() if r.domain == "member" and r.range == "book")
    assert link.ask_back("Fog") == said
    assert link.ask("Ann") == (
        "a book that Ann has" if table == "items" else f"a book that was {said.split()[3]} by Ann"
    )


def test_a_database_file_reads_as_its_script_does_and_stays_as_it_was(shop, tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(SHOP)
    before = path.read_bytes()
    assert facts(build([read_source(path, "sqlite_tables", name="x")])) == facts(
        build([read_source(shop, "sqlite_tables", name="x")])
    )
    assert path.read_bytes() == before and not list(tmp_path.glob("shop.db-*"))


def test_the_inferred_tables_can_be_edited(shop):
    with _open(shop, "shop.sql") as connection:
        tables = inferred(connection)
    assert tables["Album"] == {
        "type": "album",
        "name": ["Title"],
        "facts": {"artist": "ArtistId", "released": "Released"},
    }
    assert tables["Person"]["name"] == ["FirstName", "LastName"] and tables["ListAlbum"]["link"]["subject"] == "ListId"
    same = build([read_source(shop, "sqlite_tables", name="s", tables=tables)])
    assert facts(same) == facts(build([read_source(shop, "sqlite_tables", name="s")]))
    own = {
        "Artist": {"type": "musician", "name": ["Name"]},
        "Album": {"type": "record", "name": ["Title"], "facts": {"by": "ArtistId"}},
    }
    assert ("record:First", "by", "musician:Ann") in facts(
        build([read_source(shop, "sqlite_tables", name="s", tables=own)])
    )


@pytest.mark.parametrize(
    "tables, message",
    [
        ({"Albums": {"type": "a"}}, "no table 'Albums': its tables are Album"),
        ({"Album": {"facts": {}}}, "must be {type, name, facts}"),
        ({"Album": {"type": "a", "name": ["Titel"]}}, "no column 'Titel'"),
        ({"ListAlbum": {"link": {"relation": "x"}}}, "must say relation, subject and object"),
        (
            {"ListAlbum": {"link": {"relation": "x", "subject": "ListId", "object": "AlbumId"}}},
            "links 'List', which has no type",
        ),
        (
            {"Album": {"link": {"relation": "x", "subject": "AlbumId", "object": "ArtistId"}}},
            "refers to no other table",
        ),
        ({"Artist": {"type": "a", "name": ["Name"]}}, "holds no row that states anything"),
    ],
)
def test_wrong_tables_are_one_sentence(shop, tables, message):
    with pytest.raises(ValueError, match=message):
        read_source(shop, "sqlite_tables", name="shop.sql", tables=tables)


@pytest.mark.parametrize(
    "script",
    [
        "no sql at all",
        "ATTACH 'OTHER' AS other;",
        "SELECT load_extension('/tmp/x.so');",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n;",
    ],
    ids=["text", "attach", "extension", "endless"],
)
def test_a_script_may_make_tables_and_nothing_else(tmp_path, script, monkeypatch):
    monkeypatch.setattr(import_module("synth.knowledge.sources.sqlite_tables"), "_STEPS", 1_000_000)
    (tmp_path / "bad.sql").write_text(f"CREATE TABLE t (a);\n{script.replace('OTHER', str(tmp_path / 'x.db'))}\n")
    with pytest.raises(ValueError, match="bad.sql is no SQLite database or script"):
        read_source(tmp_path / "bad.sql", "sqlite_tables", name="bad.sql")
    assert not (tmp_path / "x.db").exists()
    (tmp_path / "bad.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ValueError, match="bad.db is no SQLite database"):
        read_source(tmp_path / "bad.db", "sqlite_tables", name="bad.db")


def test_snake():
    assert snake("InvoiceLineId") == "invoice_line_id" and snake("Unit Price") == "unit_price"


# ---- CSV records


def table(tmp_path, text, **options):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    reading = read_source(tmp_path / "t.csv", "csv_records", name="t.csv", type="country", **options)
    return reading, build([reading])


def test_csv_records(tmp_path):
    text = "name,capital,borders,area,since\nNorvia,Zelton,Halia; Sudria,12.5,1950\nHalia,Danu,Norvia,,1960\n\nSudria,,,7,1970\nHalia,x,,,\nA,b\n"
    reading, built = table(
        tmp_path,
        text,
        split=";",
        fields={
            "capital": {"path": "capital", "range": "city"},
            "border": "borders",
            "area": "area",
            "since": {"path": "since", "range": "year"},
        },
    )
    assert facts(built) >= {
        ("country:Norvia", "capital", "city:Zelton"),
        ("country:Norvia", "border", "country:Sudria"),
        ("country:Norvia", "area", "12.5"),
        ("country:Halia", "since", "1960"),
    }
    assert (
        built.kb.forward("country:Halia", "area") == ()
        and built.kb.facts_of("country:Norvia", "area")[0].source == "t.csv line 2"
    )
    assert Counter(q.reason for q in built.quarantined) == {"wrong_columns": 1, "duplicate_record": 1}
    blank, rows = table(tmp_path, "name;area\n\n;\nNorvia;5\n\n", delimiter=";")
    assert [q.reason for q in blank.quarantined] == ["blank_row"] and rows.produced == 2, "an empty line is no row"
    everything, _ = table(tmp_path, "name;area\nNorvia;5\n", delimiter=";")
    assert [(r.relation, r.object) for r in everything.rows] == [("area", "5")]


@pytest.mark.parametrize(
    "text, options, message",
    [
        ("a,a\n1,2\n", {}, "has the column 'a' twice"),
        ("a,b\n", {}, "is a source without rows"),
        ('a,b\n"x,1\n', {}, "is not CSV"),
        ("a,b\n1,2\n", {"id": "c"}, "no column 'c': its columns are a, b"),
        ("a,b\n1,2\n", {"fields": {"r": "z"}}, "no column 'z'"),
        ("a,b\n1,2\n", {"fields": {"r": {"path": "b", "read": "guess"}}}, "has read: 'guess'"),
        ("a,b\n1,2\n", {"fields": {"r": {"path": "b", "pattern": "("}}}, "no regular expression"),
    ],
)
def test_wrong_tables_of_csv(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        table(tmp_path, text, **options)


# ---- JSON folders


def test_a_folder_of_json_records_with_readers(tmp_path):
    folder = tmp_path / "pages"
    (folder / "north").mkdir(parents=True)
    page = {
        "n": "Norvia",
        "area": "28,748 sq km (land)",
        "near": "Halia 55 km; Sudria 3 km",
        "born": "14 July 1789",
        "pop": "many",
        "code": "x A1, y B2",
    }
    (folder / "north" / "no.json").write_text(json.dumps(page))
    (folder / "ha.json").write_text(json.dumps({"n": "Halia"}))
    fields = {
        "area": {"path": "area", "range": "number", "read": "quantity"},
        "near": {"path": "near", "range": "country", "read": "names"},
        "day": {"path": "born", "read": "date"},
        "year": {"path": "born", "read": "year"},
        "pop": {"path": "pop", "read": "quantity"},
        "code": {"path": "code", "pattern": r"\b([A-Z]\d)\b"},
    }
    reading = read_source(folder, "json_records", name="pages", type="country", id="n", fields=fields)
    built = build([reading])
    assert {(r, v) for _, r, v in facts(built)} == {
        ("area", "28748"),
        ("near", "country:Halia"),
        ("near", "country:Sudria"),
        ("day", "1789-07-14"),
        ("year", "1789"),
        ("code", "A1"),
        ("code", "B2"),
    }
    assert Counter(q.reason for q in built.quarantined) == {"not_quantity": 1}
    assert next(iter(built.kb.facts.values())).source == "pages/north/no.json"


def test_names_of_a_list():
    assert names("Germany 11%, Italy 9%, Bosnia (north) 8% (2023)") == ["Germany", "Italy", "Bosnia"]
    assert names("") == [] and names("x" * 30_000) == []


# ---- facts that cannot stand


def test_cycles_stand_and_self_reference_does_not(tmp_path):
    (tmp_path / "t.csv").write_text("subject,relation,object\nA,part_of,B\nB,part_of,C\nC,part_of,A\nA,part_of,A\n")
    built = build([read_source(tmp_path / "t.csv", "csv_triples", name="t.csv")])
    assert built.accepted == 3 and [q.reason for q in built.quarantined] == ["self_reference"]
    assert built.kb.density()["walks"][4] == 1.0  # round and round


def test_a_relation_declared_functional_that_is_not(tmp_path):
    (tmp_path / "relations.csv").write_text("name,functional\ncapital,true\n")
    (tmp_path / "t.csv").write_text("subject,relation,object\nA,capital,B\nA,capital,C\n")
    built = build([read_source(tmp_path / "t.csv", "csv_triples", name="t.csv", relations="relations.csv")])
    assert built.kb.forward("thing:A", "capital") == ("B",) and [q.reason for q in built.quarantined] == [
        "duplicate_key"
    ]


@needs
def test_chinook():
    reading = read_source(DATA / "chinook" / "Chinook_Sqlite.sql", "sqlite_tables", name="chinook.sql")
    built = build([reading])
    kb = built.kb
    assert (built.accepted, len(built.quarantined)) == (38_895, 0)
    assert (
        kb.forward("album:Let There Be Rock", "artist") == ("artist:AC/DC",)
        and len(kb.forward("playlist:Grunge", "playlist_track")) == 15
    )
    assert (
        kb.forward("employee:Jane Peacock", "reports_to") == ("employee:Nancy Edwards",) and kb.density()["depth"] == 4
    )


@needs
def test_factbook_as_records():
    reading = read_source(
        DATA / "factbook",
        "json_records",
        name="factbook",
        type="country",
        id="Government.Country name.conventional short form.text",
        fields={
            "area": {
                "path": "Geography.Area.total .text",
                "range": "number",
                "read": "quantity",
                "label": "area in sq km",
            },
            "border": {"path": "Geography.Land boundaries.border countries.text", "range": "country", "read": "names"},
            "capital": {"path": "Government.Capital.name.text", "range": "city", "read": "plain"},
        },
    )
    built = build([reading])
    assert built.kb.forward("country:Albania", "area") == ("28748",) and built.kb.forward(
        "country:Albania", "capital"
    ) == ("city:Tirana",)
    assert set(built.kb.forward("country:Albania", "border")) >= {"country:Greece", "country:Kosovo"}


def test_a_column_called_like_a_relation_of_the_world_is_a_relation_of_its_own(tmp_path):
    (tmp_path / "ships.csv").write_text("ship,length,captain\nAda,58 m,Bo\nEva,141 m,Cy\nIda,20 m,Bo\n")
    (tmp_path / "rivers.csv").write_text("river,length\nSil,300\nTan,120\n")
    length = next(r for r in RELATIONS if r.name == "length")
    ships = read_source(tmp_path / "ships.csv", "csv_records", name="ships.csv")
    built = build([ships], known=RELATIONS)
    assert ("thing:Ada", "thing_length", "58") in facts(built) and "length" not in built.kb.relations
    assert built.kb.relations["thing_length"].label == "length"
    assert ("thing:Ada", "captain", "captain:Bo") in facts(built) and not built.quarantined
    rivers = read_source(tmp_path / "rivers.csv", "csv_records", name="rivers.csv", type=length.domain)
    assert "length" in build([rivers], known=RELATIONS).kb.relations, "what the world means by it too stays its own"
    stated = read_source(
        tmp_path / "ships.csv", "csv_records", name="s", type="ship", fields={"length": {"path": "length"}}
    )
    with pytest.raises(
        ValueError,
        match=r"'river' in the fictional world and 'ship' in s line 2: give yours .*world_countries: 0",
    ):
        build([stated], known=RELATIONS)
    boats = read_source(
        tmp_path / "ships.csv", "csv_records", name="t", type="boat", fields={"length": {"path": "length"}}
    )
    with pytest.raises(ValueError, match=r"'ship' in s line 2 and 'boat' in t line 2: give the second another name"):
        build([stated, boats])


def test_a_schema_that_collides_with_the_world_is_told_which_line_to_change(tmp_path):
    (tmp_path / "c.csv").write_text("country,capital\nNorvia,Zelton\nHalia,Danu\nOmb,Rist\n")

    def made(edited, type_):
        source = read_source(tmp_path / "c.csv", "csv_records", name="c.csv", type=type_, id="country")
        return build([source], known=RELATIONS, edited=edited)

    text = {"capital": {"range": "string"}}
    with pytest.raises(
        ValueError, match=r"'country' in the fictional world and 'land' in c.csv line 2: take `capital` out of"
    ):
        made(text, "land")
    assert "land_capital" in made({}, "land").kb.relations, "the remedy helps"
    with pytest.raises(
        ValueError,
        match=r"'string' in the schema and from 'country' to 'city' in the fictional world, .*: take `capital` out of .*no --world",
    ):
        made(text, "country")
    assert made({}, "country").kb.relations, "the remedy helps"
    (tmp_path / "t.csv").write_text("subject,relation,object\nNorvia,capital,Zelton\nHalia,capital,Danu\n")
    triples = read_source(tmp_path / "t.csv", "csv_triples", name="t.csv")
    with pytest.raises(
        ValueError,
        match=r"'country' to 'string' in the schema and from 'country' to 'city' in the fictional world, .*: take `domain` and "
        r"`range` out of `capital` under `relations` .*no --world",
    ):
        build([triples], known=RELATIONS, edited=text)
    assert build([triples], known=RELATIONS, edited={"capital": {"label": "seat"}}).kb.relations, "the remedy helps"
