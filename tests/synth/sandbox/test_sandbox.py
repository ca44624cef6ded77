"""What hostile programs and queries may not do. Each attempt reports success by its return value; none may."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

import pytest
from training.env.tool.sql import sql as sql_tool

from synth.sandbox import parent as sandbox
from synth.sandbox.parent import Limits, run
from synth.types import Problem, Scored, Unscorable
from synth.verify import RIGHT, TIMEOUT, UNPARSABLE, WRONG, missing, verdict, verify
from synth.verify._database import Stopped, connect, query
from synth.verify._pool import Pool
from tests.support.drill_sandbox import attacked, configurations
from tests.support.sandbox_attacks import ATTACKS, CONTROL

LAYER = sandbox.strongest()
isolated = pytest.mark.skipif(
    LAYER is None, reason="no sandbox layer works on this machine: neither bubblewrap nor namespaces with Landlock"
)
QUICK = Limits(seconds=1, wall=120)
CONFIGURATIONS = configurations()


def attempt(body: str, limits: Limits = QUICK, **more) -> sandbox.Outcome:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return run(
        f"def f():\n    try:\n{lines}\n    except Exception as e:\n        return 'no: ' + type(e).__name__\n",
        "f",
        [[]],
        limits=limits,
        **more,
    )


@isolated
def test_a_run_says_its_layer_and_returns_values():
    outcome = run(
        "import math\ndef f(x):\n    print('noise')\n    return [math.gcd(x, 12), (1, 2), {'a': None}]",
        "f",
        [[18], [0], ["a"]],
    )
    assert outcome.status == "ok" and outcome.layer == LAYER
    assert outcome.results[0] == {"value": [6, [1, 2], {"a": None}]} and "TypeError" in outcome.results[2]["error"]


@cache
def reached(configuration: str) -> dict[str, dict[str, str]]:
    """{layer: {attack: what it reached}}, run once."""
    return attacked(CONFIGURATIONS[configuration])


@pytest.mark.parametrize("layer", sandbox.LAYERS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_reaches_nothing(name, configuration, layer):
    if not sandbox.works(layer):
        pytest.skip(f"the layer {layer} does not work here: `espalier doctor` says how to get a sandbox")
    assert reached(configuration)[layer][name] == ""


@pytest.mark.parametrize("layer", sandbox.LAYERS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_an_attack_that_works_would_be_seen(configuration, layer):
    """Programs of the attacks run, find what they are given, and are believed."""
    if not sandbox.works(layer):
        pytest.skip(f"the layer {layer} does not work here: `espalier doctor` says how to get a sandbox")
    assert reached(configuration)[layer][CONTROL] == "says that it was done"


@isolated
def test_a_layer_that_leaves_one_thing_open_is_not_used(monkeypatch):
    """A filter that lets a file in memory through: the probe sees it, and nothing is run."""
    weak = sandbox.BOX.read_text().replace('"read": (0, 63),', '"read": (0, 63), "memfd_create": (319, 279),')
    sandbox.fault.cache_clear()
    monkeypatch.setattr(sandbox, "_code", lambda: compile(weak, "child", "exec"))
    try:
        assert sandbox.fault("namespaces") == "a program in it can still hold a file in memory"
        assert run("def f(): return 1", "f", [[]]).status == "refused"
    finally:
        sandbox.fault.cache_clear()


def test_the_probe_tries_at_least_forty_things():
    space: dict = {}
    exec(compile(sandbox.PROBE.read_text(), "probe", "exec"), space)
    names = [name for name, _ in space["attempts"]("/tmp/x", 1, "box")]
    assert len(set(names)) == len(names) >= 40


@isolated
def test_the_environment_is_empty():
    os.environ["ESPALIER_SECRET"] = "canary"
    try:
        outcome = attempt("import os\nreturn list(os.environ)")
    finally:
        del os.environ["ESPALIER_SECRET"]
    assert outcome.results[0] == {"value": []}


@isolated
@pytest.mark.parametrize(
    "body, status",
    [
        ("while True:\n    pass", "timeout"),
        ("import time\ntime.sleep(60)\nreturn 1", "timeout"),
        ("import select\nselect.select([], [], [], 60)\nreturn 1", "timeout"),
        ("import os\nos._exit(0)", "error"),
        ("raise SystemExit", "error"),
        ("return 'x' * 1_000_000", "output"),
        ("return 10 ** 10 ** 7", "timeout"),
    ],
)
def test_program_that_does_not_return(body, status):
    outcome = attempt(body, Limits(seconds=1, wall=4 if "60)" in body else 60))
    assert outcome.status == status, outcome


@isolated
def test_the_answer_cannot_see_or_patch_the_tests():
    source = "import json\nclass E(int):\n    def __eq__(self, o): return True\njson.dumps = lambda *a, **k: '{}'\ndef f(x):\n    return E(x)"
    problem = Problem.make(
        prompt="?",
        answer="def f(x): return x + 1",
        verifier="python_function",
        family="t",
        split="train",
        args={"function": "f", "inputs": [[1]], "expected": [2]},
    )
    assert verify(problem, source).value == 0.0
    assert verify(problem, "def f(x):\n    return True if x == 1 else 2").value == 0.0
    assert verify(problem, "def f(x):\n    return x + 1.0").value == 0.0
    assert verify(problem, "```python\ndef f(x):\n    return x + 1\n```").value == 1.0


def test_words_of_verdicts():
    scores = (
        RIGHT,
        WRONG,
        UNPARSABLE,
        TIMEOUT,
        missing("<answer>5"),
        missing("5"),
        Unscorable(reason="stalled: over 10 s"),
    )
    assert [verdict(s) for s in scores] == [
        "correct",
        "wrong",
        "unparsable",
        "timeout",
        "truncated",
        "unparsable",
        "stalled",
    ]


def test_without_a_layer_it_refuses_unless_told(monkeypatch):
    monkeypatch.setattr(sandbox, "works", lambda layer: False)
    assert run("def f(): return 1", "f", [[]]).status == "refused"
    told = run("def f(): return 1", "f", [[]], unisolated=True)
    assert told.status == "ok" and told.layer == "none"
    problem = Problem.make(
        prompt="?",
        answer="def f(): return 1",
        verifier="python_function",
        family="t",
        split="train",
        args={"function": "f", "inputs": [[]], "expected": [1]},
    )
    assert isinstance(verify(problem, "def f(): return 1"), Unscorable)


@isolated
def test_runs_work_off_the_main_thread_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # in /tmp sandboxes of other processes come and go
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = list(tmp_path.iterdir()), len(os.listdir("/proc/self/fd"))
    out: list = []
    threads = [
        threading.Thread(target=lambda: out.append(run("def f(): return 7", "f", [[]]).results)) for _ in range(2)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    after = list(tmp_path.iterdir()), len(os.listdir("/proc/self/fd"))
    assert out == [({"value": 7},)] * 2 and before == after


@pytest.mark.parametrize("layer", sandbox.LAYERS)
def test_a_program_ends_with_the_process_that_started_it(layer):
    if not sandbox.works(layer):
        pytest.skip(f"the layer {layer} does not work here: `espalier doctor` says how to get a sandbox")
    sleeper = f"import time\ndef f():\n    time.sleep({SLEEP})\n"
    script = (
        f"from synth.sandbox import parent as s\ns.run_in({layer!r}, {sleeper!r}, 'f', [[]], s.Limits(wall={SLEEP}))"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=Path(sandbox.__file__).resolve().parents[2]) as process:
        pids: list[int] = []
        while process.poll() is None and not (len(pids) >= 2 and sandbox._sleeps(pids[-1])):
            pids = descendants(process.pid)
            time.sleep(0.01)
        process.kill()
    end = time.monotonic() + 600
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(pids) >= 2 and not any(map(alive, pids))


SLEEP = 500


@isolated
def test_a_program_that_sleeps_is_wrong_and_one_that_was_stopped_is_not_scored():
    """Idle time is the program's doing; a machine that stands still (a stopped process, to it) is not."""
    problem = Problem.make(
        prompt="?",
        answer="def f(): return 1",
        verifier="python_function",
        family="t",
        split="train",
        args={"function": "f", "inputs": [[]], "expected": [1]},
    )
    scores: dict[str, object] = {}
    programs = {"sleeps": "import time\ndef f():\n    time.sleep(60)", "stopped": "def f():\n    while True: pass"}
    threads = [
        threading.Thread(target=lambda name=name: scores.update({name: verify(problem, programs[name])}))
        for name in programs
    ]
    before = set(descendants(os.getpid()))  # verifiers in processes of their own, which earlier tests started
    threads[1].start()
    pids: list[int] = []
    while threads[1].is_alive() and len(pids) < 2:  # the first may still be a copy of this process
        pids = [pid for pid in descendants(os.getpid()) if pid not in before]
    os.kill(pids[-1], signal.SIGSTOP)
    threads[0].start()
    for t in threads:
        t.join()
    assert [verdict(scores[name]) for name in programs] == ["timeout", "stalled"]


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and is not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())  # a child belongs to the thread that started it
        children = [int(p) for thread in threads for p in (thread / "children").read_text().split()]
    except OSError:
        return []
    return [d for child in children for d in (child, *descendants(child))]


