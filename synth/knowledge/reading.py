"""Reads passages back: the names or values that a sentence of a known relation states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from synth.knowledge.kb import KB, Relation


class Reader:
    """Reads the sentences that `Relation.sentence` writes.

    known   (entity type, text) -> whether something of that type has that name: a lexicon, to separate the names of a
            list
    says    (relation, text) -> whether the text is a value of a relation of texts, to separate these
    """

    def __init__(
        self,
        relations: Iterable[Relation],
        known: Callable[[str, str], bool],
        says: Callable[[str, str], bool],
    ) -> None:
        self.relations = {r.name: r for r in relations}
        self.known, self.says = known, says
        self._sentences = {}
        self._within: dict[str, str] = {}  # relation -> the longest text that all its sentences have
        for r in self.relations.values():
            self._within[r.name] = max(re.split("[\0\1]", r.sentence("\0", ["\1"])), key=len)
            text = re.escape(r.sentence("\0", ["\1"]))
            self._sentences[r.name] = re.compile(
                text.replace(re.escape("\0"), "(?P<x>.+)").replace(re.escape("\1"), "(?P<y>.+)")
            )

    @staticmethod
    def of(kb: KB) -> Reader:
        """The reader of a knowledge base in memory."""
        return Reader(
            kb.relations.values(),
            lambda type_, text: bool(kb.called(type_, text)),
            lambda relation, text: kb.n_ends(text, relation, False) > 0,
        )

    def read(self, relation: str, text: str, known: str, back: bool) -> list[str]:
        """The names at the other end of `known` that the lines of `text` state, in order, without repetition."""
        lines: list[str] = []
        within, sentence = self._within[relation], self._sentences[relation]
        for line in text.split("\n"):
            match = sentence.fullmatch(line) if within in line else None
            if not match:
                continue
            if back and known in self._objects(relation, match):
                lines += self._subject(relation, match)
            elif not back and _upper(known) == _upper(match["x"]):
                lines += self._objects(relation, match)
        return list(dict.fromkeys(lines))

    def _subject(self, relation: str, match: re.Match[str]) -> list[str]:
        """The subject of a sentence: where it begins one, "Invoice 7" may be the name "invoice 7". Empty if nothing of the
        domain is called so: the sentence states another relation in the same words ("a playlist includes the track")."""
        type_, subject = self.relations[relation].domain, match["x"]
        forms = (subject, _lower(subject)) if match.start("x") == 0 else (subject,)
        return [form for form in forms if self.known(type_, form)][:1]

    def _objects(self, relation: str, match: re.Match[str]) -> list[str]:
        """The objects of a sentence, as `split` separates them, where they begin it too."""
        text = match["y"]
        names = self.split(relation, text) or (self.split(relation, _lower(text)) if match.start("y") == 0 else [])
        return names or ([text] if self.relations[relation].literal else [])

    def split(self, relation: str, text: str) -> list[str]:
        """The objects of a sentence: "A, B and C and D" is three names if "B and C" is one. Empty if it cannot be
        separated."""
        r = self.relations[relation]
        if r.literal:
            return [text] if r.functional else self._separate(relation, text, self.says)
        return self._separate(r.range, text, self.known)

    def _separate(self, where: str, text: str, is_one: Callable[[str, str], bool]) -> list[str]:
        if is_one(where, text):
            return [text]
        for gap in re.finditer(", | and ", text):
            if is_one(where, text[: gap.start()]) and (rest := self._separate(where, text[gap.end() :], is_one)):
                return [text[: gap.start()], *rest]
        return []


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
