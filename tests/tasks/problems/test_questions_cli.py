"""`espalier questions` and `espalier verify` on a small world and on real sources; the stage with trees."""

import json
from pathlib import Path

import pytest
from bases import write_base
from sealed import seal

from flows.cli import main
from synth.knowledge.world import world
from synth.questions import fuzzy_tree
from synth.types import Problem, Quarantined
from tasks.planning.settings import Quotas
from tasks.problems import grow
from tasks.runtime.stage import Stage
from tasks.stages.questions import questions
from tasks.storage import tables
from tasks.storage.finished import Finished
from tests.training.rollout.test_endpoint import Server

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder, kb = tmp_path_factory.mktemp("kb"), world(countries=40, seed=4)
    write_base(folder, kb)
    return folder


@pytest.fixture(scope="module")
def grown(base, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("grown") / "q"
    assert main(["questions", "grow", "--kb", str(base), "--out", str(out), "--n", "40", "--depths", "2,3"]) == 0
    return out


def test_grow_writes_what_adds_up_and_can_be_shown(base, grown, capsys, tmp_path) -> None:
    card = json.loads((grown / "card.json").read_text())
    assert (
        card["accepted"] == 40
        and card["produced"] == 40 + sum(card["quarantined"].values())
        and "not_answerable" in card["gates"]
    )
    assert card["diversity"]["asked_again"] == 0 and card["quotas"]["root_attribute"] == 1
    assert main(["questions", "show", str(grown), "--kb", str(base), "--n", "5"]) == 0
    output = capsys.readouterr().out
    assert output.count("answer: ") == 5 and " 1. " in output and "depth 2" in output
    assert main(["questions", "show", str(grown), "--kb", str(base), "--page", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<summary>") == 20 and "Why each clue is needed" in page and "<script" not in page
    assert main(["questions", "show", str(grown), "--kb", str(base), "--page", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text().count("\n    **") == 20
    told = (grown / "CARD.md").read_text()
    assert f"40 questions (8 test, 32 train) of {card['produced']} that were made" in told and card["kb"] in told
    assert all(f"| {reason} | {n} |" in told for reason, n in card["quarantined"].items())
    rows = [json.loads(line) for line in (grown / "questions.jsonl").read_text().splitlines()]
    assert len(rows) == 40 and all(any("?" in t for t in r["formalization"]) for r in rows)


def test_the_values_of_all_relations_are_looked_at_once(base, monkeypatch, tmp_path, capsys) -> None:
    """What questions leave out is told to whatever grows them."""
    calls, look = [], grow.unasked

    def counted(postings):
        calls.append(postings)
        return look(postings) | {"capital": "odd_head"}

    for module in (grow, fuzzy_tree):
        monkeypatch.setattr(module, "unasked", counted)
    out = tmp_path / "q"
    assert main(["questions", "grow", "--kb", str(base), "--out", str(out), "--n", "20", "--depths", "2"]) == 0
    card = json.loads((out / "card.json").read_text())
    assert len(calls) == 1 and card["left_out"]["capital"] == "odd_head"
    assert "capital" not in (out / "questions.jsonl").read_text()
    capsys.readouterr()
    assert main(["questions", "grow", "--kb", str(base), "--out", str(out), "--n", "20", "--only", "*"]) == 0
    assert len(calls) == 1 and "left out" not in capsys.readouterr().out


def test_growing_shows_how_many_are_accepted(base, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr("tasks.runtime.progress.LOG_EVERY", 0.0)
    assert main(["questions", "grow", "--kb", str(base), "--out", str(tmp_path / "q"), "--n", "20"]) == 0
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("accepted  ")]
    assert [x.split("  ")[1] for x in lines[:20]] == [f"{i}/20" for i in range(1, 21)]


def test_quotas_that_are_full_are_on_the_card_and_processes_change_nothing(base, capsys, tmp_path) -> None:
    """More questions than a block, of few relations: what is full is handed to processes and to finished rows alike."""
    quotas = ("--quota", "relation=0.2", "--quota", "shape=0.2")
    args = ["questions", "grow", "--kb", str(base), "--n", "120", "--depths", "2", *quotas]
    for out, workers in (("one", "1"), ("two", "2")):
        assert main([*args, "--out", str(tmp_path / out), "--workers", workers]) == 0
    for name in ("problems.parquet", "quarantine.parquet", "card.json", "CARD.md"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    why = card["limits"]["test, depth 2"]
    assert "of them over a share: " in why and why in capsys.readouterr().out
    assert f"- test, depth 2: {why}." in (tmp_path / "one" / "CARD.md").read_text()

    finished, wanted = Finished(tmp_path / "rows", Problem, Quarantined), {("train", 2): 96, ("test", 2): 24}
    few = Quotas(relation=0.2, shape=0.2)
    knobs = {"seed": 0, "levels": [1, 2, 3, 4], "closed_world": False, "max_guess": 0.1, "only": [], "extra": {}}
    outcome = grow.grow(base, wanted, quotas=few, finished=finished, **knobs)
    assert [p.id for p in outcome[0]] == [p.id for p in grow.read(tmp_path / "one" / "problems.parquet")[0]]
    again = grow.grow(base, wanted, quotas=few, finished=Finished(tmp_path / "rows", Problem, Quarantined), **knobs)
    assert outcome == again, "a row that was finished is not one that left out something else"


def test_verify_proves_a_published_file_and_names_what_fails(base, grown, capsys, tmp_path) -> None:
    assert main(["verify", str(grown / "questions.jsonl"), "--kb", str(base)]) == 0
    assert main(["verify", str(grown / "problems.parquet"), "--kb", str(base)]) == 0
    assert capsys.readouterr().out.count("40 of 40 questions proved again") == 2
    lines = (grown / "questions.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    (tmp_path / "q.jsonl").write_text("\n".join([json.dumps(row | {"answer": "Elsewhere"}), *lines[1:]]))
    assert main(["verify", str(tmp_path / "q.jsonl"), "--kb", str(base)]) == 1
    assert f"{row['id']}  id_differs" in (output := capsys.readouterr().out) and "39 of 40" in output
    assert (
        main(["verify", str(tmp_path / "none.jsonl")]) == 2
        and main(["verify", str(grown / "problems.parquet"), "--kb", str(tmp_path)]) == 2
    )


def test_a_published_file_carries_the_users_own_phrases(base, capsys, tmp_path) -> None:
    """The file and the base alone prove it: no card.json beside it is needed."""
    (tmp_path / "mine.yaml").write_text("border: {object: ['next door to {y}'], subject: ['that has {y} next door']}\n")
    words = [
        "questions",
        "grow",
        "--kb",
        str(base),
        "--out",
        str(tmp_path / "q"),
        "--n",
        "60",
        "--phrases",
        str(tmp_path / "mine.yaml"),
    ]
    assert main(words) == 0
    lines = (tmp_path / "q" / "questions.jsonl").read_text().splitlines()
    texts = [json.loads(line)["question"] for line in lines]
    assert any("is next door to" in q for q in texts) and not any(" that door to" in q for q in texts)
    assert any("phrases" in json.loads(line) for line in lines)
    (tmp_path / "published.jsonl").write_text("\n".join(lines))
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "published.jsonl"), "--kb", str(base)]) == 0
    assert "60 of 60 questions proved again" in capsys.readouterr().out


def test_verify_inspects_questions_of_others(base, capsys, tmp_path) -> None:
    kb = world(countries=40, seed=4)
    f = next(f for f in kb.facts.values() if f.relation == "capital")
    good = {
        "id": "good",
        "question": "Which city?",
        "answer": kb.text(f.object),
        "formalization": [["V@X", "capital", "?"], ["V@Y", "border", "V@X"]],
    }
    bad = {
        "id": "bad",
        "question": f"Is {kb.text(f.object)} it?",
        "answer": kb.text(f.object),
        "formalization": json.dumps([[f"C@{kb.text(f.subject)}", "capital", "?"]]),
    }
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps([good, bad, {"question": "?"}]))
    assert main(["verify", str(path)]) == 1
    output = capsys.readouterr().out
    assert (
        "2 questions read, 1 rows quarantined" in output
        and "50.0%  a constant beside what is asked" in output
        and "--kb DIR" in output
    )
    assert "triple 1: a constant beside what is asked" in output and "the question says the answer (hide it)" in output
    assert main(["verify", str(path), "--kb", str(base)]) == 1
    assert "answers, " in (output := capsys.readouterr().out) or "triple 2: it can go" in output
    assert main(["verify", str(path), "--kb", str(base), "--json"]) == 1
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert findings[1]["answers"] == [f.object] and findings[0]["answers"] and not findings[0]["clean"]


def test_findings_are_printed_however_many_rows_cannot_be_read(capsys, tmp_path) -> None:
    beside = {"question": "q", "answer": "a", "formalization": [["V@X", "capital", "?"], ["V@X", "near", "C@Pol"]]}
    typed = beside | {"id": "typed", "formalization": [["V@X", "capital", "?"], ["V@X", "is a", "C@country"]]}
    rows = [*({"question": "?"} for _ in range(12)), beside | {"id": "named"}, typed]
    (tmp_path / "theirs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["verify", str(tmp_path / "theirs.jsonl")]) == 1
    output = capsys.readouterr().out
    assert "2 questions read, 12 rows quarantined" in output and "findings, 2 of 2:" in output
    assert "named: triple 2: a constant beside" in output and "typed: triple 2: a bare type beside" in output
    assert "rows that cannot be read, 10 of 12:" in output and "and no other constant (weaker)" in output
    (tmp_path / "typed.jsonl").write_text(json.dumps(typed) + "\n")
    assert main(["verify", str(tmp_path / "typed.jsonl")]) == 0, "a weaker finding alone is no fault"
    assert "weaker: leave it" in capsys.readouterr().out


def test_a_line_separator_of_unicode_ends_no_row(base, capsys, tmp_path) -> None:
    row = {
        "question": "Which\u2028city?",
        "answer": "Zelton",
        "formalization": [["V@X", "capital", "?"], ["V@Y", "border", "V@X"]],
    }
    (tmp_path / "theirs.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    main(["verify", str(tmp_path / "theirs.jsonl")])
    assert "1 questions read, 0 rows quarantined" in capsys.readouterr().out


def test_rewrite_says_what_it_would_use_and_keeps_the_gates(base, grown, capsys, tmp_path) -> None:
    server = Server(lambda body: "I do not know.")
    common = [
        "questions",
        "rewrite",
        str(grown),
        "--kb",
        str(base),
        "--out",
        str(tmp_path / "r"),
        "--endpoint",
        server.url,
        "--model",
        "m",
        "--n",
        "4",
        "--cache",
        str(tmp_path / "c.sqlite"),
    ]
    assert main([*common, "--dry-run", "--prices", "1,2"]) == 0
    assert (
        "8 requests (0 answers are in the cache)" in (output := capsys.readouterr().out)
        and "currency" in output
        and not server.bodies
    )
    assert main(common) == 0
    assert "accepted 0 of 4; quarantined: {'roundtrip_mismatch': 4}" in capsys.readouterr().out
    assert main([*common, "--max-cost", "1"]) == 2 and "needs the prices" in capsys.readouterr().err
    server.http.shutdown()


@pytest.mark.parametrize(
    "argv",
    [
        ["grow", "--kb", "{kb}", "--out", "{out}", "--depths", "1"],
        ["grow", "--kb", "{out}", "--out", "{out}"],
        ["show", "{out}"],
        ["grow", "--kb", "{kb}", "--out", "{out}", "--only", "capitol"],
        ["grow", "--kb", "{kb}", "--out", "{out}", "--levels", "7"],
        ["grow", "--kb", "{kb}", "--out", "{out}", "--quota", "answers=0.5"],
        ["grow", "--kb", "{kb}", "--out", "{out}", "--quota", "answer=2"],
        ["grow", "--kb", "{kb}", "--out", "{out}", "--quota", "root_attribute=0.5"],
        ["grow", "--kb", "{kb}", "--out", "{out}", "--quota", "shape"],
    ],
)
def test_mistakes_are_one_sentence(base, capsys, tmp_path, argv) -> None:
    assert main(["questions", *(a.format(kb=base, out=tmp_path / "x") for a in argv)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_the_stage_with_trees_beside_chains(base, tmp_path) -> None:
    root = tmp_path
    (root / "artifacts").mkdir()
    (root / "artifacts" / "kb").symlink_to(base)
    seal(root)
    params = {
        "n_train": 6,
        "n_valid": 0,
        "n_test": 2,
        "n_tree_train": 6,
        "n_tree_test": 2,
        "depths": [2],
        "levels": [1, 2],
    }
    stage = Stage("questions", plan={"seed": 1, "params": params}, root=root, deps=["artifacts/kb"])
    with stage.running():
        questions(stage, **params)
    problems = tables.read(root / "artifacts/questions/problems.parquet", Problem)
    quarantined = tables.read(root / "artifacts/questions/quarantine.parquet", Quarantined)
    card = json.loads((root / "artifacts/questions/card.json").read_text())
    assert [p.family for p in problems] == ["entity_tree"] * 8 + ["fuzzy_tree"] * 8 and card["accepted"] == 16
    assert (
        card["produced"] == len(problems) + len(quarantined)
        and {p.difficulty["level"] for p in problems[8:]} <= {1, 2}
        and card["trees"]["accepted"] == 8
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not (DATA / "countries").is_dir(), reason=f"{DATA}/countries is not there: put the shared data beside the checkout"
)
def test_countries_and_factbook(tmp_path, capsys, monkeypatch) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    schema = "benchmarks/schemas/countries-factbook.yaml"
    assert main(["kb", "build", "--schema", schema, "--out", str(tmp_path / "kb")]) == 0
    grow = [
        "questions",
        "grow",
        "--kb",
        str(tmp_path / "kb"),
        "--schema",
        schema,
        "--closed-world",
        "--out",
        str(tmp_path / "q"),
        "--n",
        "60",
    ]
    assert main(grow) == 0
    assert main(["verify", str(tmp_path / "q" / "questions.jsonl"), "--kb", str(tmp_path / "kb")]) == 0
    assert "60 of 60 questions proved again" in capsys.readouterr().out
