"""Translate a sentence of a made-up language into English, by a grammar and a list of words that stand in the question.

Velic: the object stands behind "lo", an adjective behind its noun, the verb last; -ri makes a noun plural, -ta puts a
verb in the past, "ne" joins two sentences. English puts the before each noun and makes the verb agree.

    "tomu gar lo sela pik", tomu = dog, gar = old, sela = cat, pik = help   ->   the old dog helps the cat

Certificate: both sentences made from the drawn words against the sentence parsed and put into English by the words of the
text. Difficulty axes: sentences, adjectives, kinds of endings.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"sentences": 1, "adjectives": 0, "endings": 0},
    {"sentences": 1, "adjectives": 2, "endings": 0},
    {"sentences": 1, "adjectives": 2, "endings": 2},
    {"sentences": 2, "adjectives": 2, "endings": 2},
)
CERTIFICATE = ("both sentences made from the drawn words", "the sentence parsed by the list of words in the text")
GRAMMAR = "Velic: lo before the object, adjective behind noun, verb last; -ri plural, -ta past, ne and"
WORDINGS = Wordings(
    "Translate from Velic into English: {text}. {grammar}. Words: {words}.",
    "{grammar}. Words: {words}. What is {text} in English?",
    "Words of Velic: {words}. {grammar}. Put into English: {text}.",
    "A letter in Velic says: {text}. {grammar}. Words: {words}. What does it say in English?",
    "{grammar}. With the words {words}, translate {text} into English.",
    answer="Answer in small letters, with the before each noun.",
    text="[a-z ]+",
    grammar=GRAMMAR,
    words="[a-z]+ = [a-z]+(?:, [a-z]+ = [a-z]+)*",
)
NOUNS: dict[str, str] = dict(
    zip(
        "tomu sela barin koda luma venti raso pelu gorda misa tavel onda".split(),
        "dog cat farmer king teacher girl doctor horse sailor baker singer bird".split(),
        strict=True,
    )
)
VERBS: dict[str, str] = dict(
    zip("pik dor vam sul nek zat".split(), "help follow visit greet remember thank".split(), strict=True)
)
ADJECTIVES: dict[str, str] = dict(
    zip("gar mil ubo tes fen hol".split(), "old young happy tired tall kind".split(), strict=True)
)
Phrase = tuple[str, str, bool]  # noun, adjective or "", plural
Sentence = tuple[Phrase, Phrase, str, bool]  # subject, object, verb, past


def translations(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an English sentence. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="translations",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, sentences: int, adjectives: int, endings: int) -> tuple[str, list[Sentence]]:
    spec: list[Sentence] = []
    for _ in range(sentences):
        two = [
            (noun, rng.choice([*ADJECTIVES]) if k < adjectives else "", endings > 0 and rng.random() < 0.5)
            for k, noun in enumerate(rng.sample([*NOUNS], 2))
        ]
        spec.append((two[0], two[1], rng.choice([*VERBS]), endings > 1 and rng.random() < 0.5))
    return str(spec), spec


def pose(spec: Sequence[Sentence]) -> dict[str, Any]:
    velic, english, words = [], [], dict[str, str]()
    for subject, target, verb, past in spec:
        velic.append(f"{_velic(subject)} lo {_velic(target)} {verb}{'ta' if past else ''}")
        ending = "ed" if past else "" if subject[2] else "s"
        english.append(f"{_english(subject)} {VERBS[verb]}{ending} {_english(target)}")
        for noun, adjective, _ in (subject, target):
            words |= {noun: NOUNS[noun]} | ({adjective: ADJECTIVES[adjective]} if adjective else {})
        words[verb] = VERBS[verb]
    listed = ", ".join(f"{word} = {words[word]}" for word in sorted(words))
    prompt = WORDINGS.write(text=" ne ".join(velic), grammar=GRAMMAR, words=listed)
    return {"prompt": prompt, "answer": " and ".join(english), "verifier": "exact"}


def _velic(phrase: Phrase) -> str:
    noun, adjective, plural = phrase
    return f"{noun}{'ri' if plural else ''}{' ' if adjective else ''}{adjective}"


def _english(phrase: Phrase) -> str:
    noun, adjective, plural = phrase
    return " ".join(["the", *([ADJECTIVES[adjective]] if adjective else []), NOUNS[noun] + ("s" if plural else "")])


def _looked_up(word: str, words: dict[str, str]) -> tuple[str, bool]:
    """The English of a word, and whether it has an ending."""
    for ending in ("", "ri", "ta"):
        stem = word.removesuffix(ending)
        if stem in words and word == stem + ending:
            return words[stem], bool(ending)
    raise Refused(f"roundtrip: the list of words lacks {word!r}")


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    words = dict(pair.split(" = ") for pair in fields["words"].split(", "))
    out = []
    for sentence in f" {fields['text']} ".split(" ne "):
        subject, _, rest = sentence.partition(" lo ")
        *target, verb = rest.split()
        (doer, many), (done, _), (did, past) = (
            _read(subject.split(), words),
            _read(target, words),
            _looked_up(verb, words),
        )
        out.append(f"{doer} {did + ('ed' if past else '' if many else 's')} {done}")
    return " and ".join(out)


def _read(phrase: Sequence[str], words: dict[str, str]) -> tuple[str, bool]:
    """A noun with what stands behind it in English, and whether it is plural."""
    if not phrase:
        raise Refused("roundtrip: a sentence without subject or object")
    (noun, plural), *rest = (_looked_up(word, words) for word in phrase)
    return " ".join(["the", *[word for word, _ in rest], noun + "s" * plural]), plural
