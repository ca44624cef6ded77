"""Checks a reward before a model is trained on it: an audit of an environment and its problems, without a model.

It checks whether the reference answer earns 1 and junk nothing, by the verifier and played; whether scoring again, in a
separate process, gives the same; whether test problems are among the training problems; whether a constant, a copy of
the question or a list of all answers is paid; whether a grader that breaks returns 0; and, by the interpreter's own
audit events (PEP 578), whether a model's answer is executed in the process of the trainer, and what scoring opens
(connections, processes; files that it removes).

Environments of other people (synth/external) are asked in their own process, which says what it executed and opened;
episodes are played with each answer as every turn. What is trained on them passes `gate` first.

Run as a program it is that process of its own: JSON in, JSON out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from synth.external.child import EVENTS
from synth.external.parent import External, Lost, Source, opened
from synth.external.parent import adapters as adapters  # for the command
from synth.external.parent import problem as external_problem
from synth.types import Problem, Quarantined, Score, Scored, Split, Unscorable, from_row, nearest, to_row
from synth.verify import verifier, verify
from tasks.core.errors import UserError
from tasks.core.findings import NAMES
from tasks.planning import pieces

MARK = "espalier_audit_mark"
JUNK = ("", "I do not know.", "?" * 200, "0", "none of them", "<answer></answer>", "\u0000\ud800", f"{MARK}()")
APART = 20  # problems that are scored in separate processes
TURNS = 40  # of an episode that is played
MOST = 0.25  # mean score above which an answer that ignores the problem counts as paid


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check. holds: None if it cannot be decided."""

    check: str
    holds: bool | None
    text: str

    @property
    def name(self) -> str:
        return next(k for k, v in NAMES.items() if v == self.check)


def problems(env: str, family: str | None, n: int) -> tuple[list[Problem], list[Problem]]:
    """(n to train on, those to test on): of a family, or those of this project that the environment plays. Raises
    UserError if there are none."""
    if family:
        make = pieces.find("family", family)
        by_split = {split: [make(0, split, i) for i in range(n)] for split in ("train", "test")}
        train, test = ([p for p in by_split[split] if isinstance(p, Problem)] for split in ("train", "test"))
        return train, test
    paths = [Path("artifacts") / name / "problems.parquet" for name in ("problems", "questions")]
    from tasks.storage import tables  # loads pandas, which the process of its own does without

    known = [p for path in paths if path.exists() for p in tables.read(path, Problem) if p.env == env]
    train = [p for p in known if p.split == "train"][:n]
    if not train:
        raise UserError(
            f"no problem here is played in the environment {env}: name a family (--family countdown), or run the stages "
            "that make problems first"
        )
    return train, [p for p in known if p.split == "test"]


def drawn(entry: Mapping[str, Any], n: int) -> tuple[list[Problem], list[Problem]]:
    """(n to train on, n to test on) of an external environment. Raises UserError if it does not start or makes none."""
    out: dict[Split, list[Problem]] = {"train": [], "test": []}
    lost = ""
    for split, of_split in out.items():
        for i in range(n):
            problem = external_problem(entry, 0, split, i)
            if problem is None:
                break
            if isinstance(problem, Quarantined):
                lost = problem.evidence
            else:
                of_split.append(problem)
    if not out["train"]:
        raise UserError(f"the environment {opened(entry).name} makes no problem: {lost or 'it holds none'}")
    return out["train"], out["test"]


class Sampled:
    """Of each external environment's problems the first `n` to train on and the first `n` to test on, and how many there are to
    train on."""

    def __init__(self, problems: Iterable[Problem] = (), *, n: int = 32) -> None:
        self.n = n
        self.by_source: dict[str, dict[str, list[Problem]]] = {}
        self.to_train_on = Counter[str]()
        for p in problems:
            self.add(p)

    def add(self, problem: Problem) -> None:
        if problem.verifier != "external":
            return
        source = json.dumps(problem.args["source"], sort_keys=True)
        by_split = self.by_source.setdefault(source, {"train": [], "test": []})
        self.to_train_on[source] += problem.split == "train"
        if len(some := by_split.get(problem.split, [])) < self.n:
            some.append(problem)


