"""compare, lineage and why over two states in git and DVC's cache; preview of real stages; a person's review and its
page."""

import json
import re
import socket
import threading

import foreign
import pytest
import states
from sealed import seal

from flows import cli
from synth.types import PreferencePair
from tasks.core.errors import UserError
from tasks.results import differences_page as differences
from tasks.results import preview as previews
from tasks.results import review_page
from tasks.planning import plan
from tasks.results.compare import compare
from tasks.results.lineage import lineage, trained_on
from tasks.results.proofs import Proofs
from tasks.results.review import Review, Shown
from tasks.results.snapshots import snapshot
from tasks.results.why import why
from tasks.run import run_stage
from tasks.storage import tables
from tasks.storage.reviews import anchors, decisions


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return states.project(tmp_path_factory.mktemp("project"))


def test_names_of_states(root):
    assert snapshot(root, "first").commit == snapshot(root, "HEAD~1").commit != snapshot(root, "hot").commit
    assert snapshot(root, "hot").about == "experiment hot" and "commit" in snapshot(root, "first").about
    with pytest.raises(UserError, match="no state 'frist': did you mean 'first'"):
        snapshot(root, "frist")
    assert snapshot(root, "workspace").json("artifacts/plan/rl.json") == snapshot(root, "hot").json(
        "artifacts/plan/rl.json"
    )
    assert snapshot(root, "first").json("artifacts/plan/rl.json")["params"]["optimizer"]["lr"] == 0.1, (
        "from the cache: the file is gone from the disk"
    )


def test_compare_says_what_changed_and_nothing_else(root):
    comparison = compare(snapshot(root, "first"), snapshot(root, "hot"))
    assert comparison["parameters"] == [{"knob": "rl.optimizer.lr", "a": 0.1, "b": 0.5}]
    assert comparison["code"] == [{"file": "training/x.py", "change": "changed", "stages": ["rl"]}]
    assert comparison["data"] == comparison["quarantined"] == []
    scores = {r["run"]: r for r in comparison["scores"]}
    assert (scores["rl"]["a"], scores["rl"]["b"]) == (pytest.approx(2 / 6), pytest.approx(4 / 6))
    assert scores["sft"]["p_holm"] == 1.0 and scores["rl"]["p"] == 0.625, (
        "3 better, 1 worse: 10 of 16 ways are as far from 0"
    )
    assert scores["rl"]["p_holm"] == 1.0, "two comparisons"
    assert [(f["a"], f["b"]) for f in comparison["flips"]] == [(0.0, 1.0)] * 3 + [(1.0, 0.0)]
    assert not compare(snapshot(root, "hot"), snapshot(root, "workspace"))["flips"]


