"""A worked answer as a demonstration: the solution text that a family stored with its problem, as one assistant
turn."""

from __future__ import annotations

from synth.types import Demonstration, Message, Problem, Quarantined, Scored
from synth.verify import extract_answer, verify


def worked_answer(problem: Problem) -> Demonstration | Quarantined:
    """The conversation of a question and its worked answer (`problem.lineage["solution"]`), certified by the problem's
    own verifier.

    Quarantined as "no_solution" if the family stored none, "wrong_answer" if the verifier does not score its answer 1.
    """
    solution = problem.lineage.get("solution")
    if not solution:
        return Quarantined(id=problem.id, stage="demonstrations", reason="no_solution", evidence=problem.question)
    score = verify(problem, extract_answer(solution))
    if not isinstance(score, Scored) or score.value != 1.0:
        return Quarantined(
            id=problem.id,
            stage="demonstrations",
            reason="wrong_answer",
            evidence=f"{problem.question} | {solution} | {score}",
        )
    return Demonstration.make(
        problem=problem.id, messages=[*problem.prompt, Message(role="assistant", content=solution)], split=problem.split
    )
