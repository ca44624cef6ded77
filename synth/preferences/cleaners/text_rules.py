"""Rules for texts on which no label should rest: each rule is a reason code, and says which sides it checks.

    encoding     either side   U+FFFD, control characters, or UTF-8 read as Latin-1 ("Ã©", "â€™")
    pii          any text      an e-mail address (not of a domain that is reserved for examples), a card number that passes
                 Luhn's check, an IBAN that passes mod 97, a phone number with +
    refusal      chosen        refuses, while the rejected side does not (for harmful prompts that may be right: "ask")
    truncated    chosen        ends inside a sentence, a code block or a tag, while the rejected side ends well ("ask")
    language     chosen        is mostly in another script than the prompt, while the rejected side is not ("ask")

Rules find only what they name: passing them proves nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from synth.types import Decision, PreferencePair
from synth.verify._unsafe import REFUSAL

ALONE = True  # each pair is judged by itself

_BROKEN = re.compile(r"�|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|Ã[\x80-\xbf©¨ª«¤¶¼±³]|â€[™œ\x9d“”˜\x99\x9c]")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.[A-Za-z][\w.-]{1,63}")
_NOBODY = re.compile(r"(?:[\w.-]+\.)?(?:example\.(?:com|net|org)|example|test|invalid|localhost)\.?", re.IGNORECASE)
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")
_PHONE = re.compile(r"(?<!\w)\+\d{1,3}[ -]?\(?\d{1,4}\)?(?:[ -]?\d{2,4}){2,4}(?!\w)")
_CONTROL = bytes([*range(9), 11, 12, *range(14, 32), 127])
_NO_DIGIT = bytes(c for c in range(256) if not 48 <= c < 58)
_NO_LETTER = bytes(c for c in range(128) if not chr(c).isalpha())
_ENDS = ".!?…\"')]}»”’>*`|:;。！？」』）।؟"


def text_rules(
    pairs: Sequence[PreferencePair], *, rules: tuple[str, ...] = ("encoding", "pii", "refusal", "truncated", "language")
) -> Sequence[Decision]:
    """Decision "remove" or "ask" with the code of the first rule broken, else "keep" with reads_well; score = number of
    rules broken.

    Raises ValueError for an unknown rule.
    """
    unknown = sorted(set(rules) - RULES.keys())
    if unknown:
        raise ValueError(f"text_rules has no rule {unknown[0]!r}: it has {', '.join(RULES)}")
    out = []
    for pair in pairs:
        broken = [name for name in rules if RULES[name](pair)]
        action = "keep" if not broken else "remove" if {"encoding", "pii"} & set(broken) else "ask"
        out.append(
            Decision(
                step="text_rules", action=action, reason=broken[0] if broken else "reads_well", score=float(len(broken))
            )
        )
    return out


def _question(pair: PreferencePair) -> str:
    return "\n".join(m.content for m in pair.prompt)


def _encoding(pair: PreferencePair) -> bool:
    return _broken(pair.chosen) or _broken(pair.rejected)


def _broken(text: str) -> bool:
    if text.isascii():  # of what _BROKEN names it can hold control characters alone, and they are found faster so
        return len(text.encode().translate(None, _CONTROL)) < len(text)
    return bool(_BROKEN.search(text))


def _pii(pair: PreferencePair) -> bool:
    return any(personal(text) for text in (_question(pair), pair.chosen, pair.rejected))


def personal(text: str) -> str:
    """What kind of personal data a text holds: mail, card, iban, phone, or ""."""
    if "@" in text and any(not _NOBODY.fullmatch(m[0].rpartition("@")[2]) for m in _MAIL.finditer(text)):
        return "mail"
    digits = len(text.encode().translate(None, _NO_DIGIT)) if text.isascii() else len(text)
    if digits > 12 and any(_luhn(m[0]) for m in _CARD.finditer(text)):
        return "card"
    if digits > 1 and any(_mod97(m[0]) for m in _IBAN.finditer(text)):
        return "iban"
    return "phone" if "+" in text and _PHONE.search(text) else ""


def _luhn(number: str) -> bool:
    digits = [int(c) for c in number if c.isdigit()][::-1]
    return (
        len(set(digits)) > 1
        and sum(d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits)) % 10 == 0
    )


def _mod97(iban: str) -> bool:
    plain = iban.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _refusal(pair: PreferencePair) -> bool:
    return bool(REFUSAL.match(pair.chosen)) and not REFUSAL.match(pair.rejected)


def _truncated(pair: PreferencePair) -> bool:
    return cut(pair.chosen) and not cut(pair.rejected)


def cut(text: str) -> bool:
    """Whether a text of more than twenty words ends in the middle; shorter texts may be a name or a number."""
    if text.count("```") % 2:
        return True
    plain = text.rstrip()
    return (
        bool(plain)
        and plain[-1] not in _ENDS
        and not unicodedata.category(plain[-1]).startswith(("S", "P"))
        and len(plain.split(None, 20)) > 20
    )


@cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").split()[0]


def script(text: str) -> str:
    """The commonest script among the letters ("LATIN", "CJK", "CYRILLIC"), "" below ten letters."""
    if text.isascii():
        return "LATIN" if len(text[:2000].encode().translate(None, _NO_LETTER)) >= 10 else ""
    letters: Counter[str] = Counter()
    for c, n in Counter(text[:2000]).items():
        if c.isalpha():
            letters[_script(c)] += n
    return letters.most_common(1)[0][0] if letters.total() >= 10 else ""


def _language(pair: PreferencePair) -> bool:
    question, chosen = script(_question(pair)), script(pair.chosen)
    return bool(question and chosen) and chosen != question == script(pair.rejected)


RULES: dict[str, Callable[[PreferencePair], bool]] = {
    "encoding": _encoding,
    "pii": _pii,
    "refusal": _refusal,
    "truncated": _truncated,
    "language": _language,
}
