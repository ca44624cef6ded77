"""Names that begin, end or stand within others (Niger in Nigeria, Guinea in Guinea-Bissau): linked, asked about, read
back and opened rightly, from documents and from triples."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from synth.knowledge.kb import KB
from synth.knowledge.sources.documents import mentioned
from synth.types import Problem
from tasks.knowledge import bases
from tasks.storage import tables

LANDS = (
    "Niger",
    "Nigeria",
    "Guinea",
    "Guinea-Bissau",
    "Equatorial Guinea",
    "Papua New Guinea",
    "Congo",
    "Democratic Republic of the Congo",
    "Dominica",
    "Dominican Republic",
    "Mali",
    "Malia",
    "Sudan",
    "South Sudan",
    "Oman",
    "Romania",
    "Ireland",
    "Northern Ireland",
    "Georgia",
    "South Georgia",
    "Samoa",
    "American Samoa",
    "India",
    "Indiana",
    "Korea",
    "North Korea",
    "Timor",
    "East Timor",
    "Guiana",
    "French Guiana",
    "Verde",
    "Cape Verde",
    "Virgin Islands",
    "British Virgin Islands",
)
CITIES = tuple(f"{land} City" for land in LANDS)


def facts() -> dict[tuple[str, str], list[str]]:
    """(subject, key) -> objects. Neighbours lie beside each other in LANDS, so each is next to the name that it could
    be taken for."""
    out, n = {}, len(LANDS)
    for i, (land, city) in enumerate(zip(LANDS, CITIES, strict=True)):
        out[land, "Capital"] = [city]
        out[land, "Neighbours"] = [LANDS[(i - 1) % n], LANDS[(i + 1) % n]]
        out[land, "Founded"] = [f"{i % 28 + 1} May {1700 + 11 * i}"]
        out[city, "Twin town"] = [CITIES[(i + 5) % n]]
        out[city, "Country"] = [land]
    return out


def documents(folder: Path) -> None:
    for kind, names in (("land", LANDS), ("city", CITIES)):
        (folder / kind).mkdir(parents=True)
        for name in names:
            lines = [f"# {name}", "", f"{name} lies near other places.", ""]
            lines += [f"{key}: {'; '.join(values)}" for (subject, key), values in facts().items() if subject == name]
            (folder / kind / f"{name.lower().replace(' ', '-')}.md").write_text("\n".join(lines))


def triples(folder: Path) -> None:
    folder.mkdir()
    rows = [f"{s},{key.lower().replace(' ', '_')},{o}" for (s, key), values in facts().items() for o in values]
    (folder / "mine.csv").write_text("\n".join(["subject,relation,object", *rows]) + "\n")


@pytest.fixture(scope="module", params=[documents, triples])
def base(request, tmp_path_factory) -> tuple[Path, KB]:
    root = tmp_path_factory.mktemp(request.param.__name__)
    request.param(root / "data")
    named = ["--folders"] if request.param is documents else []
    assert (
        main(["kb", "build", str(root / "data" if named else root / "data/mine.csv"), "--out", str(root / "kb")]) == 0
    )
    return root, bases.load(root / "kb")


def test_each_fact_leads_to_the_name_that_was_meant(base):
    _, kb = base
    stated = {(kb.text(f.subject), f.relation.split("_")[-1], kb.text(f.value)) for f in kb.facts.values()}
    for (subject, key), values in facts().items():
        if key != "Founded":
            assert {o for s, r, o in stated if s == subject and r == key.lower().split()[-1]} == set(values)


def constants(pattern: dict | list | str, kb: KB) -> set[str]:
    """The names of the entities that a pattern of JSON gives."""
    if isinstance(pattern, dict | list):
        return set().union(*(constants(x, kb) for x in (pattern.values() if isinstance(pattern, dict) else pattern)))
    return {kb.entities[pattern].name} if isinstance(pattern, str) and pattern in kb.entities else set()


def test_questions_say_the_name_that_they_mean_and_are_proved_from_the_file(base, capsys):
    root, kb = base
    assert (
        main(
            [
                "questions",
                "grow",
                "--kb",
                str(root / "kb"),
                "--out",
                str(root / "q"),
                "--n",
                "60",
                "--depths",
                "2,3",
                "--closed-world",
            ]
        )
        == 0
    )
    questions = tables.read(root / "q" / "problems.parquet", Problem)
    known = {n.lower(): n for n in (*LANDS, *CITIES)}
    spoken = [
        ({title for _, _, title in mentioned(p.question, known)}, constants(p.lineage["pattern"], kb))
        for p in questions
    ]
    assert len(questions) >= 30 and all(named == meant for named, meant in spoken)
    within = [n for n in known.values() if any(n in other and n != other for other in known.values())]
    assert sum(bool(named & set(within)) for named, _ in spoken) >= 10
    assert main(["verify", str(root / "q" / "questions.jsonl"), "--kb", str(root / "kb")]) == 0
    assert f"{len(questions)} of {len(questions)} questions proved again" in capsys.readouterr().out
    rows = [json.loads(line) for line in (root / "q" / "questions.jsonl").read_text().splitlines()]
    row = next(r for r in rows if r["answer"] in CITIES)
    (root / "other.jsonl").write_text(json.dumps(row | {"answer": row["answer"].removesuffix(" City")}) + "\n")
    assert main(["verify", str(root / "other.jsonl"), "--kb", str(root / "kb")]) == 1


def test_a_page_opens_under_its_own_name(base):
    root, _ = base
    index = bases.index(root / "kb")
    for name in (*LANDS, *CITIES):
        page = index.open(name)
        assert name in page and all(
            o in page for (s, key), values in facts().items() if s == name and key != "Founded" for o in values
        ), name
