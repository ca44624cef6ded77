"""Reading pages: what the searchers that follow clues have in common."""

from __future__ import annotations

from collections.abc import Iterator

from synth.questions.fuzzy.spans import value_of
from synth.questions.pattern import Clue, Named, Node, Nothing, Pattern, Span, Than, Third, from_json
from synth.search.index import table_title
from synth.search.searchers import Tools, World
from synth.types import Problem


def pattern_of(problem: Problem) -> Pattern:
    """The pattern in the lineage of a question. Raises LookupError where there is none."""
    if "pattern" not in problem.lineage:
        raise LookupError(
            f"problem {problem.id} ({problem.family}) is no question about a knowledge base: it has no pattern"
        )
    return from_json(problem.lineage["pattern"])


MOST_LINES = 5  # that `find` gives


class Pages:
    """The pages that a searcher has before it. Everything is a name; what it bears is read off sentences."""

    def __init__(self, tools: Tools, world: World) -> None:
        self.tools, self.world = tools, world

    def page(self, name: str) -> str:
        """All of a page; of several pages that bear the name, all of each."""
        ids = self.tools.open(name).partition(f"{name!r}: ")[2].split("; ") if self._shared(name) else [name]
        return "\n".join(part for id in ids for part in self._parts(id))

    def _parts(self, page: str) -> Iterator[str]:
        part, last = 1, 1
        while part <= last:
            text = self.tools.open(page, part)
            body, _, more = text.rpartition("\n(part ")
            last = int(more.split()[-1].rstrip(")")) if body and more else 1
            yield body if last > 1 else text
            part += 1

    def ends(self, name: str, relation: str, forward: bool, *, whole: bool = True) -> list[str]:
        """What the page of a name says at the other end of a relation; not `whole`: where some of it is enough. A
        literal has no page: the sentences that state it are found."""
        r, read = self.world.kb.relations[relation], self.world.reader.read
        if forward:
            names = read(relation, self.tools.open(name), name, False)
            if names or not self._long(name):
                return names if not self._shared(name) else read(relation, self.page(name), name, False)
            before, _, _ = r.sentence(name, ["\0"]).partition(
                "\0"
            )  # a long page is not read to its end: "The area of Norway is"
            return read(relation, self.tools.find(f"{before.strip()} | {name}"), name, False)
        if not r.literal and self._long(name) and not self._shared(name):  # "shares a border with", on this page
            fragments = r.sentence("\0", ["\0"]).split("\0")
            heard = self.tools.find(f"{max(fragments, key=len).strip(' .')} | {name}")
            names = read(relation, heard, name, True)
            if heard.count("\n") + 1 < MOST_LINES or (names and not whole):
                return names
        if not r.literal:
            return read(relation, self.page(name), name, True)
        before, _, after = r.sentence("\0", [name]).partition("\0")
        phrase = (after if name in after else before).strip(" .")  # "is Senegalese"
        for text in (phrase, name):
            heard = self.tools.find(text)
            if heard.count("\n") + 1 >= MOST_LINES:  # there may be more of them
                return [x for x, value in self.rows(relation) if value == name]
            if names := read(relation, heard, name, True):
                return names
        return []

    def _long(self, name: str) -> bool:
        return self.tools.open(name).rpartition("\n")[2].startswith("(part ")

    def _shared(self, name: str) -> bool:
        return " pages are called " in self.tools.open(name)

    def numbers(self, names: list[str], relation: str) -> list[float]:
        """The values that are numbers, years or dates."""
        kind = self.world.kb.relations[relation].range
        return [v for t in names if (v := value_of(t, kind)) == v]

    def rows(self, relation: str) -> list[tuple[str, str]]:
        """(name, value) of the table of a relation, read part by part."""
        lines = (
            line for part in self._parts(table_title(self.world.kb.relations[relation])) for line in part.split("\n")
        )
        return [(name, value) for name, gap, value in (line.partition(": ") for line in lines) if gap]

    def table(self, relation: str) -> dict[str, float]:
        """Name -> value of a table of numbers."""
        kind = self.world.kb.relations[relation].range
        return {name: v for name, text in self.rows(relation) if (v := value_of(text, kind)) == v}

    def known(self, type: str, name: str) -> bool:
        return self.world.reader.known(type, name)

    def holds(self, name: str, clue: Clue | Named) -> bool:
        """Whether the pages say that a clue is true of a name."""
        if isinstance(clue, Named):
            return name[:1] == clue.initial and clue.words in (0, name.count(" ") + 1)
        target = clue.target
        if isinstance(target, Third):
            return name in self.third(clue.relation, target.largest)
        some = isinstance(target, Nothing) or (isinstance(target, Node) and not target.clues)
        values = self.ends(name, clue.relation, clue.forward, whole=not some)
        if isinstance(target, Nothing):
            return not values
        if isinstance(target, str):
            return self.world.kb.text(target) in values
        if isinstance(target, Node):
            return any(all(self.holds(x, c) for c in target.clues) for x in values if self.known(target.type, x))
        return any(self.compares(v, clue.relation, target) for v in self.numbers(values, clue.relation))

    def compares(self, value: float, relation: str, target: Span | Than) -> bool:
        if isinstance(target, Span):
            return target.low <= value <= target.high
        others = [self.world.kb.text(target.other)] if isinstance(target.other, str) else self.members(target.other)
        against = self.numbers([x for o in others for x in self.ends(o, relation, True)], relation)
        return any(value > v if target.larger else value < v for v in against)

    def third(self, relation: str, largest: bool) -> set[str]:
        """The names in the top or bottom third of a table; values equal to the last of the third count."""
        table = self.table(relation)
        values = sorted(table.values())
        last = max(0, len(values) // 3 - 1)
        edge = values[-1 - last] if largest else values[last]
        return {name for name, v in table.items() if (v >= edge if largest else v <= edge)}

    def candidates(self, clue: Clue | Named) -> list[str] | None:
        """All names that satisfy one clue; None where nothing lists them."""
        if (
            isinstance(clue, Named)
            or isinstance(clue.target, Nothing)
            or clue.target == Node(type=getattr(clue.target, "type", ""), clues=())
        ):
            return None  # a name, an absence, "some country": nothing lists what satisfies it
        if isinstance(clue.target, Third):
            return sorted(self.third(clue.relation, clue.target.largest))
        if isinstance(clue.target, Span | Than):
            target = clue.target
            return sorted(
                name for name, v in self.table(clue.relation).items() if self.compares(v, clue.relation, target)
            )
        ends = [self.world.kb.text(clue.target)] if isinstance(clue.target, str) else self.members(clue.target)
        return list(dict.fromkeys(x for end in ends for x in self.ends(end, clue.relation, not clue.forward)))

    def members(self, node: Node) -> list[str]:
        """All names that satisfy every clue of a node. Overridden by how a searcher goes about it."""
        raise NotImplementedError
