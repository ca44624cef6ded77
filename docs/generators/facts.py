"""docs/examples/facts.md: the facts that a person compared with their sentences, and what was wrong. `make examples` writes it
from benchmarks/runs/facts.json (`python -m benchmarks.facts`)."""

from __future__ import annotations

import json
import sys
from typing import Any

from tasks.core.paths import CODE

PAGE = CODE / "docs" / "examples" / "facts.md"
READ = CODE / "benchmarks" / "runs" / "facts.json"
TITLES = {
    "facts": ("Facts of all relations", "fact"),
    "links": ("Facts that link two things (no nationality, occupation or genre)", "fact"),
    "types": ("Types of pages", "page and type"),
}


def page() -> str:
    """The whole page."""
    read = json.loads(READ.read_text(encoding="utf-8"))
    samples: dict[str, list[dict[str, Any]]] = read["samples"]
    out = [
        "# Facts read from plain paragraphs, checked by hand",
        "",
        "Which question this page answers: how often is a fact right that `espalier kb build` reads in a paragraph?",
        "",
        "Each fact below was compared by hand with its sentence in the 6,119 paragraphs of Wikipedia of `../shared/data/2wiki`. The samples are "
        f"drawn by a hash (seed {read['seed']}); no rule was changed after this sample was drawn and before it was read. A fact is wrong if the "
        "sentence does not say it of this subject, or if a name is cut. `page` as a type means that no type was read, and is not counted as wrong.",
        "",
        "| sample | read | right | share |",
        "|---|---:|---:|---:|",
    ]
    for name, rows in samples.items():
        right = sum(not r["fault"] for r in rows)
        out.append(f"| {TITLES[name][0]} | {len(rows)} | {right} | {100 * right / len(rows):.1f} % |")
    untyped = sum(r["says"].endswith("| page") for r in samples["types"])
    out += [
        "",
        f"{untyped} of the {len(samples['types'])} pages have no type. `{read['command']}` draws the samples again and prints every sentence (the "
        "paragraphs are not part of this project). The place is the number of the paragraph in its file and the characters of the sentence.",
    ]
    for name, rows in samples.items():
        title, what = TITLES[name]
        out += ["", f"## {title}", "", f"| | {what} | place | what is wrong |", "|---:|---|---|---|"]
        out += [f"| {i} | {cell(r['says'])} | {r['place']} | {r['fault']} |" for i, r in enumerate(rows)]
    return "\n".join(out) + "\n"


def cell(fact: str) -> str:
    """ "film:Dip | film_nationality | nationality:Dutch" as the text of a cell."""
    subject, *rest = fact.split(" | ")
    plain = [subject, *(part.replace("_", " ") if i == 0 and len(rest) == 2 else part for i, part in enumerate(rest))]
    return " · ".join(part.replace("|", "/").replace("*", "\\*") for part in plain)


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
