"""Oracle games: they end in the right answer, show what the tool really returned, and are refused where the passages do
not lead on."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from bases import write_base
from sealed import seal

from synth.demonstrations.worked_answer import worked_answer
from synth.families.countdown import countdown
from synth.knowledge.kb import KB, Entity, Fact, Relation, passages
from synth.knowledge.reading import Reader
from synth.knowledge.world import world
from synth.questions.entity_tree import EntityTrees, entity_tree
from synth.questions.oracle import Oracle, query_of, replays
from synth.types import Demonstration, Message, Problem, Quarantined, to_row
from synth.verify import extract_answer, verify
from tasks.knowledge.search_tool import NOTHING, Search
from tasks.runtime.stage import Stage
from tasks.stages.demonstrations import demonstrations
from tasks.stages.questions import cells, questions
from tasks.storage import tables


@pytest.fixture(scope="module")
def kb() -> KB:
    return world(countries=40, seed=3)


@pytest.fixture(scope="module")
def search(kb: KB) -> Search:
    return Search(passages(kb))


@pytest.fixture(scope="module")
def problems(kb: KB, search: Search) -> list[Problem]:
    return entity_tree(EntityTrees(kb, search, seed=0), {("train", h): 50 for h in (1, 2, 3)})[0]


def play(kb: KB, problems: list[Problem], search: Search, detour: float) -> list[Demonstration]:
    oracle = Oracle(kb)
    games = [oracle.play(p, search, rng=random.Random(p.id), detour=detour) for p in problems]
    assert all(isinstance(g, Demonstration) for g in games)
    return games


def test_without_detours_hops_are_searches(kb: KB, problems: list[Problem], search: Search) -> None:
    for p, game in zip(problems, play(kb, problems, search, 0.0)):
        assert game.calls == p.difficulty["hops"] and game.detours == 0
        assert game.messages[0] == p.prompt[0] and game.split == p.split and game.problem == p.id
        assert [m.role for m in game.messages] == ["user", *["assistant", "tool"] * game.calls, "assistant"]
        assert verify(p, extract_answer(game.messages[-1].content)).value == 1.0
        assert all(m.content != NOTHING for m in game.messages if m.role == "tool")


def test_every_needed_fact_was_returned(kb: KB, problems: list[Problem], search: Search) -> None:
    for p, game in zip(problems, play(kb, problems, search, 0.0)):
        shown = {
            f
            for m in game.messages
            if m.role == "assistant" and "<search>" in m.content
            for hit in search.hits(query_of(m.content))
            for f in hit.facts
        }
        missing = set(p.lineage["facts"]) - shown
        # Of two candidates, one that the second clue rules out leaves the other: its own fact is then not looked up.
        assert not missing or p.difficulty["clues"] == 2 and len(missing) == 1


def test_detours_are_repaired(kb: KB, problems: list[Problem], search: Search) -> None:
    straight, bent = play(kb, problems, search, 0.0), play(kb, problems, search, 1.0)
    share = sum(g.detours for g in bent) / len(bent)
    assert share > 0.9 and max(g.detours for g in bent) == 1
    for a, b in zip(straight, bent):
        assert b.calls == a.calls + b.detours and b.messages[-1] == a.messages[-1]
        queries = [query_of(m.content) for m in b.messages if m.content.startswith("<search>")]
        assert len(set(queries)) == len(queries) == b.calls
        assert [m for m in a.messages if m.role == "assistant"] == [
            m for m in b.messages if m in a.messages and m.role == "assistant"
        ]
    some = play(kb, problems, search, 0.2)
    assert 0.1 < sum(g.detours for g in some) / len(some) < 0.3


def test_replay_on_a_fresh_index_is_equal_to_the_byte(kb: KB, problems: list[Problem], search: Search) -> None:
    fresh = Search(passages(kb))
    games = play(kb, problems, search, 0.2)
    assert all(replays(g, fresh) for g in games)
    forged = replace(
        games[0],
        messages=tuple(replace(m, content=m.content + " ") if m.role == "tool" else m for m in games[0].messages),
    )
    assert not replays(forged, fresh)
    with pytest.raises(ValueError, match="no <search>"):
        query_of("<answer>x</answer>")


def test_a_missing_passage_is_not_answerable(kb: KB, problems: list[Problem]) -> None:
    for p in problems[::10]:
        poor = Search([x for x in passages(kb) if p.lineage["facts"][-1] not in x.facts])
        item = Oracle(kb).play(p, poor)
        assert isinstance(item, Quarantined) and item.reason == "not_answerable" and p.question in item.evidence


def test_a_wrong_reference_is_not_answerable(kb: KB, problems: list[Problem], search: Search) -> None:
    item = Oracle(kb).play(replace(problems[0], answer="Nowhere"), search)
    assert isinstance(item, Quarantined) and "'Nowhere'" in item.evidence


def test_the_oracle_reads_the_text_and_not_the_facts(kb: KB, problems: list[Problem]) -> None:
    """Were the passages to say something else, the oracle would believe them."""
    p = next(
        p
        for p in problems
        if p.difficulty["hops"] == 1
        and p.lineage["pattern"]["relation"] == "capital"
        and p.lineage["pattern"]["forward"]
    )
    other = next(e.name for e in kb.entities.values() if e.type == "city" and e.name != p.answer)
    lies = [
        replace(x, text=x.text.replace(p.answer, other)) if p.lineage["facts"][-1] in x.facts else x
        for x in passages(kb)
    ]
    item = Oracle(kb).play(p, Search(lies))
    assert isinstance(item, Quarantined) and other in item.evidence


def test_lists_of_names_that_contain_and_or_commas() -> None:
    names = ("Bosnia and Herzegovina", "Trinidad and Tobago", "Pol", "Korea, South", "Ost")
    relation = Relation(name="near", domain="country", range="country", label="neighbour", passage="{x} borders {y}.")
    kb = KB([Entity.make("country", n) for n in names], [relation], [])
    reader = Reader.of(kb)
    for some in (names[:1], names[:2], names[1:4], names):
        text = relation.sentence("Ost", some)
        assert reader.read("near", text, "Ost", back=False) == list(some)
        assert all(reader.read("near", f"noise\n{text}", n, back=True) == ["Ost"] for n in some)
    assert (
        reader.split("near", "Bosnia and Pol") == [] and reader.read("near", "nothing found", "Ost", back=False) == []
    )


def test_lists_of_texts() -> None:
    """A page lists all values of a relation of texts in one sentence; each leads back to what has it."""
    relation = Relation(name="crop", domain="farm", range="string", label="crop", passage="{y} grows on {x}.")
    single = Relation(
        name="town", domain="farm", range="string", label="town", passage="The {label} of {x} is {y}.", functional=True
    )
    crops = ("rye", "salt and pepper", "flax, dressed", "rye and oats")
    farms = [Entity.make("farm", x) for x in ("Ost", "Pol")]
    facts = [Fact.make("farm:Ost", "crop", literal=y) for y in crops] + [
        Fact.make("farm:Ost", "town", literal="Olm and Kar")
    ]
    reader = Reader.of(KB(farms, [relation, single], facts))
    for some in (crops[:1], crops[:3], crops[1:], crops):
        text = relation.sentence("Ost", some)
        assert reader.read("crop", text, "Ost", back=False) == list(some)
        assert all(reader.read("crop", text, y, back=True) == ["Ost"] for y in some)
        assert reader.read("crop", text, "oats", back=True) == []
    assert reader.read("crop", relation.sentence("Pol", ["hay and straw"]), "Pol", back=False) == ["Hay and straw"]
    assert reader.read("town", single.sentence("Ost", ["Olm and Kar"]), "Ost", back=False) == ["Olm and Kar"]


def test_names_that_begin_a_sentence() -> None:
    """ "Invoice 7 includes ..." is about the record "invoice 7"; names that differ in that letter alone stay two."""
    includes = Relation(
        name="line", domain="invoice", range="track", label="track", passage="{x} includes the track {y}."
    )
    spoken = Relation(
        name="spoken", domain="country", range="tongue", label="language", passage="{y} is spoken in {x}."
    )
    names = {"invoice": ("invoice 7", "Order", "order"), "track": ("Ost",), "country": ("Pol",), "tongue": ("ix", "Um")}
    kb = KB([Entity.make(t, n) for t, some in names.items() for n in some], [includes, spoken], [])
    reader = Reader.of(kb)
    text = includes.sentence("invoice 7", ["Ost"])
    assert text.startswith("Invoice 7 ") and reader.read("line", text, "Ost", back=True) == ["invoice 7"]
    assert reader.read("line", text, "invoice 7", back=False) == ["Ost"]
    assert reader.read("line", includes.sentence("Order", ["Ost"]), "Ost", back=True) == ["Order"]
    text = spoken.sentence("Pol", ["ix", "Um"])
    assert text.startswith("Ix and ") and reader.read("spoken", text, "Pol", back=False) == ["ix", "Um"]
    assert reader.read("spoken", text, "ix", back=True) == ["Pol"]


def test_two_relations_in_the_same_words_are_told_apart_by_the_type_of_the_subject() -> None:
    both = [
        Relation(name=f"{t}_track", domain=t, range="track", label="track", passage="{x} includes the track {y}.")
        for t in ("invoice", "playlist")
    ]
    named = [Entity.make("invoice", "invoice 7"), Entity.make("playlist", "Music"), Entity.make("track", "Ost")]
    reader = Reader.of(KB(named, both, []))
    text = f"{both[0].sentence('invoice 7', ['Ost'])}\n{both[1].sentence('Music', ['Ost'])}"
    assert reader.read("invoice_track", text, "Ost", back=True) == ["invoice 7"]
    assert reader.read("playlist_track", text, "Ost", back=True) == ["Music"]


def test_worked_answers() -> None:
    solved = [p for i in range(20) if isinstance(p := countdown(0, "train", i), Problem)]
    for p in solved:
        t = worked_answer(p)
        assert (
            isinstance(t, Demonstration)
            and t.calls == 0
            and t.messages[-1] == Message(role="assistant", content=p.lineage["solution"])
        )
    wrong = replace(solved[0], lineage={**solved[0].lineage, "solution": "It is <answer>1</answer>"})
    assert worked_answer(wrong).reason == "wrong_answer"
    assert worked_answer(replace(solved[0], lineage={})).reason == "no_solution"


# ---- the stages


def lay(root: Path, kb: KB) -> None:
    """The tables of the stages kb and problems, as these two stages read them."""
    write_base(root / "artifacts" / "kb", kb)
    written = [p for split in ("train", "test") for i in range(12) if isinstance(p := countdown(0, split, i), Problem)]
    tables.write(root / "artifacts" / "problems" / "problems.parquet", written, Problem)
    seal(root)


def run(root: Path, function, **params) -> dict:
    stage = Stage(function.__name__, plan={"params": params, "seed": 7}, root=root)
    with stage.running():
        function(stage, **params)
    return json.loads((stage.target / "card.json").read_text())


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory, kb: KB) -> list[Path]:
    roots = [tmp_path_factory.mktemp(name) for name in ("a", "b")]
    for root in roots:
        lay(root, kb)
        card = run(root, questions, n_train=90, n_valid=12, n_test=12)
        assert (
            card["produced"] == card["accepted"] + sum(card["quarantined"].values())
            and card["accepted"] == 114
            and card["short"] == {}
        )
        assert (
            card["oracle_answers"] > 0.9 and card["one_search_answers"]["3 hops"] < card["one_search_answers"]["1 hops"]
        )
        card = run(root, demonstrations, n=40, n_valid=5, n_family=6)
        assert card["produced"] == card["accepted"] == 51 and card["games"] == 45 and card["worked_answers"] == 6
    return roots


def test_the_stages_write_the_same_bytes_twice(two_runs: list[Path]) -> None:
    files = [
        {p.relative_to(root): p.read_bytes() for p in sorted((root / "artifacts").rglob("*")) if p.is_file()}
        for root in two_runs
    ]
    assert files[0] == files[1] and len(files[0]) == 17


def test_only_train_becomes_demonstrations_and_valid_stays_marked(two_runs: list[Path]) -> None:
    folder = two_runs[0] / "artifacts"
    by_id = {
        p.id: p
        for stage in ("questions", "problems")
        for p in tables.read(folder / stage / "problems.parquet", Problem)
    }
    demos = tables.read(folder / "demonstrations" / "demonstrations.parquet", Demonstration)
    assert [t.split for t in demos] == [by_id[t.problem].split for t in demos]
    assert sorted({t.split for t in demos}) == ["train", "valid"] and sum(t.split == "valid" for t in demos) == 5
    assert len({t.id for t in demos}) == len(demos)


def test_a_base_too_small_for_what_is_wanted_says_so(tmp_path: Path, kb: KB) -> None:
    lay(tmp_path, kb)
    card = run(tmp_path, questions, n_train=0, n_valid=0, n_test=500, hops=[1.0])
    assert card["short"] == {"test, 1 hops": 500 - card["accepted"]}
    with pytest.raises(ValueError, match="must be shares"):
        run(tmp_path, questions, hops=[0.0, 0.0])


def test_cells_add_up() -> None:
    wanted = cells({"train": 100, "test": 7}, [0.34, 0.33, 0.33])
    assert (
        sum(n for (s, _), n in wanted.items() if s == "train") == 100
        and sum(n for (s, _), n in wanted.items() if s == "test") == 7
    )
    assert cells({"train": 10}, [0, 1]) == {("train", 2): 10}


def test_rows_survive_the_table(tmp_path: Path, problems: list[Problem]) -> None:
    tables.write(tmp_path / "p.parquet", problems, Problem)
    assert [to_row(p) for p in tables.read(tmp_path / "p.parquet", Problem)] == [to_row(p) for p in problems]
