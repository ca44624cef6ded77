"""Searchers without a model: programs that answer questions with search, open and find, to measure how hard a question
is.

- `closed_book`: no tool, the answer that is right most often. It shows how often a guess is right
- `one_search`: the question as the query. It shows whether one look is enough
- `greedy`: a query for each clue, the best page opened, no thought. It shows whether looking without thinking is enough
- `oracle`: knows the pattern and resolves it from one leaf to the root. It gives a lower bound of the calls, and every
  question must be answered
- `branch_and_check`: knows the clues: candidates of each, what they share, and then every clue that is left on each of
  them. It shows the cost without knowing where to begin

`tools` counts and keeps every call, so that a run can be written as a demonstration (`synth.demonstrations.browsing`).
The number of hops does not measure difficulty: a question of eight hops can take two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from synth.knowledge.kb import KB
from synth.knowledge.reading import Reader
from synth.types import Problem, Score, Scored
from synth.verify import verify


class SearcherPiece(Protocol):
    """Answers a question without a model, to measure how hard it is.

    Args:
        problem: the question
        tools: search, open and find, with a budget of calls and a memory
        world: the knowledge base behind them

    Returns:
        the answer, or None if there is none
    """

    def __call__(self, problem: Problem, tools: Tools, world: World) -> str | None: ...


NOTHING = "nothing found"


class SearchIndex(Protocol):
    """What `synth.search.index.SearchIndex` offers."""

    def search(self, query: str, k: int = 3) -> str: ...
    def open(self, page: str, part: int = 1) -> str: ...
    def find(self, text: str, page: str = "", k: int = 5) -> str: ...


class Spent(LookupError):
    """More calls would be needed than are allowed."""


@dataclass(frozen=True)
class Call:
    """One call of a tool: `said` is what a turn would say in its tag, `heard` the result."""

    tool: str
    said: str
    heard: str


@dataclass
class Tools:
    """An index with a budget and a memory: a call that was made before is remembered and not made again."""

    index: SearchIndex
    most: int = 600
    calls: list[Call] = field(default_factory=list)
    _known: dict[tuple[str, str], str] = field(default_factory=dict)

    def search(self, query: str) -> str:
        return self._call("search", query, lambda: self.index.search(query))

    def open(self, page: str, part: int = 1) -> str:
        return self._call("open", page if part == 1 else f"{page} | {part}", lambda: self.index.open(page, part))

    def find(self, argument: str) -> str:
        """`said` is "words | page", or words alone for all pages (a turn says "words | *": alone they mean the page
        opened last)."""
        words, _, page = argument.partition(" | ")
        return self._call("find", argument if page else f"{words} | *", lambda: self.index.find(words, page))

    def _call(self, tool: str, argument: str, make: Callable[[], str]) -> str:
        if (tool, argument) not in self._known:
            if len(self.calls) >= self.most:
                raise Spent(f"{self.most} calls are not enough")
            self._known[tool, argument] = make()
            self.calls.append(Call(tool, argument, self._known[tool, argument]))
        return self._known[tool, argument]


@dataclass(frozen=True)
class World:
    """What every searcher knows of the world: the words of its relations and its names (a lexicon), and no fact.

    priors   relation, direction -> (most frequent answer, its share): what a guess is worth
    """

    kb: KB
    reader: Reader
    priors: Mapping[tuple[str, bool], tuple[str, float]]

    @staticmethod
    def of(kb: KB) -> World:
        given: dict[tuple[str, bool], dict[str, int]] = {}
        for f in kb.facts.values():
            for forward, value in ((True, f.value), (False, f.subject)):
                count = given.setdefault((f.relation, forward), {})
                count[value] = count.get(value, 0) + 1
        priors = {}
        for key, count in given.items():
            best = max(sorted(count), key=count.__getitem__)
            priors[key] = kb.text(best), count[best] / sum(count.values())
        return World(kb, Reader.of(kb), priors)


Searcher = Callable[[Problem, Tools, World], str | None]


@dataclass(frozen=True)
class Run:
    """How a searcher fared on a question. right: whether its answer is; calls: how many it made; spent: whether it ran
    out of them."""

    right: bool
    calls: int
    spent: bool
    answer: str | None
    made: tuple[Call, ...]


def run(searcher: Searcher, problem: Problem, index: SearchIndex, world: World, *, most: int = 600) -> Run:
    """One question, one searcher, at most `most` calls."""
    tools, spent, answer = Tools(index, most), False, None
    try:
        answer = searcher(problem, tools, world)
    except Spent:
        spent = True
    score: Score | None = verify(problem, answer) if answer is not None else None
    right = isinstance(score, Scored) and score.value == 1.0
    return Run(right, len(tools.calls), spent, answer, tuple(tools.calls))
