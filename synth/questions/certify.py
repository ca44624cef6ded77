"""Prove a stored problem again, from its text alone, in a process that did not make the problem."""

from __future__ import annotations

from importlib import import_module

from synth.families._sample import refuted
from synth.types import Problem


def certify(problem: Problem) -> str | None:
    """None if the family's second route finds the stored answer from the text, else "code: evidence" of why it does
    not.

    Raises LookupError for a problem of no family (entity-tree questions are proved by a query of their knowledge base
    instead).
    """
    name = problem.family.replace("-", "_")
    try:
        family = import_module(f"synth.families.{name}")
    except ModuleNotFoundError as e:
        if e.name != f"synth.families.{name}":
            raise
        raise LookupError(
            f"problem {problem.id} is of the family {problem.family!r}, which synth/families does not hold"
        ) from e
    return refuted(problem, family.solve, getattr(family, "agree", None))