def gate(problems: Iterable[Problem] | Sampled, accept: Sequence[str]) -> dict[str, Any]:
    """The audit's results for each external environment among the problems, for the card of the run.

    Raises UserError for a finding that `accept` does not name, and for a name in it that no check has."""
    if unknown := sorted(set(accept) - set(NAMES)):
        raise UserError(f"rl.accept: no check of the audit is called {unknown[0]!r}: {nearest(unknown[0], NAMES)}")
    known = problems if isinstance(problems, Sampled) else Sampled(problems)
    by_environment: dict[str, Any] = {}
    for text, some in known.by_source.items():
        if not some["train"]:
            continue
        name = opened(json.loads(text)).name
        failed = [f for f in audit_external(some["train"], some["test"]) if f.holds is False]
        if new := [f for f in failed if f.name not in accept]:
            raise UserError(
                f"rl: the environment {name} fails its audit: {new[0].check}: {new[0].text}. See it whole by `espalier env audit`; to "
                f"train on it all the same, name what was found: espalier run {' '.join(f'--accept {f.name}' for f in failed)}, or "
                f"rl.accept: [{', '.join(f.name for f in failed)}]"
            )
        by_environment[name] = {"accepted": {f.name: f.text for f in failed}, "problems": known.to_train_on[text]}
    return by_environment


def audit_external(train: Sequence[Problem], test: Sequence[Problem]) -> list[Finding]:
    """The checks of `audit` on problems of one external environment. Raises UserError if it does not start."""
    source = Source.of(train[0].args["source"])
    two = [External(replace(source, variables={**source.variables, "PYTHONHASHSEED": seed})) for seed in ("1", "2")]
    try:
        return list(_external(two[0], two[1], train, test))
    finally:
        for one in two:
            one.close()


def _external(one: External, two: External, train: Sequence[Problem], test: Sequence[Problem]) -> Iterator[Finding]:
    def earned(p: Problem, answer: str) -> Score:
        return _earned(one, p, answer)[0]

    def finding(name: str, holds: bool | None, text: str) -> Finding:
        return Finding(check=NAMES[name], holds=holds, text=text)

    answered = [p for p in train if p.lineage.get("solution")]
    if answered and not one.turns:
        yield _reference(answered, earned)
    else:
        yield finding("reference", None, "the environment names no reference answers")
    some = train[:APART] if one.turns else train
    yield _junk(some, earned)
    marks = {json.dumps([p.question, p.args["item"]], sort_keys=True) if one.turns else p.question for p in train}
    shared = [
        p
        for p in test
        if (json.dumps([p.question, p.args["item"]], sort_keys=True) if one.turns else p.question) in marks
    ]
    detail = f"{len(shared)} of {len(test)} stand among {len(train)} to train on" if test else "there are none"
    yield finding("shared", None if not test else not shared, detail)
    yield from _guessed(some, one.actions if one.turns else [p.answer for p in answered], earned)
    if one.turns or not answered:
        yield finding("grader", None, "nothing is known that it would have to pay")
    else:
        p = answered[0]
        item = p.args["item"]
        kept = ("question", "prompt", "answer")
        bare = {k: v for k, v in item.items() if k in kept} if isinstance(item, dict) else None
        score = earned(replace(p, args={**p.args, "item": bare}), p.answer)
        detail = score.reason if isinstance(score, Unscorable) else f"it says {score.value:g} without what it scores by"
        yield finding("grader", not (isinstance(score, Scored) and score.value < 1), detail)
    differ, scored, executed, outside = 0, 0, 0, Counter[tuple[str, str]]()
    for p in train[:APART]:
        scripts = (one.actions or ["", "1"])[:4] if one.turns else [p.answer, MARK]
        for answer in scripts:
            scored += 1
            differ += _earned(one, p, answer) != _earned(two, p, answer)
        for answer in (f"{MARK} = 1", f"{MARK} + 1", f"[{MARK}]", f"[{MARK}, 1]", f"def main({MARK}): return {MARK}"):
            watched = _earned(one, p, answer, watch=True)[2]
            executed += any(w["executed"] for w in watched)
            outside.update((what, where) for w in watched for what, where in w["opened"])
    yield finding("repeats", not differ, f"{differ} of {scored} scores differ")
    if one.remote:
        yield finding("executed", None, f"the server at {one.remote} is not watched")
        yield finding("opens", None, f"the server at {one.remote} is not watched")
        return
    yield finding(
        "executed",
        not executed,
        f"{executed} of {5 * len(train[:APART])} answers were, in the environment's process, which is no sandbox"
        if executed
        else "none was",
    )
    listed = ", ".join(f"{what} {where}".strip() + f" ({n} times)" for (what, where), n in outside.most_common(5))
    yield finding("opens", all(what == "starts a process" for what, _ in outside), listed or "nothing")


