"""The oracle: answers a tree by opening pages and reading them, knowing only the pattern.

A page holds what is said about one name, in sentences: `open(name)`. The oracle starts at a constant, follows the
branch to all candidates for the root, and checks every other clue on the candidate's page (and on pages linked from
it). It reads only text, so its success proves that the answer can be found; the number of pages that it opens is a
lower bound of the work, and the measure of difficulty. A table of all values of one relation ("countries by area")
counts as one page: thirds need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from synth.knowledge.kb import Passage, Relation
from synth.knowledge.reading import Reader
from synth.questions.fuzzy.graph import Graph, Rows
from synth.questions.fuzzy.spans import value_of
from synth.questions.pattern import FAR, MAYBE, Clue, Named, Node, Nothing, Pattern, Span, Than, Third, steps

Open = Callable[[str], str]  # name -> sentences about it, one per line; "" where there is no such page


class Stuck(LookupError):
    """The pages do not lead on, or too many would have to be opened; the message says where."""


class Oracle:
    """Answers patterns.

    name    constant -> its text        open    name -> page        table   relation -> all its values, as text
    most    pages that it opens at most
    """

    def __init__(
        self,
        reader: Reader,
        name: Callable[[str], str],
        open: Open,
        table: Callable[[str], Sequence[str]],
        *,
        most: int = 600,
    ) -> None:
        self.reader, self.name, self.open, self.table, self.most = reader, name, open, table, most
        self.said = lru_cache(maxsize=1 << 17)(
            self._said
        )  # pages do not change, and popular ones are read again and again
        self._cuts: dict[str, tuple[float, float]] = {}

    def play(self, pattern: Pattern) -> tuple[list[str], int]:
        """(the answers found, pages opened). Raises Stuck."""
        game = _Game(self)
        assert isinstance(pattern.root, Node)
        answers = [a for root in game.resolve(pattern.root) for a in game.read(root, pattern.relation, pattern.forward)]
        return list(dict.fromkeys(answers)), len(game.pages)

    def _said(self, name: str, relation: str, forward: bool) -> list[str]:
        """What the page of a name says under a relation: its objects (`forward`), or those whose object it is."""
        return self.reader.read(relation, self.open(name), name, not forward)

    def cuts(self, relation: str) -> tuple[float, float]:
        """(least value that may be counted into the top third, greatest into the bottom third), see `Third`."""
        if relation not in self._cuts:
            kind = self.reader.relations[relation].range
            values = sorted(v for t in self.table(relation) if (v := value_of(t, kind)) == v)
            last = max(0, len(values) * MAYBE // 30 - 1)
            self._cuts[relation] = (values[-1 - last], values[last])
        return self._cuts[relation]


class _Game:
    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.pages: set[str] = set()

    def read(self, name: str, relation: str, forward: bool) -> list[str]:
        """`Oracle.said`, the page opened once. Raises Stuck for one page too many."""
        if name not in self.pages:
            if len(self.pages) == self.oracle.most:
                raise Stuck(f"more than {self.oracle.most} pages would have to be opened")
            self.pages.add(name)
        return self.oracle.said(name, relation, forward)

    def resolve(self, node: Node) -> list[str]:
        """The names of all that satisfy a node, from its clue nearest to a constant."""
        lead = min(node.clues, key=steps, default=None)
        if not isinstance(lead, Clue) or not isinstance(lead.target, str | Node) or steps(lead) >= FAR - 1:
            raise Stuck(f"nothing says where to begin to look for a {node.type}")
        ends = [self.oracle.name(lead.target)] if isinstance(lead.target, str) else self.resolve(lead.target)
        names = dict.fromkeys(x for end in ends for x in self.read(end, lead.relation, not lead.forward))
        return [
            x
            for x in names
            if self.oracle.reader.known(node.type, x) and all(self.holds(x, c) for c in node.clues if c is not lead)
        ]

    def holds(self, name: str, clue: Clue | Named) -> bool:
        """Whether the pages say that a clue is true of a name."""
        if isinstance(clue, Named):
            return name[:1] == clue.initial and clue.words in (0, name.count(" ") + 1)
        target = clue.target
        values = self.read(name, clue.relation, clue.forward)
        if isinstance(target, Nothing):
            return not values
        if isinstance(target, str):
            return self.oracle.name(target) in values
        if isinstance(target, Node):
            known = (x for x in values if self.oracle.reader.known(target.type, x))
            return any(all(self.holds(x, c) for c in target.clues) for x in known)
        return any(self._compares(value, clue.relation, target) for value in self._values(values, clue.relation))

    def _values(self, texts: Sequence[str], relation: str) -> list[float]:
        kind = self.oracle.reader.relations[relation].range
        return [v for t in texts if (v := value_of(t, kind)) == v]

    def _compares(self, value: float, relation: str, target: Span | Third | Than) -> bool:
        if isinstance(target, Span):
            return target.low <= value <= target.high
        if isinstance(target, Third):
            self.pages.add(f"\0table {relation}")
            top, bottom = self.oracle.cuts(relation)
            return value >= top if target.largest else value <= bottom
        others = [self.oracle.name(target.other)] if isinstance(target.other, str) else self.resolve(target.other)
        against = [v for o in others for v in self._values(self.read(o, relation, True), relation)]
        return any(value > v if target.larger else value < v for v in against)


def pages_of(passages: Sequence[Passage], mentions: Callable[[Passage], Sequence[str]]) -> Open:
    """Pages of passages: those about a name, and those that mention it as an object (`mentions` of each)."""
    pages: dict[str, dict[str, None]] = {}
    for p in passages:
        for name in (p.title, *mentions(p)):
            pages.setdefault(name, {})[p.text] = None
    texts = {name: "\n".join(lines) for name, lines in pages.items()}
    return lambda name: texts.get(name, "")


def pages_from(graph: Graph, bearers: Callable[[str], Sequence[int]]) -> Open:
    """Pages written when they are opened, from a graph: for worlds too large to write down. `bearers`: the numbers of
    what bears a name."""

    of: dict[
        str, list[tuple[Rows, bool, Relation]]
    ] = {}  # entity type, or relation of a literal -> what may be said of it
    for column in graph.columns.values():
        r = column.relation
        of.setdefault(r.domain, []).append((column.forward, True, r))
        of.setdefault("\0" if r.literal else r.range, []).append((column.backward, False, r))

    def page(name: str) -> str:
        lines = []
        text = graph.postings.text
        for x in bearers(name):
            for rows, forward, r in of.get(graph.types[graph.type_of[x]] if x < graph.n else "\0", ()):
                ends = (text(int(y)) for y in rows.row(x))
                lines += [r.sentence(name, [y]) if forward else r.sentence(y, [name]) for y in ends]
        return "\n".join(lines)

    return page
