"""The tables and numbers of the documents, generated from benchmarks/results/*.json: `make tables`.

A document marks a place with `<!-- table:NAME -->` and `<!-- /table -->`; what stands between them is generated from
benchmarks/results/NAME.json, a list of results, each an object with

    case, metric, value, unit, better ("higher" or "lower"), low, high, n     what was measured, with its interval over
    n
    peers {name: value}, ratio_to_best_peer                                   the same of others, measured in the same
                                                                              script
    device, versions {name: version}, command                                 where, with what, and how to measure it
                                                                              again

`<!-- table:NAME no-ratio -->` leaves out the column "times the best peer" (a control is no rival to be beaten), and
`first=3` shows the first three results alone. Inside a sentence,

    <!-- value:NAME|case|metric --><!-- / -->         becomes the value of that result with its interval
    <!-- peer:NAME|case|metric|peer --><!-- / -->     becomes the same of a peer
    <!-- least:NAME|metric --><!-- / -->              becomes the smallest value of all cases
    <!-- count:flows/recipes/*/*.yaml --><!-- / -->   becomes the number of such files

Without peers the table has a row per case and a column per metric; with peers, a row per case and metric and a column
per peer. A test compares the committed documents with what is generated, so no number in them is typed by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.paths import CODE as ROOT

RESULTS = ROOT / "benchmarks" / "results"
MOST_SIZES = 12  # numbers of measurements listed below a table; of more, the least and the greatest
KEYS = {
    "case",
    "metric",
    "value",
    "unit",
    "better",
    "low",
    "high",
    "n",
    "peers",
    "ratio_to_best_peer",
    "device",
    "versions",
    "command",
}
BLOCK = re.compile(r"(<!-- table:([a-z0-9-]+)((?: [a-z0-9=-]+)*) -->\n).*?(<!-- /table -->)", re.DOTALL)
INLINE = re.compile(r"(<!-- (value|peer|least|count):([^>]+?) -->).*?(<!-- / -->)")


def documents(root: Path = ROOT) -> list[Path]:
    return [root / "README.md", root / "ARCHITECTURE.md", *sorted((root / "docs").rglob("*.md"))]


def results(path: Path) -> list[dict[str, Any]]:
    """The results of a file. Raises ValueError for one that lacks a key, naming it."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    for i, result in enumerate(rows):
        if missing := sorted(KEYS - result.keys()):
            raise ValueError(
                f"{path}, result {i}: lacks {', '.join(missing)}: every result has {', '.join(sorted(KEYS))}"
            )
    return rows


def table(measured: Sequence[Mapping[str, Any]], *, ratio: bool = True) -> str:
    """Markdown: the table, and below it how it was measured. ratio: whether a table with peers says how many times the
    best of them a result is."""
    peers = list(dict.fromkeys(p for r in measured for p in r["peers"]))
    if peers:
        head = ["case", "metric", "here", *peers, *(["times the best peer"] if ratio else [])]
        rows = [
            [
                r["case"],
                _metric(r),
                _value(r),
                *(_number(r["peers"][p]) if p in r["peers"] else "" for p in peers),
                *([_ratio(r)] if ratio else []),
            ]
            for r in measured
        ]
    else:
        metrics = list(dict.fromkeys(_metric(r) for r in measured))
        head = ["", *metrics]
        rows = [
            [case, *(" ".join(_value(r) for r in measured if r["case"] == case and _metric(r) == m) for m in metrics)]
            for case in dict.fromkeys(r["case"] for r in measured)
        ]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    text = "\n".join("| " + " | ".join(row) + " |" for row in lines)
    sizes = sorted({r["n"] for r in measured if r["n"]})
    notes = [f"`{c}`" for c in dict.fromkeys(r["command"] for r in measured)] + list(
        dict.fromkeys(r["device"] for r in measured)
    )
    listed = ", ".join(map(str, sizes)) if len(sizes) <= MOST_SIZES else f"{sizes[0]:,} to {sizes[-1]:,}"
    notes += [f"n = {listed}"] if sizes else []
    notes += [", ".join(dict.fromkeys(f"{k} {v}" for r in measured for k, v in r["versions"].items()))]
    return f"{text}\n\nMeasured by {'; '.join(filter(None, notes))}.\n"


def _metric(r: Mapping[str, Any]) -> str:
    return f"{r['metric']} ({r['unit']})" if r["unit"] else r["metric"]


def _value(r: Mapping[str, Any]) -> str:
    known = r["low"] is not None and r["high"] is not None and r["n"] != 1  # of one measurement there is no interval
    interval = f" [{_number(r['low'])}, {_number(r['high'])}]" if known else ""
    return f"{_number(r['value'])}{interval}"


def _ratio(r: Mapping[str, Any]) -> str:
    return "" if r["ratio_to_best_peer"] is None else f"{r['ratio_to_best_peer']:.2f}"


def _number(x: float) -> str:
    if isinstance(x, int):  # a count
        return f"{x:,}"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.2f}" if abs(x) >= 10 else f"{x:.3f}"


def generated(text: str, folder: Path = RESULTS) -> str:
    """A document with all its blocks generated anew."""

    def block(match: re.Match[str]) -> str:
        begin, name, flags, end = match.groups()
        path, options = folder / f"{name}.json", dict(o.partition("=")[::2] for o in flags.split())
        if unknown := options.keys() - {"no-ratio", "first"}:
            raise ValueError(f"{begin.strip()}: no option {min(unknown)!r}: there are no-ratio and first=N")
        if not path.exists():
            return f"{begin}Not measured yet: `make bench-{name}`, then `make tables`.\n{end}"
        rows = results(path)[: int(options["first"]) if "first" in options else None]
        return f"{begin}{table(rows, ratio='no-ratio' not in options)}{end}"

    def inline(match: re.Match[str]) -> str:
        begin, kind, where, end = match.groups()
        return f"{begin}{_inline(kind, where, folder)}{end}"

    return INLINE.sub(inline, BLOCK.sub(block, text))


def _inline(kind: str, where: str, folder: Path) -> str:
    """What a mark inside a sentence becomes. Raises LookupError for a result, or peer, that is not there."""
    if kind == "count":
        return f"{sum(1 for _ in ROOT.glob(where)):,}"
    if kind == "least":
        name, metric = where.split("|")
        return _number(min(r["value"] for r in results(folder / f"{name}.json") if r["metric"] == metric))
    name, case, metric, *peer = where.split("|")
    for r in results(folder / f"{name}.json"):
        if (r["case"], r["metric"]) == (case, metric) and all(p in r["peers"] for p in peer):
            return _number(r["peers"][peer[0]]) if peer else _value(r)
    raise LookupError(f"a document names the result {where!r}, which {folder.name}/{name}.json does not hold")


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
