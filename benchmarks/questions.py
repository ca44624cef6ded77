"""How many fuzzy questions does one core make, with all their proofs? `make bench-questions`

A world of N entities with twelve facts each: eight types; of each type two numbers, a year, two classes (one entity in
fifty is one) and links to entities of other types, a few of them popular. Every question is grown, put into words, read
back, proved unique and its clues necessary by SQL, and answered by the oracle from pages alone: only accepted questions
count, what is quarantined costs its time. The time is CPU time of one process, the median of PARTS parts with their least
and greatest; the index is built before (case "load").

The peer is the pure-Python algorithm that the design began with: postings as sets, the rarest clue first, lazy checks
from the top, vague clues added until one entity is left and then taken away one by one. Its questions pass the same
gates, in the same code, but for the witnesses, which it does not name: the proof that a clue is necessary then searches
all entities. "patterns alone" is growth and minimisation without words, gates and proofs, of both. It runs in the same
process on the same facts, each part after one of ours.

Checked in the same run, over all accepted questions: unique, necessary (without the witnesses that the generator
names), answered by the oracle (a second one, on new pages), read back; and the same bytes from two processes as from
one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.rows import result_row
from synth.knowledge.kb import KB, Relation
from synth.knowledge.postings import Postings
from synth.knowledge.world import FIRST, LAST
from synth.questions.fuzzy.graph import Graph
from synth.questions.fuzzy.grow import Grown, Shape
from synth.questions.fuzzy.lexicon import Lexicon, support
from synth.questions.fuzzy.oracle import pages_from
from synth.questions.fuzzy.spans import span
from synth.questions.fuzzy_tree import FuzzyTrees, fuzzy_tree
from synth.questions.pattern import Clue, Node, Pattern, Span, canonical, from_json
from synth.types import Problem, digest, to_row

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "questions.json"
COMMAND = "make bench-questions"
SEED, PARTS, SKEW = 7, 5, 2.0
PEER = "pure Python"
TYPES = ("country", "city", "person", "company", "river", "museum", "book", "bridge")
CASES = {
    "5k, depth 2": (5_000, 2, 400),
    "5k, depth 3": (5_000, 3, 400),
    "200k, depth 2": (200_000, 2, 150),
}  # entities, depth, questions


def relations() -> list[Relation]:
    """Twelve per type, all complete and functional: two numbers, a year, two classes, seven links."""
    out = []
    for i, t in enumerate(TYPES):
        known = {"domain": t, "functional": True, "complete": True}
        out += [Relation(name=f"{t}_{n}", range="number", label=n, **known) for n in ("size", "weight")]
        out.append(Relation(name=f"{t}_year", range="year", label="founding year", **known))
        out += [Relation(name=f"{t}_{n}", range=n, label=n, **known) for n in ("style", "region")]
        for j, label in enumerate(("partner", "rival", "sponsor", "namesake", "founder", "successor", "neighbour"), 1):
            out.append(Relation(name=f"{t}_{label}", range=TYPES[(i + j) % len(TYPES)], label=label, **known))
    return out


def name(i: int) -> str:
    """A name of two words; different for every i below 14 million."""
    a, i = i % len(FIRST), i // len(FIRST)
    b, i = i % len(LAST), i // len(LAST)
    return f"{FIRST[a]}{LAST[b]} {FIRST[(i * 7 + a) % len(FIRST)]}{LAST[(i // len(FIRST) * 5 + b) % len(LAST)]}"


def world(n: int, seed: int = SEED) -> Postings:
    """The postings of a world of n entities."""
    rng = np.random.default_rng(seed)
    classes = max(10, n // 100)
    sizes = {"style": classes, "region": classes} | {t: (n - 2 * classes) // len(TYPES) for t in TYPES}
    named = ((t, name(i * 16 + k)) for k, (t, size) in enumerate(sizes.items()) for i in range(size))
    entities = sorted((f"{t}:{x}", x, t) for t, x in named)
    type_names = sorted(sizes)
    of = {t: np.array([i for i, e in enumerate(entities) if e[2] == t], np.int32) for t in sizes}
    columns: list[tuple[int, np.ndarray, np.ndarray]] = []
    values: dict[int, np.ndarray] = {}
    listed = relations()
    for number, r in enumerate(listed):
        subjects = of[r.domain]
        if r.range == "number":
            values[number] = np.maximum(1, np.round(np.exp(rng.normal(8, 3, len(subjects))))).astype(np.int64)
        elif r.range == "year":
            values[number] = rng.integers(1500, 2020, len(subjects))
        else:
            ends = of[r.range]  # some are linked to far more often than others
            columns.append((number, subjects, ends[(len(ends) * rng.random(len(subjects)) ** SKEW).astype(np.int64)]))
    literals = sorted({str(v) for some in values.values() for v in some.tolist()})
    place = {text: len(entities) + i for i, text in enumerate(literals)}
    for number, some in values.items():
        columns.append((number, of[listed[number].domain], np.array([place[str(v)] for v in some.tolist()], np.int32)))
    facts = (
        np.concatenate([np.full(len(s), r, np.int32) for r, s, _ in columns]),
        *(np.concatenate([c[k] for c in columns]) for k in (1, 2)),
    )
    return Postings(
        ids=[e[0] for e in entities],
        names=[e[1] for e in entities],
        types=np.array([type_names.index(e[2]) for e in entities], np.int16),
        type_names=type_names,
        literals=literals,
        relations=listed,
        facts=facts,
    )


def tables(postings: Postings) -> sqlite3.Connection:
    """The same facts as the tables that `KB.sqlite` writes."""
    connection = sqlite3.connect(":memory:", cached_statements=1024)
    KB([], postings.relations, []).sqlite(connection)
    rows = (
        (id_, postings.names[i], postings.type_names[postings.types[i]], "[]", "") for i, id_ in enumerate(postings.ids)
    )
    connection.executemany("INSERT INTO entity VALUES (?, ?, ?, ?, ?)", rows)

    def facts() -> Iterator[tuple]:
        count = 0
        for number, r in enumerate(postings.relations):
            for s, v in zip(*(x.tolist() for x in postings.block(number, True)), strict=True):
                count += 1
                object_, literal = (None, postings.value(v)) if r.literal else (postings.value(v), None)
                yield f"{count:08x}", postings.ids[s], r.name, object_, literal, "", ""

    connection.executemany("INSERT INTO fact VALUES (?, ?, ?, ?, ?, ?, ?)", facts())
    return connection


def maker(postings: Postings, connection: sqlite3.Connection) -> FuzzyTrees:
    """Ours, with the pages of the world."""
    graph = Graph(postings)
    lexicon = Lexicon(graph)
    at: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(postings.names):
        at[text].append(i)
    page = cache(pages_from(graph, lambda text: at.get(text, ())))
    # The corpus is there before the questions are; of a large one, a page is written when it is first opened.
    if graph.n < 50_000:
        for text in at:
            page(text)
    return FuzzyTrees(lexicon, connection, page, seed=SEED)


class PurePython:
    """The peer: vague, unique, minimal trees by sets, sorted lists and dictionaries.

    A clue is (relation, value) for a constant, (relation, Span) for a number or year, (relation, [clues]) for a
    described value.
    """

    def __init__(self, postings: Postings) -> None:
        self.entities, self.postings = len(postings.ids), postings
        self.facts: dict[int, dict[int, int]] = defaultdict(dict)  # subject -> relation -> value
        self.backward: dict[tuple[int, int], set[int]] = defaultdict(set)  # (relation, value) -> subjects
        self.number: dict[int, float] = {}  # literal -> number
        self.order: dict[int, list[tuple[float, int]]] = {}  # relation -> (number, subject), rising
        for r, relation in enumerate(postings.relations):
            pairs = list(zip(*(x.tolist() for x in postings.block(r, True)), strict=True))
            for s, v in pairs:
                self.facts[s][r] = v
                self.backward[r, v].add(s)
                if relation.literal and v not in self.number:
                    self.number[v] = float(postings.value(v))
            if relation.literal:
                self.order[r] = sorted((self.number[v], s) for s, v in pairs)

    def clue(self, x: int, r: int, depth: int, rng: random.Random) -> tuple:
        """A vague clue of x: a range for a number, a described value for a link; constants only at the ends."""
        v = self.facts[x][r]
        if r in self.order:
            return r, span(self.number[v], self.postings.relations[r].range, 2, rng)
        links = [r2 for r2 in self.facts[v] if r2 not in self.order]
        if not links:
            return r, v
        inner = rng.choice(links)
        return r, [self.clue(v, inner, depth - 1, rng) if depth > 2 else (inner, self.facts[v][inner])]

    def fits(self, x: int, clue: tuple) -> bool:
        """From the top, lazily."""
        r, target = clue
        v = self.facts[x].get(r)
        if v is None:
            return False
        if isinstance(target, list):
            return all(self.fits(v, c) for c in target)
        return target.low <= self.number[v] <= target.high if isinstance(target, Span) else v == target

    def span(self, r: int, low: float, high: float) -> tuple[int, int]:
        return bisect_left(self.order[r], (low, -1)), bisect_right(self.order[r], (high, self.entities))

    def size(self, clue: tuple) -> float:
        r, target = clue
        if isinstance(target, list):
            return min(map(self.size, target))
        if isinstance(target, Span):
            a, b = self.span(r, target.low, target.high)
            return b - a
        return len(self.backward[clue])

    def members(self, clue: tuple) -> set[int]:
        """From the bottom."""
        r, target = clue
        if isinstance(target, list):
            return {x for v in self.extension(target) for x in self.backward.get((r, v), ())}
        if isinstance(target, Span):
            a, b = self.span(r, target.low, target.high)
            return {x for _, x in self.order[r][a:b]}
        return self.backward[clue]

    def extension(self, clues: list) -> set[int]:
        """The rarest clue first, the others checked on what it gives."""
        lead = min(clues, key=self.size)
        rest = [c for c in clues if c is not lead]
        return {x for x in self.members(lead) if all(self.fits(x, c) for c in rest)}

    def question(self, root: int, depth: int, rng: random.Random) -> list | None:
        """Clues, none of them enough alone, are added until the root is alone, then each that is not needed is dropped,
        at any depth; None where it never is alone."""
        clues: list = []
        for r in rng.sample(list(self.facts[root]), len(self.facts[root])):
            clue = self.clue(root, r, depth, rng)
            if not isinstance(clue[1], int) and len(self.extension([clue])) > 1:
                clues.append(clue)
                if self.extension(clues) == {root}:
                    break
        else:
            return None
        changed = True
        while changed:
            changed = False
            for smaller in self.smaller(clues):
                if smaller and self.extension(smaller) == {root}:
                    clues, changed = smaller, True
                    break
        return clues

    def grown(self, root: int, clues: list, rng: random.Random) -> Grown:
        """The same as a pattern that asks a relation which the clues do not use, as `synth.questions.fuzzy.grow` gives
        it."""
        used = {r for r, _ in clues}
        fact = rng.choice([r for r in self.facts[root] if r not in used])

        def node(x: int, clues: list) -> Node:
            conditions = []
            for r, target in clues:
                value = (
                    node(self.facts[x][r], target)
                    if isinstance(target, list)
                    else target
                    if isinstance(target, Span)
                    else self.postings.value(target)
                )
                conditions.append(Clue(relation=self.postings.relations[r].name, forward=True, target=value))
            return Node(type=self.postings.type_names[self.postings.types[x]], clues=tuple(conditions))

        pattern = Pattern(relation=self.postings.relations[fact].name, forward=True, root=node(root, clues))
        return Grown(pattern, self.postings.value(root), self.postings.value(self.facts[root][fact]), {})

    def smaller(self, clues: list) -> Iterator[list]:
        for i, (r, target) in enumerate(clues):
            yield clues[:i] + clues[i + 1 :]
            if isinstance(target, list):
                yield from ([*clues[:i], (r, inner), *clues[i + 1 :]] for inner in self.smaller(target) if inner)


def measure(case: str) -> list[dict]:
    """The results of one case."""
    n, depth, wanted = CASES[case]
    begin = time.process_time()
    postings = world(n)
    connection = tables(postings)
    trees = maker(postings, connection)
    trees.roots("train")
    loaded = time.process_time() - begin
    peer = PurePython(postings)
    rng = random.Random(SEED)
    accepted: list[Problem] = []
    quarantined, index, rates, theirs, ours_alone, theirs_alone = 0, 0, [], [], [], []
    part = wanted // PARTS
    for _ in range(PARTS):
        start, count = time.process_time(), 0
        while count < part:
            item = trees("train", depth, index)
            index += 1
            if isinstance(item, Problem):
                count += 1
                accepted.append(item)
            else:
                quarantined += 1
        rates.append(count / (time.process_time() - start))
        peers = part if n < 50_000 else 3
        theirs.append(rate(lambda: proved(peer, trees, depth, rng), peers))
        ours_alone.append(rate(lambda: pattern_alone(trees, depth, rng), part))
        theirs_alone.append(rate(lambda: peer.question(rng.randrange(peer.entities), depth, rng) is not None, part))
    rows = [
        result(
            case,
            "questions_per_second_per_core",
            statistics.median(rates),
            "questions/s",
            "higher",
            rates,
            len(accepted),
            {PEER: statistics.median(theirs)},
        ),
        result(
            case,
            "patterns alone",
            statistics.median(ours_alone),
            "patterns/s",
            "higher",
            ours_alone,
            len(accepted),
            {PEER: statistics.median(theirs_alone)},
        ),
    ]
    rows.append(result(case, "quarantined", 100 * quarantined / index, "%", "lower", [], index))
    rows += [
        result(case, metric, 100 * share, "%", "higher", [], len(accepted))
        for metric, share in checked(postings, trees, accepted).items()
    ]
    rows.append(result(case, "load: postings, tables, indexes", loaded, "s", "lower", [], n))
    if n < 50_000:
        rows.append(
            result(case, "same bytes from 1, 2 and 3 processes", float(same_bytes(n, depth)), "", "higher", [], 3)
        )
    return rows


def rate(make: Callable[[], bool], wanted: int) -> float:
    """How many are made in a second of CPU time."""
    start, count = time.process_time(), 0
    while count < wanted:
        count += make()
    return count / (time.process_time() - start)


def pattern_alone(trees: FuzzyTrees, depth: int, rng: random.Random) -> bool:
    relation, root = rng.choice(trees.roots("train"))
    return isinstance(trees.grower.grow(root, relation, Shape(depth=depth, level=rng.choice(trees.levels)), rng), Grown)


def proved(peer: PurePython, trees: FuzzyTrees, depth: int, rng: random.Random) -> bool:
    """One question of the peer: whether it passes the gates."""
    root = rng.randrange(peer.entities)
    clues = peer.question(root, depth, rng)
    if clues is None or len(clues) < 2:
        return False
    grown = peer.grown(root, clues, rng)
    facts = support(trees.graph, grown.pattern, grown.root, grown.answer)
    return trees.refute(grown, trees.wording.write(grown.pattern, rng), "test", facts)[0] is None


def checked(postings: Postings, trees: FuzzyTrees, accepted: list[Problem]) -> dict[str, float]:
    """Shares of accepted questions that pass each check made anew."""
    from synth.knowledge.reading import Reader
    from synth.questions.fuzzy.oracle import Oracle
    from synth.questions.prove import Prover

    prover = Prover(tables(postings) if len(postings.ids) < 50_000 else trees.prover.connection)
    lexicon = trees.lexicon
    at = {text: [i] for i, text in enumerate(postings.names)}
    oracle = Oracle(
        Reader(postings.relations, lexicon.known, lexicon.says),
        lexicon.name,
        pages_from(trees.graph, lambda t: at.get(t, ())),
        trees._table,
    )
    patterns = [from_json(p.lineage["pattern"]) for p in accepted]
    proofs = [
        prover.refute_tree(x, p.lineage["root"], p.lineage["answer"]) for x, p in zip(patterns, accepted, strict=True)
    ]
    answered = [oracle.play(x)[0] == [p.answer] for x, p in zip(patterns, accepted, strict=True)]
    read = [
        [canonical(y) for y in trees.wording.read(p.question)] == [canonical(x)]
        for x, p in zip(patterns, accepted, strict=True)
    ]
    kinds = [f and f[0] for f in proofs]
    return {
        "unique": 1 - kinds.count("not_unique") / len(kinds),
        "every clue necessary": sum(k is None for k in kinds) / len(kinds),
        "answered by the oracle": sum(answered) / len(answered),
        "read back": sum(read) / len(read),
        "different structures": len({p.lineage["structure"] for p in accepted}) / len(accepted),
    }


_worker: FuzzyTrees


def _start(n: int) -> None:
    global _worker
    postings = world(n)
    _worker = maker(postings, tables(postings))


def _make(split: str, depth: int, index: int) -> object:
    return _worker(split, depth, index)  # type: ignore[arg-type]


def same_bytes(n: int, depth: int) -> bool:
    """Whether 60 questions have the same bytes from one, two and three processes."""
    digests = set()
    for processes in (1, 2, 3):
        with multiprocessing.get_context("spawn").Pool(processes, _start, (n,)) as pool:

            def run(make: object, *lists: list) -> Iterator:
                return iter(pool.starmap(_make, list(zip(*lists, strict=True)), chunksize=7))

            accepted, quarantined = fuzzy_tree(_make, {("train", depth): 40, ("test", depth): 20}, tries=3, run=run)
        digests.add(digest([to_row(x) for x in (*accepted, *quarantined)]))
    return len(digests) == 1


def load(n: int) -> list[dict]:
    """Postings of n entities written to disk, then read by a process of its own that builds the graph and grows from
    it: its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "postings.npz"
        world(n).save(path)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.questions", "--read", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    seconds, peak, facts = json.loads(done.stdout)
    case = f"{n // 1_000_000}M entities, {facts / n:.0f} facts each"
    return [
        result(case, "load", seconds, "s", "lower", [], facts),
        result(case, "peak memory of the process", peak, "GB", "lower", [], facts),
    ]