TABLES = {
    "t": {
        "columns": [["name", "TEXT"], ["age", "INTEGER"]],
        "rows": [["Ann", 31], ["Bob", 30], ["Cid", 52], ["Dot", 9]],
    }
}
QUERIES = {
    "attach": "ATTACH DATABASE '/tmp/espalier-escape' AS x",
    "pragma": "PRAGMA table_info(t)",
    "pragma function": "SELECT * FROM pragma_database_list",
    "write": "INSERT INTO t VALUES ('Eve', 1)",
    "drop": "DROP TABLE t",
    "vacuum into": "VACUUM INTO '/tmp/espalier-escape'",
    "two statements": "SELECT name FROM t; DROP TABLE t",
    "load_extension": "SELECT load_extension('x')",
    "random": "SELECT name FROM t ORDER BY random()",
    "random bytes": "SELECT name FROM t ORDER BY hex(randomblob(4))",
    "date of the present": "SELECT date('now') FROM t",
    "date of the present, in capitals": "SELECT datetime('NOW') FROM t",
    "date of the present, as bytes": "SELECT datetime(x'6e6f77') FROM t",
    "date of the present, by default": "SELECT julianday() FROM t",
    "time of the present": "SELECT strftime('%H:%M', 'now') FROM t",
    "time of the present, by default": "SELECT strftime('%H:%M') FROM t",
    "seconds of the present": "SELECT unixepoch('subsec') FROM t",
    "time of this place": "SELECT time('12:00', 'localtime') FROM t",
    "current_date": "SELECT current_date FROM t",
    "current_timestamp": "SELECT CURRENT_TIMESTAMP FROM t",
    "current_time": "SELECT current_time FROM t",
    "version": "SELECT sqlite_version()",
    "schema": "SELECT sql FROM sqlite_master",
    "huge string": "SELECT replace(hex(zeroblob(50000000)), '0', 'ab')",
    "printf": "SELECT printf('%.1000000000c', 'x')",
}
LOOPS = {
    "recursive": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "endless rows": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
    "cross join": f"SELECT count(*) FROM {', '.join(f't AS t{i}' for i in range(16))}",
}


