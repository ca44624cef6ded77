"""`make drill-sandbox`: every attack of tests/support/sandbox_attacks.py in every layer and configuration that can be had here,
repeated verdicts in fresh processes, and the speed of the sandbox. Writes benchmarks/results/sandbox.json, of which
`make tables` makes the table of docs/reliability.md.

Configurations: this user and this interpreter; as root also /usr/bin/python3, which every user can read, by root and by a
user without rights. A verdict is scored in a process of its own with another seed of hashes and another time zone, and
must have the same bytes as the first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CODE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CODE))

from synth.sandbox import parent as sandbox
from synth.types import Problem
from synth.verify import verify
from tests.support.sandbox_attacks import CONTROL

RESULT = CODE / "benchmarks/results/sandbox.json"
COMMAND = "make drill-sandbox"


def configurations() -> dict[str, list[str]]:
    """How the attacks are started in each configuration that can be had here."""
    library = Path(sysconfig.get_path("stdlib")).resolve()
    closed = any(not p.stat().st_mode & 0o001 for p in library.parents)
    user = "root" if os.getuid() == 0 else "an ordinary user"
    out = {f"{user}, interpreter below a closed folder" if closed else user: [sys.executable]}
    if os.getuid() == 0 and _can_be_used("/usr/bin/python3"):
        out["root"] = ["/usr/bin/python3"]
        out["an ordinary user"] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    return out


def _can_be_used(python: str) -> bool:
    script = "import sys; sys.exit(sys.version_info < (3, 11))"
    return Path(python).exists() and subprocess.run([python, "-c", script], check=False).returncode == 0


def attacked(command: list[str]) -> dict[str, dict[str, str]]:
    """{layer: {attack: what it reached}} of a configuration. Raises RuntimeError where the attacks themselves do not
    run."""
    script = [*command, "-B", str(CODE / "tests/support/sandbox_attacks.py"), *sandbox.LAYERS]
    done = subprocess.run(
        script, capture_output=True, text=True, env=os.environ | {"HOME": "/tmp"}, timeout=1800, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def scored(round_: int) -> list[str]:
    """The verdicts of tests/support/verdicts.py, scored in fresh processes."""
    zones = ("UTC", "Asia/Tokyo", "America/New_York", "")
    env = os.environ | {"PYTHONHASHSEED": str(round_ or "random"), "TZ": zones[round_ % 4], "OMP_NUM_THREADS": "1"}
    script = [sys.executable, "-m", "tests.support.verdicts"]
    done = subprocess.run(script, cwd=CODE, env=env, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


def speed(layer: str, seconds: float) -> float:
    """Scorings of a right program per second, one after another."""
    problem = Problem.make(
        prompt="?",
        answer="def f(x): return x + 1",
        verifier="python_function",
        family="drill",
        split="train",
        args={"function": "f", "inputs": [[i] for i in range(8)], "expected": [i + 1 for i in range(8)]},
    )
    chosen, sandbox.strongest = sandbox.strongest, lambda: layer
    try:
        n, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            if verify(problem, "def f(x):\n    return x + 1").value != 1.0:
                raise RuntimeError("a right program is not scored as right")
            n += 1
        return n / (time.perf_counter() - start)
    finally:
        sandbox.strongest = chosen


def result(case: str, metric: str, value: float, unit: str, better: str, n: int) -> dict[str, Any]:
    """One entry of the file of results (docs/generators/tables.py)."""
    entry = {"case": case, "metric": metric, "value": value, "unit": unit, "better": better, "low": None, "high": None}
    device = f"{os.cpu_count()} cores, Linux {platform.release()}"
    versions = {"python": platform.python_version()}
    more = {"peers": {}, "ratio_to_best_peer": None, "device": device, "versions": versions, "command": COMMAND}
    return entry | {"n": n} | more


def main() -> int:
    """Prints what reached something and what differed; 1 where anything did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scorings", type=int, default=1000, help="repeated scorings in fresh processes, at least")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the speed of each layer")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    out, bad = [], 0
    for name, command in configurations().items():
        for layer, results in attacked(command).items():
            if results.pop(CONTROL) != "says that it was done":
                print(f"{name}, {layer}: {sandbox.fault(layer) or 'the control did not run'}")
                bad += 1
                continue
            reached = {k: v for k, v in results.items() if v}
            bad += len(reached)
            print(f"{name}, {layer}: {len(results)} attacks, {len(reached)} reached something", *reached.items())
            case = f"attacks: {name}, {layer}"
            out.append(result(case, "tried", len(results), "", "higher", len(results)))
            out.append(result(case, "held", len(results) - len(reached), "", "higher", len(results)))
    first = scored(0)
    rounds = -(-options.scorings // len(first))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        different = [
            (a, b)
            for other in pool.map(scored, range(1, rounds + 1))
            for a, b in zip(first, other, strict=True)
            if a != b
        ]
    tried = rounds * len(first)
    bad += len(different)
    print(f"verdicts: {tried} scored again in fresh processes, {len(different)} differ", *different[:5], sep="\n")
    case = f"verdicts: {len(first)} cases in {rounds + 1} processes"
    out.append(result(case, "tried", tried, "", "higher", tried))
    out.append(result(case, "held", tried - len(different), "", "higher", tried))
    for layer in filter(sandbox.works, sandbox.LAYERS):
        rate = speed(layer, options.seconds)
        print(f"{layer}: {rate:.1f} scorings a second")
        out.append(result(f"speed: {layer}", "scorings a second", round(rate, 1), "", "higher", 1))
    options.out.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
