"""Facts of a model: what is kept of right and wrong ones, by each route alone and by both; forms of its lines; how its facts
stand beside those of the sentence patterns."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from synth.knowledge.documents import Document
from synth.knowledge.ingest import build
from synth.knowledge.model_facts import Stopped, read_facts, relation_keys, verb_words
from synth.knowledge.patterns import LABELS, statements
from synth.knowledge.sources import read_source
from synth.knowledge.stated import Claim, Span, fault, places
from synth.knowledge.text import tidy
from tests.support.scripted_reader import Reader, read_pages
from tests.support.wrong_facts import wrong

DATA = Path(__file__).parents[4] / "shared" / "data"
needs = pytest.mark.skipif(not DATA.is_dir(), reason="the real data are not beside this checkout (../shared/data)")
PAGES = read_pages(Path(__file__).with_name("model_sentences.txt"))
OBJECTS = {o.lower(): o for p in PAGES for facts in p.facts for _, _, o in facts if not any(c.isdigit() for c in o)}
TITLES = OBJECTS | {p.title.lower(): p.title for p in PAGES}
TYPES = {p.title: "page" for p in PAGES}
TEXT = """Otto Wend

Otto Wend was born in Zelton in 1901. He married Clara Roth. He was not a member of the Reed Club. His brother may be Jan Wend.
"""


def read(pages, written, knows):
    return read_facts([p.document for p in pages], TITLES, TYPES, Reader(written, knows))


def test_right_facts_are_kept():
    truth = {s: facts for p in PAGES for s, facts in zip(p.sentences, p.facts, strict=True)}
    out = read(PAGES, truth, truth)
    right = sum(map(len, truth.values()))
    print(f"right: {len(out.facts)} of {right}")
    assert len(truth) >= 60 and right >= 95
    assert len(out.facts) >= 0.95 * right, [(r.reason, r.line) for r in out.refused]
    assert out.counts["kept"] + len(out.refused) == out.counts["lines"] == right


def test_wrong_facts_are_refused_by_both_routes_and_nearly_all_by_the_sentence_alone():
    kept = {"sentence": Counter(), "both": Counter()}
    made = Counter()
    for kind, page, i, fact in wrong(PAGES):
        sentence = page.sentences[i]
        right = [] if kind in ("denied", "doubted") else page.facts[i]
        made[kind] += 1
        for route, knows in (("sentence", [fact]), ("both", right)):  # the first says yes to whatever it wrote
            kept[route][kind] += len(read([page], {sentence: [fact]}, {sentence: knows}).facts)
    print(f"wrong: {kept['sentence'].total()} and {kept['both'].total()} of {made.total()}")
    assert sum(made.values()) > 1000 and min(made.values()) >= 30, made
    assert not kept["both"].total()
    assert kept["sentence"].total() <= 0.01 * made.total(), kept["sentence"]


def test_the_second_reading_refuses_what_the_sentence_alone_does_not():
    sentence = "Port Halia is a port city on the Halian Sea and the seat of the Halian parliament."
    page = next(p for p in PAGES if sentence in p.sentences)
    fact = ("Port Halia", "seat of", "parliament")
    assert len(read([page], {sentence: [fact]}, {sentence: [fact]}).facts) == 1
    for knows, reason in (
        ([("Port Halia", "seat of", "Halian parliament")], "object_not_confirmed"),
        ([("Port Halia", "seat of", "parliament"), ("Zelton", "seat of", "parliament")][1:], "object_not_confirmed"),
    ):
        out = read([page], {sentence: [fact]}, {sentence: knows})
        assert not out.facts and [r.reason for r in out.refused] == [reason]

    class Other(Reader):  # names the object, and another subject
        def answer(self, prompt):
            return "Halian Sea" if "\n____ |" in prompt else super().answer(prompt)

    out = read_facts([page.document], TITLES, TYPES, Other({sentence: [fact]}, {sentence: [fact]}))
    assert not out.facts and [r.reason for r in out.refused] == ["subject_not_confirmed"]


@pytest.mark.parametrize(
    "form, kept",
    [
        ("{}", 1),
        (' "{}."\nI am sure.', 1),
        ("{}, and Karl Marten", 1),
        ("Ilse Marten | place of birth | Zelton", 1),
        ("| Ilse Marten | place of birth | Zelton |", 1),
        ("Ilse Marten | place of birth | Vael", 0),
        ("The answer is {}", 0),
        ("not {}", 0),
        ("Port {}", 0),
        ("none", 0),
        ("", 0),
    ],
)
def test_which_answers_fill_a_gap(form, kept):
    class Said(Reader):
        def answer(self, prompt):
            return (
                form.format("Zelton" if "birth | ____" in prompt else "Ilse Marten")
                if "____" in prompt
                else super().answer(prompt)
            )

    sentence = PAGES[0].sentences[0]
    reader = Said({sentence: [("Ilse Marten", "place of birth", "Zelton")]}, {})
    assert len(read_facts([PAGES[0].document], TITLES, TYPES, reader).facts) == kept


@pytest.mark.parametrize(
    "sentence, subject, relation, object, reason",
    [
        ("Ada Kron was born in Zelton.", "Ada Kron", "place of birth", "Zelton", ""),
        ("Ada Kron was born in Zelton.", "Ada Kron", "place of birth", "Vael", "object_not_in_sentence"),
        ("Ada Kron was born in Zelton.", "Ada Kron", "employer", "Zelton", "relation_not_in_sentence"),
        ("Ada Kron wasn't born in Zelton.", "Ada Kron", "born in", "Zelton", "negated"),
        ("Ada Kron was reportedly born in Zelton.", "Ada Kron", "born in", "Zelton", "hedged"),
        ("Ada Kron was born in Zelton or Vael.", "Ada Kron", "born in", "Zelton", "hedged"),
        ("Ada Kron died after 938.", "Ada Kron", "death year", "938", "hedged"),
        ("In May 1950 Ada Kron was born in Zelton.", "Ada Kron", "born in", "Zelton", ""),
        ("Ada Kron was born in New Zelton.", "Ada Kron", "born in", "Zelton", "cut_name"),
        ("Ada Kron was born in Zelton and died in Vael.", "Ada Kron", "born in", "Vael", "other_statement"),
        ("Ada Kron married Otto, who was born in Zelton.", "Ada Kron", "born in", "Zelton", "other_statement"),
        ("The Orsk is 28,748 sq km in area.", "The Orsk", "area", "28,748 sq km", ""),
        ("The Orsk is 28,748 sq km in area.", "The Orsk", "area", "28,748", "other_quantity"),
        ("The Orsk is 28,748 sq km in area.", "The Orsk", "area", "8,748 sq km", "other_quantity"),
        ("The Orsk is 28,748 sq km in area.", "The Orsk", "area", "28,748 sq mi", "other_quantity"),
        ("Ada Kron was born on 3 May 1901.", "Ada Kron", "date of birth", "May 3, 1901", ""),
        ("Ada Kron was born on 3 May 1901.", "Ada Kron", "date of birth", "4 May 1901", "other_date"),
        ("Ada Kron was born on 3 May 1901.", "Ada Kron", "place of birth", "3 May 1901", "other_kind"),
        ("Norvia Days was directed by Ada Kron.", "Norvia Days", "director", "Ada Kron", ""),
        ("Ada Kron directed Norvia Days.", "Norvia Days", "directed by", "Ada Kron", ""),
        ("Ada Kron directed Norvia Days.", "Ada Kron", "directed by", "Norvia Days", "swapped"),
        ("Norvia Days was directed by Ada Kron.", "Norvia Days", "directed", "Ada Kron", "swapped"),
        ("Zelton is the capital of Norvia.", "Zelton", "capital", "Norvia", "swapped"),
        ("Zelton is the capital of Norvia.", "Norvia", "capital", "Zelton", ""),
        ("Jan is a son of Karl.", "Jan", "child", "Karl", "swapped"),
        ("Jan is a son of Karl.", "Karl", "child", "Jan", ""),
        ("Jan is married to Lena.", "Lena", "spouse", "Jan", ""),
        ("Jan (3 May 1901 \u2013 9 June 1970) was a poet.", "Jan", "date of birth", "3 May 1901", ""),
        ("Jan (3 May 1901 \u2013 9 June 1970) was a poet.", "Jan", "date of death", "9 June 1970", ""),
        (
            "Jan (3 May 1901 \u2013 9 June 1970) was a poet.",
            "Jan",
            "date of birth",
            "9 June 1970",
            "relation_not_in_sentence",
        ),
        (
            "Jan (c. 3 May 1901 \u2013 9 June 1970) was a poet.",
            "Jan",
            "date of birth",
            "3 May 1901",
            "relation_not_in_sentence",
        ),
        ("Reed is a film directed by Ada Kron and starring Jo Tamm.", "Reed", "director", "Jo Tamm", "other_statement"),
        ("Reed is a film directed by Ada Kron that stars Jo Tamm.", "Reed", "director", "Jo Tamm", "other_statement"),
        ("Reed is a film directed by Ada Kron and starring Jo Tamm.", "Reed", "actor", "Ada Kron", "other_statement"),
        ("Jan was born at Vael, the only son of Karl Roth.", "Jan", "parent", "Vael", "other_statement"),
        ("Jan was a brother of Karl, Duke of Vael.", "Jan", "sibling", "Karl, Duke of Vael", ""),
        ("Do Not Marry is a film directed by Ada Kron.", "Do Not Marry", "director", "Ada Kron", ""),
    ],
)
def test_the_sentence_alone(sentence, subject, relation, object, reason):
    assert fault(Claim(places(subject, sentence)[0], relation, object), sentence) == reason


def test_names_are_found_in_any_spelling_and_never_within_a_number():
    assert places("Cote d'Ivoire", "The C\u00f4te d\u2019Ivoire is large.") == [Span(4, 17)]
    assert places("28", "an area of 28,748 km") == [] and places("28", "28 of them") == [Span(0, 2)]


def test_hostile_text_costs_linear_time():
    for text in ("Ada " * 150, "(" * 600, "was born in " * 50, ", and " * 100, "1,2" * 200, "A of " * 120):
        fault(Claim(Span(0, 3), "born in", "Ada of A"), text)


# ---- lines


def lines(*answers):
    """What is read of the answers of a model to a page of two sentences; it confirms everything."""
    text = "Otto Wend was born in Zelton. He married Clara Roth."
    replies = iter(answers)

    def ask(prompts):
        if "number of the sentence" in prompts[0]:
            return [next(replies) for _ in prompts]
        gaps = [p.splitlines()[-2].split(" | ") for p in prompts]
        whole = {"born in": ("Otto Wend", "Zelton"), "spouse": ("He", "Clara Roth")}
        return [whole[relation][s != "____"] for s, relation, _ in gaps]

    return read_facts([Document(id="w", title="Otto Wend", text=text)], {"otto wend": "Otto Wend"}, {}, ask)


@pytest.mark.parametrize(
    "answer, kept, malformed",
    [
        ("1 | Otto Wend | born in | Zelton\n2 | He | spouse | Clara Roth", 2, 0),
        ("- 1. | Otto Wend | born in | Zelton.\n| 2 | He | Spouse | Clara Roth |", 2, 0),
        ("1 | Otto Wend | born in | Zelton\n1 | Otto Wend | born in | Zelton", 1, 0),
        ("1 | Otto Wend | born in | Zelton\nHere are the facts:\n1 | Otto\n1 | a | b | c | d", 1, 3),
        ("1 | Otto Wend | born in | Zelton\n3 | He | spouse | Clara Roth\n0 | He | spouse | Clara Roth", 1, 2),
        ("1 | Otto Wend | born in | Zelton\n2 | He | __import__('os') | Clara Roth", 1, 1),
        ("1 | Otto Wend | born in | Zelton\n1 | Otto Wend | 12 | Zelton\n1 |  | born in | Zelton", 1, 2),
        ("none", 0, 0),
        ("", 0, 0),
    ],
)
def test_lines_and_what_is_malformed(answer, kept, malformed):
    out = lines(answer)
    assert (len(out.facts), out.counts["malformed"], out.stopped) == (kept, malformed, "")


def test_a_model_that_writes_no_line_is_named_in_one_sentence():
    out = lines("I cannot help with that.\nSorry.")
    assert not out.facts and not out.refused and out.counts["malformed"] == 2
    assert "wrote no line" in out.stopped and "name a larger model" in out.stopped


def test_a_model_that_cannot_be_asked_stops_and_keeps_nothing():
    def ask(prompts):
        raise Stopped("it is down: start it")

    out = read_facts([p.document for p in PAGES], TITLES, TYPES, ask)
    assert out.stopped == "it is down: start it" and not out.facts


def test_the_prompts_of_the_second_reading_do_not_show_what_they_ask_for():
    sentence = PAGES[0].sentences[0]
    reader = Reader({sentence: PAGES[0].facts[0]}, {sentence: PAGES[0].facts[0]})
    read_facts([PAGES[0].document], TITLES, TYPES, reader)
    gaps = [p.splitlines()[-2] for p in reader.asked if "____" in p]
    assert gaps.count("Ilse Marten | place of birth | ____") == 1 and gaps.count("____ | place of birth | Zelton") == 1
    assert len(gaps) == 4


def test_words_for_relations():
    assert relation_keys("place of birth") == ["born_in", "place_of_birth"]
    assert relation_keys("was Directed By") == ["directed_by"] and relation_keys("employer") == ["employer"]
    assert verb_words("employer", "") == {} and verb_words("capital of", "")["passage"] == "{x} is capital of {y}."
    assert verb_words("buried in", "He was buried in Vael.")["forward"] == "what {x} was buried in"
    assert verb_words("works for", "He works for Acme.")["inverse"] == "the {domain} that works for {y}"


# ---- beside the patterns


def reading(tmp_path, *facts, knows=None):
    (tmp_path / "wend.txt").write_text(TEXT)
    (tmp_path / "zelton.txt").write_text("Zelton\n\nZelton is a city in Norvia.\n")
    by_sentence = {}
    for sentence, *fact in facts:
        by_sentence.setdefault(sentence, []).append(tuple(fact))
    reading = read_source(tmp_path, "documents", name="docs", ask=Reader(by_sentence, by_sentence))
    built = build([reading])
    rows = {(f.subject.partition(":")[2], f.relation, built.kb.text(f.value)): f for f in built.kb.facts.values()}
    return reading, built, rows


BORN = "Otto Wend was born in Zelton in 1901."


def test_a_fact_of_both_routes_is_one_fact_with_both_origins(tmp_path):
    _, built, rows = reading(tmp_path, (BORN, "Otto Wend", "place of birth", "Zelton"))
    fact = rows["Otto Wend", "born_in", "Zelton"]
    assert fact.source.endswith(" [pattern, model]") and fact.span == BORN
    assert built.produced == built.accepted + len(built.quarantined)


def test_another_spelling_of_an_object_is_the_same_fact(tmp_path):
    text = "Ada Kron was born in Saint-Malo."
    (tmp_path / "kron.md").write_text(f"# Ada Kron\n\n{text}\n")
    _, built, rows = reading(tmp_path, (text, "Ada Kron", "place of birth", "Saint Malo"))
    assert rows["Ada Kron", "born_in", "Saint-Malo"].source.endswith(" [pattern, model]")
    assert ("Ada Kron", "born_in", "Saint Malo") not in rows and not built.quarantined


def test_a_fact_of_the_model_alone_carries_its_sentence(tmp_path):
    text = "Otto Wend was employed by Aerowerk Vael in 1930."
    (tmp_path / "more.md").write_text(f"# Aerowerk Vael\n\nAerowerk Vael is a company. {text}\n")
    _, _, rows = reading(tmp_path, (text, "Otto Wend", "employer", "Aerowerk Vael"))
    fact = next(f for (s, r, o), f in rows.items() if r.endswith("employer"))
    assert fact.source.startswith("docs/more.md chars ") and fact.source.endswith(" [model]") and fact.span == text


def test_a_contradiction_of_a_one_valued_relation_is_quarantined(tmp_path):
    text = "Otto Wend was born in Vael."
    (tmp_path / "more.md").write_text(f"# Vael\n\nVael is a town. {text}\n")
    facts = [(text, "Otto Wend", "born in", "Vael"), ("He married Clara Roth.", "He", "spouse", "Clara Roth")]
    reading_, built, rows = reading(tmp_path, *facts)
    assert ("Otto Wend", "born_in", "Vael") not in rows and ("Otto Wend", "born_in", "Zelton") in rows
    bad = next(q for q in built.quarantined if q.reason == "model_contradicts")
    assert text in bad.evidence and "its place of birth is 'Zelton' already" in bad.evidence
    assert rows["Otto Wend", "spouse", "Clara Roth"].source.endswith(" [pattern, model]")


def test_refused_lines_are_quarantined_with_their_sentence_and_counted(tmp_path):
    facts = [
        (BORN, "Otto Wend", "born in", "Atlantis"),
        ("He was not a member of the Reed Club.", "He", "member of", "Reed Club"),
        ("His brother may be Jan Wend.", "Otto Wend", "brother", "Jan Wend"),
        (BORN, "Otto Wend", "born", "1901"),
    ]
    reading_, built, rows = reading(tmp_path, *facts)
    reasons = Counter(q.reason for q in built.quarantined)
    assert reasons["model_object_not_in_sentence"] == 1 and reasons["model_negated"] == 1
    assert reasons["model_subject_not_in_sentence"] == 1 and reasons["model_other_kind"] == 1
    assert all(q.evidence.startswith("docs/wend.txt chars") for q in built.quarantined)
    assert any(q.evidence.endswith("| He was not a member of the Reed Club.") for q in built.quarantined)
    assert reading_.by_model["lines"] == 4 and not any(f.source.endswith("model]") for f in rows.values())


def test_without_a_model_nothing_changes(tmp_path):
    (tmp_path / "wend.txt").write_text(TEXT)
    plain = read_source(tmp_path, "documents", name="docs")
    asked = read_source(tmp_path, "documents", name="docs", ask=lambda prompts: ["none"] * len(prompts))
    assert plain.rows == asked.rows and plain.schema == asked.schema and not plain.by_model


def test_lines_of_pages_are_not_sent(tmp_path):
    (tmp_path / "a.md").write_text(
        "# Norvia\n\nArea: 28,748 square kilometres of land\n\nNorvia is a country in the north.\n"
    )
    asked = []
    read_source(tmp_path, "documents", ask=lambda prompts: [asked.append(p) or "none" for p in prompts])
    assert len(asked) == 1 and "Norvia is a country" in asked[0] and "Area" not in asked[0]


# ---- real sentences


@needs
def test_in_real_sentences_most_facts_of_the_patterns_pass_and_few_with_the_object_of_another_relation():
    rows = json.loads((DATA / "2wiki" / "2wikimultihopqa_corpus.json").read_text(encoding="utf-8"))
    documents = [Document(id=str(i), title=tidy(r["title"]), text=r["text"]) for i, r in enumerate(rows)][::12]
    titles = {d.title.lower(): d.title for d in documents}
    right, wrong_ = Counter(), Counter()
    for d in documents:
        found = [f for f in statements(d.text, d.title) if f.kind in ("name", "date") and f.relation != "place"]
        for f in found:
            sentence = tidy(d.text[f.start : f.end])
            begin = (
                r".{1,79}?(?=\s*\(| (?:was|is|were|are)\b|,? born)"
                if f.start == found[0].start
                else r"(?:He|She|It|They)\b"
            )
            name = re.match(begin, sentence)
            subject = name[0].strip(' "') if name else d.title
            label = LABELS[f.relation].replace("artist", "performed by")
            others = [g.value for g in found if g.start == f.start and g.relation != f.relation]
            mine = [g.value for g in found if g.relation == f.relation]
            for counts, object in ((right, f.value), *((wrong_, o) for o in others if o not in mine)):
                reader = Reader({sentence: [(subject, label, object)]}, {sentence: [(subject, label, object)]})
                counts[bool(read_facts([d], titles, {}, reader).facts)] += 1
    print(f"right: {right[True]} of {right.total()}; wrong: {wrong_[True]} of {wrong_.total()}")
    assert right.total() > 600 and right[True] >= 0.9 * right.total()
    assert wrong_.total() > 400 and wrong_[True] <= 0.01 * wrong_.total()
