"""What processes make is what one makes, in its order, whoever ends on the way."""

import time

import afar
import pytest
from bases import write_base
from sealed import seal

from synth.knowledge.world import world
from synth.types import Problem, Quarantined
from tasks.core.errors import UserError
from tasks.planning import plan
from tasks.runtime.processes import processes
from tasks.runtime.stage import Stage
from tasks.stages import questions as stages
from tasks.storage import tables
from tasks.storage.finished import Finished

QUESTIONS = {"n_train": 12, "n_valid": 2, "n_test": 3, "n_tree_train": 3, "depths": [2], "levels": [1, 2]}


def test_results_come_in_order_and_only_a_few_are_begun_ahead():
    taken = list[int]()

    def jobs():
        for i in range(40):
            taken.append(i)
            yield i

    with processes(2) as imap:
        results = imap(afar.doubled, jobs())
        assert [next(results) for _ in range(3)] == [0, 2, 4] and len(taken) == 6, "twice as many as are done at a time"
        assert list(results) == [2 * i for i in range(3, 40)]
        with pytest.raises(LookupError, match="there is no 3"):
            list(imap(afar.missing, [1, 2, 3]))
        assert list(imap(afar.doubled, range(3))) == [0, 2, 4], "what a job raises ends none of the processes"


def test_a_process_that_ends_is_said_and_not_waited_for():
    began = time.monotonic()
    with (
        processes(2) as imap,
        pytest.raises(UserError, match="one of 2 processes ended before its work was done: .* goes on"),
    ):
        list(imap(afar.ends, [1, 2, 3]))
    assert time.monotonic() - began < 60


def test_questions_are_those_of_one_process(tmp_path, monkeypatch):
    write_base(tmp_path / "artifacts" / "kb", world(countries=25, seed=4))
    seal(tmp_path)

    def stage():
        return Stage("questions", plan={"seed": 1, "params": QUESTIONS}, root=tmp_path, deps=["artifacts/kb"])

    def made(**place):
        with (begun := stage()).running():
            stages.questions(begun, **QUESTIONS, **place)
        return {p.name: p.read_bytes() for p in begun.target.iterdir()}

    alone = made()
    assert len(tables.read(tmp_path / "artifacts/questions/problems.parquet", Problem)) == 20
    with monkeypatch.context() as m:
        m.setattr(stages._Chains, "one_search_answers", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made(workers=2)
    work = stage().work
    known = [Finished(work / f"{name}.jsonl", Problem, Quarantined).keys() for name in ("questions", "trees")]
    assert min(map(len, known)) >= 3 and sum(map(len, known)) >= 20, "what processes made is kept"
    assert made(workers=2) == alone


def test_how_many_processes_is_no_part_of_the_stage(tmp_path):
    def planned(**place):
        (tmp_path / "params.yaml").write_text(f"set: {{questions: {place}}}")
        return plan.plans(tmp_path)

    one, two = planned(), planned(workers=2)
    assert two["questions"] == one["questions"] and two["_run"]["place"]["questions"]["workers"] == 2
    assert "tasks/stages/questions.py" in one["questions"]["sources"], "and what starts them is no source of it"
    assert "tasks/runtime/processes.py" not in one["questions"]["sources"]
