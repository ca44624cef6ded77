"""The page of `espalier compare`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from tasks.pages import page as pages
from tasks.pages.render import Macros

HTML = Macros("comparison.html")


def page(differences: Mapping[str, Any]) -> str:
    """One self-contained page for the result of tasks/results/compare.py."""
    a, b = differences["a"], differences["b"]
    known = [r for r in differences["scores"] if "," not in r["run"]]
    last = known[-1] if known else None
    lead = "Nothing was evaluated in both."
    if last:
        d = last["difference"]
        moved = "better" if d["low"] > 0 else "worse" if d["high"] < 0 else "not measurably different"
        lead = f"{last['run']} answers {last['a']:.0%} in A and {last['b']:.0%} in B: {moved} ({100 * d['mean']:+.1f} points, "
        lead += f"interval {100 * d['low']:+.1f} to {100 * d['high']:+.1f}, {d['n']} questions)."
    facts = " ".join(
        f"{k.upper()}: {s['name']}, {s['is']}; recipe {s['recipe'] or 'none'}, seed {s['seed']}."
        for k, s in (("a", a), ("b", b))
    )
    sections = [
        ("Scores", _scores(differences)),
        (
            "Parameters",
            HTML.table(
                ["knob", "A", "B"], [[r["knob"], _json(r["a"]), _json(r["b"])] for r in differences["parameters"]]
            ),
        ),
        (
            "Code",
            HTML.table(
                ["file", "change", "stages"],
                [[r["file"], r["change"], ", ".join(r["stages"])] for r in differences["code"]],
            ),
        ),
        ("Data", _data(differences)),
        ("Questions that changed most", HTML.flips(differences["flips"])),
    ]
    if differences["missing"]:
        sections.append(("Not compared", HTML.missing([[m] for m in differences["missing"]])))
    return pages.page(f"Espalier: {a['name']} and {b['name']}", lead, facts, sections)


def _scores(differences: Mapping[str, Any]) -> Markup:
    rows = []
    for r in differences["scores"]:
        d = r["difference"]
        shares = [
            f"{r['a']:.1%}",
            f"{r['b']:.1%}",
            f"{100 * d['mean']:+.1f}",
            f"{100 * d['low']:+.1f} to {100 * d['high']:+.1f}",
        ]
        rows.append([r["run"], *shares, f"{r['p']:.2g}", f"{r['p_holm']:.2g}", str(d["n"])])
    head = ["run", "A", "B", "difference", "95 % interval", "p", "p, Holm", "problems"]
    return HTML.scores(head, rows, range(1, 8))


def _data(differences: Mapping[str, Any]) -> Markup:
    rows = [
        [r["rows"], f"{r['a']:,}", f"{r['b']:,}", f"{r['only_a']:,}", f"{r['only_b']:,}"] for r in differences["data"]
    ]
    quarantined = [[r["stage"], r["reason"], f"{r['a']:,}", f"{r['b']:,}"] for r in differences["quarantined"]]
    return HTML.data(["rows", "A", "B", "only in A", "only in B"], rows, range(1, 5), quarantined)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
