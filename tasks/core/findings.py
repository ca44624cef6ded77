"""The possible findings of `espalier env audit` (tasks/evaluation/env_audit.py), for code that only needs their
names."""

from collections.abc import Sequence

from synth.types import UserError, nearest

NAMES = {  # of the checks, as `accept` takes them
    "reference": "reference answer earns 1",
    "junk": "junk earns nothing",
    "episode": "reference answer wins an episode",
    "shared": "test problems are not trained on",
    "constant": "a constant is not paid",
    "question": "the question is not paid",
    "list": "a list of all answers is not paid",
    "grader": "a grader that breaks does not say 0",
    "repeats": "scored again it is the same",
    "executed": "no answer is executed in this process",
    "opens": "scoring opens nothing outside",
}


def accepted(findings: Sequence[str]) -> list[str]:
    """The flag `--accept` as settings. Raises UserError for a name that no check has."""
    if unknown := next((f for f in findings if f not in NAMES), None):
        raise UserError(f"--accept {unknown}: no check of the audit has this name: {nearest(unknown, NAMES)}")
    return [f"rl.accept=[{', '.join(findings)}]"] if findings else []
