"""A right step over a wrong one behind the same right steps, in one of several languages: Wang et al. 2025, "Demystifying Multilingual
Chain-of-Thought in Process Reward Modeling" (arXiv 2502.12663).

There step-labelled solutions are translated with their step boundaries kept. Here the equations of a worked solution (33 * 49 = 1617,
13 * 1617 = 21021) are put into words, a line for each step, in any of `TONGUES`: each has its own words and its own order, and the
numbers are the same in all, so that a line of one is exactly a line of each other (`translated`).

    chosen      the first k lines, right; k is drawn
    rejected    the same with an error in line k:   result    another number comes out
                                                    operand   another number goes in, and what comes out is right for it

A reward model of such pairs judges the last step of what it reads. `languages` are those of training: English alone is the paper's
cross-lingual regime where other languages are judged, and translate-test where they are translated before; several are its mixture, in which
`english_share` of the pairs is English and the others have equal parts. The question is a formula and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from synth.preferences.makers._made import made, quarantined
from synth.types import Generate, PreferencePair, Problem, Quarantined, seed_for

TONGUES: dict[str, tuple[str, tuple[str, str, str]]] = {  # how a step is said, and the words for + - *
    "english": ("{a} {op} {b} is {c}", ("plus", "minus", "times")),
    "german": ("{a} {op} {b} ergibt {c}", ("und", "weniger", "mal")),
    "spanish": ("{a} {op} {b} son {c}", ("mas", "menos", "por")),
    "french": ("de {a} {op} {b} vient {c}", ("avec", "sans", "fois")),
    "swahili": ("{op} {a} na {b} ni {c}", ("jumlisha", "toa", "zidisha")),
    "japanese": ("{a} ni {b} o {op} to {c}", ("tasu", "hiku", "kakeru")),
    "turkish": ("{a} {op} {b} esittir {c}", ("arti", "eksi", "carpi")),
    "basque": ("{a} {op} {b} berdin {c} da", ("gehi", "ken", "bider")),
}
SIGNS = "+-*"
ERRORS = ("result", "operand")
_EQUATION = re.compile(r"(-?\d+) ?([-+*]) ?(-?\d+) ?= ?(-?\d+)")
Step = tuple[int, str, int, int]


def chain(solution: str) -> list[Step]:
    """The equations of a worked solution that hold, as (a, sign, b, c)."""
    steps = [(int(a), op, int(b), int(c)) for a, op, b, c in _EQUATION.findall(solution)]
    return [s for s in steps if value(*s[:3]) == s[3]]


def value(a: int, op: str, b: int) -> int:
    return a + b if op == "+" else a - b if op == "-" else a * b


def told(steps: Sequence[Step], language: str) -> str:
    """The steps in a language, a line each."""
    template, words = TONGUES[language]
    return "\n".join(template.format(a=a, op=words[SIGNS.index(op)], b=b, c=c) for a, op, b, c in steps)


def heard(text: str, language: str) -> list[Step]:
    """The steps that a text says. Raises ValueError for a line that is no step of the language."""
    template, words = TONGUES[language]
    number = {x: rf"(?P<{x}>-?\d+)" for x in "abc"}
    pattern = re.compile(template.format(**number, op=f"(?P<op>{'|'.join(words)})"))
    steps = []
    for line in text.split("\n"):
        if (match := pattern.fullmatch(line)) is None:
            raise ValueError(f"aligned_steps: {line!r} is no step in {language}: it says {template!r}")
        steps.append((int(match["a"]), SIGNS[words.index(match["op"])], int(match["b"]), int(match["c"])))
    return steps


def translated(text: str, source: str, target: str) -> str:
    """The same steps in another language, line by line."""
    return told(heard(text, source), target)


def wrong(step: Step, error: str, rng: Random) -> Step:
    """The step with an error of this kind."""
    a, op, b, c = step
    off = rng.choice((-3, -2, -1, 1, 2, 3))
    if error == "result" or value(a + off, op, b) == c:  # times 0 hides an operand
        return a, op, b, c + off
    return a + off, op, b, value(a + off, op, b)


def aligned_steps(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    languages: tuple[str, ...] = ("english", "german", "spanish", "french", "swahili", "japanese", "turkish"),
    english_share: float = 0.4,
    errors: tuple[str, ...] = ("result", "operand"),
) -> PreferencePair | Quarantined:
    """Quarantined as no_chain where the worked solution has no equation. Raises ValueError for an unknown language or
    error, and a share that is none."""
    unknown = sorted({*languages} - {*TONGUES}) + sorted({*errors} - {*ERRORS})
    if unknown or not languages or not errors or not 0 <= english_share <= 1:
        raise ValueError(
            f"aligned_steps: {unknown or 'nothing unknown'}: languages are some of {', '.join(TONGUES)}; errors some of {', '.join(ERRORS)}; "
            f"english_share {english_share} is from 0 to 1"
        )
    rng = Random(seed_for(seed, "aligned_steps", problem.id, index))
    steps = chain(problem.lineage.get("solution", ""))
    if not steps:
        return quarantined(problem, index, "no_chain", f"no equation in {problem.lineage.get('solution', '')!r}")
    others = [x for x in languages if x != "english"]
    english = "english" in languages and (rng.random() < english_share or not others)
    language = "english" if english else rng.choice(others)
    k = rng.randint(1, len(steps))
    error = rng.choice(errors)
    right = steps[:k]
    about = {"language": language, "step": k, "error": {"type": error}}
    return made(
        problem,
        "aligned_steps",
        told(right, language),
        told([*right[:-1], wrong(right[-1], error, rng)], language),
        **about,
    )
