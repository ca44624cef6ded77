"""How fast are the families? `make bench-families`

For every family, over its whole ladder (all levels equally often), split train:
- generated: items made with their certificate in a second of CPU time on one core; the median of five parts, their
  least and greatest
- scored: answers scored in a second of CPU time of this process, half of them right; for families whose verifier runs
  in a process of its own (SQL, Python), in a second on the clock
- quarantined: the share of draws that the certificate refuses
A family slower than its share of BUDGET seconds makes fewer items; n says how many. Whether they are right, and how often
they repeat, is measured by `make bench-reproof`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path

from benchmarks.rows import command, result_row
from synth.types import Problem
from synth.verify import verify
from tasks.planning.pieces import files, locate

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SEED, ITEMS, BUDGET, PARTS = 42, 20_000, 5.0, 5


def measure(name: str, items: int, budget: float, how: str) -> list[dict]:
    """The results of one family, measured by the command `how`."""
    module = import_module(f"synth.families.{name}")
    family, levels = getattr(module, name), range(1, len(module.LADDER) + 1)
    for level in levels:
        family(0, "train", 0, levels=[level])
    problems, parts, count, part = [], [], 0, max(1, items // 50)
    start = time.process_time()
    end = start + budget
    for index, level in islice(((index, level) for index in range(items) for level in levels), items):
        item = family(SEED, "train", index, levels=[level])
        count += 1
        if isinstance(item, Problem):
            problems.append(item)
        now = time.process_time()
        if count % part == 0:
            parts.append(part / (now - start))
            start = now
        if now > end:
            break
    whole = count / (now - end + budget)
    parts = [statistics.median(parts[i::PARTS]) for i in range(PARTS)] if len(parts) >= PARTS else [whole]
    rate, spread = scored(problems)

    def row(metric: str, value: float, unit: str, better: str, n: int, low=None, high=None) -> dict:
        case = f"{name} ({len(levels)} levels)"
        return result_row(case, metric, value, unit, how, n, better=better, low=low, high=high, one_core=True)

    return [
        row("generated", statistics.median(parts), "items/s", "higher", count, min(parts), max(parts)),
        row("scored", rate, "answers/s", "higher", len(problems), *spread),
        row("quarantined", 100 * (count - len(problems)) / count, "%", "lower", count),
    ]


def scored(problems: list[Problem], seconds: float = 0.5) -> tuple[float, tuple[float, float]]:
    """Answers per second, with the least and greatest of five parts: right and wrong answers (that of the next problem)
    by turns."""
    heavy = (
        hasattr(import_module(f"synth.verify.{problems[0].verifier}"), "SECONDS")
        or problems[0].verifier == "python_function"
    )
    clock = time.perf_counter if heavy else time.process_time
    jobs = cycle(
        [(p, a) for p, q in zip(problems, [*problems[1:], problems[0]], strict=True) for a in (p.answer, q.answer)]
    )
    verify(*next(jobs))
    rates = []
    for _ in range(PARTS):
        start, count = clock(), 0
        while (used := clock() - start) < seconds / PARTS:
            verify(*next(jobs))
            count += 1
        rates.append(count / used)
    return statistics.median(rates), (min(rates), max(rates))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS, help="items, at most")
    parser.add_argument(
        "--budget", type=float, default=BUDGET, help="seconds of CPU time for making the items of one family"
    )
    parser.add_argument(
        "--families",
        type=lambda text: text.split(","),
        default=[],
        metavar="A,B",
        help="these alone; other results stay",
    )
    args = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    path, how = RESULTS / "families.json", command("families", args, items=ITEMS, budget=BUDGET)
    results = json.loads(path.read_text(encoding="utf-8")) if args.families and path.exists() else []
    for name in sorted(args.families or files("family")):
        new = measure(locate("family", name).stem, args.items, args.budget, how)
        results = sorted([*(r for r in results if r["case"].split(" ")[0] != name), *new], key=lambda r: r["case"])
        print(
            "  ".join([f"{new[-1]['case']}:", *(f"{r['metric']} {r['value']:,.4g}{r['unit']}" for r in new)]),
            flush=True,
        )
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
