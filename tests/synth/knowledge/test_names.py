"""Names as sources write them: lists with notes and measures, answers, and when two spellings are one name."""

import csv

import pytest
import yaml

from flows.cli import main
from synth.knowledge.ingest import build
from synth.knowledge.names import Same, fold, initials, listed, names, plain_value, resolve, unbroken
from synth.knowledge.sources import read_source
from tasks.core.errors import UserError
from tasks.knowledge import bases
from tasks.knowledge.schema import read_names

LISTS = {
    "Russia (northeast) 4,133 km and Russia (northwest) 46 km": ["Russia"],
    "China 1,782 km and Myanmar 238 km; Laos (2) 7 km": ["China", "Myanmar", "Laos"],
    "Bosnia and Herzegovina 956 km, Croatia (a, b) 3 km": ["Bosnia and Herzegovina", "Croatia"],
    "Trinidad and Tobago": ["Trinidad and Tobago"],
    "Rhine (shared with A [s], B, and C [m]) - 1,233 km; Loire - 1,012 km note: [s] after": ["Rhine", "Loire"],
    "Apollo 11, Boeing 747": ["Apollo 11", "Boeing 747"],
    "Muslim 56.7%, Roman Catholic 10.1%": ["Muslim", "Roman Catholic"],
}
ANSWERS = {
    "Pretoria (administrative capital); Cape Town (legislative capital)": ["Pretoria", "Cape Town"],
    "Sucre (constitutional) and La Paz (administrative)": ["Sucre", "La Paz"],
    "Inyangani 2,592 m": ["Inyangani"],
    "Mount Everest 8,849 m (highest peak)": ["Mount Everest"],
    "Apollo 11": ["Apollo 11"],
    "Lao(s) or Laotian": [],
    "Suomi (Finnish)/ Finland (Swedish)": [],
    "[1] (202) 516": ["[1] (202) 516"],
}


@pytest.mark.parametrize("text", LISTS)
def test_lists(text):
    assert names(text) == LISTS[text]


@pytest.mark.parametrize("text", ANSWERS)
def test_answers(text):
    assert plain_value(text) == ANSWERS[text]


def test_hostile_texts_cost_linear_time():
    for text in ("(" * 19_000, "a and " * 3_000, "1 km " * 3_000, ") and (" * 2_000):
        names(text), plain_value(text)


def test_spellings():
    assert fold("Côte d'Ivoire") == fold("Cote d\N{RIGHT SINGLE QUOTATION MARK}Ivoire") == "cote d ivoire"
    assert fold("Congo, Democratic Republic of the") == fold("Democratic Republic of the Congo")
    assert fold("C++") != fold("C#") != fold("C") and fold("Paris, Texas") == "paris texas"
    assert initials("Democratic Republic of the Congo") == {"drotc", "drc"} and initials("Congo") == set()


def test_what_is_one_and_what_is_doubtful():
    some = {"Côte d'Ivoire": 1, "Cote d'Ivoire": 5, "DRC": 2, "Democratic Republic of the Congo": 1, "UK": 1}
    some |= {"United Kingdom": 1, "Moldova": 3, "Republic of Moldova": 1, "Niger": 1, "Nigeria": 1}
    counts = {"country": some, "river": {"Niger": 1}, "gas": {"CO": 1, "Co": 1}}
    merged, doubtful = resolve(counts, {"country": {"Côte d'Ivoire"}}, {})
    assert merged == {
        ("country", "Cote d'Ivoire"): "Côte d'Ivoire",
        ("country", "DRC"): "Democratic Republic of the Congo",
    }
    assert {(s.type, s.name, s.other) for s in doubtful} == {
        ("country", "United Kingdom", "UK"),
        ("country", "Moldova", "Republic of Moldova"),
        ("gas", "CO", "Co"),
    }
    decided = {"country": {"UK": "United Kingdom", "DRC": "DRC", "Republic of Moldova": "Republic of Moldova"}}
    merged, doubtful = resolve(counts, {}, decided)
    assert merged == {("country", "Côte d'Ivoire"): "Cote d'Ivoire", ("country", "UK"): "United Kingdom"}
    assert [s.type for s in doubtful] == ["gas"]


def test_two_records_are_never_made_one():
    merged, doubtful = resolve({"song": {"Help!": 1, "HELP": 1, "Help": 1}}, {"song": {"HELP", "Help"}}, {})
    assert merged == {} and doubtful == [Same("song", "HELP", "Help", "they differ in accents, case or marks alone")]


