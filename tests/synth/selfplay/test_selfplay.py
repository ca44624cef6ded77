"""Self-play: proposals are certified, counted and paid; the control law holds its target; a ledger that survives kill
-9."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from synth.families import skill_pairs as two_skills
from synth.selfplay.ledger import Ledger
from synth.selfplay.loop import Loop, View, cells
from synth.selfplay.propose.evolve import deeper, evolve
from synth.selfplay.propose.ladder import ladder
from synth.selfplay.propose.rewrite import rewrite, simplified, varied
from synth.selfplay.propose.skill_pairs import skill_pairs
from synth.selfplay.propose.teacher import teacher
from synth.selfplay.propose.weak_skills import weak_skills
from synth.selfplay.solve.scripted import scripted
from synth.selfplay.spec import Spec, certify, read
from synth.types import Problem, Quarantined
from tasks.core.errors import UserError
from tasks.planning.pieces import bind
from tasks.problems import selfplay as play
from training.rl.curriculum._cells import fold, posterior
from training.rl.curriculum._stop import stop
from training.rl.curriculum._weakness import weak
from training.rl.curriculum.learnability import below, learnability, tilt

NAMES = ("countdown", "integer_arithmetic", "linear_equations", "list_sorting", "shortest_path")
FAMILIES = play.registry([bind("family", {"piece": n}) for n in NAMES])
CELLS = cells(FAMILIES, 0)


def loop(folder, **changes):
    settings = {
        "families": FAMILIES,
        "cells": CELLS,
        "propose": ladder,
        "solve": scripted(gain=0.0),
        "choose": partial(learnability, target=0.5),
        "pay": lambda proposals: [rate if not math.isnan(rate) else 0.0 for rate, _ in proposals],
        "rounds": 3,
        "proposals": 12,
        "attempts": 4,
    }
    return Loop(ledger=Ledger(folder / "ledger.db" if folder else ":memory:", {"test": 1}), **settings | changes)


def view(**changes):
    return View(**{"wanted": CELLS[:4], "cells": CELLS, "families": FAMILIES} | changes)


def rng():
    return np.random.default_rng(3)


# --- the control law -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "gain"), [(0.5, 0.0), (0.5, 0.15), (0.7, 0.15)])
def test_the_target_success_rate_is_held_and_the_planted_weak_skill_found(tmp_path, target, gain):
    solver = scripted(gain=gain, weak=["countdown"])
    running = loop(
        tmp_path, solve=solver, choose=partial(learnability, target=target), rounds=30, proposals=96, attempts=8
    )
    rounds = list(running.run())
    held = [np.mean([r["success"] for r in rounds[i : i + 5]]) for i in range(8, 26)]
    assert all(abs(h - target) <= 0.05 for h in held), held
    called = [f for r in rounds[10:] for f in r["weak"]]
    assert called.count("countdown") > 15 and set(called) == {"countdown"}
    assert solver.success("countdown", 1) < 0.5 < solver.success("list_sorting", 1), "the planted weakness is one"
    uniform = list(
        loop(
            None,
            solve=scripted(gain=gain, weak=["countdown"]),
            rounds=6,
            proposals=96,
            choose=lambda p, state, rng, n: [int(i) for i in rng.integers(len(p), size=n)],
        ).run()
    )
    assert abs(np.mean([r["success"] for r in uniform]) - target) > 0.05, "without the law the target is missed"


def test_the_frontier_moves_one_rung_for_each_new_evidence():
    problems = [c.example for c in CELLS if c.family == "list_sorting"]
    state = {"scores": {problems[0].id: [1.0, 1.0]}}
    for _ in range(3):
        learnability(problems, state, rng(), 1)
    assert state["frontier"] == {"list_sorting": 2}
    state["scores"][problems[1].id] = [0.0] * 3
    state["scores"][problems[0].id] = [1.0, 1.0] + [0.0] * 9
    learnability(problems, state, rng(), 1)
    assert state["frontier"] == {"list_sorting": 1}


def test_posteriors_by_hand():
    problems = [c.example for c in CELLS if c.family == "countdown"]
    state = {"scores": {problems[0].id: [0.5, 1.0]}}
    assert fold(problems, state, samples=8, discount=0.5) == {"countdown/1"}
    assert state["cells"]["countdown/1"] == {"right": 12.0, "wrong": 4.0, "means": [0.75]} and state["latest"] == [
        1.5,
        2,
    ]
    assert posterior(state["cells"]["countdown/1"]) == (13.0, 5.0)
    assert state["axes"]["countdown:level=1"] == [12.0, 4.0] and state["axes"]["countdown:numbers=3"] == [12.0, 4.0]
    assert fold(problems, state, samples=8, discount=0.5) == set(), "what was counted is not counted again"
    state["scores"][problems[0].id].append(0.25)
    fold(problems, state, samples=8, discount=0.5)
    assert state["cells"]["countdown/1"] == {"right": 8.0, "wrong": 8.0, "means": [0.75, 0.25]}
    assert below(0.5, 1, 1) == pytest.approx(0.5) and below(0.25, 2, 1) == pytest.approx(0.0625)
    assert json.loads(json.dumps(state)) == state, "plain values: part of a checkpoint"


def test_tilt_gives_the_expected_success_that_is_asked_for():
    p = np.array([0.95, 0.8, 0.4, 0.1])
    for target in (0.3, 0.5, 0.9):
        w = tilt(np.full(4, 0.25), p, target)
        assert w @ p == pytest.approx(target, abs=1e-9) and w.sum() == pytest.approx(1) and (w > 0).all()
    assert tilt(np.full(4, 0.25), p, 0.99) @ p > 0.94, "as near as can be"


def test_weak_is_never_mastered_and_not_improving():
    assert weak([0.1, 0.2, 0.1]) and not weak([0.1, 0.4, 0.6]) and not weak([0.1, 0.1])
    assert not weak([0.1, 0.2, 0.3, 0.4]), "it improves"
    assert not weak([0.1, 0.12, 0.1, 0.13]) and weak([0.1, 0.12, 0.1, 0.13], errors=2.0), "within its error it is flat"


# --- stop rules ------------------------------------------------------------------------------------------------------

ROUND = {"held": 0.4, "held_n": 100, "success": 0.5, "validity": 1.0, "duplicates": 0.0, "answers": 9, "certified": 9}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ([{}], ""),
        ([{"validity": 0.79}], "invalid"),
        ([{"duplicates": 0.21}], "duplicate"),
        ([{"answers": 1}], "collapse"),
        ([{"held": 0.4}] * 4, "flat"),
        ([{"held": h} for h in (0.1, 0.2, 0.3, 0.4)], ""),
        ([{"held": h, "success": s} for h, s in ((0.4, 0.45), (0.4, 0.55), (0.39, 0.6), (0.39, 0.7))], "memorising"),
        ([{"held": 0.4}] * 3, ""),
        ([{"held": None}] * 4, ""),
    ],
)
def test_stop_rules(changes, word):
    reason = stop([ROUND | c for c in changes])
    assert reason.partition(":")[0] == word


# --- proposals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "no JSON"),
        ("[" * 500, "no JSON"),
        ("{" * 2000, "over the limit"),
        ('"countdown"', "one object"),
        ('{"family": "countdown", "level": 1, "draw": 1, "answer": "1 + 1"}', "one object"),
        ('{"family": "os", "level": 1, "draw": 1}', "no family"),
        ('{"family": ["countdown"], "level": 1, "draw": 1}', "no family"),
        ('{"family": "countdown", "level": 99, "draw": 1}', "level 99"),
        ('{"family": "countdown", "level": true, "draw": 1}', "level True"),
        ('{"family": "countdown", "level": 1}', "either draw or question"),
        ('{"family": "countdown", "level": 1, "draw": -1}', "no integer"),
        ('{"family": "countdown", "level": 1, "draw": 1e400}', "no integer"),
        ('{"family": "countdown", "level": 1, "question": 5}', "a question has"),
        ('{"family": "shortest_path", "level": 1, "question": "?"}', "takes no question"),
    ],
)
def test_a_broken_spec_is_set_aside_with_a_sentence(text, words):
    with pytest.raises(ValueError, match=words):
        read(text, FAMILIES)
    assert certify(text, FAMILIES, 0).reason == "spec_invalid"


@pytest.mark.parametrize(
    ("family", "question", "reason"),
    [
        ("countdown", "Make 7 from 1 1.", "impossible"),
        ("countdown", "Make 7 from 1 1 1 1 1 1 1 1 1.", "roundtrip"),
        ("countdown", "Make me a sandwich.", "roundtrip"),
        ("linear_equations", "Solve for x: x + y = 3; 2x + 2y = 6.", "not_unique"),
        ("linear_equations", "Solve 0x + 4 = 19.", "not_unique"),
        ("linear_equations", "Solve x = .", "roundtrip"),
        ("integer_arithmetic", "Compute 9 ** 9.", "roundtrip"),
        ("integer_arithmetic", "Compute 3 + (4.", "roundtrip"),
        ("integer_arithmetic", "Compute 5 + (4 * 7).", "roundtrip"),
        ("integer_arithmetic", "Compute " + "(" * 140 + "1" + ")" * 140 + ".", "roundtrip"),
        ("list_sorting", "Sort ascending: 99999999 1", "roundtrip"),
    ],
)
def test_a_question_that_cannot_be_is_set_aside(family, question, reason):
    item = certify(Spec(family=family, level=1, question=question).text(), FAMILIES, 0)
    assert isinstance(item, Quarantined) and item.reason == reason, item


@pytest.mark.parametrize("family", [n for n in NAMES if FAMILIES[n].posed])
def test_a_family_reads_back_every_question_that_it_writes(family):
    for level in range(1, FAMILIES[family].levels + 1):
        for index in range(6):
            problem = FAMILIES[family].make(3, "train", index, levels=[level])
            spec = Spec(family=family, level=level, question=problem.question)
            item = certify(spec.text(), FAMILIES, 0)
            assert isinstance(item, Problem) and item.lineage["root"] == problem.lineage["root"], item
            assert item.question == problem.question and read(spec.text(), FAMILIES) == spec


def test_a_proposed_question_of_another_split_is_contamination():
    problem = FAMILIES["list_sorting"].make(3, "test", 0, levels=[1])
    assert (
        certify(Spec(family="list_sorting", level=1, question=problem.question).text(), FAMILIES, 0).reason
        == "contaminated"
    )


def test_routes_that_disagree_about_a_proposal_are_caught():
    families = FAMILIES | {"list_sorting": replace(FAMILIES["list_sorting"], solve=lambda question: "1 2 3")}
    assert (
        certify('{"family": "list_sorting", "level": 1, "question": "Sort ascending: 9 8 7"}', families, 0).reason
        == "routes_disagree"
    )


def test_a_proposer_that_repeats_itself_is_counted_and_stopped(tmp_path):
    same = '{"family": "countdown", "level": 1, "draw": 5}'
    flags = []
    running = loop(
        tmp_path,
        propose=lambda view, rng, n: [same] * n,
        stop=stop,
        pay=lambda p: flags.extend(f for _, f in p) or [0.0] * len(p),
    )
    rounds = list(running.run())
    assert len(rounds) == 1 and rounds[0]["certified"] == 1 and rounds[0]["quarantined"] == {"duplicate": 11}
    assert rounds[0]["stop"].startswith("duplicate") and flags.count({"duplicate": 1.0}) == 11


def test_nothing_is_lost_whatever_is_proposed(tmp_path):
    def bad(view, rng, n):
        return [
            "",
            "{}",
            "\ud800",
            "null",
            *(Spec(family=c.family, level=c.level, draw=i).text() for i, c in enumerate(view.wanted[4:n])),
        ]

    running = loop(tmp_path, propose=bad, rounds=2)
    for r in running.run():
        assert (
            r["proposed"] == 12 == r["certified"] + sum(r["quarantined"].values())
            and r["quarantined"]["spec_invalid"] == 4
        )
        assert r["validity"] == pytest.approx(8 / 12)
        assert sum(r["verdicts"].values()) == 4 * r["certified"]


def test_unparsable_and_truncated_answers_are_counted_and_no_evidence(tmp_path):
    class Mumbling:
        def __call__(self, problems, samples, *seed):
            return [
                [f"<answer>{p.answer}</answer>", "well", "<answer>1", f"<answer>{p.answer}</answer>"][:samples]
                for p in problems
            ]

        def state(self):
            return {}

        def load_state(self, state):
            pass

    (first,) = loop(tmp_path, solve=Mumbling(), rounds=1).run()
    n = first["certified"]
    assert first["verdicts"] == {"correct": 2 * n, "unparsable": n, "truncated": n} and first["success"] == 1.0


def test_held_out_problems_are_measured_without_practice_and_never_proposed(tmp_path):
    held = play.held_out(FAMILIES, 0, 2)
    solver = scripted(gain=0.1)
    running = loop(tmp_path, held=held, solve=solver, rounds=2)
    rounds = list(running.run())
    assert all(r["held_n"] == len(held) and r["held"] is not None for r in rounds)
    assert sum(solver.practice.values()) == 4 * sum(r["certified"] for r in rounds)
    assert not {p.id for p in held} & set(running.accepted)


# --- proposers -------------------------------------------------------------------------------------------------------


def failed(family, n, level=2):
    return [(FAMILIES[family].make(9, "train", i, levels=[level]), "0") for i in range(n)]


def test_the_teacher_aims_at_failures_and_goes_up_where_all_is_solved():
    texts = teacher(view(failed=failed("list_sorting", 3), wanted=CELLS[:40]), rng(), 40, replay=0.0, harder=0.0)
    questions = {p.question for p, _ in failed("list_sorting", 3)}
    for text in texts:
        question = json.loads(text)["question"]
        near = [q for q in questions if sum(a != b for a, b in zip(q.split(), question.split(), strict=False)) == 1]
        assert question not in questions and near, "one number of a failed question has changed"
    solved = [(p, 1.0) for p, _ in failed("countdown", 2)]
    up = teacher(view(solved=solved), rng(), 4, replay=0.0, harder=1.0)
    assert {(json.loads(t)["family"], json.loads(t)["level"]) for t in up} == {("countdown", 3)}
    assert [json.loads(t)["family"] for t in teacher(view(), rng(), 4)] == [c.family for c in CELLS[:4]], (
        "nothing failed yet"
    )


def test_the_budget_follows_the_failures():
    given = failed("countdown", 30) + failed("list_sorting", 10)
    families = [
        json.loads(t)["family"] for t in weak_skills(view(wanted=CELLS[:1] * 400, failed=given), rng(), 400, share=1.0)
    ]
    assert families.count("countdown") / 400 == pytest.approx(0.75, abs=0.07)
    only = weak_skills(view(wanted=CELLS[:1] * 50, failed=given, weak=("list_sorting",)), rng(), 50, share=1.0)
    assert {json.loads(t)["family"] for t in only} == {"list_sorting"}


def test_rewriting_keeps_the_answer():
    hard = failed("integer_arithmetic", 12, level=4)
    answers = {p.id: p.answer for p, _ in hard}
    for rate, shorter in ((0.0, True), (0.5, False)):
        solved = [(p, rate) for p, _ in hard] if rate else []
        texts = rewrite(view(failed=hard, solved=solved, wanted=CELLS[:1] * 40), rng(), 40, share=1.0)
        problems = [m for t in texts if isinstance(m := certify(t, FAMILIES, 0), Problem)]
        assert len(problems) > 20
        for item in problems:
            assert item.answer in answers.values()
            assert len(item.question.split()) in ((8, 10) if shorter else (10,)), "Compute, and five numbers or four"
        assert not shorter or any(len(m.question.split()) == 8 for m in problems)
    assert simplified(("+", ("*", 2, 3), 4)) == ("+", 6, 4) and varied(("+", 1, 2), rng()) == ("+", 2, 1)
    assert varied(("-", 1, 2), rng()) == ("-", 1, 2), "a difference has no other side"


def test_skill_pairs_are_covered_evenly():
    families = play.registry([bind("family", {"piece": "skill_pairs"})])
    state = {}
    texts = []
    for _ in range(4):
        texts += skill_pairs(
            view(wanted=cells(families, 0)[:1] * 33, cells=cells(families, 0), families=families, state=state),
            rng(),
            33,
        )
    assert len(state["pairs"]) == 66 and set(state["pairs"].values()) == {2}, "12 skills, 66 pairs, 132 proposals"
    verdicts = [certify(t, families, 0) for t in texts]
    assert {v.reason for v in verdicts if isinstance(v, Quarantined)} <= {"contaminated"}


def test_a_question_of_two_skills_stays_in_the_wording_that_it_was_proposed_in():
    for form in two_skills.WORDINGS.forms:
        written = [form.format(numbers=f"{n} 3 5", one="add 2 to each", two="reverse it") for n in ("4", "6", "06")]
        assert [two_skills.posed(text)["prompt"] == text for text in written] == [True, True, False]
        assert {two_skills.posed(text)["answer"] for text in written} == {"7 5 6", "7 5 8"}


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_a_row_is_written_once_and_never_changed(tmp_path):
    ledger = Ledger(tmp_path / "l.db", {"seed": 1})
    ledger.add(0, {"proposal": ["a", "b"]})
    with pytest.raises(sqlite3.IntegrityError):
        ledger.add(0, {"reward": [1.0], "proposal": ["c"]}, first=1)
    for statement in ("UPDATE entry SET body = '1'", "DELETE FROM entry"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            ledger._db.execute(statement)
    assert [b for _, _, b in ledger.rows("proposal")] == ["a", "b"] and not list(ledger.rows("reward")), (
        "all of a transaction, or none"
    )
    ledger.close()
    with pytest.raises(ValueError, match="another run"):
        Ledger(tmp_path / "l.db", {"seed": 2})
    (tmp_path / "text.db").write_text("no database at all, but long enough to be read as one")
    with pytest.raises(ValueError, match="no ledger"):
        Ledger(tmp_path / "text.db", {})
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(ValueError, match="folder.db cannot be opened .*: remove it, or name another file"):
        Ledger(tmp_path / "folder.db", {})


def damaged(path, change):
    """Change a closed ledger by SQL, past its triggers."""
    with sqlite3.connect(path) as db:
        db.executescript("DROP TRIGGER no_update; DROP TRIGGER no_delete;" + change)
    db.close()


def test_a_row_that_is_not_what_was_written_puts_the_ledger_aside(tmp_path):
    path = tmp_path / "l.db"
    whole = loop(tmp_path, solve=scripted(gain=0.2))
    told = list(whole.run())
    whole.ledger.close()
    expected = dump(tmp_path)
    (tmp_path / "ledger.db").rename(path)
    for change, kept in (
        (
            "UPDATE entry SET body = replace(body, '3', '4') WHERE round = 2 AND kind = 'proposal'",
            "before round 2 is kept",
        ),
        ("UPDATE entry SET place = 99 WHERE round = 1 AND kind = 'summary'", "before round 1 is kept"),
        ("UPDATE entry SET body = 'x' WHERE round = -1", "again from the start"),
    ):
        (tmp_path / "ledger.db").write_bytes(path.read_bytes())
        damaged(tmp_path / "ledger.db", change)
        again = loop(tmp_path, solve=scripted(gain=0.2))
        message = again.ledger.said
        assert kept in message and "SHA-256" in message and message.count("\n") == 0
        assert list(again.run()) == told
        again.ledger.close()
        assert dump(tmp_path) == expected
    assert len(list(tmp_path.glob("ledger.db*.damaged"))) == 3, "none is lost"


def test_any_flipped_bit_of_a_ledger_is_found_or_harmless(tmp_path):
    path = tmp_path / "l.db"
    ledger = Ledger(path, {"seed": 1})
    for n in range(3):
        ledger.add(n, {"proposal": [f"text {n} {'x' * 300}"] * 4})
    ledger.close()
    good = path.read_bytes()
    expected = dump(tmp_path, "l.db")
    n_found = 0
    rng = np.random.default_rng(0)
    for at in rng.integers(0, 8 * len(good), 60):
        bad = bytearray(good)
        bad[at // 8] ^= 1 << at % 8
        path.write_bytes(bad)
        try:
            ledger = Ledger(path, {"seed": 1})
        except ValueError as e:
            assert "no ledger" in str(e)
            continue
        n_found += bool(ledger.said)
        upto = max([r for r, _, _ in ledger.rows("proposal")], default=-1)
        ledger.close()
        rows = dump(tmp_path, "l.db")
        assert rows == [r for r in expected if r[0] <= upto] and (ledger.said or rows == expected)
        for p in tmp_path.glob("l.db?*"):
            p.unlink()
    assert n_found > 10


def test_a_second_loop_on_one_ledger_is_told_who_holds_it(tmp_path):
    """It ended in an IntegrityError in the middle of a round."""
    first = Ledger(tmp_path / "l.db", {"seed": 1})
    with pytest.raises(ValueError, match=rf"another loop plays on .*l.db \(process {os.getpid()}\): wait for it"):
        Ledger(tmp_path / "l.db", {"seed": 1})
    with pytest.raises(UserError, match="another loop"):
        play.loop(params(), seed=1, ledger=tmp_path / "l.db")
    first.close()
    Ledger(tmp_path / "l.db", {"seed": 1}).close()


def test_a_ledger_from_before_checksums_is_gone_on_with(tmp_path):
    with sqlite3.connect(tmp_path / "l.db") as db:
        db.execute(
            "CREATE TABLE entry (round INTEGER, kind TEXT, place INTEGER, body TEXT, PRIMARY KEY (round, kind, place)) WITHOUT ROWID"
        )
        db.execute("""INSERT INTO entry VALUES (-1, 'run', 0, '{"seed": 1}'), (0, 'proposal', 0, '"a"')""")
    db.close()
    ledger = Ledger(tmp_path / "l.db", {"seed": 1})
    ledger.add(1, {"proposal": ["b"]})
    assert [b for _, _, b in ledger.rows("proposal")] == ["a", "b"] and not ledger.said


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = ["tests/support", "tests/synth/selfplay"]
from test_selfplay import loop
from synth.selfplay.ledger import Ledger
from synth.selfplay.solve.scripted import scripted
left = int(sys.argv[2])
add = Ledger.add
def dying(self, *args, **more):
    global left
    add(self, *args, **more)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
Ledger.add = dying
list(loop(Path(sys.argv[1]), solve=scripted(gain=0.2)).run())
"""


