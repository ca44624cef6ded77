"""Trees in English and back: `Realiser.write` puts a pattern into words, `Realiser.read` finds every pattern that a
text can mean.

One clue is one sentence about a root that is introduced first; or, where at most one clue is nested and it comes last,
all are one:

    I have a country in mind. It shares a border with a country whose language is Sorban. Its area is between 1,200 and
    1,500. Name the capital of this country.
    What is the capital of the country whose area is about 1,300 and that shares a border with a country whose language
    is Sorban?

What makes it readable both ways: a description that has clauses of its own ends its sentence, so a clause always
belongs to the nearest noun; "it" is always the root. `read` shares the phrases with `write` and nothing else; a
question is accepted only where it gives the pattern alone.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from synth.knowledge.kb import Relation
from synth.knowledge.words import is_person, many
from synth.questions.fuzzy.phrases import (
    SIDES,
    SLOT,
    Phrase,
    Words,
    check,
    counts,
    indefinite,
    measure,
    names,
    phrases,
    spoken,
)
from synth.questions.fuzzy.spans import KINDS, read_span
from synth.questions.pattern import (
    Clue,
    Named,
    Node,
    Nothing,
    Pattern,
    Span,
    Than,
    Third,
    canonical,
    hub,
    inner,
    to_json,
)

OPENINGS = (
    "I have {a} in mind.",
    "I am thinking of {a}.",
    "Consider a certain {t}.",
    "There is {a} that I am looking for.",
)
ASKS = ("{what} {np}?", "Name {np}.", "Tell me {np}.", "Can you name {np}?")
ASKS_VALUE = ("{what} {np}?", "Give {np}.", "Tell me {np}.", "Can you give {np}?")  # a number is not named
_ASKED = re.compile(
    r"(?:(?:What|Who|Which) (?:is|are)|Can you (?:name|give)) (?P<a>the .+)\?|(?:Name|Tell me|Give) (?P<b>the .+)\."
    r"|Who (?P<c>(?!is |are ).+)\?"
)
_WHO = re.compile(
    r"the [a-z]+ who (?=(?:[a-z]+ed|built|made) )"
)  # "the discoverer who discovered {x}": "Who discovered {x}?"
_HAVING = re.compile(r"the [\w ]+ with an? ")  # "the island with a ferry from {x}": "Which is the island ..."
_POINT = re.compile(r"(?i)(?:north|south)?-?(?:north|east|south|west)(?:ern)?")
_ON_SIDE = re.compile(rf" (?:{'|'.join(sorted(SIDES))}) is $")
_PLACED = "(?:in|from|on|one of the) "  # what may stand behind "is" without "one that is"
_ROLE = re.compile(r"(?:that|which|who) is the ")
_LANDS = frozenset({"country", "state", "territory", "region", "subregion"})
_BODIES = frozenset(
    {"school", "university", "museum", "organisation", "organization", "institution", "employer", "library"}
    | {"owner", "operator", "publisher", "sponsor", "club", "society"}
)
_BODY = re.compile(
    r"(?:University|Museum|Institute|Academy|College|School|Ministry|Bank|Library|Church|"
    r"(?:\w+ )?(?:Club|Society|Association|Federation|Friends)) of "
)
_THE = re.compile(
    r"^(?:United|Isle of|Republic of|(?:\w+ )+Republic of|Federated|Kingdom of|Commonwealth of|State of|Union of) |"
    r"(?:^| )(?:Islands|Republic|States|Emirates|Kingdom|Territory|Territories|Lands|Isles|Federation)$|"
    r"^(?:Netherlands|Philippines|Maldives|Bahamas|Comoros|Seychelles|Gambia|Caribbean|Caribbean Netherlands|Vatican|Middle East|Americas)$|"
    r"^(?:UAE|UK|US|USA|EU)$"
)
_STARTS = re.compile(
    r"(?:, | and )(?=(?:of|that|which|who|whose|one of whose|with|without|where|in which|of which|for which|for whom) )"
)


class Wording(Protocol):
    """Puts patterns into words and reads words back: by templates (`Realiser`) or by a model
    (`synth.questions.fuzzy.model`)."""

    def write(self, pattern: Pattern, rng: random.Random) -> str: ...

    def read(self, text: str) -> list[Pattern]: ...


class Realiser:
    """Templates over the relations of one knowledge base.

    name        entity id or literal -> text
    find        (type or relation, text) -> the constants of that name: entity ids of a type, or the literal itself where
                the relation knows it
    extra       relation -> {"subject" | "object": clauses with {y}} of the user's own
    symmetric   relations that have words in the backward direction alone, the other being the same
    Raises ValueError for wrong `extra`.
    """

    def __init__(
        self,
        relations: Iterable[Relation],
        name: Callable[[str], str],
        find: Callable[[str, str], Sequence[str]],
        *,
        symmetric: frozenset[str] = frozenset(),
        extra: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    ) -> None:
        self.relations = {r.name: r for r in relations}
        self.name, self.find = name, find
        check(extra or {}, self.relations)
        self.phrases: dict[tuple[str, bool, str], list[tuple[bool, Phrase]]] = defaultdict(
            list
        )  # (relation, forward, kind) -> ...
        self._about: dict[tuple[str, bool], list[Phrase]] = defaultdict(list)  # (type, is a sentence) -> phrases
        for r in self.relations.values():
            for forward in (True,) if r.literal else (False,) if r.name in symmetric else (True, False):
                own = (extra or {}).get(r.name, {}).get("subject" if forward else "object", ())
                self._add(phrases(r, forward, own))
        for type_ in {r.domain for r in self.relations.values()} | {
            r.range for r in self.relations.values() if not r.literal
        }:
            self._add(names(type_))
        self._asks: dict[str, tuple[str, str]] = {}
        for r in self.relations.values():
            question = re.sub(r"^(a|an) ", "the ", r.ask(SLOT))
            if r.range == "number" and counts(r):
                question = re.sub(rf"^the {re.escape(r.label)} ", f"the {measure(r)[0]} ", question)
            before, _, after = question.partition(SLOT)
            self._asks[r.name] = before.removesuffix(f"the {spoken(r.domain)} "), after

    def _add(self, some: Iterable[tuple[bool, Phrase]]) -> None:
        for sentence, p in some:
            key = (p.relation or p.type, p.forward, p.kind)
            if (sentence, p) not in self.phrases[key]:
                self.phrases[key].append((sentence, p))
                self._about[p.type, sentence].append(p)

    # ---- writing

    def write(self, pattern: Pattern, rng: random.Random) -> str:
        """One of the paraphrases, chosen by `rng`. Raises ValueError for a pattern without a described root, or two
        nested clues in one."""
        root = pattern.root
        if not isinstance(root, Node) or not pattern.forward:
            raise ValueError(f"only a forward question about a described root has words here, not {pattern}")
        type_ = spoken(root.type)
        clues = rng.sample(root.clues, len(root.clues))
        clues.sort(key=nested)  # what is plain comes first
        whole = not self._asks[pattern.relation][1]  # "the place where the person whose ... studied" is hard to follow
        if whole and sum(map(nested, clues)) <= 1 and len(clues) <= 3 and rng.random() < 0.5:
            return self._ask(pattern.relation, f"the {type_} {self._joined(clues, root.type, rng)}", rng)
        opening = rng.choice(OPENINGS).format(a=indefinite(type_), t=type_)
        told = [
            _stopped(self._say(clue, root.type, True, rng)) for clue in (clues if rng.random() < 0.5 else clues[::-1])
        ]
        return " ".join([opening, *told, self._ask(pattern.relation, f"this {type_}", rng)])

    def _ask(self, relation: str, root: str, rng: random.Random) -> str:
        before, after = self._asks[relation]
        range_ = self.relations[relation].range
        what, np = (
            "Who is"
            if is_person(self.relations[relation].label if range_ == "string" else range_)
            else "Which is"
            if _HAVING.match(before)
            else "What are"
            if many(before.removeprefix("the "))
            else "What is",
            before + root + after,
        )
        if who := _WHO.match(np):
            return f"Who {np[who.end() :]}?"
        frame = rng.choice(ASKS_VALUE if range_ in KINDS else ASKS)
        return _stopped(frame[:-1].format(what=what, np=np)) if frame.endswith(".") else frame.format(what=what, np=np)

    def _joined(
        self, clues: Sequence[Clue | Named], type_: str, rng: random.Random, never: tuple[str, ...] = ()
    ) -> str:
        """Clauses as "A", "A and B", or "A, B and C", none of which begins with a word of `never` where it can be helped;
        the nested one is last. Raises ValueError for two of them."""
        if sum(map(nested, clues)) > 1:
            raise ValueError("two descriptions with clues of their own in one sentence cannot be told apart")
        first = [{_begins(p) for p in self._usable(c, type_, False)} - {"", *never} for c in clues]
        alike = (
            sorted(set.intersection(*first)) if len(clues) > 1 else []
        )  # "that has A and that borders B", not "with A and which borders B"
        begins = rng.choice(alike) if alike else ""
        avoid = (
            () if begins or len(clues) == 1 else ("with", "which", "")
        )  # "that has A and where B is C", not "with A and where B is C"; not "whose A is B and of a C"
        avoid = (*avoid, "that") if avoid and is_person(type_) else avoid  # "who" goes on as "who"
        avoid = (*avoid, *never)
        clauses = [self._say(c, type_, False, rng, begins=begins, avoid=avoid) for c in sorted(clues, key=nested)]
        return clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"

    def _usable(self, clue: Clue | Named, type_: str, sentence: bool) -> list[Phrase]:
        """What a clue can be said with, as a clause or a sentence. Raises ValueError where nothing can."""
        kind, flag = self._kind(clue)
        key = (type_, True, kind) if isinstance(clue, Named) else (clue.relation, clue.forward, kind)
        usable = [p for s, p in self.phrases[key] if s == sentence and p.flag == flag and p.type == type_]
        if kind == "name":
            name = self.name(str(inner(clue)))
            usable = [p for p in usable if _fits(name, p)] or usable
        if nested(clue):  # a description is easier to follow where it ends the sentence
            usable = [p for p in usable if not p.after] or usable
        if not usable:
            raise ValueError(f"there are no words for the clue {clue}")
        return usable

    def _say(
        self,
        clue: Clue | Named,
        type_: str,
        sentence: bool,
        rng: random.Random,
        *,
        begins: str = "",
        avoid: Collection[str] = (),
    ) -> str:
        """One clue as a clause or a sentence (without its stop); the clause begins with the word `begins`, where one is
        given, and with none of `avoid`, where it can."""
        kind, _ = self._kind(clue)
        usable = [p for p in self._usable(clue, type_, sentence) if not begins or _begins(p) == begins]
        if "" not in avoid:
            usable = [p for p in usable if p.before == "of "] or usable  # the shortest: "a nationality of Ann Lo"
        p = rng.choice([p for p in usable if _begins(p) not in avoid] or usable)
        told = kind == "description" and self._told_before(p)
        never: tuple[str, ...] = ()
        if told:  # no "is one of which the ...", no "is one that was born in ..."
            never = ("of", "that") if is_person(self._other(p)) else ("of",)
        filled = self._filled(clue, rng, never)
        if (
            kind == "name"
            and p.before.endswith(f"the {spoken(self._other(p))} ")
            and spoken(self._other(p)) in filled.lower().split()
        ):
            p = p._replace(before=p.before.removesuffix(f"the {spoken(self._other(p))} "))  # no "the lake Lake Chad"
        if kind == "name" and re.search(rf"\bthe (?:{re.escape(spoken(self._other(p)))} )?$", p.before):
            filled = filled.removeprefix("the ")  # no "the the Netherlands"
        if told:  # "whose nationality is that of Ann Lo"
            noun = re.escape(spoken(self._other(p)))
            filled = re.sub(rf"^(?:a|an|the) {noun} of (?!which )", "that of ", filled)
            filled = re.sub(rf"^(?:a|an) {noun} (?!one of )", "one ", filled)  # "whose artist is one who ..."
            if len(inner(clue).clues) == 1:  # type: ignore[union-attr]
                filled = re.sub(rf"^one (?:(?:that|which|who) is )?(?={_PLACED})", "", filled)  # "is in Verlo"
        text = p.before + filled + p.after
        return text[:1].upper() + text[1:] if sentence else text

    def _filled(self, clue: Clue | Named, rng: random.Random, never: tuple[str, ...] = ()) -> str:
        if isinstance(clue, Named):
            return clue.initial
        target = clue.target
        if isinstance(target, Span):
            return target.said
        same = self._kind(clue)[0] == "same"
        term = hub(clue) if same else inner(clue)
        if term is None:
            return ""
        if isinstance(term, str):
            return with_article(self.name(term), self.relations[clue.relation].domain if same else self._of(clue))
        noun = spoken(term.type)
        if not term.clues:
            return f"some {noun}"
        clauses, sole = self._joined(term.clues, term.type, rng, never), self._sole(term.clues)
        if sole and not isinstance(target, Than) and (role := _ROLE.match(clauses)):
            # "the writer of The Ash Quay", not "the person who is the writer of it"
            return f"the {clauses[role.end() :]}"
        return f"{f'the {noun}' if sole or isinstance(target, Than) else indefinite(noun)} {clauses}"

    def _sole(self, clues: Sequence[Clue | Named]) -> bool:
        """Whether a description says of itself that it fits one thing: the artist of a painting."""
        c = clues[0]
        return len(clues) == 1 and isinstance(c, Clue) and not c.forward and self.relations[c.relation].functional

    def _told_before(self, p: Phrase) -> bool:
        """Whether the words before a description end with its type: "whose next station is "."""
        return re.search(rf"\b{re.escape(spoken(self._other(p)))} (?:is|are) $", p.before) is not None

    def _kind(self, clue: Clue | Named) -> tuple[str, bool | int]:
        if hub(clue) is not None and self.phrases.get((clue.relation, True, "same")):  # type: ignore[union-attr]
            return "same", False
        return _kind(clue)

    def _of(self, clue: Clue | Named) -> str:
        """The type of what a clue about a relation leads to."""
        r = self.relations[clue.relation]  # type: ignore[union-attr]
        return r.range if clue.forward else r.domain  # type: ignore[union-attr]

    def _other(self, p: Phrase) -> str:
        """The type of what fills the slot of a phrase about a relation."""
        r = self.relations[p.relation]
        return r.range if p.forward else r.domain

    # ---- reading

    def read(self, text: str) -> list[Pattern]:
        """Every pattern that the text can mean; different ones only."""
        return list({canonical(p): p for p in self._told(text) + self._in_one(text)}.values())

    def _in_one(self, text: str) -> list[Pattern]:
        match = _ASKED.fullmatch(text)
        if not match:
            return []
        out = []
        for relation, (before, after) in self._asks.items():
            type_ = self.relations[relation].domain
            head = f"{before}the {spoken(type_)} "
            for phrase in self._asked(match, before):
                if phrase.startswith(head) and phrase.endswith(after):
                    middle = phrase[len(head) : len(phrase) - len(after)]
                    out += [
                        Pattern(relation=relation, forward=True, root=Node(type=type_, clues=c))
                        for c in self._clauses(middle, type_)
                    ]
        return out

    @staticmethod
    def _asked(match: re.Match[str], before: str) -> list[str]:
        """What a question may ask for, as the noun phrase that begins with `before`."""
        if match["c"]:
            who = _WHO.match(before)
            return [who[0] + match["c"]] if who else []
        return [match["a"]] if match["a"] else [*_unstopped(match["b"] + ".")]

    def _told(self, text: str) -> list[Pattern]:
        parts = re.split(r"(?<=\.) ", text)
        match = _ASKED.fullmatch(parts[-1]) if len(parts) > 2 else None
        if not match:
            return []
        out = []
        for relation, (before, after) in self._asks.items():
            type_ = self.relations[relation].domain
            openings = (o.format(a=indefinite(spoken(type_)), t=spoken(type_)) for o in OPENINGS)
            wording = f"{before}this {spoken(type_)}{after}"
            if wording in self._asked(match, before) and parts[0] in openings:
                for clues in self._sentences(parts[1:-1], type_):
                    out.append(Pattern(relation=relation, forward=True, root=Node(type=type_, clues=clues)))
        return out

    def _sentences(self, parts: Sequence[str], type_: str) -> list[tuple[Clue | Named, ...]]:
        """Clues of sentences; a name may hold a stop, so a sentence may be several parts."""
        if not parts:
            return [()]
        out = []
        for n in range(1, min(len(parts), 4) + 1):
            clues = [
                c
                for sentence in _unstopped(" ".join(parts[:n]))
                for c in self._one(sentence, type_, sentence=True, last=True)
            ]
            rest = self._sentences(parts[n:], type_) if clues else []
            out += [(clue, *more) for clue in clues for more in rest]
        return out

    def _clauses(self, text: str, type_: str) -> list[tuple[Clue | Named, ...]]:
        """All ways to read a list of clauses."""
        out: list[tuple[Clue | Named, ...]] = [(c,) for c in self._one(text, type_, sentence=False, last=True)]
        for gap in _STARTS.finditer(text):
            clues = self._one(text[: gap.start()], type_, sentence=False, last=False)
            if clues:
                out += [(clue, *more) for clue in clues for more in self._clauses(text[gap.end() :], type_)]
        return out

    def _one(self, text: str, type_: str, *, sentence: bool, last: bool) -> list[Clue | Named]:
        """All clues that a text means as a whole; only the `last` of a list may be nested."""
        out: list[Clue | Named] = []
        for p in self._about[type_, sentence]:
            begins = text.startswith(p.before) or sentence and not p.before
            if begins and text.endswith(p.after) and len(text) >= len(p.before) + len(p.after):
                slot = text[len(p.before) : len(text) - len(p.after)]
                out += self._read_slot(p, slot, last)
        return out

    def _read_slot(self, p: Phrase, slot: str, last: bool) -> list[Clue | Named]:
        if p.kind == "initial":
            return [Named(initial=slot, words=int(p.flag))] if len(slot) == 1 else []
        if p.kind in ("none", "third"):
            return [_clue(p, Nothing() if p.kind == "none" else Third(largest=bool(p.flag)))] if not slot else []
        if p.kind == "span":
            bounds = read_span(slot, self.relations[p.relation].range)
            return [_clue(p, Span(low=bounds[0], high=bounds[1], said=slot))] if bounds else []
        if p.kind == "than":
            return [_clue(p, Than(larger=bool(p.flag), other=t)) for t in self._described(p.type, slot, "the", last)]
        r, type_ = self.relations[p.relation], p.type if p.kind == "same" else self._other(p)
        where = r.name if p.forward and r.literal else type_
        readings: list[str | Node] = list(self.find(where, slot))
        bare = re.sub(r"^[Tt]he ", "", slot)
        if bare != slot and with_article(bare, type_) != bare:
            readings += [x for x in self.find(where, bare) if x not in readings]
        if p.kind in ("description", "same") and not r.literal:
            readings += self._described(type_, slot, indefinite(spoken(type_)).split()[0], last)
            if p.kind == "description" and self._told_before(p):
                noun = f"the {spoken(type_)} "
                if re.match(_PLACED, slot):
                    readings += self._described(type_, f"{noun}{Words.of(type_).that} is {slot}", "the", last)
                elif slot.startswith("one "):
                    readings += self._described(type_, noun + slot[4:], "the", last)
        if p.kind == "same":
            back = (Clue(relation=r.name, forward=False, target=t) for t in readings)
            return [_clue(p, Node(type=r.range, clues=(c,))) for c in back]
        return [_clue(p, t) for t in readings]

    def _described(self, type_: str, text: str, article: str, last: bool) -> list[str | Node]:
        text = text[:1].lower() + text[1:]  # a description may begin a sentence
        if text == f"some {spoken(type_)}":
            return [Node(type=type_, clues=())]
        head, the = f"{article} {spoken(type_)} ", f"the {spoken(type_)} "
        if article != "the" and text.startswith("that of "):
            head = "that "
        if last and text.startswith(head):
            return [Node(type=type_, clues=c) for c in self._clauses(text.removeprefix(head), type_)]
        told = []
        if last and text.startswith(the):  # "the artist of Fog in Rain": one by its words
            told += self._clauses(text.removeprefix(the), type_)
        if last and article != "the" and text.startswith("the "):  # "the place of death of Ann Lo" is a place too
            told += self._clauses(f"{Words.of(type_).that} is {text}", type_)
        return [Node(type=type_, clues=c) for c in told if self._sole(c)]


def _begins(p: Phrase) -> str:
    """The word with which a clause begins; "" for "of Y", beside which no other clause reads well."""
    return "" if p.before == "of " or p.kind == "none" and p.before.startswith("of no ") else p.before.split(" ")[0]


def _fits(name: str, p: Phrase) -> bool:
    """Whether a phrase suits a name or a bare word: "whose occupation is pilot", not "with pilot as their occupation"; "on
    the south coast", not "with south as its coast" (and not "on the Amber Coast coast"); "has radio as one of its
    services", not "one of whose services is radio", which is for descriptions."""
    if p.after.removeprefix(" ") in SIDES or p.after.removeprefix(" as its ") in SIDES or _ON_SIDE.search(p.before):
        return (_POINT.fullmatch(name) is not None) == p.before.endswith(" on the ")
    return not (p.after.startswith(" as their ") and name[:1].islower() or p.before.startswith("one of whose "))


