"""Verifiers: one file each, `name(problem, answer, **args) -> Score`, under hard limits and without `eval`.

`verify(problem, answer)` finds the file named by the problem and calls it with the problem's own `args`.
`answer` is the text the model gave as its answer (an environment has already taken it out of any tags).
"""

from importlib import import_module

from synth.types import Problem, Score, Unscorable


def verify(problem: Problem, answer: str) -> Score:
    """Score one answer. An unknown verifier raises LookupError: that is a broken problem set, not a bad answer."""
    try:
        piece = getattr(import_module(f"synth.verify.{problem.verifier}"), problem.verifier)
    except ModuleNotFoundError as e:
        raise LookupError(f"problem {problem.id} names the verifier {problem.verifier!r}, which synth/verify does not hold") from e
    try:
        return piece(problem, answer, **problem.args)
    except RecursionError as e:
        return Unscorable(reason=f"too_deep: {e}")
