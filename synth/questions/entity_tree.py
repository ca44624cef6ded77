"""Entity-tree questions: the functional attribute of a root that is named (one hop) or described by clues (more hops).

    1 hop    What is the capital of Norvia?
    2 hops   What is the capital of the country that the river Danu flows through?
    3 hops   Name the currency of the country whose capital is the birthplace of Lio Rel.
             Who is the mayor of the city that is ... and ...?     (two clues, neither enough alone)

Difficulty: hops = searches that an oracle needs; clues = the most clues of one variable (0 where the root is named, 2
for an intersection). A question is grown (`synth.questions.grow`), put into words (`synth.questions.wording`), and must
then pass every check of `refute`, including the proof by SQL (`synth.questions.prove`); the first failed check is its
reason code in quarantine. Question i of a cell (split, hops) depends on the seed, the cell and i alone. The split is
that of the root. A test root is sealed: no train or valid question names it, passes through it, or has it as its
answer.

The idea follows InfoAgent (Zhang et al. 2025, arXiv:2509.25189: ask an attribute of the root of an entity tree);
uniqueness and necessity of the clues are computed here instead of left to a model. Not done: fuzzy clues (ranges,
periods), more than two clues of one variable, comparison and negation.
"""

from __future__ import annotations

import random
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice, repeat

from synth.knowledge.kb import KB, Fact
from synth.lookup import Lookup
from synth.questions.fuzzy import phrases
from synth.questions.grow import Grower
from synth.questions.oracle import Oracle
from synth.questions.pattern import (
    Node,
    Pattern,
    answers,
    canonical,
    constants,
    exact,
    extension,
    nodes,
    support,
    to_json,
)
from synth.questions.prove import Prover
from synth.questions.wording import Wording
from synth.types import Problem, Quarantined, Split, seed_for, split_of
from synth.verify.exact import normalise


CACHE = 65_536  # KiB of the tables for proofs that are in memory


class Turns:
    """Queues of roots that take turns, each for as long as it has one: looked through as far as they are asked for.

    queues: of each what is asked, (relation, forward); its roots; the places of those that count, in an order.
    """

    def __init__(self, queues: Sequence[tuple[tuple[str, bool], Sequence[str], Iterator[int]]]) -> None:
        self._queues = queues
        self._which, self._place = array("h"), array("i")
        self._rest = self._turns()

    def _turns(self) -> Iterator[tuple[int, int]]:
        still = list(range(len(self._queues)))
        while still:
            left = []
            for i in still:
                if (place := next(self._queues[i][2], None)) is not None:
                    left.append(i)
                    yield i, place
            still = left

    def at(self, index: int, *, again: bool) -> tuple[str, bool, str] | None:
        """The root of a place; `again`: from the first on where there are no more. None where there is none."""
        for which, place in islice(self._rest, max(0, index + 1 - len(self._place))):
            self._which.append(which)
            self._place.append(place)
        if index >= len(self._place) and not (again and self._place):
            return None
        index %= len(self._place)
        ask, roots, _ = self._queues[self._which[index]]
        return *ask, roots[self._place[index]]