def _stopped(text: str) -> str:
    """A sentence with its one stop: a name may end in one ("Acme Inc.")."""
    return text if text.endswith(".") else text + "."


def _unstopped(text: str) -> tuple[str, ...]:
    """What a sentence may have been before its stop: the stop may be that of a name."""
    return (text[:-1], text) if re.search(r"\w\.$", text) else (text[:-1],)


def with_article(name: str, type_: str) -> str:
    """A name as English says it: the Netherlands, the Isle of Man, the University of Verlo, the Coast Line. Only of
    countries, schools and their like: "United" may be a band."""
    the = (type_ in _LANDS and _THE.search(name)) or (type_ in _BODIES and _BODY.match(name))
    the = the or (type_.split("_")[-1] == "line" and re.fullmatch(r"(?:\w+ )+[Ll]ine", name))
    return f"the {name}" if the else name


def undirected(pattern: Pattern, relations: Collection[str]) -> str:
    """The canonical form of a pattern in which the direction of some relations is not told: "shares a border with" says
    neither."""

    def erased(node: Node) -> Node:
        return Node(type=node.type, clues=tuple(map(clue, node.clues)))

    def clue(c: Clue | Named) -> Clue | Named:
        term = inner(c)
        if isinstance(term, Node):
            assert isinstance(c, Clue)
            c = replace(c, target=replace(c.target, other=erased(term)) if isinstance(c.target, Than) else erased(term))
        return replace(c, forward=False) if isinstance(c, Clue) and c.relation in relations else c

    return canonical(replace(pattern, root=erased(pattern.root)) if isinstance(pattern.root, Node) else pattern)


