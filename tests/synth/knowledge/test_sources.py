"""Sources: what each reader gives, what is inferred, and every bad input: one sentence with file, line and remedy, and
no row lost."""

import json
import weakref
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.knowledge.ingest import Reading, Row, build, read_schema, write_schema
from synth.knowledge.kb import Entity, Fact, Passage, Relation, passages
from synth.knowledge.sources import read_source
from synth.knowledge.world import RELATIONS, told, world
from synth.types import Quarantined
from tasks.core.errors import UserError
from tasks.runtime.stage import Stage
from tasks.stages.kb import kb as kb_stage
from tasks.storage import tables

COUNTRIES = Path(__file__).parents[4] / "shared" / "data" / "countries" / "countries.json"
SCHEMA = """name,domain,range,functional,label
capital,country,city,true,capital
border,country,country,,border
area,country,number,true,area
since,country,year,true,since
"""


def triples(tmp_path, text, schema=None, name="mine.csv"):
    """The reading and the build of one CSV file."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    if schema:
        (tmp_path / "relations.csv").write_text(schema, encoding="utf-8")
    reading = read_source(tmp_path / name, "csv_triples", name=name)
    return reading, build([reading])


def test_csv_triples_with_a_schema(tmp_path):
    text = 'subject,relation,object\nNorvia,capital,Zelton\n"Isle, Great",border,  Norvia \n\nNorvia,area,12.5\n'
    _, built = triples(tmp_path, "\ufeff" + text, SCHEMA)
    assert built.kb.forward("country:Norvia", "capital") == ("city:Zelton",) and built.kb.forward(
        "country:Isle, Great", "border"
    ) == ("country:Norvia",)
    assert built.kb.facts_of("country:Norvia", "area")[0].source == "mine.csv line 5"
    assert (built.produced, built.accepted, built.quarantined) == (3, 3, ())


def test_a_schema_is_inferred_where_none_is_stated_and_round_trips(tmp_path):
    _, built = triples(
        tmp_path,
        "subject,relation,object\nA,next_to,B\nB,next_to,A\nB,next_to,C\nC,next_to,B\n"
        "A,birth year,1950\nB,area,12\nA,colour,red\nB,colour,red\n",
    )
    r = built.kb.relations
    assert (r["next_to"].range, r["next_to"].functional, r["next_to"].label) == ("thing", False, "next to")
    assert (r["birth year"].range, r["area"].range) == ("year", "number")
    assert (r["colour"].range, r["colour"].functional, r["colour"].inverse_functional, r["colour"].complete) == (
        "string",
        True,
        False,
        False,
    )
    write_schema(tmp_path / "relations.csv", r.values())
    again = build([read_source(tmp_path / "mine.csv", "csv_triples", name="mine.csv")]).kb
    assert again.relations == r and again.digest() == built.kb.digest()


def test_bare_triples_take_on_the_known_relations(tmp_path):
    (tmp_path / "mine.csv").write_text("subject,relation,object\nNorvia,capital,Zelton\n")
    kb = build([read_source(tmp_path / "mine.csv", "csv_triples")], known=RELATIONS).kb
    assert kb.forward("country:Norvia", "capital") == ("city:Zelton",) and kb.relations["capital"].functional


def test_jsonl_triples(tmp_path):
    rows = [
        {"subject": "A", "relation": "founded", "object": 1950, "subject_type": "company"},
        {"subject": "A", "relation": "open", "object": True, "subject_type": "company"},
    ]
    (tmp_path / "t.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    kb = build([read_source(tmp_path / "t.jsonl", "jsonl_triples", name="t.jsonl")]).kb
    assert kb.forward("company:A", "founded") == ("1950",) and kb.forward("company:A", "open") == ("yes",)
    assert [f.source for f in kb.facts.values()] == ["t.jsonl line 1", "t.jsonl line 3"]


def test_json_records_without_a_mapping(tmp_path):
    data = [
        {
            "name": "Norvia",
            "area": 5.0,
            "seas": [],
            "king": None,
            "tags": ["old", "cold"],
            "shape": {"form": "round"},
            "rivers": [{"name": "Danu", "length": 70}, {"name": "Selk", "length": 80}],
        },
        {"name": "Moria", "area": 6},
    ]
    (tmp_path / "r.json").write_text(json.dumps(data))
    kb = build([read_source(tmp_path / "r.json", "json_records", type="country")]).kb
    assert kb.forward("country:Norvia", "rivers") == ("river:Danu", "river:Selk") and kb.forward(
        "river:Selk", "rivers_length"
    ) == ("80",)
    assert kb.forward("country:Norvia", "tags") == ("old", "cold") and kb.forward("country:Norvia", "shape_form") == (
        "round",
    )
    assert (
        kb.forward("country:Norvia", "area") == ("5",)
        and kb.relations["area"].range == "number"
        and "seas" not in kb.relations
    )


def test_json_records_with_a_mapping(tmp_path):
    data = {
        "data": [
            {"n": {"en": "Norvia", "fr": "Norvie"}, "id": 1, "near": [2, 9], "money": {"NOR": {"name": "nor"}}},
            {"n": {"en": "Moria"}, "id": 2},
        ]
    }
    (tmp_path / "r.json").write_text(json.dumps(data))
    fields = {
        "border": {"path": "near", "range": "country", "by_key": True, "label": "frontier"},
        "currency": "money.*.name",
    }
    reading = read_source(
        tmp_path / "r.json",
        "json_records",
        name="r.json",
        type="country",
        id="n.en",
        key="id",
        aliases="n.*",
        records="data",
        fields=fields,
    )
    built = build([reading])
    assert (
        built.kb.forward("country:Norvia", "border") == ("country:Moria",)
        and built.kb.relations["border"].label == "frontier"
    )
    assert built.kb.entities["country:Norvia"].aliases == ("Norvie",) and built.kb.forward(
        "country:Norvia", "currency"
    ) == ("nor",)
    assert [q.reason for q in built.quarantined] == ["unknown_reference"] and "r.json record 1" in built.quarantined[
        0
    ].evidence


def test_real_records_of_countries():
    if not COUNTRIES.exists():
        pytest.skip(f"{COUNTRIES} is absent: it is the real input of this test")
    fields = {
        "capital": {"path": "capital", "range": "city"},
        "continent": {"path": "region", "range": "continent"},
        "border": {"path": "borders", "range": "country", "by_key": True},
        "currency": {"path": "currencies.*.name", "range": "currency"},
        "language": {"path": "languages.*", "range": "language"},
        "area": {"path": "area", "range": "number"},
    }
    built = build(
        [
            read_source(
                COUNTRIES,
                "json_records",
                name="countries.json",
                type="country",
                id="name.common",
                key="cca3",
                aliases="altSpellings",
                fields=fields,
            )
        ]
    )
    assert not built.quarantined and built.accepted == built.produced > 2000
    assert built.kb.forward("country:Germany", "capital") == ("city:Berlin",) and "country:Poland" in built.kb.forward(
        "country:Germany", "border"
    )
    assert (
        built.kb.relations["continent"].functional
        and not built.kb.relations["border"].functional
        and built.kb.density()["depth"] >= 2
    )
    assert built.kb.facts_of("country:Aruba", "area")[0].source == "countries.json line 2 record 1"


@pytest.mark.parametrize(
    "row, reason, words",
    [
        ("Norvia,capital,", "missing_object", "the object is missing: give one, or delete the row"),
        (",capital,Zelton", "missing_subject", "the subject is missing"),
        ("Norvia,,Zelton", "missing_relation", "the relation is missing"),
        ("Norvia,capital", "wrong_columns", "another number of cells"),
        (" ,,", "blank_row", "all cells of the row are blank: fill it, or remove it"),
        ("Norvia,capitol,Zelton", "unknown_relation", "nearest: 'capital'"),
        ("Norvia,area,large", "not_a_number", "'large' is not a number"),
        ("Norvia,since,long ago", "not_a_year", "'long ago' is not a year"),
        (
            "Moria,capital,Xelton",
            "duplicate_key",
            "already has a capital at mine.csv line 2 (Moria,capital,Yelton): keep one of the two",
        ),
        ("Moria,capital,Yelton", "duplicate_row", "the same fact stands at mine.csv line 2"),
    ],
)
def test_a_bad_row_is_set_aside_with_place_remedy_and_text(tmp_path, row, reason, words):
    _, built = triples(tmp_path, f"subject,relation,object\nMoria,capital,Yelton\n{row}\nNorvia,border,Moria\n", SCHEMA)
    (quarantined,) = built.quarantined
    assert (quarantined.stage, quarantined.reason) == ("kb", reason) and words in quarantined.evidence
    assert quarantined.evidence.startswith("mine.csv line 3: ") and quarantined.evidence.endswith(f" | {row}")
    assert (built.produced, built.accepted) == (3, 2)
    assert built.kb.forward("country:Moria", "capital") == ("city:Yelton",)  # of a duplicate key the first stands


def test_types_and_inverse_keys_are_enforced(tmp_path):
    schema = "name,domain,range,inverse_functional\ncapital,country,city,true\n"
    text = "subject,relation,object,subject_type\nA,capital,Z,\nB,capital,Z,\nC,capital,Y,planet\n"
    _, built = triples(tmp_path, text, schema)
    assert [q.reason for q in built.quarantined] == ["duplicate_object", "wrong_type"]


@pytest.mark.parametrize(
    "line, reason",
    [
        ('{"subject": "A", "relation": "x"', "not_json"),
        ('["A", "x", "B"]', "not_a_triple"),
        ('{"subject": "A", "subject": "B"}', "not_json"),
        ('{"subject": "A", "relation": "x", "object": null}', "missing_object"),
        ('{"subject": "A", "verb": "x"}', "not_a_triple"),
        ('{"subject": "A", "relation": "x", "object": ["B"]}', "not_a_triple"),
    ],
)
def test_a_bad_line_of_jsonl_is_set_aside(tmp_path, line, reason):
    (tmp_path / "t.jsonl").write_text('{"subject": "A", "relation": "x", "object": "B"}\n' + line + "\n")
    built = build([read_source(tmp_path / "t.jsonl", "jsonl_triples", name="t.jsonl")])
    assert (
        [q.reason for q in built.quarantined] == [reason]
        and "t.jsonl line 2: " in built.quarantined[0].evidence
        and line in built.quarantined[0].evidence
    )
    assert (built.produced, built.accepted) == (2, 1)


def test_bad_records_are_set_aside_whole(tmp_path):
    (tmp_path / "r.json").write_text(
        '[\n{"name": "A", "x": 1},\n{"x": 2},\n{"name": "A", "x": 3},\n7, {"name": "B", "x": ""}]'
    )
    built = build([read_source(tmp_path / "r.json", "json_records", name="r.json")])
    assert [(q.reason, q.evidence.split(":")[0]) for q in built.quarantined] == [
        ("missing_name", "r.json line 3 record 2"),
        ("duplicate_record", "r.json line 4 record 3"),
        ("missing_name", "r.json line 5 record 4"),
    ]
    assert '{"name": "A", "x": 3}' in built.quarantined[1].evidence and (built.produced, built.accepted) == (4, 1)


UNREADABLE = {
    "empty": ("csv_triples", b"", "source.x line 1 is the end of an empty source: add rows"),
    "header only": (
        "csv_triples",
        b"subject,relation,object\n\n",
        "source.x line 2 is the end of a source without rows",
    ),
    "blank lines": ("jsonl_triples", b"\n \n", "empty source"),
    "no records": ("json_records", b"[]", "empty list of records"),
    "latin-1": (
        "csv_triples",
        "subject,relation,object\nA,b,caf\u00e9\n".encode("latin-1"),
        "source.x line 2 is not UTF-8: byte 0xe9 at offset 31: save the file as UTF-8",
    ),
    "utf-16": ("jsonl_triples", "\ufeff{}".encode("utf-16-be"), "byte 0xfe at offset 0"),
    "no header": (
        "csv_triples",
        b"A,capital,B\n",
        "source.x line 1 lacks the column 'subject': begin the file with the header subject,relation,object",
    ),
    "strange column": ("csv_triples", b"subject,relation,object,note\nA,b,C,d\n", "unknown column 'note'"),
    "open quote": ("csv_triples", b'subject,relation,object\nA,b,"C\n', "source.x line 2 is not CSV"),
    "not JSON": ("json_records", b'[{"name": "A"},\n {"name" "B"}]', "source.x line 2 column 10 is not JSON"),
    "not a list": ("json_records", b'{"name": "A"}', "is not a list of records"),
    "key twice": (
        "json_records",
        b'[{"name": "A", "x": 1, "x": 2}]',
        "gives the key 'x' twice in one object: keep one of the two",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_source_is_one_sentence(tmp_path, case):
    kind, data, words = UNREADABLE[case]
    (tmp_path / "source.x").write_bytes(data)
    with pytest.raises(ValueError) as error:
        read_source(tmp_path / "source.x", kind, name="source.x")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_unknown_kinds_options_and_paths_name_what_there_is(tmp_path):
    for words, call in {
        "nearest: 'csv_triples'": {"kind": "csv_triple"},
        "no option 'tpye'": {"kind": "json_records", "tpye": "x"},
        "cannot be read": {"kind": "json_records"},
        "has an unknown key 'rnage'": {"kind": "json_records", "fields": {"a": {"path": "a", "rnage": "b"}}},
    }.items():
        with pytest.raises(ValueError, match=words):
            read_source(tmp_path / "none.json", **call)
    with pytest.raises(ValueError, match="holds no file"):
        read_source(tmp_path, "csv_triples")


@pytest.mark.parametrize(
    "schema, words",
    [
        ("name,functional\nx,maybe\n", "line 2 has 'maybe' under 'functional'"),
        ("name\nx\nx\n", "line 3 declares the relation 'x' again"),
        ("name,domain\n,a\n", "has no name"),
    ],
)
def test_a_wrong_schema_is_refused(tmp_path, schema, words):
    (tmp_path / "relations.csv").write_text(schema)
    with pytest.raises(ValueError, match=words):
        read_schema(tmp_path / "relations.csv", "relations.csv")


NAMES = st.sampled_from(["", "A", "B", "C", "7", "x y"])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(NAMES, NAMES, NAMES, st.sampled_from(["", "city", "number"])), max_size=25),
    functional=st.booleans(),
)
def test_no_row_is_ever_lost(rows, functional):
    statements = [
        Row(subject=s, relation=r, object=o, subject_type=t, source=f"f line {i}", span=repr((s, r, o)))
        for i, (s, r, o, t) in enumerate(rows)
    ]
    built = build([Reading(rows=statements, schema={"A": {"functional": functional}, "7": {"range": "number"}})])
    assert built.produced == len(rows) == built.accepted + len(built.quarantined) and built.accepted == len(
        built.kb.facts
    )
    assert Counter(q.evidence.split(":")[0] for q in built.quarantined) + Counter(
        f.source for f in built.kb.facts.values()
    ) == Counter(r.source for r in statements)


def stage(root, **params):
    """Run the stage kb in a folder of its own; the folder that it wrote."""
    s = Stage("kb", plan={"params": params, "seed": 7}, root=root, deps=["data"])
    with s.running():
        kb_stage(s, **params)
    return s.target


def test_the_stage_writes_every_table_twice_the_same(tmp_path):
    folders = []
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "mine.csv").write_text(
            "subject,relation,object\nNorvia,capital,Zelton\n,,\nNorvia,capital,Yelton\n"
        )
        folders.append(
            stage(
                tmp_path / name,
                sources=[{"kind": "csv_triples", "path": "data/mine.csv"}],
                world_countries=10,
                bad_rows=1,
            )
        )
    assert sorted(p.name for p in folders[0].iterdir()) == [
        "README.md",
        "card.json",
        "entities.parquet",
        "facts.parquet",
        "manifest.json",
        "passages.parquet",
        "quarantine.parquet",
        "relations.csv",
        "relations.parquet",
    ]
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name
    card = json.loads((folders[0] / "card.json").read_text())
    assert (
        card["quarantined"] == {"blank_row": 1, "duplicate_key": 1}
        and card["produced"] == card["accepted"] + 2
        and card["sources"][0]["rows"] == 3
    )
    quarantined = tables.read(folders[0] / "quarantine.parquet", Quarantined)
    assert [q.reason for q in quarantined] == ["blank_row", "duplicate_key"]
    assert len(tables.read(folders[0] / "facts.parquet", Fact)) == card["accepted"]
    assert "Norvia" in {e.name for e in tables.read(folders[0] / "entities.parquet", Entity)}
    assert {r.name for r in tables.read(folders[0] / "relations.parquet", Relation)} >= {"capital", "border"}


@pytest.mark.parametrize(
    "text, params, words",
    [
        (
            "Norvia,capital,Zelton\nMoria,capital,\n",
            {},
            r"1 of 2 rows .* set kb.bad_rows to 1 to go on without them; the first: data/mine.csv line 3: the object is missing",
        ),
        (
            "Norvia,capital,Zelton\nNorvia,capital,Yelton\n",
            {},
            r"1 of 2 rows .* data/mine.csv line 3: 'Norvia' already has a capital at data/mine.csv line 2",
        ),
        ("Norvia,capital,\nMoria,capital,\n", {"bad_rows": 5}, "2 of 2 rows .* no row is left"),
    ],
)
def test_the_stage_stops_at_bad_rows_and_keeps_them(tmp_path, text, params, words):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text("subject,relation,object\n" + text)
    with pytest.raises(UserError, match=words) as error:
        stage(tmp_path, sources=[{"kind": "csv_triples", "path": "data/mine.csv"}], world_countries=10, **params)
    kept = tmp_path / str(error.value).split("(all in ")[1].split(")")[0]
    assert tables.read(kept, Quarantined)[0].evidence in str(error.value)


def test_the_stage_refuses_a_source_it_cannot_understand(tmp_path):
    (tmp_path / "data").mkdir()
    for source, words in (
        (3, r"kb.sources\[0\] = 3 must say what to read"),
        ({"kind": 3, "path": "data/a.csv"}, r"kb.sources\[0\] = .* must say what to read"),
        ("data/a.csv", "data/a.csv does not exist"),
        ({"kind": "csv_triples", "path": "data/a.csv"}, "data/a.csv does not exist"),
    ):
        with pytest.raises(UserError, match=words):
            stage(tmp_path, sources=[source], world_countries=0)
    with pytest.raises(UserError, match="there are no facts"):
        stage(tmp_path, sources=[], world_countries=0)


def test_a_source_may_be_a_path_alone_and_its_cells_may_be_parted_by_semicolons(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lines.csv").write_text("name;town;opened\nOne;Ab;1900\nTwo;Cd;1901\nThree;Ab;1902\n")
    whole = {"kind": "csv_records", "path": "data/lines.csv"}
    for source in ("data/lines.csv", {"path": "data/lines.csv"}, whole):
        stage(tmp_path, sources=[source], world_countries=0)
        facts = tables.read(tmp_path / "artifacts/kb/facts.parquet", Fact)
        assert {(f.subject.split(":")[-1], f.object.split(":")[-1]) for f in facts if "town" in f.relation} == {
            ("One", "Ab"),
            ("Two", "Cd"),
            ("Three", "Ab"),
        }


@pytest.mark.parametrize("text", ["a;b\n1;\n", "a,b\n1,\n"])
@pytest.mark.parametrize("countries", [0, 10])
def test_the_stage_stops_where_no_row_states_a_fact(tmp_path, capsys, text, countries):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "none.csv").write_text(text)
    with pytest.raises(UserError, match="no fact can be read from kb.sources"):
        stage(tmp_path, sources=["data/none.csv"], world_countries=countries)
    assert "data/none.csv: no row of it states a fact" in capsys.readouterr().err


def test_the_stage_says_which_source_gave_no_fact(tmp_path, capsys):
    (tmp_path / "data" / "people").mkdir(parents=True)
    (tmp_path / "data" / "mine.csv").write_text("subject,relation,object\nNorvia,capital,Zelton\n")
    for name, text in (("Ada", "Ada likes the sea."), ("Bo", "Bo does not.")):
        (tmp_path / "data" / "people" / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    sources = [{"kind": "csv_triples", "path": "data/mine.csv"}, {"kind": "documents", "path": "data/people"}]
    stage(tmp_path, sources=sources, world_countries=10)
    error = capsys.readouterr().err
    assert "kb: data/people: no fact can be read from its 2 documents" in error and "mine.csv" not in error


def test_a_world_alone_is_written_as_it_is_told_and_no_fact_of_it_is_held(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    alive, most = weakref.WeakSet(), [0]

    def watched(**knobs):
        entities, facts = told(**knobs)

        def each():
            for fact in facts:
                most[0] = max(most[0], len(alive))
                alive.add(fact)
                yield fact

        return entities, each()

    monkeypatch.setattr("tasks.stages.kb.told", watched)
    folder = stage(tmp_path, sources=[], world_countries=30)
    whole, card = world(countries=30, seed=7), json.loads((folder / "card.json").read_text())
    assert len(whole.facts) > 600 and most[0] <= 2
    for name, cls, values in (
        ("entities", Entity, whole.entities.values()),
        ("relations", Relation, whole.relations.values()),
        ("facts", Fact, whole.facts.values()),
        ("passages", Passage, passages(whole)),
    ):
        assert tables.read(folder / f"{name}.parquet", cls) == list(values)
    assert card["kb"] == whole.digest() and card["density"] == json.loads(json.dumps(whole.density()))
    assert card["relations"] == {r: len(list(whole.pairs(r))) for r in whole.relations}
    words = [len(p.text.split()) for p in passages(whole)]
    assert card["passages"] == {
        "rows": len(words),
        "mean_words": round(sum(words) / len(words), 2),
        "max_words": max(words),
    }
