"""Rows of published test sets as problems: one file and one function per layout.

The reader of the file quarantines a row that cannot be a problem, with its place. The problem's id hashes its text, its
lineage names the row. Nothing here opens a file (tasks/evaluation/testsets.py does).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from synth.types import Problem


class LayoutPiece(Protocol):
    """Reads one row of a published test set as a problem; it never runs what a row holds.

    Args:
        row: as the file has it
        index: its place in the file

    Returns:
        a problem of the split test. Raises ValueError with the reason for a row that cannot be one
    """

    def __call__(self, row: Mapping[str, Any], index: int) -> Problem: ...


ASK = "Give the final answer as <answer>your answer</answer>."


def problem(
    name: str, index: int, *, question: str, answer: str, verifier: str, ask: str, args: Mapping[str, Any] | None = None
) -> Problem:
    """A problem of the split test, played in one turn. Raises ValueError for an empty question or answer."""
    if not question.strip() or not answer.strip():
        raise ValueError("empty: a question and a reference answer are needed")
    text = f"{question.strip()}\n{ask}" if ask else question.strip()
    lineage = {"root": f"{name}:{index}", "index": index, "question": question.strip()}
    return Problem.make(
        prompt=text,
        answer=answer.strip(),
        verifier=verifier,
        args=args,
        env="single",
        family=name,
        lineage=lineage,
        split="test",
    )


def field(row: Mapping[str, Any], *names: str) -> str:
    """The text of the first of these fields that the row has. Raises ValueError that says which is empty, or those that it
    has."""
    for name in names:
        if name in row and row[name] is not None:
            return row[name] if isinstance(row[name], str) else str(row[name])
    if empty := [name for name in names if name in row]:
        raise ValueError(f"missing_field: {empty[0]} is empty")
    raise ValueError(f"missing_field: none of {', '.join(names)} (it has {', '.join(map(str, row)) or 'nothing'})")
