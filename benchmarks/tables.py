"""Tables of the documents, generated from benchmarks/results/*.json: `make tables`.

A document marks a place with `<!-- table:NAME -->` and `<!-- /table -->`; what stands between them is generated from
benchmarks/results/NAME.json, a list of results, each an object with

    case, metric, value, unit, better ("higher" or "lower"), low, high, n     what was measured, with its interval over n
    peers {name: value}, ratio_to_best_peer                                   the same of others, measured in the same script
    device, versions {name: version}, command                                 where, with what, and how to measure it again

Without peers the table has a row per case and a column per metric; with peers, a row per case and metric and a column per peer.
A test compares the committed documents with what is generated, so no number in them is typed by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
KEYS = {"case", "metric", "value", "unit", "better", "low", "high", "n", "peers", "ratio_to_best_peer", "device", "versions", "command"}
BLOCK = re.compile(r"(<!-- table:([a-z0-9-]+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def documents(root: Path = ROOT) -> list[Path]:
    return [root / "README.md", root / "ARCHITECTURE.md", *sorted((root / "docs").glob("*.md"))]


def results(path: Path) -> list[dict[str, Any]]:
    """The results of a file. Raises ValueError for one that lacks a key, naming it."""
    found = json.loads(path.read_text(encoding="utf-8"))
    for i, result in enumerate(found):
        if missing := sorted(KEYS - result.keys()):
            raise ValueError(f"{path}, result {i}: lacks {', '.join(missing)}: every result has {', '.join(sorted(KEYS))}")
    return found


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: the table, and below it how it was measured."""
    peers = list(dict.fromkeys(p for r in found for p in r["peers"]))
    if peers:
        head = ["case", "metric", "here", *peers, "times the best peer"]
        rows = [
            [r["case"], _metric(r), _value(r), *(_number(r["peers"][p]) if p in r["peers"] else "" for p in peers), _ratio(r)] for r in found
        ]
    else:
        metrics = list(dict.fromkeys(_metric(r) for r in found))
        head = ["", *metrics]
        rows = [
            [case, *(" ".join(_value(r) for r in found if r["case"] == case and _metric(r) == m) for m in metrics)]
            for case in dict.fromkeys(r["case"] for r in found)
        ]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    text = "\n".join("| " + " | ".join(row) + " |" for row in lines)
    sizes = sorted({r["n"] for r in found if r["n"]})
    said = [f"`{c}`" for c in dict.fromkeys(r["command"] for r in found)] + list(dict.fromkeys(r["device"] for r in found))
    said += [f"n = {', '.join(map(str, sizes))}"] if sizes else []
    said += [", ".join(dict.fromkeys(f"{k} {v}" for r in found for k, v in r["versions"].items()))]
    return f"{text}\n\nMeasured by {'; '.join(filter(None, said))}.\n"


def _metric(r: Mapping[str, Any]) -> str:
    return f"{r['metric']} ({r['unit']})" if r["unit"] else r["metric"]


def _value(r: Mapping[str, Any]) -> str:
    known = r["low"] is not None and r["high"] is not None and r["n"] != 1  # of one measurement there is no interval
    interval = f" [{_number(r['low'])}, {_number(r['high'])}]" if known else ""
    return f"{_number(r['value'])}{interval}"


def _ratio(r: Mapping[str, Any]) -> str:
    return "" if r["ratio_to_best_peer"] is None else f"{r['ratio_to_best_peer']:.2f}"


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.2f}" if abs(x) >= 10 else f"{x:.3f}"


def generated(text: str, folder: Path = RESULTS) -> str:
    """A document with all its blocks generated anew."""

    def block(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        path = folder / f"{name}.json"
        body = table(results(path)) if path.exists() else f"Not measured yet: `make bench-{name}`, then `make tables`.\n"
        return f"{begin}{body}{end}"

    return BLOCK.sub(block, text)


def main() -> int:
    for path in documents():
        old = path.read_text(encoding="utf-8")
        new = generated(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: tables written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
