"""Difficulty of questions measured, demonstrations of the stage with open and find, and a knowledge base that is edited
between two runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bases import write_base
from sealed import seal

from flows.cli import main
from synth.demonstrations.browsing import replays
from synth.knowledge.kb import KB, Fact, Relation, passages
from synth.knowledge.world import world
from synth.questions.fuzzy_tree import FuzzyTrees, fuzzy_tree
from synth.search.index import build_index, pages_of_kb
from synth.types import Demonstration, Problem, Quarantined
from tasks.core.errors import UserError
from tasks.results.difficulty import band, measure, summary
from tasks.runtime.stage import Stage
from tasks.stages.demonstrations import demonstrations
from tasks.storage import tables

COUNTS = {("train", 2): 30, ("train", 3): 10, ("valid", 2): 6, ("test", 2): 8}


@pytest.fixture(scope="module")
def kb() -> KB:
    return world(countries=40, seed=3)


def grow(kb: KB) -> list[Problem]:
    return fuzzy_tree(FuzzyTrees.of(kb, passages(kb), seed=0), COUNTS)[0]


@pytest.fixture(scope="module")
def problems(kb: KB) -> list[Problem]:
    return grow(kb)


@pytest.fixture
def root(tmp_path: Path, kb: KB, problems: list[Problem], monkeypatch) -> Path:
    """A project in which the stages kb, questions and problems have run."""
    write_base(tmp_path / "artifacts" / "kb", kb)
    tables.write(tmp_path / "artifacts" / "questions" / "problems.parquet", problems, Problem)
    tables.write(tmp_path / "artifacts" / "problems" / "problems.parquet", [], Problem)
    seal(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESPALIER_QUIET", "1")
    return tmp_path


# ---- difficulty


def test_every_question_is_answered_by_the_oracle_and_few_by_the_shallow(root: Path, problems: list[Problem]) -> None:
    rows = measure(root / "artifacts" / "kb", problems)
    assert len(rows) == len(problems) and all(r["oracle"] for r in rows)
    assert all(r["oracle_calls"] <= r["branch_and_check_calls"] for r in rows if r["branch_and_check"])
    assert sum(r["one_search"] for r in rows) <= 0.02 * len(rows) and sum(r["closed_book"] for r in rows) <= 0.1 * len(
        rows
    )
    table = summary(rows)
    assert sum(int(line[2]) for line in table[1:]) == len(rows) and [line[-1] for line in table] == ["model"] + [
        "-"
    ] * (len(table) - 1)


def test_bands() -> None:
    row = {"closed_book": False, "one_search": False, "greedy": False, "rate": None, "branch_and_check_calls": 5}
    assert [band(row | {"branch_and_check_calls": n}) for n in (4, 5, 9, 10)] == ["short", "medium", "medium", "long"]
    assert [band(row | {"rate": r}) for r in (0.0, 0.24, 0.25, 0.75, 0.76)] == [
        "hard",
        "hard",
        "learnable",
        "learnable",
        "easy",
    ]
    assert all(band(row | {s: True, "rate": 0.5}) == "trivial" for s in ("closed_book", "one_search", "greedy"))


def test_the_command_writes_what_is_kept(root: Path, problems: list[Problem], capsys) -> None:
    assert main(["measure", "--n", "5", "--out", "out", "--keep", "long,medium"]) == 0
    output = capsys.readouterr().out
    rows = [json.loads(line) for line in Path("out/difficulty.jsonl").read_text().splitlines()]
    assert len(rows) == 15 and "bands:" in output and "oracle calls" in output
    kept = tables.read(Path("out/problems.parquet"), Problem)
    assert [p.id for p in kept] == [r["id"] for r in rows if r["band"] in ("long", "medium")]
    assert main(["measure", "--keep", "lnog"]) == 2 and "no band 'lnog'" in capsys.readouterr().err
    assert main(["measure", "--kb", "nowhere"]) == 2 and "holds no knowledge base" in capsys.readouterr().err


def test_another_knowledge_base_is_a_mistake(root: Path, kb: KB, problems: list[Problem]) -> None:
    relations = [r for r in kb.relations.values() if r.name != "capital"]
    fewer = KB(kb.entities.values(), relations, [f for f in kb.facts.values() if f.relation != "capital"])
    tables.write(root / "artifacts" / "kb" / "relations.parquet", fewer.relations.values(), Relation)
    tables.write(root / "artifacts" / "kb" / "facts.parquet", fewer.facts.values(), Fact)
    some = [p for p in problems if '"capital"' in json.dumps(p.lineage["pattern"])]
    assert some
    with pytest.raises(UserError, match="cannot be measured with the knowledge base"):
        measure(root / "artifacts" / "kb", some)


# ---- demonstrations


def run(root: Path, **params) -> tuple[dict, list[Demonstration], list[Quarantined]]:
    stage = Stage("demonstrations", plan={"params": params, "seed": 7}, root=root)
    with stage.running():
        demonstrations(stage, n=0, n_valid=0, n_family=0, **params)
    card = json.loads((stage.target / "card.json").read_text())
    return card, *(
        tables.read(stage.target / f"{n}.parquet", c)
        for n, c in (("demonstrations", Demonstration), ("quarantine", Quarantined))
    )


def test_the_stage_tells_runs_with_open_and_find(root: Path, kb: KB) -> None:
    card, browsed, quarantined = run(root, n_browse=12, n_browse_valid=3, short=0.25, long_calls=5, detour=0.5)
    assert card["produced"] == card["accepted"] + sum(card["quarantined"].values()) == len(browsed) + len(quarantined)
    assert card["browsing"] == len(browsed) == 15 and sum(t.split == "valid" for t in browsed) == 3
    assert sum(t.calls < 5 for t in browsed if t.split == "train") <= 3 and set(card["quarantined"]) <= {
        "too_short",
        "too_many_calls",
        "too_long",
    }
    assert 0 < card["with_detour"] < 15
    index = build_index(pages_of_kb(kb))
    assert all(replays(t, index) for t in browsed)
    calls = [[m.content for m in t.messages if m.role == "assistant"] for t in browsed]
    assert all(len(set(c)) == len(c) for c in calls)  # no call twice


def test_the_default_tells_none_and_a_wrong_searcher_is_one_sentence(root: Path) -> None:
    card, browsed, _ = run(root)
    assert "browsing" not in card and not browsed
    with pytest.raises(UserError, match="no searcher 'orcale'"):
        run(root, n_browse=1, searcher="orcale")


# ---- a knowledge base that is edited


def test_only_the_questions_that_an_edit_touches_change(kb: KB, problems: list[Problem]) -> None:
    old = next(
        f for f in kb.facts.values() if f.relation == "currency" and any(f.id in p.lineage["facts"] for p in problems)
    )
    other = next(f.object for f in kb.facts.values() if f.relation == "currency" and f.object != old.object)
    edited = Fact.make(old.subject, "currency", object=other, source=old.source)
    after = grow(
        KB(kb.entities.values(), kb.relations.values(), [edited if f.id == old.id else f for f in kb.facts.values()])
    )
    before, now = {p.id: p for p in problems}, {p.id: p for p in after}
    gone = [p for i, p in before.items() if i not in now]
    assert {p.id for p in problems if old.id in p.lineage["facts"]} <= {
        p.id for p in gone
    }  # none that rested on it is left
    assert len(gone) <= 0.2 * len(problems)
    speaks = lambda p: '"currency"' in json.dumps(p.lineage["pattern"])  # noqa: E731
    instead = {p.lineage["root"] for i, p in now.items() if i not in before and speaks(p)}
    assert all(speaks(p) or p.lineage["root"] in instead for p in gone)  # what changed spoke of it, or does now
    assert sum(not speaks(p) for p in gone) <= 2


def test_a_fact_that_no_question_rests_on_changes_none(kb: KB, problems: list[Problem]) -> None:
    lone = Relation(name="motto", domain="city", range="string", label="motto", functional=True)
    city = next(e for e in kb.entities.values() if e.type == "city")
    facts = [*kb.facts.values(), Fact.make(city.id, "motto", literal="Onward")]
    after = grow(KB(kb.entities.values(), [*kb.relations.values(), lone], facts))
    assert [p.id for p in after] == [p.id for p in problems]
    renamed = [replace(e, source="elsewhere") for e in kb.entities.values()]
    assert [p.id for p in grow(KB(renamed, kb.relations.values(), list(kb.facts.values())[::-1]))] == [
        p.id for p in problems
    ]
