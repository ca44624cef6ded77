"""Is every problem that a family makes right? Another process proves it again, from the stored row alone. `make
bench-reproof`

For every family, over its whole ladder (all levels equally often), split train:
- duplicates: the share of DRAWS items of seed 42 that repeat an earlier one, over the levels that are large; a level
  where more than one in a thousand repeats is small, and says how many different items it seems to hold
and of ITEMS items of each of two seeds:
- proved again: the share of the items of seed 42 whose answer a process of its own, which has nothing but the file of
  rows, finds right by the family's other route (`synth.questions.certify`)
- shared: items of seed 43 that seed 42 has too, over what independent draws of the same distribution would share: per
  level the number of equal pairs within both seeds says how many distinct items there seem to be; 1 is the birthday
  formula, 0 where nothing repeats
- disjoint: whether no root of 1,000 items of the split test lies among those of train
It goes on where it was stopped: families that benchmarks/results/reproof.json has with as many items are left out
(`--again` does all). The families that make most items in a second come first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.rows import command, result_row
from synth.types import Problem, from_row, to_row
from tasks.planning.pieces import files, find, module

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "reproof.json"
ITEMS, DRAWS, SECONDS, SEEDS = 10_000, 100_000, 100.0, (42, 43)
SMALL = 0.001
COMMAND = "make bench-reproof"


def drawn(name: str, seed: int, split: str, items: int, seconds: float) -> Iterator[Problem]:
    """Items of all levels by turns, as many as the seconds of CPU time allow."""
    family, levels = find("family", name), len(module("family", name).LADDER)
    end, count, index = time.process_time() + seconds, 0, 0
    while count < items and time.process_time() < end:
        item = family(seed, split, index // levels, levels=[1 + index % levels])
        index += 1
        if isinstance(item, Problem):
            count += 1
            yield item


def by_level(problems: Iterable[Problem]) -> dict[int, Counter]:
    """Level -> how often each item came."""
    out: dict[int, Counter] = {}
    for p in problems:
        out.setdefault(p.difficulty["level"], Counter())[p.id] += 1
    return dict(sorted(out.items()))


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


def shared(one: Mapping[int, Counter], two: Mapping[int, Counter]) -> float:
    """Equal pairs between two seeds over those expected from the pairs within both, summed over levels; 0 where none
    are equal."""
    across = sum(n * two[level][key] for level, counts in one.items() for key, n in counts.items())
    within = sum(pairs(c) for of in (one, two) for c in of.values())
    return across / within if within else float(across)


def proved(problems: list[Problem]) -> int:
    """How many a process of its own certifies, from rows alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        path.write_text("".join(json.dumps(to_row(p)) + "\n" for p in problems), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.reproof", "--prove", str(path)]
        return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def prove(path: Path) -> int:
    from synth.questions.certify import certify

    with path.open(encoding="utf-8") as lines:
        return sum(certify(from_row(Problem, json.loads(line))) is None for line in lines)


def result(name: str, metric: str, value: float, unit: str, better: str, n: int) -> dict:
    return result_row(name, metric, value, unit, COMMAND, n, better=better, one_core=True)


def measure(name: str, items: int, draws: int, seconds: float) -> list[dict]:
    """The results of one family, with seconds of CPU time for every list of items, at most."""
    one, two = (list(drawn(name, seed, "train", items, seconds)) for seed in SEEDS)
    test = {p.lineage["root"] for p in drawn(name, 44, "test", 1000, seconds / 10)}
    share, total, small = repeats(by_level(drawn(name, SEEDS[0], "train", draws, seconds)))
    levels = len(module("family", name).LADDER)
    case = f"{name} ({levels} levels{small})"
    return [
        result(case, "proved again", 100 * proved(one) / len(one), "%", "higher", len(one)),
        *([result(case, "duplicates", share, "%", "lower", total)] if total else []),  # no large level: no row
        result(case, "shared by two seeds", shared(by_level(one), by_level(two)), "", "lower", len(one) + len(two)),
        result(
            case,
            "roots in train and test",
            float(len(test & {p.lineage["root"] for p in one})),
            "roots",
            "lower",
            len(test),
        ),
    ]


def speed() -> dict[str, float]:
    """Family -> items in a second, as benchmarks/results/families.json has it."""
    path = RESULTS.with_name("families.json")
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {r["case"].split(" ")[0]: r["value"] for r in known if r["metric"] == "generated"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of CPU time for one list of items of a family, at most"
    )
    parser.add_argument("--again", action="store_true", help="measure what is there already too")
    parser.add_argument("--prove", type=Path, help="certify the problems of this file and print how many are proved")
    args = parser.parse_args()
    if args.prove:
        print(prove(args.prove))
        return 0
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    rates = speed()
    for name in sorted(files("family"), key=lambda n: -rates.get(n, 0.0)):
        known = [r for r in results if r["case"].split(" ")[0] == name]
        if any(r["metric"] == "proved again" and r["n"] >= args.items for r in known) and not args.again:
            continue
        how = command("reproof", args, items=ITEMS, draws=DRAWS, seconds=SECONDS)
        new = [{**r, "command": how} for r in measure(name, args.items, args.draws, args.seconds)]
        results = sorted([*(r for r in results if r not in known), *new], key=lambda r: r["case"])
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(
            "  ".join([new[0]["case"], *(f"{r['metric']} {r['value']:.4g}{r['unit']} (n = {r['n']})" for r in new)]),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
