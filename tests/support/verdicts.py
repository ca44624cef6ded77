"""Verdicts of all graders and answers of tools, as bytes: `python -m tests.support.verdicts` prints one JSON line per case.

Started again in another process, with another seed of hashes, another time zone and another time, it must print the same
bytes (tests/synth/verify/test_verdicts.py, tests/support/drill_sandbox.py)."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import synth.verify
from synth.sandbox import parent as sandbox
from synth.types import Problem, Unscorable
from synth.verify import verify

# Programs whose value differs from process to process, unless the sandbox makes it the same.
PROGRAMS = {
    "the order of a set": "def f(x):\n    return next(iter({'a', 'b', 'c'}))",
    "the order of a set of objects": "def f(x):\n    class A: pass\n    s = {A(): i for i in range(9)}\n    return [s[a] for a in set(s)]",
    "hash of a string": "def f(x):\n    return hash('espalier') % 7",
    "an address": "def f(x):\n    return id(object()) % 1009",
    "the text of an object": "def f(x):\n    return repr(object())",
    "random": "import random\ndef f(x):\n    return random.randint(0, 9)",
    "random, a generator": "import random\ndef f(x):\n    r = random.Random()\n    return r.sample(range(99), 5)",
    "random of the system": "import random\ndef f(x):\n    return random.SystemRandom().random()",
    "secrets": "import secrets\ndef f(x):\n    return secrets.token_hex(4)",
    "random bytes": "import os\ndef f(x):\n    return os.urandom(4).hex()",
    "uuid": "import uuid\ndef f(x):\n    return [str(uuid.uuid4()), str(uuid.uuid1())]",
    "time": "import time\ndef f(x):\n    return time.time()",
    "time, of all clocks": "import time\ndef f(x):\n    return [time.perf_counter_ns(), time.monotonic(), time.process_time(), time.ctime()]",
    "now": "import datetime\ndef f(x):\n    return str(datetime.datetime.now())",
    "today": "from datetime import date, datetime, timezone\ndef f(x):\n    return [str(date.today()), repr(datetime.now(timezone.utc)), str(datetime.utcnow())]",
    "a budget of time": "import time\ndef f(x):\n    end, n = time.monotonic() + 0.5, 0\n    while time.monotonic() < end:\n        n += 1\n    return n",
    "where it runs": "import os, sys\ndef f(x):\n    return [os.getcwd(), os.getpid(), os.getppid(), dict(os.environ), os.uname().nodename, sys.argv]",
    "depth of calls": "def g(n):\n    return n if n > 5000 else g(n + 1)\ndef f(x):\n    try:\n        g(0)\n    except RecursionError as e:\n        return str(e)",
    "an error": "def f(x):\n    raise ValueError({'a', 'b', 'c'})",
    "an honest one": "import math\ndef f(x):\n    return math.factorial(x + 1)",
}
QUERIES = (
    "SELECT name FROM t WHERE age > 30",
    "SELECT name FROM t WHERE age > 30 LIMIT 1",
    "SELECT name FROM t WHERE date('now') > '2026'",
    "SELECT name FROM t ORDER BY random()",
    "SELECT avg(age) / 3.0, group_concat(name) FROM t",
    "SELECT count(*) FROM t AS a, t AS b WHERE a.age < b.age",
)


def cases() -> Iterator[tuple[str, Any]]:
    """(name, verdict or text) of each."""
    for module in pkgutil.iter_modules(synth.verify.__path__):
        if module.name.startswith("_"):
            continue
        source = import_module(f"synth.verify.{module.name}")
        needs = getattr(source, "REQUIRES", None)
        if needs and not find_spec(needs):
            continue
        problem = Problem.make(verifier=module.name, family="verdicts", split="train", **source.EXAMPLE)
        gold = problem.answer
        for answer in (gold, "", "0", gold[::-1], f"{gold} I think", gold.upper(), gold[: len(gold) // 2]):
            yield f"{module.name}: {answer}", verify(problem, answer)
    python = {
        "prompt": "?",
        "answer": "def f(x): return 1",
        "args": {"function": "f", "inputs": [[1]], "expected": [2]},
    }
    problem = Problem.make(verifier="python_function", family="verdicts", split="train", **python)
    for layer in filter(sandbox.works, sandbox.LAYERS):
        for name, source in PROGRAMS.items():
            outcome = sandbox.run_in(layer, source, "f", [[1], [2]], sandbox.Limits(wall=60))
            yield f"{layer}: {name}", [outcome.status, outcome.results]
    for name, source in PROGRAMS.items():
        yield f"graded: {name}", verify(problem, source)
    sql = import_module("synth.verify.sql").EXAMPLE
    table = Problem.make(verifier="sql", family="verdicts", split="train", **sql)
    tool = import_module("training.env.tool.sql").sql(table, {})
    for query in QUERIES:
        yield f"sql graded: {query}", verify(table, query)
        yield f"sql: {query}", shown(tool, query=query)
    calculator = import_module("training.env.tool.calculator").calculator(table, {})
    for text in ("2 ** 0.5 / 3", "7 // 2", "1 / 0"):
        yield f"calculator: {text}", shown(calculator, expression=text)
    if sandbox.strongest():
        tool = import_module("tasks.models.tools").python()
        for name, source in PROGRAMS.items():
            yield f"python: {name}", shown(tool, code=f"{source}\nprint(f(1))\nf(2)")


def shown(tool: Any, **arguments: str) -> str:
    """What a model is shown of a call: the text, or the error."""
    try:
        return tool.run(**arguments)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def text(verdict: Any) -> Any:
    """A verdict with every bit of its numbers."""
    if isinstance(verdict, Unscorable):
        return {"unscorable": verdict.reason}
    if hasattr(verdict, "parts"):
        return {"value": verdict.value.hex(), "parts": {k: float(v).hex() for k, v in verdict.parts.items()}}
    return verdict


if __name__ == "__main__":
    for case, verdict in cases():
        print(json.dumps([case, text(verdict)], sort_keys=True))
