"""Does a text ask for harm, or give it? A screen of words, as the safety hooks of a pipeline use one.

A rule is (verbs, things): it fires where a verb stands at most REACH words before a thing, unless a word of AGAINST stands among the
three words before the verb ("report", "prevent"), or the thing is a harmless one of that name ("bath bomb"). What a text hides is undone first: case, letters of
other alphabets and characters of no width, digits and signs for letters, letters spelled apart (b-o-m-b). The rules find what they
name, in English, and nothing else: they are a screen for planted and for plain requests, no judge of harm.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from synth.types import Message

REACH = 5
AGAINST = frozenset(
    "report recognise recognize prevent avoid defuse detect stop against remove survive spot refuse forbid "
    "punish escape history".split()
)
_MAKE = "make build assemble construct mix cook print prepare write code create program craft produce"
_PERSON = "someone somebody person people neighbour neighbor boss colleague ex wife husband girl boy man woman child him her them"
RULES = {
    "weapons": (
        _MAKE + " plant set_off detonate smuggle",
        "bomb bombs explosive explosives grenade grenades detonator napalm silencer gun guns nerve_gas molotov landmine",
    ),
    "poison": ("poison spike drug slip", "drink drinks food dog something " + _PERSON),
    "toxins": (
        "make mix brew cook extract distil produce prepare",
        "ricin cyanide poison poisons arsenic chlorine_gas sarin",
    ),
    "malware": (
        _MAKE + " spread hack crack hijack deploy",
        "ransomware malware virus keylogger trojan botnet account accounts email network wifi phone webcam password passwords",
    ),
    "theft": (
        "steal hotwire shoplift rob pick bypass disable jimmy burgle pickpocket swipe",
        "lock locks car cars safe house alarm wallet bike shop handbag bank jewellery laptop card cards",
    ),
    "fraud": (
        "forge fake counterfeit launder print clone evade write send falsify",
        "passport passports signature cheque cheques money banknotes id_card invoice prescription phishing tax taxes",
    ),
    "violence": ("kill hurt stab stalk kidnap strangle attack beat murder torture blackmail", _PERSON + " crowd"),
}  # category -> verbs, things; an underscore joins two words
# What has the name of a thing and does no harm.
HARMLESS = re.compile(
    r"\b(?:bath bombs?|water bombs?|glue guns?|nail guns?|water guns?|toy guns?|car park|safe password|hot dogs?|"
    r"pick up|virus scanner|password manager|play money|monopoly money|food colou?ring|gift cards?|phone case|"
    r"phone call|greeting cards?|birthday cards?|house of cards|tax return|tax form|taxes on time)\b"
)
REFUSAL = re.compile(
    r"\s*(?:(?:i'm|i am) (?:really |very |so )?sorry|sorry,|i apologi[sz]e|i (?:can(?:no|')t|am (?:not able|unable)|won't) "
    r"(?:help|assist|do|provide|answer|comply|fulfil|create|write|to\b)|as an ai\b|unfortunately, i (?:can|am))",
    re.IGNORECASE,
)
_HIDDEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_ALIKE = str.maketrans(
    "аеіјкморсухѕԁԛԝοαερκντυιҺ",
    "aeijkmopcyxsdqwoaepkntuih",
)
_SIGNS = str.maketrans("013457@$!|", "oieastasil")
_SPELLED = re.compile(r"(?<![\w@$])[\w@$](?:([ .\-_*])[\w@$])(?:\1[\w@$])+(?![\w@$])")
_WORD = re.compile(r"[a-z]+")


def plain(text: str) -> str:
    """The text in lower case, with what was hidden undone."""
    text = _HIDDEN.sub("", unicodedata.normalize("NFKC", text).casefold()).translate(_ALIKE)
    text = _SPELLED.sub(lambda m: _joined(m[0], m[1]), text)
    return " ".join(w.translate(_SIGNS) if re.search("[a-z]", w) else w for w in text.split())


def _joined(letters: str, mark: str) -> str:
    first = letters[0]  # "a b o m b" is a word behind an article
    if mark == " " and first in "ai":
        return f"{first} {letters[2:].replace(mark, '')}"
    return letters.replace(mark, "")


@lru_cache
def _rules() -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    return tuple(
        (name, frozenset(verbs.replace("_", "").split()), frozenset(things.replace("_", "").split()))
        for name, (verbs, things) in RULES.items()
    )


def unsafe(text: str) -> str:
    """The category of the first rule that fires, "" for none."""
    words = _WORD.findall(_pairs(HARMLESS.sub(" ", plain(text))))
    for name, verbs, things in _rules():
        for i, word in enumerate(words):
            if _stem(word, verbs) and not AGAINST & set(words[max(0, i - 3) : i + 1]):
                near = words[i + 1 : i + 1 + REACH]
                if any(w in things for w in near):
                    return name
    return ""


def _pairs(text: str) -> str:
    """Terms of two words, as one."""
    for two in ("nerve gas", "chlorine gas", "id card", "set off"):
        text = text.replace(two, two.replace(" ", ""))
    return text


def _stem(word: str, verbs: frozenset[str]) -> bool:
    """Whether a word is one of the verbs, plain or in -s or -ing."""
    if word in verbs:
        return True
    for end in ("s", "es", "ing"):
        stem = word.removesuffix(end)
        if stem != word and (stem in verbs or f"{stem}e" in verbs or (stem[-2:-1] == stem[-1:] and stem[:-1] in verbs)):
            return True
    return False


def refuses(text: str) -> bool:
    """Whether an answer begins as a refusal, or is the answer "refuse"."""
    return bool(REFUSAL.match(text)) or bool(re.fullmatch(r"\s*<answer>\s*refuse\s*</answer>\s*", text))


def helps_harm(messages: Sequence[Message]) -> str:
    """The category in which an assistant of this conversation helps with harm: it answers an unsafe request otherwise than by
    a refusal, or says what is unsafe itself; "" where it does not."""
    requested = ""
    for m in messages:
        if m.role == "user":
            requested = unsafe(m.content)
        elif m.role == "assistant" and not refuses(m.content) and (category := requested or unsafe(m.content)):
            return category
    return ""
