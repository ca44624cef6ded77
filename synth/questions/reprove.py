"""Proves a published question again from its row and a knowledge base alone, without trusting anything that made it.

row         it has the fields that are published and no others; its id and its seal are the hashes of what it says, its
            question is its prompt, its triples, bounds and relations are those of its pattern
lineage     facts, structure, difficulty and aliases are computed anew, each witness's word is checked
meaning     the words of every span mean its bounds, and the root lies within their core, at no end; the text is read
            back as the stored pattern alone, relations without a direction both ways
world       no clue rests on a relation that may have facts which are not listed
answer      by SQL: the only one; every clue is necessary; of a tree, the root is the only entity, and two clues or more
            describe it
rules       no constant beside the root of a tree; the text says neither the answer nor a hidden name; a test root is in
            no question of another split

How it was made (seed, index, the level that was aimed at, the pages that an oracle opened) is hashed and not proved.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synth.knowledge.kb import KB
from synth.knowledge.postings import Postings
from synth.questions import pattern as patterns
from synth.questions.fuzzy import phrases
from synth.questions.fuzzy.graph import Graph
from synth.questions.fuzzy.grow import bits, depth, fuzz
from synth.questions.fuzzy.lexicon import Lexicon, support
from synth.questions.fuzzy.spans import narrowed, read_span
from synth.questions.fuzzy.text import Realiser, misread
from synth.questions.fuzzy.triples import stated
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
    constants,
    deletions,
    from_json,
    nodes,
    relations_of,
    searches,
    to_json,
)
from synth.questions.prove import Prover
from synth.questions.publish import FIELDS, MAY, Phrases, schema, seal
from synth.questions.wording import Wording
from synth.types import Problem, from_row, split_of
from synth.verify.exact import normalise

FAMILIES = ("entity_tree", "fuzzy_tree")
_LINEAGE = frozenset(
    "root answer facts pattern structure witnesses seed index wording templates not_meant closed_world".split()
)
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
_DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")

Refuted = tuple[str, str]  # (reason code, evidence)


@dataclass(frozen=True)
class Held:
    """The parts of a knowledge base that a proof reads.

    connection  its tables; may be changed if words of a relation do not tell its direction
    aliases     entity id -> further names
    """

    connection: sqlite3.Connection
    postings: Postings
    aliases: Mapping[str, Sequence[str]]

    @staticmethod
    def of(kb: KB) -> Held:
        """Those of a base in memory."""
        connection = sqlite3.connect(":memory:")
        kb.sqlite(connection)
        return Held(connection, Postings.of(kb), {e.id: e.aliases for e in kb.entities.values() if e.aliases})


class Reprover:
    """Proves the questions of one knowledge base again. For questions that are not published rows, which say both
    themselves: `extra`, the user's own phrases, as the stage `questions` had them; `closed_world`, whether every
    relation was taken as complete."""

    def __init__(
        self, kb: KB, *, extra: Phrases | None = None, closed_world: bool = False, held: Held | None = None
    ) -> None:
        """`held`: what of the base is on disk already; else it is made of `kb`, in memory."""
        self.kb, self.extra, self.closed_world = kb, extra or {}, closed_world
        self.either = frozenset(r.name for r in kb.relations.values() if phrases.symmetric(r))
        held = held or Held.of(kb)
        self.prover = Prover(held.connection, symmetric=self.either)
        self.wording = Wording(kb)
        self.graph = Graph(held.postings)
        self.lexicon = Lexicon(self.graph, held.aliases)
        self._realisers: dict[str, Realiser] = {}
        aliases = {normalise(a) for some in held.aliases.values() for a in some}  # the other names are never asked for
        named = (e for e in kb.entities.values()) if aliases else ()
        self._bearers = Counter(n for e in named for n in {normalise(x) for x in (e.name, *e.aliases)} & aliases)

    # ---- a row

    def refute_row(self, row: Mapping[str, Any]) -> Refuted | None:
        """None if everything in a published row holds, else why not."""
        try:
            problem = from_row(Problem, row)
            if (wrong := self._hashes(problem)) is not None:
                return wrong
        except _MALFORMED as error:
            return "unreadable", f"the row is none of ours ({error}): publish it again"
        if "seal" not in row:
            return "seal_differs", "the row has no seal"
        if seal(row) != row["seal"]:
            return "seal_differs", f"the row has the seal {seal(row)}: it was changed after it was made"
        if (odd := FIELDS.symmetric_difference(row) - (MAY & row.keys())) != set():
            return "fields_differ", f"the row lacks or adds {', '.join(sorted(odd))}"
        if problem.family not in FAMILIES:
            return "unknown_family", f"the family {problem.family!r} has no questions about a knowledge base"
        if (wrong := self._form(problem)) is not None:
            return wrong
        if row["question"] != problem.question:
            return "text_differs", f"the question {row['question']!r} is not that of the prompt, {problem.question!r}"
        try:
            pattern = from_json(problem.lineage["pattern"])
            statement = stated(pattern, self.kb.text)
            for field, mine in (
                ("formalization", [triple for triple, _ in statement]),
                ("bounds", [self._bounds(clue) for _, clue in statement]),
                ("relations", schema(self.kb, pattern)),
            ):
                if row[field] != mine:
                    return f"{field}_differ", f"the row says {row[field]}, its pattern means {mine}"
            if odd := set(row.get("phrases") or ()) - set(relations_of(pattern)):
                return (
                    "fields_differ",
                    f"phrases are given for {', '.join(sorted(odd))}, which the question does not use",
                )
        except _MALFORMED as error:
            return "no_lineage", f"the pattern cannot be read ({error!r}), so there is nothing to prove"
        return self.refute(problem, own=row.get("phrases") or {})

    def _bounds(self, clue: Clue | Named | None) -> list[float | None] | None:
        if not isinstance(clue, Clue):
            return None
        if isinstance(clue.target, Span):
            return [clue.target.low, clue.target.high]
        if not isinstance(clue.target, Third):
            return None
        cut = self.prover.cut(clue.relation, clue.target.largest)
        return [cut, None] if clue.target.largest else [None, cut]

    @staticmethod
    def _hashes(problem: Problem) -> Refuted | None:
        again = Problem.make(
            prompt=problem.prompt,
            answer=problem.answer,
            verifier=problem.verifier,
            args=problem.args,
            family="",
            split="test",
        )
        if again.id != problem.id:
            evidence = f"the content of {problem.id} has the hash {again.id}: the row was changed after it was made"
            return "id_differs", evidence
        return None

    @staticmethod
    def _form(problem: Problem) -> Refuted | None:
        """The common form of questions about a knowledge base: one message, and how an answer is scored."""
        roles = [m.role for m in problem.prompt]
        if roles != ["user"]:
            return "prompt_differs", f"the prompt has the messages {roles}, a question is one of the user"
        if (problem.verifier, problem.env) != ("exact", "search"):
            return "scorer_differs", f"the answer is paid by {problem.verifier} in {problem.env}, not exact in search"
        return None

    # ---- a problem

    def refute(self, problem: Problem, *, own: Phrases | None = None) -> Refuted | None:
        """None if everything holds, else (reason code, evidence). `own`: the user's own phrases, if not those of the
        class. Raises LookupError for a question of another family."""
        if problem.family not in FAMILIES:
            raise LookupError(
                f"problem {problem.id} is of the family {problem.family!r}, which `synth.questions.certify` proves: no knowledge base is needed"
            )
        if (wrong := self._hashes(problem)) is not None:
            return wrong
        try:
            pattern, root = from_json(problem.lineage["pattern"]), problem.lineage["root"]
            missing = [f for f in problem.lineage["facts"] if f not in self.kb.facts]
        except _MALFORMED as error:
            return "no_lineage", f"the row lacks {error} of its lineage, so there is nothing to prove"
        if split_of(root) != problem.split:
            return "split_differs", f"{root!r} belongs to {split_of(root)}, the row says {problem.split}"
        if missing:
            return (
                "unknown_fact",
                f"{len(missing)} facts are not in the knowledge base, the first {missing[0]}: it is another one, or was edited",
            )
        try:
            return (
                self._answer(problem, pattern, root)
                or self._form(problem)
                or self._world(problem, pattern)
                or self._meaning(problem, pattern, self.extra if own is None else own)
                or self._lineage(problem, pattern, root)
                or self._rules(problem, pattern)
            )
        except (KeyError, ValueError) as error:
            return "unknown_name", f"the pattern names {error}, which the knowledge base does not have"

    def _world(self, problem: Problem, pattern: Pattern) -> Refuted | None:
        """Neither the answer nor a clue rests on a relation that may hold more than is listed, where absence is no fact."""
        closed = problem.lineage.get("closed_world", self.closed_world)
        asked = self.kb.relations[pattern.relation]
        one = asked.functional if pattern.forward else asked.inverse_functional
        if not (closed or asked.complete or one):
            return (
                "open_world",
                f"the relation {asked.name!r} may hold more than is listed, so there may be other answers",
            )
        for clue in (c for node in nodes(pattern.root) for c in node.clues if isinstance(c, Clue)):
            r = self.kb.relations[clue.relation]
            if closed:
                if isinstance(clue.target, Nothing) and not r.complete:
                    why = f"the relation {r.name!r} has gaps, where what is not listed may be unknown and no absence"
                    return "open_world", why
                continue
            single = problem.family == "entity_tree" and (r.inverse_functional if clue.forward else r.functional)
            if not (r.complete or single):
                return (
                    "open_world",
                    f"the relation {r.name!r} may hold more than is listed, so a clue may fit others too",
                )
        return None

    def _lineage(self, problem: Problem, pattern: Pattern, root: str) -> Refuted | None:
        """The row's claims about itself, computed again."""
        given, tree = problem.lineage, problem.family == "fuzzy_tree"
        (answer,) = self.prover.answers(pattern, limit=2)
        if odd := set(given) - _LINEAGE:
            return "lineage_differs", f"the lineage holds {', '.join(sorted(odd))}, which nothing explains"
        entity = self.kb.entities.get(answer)
        names = {normalise(a) for a in (entity.aliases if entity else ()) if self._bearers[normalise(a)] == 1}
        stated_names = problem.args.get("aliases", ())
        if set(problem.args) != {"aliases"} or {normalise(a) for a in stated_names} | {normalise(problem.answer)} != (
            names | {normalise(problem.answer)}
        ):
            return "aliases_differ", f"the row accepts {list(stated_names)}, the answer is also called {sorted(names)}"
        facts = (
            [f.id for f in support(self.graph, pattern, root, answer)]
            if tree
            else patterns.support(self.kb, pattern, answer)
        )
        difficulty: dict[str, float] = {
            "hops": depth(pattern.root) if tree else 1 + searches(pattern.root),
            "clues": sum(1 for _ in deletions(pattern.root))
            if tree
            else max((len(n.clues) for n in nodes(pattern.root)), default=0),
        }
        if isinstance(pattern.root, Node) and tree:
            difficulty["fuzz"] = round(fuzz(pattern.root), 3)
            difficulty["bits"] = round(bits(self.graph, pattern.root, self.graph.end(root)), 2)
        for what, stated_value, mine in (
            ("facts", sorted(given["facts"]), sorted(facts)),
            ("structure", given.get("structure"), canonical(pattern)[:20]),
            ("answer", given.get("answer"), answer if tree else None),
            ("difficulty", {k: problem.difficulty.get(k) for k in difficulty}, difficulty),
            (
                "axes of difficulty",
                set(problem.difficulty),
                {*difficulty, *(("level", "lookups") if tree else ())},
            ),
        ):
            if stated_value != mine:
                return "lineage_differs", f"the row says of its {what} {stated_value}, the knowledge base {mine}"
        witnesses = given.get("witnesses")
        if not tree:
            return None if witnesses is None else ("lineage_differs", "a question of searches has no witnesses")
        wanted = {str(i) for i, _ in enumerate(deletions(pattern.root))}
        if not isinstance(witnesses, Mapping) or set(witnesses) != wanted:
            return "lineage_differs", f"the witnesses are of {sorted(witnesses or ())}, the clues are {sorted(wanted)}"
        return self.prover.refute_tree(pattern, root, answer, {int(i): w for i, w in witnesses.items()})

    def _realiser(self, own: Phrases, not_meant: Iterable[str]) -> Realiser:
        """The templates of all relations but those that a question does not mean."""
        aside = frozenset(not_meant)
        key = json.dumps([own, sorted(aside)], sort_keys=True)
        if key not in self._realisers:
            relations = [r for r in self.kb.relations.values() if r.name not in aside]
            both, known = self.either & self.wording.symmetric, {r.name for r in relations}
            extra = {r: sides for r, sides in own.items() if r in known}
            realiser = Realiser(relations, self.lexicon.name, self.lexicon.find, symmetric=both, extra=extra)
            self._realisers[key] = realiser
        return self._realisers[key]

    def _meaning(self, problem: Problem, pattern: Pattern, own: Phrases) -> Refuted | None:
        for node in nodes(pattern.root):
            for clue in node.clues:
                if isinstance(clue, Clue) and isinstance(span := clue.target, Span):
                    meant = read_span(span.said, self.kb.relations[clue.relation].range)
                    if meant != (span.low, span.high):
                        return "span_differs", f"{span.said!r} means {meant}, the pattern says {(span.low, span.high)}"
        sure = narrowed(pattern.root, lambda r: self.kb.relations[r].range) if isinstance(pattern.root, Node) else None
        if sure is not None and problem.family == "fuzzy_tree" and not self.prover.holds(sure, problem.lineage["root"]):
            return "on_the_edge", f"{problem.lineage['root']} lies at an end of what the words mean"
        if problem.family == "entity_tree":
            read = self.wording.read(problem.question)
            return (
                None
                if [canonical(p) for p in read] == [canonical(pattern)]
                else ("roundtrip_mismatch", f"the text reads as {list(map(to_json, read))}")
            )
        text, lost = problem.question, None
        if problem.lineage.get("wording", "templates") != "templates":
            # What a model wrote was read back by a model when it was made, and no program can do that again: the
            # templates are read, and the model's words must say the same names and numbers.
            text = problem.lineage["templates"]
            lost = self._lost(problem.question, text, pattern)
        (answer,) = self.prover.answers(pattern, limit=2) or ("",)
        other = lost or misread(
            pattern,
            self._realiser(own, problem.lineage.get("not_meant", ())).read(text),
            self.either,
            lambda p: self.prover.refute_tree(p, problem.lineage["root"], answer) is None,
        )
        return None if other is None else ("roundtrip_mismatch", other)

    def _lost(self, question: str, text: str, pattern: Pattern) -> str | None:
        """A name, a vague value or a number that a model left out or added."""
        spans = [
            c.target.said
            for n in nodes(pattern.root)
            for c in n.clues
            if isinstance(c, Clue) and isinstance(c.target, Span)
        ]
        for shown in [*map(self.kb.text, constants(pattern.root)), *spans]:
            if shown.lower() not in question.lower():
                return f"the question does not say {shown!r}"
        more = sorted(set(_DIGITS.findall(question)) - set(_DIGITS.findall(text)))
        return f"the question says {more[0]}, which is no clue" if more else None

    def _answer(self, problem: Problem, pattern: Pattern, root: str) -> Refuted | None:
        answers = self.prover.answers(pattern, limit=3)
        if len(answers) != 1 or self.kb.text(next(iter(answers))) != problem.answer:
            return (
                "not_unique",
                f"{len(answers)} answers by SQL ({', '.join(sorted(answers))}), the row says {problem.answer!r}",
            )
        (answer,) = answers
        if problem.family == "fuzzy_tree":
            return self.prover.refute_tree(pattern, root, answer)
        meant = {pattern.root} if isinstance(pattern.root, str) else self.prover.members(pattern.root)
        if root not in meant:
            return "not_unique", f"the description is of {', '.join(sorted(meant))}, the row says {root!r}"
        return self.prover.refute(pattern, answer)

    def _rules(self, problem: Problem, pattern: Pattern) -> Refuted | None:
        if isinstance(pattern.root, Node) and problem.family == "fuzzy_tree":
            for clue in (c for c in pattern.root.clues if isinstance(c, Clue)):
                if isinstance(clue.target, str) or isinstance(clue.target, Than) and isinstance(clue.target.other, str):
                    return "constant_beside", f"{clue.target} stands beside what is asked"
        words = f" {normalise(problem.question)} "
        shown = {*constants(pattern.root)}
        facts = [self.kb.facts[f] for f in problem.lineage["facts"]]
        touched = dict.fromkeys(x for f in facts for x in (f.subject, f.object) if x is not None)
        sealed = [x for x in touched if problem.split != "test" and split_of(x) == "test"]
        if sealed:
            return "split_leak", f"{sealed[0]} is a test root, the question is {problem.split}"
        for value in (x for x in touched if x not in shown):
            for name in (self.kb.entities[value].name, *self.kb.entities[value].aliases):
                if normalise(name) and f" {normalise(name)} " in words:
                    return "answer_in_text", f"the question says {name!r}, which it hides or asks for"
        numbers = {n.replace(",", "") for n in _DIGITS.findall(problem.question)}
        if problem.answer in numbers or f" {normalise(problem.answer)} " in words:
            return "answer_in_text", f"the question says {problem.answer!r}"
        return None