class EntityTrees:
    """Makes and checks the questions of one KB.

    search      the tool with which an oracle must be able to answer every question (check "not_answerable")
    two_clues, closed_world   of `synth.questions.grow.Grower`
    max_words, max_guess      checks "too_long" (words of a question) and "guessable" (share of the most frequent answer
                              to what is asked)

    Raises ValueError if no relation of the KB is functional in either direction: then there are no questions.
    """

    def __init__(
        self,
        kb: KB,
        search: Callable[[str], str],
        *,
        seed: int,
        two_clues: float = 0.5,
        closed_world: bool = False,
        max_words: int = 25,
        max_guess: float = 0.1,
    ) -> None:
        self.kb, self.search, self.seed = kb, search, seed
        self.max_words, self.max_guess = max_words, max_guess
        self.wording, self.oracle = Wording(kb), Oracle(kb)
        self.grower = Grower(kb, self.wording, two_clues=two_clues, closed_world=closed_world)
        connection = sqlite3.connect("")  # a temporary file
        for name in ("main", "temp"):
            connection.execute(f"PRAGMA {name}.cache_size = -{CACHE}")
        connection.execute("PRAGMA journal_mode = OFF")
        kb.sqlite(connection)
        self.prover = Prover(connection, symmetric=[r.name for r in kb.relations.values() if phrases.symmetric(r)])
        aliases = {normalise(a) for e in kb.entities.values() for a in e.aliases}
        names = ({normalise(x) for x in (e.name, *e.aliases)} for e in kb.entities.values()) if aliases else ()
        self._shared = Counter(n for some in names for n in some if n in aliases)
        self._entities, self._guess = dict[tuple[str, bool], Sequence[str]](), dict[tuple[str, bool], float]()
        for relation, forward, entities, share in self._askable():
            self._entities[relation, forward], self._guess[relation, forward] = entities, share
        self._shuffled = lru_cache(maxsize=None)(self._shuffle)  # cells of any hops share them
        self._cells: dict[tuple[Split, int], Turns] = {}
        if not self._guess:
            raise ValueError(
                "no relation of the knowledge base is functional in either direction, so no question has one answer: "
                "declare a relation functional, or add sources"
            )

    # ---- what can be asked

    def _askable(self) -> Iterator[tuple[str, bool, Sequence[str], float]]:
        """What can be asked (relation, forward) about which entities, and the share of questions that the most frequent
        answer gets right."""
        relations = self.kb.relations.values()
        asks = [(r.name, True) for r in relations if r.functional] + [
            (r.name, False) for r in relations if r.inverse_functional and not r.literal
        ]
        for name, forward in asks:
            entities, share = self.kb.askable(name, forward)
            if entities:
                yield name, forward, entities, share

    def roots(self, split: Split, hops: int) -> Turns:
        """(relation, forward, root) of all that a cell can ask: shuffled, relations taking turns so that none crowds
        out the others.

        Of more hops: roots that some clues describe, asked for what cannot be guessed; so that no time goes into what
        can only fail.
        """
        if (split, hops) not in self._cells:
            self._cells[split, hops] = Turns(
                [
                    (
                        ask,
                        self._entities[ask],
                        filter(partial(self._describable, ask, hops), self._shuffled(ask, split)),
                    )
                    for ask, share in self._guess.items()
                    if hops == 1 or share <= self.max_guess
                ]
            )
        return self._cells[split, hops]

    def _shuffle(self, ask: tuple[str, bool], split: Split) -> array[int]:
        """The places of the entities of a split, in an order of their own."""
        some = array("i", (i for i, x in enumerate(self._entities[ask]) if split_of(x) == split))
        relation, forward = ask
        random.Random(seed_for(self.seed, "questions", relation, split, forward)).shuffle(some)
        return some

    def _describable(self, ask: tuple[str, bool], hops: int, place: int) -> bool:
        if hops == 1:
            return True
        (relation, forward), root = ask, self._entities[ask][place]
        fact = self._asked(relation, forward, root)
        path = {root, fact.value if forward else fact.subject}
        return self.grower.describable(root, hops - 1, avoid={fact.id}, path=path)

    def clues(self, fact: Fact, forward: bool, hops: int, rng: random.Random) -> Node | None:
        """A description of the root of the asked fact in hops - 1 searches that uses neither the fact nor the answer; None if
        there is none."""
        root, answer = (fact.subject, fact.value) if forward else (fact.value, fact.subject)
        return self.grower.describe(root, hops - 1, rng, avoid={fact.id}, path={root, answer})

    def _asked(self, relation: str, forward: bool, root: str) -> Fact:
        return (self.kb.facts_of(root, relation) if forward else self.kb.facts_to(relation, root))[0]

    # ---- making

    def __call__(self, split: Split, hops: int, index: int) -> Problem | Quarantined | None:
        """Question `index` of a cell, accepted or quarantined; None where the cell is exhausted.

        That is, where every root was asked about by name, or none can be described.
        """
        place = self.roots(split, hops).at(index, again=hops > 1)
        if place is None:
            return None
        relation, forward, root = place
        rng = random.Random(seed_for(self.seed, "questions", f"hops {hops}", split, index))
        fact = self._asked(relation, forward, root)
        answer = fact.value if forward else fact.subject
        term = root if hops == 1 else self.clues(fact, forward, hops, rng)
        assert term is not None, f"{root} had a description of {hops - 1} searches when the cell was opened"
        pattern = Pattern(relation=relation, forward=forward, root=term)
        text = self.wording.question(pattern, rng)
        failed = self.refute(pattern, answer, text, split)
        if failed is None:
            problem = self.problem(pattern, answer, text, split, hops, lineage={"seed": self.seed, "index": index})
            failed = self.unanswered(problem, hops)
            if failed is None:
                return problem
        return Quarantined(
            id=f"{split}/{hops}/{index}", stage="questions", reason=failed[0], evidence=f"{text} | {failed[1]}"
        )

    def problem(
        self, pattern: Pattern, answer: str, text: str, split: Split, hops: int, *, lineage: Mapping[str, object]
    ) -> Problem:
        """The problem of a pattern with its text. Aliases of the answer count where nothing else bears them."""
        entity = self.kb.entities.get(answer)
        aliases = [a for a in entity.aliases if self._shared[normalise(a)] == 1] if entity else []
        root = next(iter(extension(self.kb, pattern.root)))
        return Problem.make(
            prompt=text,
            answer=self.kb.text(answer),
            verifier="exact",
            args={"aliases": aliases},
            env="search",
            family="entity_tree",
            difficulty={"hops": hops, "clues": max((len(n.clues) for n in nodes(pattern.root)), default=0)},
            split=split,
            lineage={
                "root": root,
                "facts": support(self.kb, pattern, answer),
                "pattern": to_json(pattern),
                "structure": canonical(pattern)[:20],
                **({"closed_world": True} if self.grower.closed_world else {}),
                **lineage,
            },
        )

    # ---- checking

    def refute(self, pattern: Pattern, answer: str, text: str, split: Split) -> tuple[str, str] | None:
        """None if the question is right as it stands, else the reason code of the first failed check, with the evidence."""
        hidden = {x for node in nodes(pattern.root) for x in extension(self.kb, node)}
        sealed = sorted(
            x
            for x in hidden | {answer, *constants(pattern.root)}
            if x in self.kb.entities and split != "test" and split_of(x) == "test"
        )
        share = self._guess.get((pattern.relation, pattern.forward), 1.0)
        if share > self.max_guess:
            return "guessable", f"the most frequent answer is right in {share:.0%} of all cases"
        if sealed:
            return "split_leak", f"{sealed[0]} is a test root, the question is {split}"
        if len(text.split()) > self.max_words:
            return "too_long", f"{len(text.split())} words, at most {self.max_words} are allowed"
        words = f" {normalise(text)} "
        leaks = [n for x in sorted(hidden | {answer}) for n in self._names(x) if f" {normalise(n)} " in words]
        if leaks:
            return "answer_in_text", f"the question says {leaks[0]!r}, which it hides or asks for"
        answering = answers(self.kb, pattern)
        if answering != {answer}:
            return "not_unique", f"{len(answering)} answers by postings: {', '.join(sorted(answering)[:5])}"
        open_ = [
            c.relation for node in nodes(pattern.root) for c, _ in map(exact, node.clues) if not self.grower.sound(c)
        ]
        if open_:
            return (
                "not_unique",
                f"the relation {open_[0]!r} is not complete: another {open_[0]} may exist that is not listed",
            )
        failed = self.prover.refute(pattern, answer)
        if failed:
            return failed
        read = self.wording.read(text)
        if [canonical(p) for p in read] != [canonical(pattern)]:
            return "roundtrip_mismatch", f"the text reads as {[to_json(p) for p in read]}"
        return None

    def unanswered(self, problem: Problem, hops: int) -> tuple[str, str] | None:
        """As `refute`: None if an oracle answers the problem in as many searches as it has hops."""
        played = self.oracle.play(problem, self.search)
        if isinstance(played, Quarantined):
            return "not_answerable", played.evidence
        if played.calls != hops:
            return "not_answerable", f"the oracle needs {played.calls} searches, not {hops}"
        return None

    def _names(self, value: str) -> list[str]:
        entity = self.kb.entities.get(value)
        return [entity.name, *entity.aliases] if entity else [value]


