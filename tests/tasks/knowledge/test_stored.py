"""A base that is read from its files gives the questions, pages and rows of the same base in memory."""

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from synth.knowledge.kb import Passage, passages
from synth.questions.fuzzy.oracle import pages_of
from synth.questions.prove import Prover
from synth.search.searchers import World
from tasks.core.errors import UserError
from tasks.knowledge import bases, knowledge
from tasks.knowledge.stored import Stored, opened
from tasks.pages import questions
from tasks.problems import grow, verify
from tasks.results import difficulty
from tasks.storage import tables

ROWS = (
    "subject,relation,object\nCôte d'Ivoire,border,Norvia\nCote d'Ivoire,border,Halia\nHalia,border,Cote d'Ivoire\n"
    + "".join(f"Norvia,port,Port {i}\n" for i in range(7))
    + "".join(f"{'Danu' if i % 2 else 'Halia'},border,Land {i}\n" for i in range(6))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fictional world, and names that are one, lists of many objects, and a relation that is listed one way."""
    out = tmp_path_factory.mktemp("stored")
    (out / "more.csv").write_text(ROWS, encoding="utf-8")
    bases.build_base([{"kind": "csv_triples", "path": str(out / "more.csv")}], out / "kb", countries=14, seed=2)
    return out / "kb"


def test_what_is_read_is_what_is_in_memory(folder: Path) -> None:
    base, kb = Stored(folder), knowledge.kb_at(folder)
    assert base.relations == kb.relations and list(base.relations) == list(kb.relations)
    assert base.aliases == {e.id: e.aliases for e in kb.entities.values() if e.aliases} != {}
    for x in [*kb.entities, "nothing", "1200"]:
        assert base.text(x) == kb.text(x)
    for r in kb.relations:
        assert sorted(base.listed(r)) == sorted(kb.listed(r))
    assert knowledge.digest_at(folder) == kb.digest()


@pytest.mark.parametrize("objects", [1, 4])
def test_pages_are_those_of_the_passages(folder: Path, tmp_path: Path, objects: int) -> None:
    for name in ("postings.npz", "kb.sqlite", "facts.parquet", "entities.parquet"):
        (tmp_path / name).symlink_to(folder / name)
    kb = knowledge.kb_at(folder)
    texts = passages(kb, objects=objects)
    texts = texts[::-1] if objects == 1 else texts  # not the order of the facts
    tables.write(tmp_path / "passages.parquet", texts, Passage)
    base = Stored(tmp_path)
    ends = {f.id: kb.text(f.value) for f in kb.facts.values()}
    page = pages_of(texts, lambda p: [ends[f] for f in p.facts])
    names = {e.name for e in kb.entities.values()} | set(ends.values())
    assert [name for name in names if base.open(name) != page(name)] == []
    assert sum(page(name) != "" for name in names) > 0.9 * len(names)
    assert base.open("nothing") == page("nothing") == ""
    assert [base.passage(i) for i in range(len(texts))] == [(p.title, p.text) for p in texts]


@pytest.mark.parametrize("knobs", [{}, {"only": ["*a*", "border"]}])
def test_questions_are_the_same_byte_by_byte(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knobs: dict
) -> None:
    cells = grow.cells({"train": 12, "test": 4}, [2, 3])
    by_way = {}
    for way in ("files", "objects"):
        monkeypatch.setattr(grow.Stored, "there", staticmethod(lambda _, way=way: way == "files"))
        with monkeypatch.context() as m:
            if way == "files":
                m.setattr(knowledge, "kb_at", None)  # no objects
            by_way[way] = grow.grow(folder, cells, seed=1, closed_world=True, **knobs)
            grow.write(tmp_path / way, folder, *by_way[way], CARD)
    assert by_way["files"] == by_way["objects"] and len(by_way["files"][0]) >= 6
    for name in ("questions.jsonl", "problems.parquet", "quarantine.parquet"):
        assert (tmp_path / "files" / name).read_bytes() == (tmp_path / "objects" / name).read_bytes(), name


@pytest.fixture(scope="module")
def grown(folder: Path) -> Path:
    """Questions of that base, and rows that were changed."""
    accepted, quarantined = grow.grow(folder, grow.cells({"train": 10, "test": 4}, [2, 3]), seed=3, closed_world=True)
    card = CARD | {"knobs": {"closed_world": True}}
    grow.write(folder.parent / "q", folder, accepted, quarantined, card)
    return folder.parent / "q"


@pytest.mark.parametrize("way", ["published", "problems", "triples", "show", "measure"])
def test_what_reads_questions_says_the_same_without_objects(
    folder: Path, grown: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    rows = [json.loads(line) for line in (grown / "questions.jsonl").read_text().splitlines()]
    problems = grow.read(grown / "problems.parquet")[0]
    wrong = [dict(r) for r in rows[:4]]
    wrong[0]["answer"], wrong[1]["question"], wrong[2]["formalization"] = "Zelton", "Who?", []
    wrong[3] = wrong[3] | {"lineage": wrong[3]["lineage"].replace('"facts":["', '"facts":["0')}
    published = [
        (str(i), json.dumps({k: r[k] for k in ("question", "answer", "formalization")})) for i, r in enumerate(rows)
    ]

    def said() -> object:
        if way == "published":
            return verify.published([*rows, *wrong], folder, grown / "questions.jsonl")
        if way == "problems":
            return verify.ours(problems, folder, grown / "problems.parquet")
        if way == "triples":
            return verify.theirs(published, folder)
        if way == "show":
            return questions.lines(problems, opened(folder)), questions.markdown(problems, opened(folder), 7)
        return difficulty.measure(folder, problems[:4])

    with monkeypatch.context() as m:
        m.setattr(knowledge, "kb_at", None)  # no objects
        m.setattr(difficulty, "kb_at", None)
        files = said()
    monkeypatch.setattr(Stored, "there", staticmethod(lambda _: False))
    assert files == said()
    if way == "published":
        assert files["proved"] == len(rows) >= 6 and len(files["evidence"]) == 4  # type: ignore[index]


def test_what_is_looked_up_is_what_is_in_memory(folder: Path) -> None:
    base, kb = Stored(folder), knowledge.kb_at(folder)
    assert list(base.facts) == list(kb.facts) and list(base.entities.values()) == list(kb.entities.values())
    assert [base.facts[f] for f in kb.facts] == list(kb.facts.values()) == list(base.facts.values())
    assert len(base.entities) == len(kb.entities) and "nothing" not in base.entities
    assert [base.entities[e] for e in kb.entities] == list(kb.entities.values())
    for f in kb.facts.values():
        assert set(base.forward(f.subject, f.relation)) == set(kb.forward(f.subject, f.relation))
        assert set(base.backward(f.relation, f.value)) == set(kb.backward(f.relation, f.value))
    assert {r: sorted(base.pairs(r)) for r in kb.relations} == {r: sorted(kb.pairs(r)) for r in kb.relations}
    world, told = base.world(), World.of(kb)
    assert world.priors == told.priors
    for e in kb.entities.values():
        assert world.reader.known(e.type, e.name) and not world.reader.known("ship", e.name)
    with pytest.raises(KeyError):
        base.facts["nothing"]


CARD = {
    "accepted": 1,
    "produced": 1,
    "kb": "",
    "world": "",
    "problems": "",
    "gates": {},
    "difficulty": {},
    "quarantined": {},
}


def test_a_relation_listed_one_way_is_proved_both_ways_and_the_file_is_not_changed(folder: Path) -> None:
    base = Stored(folder)
    before = (folder / "kb.sqlite").read_bytes()
    connection = base.connection(write=True)
    (n,) = connection.execute("SELECT count(*) FROM fact WHERE relation = 'border'").fetchone()
    Prover(connection, symmetric=["border"])
    assert connection.execute("SELECT count(*) FROM fact WHERE relation = 'border'").fetchone()[0] > n
    assert (folder / "kb.sqlite").read_bytes() == before
    with pytest.raises(Exception, match="readonly"):
        base.connection(write=False).execute("DELETE FROM fact")


def test_files_of_two_bases_are_refused(folder: Path, tmp_path: Path) -> None:
    assert not Stored.there(tmp_path) and Stored.there(folder)
    for name in ("postings.npz", "kb.sqlite", "passages.parquet", "entities.parquet"):
        (tmp_path / name).symlink_to(folder / name)
    parquet.write_table(parquet.read_table(folder / "facts.parquet").slice(1), tmp_path / "facts.parquet")
    with pytest.raises(UserError, match="differ: build it anew"):
        Stored(tmp_path)
    (tmp_path / "postings.npz").unlink()
    (tmp_path / "postings.npz").write_bytes(b"no")
    with pytest.raises(UserError, match="holds no postings"):
        Stored(tmp_path)
