"""`espalier compare A B`: what changed between two states in parameters, code, data and scores, here and as a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.cli._text import columns, count, dump, short
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser(
        "compare", help="what changed between two states: parameters, code, data, scores, questions that flipped"
    )
    p.add_argument(
        "a",
        metavar="A",
        help="workspace, a commit, branch or tag, a DVC experiment, champion, or a version of the registry",
    )
    p.add_argument("b", metavar="B", nargs="?", default="workspace", help="the same (default: workspace)")
    p.add_argument(
        "--page", metavar="FILE", type=Path, help="where to write the page (default: .espalier/compare/A-B.html)"
    )
    p.add_argument("--json", action="store_true", help="print everything as JSON and write no page")
    p.add_argument(
        "--flips", type=count, default=10, metavar="N", help="questions to show whose answers changed (default: 10)"
    )
    p.set_defaults(run=compare)


def compare(args: argparse.Namespace) -> int:
    from tasks.results import compare as task
    from tasks.results.snapshots import snapshot
    from tasks.runtime import dvc

    root = project()
    dvc.warn_of_index(root)
    differences = task.compare(snapshot(root, args.a), snapshot(root, args.b), flips=args.flips)
    if args.json:
        dump(differences)
        return 0
    print("\n".join(said(differences)))
    from tasks.results import differences_page

    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in f"{args.a}-{args.b}")
    path = args.page or root / ".espalier" / "compare" / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(differences_page.page(differences), encoding="utf-8")
    print(f"\nThe page: {path}")
    return 0


def said(differences: dict[str, Any]) -> Iterator[str]:
    """The comparison as lines of text."""
    for side in ("a", "b"):
        s = differences[side]
        what = (
            f"recipe {s['recipe'] or 'none'}, profile {s['profile']}, seed {s['seed']}"
            if s["profile"]
            else "its plan is not here"
        )
        yield f"{side.upper()}  {s['name']}: {s['is']} ({what})"
    yield from _part("Parameters", [[r["knob"], short(r["a"]), "->", short(r["b"])] for r in differences["parameters"]])
    yield from _part("Code", [[r["file"], r["change"], ", ".join(r["stages"])] for r in differences["code"]])
    rows = [
        [r["rows"], f"{r['a']:,} -> {r['b']:,}", f"{r['only_a']:,} only in A, {r['only_b']:,} only in B"]
        for r in differences["data"]
    ]
    rows += [
        [f"{r['stage']}, quarantined", f"{r['a']:,} -> {r['b']:,}", r["reason"]] for r in differences["quarantined"]
    ]
    yield from _part("Data", rows)
    yield "\nScores (pass@1 on the problems that both were asked; p by sign flips, after Holm for the table)"
    yield columns(score_rows(differences)) if differences["scores"] else "  none in common"
    if differences["flips"]:
        yield "\nQuestions that changed most (share of right samples)"
        for f in differences["flips"]:
            yield f"  {f['a']:.0%} -> {f['b']:.0%}  {short(f['question'], 100)}  (reference: {short(f['reference'], 40)})"
            yield f"      A said {short(f['said_a'])}   B said {short(f['said_b'])}"
    if differences["missing"]:
        yield "\nNot compared, because it is neither on disk nor in DVC's cache (`dvc fetch`):\n" + columns(
            [[m] for m in differences["missing"]]
        )


def score_rows(differences: dict[str, Any]) -> list[list[str]]:
    out = [["run", "A", "B", "difference", "95 % interval", "p", "problems"]]
    for r in differences["scores"]:
        d = r["difference"]
        apart = r["only_a"] + r["only_b"]
        shares = [
            f"{r['a']:.1%}",
            f"{r['b']:.1%}",
            f"{100 * d['mean']:+.1f}",
            f"{100 * d['low']:+.1f} to {100 * d['high']:+.1f}",
        ]
        out.append(
            [r["run"], *shares, f"{r['p_holm']:.2g}", f"{d['n']}" + (f" ({apart} asked of one alone)" if apart else "")]
        )
    return out


def _part(head: str, rows: list[list[str]]) -> Iterator[str]:
    yield f"\n{head}"
    yield columns(rows) if rows else "  no difference"