def test_compare_of_what_is_gone_says_so(root, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    scores = snapshot(copy, "first").path("artifacts/evaluate/scores.parquet")
    scores.unlink()
    comparison = compare(snapshot(copy, "first"), snapshot(copy, "hot"))
    assert comparison["missing"] == ["first: artifacts/evaluate/scores.parquet"] and comparison["scores"] == []


def test_the_page_of_a_comparison_is_escaped(root):
    html = differences.page(compare(snapshot(root, "first"), snapshot(root, "hot")))
    assert "<script" not in html and "&lt;script&gt;" in html and "rl.optimizer.lr" in html and "33.3%" in html


def test_compare_on_the_command_line(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert cli.main(["compare", "first", "hot"]) == 0
    output = capsys.readouterr().out
    assert "rl.optimizer.lr  0.1  ->  0.5" in output and "Questions that changed most" in output
    assert (root / ".espalier/compare/first-hot.html").exists()
    assert cli.main(["compare", "first", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["b"]["name"] == "workspace"
    assert cli.main(["compare", "nothing"]) == 2


def test_lineage_goes_back_to_the_rows_and_checks_their_digest(root):
    origins = lineage(snapshot(root, "first"), "rl")
    assert [s["stage"] for s in origins["stages"]] == ["problems", "demonstrations", "sft", "rl"] and origins[
        "cleaning"
    ] is None
    assert origins["problems"]["rl"] == {
        "rows": 6,
        "by_family": {"linear_equations": 6},
        "checked": True,
        "trained_on": origins["problems"]["rl"]["trained_on"],
    }
    prefer = lineage(snapshot(root, "first"), "prefer")
    assert (
        prefer["cleaning"]["actions"] == {"judge: ask": 1, "judge: remove": 1}
        and prefer["problems"]["prefer"]["checked"]
    )
    assert len(dict(trained_on(snapshot(root, "first"), "sft", {}))) == 6
    with pytest.raises(UserError, match="trains no model: did you mean 'prefer'"):
        lineage(snapshot(root, "first"), "preferr")


def test_lineage_sees_rows_that_are_not_those_of_the_card(root, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    path = copy / "artifacts/demonstrations/demonstrations.parquet"
    from synth.types import Demonstration

    tables.write(path, tables.read(path, Demonstration)[:-1], Demonstration)
    with pytest.raises(UserError, match="demonstrations.parquet is not what was written"):
        lineage(snapshot(copy, "workspace"), "sft")
    seal(copy)
    assert lineage(snapshot(copy, "workspace"), "sft")["problems"]["sft"]["checked"] is False
    (copy / "artifacts/sft/card.json").unlink()
    shutil.rmtree(copy / ".dvc/cache", ignore_errors=True)
    assert lineage(snapshot(copy, "workspace"), "sft")["problems"]["sft"]["checked"] is None, (
        "nothing to compare with is no other digest"
    )


def test_lineage_on_the_command_line(root, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(root)
    assert cli.main(["lineage", "first:prefer", "--rows", str(tmp_path / "rows.jsonl")]) == 0
    assert re.search(r"judge: remove +1\b", capsys.readouterr().out)
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 6 + 1
    assert cli.main(["lineage", "rl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["stage"] == "rl"


def test_lineage_shows_where_stages_ran(root, monkeypatch, capsys, tmp_path):
    import shutil

    copy = shutil.copytree(root, tmp_path / "copy", symlinks=True)
    file = copy / "artifacts/plan/_run.json"
    run = json.loads(file.read_text())
    file.write_text(json.dumps(run | {"place": {"rl": {"learners": 4, "shards": 2, "samplers": 1, "ray": ""}}}))
    seal(copy)
    shutil.rmtree(copy / ".dvc/cache", ignore_errors=True)
    stages = {s["stage"]: s["place"] for s in lineage(snapshot(copy, "workspace"), "rl")["stages"]}
    assert stages["rl"]["learners"] == 4 and stages["sft"] == {}
    monkeypatch.chdir(copy)
    assert cli.main(["lineage", "rl"]) == 0
    assert "learners 4, shards 2\n" in capsys.readouterr().out


def test_why(root):
    state, given = snapshot(root, "workspace"), states.problems()
    removed = states.pair(given[1]).id
    events = why(state, removed[:9])
    assert [(e.stage, e.table) for e in events] == [
        ("preferences", "pairs"),
        ("clean", "decisions"),
        ("clean", "removed"),
    ]
    assert why(state, "is made before")[0].columns["reason"] == "duplicate", "by words of its evidence"
    with pytest.raises(UserError, match="rows match 'Solve'.*name one of"):
        why(state, "Solve")
    with pytest.raises(UserError, match="no row of workspace has the id 'xyz'"):
        why(state, "xyz")


def test_why_on_the_command_line_proves_again(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert cli.main(["why", states.problems()[0].id]) == 0
    output = capsys.readouterr().out
    assert "proof: holds" in output and "solved again from its text" in output and "rl was right in 0 of 2" in output
    assert cli.main(["why", states.pair(states.problems()[0]).id, "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["proof"] == {"holds": True, "lines": ["by number: chosen 1, rejected 0"]}


def test_a_proof_fails_where_the_answer_was_changed():
    from dataclasses import replace

    wrong = replace(states.problems()[0], answer="12345")
    assert Proofs(None, {}).problem(wrong).holds is False


def test_preview_of_real_stages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "mine"]) == 0
    mine = tmp_path / "mine"
    monkeypatch.chdir(mine)
    (mine / "params.yaml").write_text("set: {kb: {sources: [], world_countries: 12}}\n")
    monkeypatch.setattr(previews, "_whole", lambda *_: 1.0)
    capsys.readouterr()
    for stage in ("questions", "problems"):
        shown = previews.preview(mine, stage, 3)
        assert len(shown.rows) == 3 and all(proof.holds for _, proof in shown.rows)
    assert not (mine / "artifacts").exists(), "nothing of the project is touched"
    assert cli.main(["preview", "kb", "-n", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert (
        cli.main(["preview", "sft"]) == 2
        and "`preview` shows rows of the stages that make data" in capsys.readouterr().err
    )
    (mine / "data" / "lines.csv").write_text("name;town\nOne;Ab\nTwo;Cd\n")
    changed = ["--set", "kb.sources=[data/lines.csv]", "--set", "kb.world_countries=0"]
    assert cli.main(["preview", "kb", *changed]) == 0 and "2 of 2 rows made" in capsys.readouterr().out
    assert cli.main(["preview", "kb", "--set", "kb.sourcez=[]"]) == 2
    assert capsys.readouterr().err.startswith("error: --set kb.sourcez: unknown key")


FAULTS = {
    b"": "is the end of an empty source: add rows",
    b"subject,relation,object\n": "is the end of a source without rows: add rows below the header",
    b"subject,relation,object\nM\xfcnchen,lies in,Bavaria\n": "line 2 is not UTF-8: byte 0xfc",
    b"subject;relation;object\nMunich;lies in;Bavaria\n": "line 1 is separated by semicolons: save the file with commas",
}


@pytest.mark.parametrize("content", FAULTS)
def test_preview_says_what_the_run_says(tmp_path, monkeypatch, capsys, content):
    """Of a file that cannot be read: the same sentence, and no traceback."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "mine"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    (tmp_path / "mine/data/facts.csv").write_bytes(content)
    capsys.readouterr()
    assert cli.main(["preview", "kb"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: kb: data/facts.csv ") and FAULTS[content] in shown and shown.count("\n") == 1
    plan.write(tmp_path / "mine")
    monkeypatch.setattr("tasks.runtime.process.end_with_starters", lambda: None)
    with pytest.raises(SystemExit) as ended:
        run_stage("kb")
    assert ended.value.code == 2 and capsys.readouterr().err.splitlines()[-1] == shown.strip()


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "pairs.parquet"
    given = states.problems()
    pairs = [states.pair(p, ("ask", "unsure", 0.5)) for p in given] + [
        states.pair(p, ("keep", "fine", 0.9)) for p in states.problems(9)[6:]
    ]
    tables.write(path, pairs, PreferencePair)
    return path


def test_review_is_blind_resumes_and_takes_back(pairs_file, tmp_path):
    to = tmp_path / "reviews.jsonl"
    sitting = Review(pairs_file, to, reviewer="ada")
    assert sitting.left == 6, "only those that a cleaner asks about"
    orders = {
        Shown(p, int(states.digest("order", p.id)[:8], 16) % 2 == 1).swapped
        for p in Review(pairs_file, to, sample=0).pairs
    }
    assert orders == {True, False}, "the label has no fixed place"
    first = sitting.next()
    better = "first" if first.sides[0] == first.pair.chosen else "second"
    sitting.decide(first, better)
    second = sitting.next()
    sitting.decide(second, "first" if second.swapped else "second")
    assert sitting.undo() and sitting.next().pair.id == second.pair.id
    sitting.decide(second, "first" if second.swapped else "second")
    to.write_text(to.read_text() + '{"id": "half')
    again = Review(pairs_file, to)
    assert again.left == 4 and anchors(to) == (
        {first.pair.id: 1, second.pair.id: -1} if first.label(better) == 1 else None
    )
    assert (
        "1 labels right, 1 wrong" in again.summary()[0]
        and "judge: of 2 labels that it doubts 1 are wrong" in again.summary()[1]
    )
    with pytest.raises(UserError, match="no cleaner asks"):
        tables.write(pairs_file, [states.pair(states.problems()[0])], PreferencePair)
        Review(pairs_file, to)


def test_review_of_a_label_that_was_flipped_counts_for_the_label_as_it_came():
    flipped = states.pair(states.problems()[0], ("flip", "x", 1.0))
    assert Shown(flipped, False).label("first") == -1 and Shown(flipped, True).label("second") == -1


def test_review_in_the_terminal(pairs_file, tmp_path, monkeypatch, capsys):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("1\nx\nt\nq\n"))
    assert cli.main(["review", str(pairs_file), "--to", str(tmp_path / "r.jsonl")]) == 0
    assert "2 decided" in capsys.readouterr().out


def test_review_of_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}\n')
    assert Review(path, tmp_path / "r.jsonl", sample=0).next().pair.chosen == "4"
    path.write_text('{"prompt": "2 + 2?"}\n')
    with pytest.raises(UserError, match="line 1, is no pair"):
        Review(path, tmp_path / "r.jsonl", sample=0)


def test_the_page_serves_one_who_knows_its_address_alone(pairs_file, tmp_path):
    sitting, at = Review(pairs_file, tmp_path / "r.jsonl"), []
    begun = threading.Event()
    server = threading.Thread(
        target=review_page.serve, args=(sitting, 0, lambda url: (at.append(url), begun.set())), daemon=True
    )
    server.start()
    assert begun.wait(300)
    url = at[0]

    address, token = url.partition("/?")[0], url.partition("token=")[2]
    port = int(address.rpartition(":")[2])
    known = {"Authorization": f"Bearer {token}"}
    assert foreign.accepted(port, body=b"verdict=first", **known) == []
    assert [foreign.ask(port, m, "/", {}, b"")[0] for m in ("GET", "POST")] == [401, 401], "without the token"
    assert foreign.ask(port, "GET", "/guess", known)[0] == 404 and sitting.left
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]  # as a browser opens ahead
    form = {**known, "Content-Type": "application/x-www-form-urlencoded", "Origin": address}
    while sitting.left:
        html = foreign.ask(port, "GET", "/", known)[2].decode()
        assert "<script" not in html
        name = re.search(r'name="id" value="(\w+)"', html).group(1)
        for _ in range(2):  # a button that is pressed twice decides once
            left = sitting.left
            assert foreign.ask(port, "POST", "/", form, f"id={name}&verdict=first".encode())[0] == 303
        assert sitting.left == left
    assert "All pairs are decided" in foreign.ask(port, "GET", "/", known)[2].decode()
    for s in idle:
        s.close()
    server.join(300)
    assert sitting.left == 0 and not server.is_alive()
    shown = Shown(
        states.pair(states.problems()[0]).__class__(**{**vars(sitting.pairs[0]), "chosen": "<script>x</script>"}), False
    )
    assert "&lt;script&gt;" in review_page.page(sitting, shown)


@pytest.mark.parametrize("cut", [1, 10, -3, -1, 0])
def test_a_decision_that_was_cut_costs_no_other(pairs_file, tmp_path, cut):
    """The machine goes down while a line is written: at its begin, inside it, inside a letter, before its end."""
    to = tmp_path / "r.jsonl"
    first = Review(pairs_file, to, reviewer="Zoë")
    first.decide(first.next(), "first")
    whole = to.read_bytes()
    line = whole.replace(b'"first"', b'"tie"').removesuffix(b"\n")
    to.write_bytes(whole + line[: cut if cut > 0 else len(line) + cut])
    if cut == 10:
        to.write_bytes(whole + line[: line.index("ë".encode()) + 1])
    second = Review(pairs_file, to, reviewer="\u2028x")
    shown = second.next()
    second.decide(shown, "second")
    assert decisions(to)[shown.pair.id]["verdict"] == "second" and len(decisions(to)) == 2
    third = Review(pairs_file, to)
    assert third.left == second.left
    to.write_bytes(b"half" + b"\n" + to.read_bytes())
    with pytest.raises(UserError, match="line 1, is not a decision"):
        decisions(to)


def test_decisions_of_a_person_become_anchors_of_the_stage_clean(tmp_path):
    from sealed import seal

    from tasks.planning.pieces import bind
    from tasks.runtime.stage import Stage
    from tasks.stages.clean import clean

    pairs = [states.pair(p) for p in states.problems()[:3]]
    tables.write(tmp_path / "artifacts/preferences/pairs.parquet", pairs, PreferencePair)
    seal(tmp_path)
    lines = [{"id": pairs[0].id, "verdict": "first", "label": -1}, {"id": pairs[1].id, "verdict": "first", "label": 1}]
    (tmp_path / "reviews.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    stage = Stage("clean", root=tmp_path)
    with stage.running():
        clean(stage, cleaners=[bind("synth.preferences.cleaners", {"piece": "verified"})], reviews="reviews.jsonl")
    removed = tables.read(tmp_path / "artifacts/clean/removed.parquet", PreferencePair)
    assert [p.id for p in removed] == [pairs[0].id] and removed[0].decisions[0].reason.startswith("proven_wrong")
    assert json.loads((tmp_path / "artifacts/clean/card.json").read_text())["reviewed"] == 2


def test_transfer_between_states(root, monkeypatch, capsys):
    from tasks.results.transfer import transfer

    transferred = transfer(snapshot(root, "first"), [snapshot(root, "hot")], "rl")
    assert transferred["domains"] == ["linear_equations"] and transferred["cells"]["hot->linear_equations"][
        "mean"
    ] == pytest.approx(2 / 6)
    assert transferred["others"]["mean"] == pytest.approx(2 / 6), "its name is not that of a domain"
    monkeypatch.chdir(root)
    assert cli.main(["transfer", "first", "hot"]) == 0
    assert "+33.3 [" in capsys.readouterr().out
    assert cli.main(["transfer", "first", "hot", "--model", "prefer"]) == 2
    assert "no scores of the model 'prefer'" in capsys.readouterr().err
