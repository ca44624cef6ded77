"""Preference pairs from worked solutions: the chosen side is the solution, the rejected side the same text with one
planted error.

After SeaPO (arXiv:2509.24781), with programs in place of a language model: the error is an edit of a known type and
span, and the problem's verifier confirms that the edited answer *is* wrong. An edit that leaves the answer right is
quarantined as `still_right`. Where the working states the answer, it is edited alike, so that not every error shows as a
contradiction inside the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from synth.types import PreferencePair, Problem, Quarantined, Scored, seed_for
from synth.verify import CLOSE, OPEN, extract_answer, verify

Edit = Callable[
    [str, str, Random], tuple[str, str] | None
]  # (working, answer) -> both edited, or None where it does not apply
_INTEGER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")


def injected_errors(
    seed: int, problem: Problem, index: int, *, errors: Sequence[str] = ()
) -> PreferencePair | Quarantined:
    """Pair `index` of a problem that has a worked solution (`lineage["solution"]`).

    errors: names of error types to draw from, empty for all that fit the problem's verifier (`ERRORS`). The drawn type,
    the span of the edited answer in the rejected text and the severity (share of the answer's items that changed, for
    numbers the relative change up to 1) are in `columns["error"]`. Quarantined as no_errors where no type is known for the
    verifier. Raises ValueError where none of `errors` fits it.
    """
    rng = Random(seed_for(seed, "preferences", "injected_errors", problem.id, index))
    name = f"{problem.id}/{index}"
    types = {e: f for e, f in ERRORS.get(problem.verifier, {}).items() if not errors or e in errors}
    if not types and not errors:
        return _aside(name, "no_errors", f"no error type is known for the verifier {problem.verifier!r}")
    if not types:
        known = ", ".join(ERRORS.get(problem.verifier, {})) or "none"
        raise ValueError(
            f"no error type of {list(errors) or 'any kind'} fits the verifier {problem.verifier!r} (it has {known})"
        )
    chosen = problem.lineage.get("solution", "")
    answer = extract_answer(chosen)
    if answer is None or not _right(problem, answer):
        return _aside(name, "no_solution", f"the worked solution {chosen!r} has no right answer")
    working = chosen[: chosen.rfind(OPEN)]
    for error in rng.sample(sorted(types), len(types)):
        edited = types[error](working, answer, rng)
        if edited is not None and edited != (working, answer):
            break
    else:
        return _aside(name, "not_editable", f"no error type changes {chosen!r}")
    rejected = f"{edited[0]}{OPEN}{edited[1]}{CLOSE}"
    if _right(problem, edited[1]):
        return _aside(name, "still_right", f"{error}: {rejected!r} is accepted by {problem.verifier}")
    start = len(edited[0]) + len(OPEN)
    return PreferencePair.make(
        prompt=problem.prompt,
        chosen=chosen,
        rejected=rejected,
        source=f"injected_errors/{problem.family}",
        problem=problem.id,
        margin=1.0,
        columns={
            "group": problem.lineage["root"],
            "error": {
                "type": error,
                "span": [start, start + len(edited[1])],
                "severity": round(severity(answer, edited[1]), 3),
            },
        },
        split=problem.split,
    )


def _aside(name: str, reason: str, evidence: str) -> Quarantined:
    return Quarantined(id=name, stage="preferences", reason=reason, evidence=evidence)


def _right(problem: Problem, answer: str) -> bool:
    verdict = verify(problem, answer)
    if not isinstance(verdict, Scored):
        raise ValueError(f"problem {problem.id} cannot be scored ({verdict.reason}): its reference is broken")
    return verdict.value == 1.0


def severity(right: str, wrong: str) -> float:
    """How far off the wrong answer is, in (0, 1]: relative change of a number, else the share of words that differ."""
    if _INTEGER.fullmatch(right) and _INTEGER.fullmatch(wrong):
        return min(1.0, abs(int(right) - int(wrong)) / max(1, abs(int(right))))
    a, b = right.split(), wrong.split()
    return 1 - sum(x == y for x, y in zip(a, b, strict=False)) / max(len(a), len(b))


def replace_number(text: str, old: str, new: str) -> str:
    """`text` with every whole-number occurrence of `old` replaced."""
    return _INTEGER.sub(lambda m: new if m[0] == old else m[0], text)


def _number(change: Callable[[int, Random], int]) -> Edit:
    def edit(working: str, answer: str, rng: Random) -> tuple[str, str] | None:
        if not _INTEGER.fullmatch(answer):
            return None
        wrong = str(change(int(answer), rng))
        last = working.rfind(",") + 1  # only the last step states the answer
        return (
            working[:last] + replace_number(working[last:], answer, wrong) if rng.random() < 0.5 else working
        ), wrong

    return edit


def _dropped_step(working: str, answer: str, rng: Random) -> tuple[str, str] | None:
    """The last step is left out and the result of the step before it given as the answer."""
    steps = working.rstrip().split(", ")
    results = _INTEGER.findall(steps[-2]) if len(steps) > 1 else []
    return (", ".join(steps[:-1]) + " ", results[-1]) if results else None


def _items(change: Callable[[list[str], Random], list[str] | None], separator: str = " ") -> Edit:
    def edit(working: str, answer: str, rng: Random) -> tuple[str, str] | None:
        changed = change(answer.split(separator), rng)
        return None if changed is None else (working, separator.join(changed))

    return edit


def _swapped(items: list[str], rng: Random) -> list[str] | None:
    pairs = [i for i in range(len(items) - 1) if items[i] != items[i + 1]]
    if not pairs:
        return None
    i = rng.choice(pairs)
    return [*items[:i], items[i + 1], items[i], *items[i + 2 :]]


def _dropped(items: list[str], rng: Random) -> list[str] | None:
    i = rng.randrange(len(items))
    return items[:i] + items[i + 1 :] if len(items) > 1 else None


def _repeated(items: list[str], rng: Random) -> list[str] | None:
    i = rng.randrange(len(items))
    return [*items[:i], rng.choice(items), *items[i + 1 :]]


def _one_number(working: str, answer: str, rng: Random) -> tuple[str, str] | None:
    """One number inside the answer is off by one."""
    match = rng.choice(list(_INTEGER.finditer(answer)))
    return working, answer[: match.start()] + str(int(match[0]) + rng.choice((-1, 1))) + answer[match.end() :]


def _operator(working: str, answer: str, rng: Random) -> tuple[str, str] | None:
    """One operator is exchanged for another."""
    places = [m.start() + 1 for m in re.finditer(r" [-+*/] ", answer)]
    if not places:
        return None
    i = rng.choice(places)
    return working, answer[:i] + rng.choice([o for o in "+-*/" if o != answer[i]]) + answer[i + 1 :]


def _swapped_operands(working: str, answer: str, rng: Random) -> tuple[str, str] | None:
    """Two different numbers exchange their places."""
    matches = list(_INTEGER.finditer(answer))
    pairs = [(a, b) for i, a in enumerate(matches) for b in matches[i + 1 :] if a[0] != b[0]]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    return working, answer[: a.start()] + b[0] + answer[a.end() : b.start()] + a[0] + answer[b.end() :]


# verifier -> error type -> edit
ERRORS: dict[str, dict[str, Edit]] = {
    "number": {
        "off_by_one": _number(lambda n, rng: n + rng.choice((-1, 1))),
        "number": _number(lambda n, rng: n + rng.choice((-1, 1)) * rng.randint(2, 9)),
        "sign": _number(lambda n, rng: -n),
        "dropped_step": _dropped_step,
    },
    "ordered_list": {
        "swapped": _items(_swapped),
        "dropped": _items(_dropped),
        "repeated": _items(_repeated),
        "off_by_one": _one_number,
    },
    "expression": {"operator": _operator, "swapped": _swapped_operands, "off_by_one": _one_number},
}
