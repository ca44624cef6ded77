"""How fast are the families, how often do they repeat themselves, and can another process prove what they made? `make
bench-families`

For every family, over its whole ladder (all levels equally often), split train:
- generated: items made with their certificate in a second of CPU time on one core; the median of five parts, their
  least and greatest
- scored: answers scored in a second of CPU time of this process, half of them right; for families whose verifier runs
  in a process of its own (SQL, Python), in a second on the clock
- duplicates: the share of ITEMS items of seed 42 that repeat an earlier one, over the levels that are large; a level
  where more than one in a thousand repeats is small, and the number of different items that it seems to hold follows
  from what repeats (n^2 / 2 / repeats)
- overlap: pairs of equal items between seeds 42 and 43, divided by the pairs expected where the two are drawn
  independently, which is the number of equal pairs within both (n^2 p against 2 n^2 p / 2); 1 is the birthday formula,
  0 where nothing repeats at all
- proved again: the share of these items that another process certifies from their stored rows alone
A family slower than its share of BUDGET seconds makes fewer items; n says how many.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path

from benchmarks.rows import command, result_row
from synth.types import Problem, from_row, to_row
from synth.verify import verify
from tasks.planning.pieces import files, locate

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SEEDS, ITEMS, BUDGET, PARTS = (42, 43), 20_000, 10.0, 5
SMALL = 0.001
COMMAND = "make bench-families"


def measure(name: str, items: int, budget: float) -> list[dict]:
    """The results of one family."""
    module = import_module(f"synth.families.{name}")
    family, levels = getattr(module, name), range(1, len(module.LADDER) + 1)
    for level in levels:
        family(0, "train", 0, levels=[level])
    drawn: dict[int, dict[int, list[Problem]]] = {seed: {level: [] for level in levels} for seed in SEEDS}
    parts, quarantined, left = [], 0, 0
    for seed in SEEDS:
        end = time.process_time() + budget / 2
        plan = islice(
            ((index, level) for index in range(items) for level in levels), items if seed == SEEDS[0] else left
        )
        start, count = time.process_time(), 0
        for index, level in plan:
            item = family(seed, "train", index, levels=[level])
            count += 1
            if isinstance(item, Problem):
                drawn[seed][level].append(item)
            else:
                quarantined += 1
            if seed == SEEDS[0] and count % max(1, items // 50) == 0:
                now = time.process_time()
                parts.append(max(1, items // 50) / (now - start))
                start = now
            if time.process_time() > end:
                break
        left = count
    parts = (
        [statistics.median(parts[i::PARTS]) for i in range(PARTS)]
        if len(parts) >= PARTS
        else parts or [left / budget * 2]
    )

    counts = {seed: {level: Counter(p.id for p in drawn[seed][level]) for level in levels} for seed in SEEDS}
    within = sum(pairs(c) for of in counts.values() for c in of.values())
    across = sum(n * counts[SEEDS[1]][level][key] for level in levels for key, n in counts[SEEDS[0]][level].items())
    share, total, small = repeats(counts[SEEDS[0]])
    problems = [p for level in levels for p in drawn[SEEDS[0]][level]]
    name_ = f"{name} ({len(levels)} levels{small})"
    rate, spread = scored(problems)
    return [
        result(name_, "generated", statistics.median(parts), "items/s", "higher", min(parts), max(parts), left),
        result(name_, "scored", rate, "answers/s", "higher", *spread, len(problems)),
        result(name_, "quarantined", 100 * quarantined / (2 * left), "%", "lower", None, None, 2 * left),
        *(
            [result(name_, "duplicates", share, "%", "lower", None, None, total)] if total else []
        ),  # no large level: no row
        result(
            name_, "overlap of seeds", across / within if within else float(across), "", "lower", None, None, 2 * left
        ),
        result(name_, "proved again", 100 * proved(problems), "%", "higher", None, None, len(problems)),
    ]


def pairs(counts: Counter) -> int:
    """Pairs of equal items."""
    return sum(n * (n - 1) // 2 for n in counts.values())


def repeats(levels: Mapping[int, Counter]) -> tuple[float, int, str]:
    """(per cent of the items of large levels that repeat an earlier one, how many items these levels gave, the small
    levels with the number of different items that each seems to hold). levels: level -> how often each item came."""
    again = total = 0
    small = []
    for level, counts in levels.items():
        n = counts.total()
        if n - len(counts) > SMALL * n:
            small.append(f"{level} (about {n * (n - 1) // 2 // max(1, pairs(counts)):,})")
        else:
            again, total = again + n - len(counts), total + n
    return 100 * again / max(1, total), total, f"; small: {', '.join(small)}" if small else ""


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


def proved(problems: list[Problem]) -> float:
    """The share that a process of its own certifies, from rows alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        path.write_text("".join(json.dumps(to_row(p)) + "\n" for p in problems))
        command = [sys.executable, "-m", "benchmarks.families", "--prove", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout) / len(problems)


def prove(path: Path) -> int:
    """How many problems of a file are certified."""
    from synth.questions.certify import certify

    with path.open() as lines:
        return sum(certify(from_row(Problem, json.loads(line))) is None for line in lines)


def result(
    case: str, metric: str, value: float, unit: str, better: str, low: float | None, high: float | None, n: int
) -> dict:
    return result_row(case, metric, value, unit, COMMAND, n, better=better, low=low, high=high, one_core=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS, help="items of each seed, at most")
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
    parser.add_argument("--prove", type=Path, help="certify the problems of this file and print how many are proved")
    args = parser.parse_args()
    if args.prove:
        print(prove(args.prove))
        return 0
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "families.json"
    results = json.loads(path.read_text(encoding="utf-8")) if args.families and path.exists() else []
    for name in sorted(args.families or files("family")):
        how = command("families", args, items=ITEMS, budget=BUDGET)
        new = [{**r, "command": how} for r in measure(locate("family", name).stem, args.items, args.budget)]
        results = sorted([*(r for r in results if r["case"].split(" ")[0] != name), *new], key=lambda r: r["case"])
        print(
            "  ".join([f"{new[-1]['case']}:", *(f"{r['metric']} {r['value']:,.4g}{r['unit']}" for r in new)]),
            flush=True,
        )
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
