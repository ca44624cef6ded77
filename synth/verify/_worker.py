"""The child of the pool: one JSON line in, one verdict out, under limits of CPU time (set anew for every answer) and memory."""

from __future__ import annotations

import json
import resource
import sys
from importlib import import_module

from synth.types import Problem, Unscorable, from_row

MEMORY = 1 << 30  # bytes of address space


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for line in sys.stdin:
        job = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + job["seconds"], hard))
        problem = from_row(Problem, job["problem"])
        name = problem.verifier.replace("-", "_")
        try:
            score = getattr(import_module(f"synth.verify.{name}"), name)(problem, job["answer"], **problem.args)
        except MemoryError:
            sys.exit(1)  # the parent counts it as a limit that was exceeded
        reply = {"reason": score.reason} if isinstance(score, Unscorable) else {"value": score.value, "parts": dict(score.parts)}
        print(json.dumps(reply), flush=True)
