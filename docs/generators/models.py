"""The tables of docs/your-model.md: chat templates and architectures, from the cases that tests hold. `make models`
writes them.

Cases: tests/support/templates.py and tests/support/architectures.py, where tests/training/model/test_templates.py and
test_architectures.py read them too.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tasks.core.paths import CODE as ROOT

PAGE = ROOT / "docs" / "your-model.md"
BLOCK = re.compile(r"(<!-- (templates|architectures) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |\n" for row in cells)


def templates() -> str:
    from templates import AS_USER, TABLE, WITHIN

    told = {"system": WITHIN, "tool": AS_USER}
    rows = []
    for c in TABLE:
        notes = [*(told[r] for r in c.as_user), *([c.note] if c.note else [])]
        verdict = f"refused: {c.reason}" if c.refused else "works" + (f": {'; '.join(notes)}" if notes else "")
        rows.append(
            (
                c.family,
                verdict.replace("<", "&lt;"),
                "TRL's" if c.shipped else "own" if "own" in c.family else "short, in its style",
            )
        )
    return table(("template", "what happens", "text"), rows)


def architectures() -> str:
    from architectures import TABLE

    rows = [
        (c.name, f"refused: {c.reason}" if c.refused else "works" + (f": {c.note}" if c.note else "")) for c in TABLE
    ]
    return table(("architecture", "what happens"), rows)


def page() -> str:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
    blocks = {"templates": templates(), "architectures": architectures()}
    return BLOCK.sub(lambda m: m[1] + blocks[m[2]] + m[3], PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    Path(PAGE).write_text(page(), encoding="utf-8")
