"""Is every problem that a family makes right? Another process proves it again, from the stored row alone. `make bench-reproof`

For every family, over its whole ladder (all levels equally often), split train, ITEMS items of each of two seeds:
- proved again: the share of the items of seed 42 whose answer a process of its own, which has nothing but the file of rows, finds right by
  the family's other route (`synth.certify`)
- shared: items of seed 43 that seed 42 has too, over what independent draws of the same distribution would share: per level the number of
  equal pairs within both seeds says how many distinct items there seem to be; 1 is the birthday formula, 0 where nothing repeats
- disjoint: whether no root of 1,000 items of the split test lies among those of train
It goes on where it was stopped: families that benchmarks/results/reproof.json has with as many items are left out (`--again` does all).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from synth.types import Problem, from_row, to_row
from tasks.planning.pieces import files, find, module

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "reproof.json"
ITEMS, SEEDS = 10_000, (42, 43)
COMMAND = "make bench-reproof"


def made(name: str, seed: int, split: str, items: int, seconds: float) -> list[Problem]:
    """Items of all levels by turns, as many as the seconds of CPU time allow."""
    family, levels = find("synth.make.families", name), len(module("synth.make.families", name).LADDER)
    out, end, index = [], time.process_time() + seconds, 0
    while len(out) < items and time.process_time() < end:
        item = family(seed, split, index // levels, levels=[1 + index % levels])
        if isinstance(item, Problem):
            out.append(item)
        index += 1
    return out


def shared(one: list[Problem], two: list[Problem]) -> float:
    """Equal pairs between two seeds over those expected from the pairs within both, summed over levels; 0 where none are equal."""
    across = within = 0
    for level in {p.difficulty["level"] for p in one}:
        a, b = (Counter(p.id for p in items if p.difficulty["level"] == level) for items in (one, two))
        across += sum(n * b[key] for key, n in a.items())
        within += sum(n * (n - 1) // 2 for c in (a, b) for n in c.values())
    return across / within if within else float(across)


def proved(problems: list[Problem]) -> int:
    """How many a process of its own certifies, from rows alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        path.write_text("".join(json.dumps(to_row(p)) + "\n" for p in problems), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.reproof", "--prove", str(path)]
        return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def prove(path: Path) -> int:
    from synth.certify import certify

    with path.open(encoding="utf-8") as lines:
        return sum(certify(from_row(Problem, json.loads(line))) is None for line in lines)


def result(name: str, metric: str, value: float, unit: str, better: str, n: int) -> dict:
    return {
        **{"case": name, "metric": metric, "value": value, "unit": unit, "better": better, "low": None, "high": None, "n": n, "peers": {}},
        "ratio_to_best_peer": None,
        "device": f"{os.cpu_count()} cores, {platform.machine()}; one core used",
        "versions": {"python": platform.python_version()},
        "command": COMMAND,
    }


def measure(name: str, items: int, seconds: float) -> list[dict]:
    one, two = (made(name, seed, "train", items, seconds) for seed in SEEDS)
    test = {p.lineage["root"] for p in made(name, 44, "test", 1000, seconds / 10)}
    return [
        result(name, "proved again", 100 * proved(one) / len(one), "%", "higher", len(one)),
        result(name, "shared by two seeds", shared(one, two), "", "lower", len(one) + len(two)),
        result(name, "roots in train and test", float(len(test & {p.lineage["root"] for p in one})), "roots", "lower", len(test)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--seconds", type=float, default=600.0, help="of CPU time for the items of one family and seed, at most")
    parser.add_argument("--again", action="store_true", help="measure what is there already too")
    parser.add_argument("--prove", type=Path, help="certify the problems of this file and print how many are proved")
    args = parser.parse_args()
    if args.prove:
        print(prove(args.prove))
        return 0
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    for name in sorted(files("synth.make.families")):
        known = [r for r in found if r["case"] == name and r["metric"] == "proved again"]
        if known and known[0]["n"] >= args.items and not args.again:
            continue
        found = sorted([r for r in found if r["case"] != name] + measure(name, args.items, args.seconds), key=lambda r: r["case"])
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        told = (f"{r['metric']} {r['value']:.4g}{r['unit']} (n = {r['n']})" for r in found if r["case"] == name)
        print("  ".join([name, *told]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
