"""What a reward is worth before a model is trained on it: an audit of an environment and its problems, without a model.

Decided here: whether the reference answer earns 1 and junk nothing, by the verifier and played; whether scoring again,
in a process of its own, gives the same; whether test problems stand among those to train on; whether a constant, a copy
of the question or a list of all answers is paid; whether a grader that breaks says 0; and, by the interpreter's own
audit events (PEP 578), whether a model's answer is executed in the process of the trainer, and what scoring opens
(connections, processes; files that it removes).

Run as a program it is that process of its own: JSON in, JSON out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from synth.types import Problem, Scored, from_row, to_row
from synth.verify import verify
from tasks.errors import UserError
from tasks.planning import pieces
from tasks.storage import tables

MARK = "espalier_audit_mark"
JUNK = ("", "I do not know.", "?" * 200, "0", "none of them", "<answer></answer>", "\u0000\ud800", f"{MARK}()")
APART = 20  # problems that are scored in processes of their own
MOST = 0.25  # mean score above which an answer that reads no problem counts as paid
_EVENTS = {
    "socket.connect": "connects",
    "socket.getaddrinfo": "resolves a name",
    "subprocess.Popen": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "os.remove": "removes a file",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check came to. holds: None where it cannot be decided."""

    check: str
    holds: bool | None
    text: str


def problems(env: str, family: str | None, n: int) -> tuple[list[Problem], list[Problem]]:
    """(n to train on, those to test on): of a family, or those of this project that the environment plays. Raises
    UserError where there are none."""
    if family:
        make = pieces.find("family", family)
        made = {split: [make(0, split, i) for i in range(n)] for split in ("train", "test")}
        train, test = ([p for p in made[split] if isinstance(p, Problem)] for split in ("train", "test"))
        return train, test
    paths = [Path("artifacts") / name / "problems.parquet" for name in ("problems", "questions")]
    known = [p for path in paths if path.exists() for p in tables.read(path, Problem) if p.env == env]
    train = [p for p in known if p.split == "train"][:n]
    if not train:
        raise UserError(
            f"no problem here is played in the environment {env}: name a family (--family countdown), or run the stages "
            "that make problems first"
        )
    return train, [p for p in known if p.split == "test"]


def audit(env: Any, train: Sequence[Problem], test: Sequence[Problem]) -> list[Finding]:
    """env: the environment. Raises ValueError where there is no problem to train on."""
    if not train:
        raise ValueError("there is no problem to audit")
    wrong = [p for p in train if _value(verify(p, p.answer)) != 1.0]
    example = f"; {len(wrong)} do not, for example {wrong[0].question[:60]!r}" if wrong else ""
    right = f"{len(train) - len(wrong)} of {len(train)}{example}"
    out = [Finding(check="reference answer earns 1", holds=not wrong, text=right)]
    paid = [(p, j) for p in train for j in JUNK if _value(verify(p, j)) > 0 and j.strip() != p.answer.strip()]
    several = Counter(j for _, j in paid)
    out.append(
        Finding(
            check="junk earns nothing",
            holds=all(n <= MOST * len(train) for n in several.values()),
            text=", ".join(f"{j[:20]!r} is paid on {n} of {len(train)}" for j, n in several.most_common(3))
            or "none is paid",
        )
    )
    out.append(_played(env, train))
    texts = {p.question for p in train}
    shared = [p for p in test if p.question in texts]
    out.append(
        Finding(
            check="test problems are not trained on",
            holds=None if not test else not shared,
            text=f"{len(shared)} of {len(test)} stand among {len(train)} to train on" if test else "there are none",
        )
    )
    answers = Counter(p.answer for p in train)
    ((constant, _),) = answers.most_common(1)
    guesses = {"a constant": constant, "the question": None, "a list of all answers": ", ".join(answers)}
    for name, guess in guesses.items():
        mean = sum(_value(verify(p, p.question if guess is None else guess)) for p in train) / len(train)
        shown = f"earns {mean:.2f} on average"
        if name == "a constant":
            shown = f"{constant[:30]!r} {shown}"
        decided = len(answers) > 1 or name == "the question"
        out.append(Finding(check=f"{name} is not paid", holds=mean <= MOST if decided else None, text=shown))
    return [*out, _broken(train[0]), *_apart(train[:APART])]


def _value(score: Any) -> float:
    return score.value if isinstance(score, Scored) else 0.0