def _earned(
    where: External, p: Problem, answer: str, watch: bool = False
) -> tuple[Score, list[str], list[dict[str, Any]]]:
    """(score, text, watched events) of an answer; in an episode it is given as every turn."""
    more = {"watch": MARK} if watch else {}
    texts: list[str] = []
    seen: list[dict[str, Any]] = []
    try:
        if not where.turns:
            seen = [reply := where.ask("score", item=p.args["item"], answer=answer, **more)]
            return Scored(value=reply["value"], parts=reply["parts"]), texts, seen
        episode = where.episode(p.args["item"])
        texts, value = [m.content for m in episode.messages], 0.0
        for _ in range(TURNS):
            reply = where.step(episode.number, episode.life, answer, **more)
            seen.append(reply)
            texts += [str(m["content"]) for m in reply["messages"]]
            value += reply["reward"]
            if reply["over"]:
                break
        return Scored(value=value), texts, seen
    except Lost as e:
        return Unscorable(reason=str(e)), texts, [w for w in seen if "executed" in w]


def audit(env: Any, train: Sequence[Problem], test: Sequence[Problem]) -> list[Finding]:
    """env: the environment. Raises ValueError where there is no problem to train on."""
    if not train:
        raise ValueError("there is no problem to audit")
    if all(p.verifier == "external" for p in train):
        return audit_external(train, test)
    out = [_reference(train, verify), _junk(train, verify)]
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
    out += _guessed(train, [p.answer for p in train], verify)
    return [*out, _broken(train[0]), *_apart(train[:APART])]


def _reference(problems: Sequence[Problem], earned: Callable[[Problem, str], Score]) -> Finding:
    wrong = [p for p in problems if _value(earned(p, p.answer)) != 1.0]
    example = f"; {len(wrong)} do not, for example {wrong[0].question[:60]!r}" if wrong else ""
    right = f"{len(problems) - len(wrong)} of {len(problems)}{example}"
    return Finding(check=NAMES["reference"], holds=not wrong, text=right)


def _junk(problems: Sequence[Problem], earned: Callable[[Problem, str], Score]) -> Finding:
    paid = Counter(j for p in problems for j in JUNK if _value(earned(p, j)) > 0 and j.strip() != p.answer.strip())
    return Finding(
        check=NAMES["junk"],
        holds=all(n <= MOST * len(problems) for n in paid.values()),
        text=", ".join(f"{j[:20]!r} is paid on {n} of {len(problems)}" for j, n in paid.most_common(3))
        or "none is paid",
    )


def _guessed(
    problems: Sequence[Problem], known: Sequence[str], earned: Callable[[Problem, str], Score]
) -> Iterator[Finding]:
    """The scores of answers that ignore the problem. known: reference answers, or actions."""
    answers = Counter(known)
    best = answers.most_common(1)[0][0] if answers else ""
    guesses = {"constant": best, "question": None, "list": ", ".join(answers)}
    for name, guess in guesses.items():
        if name != "question" and not answers:
            yield Finding(check=NAMES[name], holds=None, text="no answer is known")
            continue
        mean = sum(_value(earned(p, p.question if guess is None else guess)) for p in problems) / len(problems)
        shown = f"earns {mean:.2f} on average"
        if name == "constant":
            shown = f"{best[:30]!r} {shown}"
        decided = len(answers) > 1 or name == "question"
        yield Finding(check=NAMES[name], holds=mean <= MOST if decided else None, text=shown)


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
    """A grader with invalid knobs must not call the answer wrong."""
    check = "a grader that breaks does not say 0"
    try:
        score = verify(replace(problem, args={**problem.args, MARK: object()}), problem.answer)
    except Exception as e:  # noqa: BLE001 (whatever it raises, the run would stop and say so)
        return Finding(check=check, holds=True, text=f"it stops with {type(e).__name__}")
    if isinstance(score, Scored) and score.value == 0:
        return Finding(check=check, holds=False, text="a knob that it does not know makes a right answer wrong")
    return Finding(check=check, holds=True, text="it takes any knob" if isinstance(score, Scored) else score.reason)


def _apart(problems: Sequence[Problem]) -> list[Finding]:
    """Scores in two processes with different hash seeds: are the verdicts the same, is nothing executed and nothing
    opened? Raises RuntimeError if such a process fails."""
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
    """Score each problem's reference answer and a marked program, and report what happened meanwhile."""
    pieces.open_own()
    problems_read = [from_row(Problem, row) for row in json.load(sys.stdin)]
    scores: list[Any] = []
    for p in problems_read:  # first, so that imports do not count as a finding
        scores += [_plain(verify(p, x)) for x in (p.answer, MARK)]
    opened: list[tuple[str, str]] = []
    executed = 0
    hit = False

    def hear(event: str, args: tuple[Any, ...]) -> None:
        nonlocal hit
        if event == "exec" and MARK in (*args[0].co_names, *args[0].co_consts, *args[0].co_varnames):
            hit = True
        if what := EVENTS.get(event):
            opened.append((what, _where(event, args)))

    sys.addaudithook(hear)
    for p in problems_read:
        _, function = verifier(p.verifier)
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
