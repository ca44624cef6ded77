"""Programs that are written, tested by the model's own tests, and written again. Problems of the family python_functions.

Jin et al. 2025, "ReVeal: Self-Evolving Code Agents via Iterative Generation-Verification" (arXiv 2506.11442).

    odd turns    <answer>program</answer>; p = the share of the hidden inputs on which it is right
                 reward of the turn: p at first, then gain (p - p of the program before) + level p
    even turns   <tests>, a line each such as f([1, 2]) == 3</tests>; reward: the share of the lines that the reference
                 program passes. Those are run on the program, and the next message says which it fails
    R            = form (-form without a program that can be read) + scale p of the last program

A wrong test is never shown as a failure, so tests are rewarded only for real failures. The episode ends with the
program of the last turn, or with a writing turn without one. Programs run in the sandbox. Parts: `tests` (p at the
end), `first` (p of the first program), `valid` (mean share of valid tests).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored, Unscorable
from synth.verify import extract_answer, verify
from synth.verify.python_function import results
from training.env import system

TOOLS = "tests of one's own"
BUDGETS = ("turns", "lines")
ENDS = "the program of the last turn; a writing turn without a program"
GIVES = ("answered", "tests", "first", "valid", "turn_reward")
_TESTS = re.compile(r"<tests>(.*?)</tests>", re.DOTALL)
ASK = "Write tests of it, a line each such as f([1, 2]) == 3, in <tests></tests>."


@dataclass(frozen=True)
class WriteAndTest:
    turns: int
    lines: int
    form: float
    scale: float
    gain: float
    level: float
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        if "inputs" not in problem.args:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'write_and_test', but has no hidden inputs"
            )
        state = {"problem": problem, "turns": 0, "shares": [], "valid": [], "program": ""}
        return state, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["turns"] += 1
        return self._write(state, text) if state["turns"] % 2 else self._test(state, text)

    def _write(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        program, shares = extract_answer(text), state["shares"]
        if program is None:
            state["step_reward"] = 0.0
            return [], True, self._score(state, 0.0)
        score = verify(state["problem"], program)
        if isinstance(score, Unscorable):
            return [], True, score
        p = score.parts.get("tests", 0.0)
        state["step_reward"] = self.level * p + self.gain * (p - shares[-1]) if shares else p
        state["shares"], state["program"] = [*shares, p], program
        if state["turns"] >= self.turns:
            return [], True, self._score(state, 1.0)
        return [Message(role="user", content=ASK)], False, None

    def _test(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        written = _TESTS.search(text)
        rows = [x for x in written[1].splitlines() if x.strip()][: self.lines] if written else []
        tests = [(x.strip(), t) for x in rows if (t := _read(x)) is not None]
        held: list[list[bool]] = []
        for source in (state["problem"].answer, state["program"]) if tests else ():
            gave = results(source, "f", [t[0] for _, t in tests])
            if isinstance(gave, Unscorable):
                return [], True, gave
            held.append([_same(r, t[1]) for r, (_, t) in zip(gave, tests, strict=True)])
        valid, passed = held or ([], [])
        state["step_reward"] = sum(valid) / len(rows) if rows else 0.0
        state["valid"].append(state["step_reward"])
        failed = [x for (x, _), good, ok in zip(tests, valid, passed, strict=True) if good and not ok]
        report = f"Fails: {'; '.join(failed)}." if failed else "No test of these fails."
        return [Message(role="user", content=f"{report} Write the program again.")], False, None

    def _score(self, state: dict, answered: float) -> Scored:
        shares = state["shares"]
        last = shares[-1] if answered else 0.0
        parts = {"tests": last, "first": shares[0] if shares else 0.0, "answered": answered}
        parts["valid"] = sum(state["valid"]) / max(len(state["valid"]), 1)
        return Scored(value=(self.form if answered else -self.form) + self.scale * last, parts=parts)


def _read(line: str) -> tuple[list[Any], Any] | None:
    """Arguments and result of a test such as f([1, 2]) == 3; None for any other line."""
    match = re.fullmatch(r"\s*f\((.{0,200})\) == (.{1,200}?)\s*", line)
    try:
        return (json.loads(f"[{match[1]}]"), json.loads(match[2])) if match else None
    except (ValueError, RecursionError):
        return None


def _same(result: Mapping[str, Any], wanted: Any) -> bool:
    return "value" in result and json.dumps(result["value"], sort_keys=True) == json.dumps(wanted, sort_keys=True)


def write_and_test(
    *,
    turns: int = 3,
    lines: int = 8,
    form: float = 1.0,
    scale: float = 5.0,
    gain: float = 1.0,
    level: float = 0.0,
    instructions: str = "",
) -> WriteAndTest:
    """`turns`, odd: programs and tests in turn; `lines`: most tests of a turn. `form`, `scale`: weights of the outcome;
    `gain`, `level`: weights of a later program's improvement and of its share."""
    if turns % 2 == 0:
        raise ValueError(f"write_and_test: turns = {turns} must be odd: the last turn writes the program that counts")
    return WriteAndTest(turns, lines, form, scale, gain, level, instructions)
