"""Two critics argue for and against each answer, a referee decides, a second hearing checks the verdict: the rejection sampling of
"Igniting Creative Writing in Small Language Models: LLM-as-a-Judge versus Multi-Agent Refined Rewards" (2025, arXiv 2508.21476).

`answers` candidates are heard one by one, clause by clause of what is asked for (family constrained_writing). In each of `rounds` the
critic in favour claims the clauses that it takes to be kept, the other those that it takes to be broken; each errs about a clause with
probability `error`.

    kept(clause)   claims in favour > claims against          verdict    share of the clauses that are kept
    chosen         the highest verdict, the first drawn of equals; the verifier must find it right
    rejected       the lowest verdict among those that are lower and have as many words, `length_gap` more or less
    reflection     a second hearing with other errors must put the two in the same order, or there is no pair
    margin         difference of verdicts, from 0 to 1

writer "program": the reference, and the reference with one to three faults (two words change places, one is said twice, dropped, or put into
capitals, or has a letter too many); "model": `generate` is asked under as many seeds. `referee` "blind" takes two different answers of
that length at random, for comparison. The paper's agents are language models, of which one also looks up model answers; which principles good writing
keeps is not claimed here."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, PreferencePair, Problem, Quarantined, Scored, seed_for
from synth.verify import CLOSE, OPEN, extract_answer, verify


def by_critics(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    answers: int = 6,
    rounds: int = 2,
    error: float = 0.1,
    length_gap: int = 0,
    reflection: bool = True,
    referee: Literal["critics", "blind"] = "critics",
    writer: Literal["program", "model"] = "program",
) -> PreferencePair | Quarantined:
    """Quarantined as no_clauses (the problem asks for none), none_right (the best heard is not right), alike (no answer of that length has
    a lower verdict) or inconsistent (the second hearing disagrees). Raises ValueError for fewer than two answers, less than one round, an error that
    is no probability below 1/2, a negative length_gap, and an unknown referee or writer."""
    if (
        answers < 2
        or rounds < 1
        or not 0 <= error < 0.5
        or length_gap < 0
        or referee not in ("critics", "blind")
        or writer not in ("program", "model")
    ):
        raise ValueError(
            f"by_critics: answers {answers}, at least 2; rounds {rounds}, at least 1; error {error} from 0 to below 0.5; length_gap "
            f"{length_gap}, 0 or more; referee {referee!r} of critics, blind; writer {writer!r} of program, model"
        )
    if not problem.args.get("clauses"):
        return quarantined(
            problem,
            index,
            "no_clauses",
            f"{problem.family} asks for none: take problems of the family constrained_writing",
        )
    rng = Random(seed_for(seed, "by_critics", problem.id, index))
    if writer == "program":
        texts = [f"{OPEN}{draft(problem.answer, rng)}{CLOSE}" for _ in range(answers)]
    else:
        texts = ask(generate, problem.prompt, answers, seed, "by_critics", problem.id, index)
    texts = list(dict.fromkeys(texts))
    heard = [verdict(clauses_of(problem, t), rounds, error, rng) for t in texts]
    if referee == "blind":
        pairs = [(a, b) for a in texts for b in texts if a != b and abs(length(a) - length(b)) <= length_gap]
        if not pairs:
            return quarantined(problem, index, "alike", f"no two different answers of one length: {texts[0]!r}")
        return made(problem, "by_critics", *rng.choice(pairs), margin=None)
    top = max(range(len(texts)), key=lambda i: (heard[i], -i))
    if not right(problem, texts[top]):
        return quarantined(problem, index, "none_right", f"the critics' best breaks a clause: {texts[top]!r}")
    lower = [
        i for i, t in enumerate(texts) if heard[i] < heard[top] and abs(length(t) - length(texts[top])) <= length_gap
    ]
    if not lower:
        return quarantined(
            problem, index, "alike", f"no answer as long as the best has a lower verdict: {texts[top]!r}"
        )
    low = min(lower, key=lambda i: (heard[i], i))
    if reflection:
        again = [verdict(clauses_of(problem, texts[i]), rounds, error, rng) for i in (top, low)]
        if again[0] <= again[1]:
            return quarantined(problem, index, "inconsistent", f"heard again, {texts[low]!r} is no worse")
    verdicts = [heard[top], heard[low]]
    return made(
        problem, "by_critics", texts[top], texts[low], margin=heard[top] - heard[low], verdicts=verdicts, rounds=rounds
    )


def clauses_of(problem: Problem, text: str) -> list[bool]:
    """Whether each clause is kept; none is where there is no answer that can be read."""
    score = verify(problem, extract_answer(text))
    n = len(problem.args["clauses"])
    parts = score.parts if isinstance(score, Scored) else {}
    return [parts.get(f"c{i}", 0.0) == 1.0 for i in range(1, n + 1)]


def verdict(kept: Sequence[bool], rounds: int, error: float, rng: Random) -> float:
    """The referee's share of kept clauses, from what the two critics claim in all rounds."""
    accepted = 0
    for truth in kept:
        claims = 0
        for _ in range(rounds):
            claims += truth != (rng.random() < error)  # in favour: takes it to be kept
            claims -= truth == (rng.random() < error)  # against: takes it to be broken
        accepted += claims > 0
    return accepted / len(kept)


def length(text: str) -> int:
    """Words of the answer in a text."""
    return len((extract_answer(text) or "").replace(",", " ").split())


def draft(reference: str, rng: Random) -> str:
    """The reference in one of three drafts, the others have one to three faults."""
    words = reference.split()
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        kind = rng.choice(("swap", "twice", "drop", "loud", "letter"))
        if kind == "swap":
            words[i], words[j] = words[j], words[i]
        elif kind == "twice":
            words.insert(i, words[i])
        elif kind == "drop" and len(words) > 1:
            del words[i]
        elif kind == "loud":
            words[i] = words[i].swapcase()
        else:
            words[i] += rng.choice("aeioxz")
    return " ".join(words)
