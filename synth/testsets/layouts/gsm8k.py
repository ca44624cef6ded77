"""GSM8K: Cobbe et al. 2021, "Training Verifiers to Solve Math Word Problems" (arXiv 2110.14168). The number after
`####` is the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.testsets.layouts import ASK, field, problem
from synth.types import Problem
from synth.verify.number import parse


def gsm8k(row: Mapping[str, Any], index: int, *, name: str = "gsm8k", ask: str = ASK) -> Problem:
    """{"question", "answer": "... #### 18"}. Raises ValueError where no number follows the last `####`."""
    answer = field(row, "answer").rpartition("####")[2].strip().lstrip("$").rstrip(".")
    if "####" not in field(row, "answer") or parse(answer) is None:
        raise ValueError(f"no_number: {field(row, 'answer')[-40:]!r} does not end in '#### number'")
    return problem(name, index, question=field(row, "question"), answer=answer, verifier="number", ask=ask)