def entity_tree(
    trees: Callable[[Split, int, int], Problem | Quarantined | None] | None,
    counts: Mapping[tuple[Split, int], int],
    *,
    tries: int = 12,
    run: Callable[..., Iterable] = map,
) -> tuple[list[Problem], list[Quarantined]]:
    """(questions, what was quarantined) of `each_question`."""
    items = list(each_question(trees, counts, tries=tries, run=run))
    return [x for x in items if isinstance(x, Problem)], [x for x in items if isinstance(x, Quarantined)]


def each_question(
    trees: Callable[[Split, int, int], Problem | Quarantined | None] | None,
    counts: Mapping[tuple[Split, int], int],
    *,
    tries: int = 12,
    run: Callable[..., Iterable] = map,
) -> Iterator[Problem | Quarantined]:
    """`trees` is an EntityTrees, or one that remembers; None where `run` knows it. Up to counts[split, hops] questions of every cell, and what was
    quarantined on the way ("duplicate": the same structure again), as they are made; structure, id and text of a question are kept on disk.

    `run` maps `trees` over the indexes of a cell in order, perhaps in other processes: it decides the time, never the result.

    A cell ends early where its roots are exhausted, or after `tries` items for each question that was wanted: compare
    the lengths.
    """
    known, accepted = Lookup[str](), 0  # structure -> id and text
    for (split, hops), wanted in counts.items():
        full, most = accepted + wanted, tries * wanted
        items = iter(run(trees, repeat(split, most), repeat(hops, most), range(most)))
        for index in range(most):
            if accepted == full or (item := next(items)) is None:
                break
            if isinstance(item, Problem) and (earlier := known.get(item.lineage["structure"])):
                evidence = f"{item.question} | as {earlier}"
                item = Quarantined(
                    id=f"{split}/{hops}/{index}", stage="questions", reason="duplicate", evidence=evidence
                )
            elif isinstance(item, Problem):
                known[item.lineage["structure"]] = f"{item.id}: {item.question}"
                accepted += 1
            yield item
