"""Relations that questions leave out because nobody would say them."""

import json
import random

import pytest

from synth.knowledge.ingest import build
from synth.knowledge.kb import KB, Entity, Fact, Relation, passages
from synth.knowledge.postings import Postings
from synth.knowledge.sources.json_records import json_records
from synth.questions.fuzzy.graph import Graph
from synth.questions.fuzzy.lexicon import Lexicon
from synth.questions.fuzzy_tree import FuzzyTrees, worded
from synth.questions.unasked import unasked, unclean, why_not
from synth.types import Problem

LEFT_OUT = {  # head -> (why, values)
    "cca9": ("codes", ["QW1", "RT2", "PO3"]),
    "net suffix": ("codes", [".ab", ".it", ".qo"]),
    "short form": ("codes", ["it", "as", "be"]),
    "head office": ("contacts", ["[1] (202) 555-0143", "+49 30 5550143", "[7] (495) 555-0100"]),
    "website": ("contacts", ["a@farm.example", "https://farm.example/a", "www.barn.example"]),
    "billing address": ("contacts", ["Long Lane", "Mill Row", "Tern Street"]),
    "position": ("contacts", ["42 30 N, 1 30 E", "53 00 N, 8 00 W"]),
    "banner": ("signs", ["\U0001f1eb\U0001f1f7", "\U0001f1e9\U0001f1ea"]),
    "founding": ("signs", ["1278", "6 December 1922", "3 May 1815"]),
    "tracks": ("amounts", ["1,441 km (2020) 225 km electrified", "437 km", "12 km"]),
    "local name": ("script", ["\u0413\u0430\u0432\u0430\u043d\u044c", "\u6e2f\u53e3", "Havn"]),
    "tongue sample": ("prose", ["The book", "A page"]),
    "weather": ("prose", ["It rains in June; dry later", "mild, wet, windy, cold"]),
    "soil": ("prose", ["low hills that rise in the east", "sand and clay in the far south"]),
    "share (0-14 years)": ("odd_head", ["much", "little"]),
}


@pytest.mark.parametrize("head", LEFT_OUT)
def test_what_nobody_would_say_is_left_out(head):
    why, values = LEFT_OUT[head]
    assert why_not(Relation(name=head, domain="farm", range="string", label=head), values) == why


@pytest.mark.parametrize(
    ("head", "values"),
    [
        ("capital", ["Olmhaven", "Karsund", "Verlo"]),
        ("official name", ["Republic of Verlo", "Democratic Federal Republic of the Brakne Islands"]),
        ("independent status", ["yes", "no"]),
        ("CIOC code", ["OLM", "KAR", "VER"]),
        ("symbol", ["H", "He", "Li"]),
        ("holiday", ["Harvest Day, 3 July", "Mill Day, 9 May"]),
        ("colour", ["red", "green"]),
        ("day of founding", ["3 May 1815", "6 December 1922"]),
    ],
)
def test_what_people_say_is_kept(head, values):
    assert why_not(Relation(name=head, domain="farm", range="string", label=head), values) == ""


def test_names_in_their_own_script_are_no_fault():
    values = ["\u0413\u0430\u0432\u0430\u043d\u044c", "\u041c\u0438\u0440"]
    relation = Relation(name="town", domain="farm", range="string", label="town")
    assert why_not(relation, values, latin=False) == ""
    kb = KB(
        [Entity.make("farm", v) for v in values],
        [relation],
        [Fact.make(f"farm:{v}", "town", literal=v) for v in values],
    )
    assert unasked(Postings.of(kb)) == {} and worded(Postings.of(kb)) == set()


