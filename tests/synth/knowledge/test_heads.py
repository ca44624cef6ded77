"""Heads with brackets, dashes and years as phrases, and codes under a head that is no word."""

import pytest

from synth.knowledge.heads import head_of, heads_of, is_odd, spoken_unit
from synth.knowledge.words import adjective, article, code_of, label_of, measured, thing_of, wording


@pytest.mark.parametrize(
    ("head", "thing", "phrase"),
    [
        ("tolls - payers", "", "toll payers"),
        ("shared fences (bordering farms)", "farm", "bordering farms"),
        ("large ponds (by depth) (carp pond(s))", "pond", "carp pond"),
        ("long ditches (by length in km)", "ditch", "long ditches"),
        ("yield ratios (late yield ratio)", "", "late yield ratio"),
        ("smoke emissions (total emissions)", "", "total smoke emissions"),
        ("egg ratio (at hatching)", "", "egg ratio at hatching"),
        ("smoke (from peat and turf)", "", "smoke from peat and turf"),
        ("height (highest barn)", "", "highest barn"),
        ("council - inner chamber (number of benches)", "", "inner chamber benches"),
        ("mill gas (exports)", "", "mill gas exports"),
        ("market town (name)", "", "market town"),
        ("farm song(s) (title)", "", "farm song"),
        ("barn growth rate 2021", "", "barn growth rate in 2021"),
        ("harvest Expenses 2019", "", "harvest expenses in 2019"),
        ("guild/guilds", "", "guild"),
        ("turf (consumption)", "", "turf consumption"),
        ("total milk use (industrial)", "", "total industrial milk use"),
        ("dialect (adjective)", "", "dialect adjective"),
        ("lower branch (head of guild)", "", "head of guild"),
        ("farm name (local short form)", "", "local short name"),
        ("farm name (former)", "", "former name"),
        ("barn name (former)", "", "former barn name"),
        ("plain head", "", "plain head"),
    ],
)
def test_a_head_becomes_a_phrase(head, thing, phrase):
    assert head_of(head, thing, "farm") == phrase
    assert not is_odd(phrase)


@pytest.mark.parametrize(
    "head",
    [
        "age of cows (0-14 years)",
        "barns - comparative",
        "songs (lyrics/music)",
        "cows under 5 years",
        "call f",
        "inner branch (chosen by lot)",
        "guild (geographic limits)",
        "envoys in the north (chief of mission)",
    ],
)
def test_what_cannot_be_told_stays_and_is_odd(head):
    assert head_of(head) == head
    assert is_odd(head_of(head))


def test_a_title_is_said_where_another_head_has_the_plain_phrase():
    assert heads_of("farm song(s) (title)") == ["farm song", "farm song title"]
    assert heads_of("farm song(s)") == ["farm song"]


def test_a_year_is_no_odd_number():
    assert not is_odd("exports in 2021")
    assert is_odd("exports of 20 barns")


def test_units_are_spoken():
    assert spoken_unit("% of GDP") == "percent of GDP"
    assert spoken_unit("births/1,000 cows") == "births per 1,000 cows"
    assert spoken_unit("bull(s)/cow") == "bulls per cow"
    assert spoken_unit("bbl/day") == "barrels per day"
    assert spoken_unit("% yearly rate of change") == "percent"
    assert spoken_unit("eggs laid by hens in the second barn") == ""


def test_labels_of_nested_records():
    assert label_of("name_native_common") == "native common name"
    assert label_of("unRegionalGroup") == "UN regional group"
    assert thing_of("unRegionalGroup") == "UN_regional_group"
    assert wording("coins_symbol", "coin", "string")["label"] == "symbol"
    assert wording("coin_symbol", "farm", "string")["label"] == "coin symbol"
    assert code_of("cioc") == "CIOC code"
    assert code_of("gate") == "gate code"
    assert code_of("sign") == "sign"
    assert adjective("UN member") == "a UN member"
    assert article("{x}", "UN member") == "a {x}"
    assert article("{x}", "HDI rank") == "an {x}"


def test_what_has_no_plural_has_no_article():
    assert measured("flooded land", "farm", "ha")["inverse"] == "a {domain} with {label} of {y} hectares"
    assert measured("land tax", "farm", "$")["inverse"] == "a {domain} with a {label} of {y} dollars"
