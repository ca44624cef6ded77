"""Tables in text form."""

from __future__ import annotations

from pathlib import Path


def delimiter(path: Path) -> str:
    """What separates the cells of the first line: the tab, semicolon or bar if it occurs there more often than the
    comma."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        head = lines.readline()
    return max(",\t;|", key=head.count)
