"""LLMBar: Zeng et al. 2023, "Evaluating Large Language Models at Evaluating Instruction Following" (arXiv 2310.07641).

A row is an instruction with two outputs, one of which follows it; the model says which. `swapped` shows them in the
other order, with the label turned: a judge that knows is right in both, one that likes a place is right in half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.testsets.layouts import field, problem
from synth.types import Problem

ASK = "Which output follows the instruction better? Answer <answer>1</answer> or <answer>2</answer>."


def llmbar(
    row: Mapping[str, Any], index: int, *, name: str = "llmbar", ask: str = ASK, swapped: bool = False
) -> Problem:
    """{"input", "output_1", "output_2", "label": 1 or 2}. Raises ValueError for another label."""
    label = row.get("label")
    if label not in (1, 2):
        raise ValueError(f"wrong_label: {label!r} is neither 1 nor 2")
    first, second = field(row, "output_1"), field(row, "output_2")
    if swapped:
        first, second, label = second, first, 3 - label
    text = f"Instruction: {field(row, 'input')}\nOutput 1: {first}\nOutput 2: {second}"
    return problem(name, index, question=text, answer=str(label), verifier="exact", ask=ask)