def test_one_entity_with_its_aliases(tmp_path):
    text = "subject,relation,object,subject_type,object_type\n"
    text += "Ghana,border,Côte d'Ivoire,country,country\nMali,border,Cote d'Ivoire,country,country\n"
    text += "Mali,border,Niger,country,country\nMali,river,Niger,country,river\n"
    (tmp_path / "t.csv").write_text(text)
    kb = build([read_source(tmp_path / "t.csv", "csv_triples", name="t.csv")]).kb
    assert kb.forward("country:Ghana", "border") == ("country:Cote d'Ivoire",)
    assert kb.entities["country:Cote d'Ivoire"].aliases == ("Côte d'Ivoire",)
    assert {"country:Niger", "river:Niger"} <= set(kb.entities) and len(kb.entities) == 5


def test_rivers_are_not_the_countries_that_have_pages(tmp_path):
    for name, rivers in (("Niger", "Niger 4,200 km"), ("Senegal", "Senegal 1,641 km; Gambia"), ("Gambia", "Gambia")):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\n- Major rivers: {rivers}\n- Border: Senegal\n")
    kb = build([read_source(tmp_path, "documents", name="d", type="country")]).kb
    assert kb.forward("country:Senegal", "major_rivers") == ("river:Senegal", "river:Gambia")
    assert kb.forward("country:Niger", "border") == ("country:Senegal",)


def test_a_person_decides(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open("t.csv", "w", newline="") as out:
        rows = [("subject", "relation", "object"), ("Ann", "home", "UK"), ("Bob", "home", "United Kingdom")]
        csv.writer(out).writerows([*rows, ("UK", "king", "Cid")])
        out.write("United Kingdom,area,5\n")
    assert main(["kb", "build", "t.csv", "--out", "kb"]) == 0
    assert "1 pair of names may be one thing: `espalier kb review`" in capsys.readouterr().out
    assert main(["kb", "review", "kb"]) == 0
    output = capsys.readouterr().out
    assert "UK = United Kingdom?" in output or "United Kingdom = UK?" in output
    schema = yaml.safe_load(open("kb/schema.yaml")) | {"names": {"thing": {"UK": "United Kingdom"}}}
    (tmp_path / "edited.yaml").write_text(yaml.safe_dump(schema))
    assert main(["kb", "build", "--schema", "edited.yaml", "--out", "kb"]) == 0
    kb = bases.load(tmp_path / "kb")
    assert kb.forward("thing:Ann", "home") == ("thing:United Kingdom",) == kb.forward("thing:Bob", "home")
    assert kb.entities["thing:United Kingdom"].aliases == ("UK",)
    capsys.readouterr()
    assert main(["kb", "review", "kb"]) == 0 and "no two names" in capsys.readouterr().out
    assert yaml.safe_load(open("kb/schema.yaml"))["names"] == schema["names"]
    (tmp_path / "bad.yaml").write_text("names: {thing: [UK]}\n")
    with pytest.raises(UserError, match="the name that it stands for"):
        read_names(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("Belarus 640 km; Lithuania 100 km, Russia (Kaliningrad) 209 km", ["Belarus", "Lithuania", "Russia"]),
        ("Spanish 98.9%, indigenous 1%; Portuguese", ["Spanish", "indigenous", "Portuguese"]),
        ("Protestant 5% (Evangelical 4.6%, Adventist 0.2%); Muslim 1%", ["Protestant", "Muslim"]),
        ("English (official), Jerriais)", ["English", "Jerriais"]),
        ("Chad 1,403 km, of which 12 km is disputed; Mali", ["Chad 1,403 km, of which 12 km is disputed", "Mali"]),
    ],
)
def test_a_comma_after_a_measure_begins_another_name(text, wanted):
    assert names(text) == wanted


def test_singular_and_plural_are_two_answers():
    assert plain_value("Motswana (singular), Batswana (plural)") == ["Motswana", "Batswana"]
    assert plain_value("Adak (Alaska), United States") == ["Adak , United States"]


def test_traces_of_a_layout_are_taken_out_of_a_name():
    assert unbroken("Saint- Olm") == "Saint-Olm"
    assert unbroken("Olm , Karsund") == "Olm, Karsund"
    assert unbroken('"Song of Verlo"') == "Song of Verlo"
    assert unbroken('"Big" Lo') == '"Big" Lo'
    assert unbroken("pre- and post-war") == "pre- and post-war"


def test_a_list_in_one_text_is_several_things():
    assert listed("carts, refined oil, and timber (2023)") == ["carts", "refined oil", "timber"]
    assert listed("blue; red, white") == ["blue", "red", "white"]
    assert listed("Norland 14%, Vesta 9.5% (2023)") == ["Norland", "Vesta"]
    assert listed("Norse 60%, other 30%, unspecified 10%") == ["Norse"]
    assert listed("cargo 5, tanker 2") == []
    assert listed("the carts, which are sold in the towns of the north and of the west") == []


def test_a_share_that_is_less_than_something_is_no_name():
    assert names("Norse 60%, Mere less than 1%, Ildrin about 4%") == ["Norse", "Mere", "Ildrin"]