def _played(env: Any, problems: Sequence[Problem]) -> Finding:
    """The reference answer as one turn of an episode."""
    check, right, over_all = "reference answer wins an episode", 0, 0
    for p in problems:
        try:
            state, _ = env.start(p, {"search": lambda query: "nothing was found"})
            _, over, score = env.step(state, f"<answer>{p.answer}</answer>")
        except (LookupError, ValueError) as e:
            return Finding(check=check, holds=None, text=f"the environment does not begin here: {e}")
        over_all += over
        right += over and _value(score) == 1.0
    if not over_all:
        return Finding(check=check, holds=None, text="an answer does not end an episode here")
    return Finding(check=check, holds=right == len(problems), text=f"{right} of {len(problems)}")


def _broken(problem: Problem) -> Finding:
    """A grader whose knobs are none of its own must not call the answer wrong."""
    check = "a grader that breaks does not say 0"
    try:
        score = verify(replace(problem, args={**problem.args, MARK: object()}), problem.answer)
    except Exception as e:  # noqa: BLE001 (whatever it raises, the run would stop and say so)
        return Finding(check=check, holds=True, text=f"it stops with {type(e).__name__}")
    if isinstance(score, Scored) and score.value == 0:
        return Finding(check=check, holds=False, text="a knob that it does not know makes a right answer wrong")
    return Finding(check=check, holds=True, text="it takes any knob" if isinstance(score, Scored) else score.reason)


def _apart(problems: Sequence[Problem]) -> list[Finding]:
    """What scoring in two processes with other hash seeds shows: the same verdicts, nothing executed, nothing opened.
    Raises RuntimeError where such a process fails."""
    given = json.dumps([to_row(p) for p in problems])
    runs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tasks.evaluation.env_audit"],
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"scoring in a process of its own failed: {last}")
        runs.append(json.loads(done.stdout))
    one, two = runs
    differ = sum(a != b for a, b in zip(one["scores"], two["scores"], strict=True))
    opened = Counter(map(tuple, one["opened"])).most_common(5)
    return [
        Finding(
            check="scored again it is the same",
            holds=not differ,
            text=f"{differ} of {len(one['scores'])} scores differ",
        ),
        Finding(
            check="no answer is executed in this process",
            holds=not one["executed"],
            text=f"{one['executed']} of {len(one['scores'])} answers were" if one["executed"] else "none was",
        ),
        Finding(
            check="scoring opens nothing outside",
            holds=all(what == "starts a process" for (what, _), _ in opened),
            text=", ".join(f"{what} {where}".strip() + f" ({n} times)" for (what, where), n in opened) or "nothing",
        ),
    ]


def main() -> None:
    """Score each problem's reference answer and a marked program, and say what happened meanwhile."""
    pieces.open_own()
    asked = [from_row(Problem, row) for row in json.load(sys.stdin)]
    scores: list[Any] = []
    for p in asked:  # first, so that what is imported on the way is no finding
        scores += [_plain(verify(p, x)) for x in (p.answer, MARK)]
    opened: list[tuple[str, str]] = []
    executed = 0
    hit = False

    def hear(event: str, args: tuple[Any, ...]) -> None:
        nonlocal hit
        if event == "exec" and MARK in (*args[0].co_names, *args[0].co_consts, *args[0].co_varnames):
            hit = True
        if what := _EVENTS.get(event):
            opened.append((what, _where(event, args)))

    sys.addaudithook(hear)
    for p in asked:
        function = getattr(import_module(f"synth.verify.{p.verifier.replace('-', '_')}"), p.verifier.replace("-", "_"))
        for answer in (f"{MARK} = 1", f"{MARK} + 1", f"def main({MARK}): return {MARK}"):
            hit = False
            try:
                function(p, answer, **p.args)
            except Exception:  # noqa: BLE001, S110 (a grader that breaks is another check)
                pass
            executed += hit
    print(json.dumps({"scores": scores, "executed": executed, "opened": opened}))


def _plain(score: Any) -> Any:
    return [score.value, dict(score.parts)] if isinstance(score, Scored) else score.reason


def _where(event: str, args: tuple[Any, ...]) -> str:
    if event == "socket.connect":
        return str(args[1])
    return os.path.basename(str(args[0])) if args else ""


if __name__ == "__main__":
    main()
