"""Questions in English: a pattern put into words by the templates of its relations, and a text read back into patterns.

Every clue and every asked relation is a noun phrase with one slot ("the capital of {x}", "the country whose capital is
{y}"), so a question is a frame around nested phrases. A described entity is the only one of its kind, hence the article
is always "the"; a type named before
the slot ("the length of the river {x}") is dropped where a description that says it itself fills the slot. Two clues
are joined:

    the country that the river Danu flows through and whose currency is the Rel
    the country on the continent Asia that shares a border with Norvia
    the country that shares a border with Norvia and Halia

`read` shares the templates with `question` and nothing else: it is the round trip that a text must survive.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import NamedTuple

from synth.knowledge.kb import KB, Relation
from synth.questions.pattern import Clue, Node, Pattern, canonical, exact

SLOT = "\0"
FRAMES = ("{what} is {np}?", "Name {np}.", "Tell me {np}.", "Which {type} is {np}?")
_READ_FRAMES = re.compile(
    r"(?:What|Who) is (?P<a>.+)\?|Name (?P<b>.+)\.|Tell me (?P<c>.+)\.|Which (?P<type>.+?) is (?P<d>the .+)\?"
)
_RELATIVE = ("that ", "whose ", "where ", "who ", "which ")


def _definite(phrase: str) -> str:
    return re.sub(r"^(a|an) ", "the ", phrase)


def _spoken(type: str) -> str:
    return type.replace("_", " ")


def symmetric(kb: KB, relation: Relation) -> bool:
    """Whether both directions are one phrase and the facts agree: then a clue can be kept in one direction only, the
    backward one."""
    if relation.domain != relation.range or _definite(relation.ask(SLOT)) != _definite(relation.ask_back(SLOT)):
        return False
    return kb.mutual(relation.name)


class Template(NamedTuple):
    """The text around the slot of a phrase; `bare`, before a description, is `before` less a type or article at its
    end: "the length of " for "the length of the river ", "a coast on " for "a coast on the "."""

    before: str
    bare: str
    after: str
    type: str  # of what fills the slot, as it is spoken

    def head(self, name: str) -> str:
        """What goes before a name: no "the lake Lake Chad"."""
        return self.before.removesuffix(f"the {self.type} ") if self.type in name.lower().split() else self.before


class Wording:
    """The phrases of one KB: `templates[relation, back]`, the first for any use, further ones around names. `back` is
    the phrase for the subject given the object."""

    def __init__(self, kb: KB) -> None:
        self.kb = kb
        self.symmetric = {r.name for r in kb.relations.values() if symmetric(kb, r)}
        self.templates: dict[tuple[str, bool], list[Template]] = {}
        for r in kb.relations.values():
            inverse = [r.ask_back(SLOT)]
            if r.inverse.endswith(" whose {label} is {y}"):
                inverse.append(inverse[0].replace(f" whose {r.label} is ", f" with {r.label} "))
            for back, phrases in ((False, [r.ask(SLOT)]), (True, [] if r.name in self.symmetric else inverse)):
                self.templates[r.name, back] = [
                    self._template(_definite(p), _spoken(r.range if back else r.domain)) for p in phrases
                ]
        types = {self.head(*key) for key in self.templates}
        self._about = {t: {k: v for k, v in self.templates.items() if self.head(*k) == t} for t in types}

    @staticmethod
    def _template(phrase: str, type: str) -> Template:
        before, _, after = phrase.partition(SLOT)
        bare = before.removesuffix(f"the {type} ")
        return Template(before, bare if bare != before or bare == "the " else before.removesuffix("the "), after, type)

    def head(self, relation: str, back: bool) -> str:
        """The entity type (or literal range) of what a phrase describes."""
        r = self.kb.relations[relation]
        return r.domain if back else r.range

    def slot(self, relation: str, back: bool) -> str:
        """The entity type (or literal range) of what fills the slot of a phrase."""
        return self.head(relation, not back)

    # ---- writing

    def question(self, pattern: Pattern, rng: random.Random) -> str:
        """One of the paraphrases of a pattern, chosen by `rng`."""
        type = self.head(pattern.relation, not pattern.forward)
        phrase = self.phrase(pattern.relation, not pattern.forward, pattern.root, rng)
        frames = (
            FRAMES[:3]
            if type == "person"
            or phrase.startswith(f"the {_spoken(type)} ")
            or self.kb.relations[pattern.relation].literal
            and pattern.forward
            else FRAMES
        )
        return rng.choice(frames).format(what="Who" if type == "person" else "What", np=phrase, type=_spoken(type))

    def phrase(self, relation: str, back: bool, term: str | Node, rng: random.Random) -> str:
        """The noun phrase of a relation around a term."""
        if isinstance(term, str):
            template, name = rng.choice(self.templates[relation, back]), self.kb.text(term)
            return template.head(name) + name + template.after
        template = self.templates[relation, back][0]  # the paraphrase "with capital" reads well before a name alone
        return template.bare + self.describe(term, rng) + template.after

    def describe(self, node: Node, rng: random.Random) -> str:
        """A variable as a noun phrase: one clue, or two that are joined. Raises ValueError for more clues, or none."""
        clues = [exact(c) for c in node.clues]
        if len(clues) == 2 and (same := self._listed(*(c for c, _ in clues))) is not None:
            return same
        phrases = [self.phrase(c.relation, c.forward, target, rng) for c, target in clues]
        if len(phrases) == 1:
            return phrases[0]
        head = f"the {_spoken(node.type)} "
        if len(phrases) != 2 or not all(p.startswith(head) for p in phrases):
            raise ValueError(
                f"no sentence for the clues {phrases}: two clues are joined where both begin with {head!r}"
            )
        # "on the continent Asia" before "that shares a border": the longer kind of clause comes last.
        first, second = sorted((p.removeprefix(head) for p in phrases), key=lambda clause: clause.startswith(_RELATIVE))
        return head + first + (" " if second.startswith(_RELATIVE) > first.startswith(_RELATIVE) else " and ") + second

    def _listed(self, a: Clue, b: Clue) -> str | None:
        """Two clues of one relation about names: "the country that shares a border with Sweden and Finland"; None for
        other clues."""
        template = self.templates[a.relation, a.forward][0]
        if (
            (a.relation, a.forward) != (b.relation, b.forward)
            or template.after
            or not (isinstance(a.target, str) and isinstance(b.target, str))
        ):
            return None
        first, second = self.kb.text(a.target), self.kb.text(b.target)
        return f"{template.head(first)}{first} and {second}"

    def joinable(self, type: str, relation: str, back: bool) -> bool:
        """Whether a clue can be one of two: its phrases begin with the type of the variable."""
        return bool(self.templates[relation, back]) and all(
            t.before.startswith(f"the {_spoken(type)} ") for t in self.templates[relation, back]
        )

    def nestable(self, relation: str, back: bool) -> bool:
        """Whether a description may fill the slot: at the end only; "the river that the river that ... is a tributary
        of" is hard."""
        return all(t.after == "" for t in self.templates[relation, back])

    # ---- reading

    def read(self, text: str) -> list[Pattern]:
        """Every pattern that the text can mean; different patterns only. An unambiguous question gives exactly one."""
        match = _READ_FRAMES.fullmatch(text)
        if not match:
            return []
        phrase = next(v for k, v in match.groupdict().items() if v is not None and k != "type")
        patterns = [
            Pattern(relation=relation, forward=not back, root=term)
            for relation, back, term in self._read_phrase(phrase, self.templates, joined=True)
        ]
        return list(
            {
                canonical(p): p
                for p in patterns
                if match["type"] in (None, _spoken(self.head(p.relation, not p.forward)))
            }.values()
        )

    def _read_phrase(
        self, text: str, among: Mapping[tuple[str, bool], list[Template]], *, joined: bool
    ) -> list[tuple[str, bool, str | Node]]:
        out: list[tuple[str, bool, str | Node]] = []
        for (relation, back), templates in among.items():
            for t in templates:
                if not text.startswith(t.bare) or not text.endswith(t.after) or len(text) <= len(t.bare) + len(t.after):
                    continue
                for start in {t.bare, t.before}:
                    name = text[len(start) : len(text) - len(t.after)]
                    if text.startswith(start) and t.head(name) == start:
                        out += [(relation, back, c) for c in self._constants(relation, back, name)]
                if joined:
                    out += [
                        (relation, back, n)
                        for n in self._read_node(
                            text[len(t.bare) : len(text) - len(t.after)], self.slot(relation, back)
                        )
                    ]
        return out

    def _constants(self, relation: str, back: bool, name: str) -> list[str]:
        if back and self.kb.relations[relation].literal:
            return [name] if self.kb.n_ends(name, relation, False) else []
        return self.kb.called(self.slot(relation, back), name)

    def _read_node(self, text: str, type: str) -> list[Node]:
        if not text.startswith("the "):
            return []
        out = [Node(type=type, clues=(clue,)) for clue in self._read_clues(text, type, joined=True)]
        head = f"the {_spoken(type)} "
        if text.startswith(head):  # two clues are joined only where their targets are names
            for gap in re.finditer(r" and | (?=that |whose |where |who |which )", text):
                left = self._read_clues(text[: gap.start()], type, joined=False)
                right = self._read_clues(head + text[gap.end() :], type, joined=False) if left else []
                out += [Node(type=type, clues=(a, b)) for a in left for b in right]
        for gap in re.finditer(" and ", text):  # a list of two names under one relation
            for a in self._read_clues(text[: gap.start()], type, joined=False):
                names = self._constants(a.relation, a.forward, text[gap.end() :])
                out += [
                    Node(type=type, clues=(a, Clue(relation=a.relation, forward=a.forward, target=name)))
                    for name in names
                ]
        return out

    def _read_clues(self, text: str, type: str, *, joined: bool) -> list[Clue]:
        return [
            Clue(relation=relation, forward=back, target=term)
            for relation, back, term in self._read_phrase(text, self._about.get(type, {}), joined=joined)
        ]
