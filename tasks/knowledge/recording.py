"""Calls of the search engine, written down and played back: a line of JSON each, {"tool", "args", "text"}.

The first line names the pages by their digest. `replay` sends every call again and reports where the answer differs:
same index, same call, same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synth.search.index import SearchIndex
from tasks.core.errors import UserError

TOOLS = ("search", "open", "find")


class Recorder:
    """An index whose calls are appended to a file. Raises UserError where the file belongs to other pages."""

    def __init__(self, index: SearchIndex, path: Path) -> None:
        self._index = index
        if path.exists() and path.stat().st_size:
            known = _head(path)
            if known != index.digest():
                raise UserError(
                    f"{path} records calls to other pages ({known[:12]}): name another file for this index ({index.digest()[:12]})"
                )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"pages": index.digest()}) + "\n", encoding="utf-8")
        self._out = path.open("a", encoding="utf-8")

    def call(self, tool: str, args: Mapping[str, Any]) -> str:
        """The answer of one tool, recorded."""
        text = getattr(self._index, tool)(**args)
        self._out.write(json.dumps({"tool": tool, "args": dict(args), "text": text}, ensure_ascii=False) + "\n")
        self._out.flush()
        return text

    def close(self) -> None:
        self._out.close()


def _head(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        try:
            return str(json.loads(next(lines))["pages"])
        except (StopIteration, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is not a recording: its first line does not name the pages") from error


def calls(path: Path) -> Iterator[tuple[int, str, dict[str, Any], str]]:
    """(line, tool, args, text) of a recording. Raises UserError for a line that is none; a last line cut off is passed
    over."""
    _head(path)
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines[1:], 2):
        if not line or number == len(lines):
            continue
        try:
            row = json.loads(line)
            tool, args, text = row["tool"], dict(row["args"]), str(row["text"])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} line {number} is not a recorded call ({error}): delete the line") from error
        if tool not in TOOLS:
            raise UserError(f"{path} line {number} names the tool {tool!r}: the tools are {', '.join(TOOLS)}")
        yield number, tool, args, text


def replay(path: Path, index: SearchIndex) -> tuple[int, list[int]]:
    """(number of calls, lines whose answer has changed)."""
    compared = [(number, getattr(index, tool)(**args) == text) for number, tool, args, text in calls(path)]
    return len(compared), [number for number, same in compared if not same]