def test_a_table_with_codes_and_telephones(tmp_path):
    """They are facts, and no question asks for them, or uses them; whoever names them gets them."""
    rng = random.Random(0)
    towns = [
        f"{a}{b}" for a in ("Olm", "Kar", "Brak", "Ver", "Tarn", "Lis") for b in ("haven", "sund", "ne", "lo", "by")
    ]
    rows = [
        {
            "name": town,
            "cca3": town[:2].upper() + chr(65 + i % 26),
            "phone": f"+49 30 555{1000 + i}",
            "flag": chr(0x1F1E6 + i % 26) + chr(0x1F1E6 + i // 26),
            "area": rng.randrange(10, 9000),
            "land": rng.choice(("Norland", "Vesta", "Corrin")),
            "mayor": f"Ann {chr(65 + i % 26)}{'abcdefgh'[i % 8]}o{'klmn'[i % 4]}",
        }
        for i, town in enumerate(towns)
    ]
    path = tmp_path / "towns.json"
    path.write_text(json.dumps(rows))
    kb = build([json_records(path, "towns", type="town")]).kb
    aside = unasked(Postings.of(kb))
    assert aside == {"cca3": "codes", "phone": "contacts", "flag": "signs"}
    trees = FuzzyTrees.of(kb, passages(kb), seed=1, closed_world=True)
    assert not aside.keys() & trees.graph.columns.keys()
    assert {"area", "land", "mayor"} <= trees.graph.columns.keys()
    made = [trees("train", 2, i) for i in range(40)]
    assert any(p is not None and hasattr(p, "prompt") for p in made)
    named = FuzzyTrees.of(kb, passages(kb), seed=1, closed_world=True, only=["phone", "land", "area"])
    assert "phone" in named.graph.columns


def test_a_text_that_only_another_relation_has_is_found_under_none():
    """Texts of a relation are looked up by number; one that it lacks is not the next one."""
    relations = [Relation(name=n, domain="farm", range="string", label=n) for n in ("crop", "zone")]
    farms = [Entity.make("farm", x) for x in ("A", "B")]
    facts = [Fact.make("farm:A", "crop", literal="barley"), Fact.make("farm:B", "crop", literal="rye")]
    facts += [Fact.make("farm:A", "zone", literal="north"), Fact.make("farm:B", "zone", literal="west")]
    lexicon = Lexicon(Graph.of(KB(farms, relations, facts)))
    assert [lexicon.find("crop", x) for x in ("barley", "north", "west", "none")] == [("barley",), (), (), ()]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("no words/Ann Lo", "a remark, or half an answer"),
        ("other 1", "a remark, or half an answer"),
        ("HX, HY", "a remark, or half an answer"),
        ("Saint- Olm", "a remark, or half an answer"),
        ("Ann Lo (singer", "a remark, or half an answer"),
        ("barge 5, tanker 2, other 32", "a list or a sentence"),
        ("farm@verlo.example https://verlo.example/", "an address"),
        ("5.022 million tonnes of smoke", "an amount with its unit"),
        ("16,390 km (2020) 6,167 km electrified", "an amount with its unit"),
        ("carts, refined oil, wool", "a list or a sentence"),
        ("Olmhaven", ""),
        ("Republic of Verlo", ""),
        ("Central Norland, south of Vesta", ""),
        ("Harvest Day, 3 July", ""),
        ("12 Cows", ""),
        ("AC/DC", ""),
        ("not automated", ""),
        ("1999", ""),
    ],
)
def test_texts_that_are_no_answers(text, fault):
    assert unclean(text) == fault


def test_no_answer_and_no_clue_is_unclean(tmp_path):
    """A few texts of a column are no answers: the others are asked."""
    rng = random.Random(0)
    towns = [
        f"{a}{b}" for a in ("Olm", "Kar", "Brak", "Ver", "Tarn", "Lis") for b in ("haven", "sund", "ne", "lo", "by")
    ]
    hymns = [f"Song of {t[::-1].title()}" if i % 6 else f"no words/Ann {t[::-1].title()}" for i, t in enumerate(towns)]
    rows = [
        {"name": t, "hymn": h, "area": rng.randrange(10, 9000), "land": rng.choice(("Norland", "Vesta", "Corrin"))}
        for t, h in zip(towns, hymns, strict=True)
    ]
    path = tmp_path / "towns.json"
    path.write_text(json.dumps(rows))
    kb = build([json_records(path, "towns", type="town")]).kb
    trees = FuzzyTrees.of(kb, passages(kb), seed=1, closed_world=True)
    assert "hymn" in trees.graph.columns
    asked = {x for split in ("train", "valid", "test") for r, x in trees.roots(split) if r == "hymn"}
    ids = trees.graph.postings.ids
    assert {ids[x] for x in asked} == {f"town:{t}" for t, h in zip(towns, hymns, strict=True) if h.startswith("Song")}
    made = [trees("train", 2, i) for i in range(80)]
    problems = [p for p in made if isinstance(p, Problem)]
    assert any(p.answer.startswith("Song of") for p in problems)
    assert not [p for p in problems if "no words" in f"{p.answer} {p.prompt}"]
