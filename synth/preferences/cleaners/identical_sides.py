"""Pairs whose two sides say the same: nothing can be learned from the label, whichever it is.

identical_sides    equal after Unicode NFKC and trimming
same_letters       equal but for case and spaces, which may be the task (a title in capitals, indented code); "ask"
empty_chosen       the chosen side is blank
same_answer        both sides give the same final answer between <answer> tags: a label about style at best; "ask"
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from synth.preferences.cleaners._columns import verdict
from synth.types import Decision, PreferencePair
from synth.verify import extract_answer

ALONE = True  # each pair is judged by itself


ASKED = {"same_answer", "same_letters"}


def identical_sides(pairs: Sequence[PreferencePair]) -> Sequence[Decision]:
    """Decision "remove" or "ask" with a reason above, else "keep" with sides_differ; score = 1 where it acts."""
    faults = [_fault(pair) for pair in pairs]
    return [
        verdict("identical_sides", bool(f), "ask" if f in ASKED else "remove", (f, "sides_differ"), float(bool(f)))
        for f in faults
    ]


def _fault(pair: PreferencePair) -> str:
    if _begin_differs(pair.chosen, pair.rejected):
        return "same_answer" if _same_answer(pair) else ""
    chosen, rejected = _plain(pair.chosen), _plain(pair.rejected)
    if not chosen:
        return "empty_chosen"
    if chosen == rejected:
        same = (
            unicodedata.normalize("NFKC", pair.chosen).strip() == unicodedata.normalize("NFKC", pair.rejected).strip()
        )
        return "identical_sides" if same else "same_letters"
    return "same_answer" if _same_answer(pair) else ""


def _begin_differs(chosen: str, rejected: str) -> bool:
    """Whether the first words of two plain texts differ, as those of most pairs do: then nothing else need be read."""
    if not (chosen.isascii() and rejected.isascii()):
        return False
    words = [text.lower().split(None, 16)[:16] for text in (chosen, rejected)]
    return bool(words[0]) and words[0] != words[1]


def _same_answer(pair: PreferencePair) -> bool:
    answers = [extract_answer(text) for text in (pair.chosen, pair.rejected)]
    return answers[0] is not None and answers[1] is not None and _plain(answers[0]) == _plain(answers[1])


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