def test_kill_9_at_any_write_loses_nothing(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    told = list(loop(whole, solve=scripted(gain=0.2)).run())
    expected = dump(whole)
    broken = tmp_path / "broken"
    broken.mkdir()
    died = [
        subprocess.run([sys.executable, "-c", KILLED, str(broken), str(n)], check=False).returncode
        for n in (1, 2, 2, 3, 4)
    ]
    assert died == [-9] * 5, "every process was killed"
    again = loop(broken, solve=scripted(gain=0.2))
    assert list(again.run()) == told
    assert dump(broken) == expected
    assert all(a < b for a, b in pairwise(sorted(expected)))


def dump(folder, name="ledger.db"):
    with sqlite3.connect(folder / name) as db:
        return db.execute("SELECT * FROM entry ORDER BY round, kind, place").fetchall()


# --- put together ----------------------------------------------------------------------------------------------------


def params(**changes):
    given = {
        "families": [{"piece": "list_sorting", "levels": [1, 2]}],
        "rounds": 2,
        "proposals": 6,
        "attempts": 4,
        "held": 2,
        "model": "",
        "stop": True,
        "proposer": {"piece": "ladder"},
        "solver": {"piece": "scripted"},
        "curriculum": {"piece": "learnability"},
        "pay": {"piece": "bell"},
    } | changes
    folders = {
        "proposer": "proposer",
        "solver": "solver",
        "curriculum": "curriculum",
        "pay": "reward",
    }
    bound = {k: bind(folders[k], v) if v else None for k, v in given.items() if k in folders}
    return given | bound | {"families": [bind("family", f) for f in given["families"]]}


def test_the_loop_of_a_stage(tmp_path):
    running = play.loop(params(), seed=1, ledger=tmp_path / "l.db")
    told = list(play.played(running))
    assert len(told) == 2 and "6 of 6" in told[0][1]
    assert {c.name for c in running.cells} == {"list_sorting/1", "list_sorting/2"}
    svg = play.plot([s for s, _ in told], 0.5)
    assert svg.startswith("<svg xmlns") and "held out" in svg and "target" in svg
    running.ledger.close()
    more = play.loop(params(rounds=3), seed=1, ledger=tmp_path / "l.db")
    assert [s for s, _ in play.played(more)][:2] == [s for s, _ in told], "more rounds are more of the same run"
    more.ledger.close()
    with pytest.raises(UserError, match="another run"):
        play.loop(params(), seed=2, ledger=tmp_path / "l.db")


@pytest.mark.parametrize(
    ("changes", "words"), [({"rounds": 0}, "rounds is 0"), ({"proposer": None}, "proposer is not set")]
)
def test_settings_that_do_not_play_say_so(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        play.loop(params(**changes), seed=1, ledger=tmp_path / "l.db")


def test_what_a_proposal_earns():
    pay = play.paying(bind("reward", {"piece": "bell"}), rng())
    paid = pay(
        [
            (0.5, {}),
            (float("nan"), {}),
            (float("nan"), {"duplicate": 1.0}),
            (float("nan"), {"spec_invalid": 1.0}),
            (0.75, {}),
        ]
    )
    assert paid == pytest.approx([1.0, 0.0, -0.5, -1.0, 0.4578334], abs=1e-6)


def test_the_stage_problems_plays_rounds_and_goes_on_after_a_kill(tmp_path, monkeypatch):
    from tasks.runtime.stage import Stage
    from tasks.stages.problems import problems
    from tasks.storage import tables

    given = params(n_train=5, n_valid=2, n_test=2, env="") | {"rounds": 3}
    plain = {k: v for k, v in given.items() if not callable(v) and k != "families"}

    def run(root):
        stage = Stage("problems", plan={"seed": 4, "params": plain}, root=root, deps=[])
        stage.params = given
        with stage.running():
            problems(stage, **given)
        return root / "artifacts" / "problems"

    whole = run(tmp_path / "whole")
    rows = tables.read(whole / "problems.parquet", Problem)
    card = json.loads((whole / "card.json").read_text())
    assert {p.split for p in rows} == {"train", "valid", "test"} and len(card["rounds"]) == 3
    assert sum(p.split == "train" for p in rows) > 5, "the rounds make the split train, not n_train"
    assert card["produced"] == card["accepted"] + sum(card["quarantined"].values()) and (whole / "rounds.svg").exists()
    roots = {s: {p.lineage["root"] for p in rows if p.split == s} for s in ("train", "test")}
    assert not roots["train"] & roots["test"]

    class Killed(Exception):
        pass

    add, left = Ledger.add, [9]

    def dying(self, *args, **more):
        add(self, *args, **more)
        left[0] -= 1
        if not left[0]:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "add", dying)
        with pytest.raises(Killed):
            run(tmp_path / "broken")
    again = run(tmp_path / "broken")
    for name in ("problems.parquet", "quarantine.parquet", "rounds.jsonl", "rounds.svg"):
        assert (again / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_command_line_plays_and_goes_on(tmp_path, capsys, monkeypatch):
    from flows.cli import main

    (tmp_path / "params.yaml").write_text("recipe: socratic-zero\nseed: 3\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    command = ["selfplay", "--set", "problems.rounds=2", "--set", "problems.proposals=6", "--set", "problems.held=1"]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert (
        "of 6" in first
        and "certified problems" in first
        and (tmp_path / ".espalier/selfplay/socratic-zero/rounds.svg").exists()
    )
    assert main(command) == 0 and capsys.readouterr().out.splitlines()[:3] == first.splitlines()[:3], (
        "read back, not played again"
    )
    assert main(["selfplay", "--recipe", "grpo"]) == 2 and "does not play" not in capsys.readouterr().out
    assert main([*command, "--set", "seed=4"]) == 2 and "another run" in capsys.readouterr().err
    assert main(["selfplay", "--learn", "1"]) == 2 and "--model" in capsys.readouterr().err


# --- evolution of prompts ---------------------------------------------------------------------------------------------


def test_evolved_problems_are_certified_and_tagged_and_the_parents_pass_a_verifier():
    families = play.registry([bind("family", {"piece": n}) for n in (*NAMES, "topological_order")])
    all_cells = cells(families, 0)
    solved = [(c.example, 0.5) for c in all_cells if c.level == 2] + [
        (c.example, 0.0) for c in all_cells if c.level == 1
    ]
    state = {}
    seen = view(wanted=all_cells * 6, cells=all_cells, families=families, solved=solved, state=state)
    specs = [json.loads(t) for t in evolve(seen, rng(), 120, share=1.0)]
    results = [certify(json.dumps(s), families, 0) for s in specs]
    assert sum(isinstance(p, Problem) for p in results) >= 0.95 * len(results)
    ops = {op: sum(n for k, n in state["tags"].items() if k.startswith(op)) for op in ("deepen", "widen", "constrain")}
    assert sum(ops.values()) == 120 and min(ops.values()) > 20, ops
    assert {k.split("/")[1] for k in state["tags"] if k.startswith(("deepen", "constrain"))} == {"3"}, "one level up"
    assert {k.split("/")[1] for k in state["tags"] if k.startswith("widen")} == {"2"}, "the level of parents that pass"
    none = view(wanted=all_cells, cells=all_cells, families=families, solved=[(p, 0.0) for p, _ in solved], state={})
    evolve(none, rng(), 10, share=1.0)
    assert none.state["tags"] == {}, "what is never solved has no children"
    with pytest.raises(ValueError, match="name some of deepen, widen, constrain"):
        evolve(view(), rng(), 1, ops=("twist",))


def test_a_deeper_expression_has_an_operation_more_and_the_same_answer():
    family = FAMILIES["integer_arithmetic"]
    for i in range(20):
        problem = family.make(0, "train", i, levels=[2])
        question = deeper(problem, np.random.default_rng(i))
        assert family.posed(question)["answer"] == problem.answer
        assert sum(question.count(x) for x in "+-*") == 1 + sum(problem.question.count(x) for x in "+-*")