def read(path: Path) -> list[float]:
    """[seconds to load, peak memory in GB, facts] of this process."""
    from synth.questions.fuzzy.grow import Grower

    begin = time.perf_counter()
    postings = Postings.load(path)
    graph = Graph(postings)
    seconds = time.perf_counter() - begin
    grower, rng = Grower(graph), random.Random(0)
    grown = [
        grower.grow(int(rng.choice(graph.of_type[0])), f"{graph.types[0]}_founder", Shape(depth=2, level=2), rng)
        for _ in range(5)
    ]
    assert any(isinstance(g, Grown) for g in grown)
    return [seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, len(postings)]


def result(
    case: str,
    metric: str,
    value: float,
    unit: str,
    better: str,
    spread: list[float],
    n: int,
    peers: dict[str, float] | None = None,
) -> dict:
    return result_row(
        case,
        metric,
        value,
        unit,
        COMMAND,
        n,
        better=better,
        low=min(spread) if spread else None,
        high=max(spread) if spread else None,
        one_core=True,
        peers=peers,
        ratio=value / max(peers.values()) if peers else None,
        numpy=np.__version__,
        sqlite=sqlite3.sqlite_version,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case",
        action="append",
        choices=[*CASES, "load"],
        help="measure this case alone (may be repeated); others keep their results",
    )
    parser.add_argument("--load", type=int, default=1_000_000, help="entities of the case load")
    parser.add_argument("--read", type=Path, help="load these postings and print seconds, peak memory in GB and facts")
    args = parser.parse_args()
    if args.read:
        print(json.dumps(read(args.read)))
        return 0
    cases = args.case or [*CASES, "load"]
    rows = [] if args.case is None or not RESULT.exists() else json.loads(RESULT.read_text())
    for case in cases:
        new = load(args.load) if case == "load" else measure(case)
        rows = [r for r in rows if r["case"] != new[0]["case"]] + new
        print(
            "  ".join([f"{new[0]['case']}:", *(f"{r['metric']} {r['value']:,.4g} {r['unit']}".rstrip() for r in new)]),
            flush=True,
        )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
