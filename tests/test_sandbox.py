"""What hostile programs and queries may not do. Each attempt reports success by its return value; none may."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from synth import sandbox
from synth.sandbox import Limits, run
from synth.types import Problem, Scored, Unscorable
from synth.verify import RIGHT, TIMEOUT, UNPARSABLE, WRONG, missing, verdict, verify
from synth.verify._database import connect, query
from synth.verify._pool import Pool

LAYER = sandbox.strongest()
isolated = pytest.mark.skipif(LAYER is None, reason="no sandbox layer works on this machine: neither bubblewrap nor unshare with Landlock")
QUICK = Limits(seconds=1, wall=30)


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
    outcome = run("import math\ndef f(x):\n    print('noise')\n    return [math.gcd(x, 12), (1, 2), {'a': None}]", "f", [[18], [0], ["a"]])
    assert outcome.status == "ok" and outcome.layer == LAYER
    assert outcome.results[0] == {"value": [6, [1, 2], {"a": None}]} and "TypeError" in outcome.results[2]["error"]


ATTEMPTS = {
    "fork": "import os\nn = 0\nwhile n < 50:\n    if os.fork() == 0:\n        os._exit(0)\n    n += 1\nreturn 'done'",
    "thread bomb": "import threading\nfor _ in range(64):\n    threading.Thread(target=lambda: None).start()\nreturn 'done'",
    "start a program": "import subprocess\nsubprocess.run(['/bin/true'], check=True)\nreturn 'done'",
    "write beside itself": "open('x', 'w').write('x')\nreturn 'done'",
    "write to /tmp": "open('/tmp/espalier-escape', 'w').write('x')\nreturn 'done'",
    "write over its own job": "open('job.json', 'w').write('x')\nreturn 'done'",
    "make a directory": "import os\nos.mkdir('/tmp/espalier-escape')\nreturn 'done'",
    "remove the job": "import os\nos.chmod('.', 0o777)\nos.remove('job.json')\nreturn 'done'",
    "read the password file": "return 'done' if open('/etc/passwd').read() else 'no'",
    "read the environment of others": "return 'done' if open('/proc/%d/environ' % __import__('os').getppid(), 'rb').read() else 'no'",
    "list the home folder": "import os\nreturn 'done' if os.listdir('/root') is not None else 'no'",
    "TCP": "import socket\ns = socket.create_connection(('127.0.0.1', PORT), 1)\nreturn 'done'",
    "UDP": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('1.1.1.1', 53))\nreturn 'done'",
    "100 GB": "x = bytearray(100 << 30)\nreturn 'done'",
    "100 GB in pieces": "x = []\nwhile True:\n    x.append(bytearray(1 << 26))\nreturn 'done'",
    "signal the parent": "import os\nos.kill(PARENT, 0)\nreturn 'done'",
    "become another program": "import os\nos.execv('/bin/true', ['true'])",
    "unix socket": "import socket\nsocket.socketpair()\nreturn 'done'",
    "new namespaces": "import ctypes\nreturn 'done' if ctypes.CDLL(None).unshare(0x10000000) == 0 else 'no'",
    "io_uring": "import ctypes\nreturn 'done' if ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)) >= 0 else 'no'",
    "trace": "import ctypes\nreturn 'done' if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0 else 'no'",
    "become root": "import os\nos.setuid(0)\nreturn 'done' if os.getuid() == 0 else 'no'",
}


@pytest.mark.parametrize("layer", sandbox.LAYERS)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt_is_contained(name, layer, monkeypatch):
    import socket

    if not sandbox.works(layer):
        pytest.skip(f"the layer {layer} does not work here: `espalier doctor` says how to get a sandbox")
    monkeypatch.setattr(sandbox, "strongest", lambda: layer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        body = ATTEMPTS[name].replace("PORT", str(server.getsockname()[1])).replace("PARENT", str(os.getpid()))
        outcome = attempt(body)
    assert outcome.status in ("ok", "error") and outcome.layer == layer, outcome
    if outcome.status == "ok":
        assert str(outcome.results[0].get("value", "no: error")).startswith("no"), outcome
    assert not Path("/tmp/espalier-escape").exists()


@isolated
def test_the_environment_is_empty():
    os.environ["ESPALIER_SECRET"] = "canary"
    try:
        outcome = attempt("import os\nreturn [k for k in os.environ if k not in ('LC_CTYPE', 'PWD', 'SHLVL', '_')]")
    finally:
        del os.environ["ESPALIER_SECRET"]
    assert outcome.results[0] == {"value": []}


@isolated
@pytest.mark.parametrize(
    "body, status",
    [
        ("while True:\n    pass", "timeout"),
        ("import time\ntime.sleep(60)\nreturn 1", "stalled"),
        ("import os\nos._exit(0)", "error"),
        ("raise SystemExit", "error"),
        ("return 'x' * 1_000_000", "output"),
        ("return 10 ** 10 ** 7", "timeout"),
    ],
)
def test_program_that_does_not_return(body, status):
    outcome = attempt(body, Limits(seconds=1, wall=6 if status == "stalled" else 60))
    assert outcome.status == status, outcome


@isolated
def test_the_answer_cannot_see_or_patch_the_tests():
    source = (
        "import json\nclass E(int):\n    def __eq__(self, o): return True\njson.dumps = lambda *a, **k: '{}'\ndef f(x):\n    return E(x)"
    )
    problem = Problem.make(
        prompt="?", answer="def f(x): return x + 1", verifier="python_function", family="t", split="train",
        args={"function": "f", "inputs": [[1]], "expected": [2]},
    )  # fmt: skip
    assert verify(problem, source).value == 0.0
    assert verify(problem, "def f(x):\n    return True if x == 1 else 2").value == 0.0
    assert verify(problem, "def f(x):\n    return x + 1.0").value == 0.0
    assert verify(problem, "```python\ndef f(x):\n    return x + 1\n```").value == 1.0


def test_words_of_verdicts():
    scores = (RIGHT, WRONG, UNPARSABLE, TIMEOUT, missing("<answer>5"), missing("5"), Unscorable(reason="stalled: over 10 s"))
    assert [verdict(s) for s in scores] == ["correct", "wrong", "unparsable", "timeout", "truncated", "unparsable", "stalled"]


def test_without_a_layer_it_refuses_unless_told(monkeypatch):
    monkeypatch.setattr(sandbox, "works", lambda layer: False)
    assert run("def f(): return 1", "f", [[]]).status == "refused"
    told = run("def f(): return 1", "f", [[]], unisolated=True)
    assert told.status == "ok" and told.layer == "none"
    problem = Problem.make(
        prompt="?", answer="def f(): return 1", verifier="python_function", family="t", split="train",
        args={"function": "f", "inputs": [[]], "expected": [1]},
    )  # fmt: skip
    assert isinstance(verify(problem, "def f(): return 1"), Unscorable)


@isolated
def test_runs_work_off_the_main_thread_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.tempfile, "mkdtemp", lambda prefix: str(_made(tmp_path / f"{prefix}{threading.get_ident()}")))
    out: list = []
    threads = [threading.Thread(target=lambda: out.append(run("def f(): return 7", "f", [[]]).results)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == [({"value": 7},)] * 2 and not list(tmp_path.iterdir())


def _made(path: Path) -> Path:
    path.mkdir()
    return path


TABLES = {"t": {"columns": [["name", "TEXT"], ["age", "INTEGER"]], "rows": [["Ann", 31], ["Bob", 30], ["Cid", 52], ["Dot", 9]]}}
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
        prompt="?", answer="SELECT name FROM t WHERE age > 30", verifier="sql", family="t", split="train", args={"tables": TABLES}
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
    assert verify(sql_problem(), "SELECT name FROM t WHERE name IN ('Ann', 'Cid')").value == 0.0, "right on the shown rows alone"
    assert query(connect(TABLES), "SELECT count(*) FROM t") == [(4,)]


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
