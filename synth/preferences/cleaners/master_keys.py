"""Answers without content that judges take for good ones: "One Token to Fool LLM-as-a-Judge" (arXiv:2507.08794, 2025).

A master key is a lone mark of punctuation, a blank, or an opener such as "Thought process:" or "Let's solve this
problem step by step.", in several languages. A chosen side that is nothing more cannot be the better one; a rejected
side that is one teaches little. `synth/preferences/judge_attacks.py` has the attack on a judge, and pairs that teach
one to resist it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from synth.preferences.cleaners._columns import Action, verdict
from synth.types import Decision, PreferencePair

ALONE = True  # each pair is judged by itself

KEYS = (
    "",
    " ",
    ".",
    ",",
    ":",
    ";",
    "!",
    "-",
    "...",
    "Thought process:",
    "Thinking process:",
    "Let's solve this problem step by step.",
    "Let's think step by step.",
    "Solution",
    "Solution:",
    "Answer:",
    "The answer is",
    "Here is the solution.",
    "Sure!",
    "Certainly!",
    "解",
    "解：",
    "让我们一步一步地解决这个问题。",
    "かいせつ",
    "Respuesta",
    "Solución:",
    "Lösung:",
    "Lassen Sie uns das Schritt für Schritt lösen.",
    "Réponse :",
    "Résolvons ce problème étape par étape.",
)


def master_keys(pairs: Sequence[PreferencePair], *, action: Action = "remove") -> Sequence[Decision]:
    """Decision `action` where the chosen side is a key, "ask" where only the rejected one is, else "keep"; score = 1 or
    0.

    Reasons: chosen_is_a_key, rejected_is_a_key, has_content.
    """
    out = []
    for pair in pairs:
        chosen, rejected = is_key(pair.chosen), is_key(pair.rejected)
        reasons = ("chosen_is_a_key" if chosen else "rejected_is_a_key", "has_content")
        out.append(
            verdict("master_keys", chosen or rejected, action if chosen else "ask", reasons, float(chosen or rejected))
        )
    return out


def is_key(text: str) -> bool:
    """Whether an answer says nothing: one of KEYS, or no letter and no digit."""
    begin = text[:500]
    if begin.isascii() and len(begin.encode().translate(None, _NO_LETTER)) > _LONGEST:
        return False  # most answers: there are more letters in it than in any key
    plain = _plain(text)
    return plain in _PLAIN or not any(c.isalnum() for c in plain)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".:!… ")


_PLAIN = frozenset(_plain(key) for key in KEYS)
_LONGEST = max(map(len, _PLAIN))
_NO_LETTER = bytes(c for c in range(128) if not chr(c).isalnum())
