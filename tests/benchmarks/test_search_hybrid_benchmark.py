"""The questions of benchmarks/search_hybrid.py and its reading of published sets: no search is measured here."""

import json

import numpy as np
import pytest

from benchmarks import search_hybrid as bench
from benchmarks.search import DATA

CORPUS = [
    {
        "title": "Red (1950 film)",
        "text": "Red is a 1950 British crime film directed by Ann Lee and starring Tom Orr. It won.",
    },
    {"title": "Ann Lee", "text": "Ann Lee was a British director."},
    {"title": "Tom Orr", "text": "Tom Orr was the son of Hugh Orr."},
    {"title": "Hugh Orr (judge)", "text": "A judge."},
    {"title": "Blue", "text": "Blue is a film directed by Max Roe."},
    {"title": "Max Roe (actor)", "text": "An actor."},
    {"title": "Max Roe (director)", "text": "A director."},
]


def test_a_link_is_a_relation_to_the_one_page_of_that_title():
    assert bench.links(CORPUS) == [(0, "director", 1), (2, "father", 3)]  # there are two Max Roe


def test_questions_name_or_describe_the_first_page_and_never_name_the_second():
    questions = bench.questions(CORPUS)
    assert [q.needs for q in questions["bridge"]] == [{0, 1}, {2, 3}]
    (vague,) = questions["described"]
    assert "Ann Lee" not in vague.text and "Red" not in vague.text and "1950 British crime film" in vague.text
    assert all("Ann Lee" not in q.text and "Hugh" not in q.text for some in questions.values() for q in some)


@pytest.mark.skipif(not DATA.exists(), reason="the paragraphs are not beside this checkout (../shared/data)")
def test_halves_share_no_first_page():
    questions = bench.questions(json.loads(DATA.read_text(encoding="utf-8")))
    sides = [{min(q.needs) for q in questions["bridge"] if q.chosen_on is half} for half in (True, False)]
    assert all(len(some) > 300 for some in sides) and {len(q.needs) for q in questions["bridge comparison"]} <= {3, 4}


def test_published_sets_are_read():
    musique = {
        "question": "q1",
        "paragraphs": [
            {"title": "A", "paragraph_text": "a", "is_supporting": True},
            {"title": "B", "paragraph_text": "b", "is_supporting": False},
        ],
    }
    hotpot = {"question": "q2", "context": [["B", ["b"]], ["C", ["c ", "d"]]], "supporting_facts": [["C", 0], ["B", 0]]}
    for text in (json.dumps([musique, hotpot]), f"{json.dumps(musique)}\n{json.dumps(hotpot)}\n"):
        corpus, some = bench.published(text)
        assert [r["title"] for r in corpus] == ["A", "B", "C"] and [q.needs for q in some] == [{0}, {1, 2}]


def test_recall_and_its_interval():
    some = [bench.Question("x", frozenset({1, 2}), True), bench.Question("y", frozenset({3}), False)]
    assert bench.recalls(lambda query: [1, 9, 3], some).tolist() == [50.0, 100.0]
    assert bench.recalls(lambda query: [9] * bench.K + [3], some).tolist() == [0.0, 0.0]  # the sixth does not count
    low, high = bench.interval(np.array([0.0, 100.0] * 50))
    assert 35 < low < 50 < high < 65


def test_a_missing_package_is_said_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(bench, "find_spec", lambda name: None if name == "Stemmer" else name)
    monkeypatch.setattr("sys.argv", ["search_hybrid"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "the package of Stemmer is missing: pip install 'espalier[bench]'" in capsys.readouterr().err
