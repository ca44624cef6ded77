"""Several wordings of one problem: the templates that write a question also read it back, so that writing and reading
cannot diverge."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from synth.families._sample import Refused
from synth.types import seed_for

NAMES = tuple("Ann Ben Cleo Dan Eve Finn Gus Hal Ida Jon Kim Lea Max Nora Otto Pia".split())  # the persons of questions
_FIELD = re.compile(r"\{(\w+)\}")


class Wordings:
    """At least five ways to ask for the same thing, each followed by a sentence that states the form of the answer.

    forms    templates such as "What is {a} plus {b}?", every one with the same fields
    answer   what the answer must look like
    fields   the regular expression of a field; an integer by default
    """

    def __init__(self, *forms: str, answer: str, **fields: str) -> None:
        self.forms = tuple(f"{form} {answer}" for form in forms)
        self.readers = tuple(re.compile(_pattern(form, fields), re.DOTALL) for form in self.forms)

    def write(self, **values: Any) -> str:
        """The question. Which wording is used is hashed from the values: one problem has one text."""
        texts = {name: str(value) for name, value in values.items()}
        return self.forms[seed_for("wording", texts) % len(self.forms)].format(**texts)

    def read(self, question: str) -> dict[str, str]:
        """The fields of a question in any of the wordings. Raises Refused for another text."""
        for reader in self.readers:
            if match := reader.fullmatch(question):
                return match.groupdict()
        raise Refused(f"roundtrip: {question!r} is none of the wordings")


def read_kind(kinds: Mapping[str, Wordings], question: str) -> tuple[str, dict[str, str]]:
    """The kind of a question, of a family that asks for several things and has Wordings for each, and its fields. Raises
    Refused for a text of no kind."""
    for kind, wordings in kinds.items():
        try:
            return kind, wordings.read(question)
        except Refused:
            continue
    raise Refused(f"roundtrip: {question!r} is none of the wordings of {', '.join(kinds)}")


def by_kind(wordings: Wordings | Mapping[str, Wordings]) -> dict[str, Wordings]:
    """A family's `WORDINGS`, which are Wordings or, where it asks for several things, Wordings by kind: always by kind."""
    return {"": wordings} if isinstance(wordings, Wordings) else dict(wordings)


def _pattern(form: str, fields: dict[str, str]) -> str:
    out, seen = "", set()
    for i, part in enumerate(_FIELD.split(form)):
        if i % 2 == 0:
            out += re.escape(part)
        else:
            out += f"(?P={part})" if part in seen else f"(?P<{part}>{fields.get(part, '-?[0-9]+')})"
            seen.add(part)
    return out


def integers(text: str) -> list[int]:
    """Every whole number in a text, in order."""
    return [int(n) for n in re.findall(r"-?[0-9]+", text)]


def listed(items: Sequence[str], last: str = "and") -> str:
    """ "a", "a and b", "a, b and c"."""
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else items[0]
