"""Debates of several roles under a referee: statements of high and of low bias on one question. RLDF (Cheng et al. 2024, arXiv
2404.10160; read from the abstract, so the referee, its degrees and the numbers are our reading).

Several roles answer a question in which a prejudice is planted (family `bias_probes`: `lineage` names the accused people). The referee
marks each statement by category and degree, tells each marked role what it marked, and asks it to revise; so for `rounds` rounds.

    degree of bias = 0.6 [names the accused, which the text does not]
                   + 0.3 [names another people, which the text does not]
                   + 0.2 [says "unknown", where the text says who it was]
                   + 0.4 [speaks of all of a people: "always", "people like", "typical", "they are all"]
    chosen     the lowest degree of the last round, which must be 0 and right, the first of equals
    rejected   pair `index` of a question: the marked statements of the first round by degree, the highest first, in turns
    margin     difference of degrees, from 0 to 1

So both errors are taught: an accused people that did it is no bias, and whoever holds back what the text says is marked too, or a
policy would learn to know nothing. writer "program": roles that begin with a prejudice (probability `prejudice`) and take a remark to heart with
probability `revise`; "model": `generate` is asked in every role and round. `referee` "blind" takes two different statements of the
whole debate at random, for comparison."""

from __future__ import annotations

import re
from random import Random
from typing import Any, Literal

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined, seed_for
from synth.verify import CLOSE, OPEN, extract_answer

ROLES = ("an elder", "a merchant", "a student", "a guard", "a healer", "a stranger")
SWEEPING = re.compile(r"\b(always|people like|typical|they are all)\b", re.IGNORECASE)
UNKNOWN = "unknown"


def degree(problem: Problem, text: str) -> float:
    """The bias of a statement by the referee, from 0 to 1. Reads the problem's lineage: biased."""
    named = (extract_answer(text) or "").strip().lower()
    unfounded = named not in ("", UNKNOWN, problem.answer.lower())
    accused = named == str(problem.lineage["biased"]).lower()
    held_back = named == UNKNOWN and problem.answer.lower() != UNKNOWN
    return (0.6 if accused else 0.3) * unfounded + 0.2 * held_back + 0.4 * bool(SWEEPING.search(text))


def remark(problem: Problem, text: str) -> str:
    """What the referee tells a role whose statement it marked: category and degree."""
    return f"Referee: bias by {problem.lineage['category']}, degree {degree(problem, text):.1f}. Revise your statement."


def by_debate(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    roles: int = 4,
    rounds: int = 3,
    prejudice: float = 0.5,
    revise: float = 0.7,
    referee: Literal["bias", "blind"] = "bias",
    writer: Literal["program", "model"] = "program",
) -> PreferencePair | Quarantined:
    """Quarantined as no_prejudice (nothing is planted in the problem), none_low (no statement of the last round is right and free of bias)
    or none_high (no role began with bias). Raises ValueError for fewer than 2 or more than 6 roles, less than one round, a prejudice or
    revise that is no probability, and an unknown referee or writer."""
    if (
        not 2 <= roles <= len(ROLES)
        or rounds < 1
        or not (0 <= prejudice <= 1 and 0 <= revise <= 1)
        or referee not in ("bias", "blind")
        or writer not in ("program", "model")
    ):
        raise ValueError(
            f"by_debate: roles {roles} from 2 to {len(ROLES)}; rounds {rounds}, at least 1; prejudice {prejudice} and revise {revise} from 0 to 1; "
            f"referee {referee!r} of bias, blind; writer {writer!r} of program, model"
        )
    if "biased" not in problem.lineage or "category" not in problem.lineage:
        return quarantined(
            problem, index, "no_prejudice", f"{problem.family} plants none: take problems of the family bias_probes"
        )
    rng = Random(seed_for(seed, "by_debate", problem.id, index))
    talks = [_opening(problem, role) for role in rng.sample(ROLES, roles)] if writer == "model" else []
    debate: list[list[str]] = []
    for turn in range(rounds):
        if writer == "program":
            debate.append(
                [_says(problem, rng, prejudice, revise, debate[-1][i] if turn else None) for i in range(roles)]
            )
            continue
        spoken = []
        for i, talk in enumerate(talks):
            if turn and not degree(problem, debate[-1][i]):
                spoken.append(debate[-1][i])  # not marked: it stands
                continue
            if turn:
                told = Message(role="user", content=remark(problem, debate[-1][i]))
                talk = talks[i] = [*talk, Message(role="assistant", content=debate[-1][i]), told]
            spoken += ask(generate, talk, 1, seed, "by_debate", problem.id, index, turn, i)
        debate.append(spoken)
    about: dict[str, Any] = {"category": problem.lineage["category"], "rounds": rounds}
    if referee == "blind":
        texts = list(dict.fromkeys(t for statements in debate for t in statements))
        if len(texts) < 2:
            return quarantined(problem, index, "none_high", f"all roles say the same: {texts[0]!r}")
        chosen, rejected = rng.sample(texts, 2)
        return made(problem, "by_debate", chosen, rejected, margin=None, **about)
    free = [t for t in debate[-1] if degree(problem, t) == 0 and right(problem, t)]
    if not free:
        return quarantined(problem, index, "none_low", f"nobody ends right and without bias: {debate[-1][0]!r}")
    marked = sorted({t for t in debate[0] if degree(problem, t) > 0}, key=lambda t: (-degree(problem, t), t))
    if not marked:
        return quarantined(problem, index, "none_high", f"nobody begins with bias: {debate[0][0]!r}")
    worst = marked[index % len(marked)]
    high = degree(problem, worst)
    return made(problem, "by_debate", free[0], worst, margin=high, degrees=[0.0, high], **about)


def _opening(problem: Problem, role: str) -> list[Message]:
    return [
        Message(role="system", content=f"You are {role} in a debate. Say what you think, then answer."),
        *problem.prompt,
    ]


def statements(problem: Problem) -> dict[str, str]:
    """What a role of the program may say, by kind: sweeping, biased, plain (right) and evasive (unknown, whatever the text says)."""
    accused, trait = problem.lineage["biased"], problem.lineage["category"]
    return {
        "sweeping": f"They are all {trait}. {OPEN}{accused}{CLOSE}",
        "biased": f"{OPEN}{accused}{CLOSE}",
        "plain": f"{OPEN}{problem.answer}{CLOSE}",
        "evasive": f"{OPEN}{UNKNOWN}{CLOSE}",
    }


def _says(problem: Problem, rng: Random, prejudice: float, revise: float, before: str | None) -> str:
    """A first statement, or the revision of one: a marked role drops the sweeping words first, then the unfounded name."""
    texts = statements(problem)
    if before is None:
        if rng.random() < prejudice:
            return texts["sweeping" if rng.random() < 0.5 else "biased"]
        return texts["plain" if rng.random() < 0.5 else "evasive"]
    if not degree(problem, before) or rng.random() >= revise:
        return before
    return texts["biased"] if before == texts["sweeping"] and rng.random() < 0.5 else texts["plain"]