def sql_problem() -> Problem:
    return Problem.make(
        prompt="?",
        answer="SELECT name FROM t WHERE age > 30",
        verifier="sql",
        family="t",
        split="train",
        args={"tables": TABLES},
    )


@pytest.mark.parametrize("name", QUERIES)
def test_query_that_does_more_than_read_is_denied(name):
    score = verify(sql_problem(), QUERIES[name])
    assert isinstance(score, Scored) and score.value == 0.0
    assert not Path("/tmp/espalier-escape").exists()


@pytest.mark.parametrize("name", LOOPS)
def test_endless_query_is_stopped(name):
    assert verdict(verify(sql_problem(), LOOPS[name])) == "timeout"


def test_queries_are_compared_by_result_on_mutated_databases():
    assert verify(sql_problem(), "select name from t where not age <= 30;").value == 1.0
    assert verify(sql_problem(), "SELECT name FROM t WHERE name IN ('Ann', 'Cid')").value == 0.0, (
        "right on the shown rows alone"
    )
    assert query(connect(TABLES), "SELECT count(*) FROM t") == [(4,)]


@pytest.mark.parametrize(
    "text, rows",
    [
        ("SELECT date('2024-01-31', '+1 month')", [("2024-03-02",)]),
        ("SELECT strftime('%Y', '2024-05-06'), julianday('2000-01-01 12:00')", [("2024", 2451545.0)]),
        ("SELECT time(3600, 'unixepoch'), date(NULL), date('no date')", [("01:00:00", None, None)]),
    ],
)
def test_dates_that_a_query_names_are_those_of_sqlite(text, rows):
    assert query(connect(TABLES), text) == rows == sqlite3.connect(":memory:").execute(text).fetchall()


WIDE = (
    "WITH RECURSIVE r(n, s) AS (SELECT 1, replace(hex('%s'), '3', 'ab') UNION ALL SELECT n + 1, s FROM r) SELECT %s FROM r"
    % ("3" * 900, ", ".join(["s || n"] * 300))
)


def test_the_bytes_of_a_result_are_counted_while_it_is_fetched():
    with pytest.raises(Stopped, match="bytes"):
        query(connect(TABLES), WIDE)


def test_the_tool_sql_does_not_grow_the_process_that_trains():
    tool = sql_tool(sql_problem(), {})
    tool.run(query="SELECT name FROM t")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="over"):
        tool.run(query=WIDE)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2000  # KiB: the result is 900 times that


def test_a_query_may_not_hold_more_than_its_share():
    """600 MB of distinct values: held in memory, not in files of the disk, and there the limit ends it."""
    pool = Pool(1)
    try:
        big = f"WITH RECURSIVE r(n, s) AS (SELECT 1, hex('{'x' * 2000}') UNION ALL SELECT n + 1, s FROM r WHERE n < 150000) "
        with pytest.raises(ValueError, match="time or memory"):
            pool.query(TABLES, big + "SELECT count(DISTINCT s || n) FROM r", steps=9_000_000, length=9000, rows=5)
        assert pool.query(TABLES, "SELECT count(*) FROM t", steps=1000, length=100, rows=5) == (["4"], 1)
    finally:
        pool.close()


def test_a_child_beyond_its_limits_is_killed_and_replaced():
    pool = Pool(1)
    try:
        slow = Problem.make(prompt="?", answer="1", verifier="number", family="t", split="train")
        assert pool.score(slow, "1", 2).value == 1.0
        child = pool._idle.get()
        os.kill(child.pid, 9)
        pool._idle.put(child)
        assert pool.score(slow, "2", 2).value == 0.0
        out: list = []
        thread = threading.Thread(target=lambda: out.append(pool.score(slow, "1", 2)))
        thread.start()
        thread.join()
        assert out[0].value == 1.0
    finally:
        pool.close()
