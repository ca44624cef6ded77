"""A folder that mixes documents and tables is one base: things of both are one where they are the same, every file is
accounted for, and its questions prove."""

import csv
import gzip
import json
import sqlite3
from pathlib import Path

import pytest
import yaml

from flows.cli import main
from synth.knowledge.sources.documents import documents
from synth.knowledge.together import Others, place_of
from tasks.knowledge import bases
from tasks.knowledge.guess import completed, sources_at
from tests.support import museum
from tests.support.museum import sheet


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A museum's folder and its base."""
    monkeypatch.chdir(tmp_path)
    museum.write(Path("museum"))
    assert main(["kb", "build", "museum", "--out", "kb"]) == 0
    return Path("kb")


def facts(base: Path) -> set[tuple[str, str, str]]:
    return {(f.subject, f.relation, f.value) for f in bases.load(base).facts.values()}


def test_each_table_is_a_source_and_the_pages_are_one(base):
    sources = yaml.safe_load((base / "schema.yaml").read_text())["sources"]
    assert [(s["kind"], s["path"], s.get("type"), s.get("id")) for s in sources] == [
        ("documents", "museum", None, None),
        ("csv_records", "museum/paintings.csv", "painting", "Title"),
        ("json_records", "museum/loans.json", "loan", "loan"),
        ("sheet_records", "museum/rooms.xlsx", "room", "Room"),
    ]
    assert sources[0]["leave"] == ["loans.json", "paintings.csv", "rooms.xlsx"] and sources[2]["records"] == "loans"


def test_a_thing_of_a_page_and_of_a_table_is_one(base):
    kb = bases.load(base)
    types = {e.name: e.type for e in kb.entities.values()}
    assert types["Ilse Marten"] == "artist" and types["Anna Berg"] == "guard" and types["North Gallery"] == "room"
    assert types["Piet Dekker"] == "guard", "the Word file is a page too"
    assert "Renee Calder" not in types and kb.entities["artist:Renée Calder"].aliases == ("Renee Calder",)
    assert {r.name: r.range for r in kb.relations.values()}["Room"] == "room"
    known = facts(base)
    assert ("artist:Renée Calder", "teacher", "artist:Jonas Veld") in known
    assert ("room:North Gallery", "windows", "12") in known and ("room:North Gallery", "Floor", "1") in known


def test_what_both_say_counts_once_and_a_contradiction_is_quarantined(base):
    card = bases.card(base)
    assert card["agreed"] == 1 and card["quarantined"] == {"contradicts": 1}
    assert {v for s, r, v in facts(base) if (s, r) == ("room:Attic Cabinet", "Capacity")} == {"12"}
    assert card["produced"] == card["accepted"] + 1


def test_every_file_says_what_it_gave(base, capsys):
    with (base / "files.csv").open(newline="") as lines:
        gave = {row["file"]: row for row in csv.DictReader(lines)}
    there = {str(p) for p in Path("museum").rglob("*") if p.is_file()}
    assert set(gave) == there
    assert gave["museum/plan.png"]["note"] == "no reader of documents knows .png"
    assert (gave["museum/loans.json"]["things"], gave["museum/loans.json"]["facts"]) == ("24", "72")
    assert sum(int(row["facts"]) for row in gave.values()) == bases.card(base)["facts"]
    assert main(["kb", "build", "museum", "--out", "kb"]) == 0
    assert "museum/rooms.xlsx: 18 facts about 6 things" in capsys.readouterr().out


def test_a_doubtful_name_is_listed_and_merged_by_a_person(base, capsys):
    assert main(["kb", "review", "kb"]) == 0
    assert "guard: Mira Solis = M. Solis?   one has initials" in capsys.readouterr().out
    schema = yaml.safe_load((base / "schema.yaml").read_text())
    schema["names"] = {"guard": {"M. Solis": "Mira Solis"}}
    assert "languages" not in schema["relations"], "it is about a page that may be a guard"
    Path("edited.yaml").write_text(yaml.safe_dump(schema))
    assert main(["kb", "build", "--schema", "edited.yaml", "--out", "kb2"]) == 0
    assert ("guard:Mira Solis", "languages", "language:Danish") in facts(Path("kb2"))
    assert not bases.doubtful(Path("kb2"))


def test_the_same_schema_reads_another_folder(base):
    Path("museum").rename("other")
    assert main(["kb", "build", "other", "--schema", "kb/schema.yaml", "--out", "kb2"]) == 0
    assert facts(Path("kb2")) == facts(base)
    assert yaml.safe_load(Path("kb2/schema.yaml").read_text())["sources"][2]["path"] == "other/loans.json"


@pytest.mark.slow
def test_questions_over_it_prove(base, capsys):
    assert main(["questions", "grow", "--kb", "kb", "--out", "q", "--n", "40"]) == 0
    assert main(["verify", "q/questions.jsonl", "--kb", "kb"]) == 0
    texts = [json.loads(line)["question"] for line in Path("q/questions.jsonl").read_text().splitlines()]
    assert len(texts) >= 30 and not [t for t in texts if "that of which" in t or "is that of a" in t]
    with sqlite3.connect("kb/kb.sqlite") as connection:
        assert connection.execute("SELECT count(DISTINCT source) FROM fact").fetchone()[0] > 80


