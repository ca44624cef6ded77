"""Criteria with weights, then a verdict: "brief 0.5, formal 0.3, warm 0.2: C". Right where the verdict is.

After Think-as-Locals, "Evaluating and Improving Cultural Awareness of Reward Models for LLM Alignment", 2025 (arXiv
2509.21798), whose judge writes the criteria of a culture before its verdict; the exact pay is our reading:

    criteria = sum_k min(w_k, w*_k) where the weights w sum to 1 and none is named twice, else 0; w* are the reference's

so criteria that hold together and are the reference's are worth 1, a list of all that there is its share. A verdict alone
("C") is read, with criteria 0.
"""

from __future__ import annotations

import re

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

MAX_CHARS = 500
FORM = "text"
EXAMPLE = {"prompt": "Which reply suits Tamar?", "answer": "brief 0.6, warm 0.4: B"}
GIVES = ("criteria",)
_CRITERION = re.compile(r"([a-z]{1,20}) (0\.[0-9]{1,3}|1)")


def read(text: str) -> tuple[dict[str, float], str] | None:
    """(criterion -> weight, verdict), no criterion where they do not hold together; None for any other text."""
    listed, _, verdict = text.strip().rpartition(":") if len(text) <= MAX_CHARS else ("", "", "")
    matches = [_CRITERION.fullmatch(x.strip()) for x in listed.split(",")] if listed else []
    if not re.fullmatch(r"[A-Z]", verdict.strip(), re.ASCII) or None in matches:
        return None
    weights = {m[1]: float(m[2]) for m in matches if m}
    whole = len(weights) == len(matches) and abs(sum(weights.values()) - 1) < 1e-6
    return (weights if whole else {}), verdict.strip()


def criteria_verdict(problem: Problem, answer: str) -> Score:
    """1 where the verdict is the reference's. `parts["criteria"]`: the weight that the criteria share with the reference's."""
    gold, given = read(problem.answer), read(answer)
    if gold is None or not gold[0]:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no criteria and verdict")
    if given is None:
        return UNPARSABLE
    shared = sum(min(w, gold[0].get(name, 0.0)) for name, w in given[0].items())
    return Scored(value=float(given[1] == gold[1]), parts={"parsed": 1.0, "criteria": round(shared, 6)})
