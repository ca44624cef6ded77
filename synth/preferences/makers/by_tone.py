"""The same answer in several tones, and what is meant by the question before it: Fin-Ally (2025, arXiv 2509.24342; read from the
abstract, so the judge, the relations and the numbers are our reading).

What a person wants, needs, will do and feels is inferred from the words of the question (`inferred`: a lexicon, one sentence for a
relation) and stands before it, in the same message. Replies that give the same answer in different tones are rated from 0 to 1:

    rating = (polite + professional + apt) / 3
    polite         1 with a word of courtesy, 0.5 without, 0 with a rude one        professional   1 - slang words / 2, not below 0
    apt            1 where the reply takes up a word of what was inferred, else 0 (1 where nothing was)

    chosen     the best rated that is right and whose `polite` is at least `politeness`, the first of equals
    rejected   one that is rated lower and right too, drawn at random        margin    difference of ratings

So a pair teaches the tone and never the number. writer "program": six clerks write the reference's answer each in a tone;
"model": `generate` is asked under as many seeds. `rate` "answer" rates by the answer alone (right 1, wrong 0), for comparison."""

from __future__ import annotations

import re
from random import Random
from typing import Literal

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined, seed_for
from synth.verify import CLOSE, OPEN

RELATIONS = ("xIntent", "xNeed", "xEffect", "xReact")
LEXICON = {  # words of a question -> relation -> what is meant
    ("tax", "due", "brackets"): {
        "xIntent": "to pay what is due",
        "xNeed": "to know the rates",
        "xEffect": "files a return",
        "xReact": "worried about a mistake",
    },
    ("save", "saved", "deposit", "account", "fund", "interest", "worth"): {
        "xIntent": "to see the savings grow",
        "xNeed": "a rate that can be trusted",
        "xEffect": "plans ahead",
        "xReact": "hopeful about the future",
    },
    ("loan", "owe", "debt", "late"): {
        "xIntent": "to be free of debt",
        "xNeed": "a plan of payments",
        "xEffect": "pays in parts",
        "xReact": "ashamed of the delay",
    },
    ("price", "buy", "cost", "costs", "pay"): {
        "xIntent": "to buy at a fair price",
        "xNeed": "the price in full",
        "xEffect": "compares offers",
        "xReact": "careful with money",
    },
}
COURTESY = {"please", "thank", "glad", "gladly", "welcome", "kindly"}
RUDE = {"duh", "whatever", "stupid", "obviously", "hurry"}
SLANG = {"yo", "dude", "bucks", "gonna", "lol", "cash"}
SMALL = {"to", "the", "a", "in", "of", "at", "be", "with", "that", "can", "what", "is", "about", "see", "know", "for"}
CLERKS = (
    "Thank you for asking. {about}{answer}",
    "Gladly. {answer}",
    "{about}{answer}",
    "{answer}",
    "Yo dude, {answer} lol",
    "Duh, obviously {answer}",
)


def inferred(question: str, relations: tuple[str, ...] = RELATIONS) -> list[str]:
    """A sentence for each relation, by the entry of the lexicon with most words in the question; none where no word is known."""
    words = _words(question)
    entry = max(LEXICON, key=lambda keys: len(words & set(keys)))
    return [f"{r}: {LEXICON[entry][r]}." for r in relations] if words & set(entry) else []


def asked(problem: Problem, meant: list[str]) -> tuple[Message, ...]:
    """The prompt with what is meant before its last message."""
    *before, last = problem.prompt
    return (*before, Message(role=last.role, content=" ".join([*meant, last.content])))


def rating(text: str, meant: list[str]) -> dict[str, float]:
    """polite, professional and apt, each from 0 to 1, of a reply; its answer is not looked at."""
    words = _words(text.partition(OPEN)[0] + " " + text.rpartition(CLOSE)[2])
    wanted = _words(" ".join(m.partition(": ")[2] for m in meant)) - SMALL
    polite = 0.0 if words & RUDE else 1.0 if words & COURTESY else 0.5
    return {
        "polite": polite,
        "professional": max(0.0, 1 - len(words & SLANG) / 2),
        "apt": float(not wanted or bool(words & wanted)),
    }


def replies(problem: Problem, meant: list[str]) -> list[str]:
    """What the clerks say; the second sentence of those who take up what is meant names it."""
    wish = next((m.partition(": ")[2].rstrip(".") for m in meant if m.startswith("xIntent")), "")
    about = f"You want {wish}. " if wish else ""
    return [c.format(about=about, answer=f"{OPEN}{problem.answer}{CLOSE}") for c in CLERKS]


def by_tone(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    relations: tuple[str, ...] = ("xIntent", "xNeed", "xEffect", "xReact"),
    politeness: float = 0.7,
    answers: int = 4,
    rate: Literal["tone", "answer"] = "tone",
    writer: Literal["program", "model"] = "program",
) -> PreferencePair | Quarantined:
    """Quarantined as nothing_meant (no word of the question is known), none_polite (no right reply is polite enough) or alike (no right reply is rated lower). Raises ValueError for
    an unknown relation, rate or writer, fewer than two answers, and a politeness that is no share."""
    unknown = sorted(set(relations) - set(RELATIONS))
    if (
        unknown
        or answers < 2
        or not 0 <= politeness <= 1
        or rate not in ("tone", "answer")
        or writer not in ("program", "model")
    ):
        raise ValueError(
            f"by_tone: relations {unknown or list(relations)} of {', '.join(RELATIONS)}; politeness {politeness} from 0 to 1; answers {answers}, at "
            f"least 2; rate {rate!r} of tone, answer; writer {writer!r} of program, model"
        )
    rng, meant = Random(seed_for(seed, "by_tone", problem.id, index)), inferred(problem.question, relations)
    if relations and not meant:
        return quarantined(problem, index, "nothing_meant", f"no word of {problem.question[:80]!r} is in the lexicon")
    prompt = asked(problem, meant)
    if writer == "model":
        texts = ask(generate, prompt, answers, seed, "by_tone", problem.id, index)
    else:
        of_clerks = replies(problem, meant)
        texts = rng.sample(of_clerks, min(answers, len(of_clerks)))
        if rate == "answer":
            texts = [*texts[:-1], texts[-1].replace(f"{OPEN}{problem.answer}{CLOSE}", f"{OPEN}?{CLOSE}")]
    rated = []
    for i, t in enumerate(texts):
        tone, correct = rating(t, meant), bool(right(problem, t))
        value = float(correct) if rate == "answer" else sum(tone.values()) / len(tone)
        rated.append((value, -i, tone["polite"], correct, t))
    best = max((x for x in rated if x[3] and (rate == "answer" or x[2] >= politeness)), default=None)
    if best is None:
        return quarantined(
            problem, index, "none_polite", f"no right reply of {len(texts)} is polite enough: {texts[0]!r}"
        )
    lower = [x for x in rated if x[0] < best[0] and (x[3] or rate == "answer")]
    if not lower:
        return quarantined(problem, index, "alike", f"no right reply is rated below {best[0]:.2f}")
    worse = rng.choice(lower)
    about = {"ratings": [best[0], worse[0]], "meant": len(meant)}
    return made(problem, "by_tone", best[4], worse[4], margin=best[0] - worse[0], prompt=prompt, **about)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))
