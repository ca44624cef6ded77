"""`make drill`: every drill, one after the other, within 30 minutes: kills, faults, power loss, damaged files, local
services, the sandbox, graders. Prints a table (tried, held) and writes it to benchmarks/results/drill.json.

Each part is a process with its share of the time; one that needs more is ended and counts as not held. `--only` runs
some of them and keeps the others' numbers of before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CODE = Path(__file__).resolve().parents[2]
RESULT = CODE / "benchmarks/results/drill.json"
COMMAND = "make drill"
GRADERS = """
import json, sys
sys.path.insert(0, ".")
from benchmarks.graders import counted, queries
tallies = [*counted().values(), queries(2)]
tried = sum(t["right"] + t["wrong"] for t in tallies)
print(json.dumps([tried, tried - sum(t["refused"] + t["paid"] for t in tallies)]))
"""
FAULTS = ("tests/tasks/runtime/test_resume.py", "tests/tasks/runtime/test_endings.py", "tests/tasks/storage")


class Part(NamedTuple):
    """case: what a miss would mean. share: of the time. command: given seconds and a file to write; read: (tried, held)
    of that file, or of what was printed."""

    case: str
    share: float
    command: Callable[[float, Path], list[str]]
    read: Callable[[Path, str], tuple[int, int]]


def module(name: str, *args: str) -> list[str]:
    return [sys.executable, "-m", f"tests.support.{name}", *args]


def kills(out: Path, output: str) -> tuple[int, int]:
    report = json.loads(out.read_text())
    return report["fired"], report["survived"]


def files(out: Path, output: str) -> tuple[int, int]:
    report = json.loads(out.read_text())
    return report["commands"], report["commands"] - report["tracebacks"]


def pytest(out: Path, output: str) -> tuple[int, int]:
    suites = list(ET.parse(out).getroot().iter("testsuite"))
    number = lambda key: sum(int(s.get(key, 0)) for s in suites)  # noqa: E731
    return number("tests") - number("skipped"), number("tests") - number("skipped") - number("failures") - number(
        "errors"
    )


def services(out: Path, output: str) -> tuple[int, int]:
    reports = json.loads(output[output.rindex("\n{\n") :]).values()  # after a line for each service
    return sum(s["of"] + 1 for s in reports), sum(
        s["of"] - s["answered"] + s["beside 280 idle connections"] for s in reports
    )


def entries(out: Path, output: str) -> tuple[int, int]:
    rows = json.loads(out.read_text())
    tried, held = (sum(int(r["value"]) for r in rows if r["metric"] == m) for m in ("tried", "held"))
    return tried, held


def printed(out: Path, output: str) -> tuple[int, int]:
    tried, held = json.loads(output.strip().splitlines()[-1])
    return tried, held


PARTS = {
    "kills": Part(
        "kills of real runs (else: work is lost, or other bytes)",
        0.25,
        lambda s, out: module("drill", "--seconds", f"{s:.0f}", "--points", "1000", "--out", str(out)),
        kills,
    ),
    "faults": Part(
        "full, read-only and failing disks, SIGTERM, clocks (else: a traceback, or lost work)",
        0.2,
        lambda s, out: [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={out}", *FAULTS],
        pytest,
    ),
    "power": Part(
        "states after a power cut (else: lost, though it was said to be done)",
        0.15,
        lambda s, out: module("drill_power", "--seconds", f"{s:.0f}", "--out", str(out)),
        entries,
    ),
    "files": Part(
        "commands on damaged files (else: a traceback, or a run that cannot be repaired)",
        0.3,
        lambda s, out: module("drill_files", "--seconds", f"{s:.0f}", "--out", str(out)),
        files,
    ),
    "services": Part(
        "foreign requests to local services (else: a web page reads or runs something)",
        0.1,
        lambda s, out: module("service_drill"),
        services,
    ),
    "sandbox": Part(
        "attacks on the sandbox, and verdicts scored again (else: your files, or unfair pay)",
        0.25,
        lambda s, out: module("drill_sandbox", "--seconds", "1", "--out", str(out)),
        entries,
    ),
    "graders": Part(
        "answers in other spellings, near misses, changed queries (else: wrong is paid, or right is not)",
        0.1,
        lambda s, out: [sys.executable, "-c", GRADERS],
        printed,
    ),
}


def ran(part: Part, seconds: float, most: float) -> tuple[int, int, str]:
    """(tried, held, last words) of a part, which is asked to take `seconds` and ended after `most`."""
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "out.json", Path(folder) / "said"
        with log.open("w") as output:
            env = {**os.environ, "PYTHONPATH": str(CODE)}
            child = subprocess.Popen(
                part.command(seconds, out),
                cwd=CODE,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                child.wait(most)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        text = log.read_text(errors="replace")
        try:
            return *part.read(out, text), "" if child.returncode == 0 else text[-1500:]
        except (OSError, ValueError, KeyError, IndexError, ET.ParseError):
            return 0, 0, f"ended with {child.returncode}: {text[-1500:]}"


def entry(case: str, metric: str, value: float, unit: str, n: int) -> dict:
    """One entry of the file of results (docs/generators/tables.py)."""
    more = {"low": None, "high": None, "peers": {}, "ratio_to_best_peer": None, "n": n, "command": COMMAND}
    where = {
        "device": f"{os.cpu_count()} cores, Linux {platform.release()}",
        "versions": {"python": platform.python_version()},
    }
    return {"case": case, "metric": metric, "value": value, "unit": unit, "better": "higher", **more, **where}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="for all parts (default: 30)")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    args = parser.parse_args()
    before = json.loads(RESULT.read_text()) if RESULT.exists() else []
    until, bad, out = time.monotonic() + 60 * args.minutes, False, []
    left = [n for n in PARTS if n in args.only]
    for name, part in PARTS.items():
        if name not in args.only:
            out += [r for r in before if r["case"] == part.case]
            continue
        share = part.share / sum(PARTS[n].share for n in left)
        left.remove(name)
        begin = time.monotonic()
        seconds = max(10.0, (until - begin) * share)
        tried, held, wrong = ran(part, 0.8 * seconds, max(seconds, min(2 * seconds, until - begin)))
        took = time.monotonic() - begin
        bad |= bool(wrong) or tried != held or not tried
        print(f"{name:10} {tried:6} tried {held:6} held {took:6.0f} s   {part.case}", flush=True)
        if wrong or tried != held:
            print("   ", wrong.replace("\n", "\n    "), flush=True)
        out += [
            entry(part.case, m, v, u, tried)
            for m, v, u in (("tried", tried, ""), ("held", held, ""), ("took", round(took), "s"))
        ]
        RESULT.write_text(json.dumps(out, indent=1) + "\n")
    RESULT.write_text(json.dumps(out, indent=1) + "\n")  # with those of before that come last
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