def test_a_folder_of_tables_of_several_kinds(tmp_path, monkeypatch):
    """Numbers of one file refer to records of another, and are no facts; names do without."""
    monkeypatch.chdir(tmp_path)
    folder = Path("club")
    folder.mkdir()
    teams = [{"id": f"T0{i}", "name": n, "ground": g} for i, (n, g) in enumerate([("Foxes", "Mill"), ("Owls", "Park")])]
    (folder / "teams.json").write_text(json.dumps(teams))
    rows = "".join(f"Player {chr(65 + i)};T0{i % 2};{1990 + i}\n" for i in range(8))
    (folder / "members.csv").write_text("Name;Team ID;Born\n" + rows)
    sheet(folder / "m.xlsx", "Matches", ["Match", "Home"], [[f"Match {i}", ("Foxes", "Owls")[i % 2]] for i in range(4)])
    (folder / "broken.xlsx").write_bytes(b"PK")
    (folder / "README.md").write_text("# Club\n\nTables.\n")
    assert main(["kb", "build", "club", "--out", "kb"]) == 0
    kb = bases.load(Path("kb"))
    assert {r.name: (r.domain, r.range) for r in kb.relations.values()} == {
        "Team ID": ("member", "team"),
        "Born": ("member", "year"),
        "Home": ("match", "team"),
        "ground": ("team", "string"),
    }
    assert kb.relations["Home"].label == "home team" and kb.relations["Team ID"].label == "team"
    assert bases.card(Path("kb"))["quarantined"] == {"unreadable": 1}
    assert "is damaged" in (Path("kb") / "files.csv").read_text()


@pytest.mark.parametrize(
    "data, table",
    [
        ([{"name": "A", "x": 1}, {"name": "B", "x": 2}], True),
        ({"updated": "today", "rows": [{"name": "A", "x": 1}, {"name": "B", "x": 2}]}, True),
        ({"title": "A", "parts": [{"name": "A", "x": 1}, {"name": "B", "x": 2}]}, False),
        ([{"title": "A", "text": "long"}, {"title": "B", "text": "long"}], False),
        ({"Government": {"Capital": {"text": "Zelton"}}}, False),
    ],
)
def test_which_json_among_documents_is_a_table(data, table, tmp_path):
    (tmp_path / "a.md").write_text("# Aa\n\nCapital: Zelton\n")
    (tmp_path / "b.json").write_text(json.dumps(data))
    kinds = [s["kind"] for s in sources_at(tmp_path)]
    assert kinds == (["documents", "json_records"] if table else ["documents"])


def test_the_options_of_a_bare_folder_are_those_of_its_documents(tmp_path):
    (tmp_path / "a.md").write_text("# Aa\n\nCapital: Zelton\n")
    (tmp_path / "t.csv").write_text("name,size\nBb,3\nCc,4\n")
    pages, table = completed({"path": "data/x", "mentions": True, "missing": ["tbd"]}, tmp_path)
    assert pages["mentions"] and pages["missing"] == table["missing"] == ["tbd"] and "mentions" not in table
    assert (table["path"], table["folder"]) == ("data/x/t.csv", "data/x")


def test_a_page_of_one_word_with_a_type_of_its_own_stays_apart(tmp_path):
    (tmp_path / "a.md").write_text("---\ntype: planet\n---\n# Mercury\n\nMoons: 0\n")
    (tmp_path / "b.md").write_text("# Lead\n\nColour: grey\n")
    others = Others({"mercury": ("Mercury", "element"), "lead": ("Lead", "element")})
    assert documents(tmp_path, "d", others=others).titles == {"Mercury": "planet", "Lead": "element"}


def test_the_file_of_a_place():
    known = dict.fromkeys(["d/a b.md", "d/x.csv", "d/t.json"])
    places = ("d/a b.md chars 3-9", "d/x.csv line 3", "d/t.json#2 chars 1-2", "d x 7", "elsewhere line 1")
    assert [place_of(p, known) for p in places] == ["d/a b.md", "d/x.csv", "d/t.json", "d/x.csv", ""]


def test_the_stage_reads_such_a_folder_too(tmp_path):
    """The own-data path of a pipeline: one path under kb.sources."""
    museum.write(tmp_path / "data" / "museum")
    card = museum.staged(tmp_path, "data/museum")
    gave = {f["file"]: f["facts"] for f in card["files"]}
    assert gave["data/museum/paintings.csv"] == 200 and sum(gave.values()) == card["accepted"]


def test_a_packed_table_is_read_as_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "name;size\nAa;3\nBb;4\n"
    Path("d").mkdir()
    (Path("d") / "towns.csv.gz").write_bytes(gzip.compress(text.encode()))
    (Path("d") / "aa.md").write_text("# Aa\n\nRiver: Selk\n")
    for source in ("d/towns.csv.gz", "d"):
        assert main(["kb", "build", source, "--out", "kb"]) == 0
        assert {("town:Aa", "size", "3"), ("town:Bb", "size", "4")} <= facts(Path("kb"))
    assert ("town:Aa", "river", "river:Selk") in facts(Path("kb"))
    assert main(["kb", "build", "--schema", "kb/schema.yaml", "--out", "kb2"]) == 0
    assert facts(Path("kb2")) == facts(Path("kb"))
    Path("bad.csv.gz").write_bytes(gzip.compress(text.encode())[:-9])
    assert main(["kb", "build", "bad.csv.gz", "--out", "kb3"]) == 2
    assert "is damaged" in capsys.readouterr().err
    Path("bad.csv.gz").rename("d/bad.csv.gz")
    assert main(["kb", "build", "d", "--out", "kb3"]) == 0, "the others are read"
    assert bases.card(Path("kb3"))["quarantined"] == {"unreadable": 1}
