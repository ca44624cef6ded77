"""A base that is read from its files gives the questions, pages and rows of the same base in memory."""

from pathlib import Path

import pytest
from pyarrow import parquet

from synth.knowledge.kb import Passage, passages
from synth.questions.fuzzy.oracle import pages_of
from synth.questions.prove import Prover
from tasks.core.errors import UserError
from tasks.knowledge import bases, knowledge
from tasks.knowledge.stored import Stored
from tasks.problems import grow
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
    made = {}
    for way in ("files", "objects"):
        monkeypatch.setattr(grow.Stored, "there", staticmethod(lambda _, way=way: way == "files"))
        with monkeypatch.context() as m:
            if way == "files":
                m.setattr(knowledge, "kb_at", None)  # no objects
            made[way] = grow.grow(folder, cells, seed=1, closed_world=True, **knobs)
            grow.write(tmp_path / way, folder, *made[way], CARD)
    assert made["files"] == made["objects"] and len(made["files"][0]) >= 6
    for name in ("questions.jsonl", "problems.parquet", "quarantine.parquet"):
        assert (tmp_path / "files" / name).read_bytes() == (tmp_path / "objects" / name).read_bytes(), name


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