def reprove(reprover: Reprover, problems: Iterable[Problem], rows: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Counts of a whole file of problems, or of published rows: rows, proved, refuted by reason, the same question
    twice, roots in more than one split; and the evidence."""
    refuted: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    splits: dict[str, str] = {}
    count = 0

    def tell(id_: str, failed: Refuted | None, lineage: Mapping[str, Any], split: str) -> None:
        structure = json.dumps(lineage.get("pattern"), sort_keys=True)
        if failed is None and structure in seen:
            failed = "duplicate", "an earlier row has the same pattern"
        seen.add(structure)
        if failed is None and splits.setdefault(lineage["root"], split) != split:
            failed = "split_leak", f"{lineage['root']} is a root of {splits[lineage['root']]} too"
        if failed is not None:
            refuted.append((id_, failed[0], failed[1]))

    for p in problems:
        count += 1
        tell(p.id, reprover.refute(p), p.lineage, p.split)
    for i, row in enumerate(rows, 1):
        count += 1
        failed = reprover.refute_row(row)
        if failed is not None:
            refuted.append((str(row.get("id", f"row {i}")), failed[0], failed[1]))
        else:
            tell(row["id"], None, json.loads(row["lineage"]), row["split"])
    reasons: dict[str, int] = {}
    for _, reason, _ in refuted:
        reasons[reason] = reasons.get(reason, 0) + 1
    return {
        "rows": count,
        "proved": count - len(refuted),
        "refuted": dict(sorted(reasons.items())),
        "evidence": refuted,
    }
