"""Several models answer under one principle, a judge rates each for it: CodeUltraFeedback (Weyssow et al., 2024,
arXiv 2403.09032).

For each problem one of five preferences is drawn: instruction following, explanation, complexity, readability, style. Its principle
stands before the question as a system message, and `answers` models of a pool answer. The judge rates every program from 1 to 10:

    instruction_following    1 + 9 (share of the hidden tests that pass)
    the others               rules over the syntax tree, beside the reference (synth/verify/_code_rules.py)

    chosen     the highest rated, the first drawn of equals; it has to pass all tests
    rejected   one of those rated lower, drawn at random          margin    (difference of ratings) / 9

writer "program": fourteen hands (_hands.py) stand for the pool of models, and write the reference in their own way; "model": `generate`
is asked under as many seeds. The paper's judge is a language model that also gives a reason, and it does not ask that the chosen
side passes tests; whether rules are a good judge of people's taste is not claimed."""

from __future__ import annotations

from random import Random
from typing import Literal

from synth.preferences.makers._hands import HANDS, written
from synth.preferences.makers._made import ask, made, quarantined
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined, Scored, seed_for
from synth.verify import CLOSE, OPEN, extract_answer, verify
from synth.verify._code_rules import function_of, rate

PRINCIPLES = {
    "instruction_following": "Do what is asked.",
    "explanation": "Explain your code.",
    "complexity": "Keep it simple.",
    "readability": "Write to be read.",
    "style": "Keep to the style.",
}


def by_principle(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    preferences: tuple[str, ...] = ("instruction_following", "explanation", "complexity", "readability", "style"),
    answers: int = 4,
    writer: Literal["program", "model"] = "program",
) -> PreferencePair | Quarantined:
    """Quarantined as not_a_program (the reference holds no function), none_right, or alike (no answer is rated lower). Raises
    ValueError for an unknown preference or writer, and for fewer than two answers."""
    unknown = sorted(set(preferences) - PRINCIPLES.keys())
    if unknown or not preferences or writer not in ("program", "model") or answers < 2:
        raise ValueError(
            f"by_principle: preferences {unknown or list(preferences)} of {', '.join(PRINCIPLES)}; writer {writer!r} of program, "
            f"model; answers {answers}, at least 2"
        )
    if function_of(problem.answer) is None:
        return quarantined(problem, index, "not_a_program", f"the reference {problem.answer!r} holds no function")
    rng = Random(seed_for(seed, "by_principle", problem.id, index))
    what = rng.choice(preferences)
    prompt = (Message(role="system", content=PRINCIPLES[what]), *problem.prompt)
    if writer == "program":
        texts = [f"{OPEN}{written(problem.answer, h)}{CLOSE}" for h in rng.sample(HANDS, min(answers, len(HANDS)))]
    else:
        texts = ask(generate, prompt, answers, seed, "by_principle", problem.id, index)
    rated = sorted(((rating(what, problem, t), i, t) for i, t in enumerate(texts)), key=lambda x: (-x[0], x[1]))
    best = next((x for x in rated if tests(problem, x[2]) == 1.0), None)
    if best is None:
        return quarantined(problem, index, "none_right", f"none of {len(texts)} programs passes: {texts[0]!r}")
    lower = [x for x in rated if x[0] < best[0]]
    if not lower:
        return quarantined(problem, index, "alike", f"no program is rated below {best[0]} for {what}")
    worse = rng.choice(lower)
    margin = (best[0] - worse[0]) / 9
    about = {"principle": what, "ratings": [best[0], worse[0]]}
    return made(problem, "by_principle", best[2], worse[2], margin=margin, prompt=prompt, **about)


def tests(problem: Problem, text: str) -> float:
    """Share of the hidden tests that the program in a text passes."""
    score = verify(problem, extract_answer(text))
    return score.parts.get("tests", score.value) if isinstance(score, Scored) else 0.0


def rating(what: str, problem: Problem, text: str) -> float:
    """From 1 to 10; 1 for what is no program."""
    if what == "instruction_following":
        return 1 + 9 * tests(problem, text)
    return rate(what, extract_answer(text) or "", problem.answer) or 1.0