def misread(
    pattern: Pattern, read: Sequence[Pattern], either: Collection[str], proved: Callable[[Pattern], bool]
) -> str | None:
    """None where a text says its pattern, else what it says instead. Readings that differ in the direction of `either`
    relations alone, which the words do not tell, are one question where each of them is `proved`."""
    if pattern not in read and canonical(pattern) not in map(canonical, read):
        return f"the text reads as {[to_json(p) for p in read]}"
    others = [p for p in read if canonical(p) != canonical(pattern)]
    if any(undirected(p, either) != undirected(pattern, either) for p in others) or not all(map(proved, others)):
        return f"the text reads as {[to_json(p) for p in others]} too"
    return None


def nested(clue: Clue | Named) -> bool:
    """Whether a clue leads to a description with clues of its own: its clause comes last."""
    term = hub(clue) or inner(clue)
    return isinstance(term, Node) and bool(term.clues)


def _kind(clue: Clue | Named) -> tuple[str, bool | int]:
    if isinstance(clue, Named):
        return "initial", clue.words
    target = clue.target
    if isinstance(target, Third):
        return "third", target.largest
    if isinstance(target, Than):
        return "than", target.larger
    kinds = {Span: "span", Nothing: "none", str: "name", Node: "description"}
    return kinds[type(target)], False


def _clue(p: Phrase, target: str | Node | Span | Third | Than | Nothing) -> Clue:
    return Clue(relation=p.relation, forward=p.forward, target=target)
