"""An answer to a problem of an external environment, scored by that environment in a separate process (synth/external).

Failures there are Unscorable with the reason. None of its code runs in this process; `espalier env audit` shows whether
it executes answers in its own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synth.external.parent import score
from synth.types import Problem, Score
from synth.verify import UNPARSABLE

MAX_CHARS = 100_000
EXAMPLE = {
    "prompt": "What is 12 + 30?",
    "answer": "42",
    "args": {
        "source": {"adapter": "file", "path": str(Path(__file__).parents[1] / "external/example.py")},
        "item": {"sum": "42"},
    },
}


def external(problem: Problem, answer: str, *, source: Mapping[str, Any], item: Any) -> Score:
    """What the environment `source` says of the answer to its `item`."""
    if len(answer) > MAX_CHARS:
        return UNPARSABLE
    return score(source, item, answer.strip())
