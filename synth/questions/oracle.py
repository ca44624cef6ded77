"""Oracle demonstrations: a question with a known pattern is answered hop by hop with the real search tool.

The oracle knows the pattern and the wording of each relation; of entities it knows only the names, as a lexicon to
separate the names of a list. Every answer is read from the text that the tool returned, so a demonstration that ends
in the right answer proves that the question can be answered from the passages. The number of its searches is the number
of hops:

    <search>river Danu</search>  ->  The river Danu flows through Norvia.
    <search>capital of Norvia</search>  ->  The capital of Norvia is Zelton.
    <answer>Zelton</answer>

A variable with two clues costs the search for its candidates and one more: the second list where the clue has one (what
does this river flow through?), else a look at each candidate but the last. A detour is one query that misses (the name
alone, a wrong relation, or the relation alone), followed by the right one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from synth.knowledge.kb import KB
from synth.knowledge.reading import Reader
from synth.questions.pattern import Clue, Named, Node, exact, from_json
from synth.types import Demonstration, Message, Problem, Quarantined
from synth.verify.exact import normalise

Search = Callable[[str], str]


class Stuck(LookupError):
    """The text that the search tool returned does not lead on; the message says where."""


class Oracle:
    """Plays questions over one KB. `play` returns a `Demonstration`, or `Quarantined` with reason "not_answerable"."""

    def __init__(self, kb: KB) -> None:
        self.kb = kb
        self.read = Reader.of(kb).read

    def play(
        self, problem: Problem, search: Search, *, rng: random.Random | None = None, detour: float = 0.0
    ) -> Demonstration | Quarantined:
        """The conversation that answers `problem`; with probability `detour` one search is first done wrong (drawn from
        `rng`)."""
        wrong = (
            rng.randrange(max(1, int(problem.difficulty["hops"])))
            if rng is not None and rng.random() < detour
            else None
        )
        game = _Game(self, search, rng, wrong)
        pattern = from_json(problem.lineage["pattern"])
        try:
            root = self._resolve(pattern.root, game)
            answers = game.ask(pattern.relation, root, back=not pattern.forward)
            if len(answers) != 1:
                raise Stuck(f"the last search gives {len(answers)} answers: {', '.join(answers)}")
            if normalise(answers[0]) != normalise(problem.answer):
                raise Stuck(f"the searches lead to {answers[0]!r} and not to {problem.answer!r}")
        except Stuck as error:
            return Quarantined(
                id=problem.id, stage="oracle", reason="not_answerable", evidence=f"{problem.question} | {error}"
            )
        messages = [
            *problem.prompt,
            *game.messages,
            Message(role="assistant", content=f"<answer>{problem.answer}</answer>"),
        ]
        return Demonstration.make(
            problem=problem.id, messages=messages, calls=len(game.queries), detours=game.detours, split=problem.split
        )

    def _resolve(self, term: str | Node, game: _Game) -> str:
        """The name of the entity that a term describes."""
        if isinstance(term, str):
            return self.kb.text(term)
        first, *more = term.clues
        first, target = exact(first)
        names = game.ask(first.relation, self._resolve(target, game), back=first.forward)
        for clue in more:
            names = self._narrow(names, clue, game)
        if len(names) != 1:
            raise Stuck(f"{len(names)} candidates are left for a {term.type}: {', '.join(names)}")
        return names[0]

    def _narrow(self, names: list[str], clue: Clue | Named, game: _Game) -> list[str]:
        clue, target = exact(clue)
        known = self._resolve(target, game)
        if not clue.forward:
            listed = game.ask(clue.relation, known, back=False)
            return [n for n in names if n in listed]
        for i, name in enumerate(names):
            if i == len(names) - 1 or known in game.ask(clue.relation, name, back=False):
                return [name]
        return []

    def query(self, relation: str, known: str, back: bool) -> str:
        r = self.kb.relations[relation]
        return r.query_back(known) if back else r.query(known)

    def misses(self, relation: str, known: str, back: bool, rng: random.Random) -> Iterator[str]:
        """Queries that a careless searcher might send instead, in random order."""
        r = self.kb.relations[relation]
        near = [s for s in self.kb.relations.values() if s.name != relation and s.domain == r.domain]
        queries = sorted({known, *(self.query(s.name, known, back) for s in near)})
        yield from rng.sample(queries, len(queries))
        yield r.label  # for the entity that every query about it finds


class _Game:
    """The messages so far. Every query is sent once, or the oracle is stuck: repeated queries are what a demonstration
    must not show."""

    def __init__(self, oracle: Oracle, search: Search, rng: random.Random | None, wrong: int | None) -> None:
        self.oracle, self.search, self.rng, self.wrong = oracle, search, rng, wrong
        self.messages: list[Message] = []
        self.queries: list[str] = []
        self.detours = self.steps = 0

    def ask(self, relation: str, known: str, *, back: bool) -> list[str]:
        """Search along one relation and read what the passages say. Raises Stuck where they say nothing."""
        query = self.oracle.query(relation, known, back)
        if self.steps == self.wrong and self.rng is not None:
            for miss in self.oracle.misses(relation, known, back, self.rng):
                if (
                    miss != query
                    and miss not in self.queries
                    and not self.oracle.read(relation, self.search(miss), known, back)
                ):
                    self._send(miss)
                    self.detours += 1
                    break
        self.steps += 1
        text = self._send(query)
        values = self.oracle.read(relation, text, known, back)
        if not values:
            raise Stuck(f"the search {query!r} does not return the fact: {text!r}")
        return values

    def _send(self, query: str) -> str:
        if query in self.queries:
            raise Stuck(f"the query {query!r} would be sent twice")
        self.queries.append(query)
        text = self.search(query)
        self.messages += [
            Message(role="assistant", content=f"<search>{query}</search>"),
            Message(role="tool", content=text),
        ]
        return text


def replays(demonstration: Demonstration, search: Search) -> bool:
    """Whether the search tool gives again, byte for byte, every result that the demonstration shows."""
    calls = zip(demonstration.messages, demonstration.messages[1:])
    return all(search(query_of(text.content)) == heard.content for text, heard in calls if heard.role == "tool")


def query_of(text: str) -> str:
    """The query of an assistant turn `<search>query</search>`. Raises ValueError where there is none."""
    match = re.fullmatch(r"<search>(.*)</search>", text, flags=re.DOTALL)
    if not match:
        raise ValueError(f"the turn {text!r} before a search result is no <search>query</search>")
    return match[1]
