"""How hard are fuzzy-tree questions, by depth and fuzz level? `make bench-difficulty`

WANTED questions of depth 2 and 3 at fuzz levels 1 to 4 are grown with all gates over a fictional world of 120
countries, and over the countries and the World Factbook together (from ../shared/data, where they are there), and every
searcher of synth/search/searchers plays each, with at most MOST calls. Per cell: the share that each answers, and the
mean
calls of the oracle (a lower bound) and of branch and check, over the questions that it answers. Intervals are 95 %:
Wilson's for shares, a normal approximation for calls. The calls over the levels are drawn: docs/images/difficulty.svg.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import result_row, with_intervals
from tasks.knowledge import bases
from tasks.knowledge.schema import read_schema
from tasks.problems import grow
from tasks.results.difficulty import SEARCHERS, measure

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULT = ROOT / "benchmarks" / "results" / "difficulty.json"
PICTURE = ROOT / "docs" / "images" / "difficulty.svg"
SCHEMA = ROOT / "benchmarks" / "schemas" / "countries-factbook.yaml"
WANTED, DEPTHS, MOST, SEED = 400, (2, 3), 600, 7


def bases_of(folder: Path) -> list[tuple[str, Path, dict]]:
    """(case, folder of the knowledge base, knobs of the questions)."""
    bases.build_base([], folder / "world", countries=120, seed=SEED)
    folders: list[tuple[str, Path, dict]] = [("fictional world", folder / "world", {})]
    if DATA.is_dir():
        sources, relations = read_schema(SCHEMA)
        sources = bases.sources_of([DATA / "countries" / "countries.json", DATA / "factbook"], sources)
        bases.build_base(sources, folder / "real", relations=relations)
        folders.append(("countries and factbook", folder / "real", {"closed_world": True, "only": grow.named(SCHEMA)}))
    return folders


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share (Wilson 1927), which stays within [0, 1]."""
    middle, half = share + z * z / (2 * n), z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def result(case: str, metric: str, unit: str, better: str, values: list[float]) -> dict:
    """The mean of values with its interval."""
    n, mean, half = (
        max(1, len(values)),
        float(np.mean(values)),
        1.96 * float(np.std(values)) / max(1, len(values)) ** 0.5,
    )
    low, high = wilson(mean, n) if unit == "share" else (mean - half, mean + half)
    return result_row(
        case,
        metric,
        mean,
        unit,
        "make bench-difficulty",
        len(values),
        better=better,
        low=low,
        high=high,
        one_core=True,
        numpy=np.__version__,
    )


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Calls over the level: a panel per world, a line per depth and searcher, with its interval."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    points: dict[tuple[str, str, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for row in rows:
        case = re.fullmatch(r"(.*), depth (\d), level (\d)", row["case"])
        if case is not None and row["metric"].startswith("calls of "):
            points.setdefault((case[1], case[2], row["metric"]), []).append((int(case[3]), row))
    worlds = list(dict.fromkeys(world for world, _, _ in points))
    figure, panels = plt.subplots(1, len(worlds), figsize=(5.2 * len(worlds), 3.8), sharey=True, squeeze=False)
    for panel, world in zip(panels[0], worlds, strict=True):
        for (_, depth, metric), line in ((key, line) for key, line in points.items() if key[0] == world):
            levels = [level for level, _ in line]
            panel.errorbar(
                levels,
                *with_intervals([row for _, row in line]),
                fmt="-" if metric.endswith("check") else "--",
                color={"2": "#3b73c4", "3": "#b3372f"}[depth],
                label=f"{metric.removeprefix('calls of ')}, depth {depth}",
                capsize=2,
                linewidth=1.5,
            )
        panel.set(title=world, xlabel="level", xticks=[1, 2, 3, 4])
        panel.grid(alpha=0.25)
    panels[0][0].set_ylabel("calls of the search tool")
    panels[0][0].set_ylim(bottom=0)
    panels[0][0].legend(frameon=False, fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=WANTED, help=f"questions of each world (default {WANTED})")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case, kb, knobs in bases_of(Path(folder)):
            accepted, _ = grow.grow(
                kb, grow.cells({"train": args.n - args.n // 5, "test": args.n // 5}, DEPTHS), seed=SEED, **knobs
            )
            cells: dict[tuple[int, int], list[dict]] = {}
            for row in measure(kb, accepted, most=MOST):
                cells.setdefault((row["hops"], row["level"]), []).append(row)
            for (depth, level), some in sorted(cells.items()):
                name = f"{case}, depth {depth}, level {level}"
                rows += [
                    result(name, s.replace("_", " "), "share", "higher", [float(r[s]) for r in some]) for s in SEARCHERS
                ]
                for s in ("oracle", "branch_and_check"):
                    calls = [float(r[f"{s}_calls"]) for r in some if r[s]]
                    rows.append(result(name, f"calls of {s.replace('_', ' ')}", "", "lower", calls or [float("nan")]))
                print(
                    f"{name}: n {len(some)}, " + ", ".join(f"{r['metric']} {r['value']:.3g}" for r in rows[-7:]),
                    flush=True,
                )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if args.out == RESULT:
        plot(rows, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
