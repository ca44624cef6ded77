"""Fuzzy-tree questions: an attribute of which a root has one value, where the root is described by vague clues alone,
each of them necessary.

    I am thinking of a country. It shares a border with a country whose currency is the rel. Its area is between 1,200
    and 1,500. What is the capital of this country?

depth     edges from the root to the furthest clue (2, 3, ...)
clues     all clues of the description
level     the fuzz level that was aimed at, 1 to 4
fuzz      mean level of all clues, 0 (a name) to 4 (a third, a century)
lookups   pages that an oracle opens: a lower bound of the work
bits      information given up by the root's clues: the sum of log2(entities that fit the vague clue / the exact one)

A question is grown (`synth.questions.fuzzy.grow`), put into words (`synth.questions.fuzzy.text`), and must pass every
gate of `refute`, the proof by SQL among them. Question i of a cell (split, depth) is about a root that the hash of its
name chooses, and depends on the seed, the root and the facts about it: a fact changed elsewhere changes no other
question (but where it changes a proof). The split is that of the root; a test root is sealed: no question of another
split names it, rests on it, or has it as its answer.

After InfoAgent (Zhang et al. 2025, arXiv:2509.25189: fuzzify the facts of a tree, keep the fewest that are still
unique, ask an attribute of the root) and WebShaper (arXiv:2507.15061: no constant beside what is asked). Neither proves
uniqueness or necessity; here both are computed.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import TypeGuard, get_args, overload

import numpy as np

from synth.knowledge.inverses import inverses, left_aside
from synth.knowledge.kb import KB, Fact, Passage, Relation
from synth.knowledge.postings import Postings
from synth.knowledge.reading import Reader
from synth.questions.fuzzy import phrases
from synth.questions.fuzzy.graph import Column, Graph
from synth.questions.fuzzy.grow import Grower, Grown, Shape, bits, depth, fuzz, reached
from synth.questions.fuzzy.lexicon import Lexicon, hidden, support
from synth.questions.fuzzy.oracle import Open, Oracle, Stuck, pages_of
from synth.questions.fuzzy.spans import narrowed
from synth.questions.fuzzy.text import Realiser, Wording, misread
from synth.questions.pattern import Clue, Node, Than, canonical, constants, deletions, relations_of, to_json
from synth.questions.prove import Prover
from synth.questions.quotas import QUOTA_FULL, End, Full, Tally
from synth.questions.unasked import unasked, unclean
from synth.types import Problem, Quarantined, Split, canonical_json, seed_for, split_of
from synth.verify.exact import normalise

STAGE, FAMILY = "questions", "fuzzy_tree"
_BLOCK = 64  # questions that are made before the quotas are looked at again
_SINGLE = 0.9  # what several values are allowed for is asked for where so many of those with a value have one alone
_TIMES = (1, 1.1, 1.25, 1.5, math.inf)  # what the shares of relations and shapes are multiplied by, to fill a cell
_SPLITS: tuple[Split, ...] = get_args(Split)
_GOLDEN = 0.618034  # its multiples lie far apart
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class FuzzyTrees:
    """Makes and checks the questions of one graph.

    connection     the tables of the same facts (`KB.sqlite`): what the proof reads
    open           name -> page: what the oracle reads
    levels         fuzz levels that are aimed at, one of them for each question
    closed_world   of `synth.questions.fuzzy.grow.Grower`
    max_words, max_guess   gates "too_long" (words of a question) and "guessable" (share of the most frequent answer to
                           what is asked)
    hits           question -> the texts of the best passages of one search; None: the gate "one_search" is not asked
    extra          phrases of the user's own, for the templates of `synth.questions.fuzzy.text`
    apart          relations that have no inverse, whatever their facts look like (`synth.knowledge.inverses`)
    everything     reads with the words of all relations, where the questions use some: a question names those that its
                   words could mean and do not
    Raises ValueError where nothing can be asked, and for levels outside 1 to 4.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        connection: sqlite3.Connection,
        open: Open,
        *,
        seed: int,
        levels: Sequence[int] = (1, 2, 3, 4),
        closed_world: bool = False,
        max_words: int = 90,
        max_guess: float = 0.1,
        most_pages: int = 600,
        hits: Callable[[str], Sequence[str]] | None = None,
        extra: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        apart: Collection[str] = (),
        everything: Wording | None = None,
    ) -> None:
        if not levels or not set(levels) <= {1, 2, 3, 4}:
            raise ValueError(f"fuzz levels {list(levels)} must be some of 1, 2, 3 and 4")
        self.lexicon, self.graph, self.seed, self.levels = lexicon, lexicon.graph, seed, tuple(levels)
        self.max_words, self.max_guess, self.hits = max_words, max_guess, hits
        relations = [c.relation for c in self.graph.columns.values()]
        self.either = either_way(relations)
        both = frozenset(r for r in self.either if _same_both_ways(self.graph, r))  # nor do the facts
        found = inverses(self.graph.postings, apart)
        here = {name: other for name, other in found.items() if {name, other} <= self.graph.columns.keys()}
        twins = left_aside(here, {r.name: r for r in relations})
        self.grower = Grower(self.graph, symmetric=self.either, twins=twins, closed_world=closed_world)
        self._without = frozenset[str](), self.grower  # relations that are left out, and what grows without them
        self.wording = Realiser(relations, lexicon.name, lexicon.find, symmetric=both, extra=extra)
        self.everything = everything
        self.prover = Prover(connection, symmetric=self.either)
        self.oracle = Oracle(
            Reader(relations, lexicon.known, lexicon.says), lexicon.name, open, self._table, most=most_pages
        )
        self._guess = {name: share for name, share in self._shares() if share <= max_guess}
        for aside in [name for name, kept in twins.items() if kept in self._guess]:
            self._guess.pop(aside, None)  # one fact is not asked about from both of its ends
        self._single = {
            t: [c for c in self.graph.columns.values() if c.relation.domain == t and self._has_one(c)]
            for t in self.graph.types
        }
        self._cells: dict[tuple[Split, int], Roots] = {}
        self._queues: dict[tuple[str, Split], np.ndarray] = {}
        self._split = np.full(self.graph.n, -1, np.int8)  # index into _SPLITS, -1: not looked at
        if not self._guess:
            raise ValueError(
                f"nothing can be asked of a described root: no relation of which a thing has one value has answers of which none is right "
                f"in more than {max_guess:.0%} of all cases: declare a relation functional, add sources, or raise max_guess"
            )

    @staticmethod
    def of(
        kb: KB,
        passages: Sequence[Passage],
        *,
        seed: int,
        only: Sequence[str] = (),
        aside: Collection[str] | None = None,
        **knobs: object,
    ) -> FuzzyTrees:
        """The questions of a knowledge base in memory, whose passages are the pages. `only`: the relations that
        questions may use (default: all; wildcards * and ? are understood); `aside`: of `worded`; `knobs` are those of the
        class. Raises ValueError for an `only` that fits no relation."""
        postings = Postings.of(kb)
        among = chosen(kb.relations, only) or worded(postings, aside)
        graph = Graph(postings, among)
        if among and len(among) < len(kb.relations):
            knobs["everything"] = realiser_of(Lexicon.of(kb, Graph(postings)), knobs.get("extra"))  # type: ignore[arg-type]
        connection = sqlite3.connect(":memory:")
        kb.sqlite(connection)
        ends = {f.id: f.object or f.literal for f in kb.facts.values()}

        def mentions(p: Passage) -> list[str]:
            return [kb.text(ends[f]) for f in p.facts]  # type: ignore[arg-type]

        return FuzzyTrees(Lexicon.of(kb, graph), connection, pages_of(passages, mentions), seed=seed, **knobs)  # type: ignore[arg-type]

    # ---- what can be asked

    def _has_one(self, column: Column) -> bool:
        """Whether a thing has one value under a relation, or nearly each does, where more would be listed ("capital")."""
        if column.relation.functional:
            return True
        sizes = np.diff(column.forward.start)
        listed = self.grower.closed_world or column.relation.complete
        return listed and bool(np.count_nonzero(sizes == 1) >= _SINGLE * max(1, np.count_nonzero(sizes)))

    def _shares(self) -> Iterable[tuple[str, float]]:
        """(relation, share of its most frequent value) of relations that can be asked for."""
        for name, column in self.graph.columns.items():
            if len(column.forward.ends) and self._has_one(column):
                yield (
                    name,
                    float(np.unique(column.forward.ends, return_counts=True)[1].max() / len(column.forward.ends)),
                )

    def _table(self, relation: str) -> list[str]:
        text = self.graph.postings.text
        return [text(int(i)) for i in self.graph.columns[relation].forward.ends]

    def split(self, entity: int) -> Split:
        """The split of an entity, by the hash of its id."""
        if self._split[entity] < 0:
            self._split[entity] = _SPLITS.index(split_of(self.graph.postings.ids[entity]))
        return _SPLITS[self._split[entity]]

    def roots(self, split: Split, deep: int = 2) -> Roots:
        """(asked relation, root) in the order of a hash of the two; kinds of answers take turns, and within a kind its
        relations. Each depth begins elsewhere among the roots of a relation, so that it seldom asks what another asked."""
        if (split, deep) not in self._cells:
            relations = sorted(self._guess)
            kinds: dict[str, list[np.ndarray]] = {}  # a queue: [roots, 2], the number of the relation and the root
            for number, relation in enumerate(relations):
                some = self._queue(relation, split)
                some = np.roll(some, -int(len(some) * (deep * _GOLDEN % 1)))
                queue = np.stack([np.full_like(some, number), some], 1)
                kinds.setdefault(self.graph.columns[relation].relation.range, []).append(queue)
            turns = in_turn([in_turn(queues) for queues in kinds.values()])
            self._cells[split, deep] = Roots(relations, turns[:, 0], turns[:, 1])
        return self._cells[split, deep]

    def _queue(self, relation: str, split: Split) -> np.ndarray:
        """[roots] int32: the entities of a split with one value under a relation, which is an answer, in the order of a hash
        of the two."""
        if (relation, split) not in self._queues:
            column = self.graph.columns[relation]
            subjects = np.flatnonzero(np.diff(column.forward.start) == 1).tolist()
            if column.relation.range == "string":
                subjects = [x for x in subjects if self._unclean(column.forward.list(x)) is None]
            some = np.array([x for x in subjects if self.split(x) == split], np.int32)
            head, ids, hashed = canonical_json((self.seed, relation))[:-1], self.graph.postings.ids, hashlib.sha256
            hashes = [hashed(f"{head},{canonical_json(ids[x])}]".encode()).digest()[:16] for x in some.tolist()]
            keys = np.frombuffer(b"".join(hashes), ">u8").reshape(-1, 2).astype(np.uint64)
            self._queues[relation, split] = some[np.lexsort((keys[:, 1], keys[:, 0]))]
        return self._queues[relation, split]

    def pairs(self, split: Split, deep: int) -> Pairs:
        """(id of the root, asked relation) of question 0, 1, ... of a cell, before it is made; the list repeats."""
        return Pairs(self.roots(split, deep), self.graph.postings.ids)

    # ---- making

    def __call__(self, split: Split, depth: int, index: int, full: Full = Full()) -> Problem | Quarantined | None:
        """Question `index` of a cell, accepted or quarantined; None where the split has no roots. Each round through the
        roots grows anew. full: what it leaves out; "quota_full" where nothing can be grown from the rest."""
        roots = self.roots(split, depth)
        if not roots:
            return None
        relation, root = roots[index % len(roots)]
        rng = random.Random(
            seed_for(self.seed, "fuzzy trees", relation, self.graph.id(root), [depth, index // len(roots)])
        )
        shape = Shape(depth=depth, level=rng.choice(self.levels))
        sealed = (lambda x: False) if split == "test" else (lambda x: x < self.graph.n and self.split(x) == "test")
        grown = self._grower(full.relations).grow(root, relation, shape, rng, sealed=sealed, shut=full.shapes)
        where = f"tree/{split}/{depth}/{index}"
        level = 0 if isinstance(grown, str) else reached(grown.pattern.root, depth)  # type: ignore[arg-type]
        if level and level not in self.levels:
            grown = "off_level"
        if isinstance(grown, str):
            return Quarantined(
                id=where,
                stage=STAGE,
                reason=QUOTA_FULL if full else grown,
                evidence=(f"{grown} without what is full | " if full else "")
                + f"{relation} of {self.graph.id(root)}, depth {depth}, level {shape.level}"
                + (f": what tells it apart is of level {level}" if level else ""),
            )
        try:
            text = self.wording.write(grown.pattern, rng)
        except ValueError as error:
            return Quarantined(id=where, stage=STAGE, reason="no_words", evidence=f"{error} | {to_json(grown.pattern)}")
        facts = support(self.graph, grown.pattern, grown.root, grown.answer)
        failed, pages = self.refute(grown, text, split, facts)
        if failed is not None:
            return Quarantined(id=where, stage=STAGE, reason=failed[0], evidence=f"{text} | {failed[1]}")
        return self.problem(grown, text, split, facts, pages=pages, index=index, level=level)

    def _grower(self, full: frozenset[str]) -> Grower:
        if self._without[0] != full:
            self._without = full, self.grower.without(full)
        return self._without[1]

    def problem(
        self, grown: Grown, text: str, split: Split, facts: Sequence[Fact], *, pages: int, index: int, level: int
    ) -> Problem:
        """The problem of a grown tree with its text and the facts that it rests on."""
        node = grown.pattern.root
        assert isinstance(node, Node)
        return Problem.make(
            prompt=text,
            answer=self.lexicon.name(grown.answer),
            verifier="exact",
            args={"aliases": self.lexicon.answers(grown.answer)},
            env="search",
            family=FAMILY,
            split=split,
            difficulty={
                "hops": depth(node),
                "clues": sum(1 for _ in deletions(node)),
                "fuzz": round(fuzz(node), 3),
                "lookups": pages,
                "level": level,
                "bits": round(bits(self.graph, node, self.graph.end(grown.root)), 2),
            },
            lineage={
                "root": grown.root,
                "answer": grown.answer,
                "facts": [f.id for f in facts],
                "pattern": to_json(grown.pattern),
                "structure": canonical(grown.pattern)[:20],
                "witnesses": {str(i): w for i, w in grown.witnesses.items()},
                "seed": self.seed,
                "index": index,
                **({"closed_world": True} if self.grower.closed_world else {}),
                **({"not_meant": aside} if (aside := self._not_meant(text)) else {}),
            },
        )

    def _not_meant(self, text: str) -> list[str]:
        """The relations that questions do not use and that the words of this one could mean."""
        read = self.everything.read(text) if self.everything else ()
        return sorted({r for p in read for r in relations_of(p)} - set(self.graph.columns))

    # ---- checking

    def refute(
        self, grown: Grown, text: str, split: Split, facts: Sequence[Fact], *, wording: Wording | None = None
    ) -> tuple[tuple[str, str] | None, int]:
        """`wording`: what reads the text, where it is not what writes the others. (None where a question may be asked,
        else the reason code of the first gate that it fails with the evidence; pages opened)."""
        pattern, node = grown.pattern, grown.pattern.root
        assert isinstance(node, Node)
        if pattern.relation not in self._guess:
            return ("guessable", f"the most frequent answer is right in more than {self.max_guess:.0%} of all cases"), 0
        if len(text.split()) > self.max_words:
            return ("too_long", f"{len(text.split())} words, at most {self.max_words} are allowed"), 0
        named = constants(node)
        if (fault := self._unclean(map(self.graph.end, named))) is not None:
            return ("unclean", fault), 0
        touched = {x for f in facts for x in (f.subject, f.object) if x is not None}
        sealed = sorted(x for x in touched if split != "test" and split_of(x) == "test")
        if sealed:
            return ("split_leak", f"{sealed[0]} is a test root, the question is {split}"), 0
        beside = [c for c in node.clues if isinstance(c, Clue) and _constant_beside(c)]
        if beside:
            return ("constant_beside", f"{beside[0].target} stands beside what is asked"), 0
        given = [c for c in named if self._gives(c, grown.answer)]
        if given:
            return ("implied", f"{given[0]!r} alone leads to the answer {grown.answer!r}"), 0
        leak = self._leak(text, [grown.answer, *hidden(facts, named)])
        if leak is not None:
            return ("answer_in_text", f"the question says {leak!r}, which it hides or asks for"), 0
        failed = self.prover.refute_tree(pattern, grown.root, grown.answer, grown.witnesses)
        if failed is not None:
            return failed, 0
        if not self.prover.holds(narrowed(node, self._kind), grown.root):
            return ("on_the_edge", f"{grown.root} lies at an end of what the words mean"), 0
        other = misread(
            pattern,
            (wording or self.wording).read(text),
            self.either,
            lambda p: self.prover.refute_tree(p, grown.root, grown.answer) is None,
        )
        if other is not None:
            return ("roundtrip_mismatch", other), 0
        try:
            answers, pages = self.oracle.play(pattern)
        except Stuck as stuck:
            return ("not_answerable", str(stuck)), 0
        if [normalise(a) for a in answers] != [normalise(self.lexicon.name(grown.answer))]:
            return ("not_answerable", f"the pages lead to {answers}"), 0
        if self.hits is not None and self._one_search(text, grown):
            return ("one_search", "one search for the question itself finds the answer beside the root"), 0
        return None, pages

    def _kind(self, relation: str) -> str:
        return self.graph.columns[relation].relation.range

    def _gives(self, constant: str, answer: str) -> bool:
        """Whether a relation leads from a constant to the answer alone."""
        i, wanted = self.graph.end(constant), self.graph.end(answer)
        if i >= self.graph.n:
            return False
        return i == wanted or any(
            [wanted] == c.forward.list(i) for c in self._single[self.graph.types[self.graph.type_of[i]]]
        )

    def _unclean(self, ends: Iterable[int]) -> str | None:
        """What is wrong with a text among some values, which nobody would give as an answer, or use as a name."""
        texts = (self.graph.id(i) for i in ends if i >= self.graph.n)
        return next((f"{text!r} is {fault}" for text in texts if (fault := unclean(text))), None)

    def _leak(self, text: str, values: Iterable[str]) -> str | None:
        """A name (or number) of the hidden values that the text says."""
        words = f" {normalise(text)} "
        numbers = {n.replace(",", "") for n in _NUMBER.findall(text)}
        for value in values:
            for name in self.lexicon.names(value):
                plain = normalise(name)
                if plain and (f" {plain} " in words or (_NUMBER.fullmatch(name) and name.replace(",", "") in numbers)):
                    return name
        return None

    def _one_search(self, text: str, grown: Grown) -> bool:
        texts = [f" {normalise(hit)} " for hit in self.hits(text)[:3]]  # type: ignore[misc]
        answer, root = (f" {normalise(self.lexicon.name(x))} " for x in (grown.answer, grown.root))
        return any(answer in hit for hit in texts) and any(root in hit for hit in texts)


def _constant_beside(clue: Clue) -> bool:
    """Whether a clue of the root names something: exactly, or as what it is compared with."""
    return isinstance(clue.target, str) or isinstance(clue.target, Than) and isinstance(clue.target.other, str)


class Roots(Sequence[tuple[str, int]]):
    """(relation, root) in an order: [roots] each, the number of the relation, and the root."""

    def __init__(self, relations: Sequence[str], which: np.ndarray, roots: np.ndarray) -> None:
        self.relations, self._which, self._roots = relations, which, roots

    def __len__(self) -> int:
        return len(self._roots)

    @overload
    def __getitem__(self, i: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, i: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, i: int | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        return self.relations[int(self._which[i])], int(self._roots[i])


class Pairs(Sequence[tuple[str, str]]):
    """(id of a root, relation) of `Roots`."""

    def __init__(self, roots: Roots, ids: Sequence[str]) -> None:
        self._pairs, self._ids = roots, ids

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, i: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, i: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, i: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        relation, root = self._pairs[i]
        return self._ids[root], relation


def chosen(relations: Collection[str], only: Sequence[str]) -> set[str]:
    """The relations that questions may use, of names and wildcards; none where there is nothing in `only`: all. Raises
    ValueError for one that fits none."""
    lost = [pattern for pattern in only if not any(fnmatchcase(r, pattern) for r in relations)]
    if lost:
        near = difflib.get_close_matches(lost[0], relations, 1, 0.0)
        raise ValueError(
            f"no relation of the knowledge base is called {lost[0]!r} (nearest: {near[0]!r}): fix the name, or leave it out"
        )
    return {r for r in relations if any(fnmatchcase(r, pattern) for pattern in only)}


def worded(postings: Postings, aside: Collection[str] | None = None) -> set[str]:
    """The relations that questions use where nobody names some; none where that is all of them. aside: those that they leave
    out, where that is known already; None: `synth.questions.unasked`."""
    aside = set(unasked(postings) if aside is None else aside)
    return {r.name for r in postings.relations} - aside if aside else set()


def either_way(relations: Iterable[Relation]) -> frozenset[str]:
    """The relations whose words do not tell their direction: the proofs read them both ways."""
    return frozenset(r.name for r in relations if phrases.symmetric(r))


def realiser_of(lexicon: Lexicon, extra: Mapping[str, Mapping[str, Sequence[str]]] | None = None) -> Realiser:
    """The templates over all relations of a knowledge base, of a lexicon of all of them."""
    graph = lexicon.graph
    relations = graph.postings.relations
    both = frozenset(r for r in either_way(relations) if _same_both_ways(graph, r))
    return Realiser(relations, lexicon.name, lexicon.find, symmetric=both, extra=extra)


def _same_both_ways(graph: Graph, relation: str) -> bool:
    column = graph.columns[relation]
    one, other = column.forward, column.backward
    return (
        len(one.start) == len(other.start)
        and np.array_equal(one.start, other.start)
        and np.array_equal(one.ends, other.ends)
    )


def fuzzy_tree(
    make: Callable[..., Problem | Quarantined | None] | None,
    counts: Mapping[tuple[Split, int], int],
    *,
    tries: int = 8,
    run: Callable[..., Iterable] = map,
    tally: Tally | None = None,
    pairs: Callable[[Split, int], Sequence[tuple[str, str]]] | None = None,
    ends: dict[tuple[Split, int], End] | None = None,
    on_accept: Callable[[], object] = lambda: None,
) -> tuple[list[Problem], list[Quarantined]]:
    """Up to counts[split, depth] questions of every cell, and what was quarantined on the way: "duplicate" for the same
    structure again, "near_duplicate" for four fifths of the runs of three words of an accepted question, "over_quota" for
    what the quotas of `tally` leave out (none: no quotas). Questions over a share wait, and fill a cell that the others do
    not fill, in the order in which they were made; a cell ends at the latest when twice what it wants was good.

    make(split, depth, index) gives an item of a cell; None where `run` knows what does. Once relations or shapes have their
    share, they are a fourth argument (`Full`), and the item does without them. What cannot ("quota_full") is made with them where the cell is not full by then.

    `pairs` of a cell (`FuzzyTrees.pairs`): what was asked often enough is not made again, and kinds of answers over their
    share are made last (`indexes`).

    `run` maps `make` over the indexes of a cell in order, perhaps in other processes: it decides the time, never the
    result. `ends` is given how each cell ended; `on_accept` is called for each question that is accepted.
    """
    questions = _Questions(tally or Tally({}), on_accept)
    for (split, deep), wanted in counts.items():
        cell = pairs(split, deep) if pairs else ()
        end = questions.fill((split, deep), wanted, tries * wanted, partial(_made, make, run, split, deep), cell)
        if ends is not None:
            ends[split, deep] = end
    return questions.accepted, questions.quarantined


class _Questions:
    """What `fuzzy_tree` accepted and quarantined so far."""

    def __init__(self, tally: Tally, on_accept: Callable[[], object]) -> None:
        self.tally, self._on_accept = tally, on_accept
        self.accepted: list[Problem] = []
        self.quarantined: list[Quarantined] = []
        self._structures: dict[str, Problem] = {}
        self._alike = Alike()

    def fill(
        self,
        key: tuple[Split, int],
        wanted: int,
        most: int,
        draw: Callable[..., Iterator[tuple[int, Problem | Quarantined]]],
        cell: Sequence[tuple[str, str]],
    ) -> End:
        """Add the questions of a cell. most: how many are drawn; draw: `_made` of its blocks; cell: its pairs."""
        tally, begin = self.tally, len(self.accepted)
        full, drawn, at = begin + wanted, set[int](), "/".join(map(str, ("tree", *key)))
        waiting: list[tuple[str, Problem, str]] = []
        held = 0  # those of them that exceed nothing but the share of the kind of their answer
        aside: dict[int, Quarantined] = {}  # what could not be grown without what is full
        tally.begin()
        blocks = indexes(cell, tally, wanted, most, lambda: len(self.accepted) + held >= full)
        for index, item in draw(blocks, partial(tally.shut, wanted)):
            drawn.add(index)
            if isinstance(item, Quarantined) and item.reason == QUOTA_FULL:
                aside[index] = item
            elif self._good(item, where := f"{at}/{index}"):
                if over := tally.over(item, wanted):
                    waiting.append((where, item, next(iter(over.values()))))
                    held += tally.hold(item, wanted)
                else:
                    self._accept(item)
            if len(self.accepted) == full or len(self.accepted) + len(waiting) == full + wanted:
                break
        tally.release()
        over_share = 0
        for times in _TIMES:
            left = []
            for where, item, over in waiting:
                if len(self.accepted) == full:
                    self._refuse(where, "over_quota", f"{item.question} | {over}")
                elif tally.over(item, wanted, times).keys() - {"answer"}:
                    left.append((where, item, over))
                elif self._good(item, where):
                    self._accept(item)
                    over_share += 1
            waiting = left
            again = _again(list(aside), cell, tally) if times > 1 and len(self.accepted) < full else ()
            for index, item in draw(again, partial(tally.shut, wanted, times)):
                if self._waits(item, wanted, times):
                    continue
                del aside[index]
                if self._good(item, f"{at}/{index}"):
                    over_share += bool(tally.over(item, wanted))
                    self._accept(item)
                    if len(self.accepted) == full:
                        break
        self.quarantined += aside.values()
        n = len(self.accepted) - begin
        dry = (n < wanted or over_share > 0) and _dry(cell, drawn, tally)
        return End(wanted=wanted, accepted=n, drawn=len(drawn), over=over_share, dry=dry)

    def _waits(self, item: Problem | Quarantined, wanted: int, times: float) -> bool:
        """Whether an item is for a later step: shares that are so many times those of a cell do not suffice for it."""
        if isinstance(item, Quarantined):
            return item.reason == QUOTA_FULL
        return bool(self.tally.over(item, wanted, times).keys() - {"answer"})

    def _good(self, item: Problem | Quarantined, where: str) -> TypeGuard[Problem]:
        """Whether it is a question, neither a copy nor asked too often; if not, it is quarantined."""
        if isinstance(item, Quarantined):
            self.quarantined.append(item)
            return False
        same = self._structures.get(item.lineage["structure"])
        near = same or (self.accepted[i] if (i := self._alike.first(item.question)) is not None else None)
        if near is not None:
            reason = "near_duplicate" if same is None else "duplicate"
            self._refuse(where, reason, f"{item.question} | as {near.id}: {near.question}")
        elif again := self.tally.repeats(item):
            self._refuse(where, "over_quota", f"{item.question} | {again}")
        else:
            return True
        return False

    def _refuse(self, where: str, reason: str, evidence: str) -> None:
        self.quarantined.append(Quarantined(id=where, stage=STAGE, reason=reason, evidence=evidence))

    def _accept(self, item: Problem) -> None:
        self._structures[item.lineage["structure"]] = item
        self._alike.add(item.question)
        self.tally.add(item)
        self.accepted.append(item)
        self._on_accept()


def _made(
    make: Callable | None,
    run: Callable[..., Iterable],
    split: Split,
    deep: int,
    blocks: Iterable[list[int]],
    shut: Callable[[], Full],
) -> Iterator[tuple[int, Problem | Quarantined]]:
    """(index, item) of all blocks, up to the first that there is none of. shut: what the items of a block leave out, asked
    before it is made."""
    for block in blocks:
        lists = [split] * len(block), [deep] * len(block), block
        full = shut()
        items = run(make, *lists, [full] * len(block)) if full else run(make, *lists)
        for index, item in zip(block, items, strict=False):
            if item is None:
                return
            yield index, item


def _again(some: list[int], cell: Sequence[tuple[str, str]], tally: Tally) -> Iterator[list[int]]:
    """Indexes in blocks, without those of what was asked often enough by then."""
    left = (i for i in some if not (cell and tally.asked(*cell[i % len(cell)])))
    while block := list(islice(left, _BLOCK)):
        yield block


def _dry(cell: Sequence[tuple[str, str]], drawn: Collection[int], tally: Tally) -> bool:
    """Whether each pair of a cell was drawn or is asked as often as it may be."""
    seen = {i % len(cell) for i in drawn} if cell else set()
    return bool(cell) and all(i in seen or tally.asked(*pair) for i, pair in enumerate(cell))


def indexes(
    cell: Sequence[tuple[str, str]], tally: Tally, wanted: int, most: int, enough: Callable[[], bool] = lambda: False
) -> Iterator[list[int]]:
    """The indexes of a cell that are worth making, `most` at most, in blocks: what is accepted of one block decides the
    next, so that the result does not depend on how many processes make them. In each round through the pairs, those
    asked often enough are passed over, and answers of a kind that is over its share come last, and not at all once there are
    `enough` questions over a share to fill the cell. Without pairs: all."""
    if not cell:
        yield from (list(range(i, min(i + _BLOCK, most))) for i in range(0, most, _BLOCK))
        return
    start, left = 0, most
    while left > 0:
        before, over = left, list[int]()
        for last in (False, True):
            places = iter(over if last else range(len(cell)))
            block: list[int] = [-1]
            while block and left > 0 and not (last and enough()):
                block = []
                for i in places:
                    root, relation = cell[i]
                    if not last and tally.full(relation, wanted):
                        over.append(i)
                    elif not tally.asked(root, relation):
                        block.append(start + i)
                        if len(block) == min(_BLOCK, left):
                            break
                left -= len(block)
                if block:
                    yield block
        if left == before:
            return
        start += len(cell)


def in_turn(queues: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of several queues ([rows, columns] int32), one of each in turn."""
    if not queues:
        return np.zeros((0, 2), np.int32)
    number = np.repeat(np.arange(len(queues)), [len(q) for q in queues])
    place = np.concatenate([np.arange(len(q)) for q in queues])
    return np.concatenate(queues)[np.lexsort((number, place))]


def runs(text: str, n: int = 3) -> frozenset[tuple[str, ...]]:
    """The runs of n words of a text; the text itself where it has fewer."""
    words = text.lower().split()
    return frozenset(zip(*(words[i:] for i in range(n)), strict=False)) or frozenset({tuple(words)})


class Alike:
    """Texts of which one can ask for a similar one (Jaccard similarity of their runs of three words of `least` or more)
    without comparing all: of two such texts at least one of the few seldom runs of the one is among those of the other
    (prefix filtering, Bayardo et al., WWW 2007). How seldom a run is, the first `learnt` texts say; it decides the time
    and never the result."""

    def __init__(self, *, least: float = 0.8, learnt: int = 500) -> None:
        self.least, self.learnt = least, learnt
        self._texts: list[frozenset[tuple[str, ...]]] = []
        self._seen: dict[tuple[str, ...], int] = {}
        self._holders: dict[tuple[str, ...], list[int]] = {}

    def first(self, text: str) -> int | None:
        """The number of the first text that is similar."""
        mine = runs(text)
        near = sorted({i for run in self._seldom(mine) for i in self._holders.get(run, ())})
        return next((i for i in near if len(mine & self._texts[i]) / len(mine | self._texts[i]) >= self.least), None)

    def add(self, text: str) -> None:
        self._texts.append(runs(text))
        if len(self._texts) == self.learnt:
            self._seen = Counter(run for some in self._texts for run in some)
            self._holders = {}
            for i in range(len(self._texts)):
                self._hold(i)
        else:
            self._hold(len(self._texts) - 1)

    def _hold(self, i: int) -> None:
        for run in self._seldom(self._texts[i]):
            self._holders.setdefault(run, []).append(i)

    def _seldom(self, some: frozenset[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return sorted(some, key=lambda run: (self._seen.get(run, 0), run))[
            : len(some) - math.ceil(self.least * len(some) - 1e-9) + 1
        ]
