"""What is published is what is proved: every row of ours passes, and no change of a row does, neither as it stands nor
with all hashes made anew."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synth.knowledge.kb import KB, Entity, Fact, Relation, passages
from synth.knowledge.world import world
from synth.questions.entity_tree import EntityTrees, entity_tree
from synth.questions.fuzzy.grow import bits, depth, fuzz
from synth.questions.fuzzy.lexicon import support
from synth.questions.fuzzy.spans import narrowed, read_span, spell
from synth.questions.fuzzy_tree import FuzzyTrees, fuzzy_tree
from synth.questions.pattern import Clue, Node, Nothing, Span, Third, canonical, deletions, from_json, nodes, to_json
from synth.questions.publish import Publisher, seal
from synth.questions.reprove import Reprover, reprove
from synth.types import Message, Problem, from_row, to_row
from tasks.knowledge.search_tool import Search

Row = dict[str, Any]


MEASURED = (("country", "population", "number"), ("country", "area", "number"), ("city", "founded", "date"))
ONE = {"functional": True, "complete": True}


@pytest.fixture(scope="module")
def kb() -> KB:
    """The fictional world with more numbers, years and gaps."""
    rng, plain = random.Random(0), world(countries=40, seed=4)
    relations = [Relation(name=n, label=n, domain=d, range=r, **ONE) for d, n, r in MEASURED]
    relations.append(Relation(name="discovered", label="year of discovery", domain="mountain", range="year", **ONE))
    facts = []
    for e in plain.entities.values():
        for domain, name, kind in MEASURED:
            if e.type == domain and rng.random() < 0.9:
                value = (
                    f"{rng.randint(1000, 2020)}-05-{rng.randint(10, 28)}"
                    if kind == "date"
                    else rng.randint(2000, 90000)
                )
                facts.append(Fact.make(e.id, name, literal=str(value)))
        if e.type == "mountain" and rng.random() < 0.7:
            facts.append(Fact.make(e.id, "discovered", literal=str(rng.randint(1500, 2020))))
    return KB(plain.entities.values(), [*plain.relations.values(), *relations], [*plain.facts.values(), *facts])


@pytest.fixture(scope="module")
def trees(kb: KB) -> FuzzyTrees:
    return FuzzyTrees.of(kb, passages(kb), seed=0)


@pytest.fixture(scope="module")
def rows(kb: KB, trees: FuzzyTrees) -> list[Row]:
    """Of both families and every kind of clue."""
    grown, _ = fuzzy_tree(trees, {("train", 2): 240, ("train", 3): 60, ("test", 2): 20})
    letters = re.compile("(begin|start)s with")  # the easiest clue, which would crowd out all others
    grown = sorted(grown, key=lambda p: letters.search(p.question) is not None)
    thirds = [p for p in grown if "bottom third" in p.question][:2]
    grown = [*thirds, *(p for p in grown if p not in thirds)]
    grown = grown[:80] + grown[-20:]
    chains, _ = entity_tree(
        EntityTrees(kb, Search(passages(kb), k=3), seed=0), {("train", 1): 10, ("train", 2): 20, ("test", 3): 20}
    )
    return list(map(Publisher(kb).row, [*grown, *chains]))


@pytest.fixture(scope="module")
def reprover(kb: KB) -> Reprover:
    return Reprover(kb)


def again(row: Row, **changes: Any) -> Row:
    """The row with other values, its id and seal made anew: what somebody does who knows how they are made."""
    row = {**row, **{k: v if isinstance(v, str | int) or k in ADDED else json.dumps(v) for k, v in changes.items()}}
    p = from_row(Problem, row)
    new = Problem.make(prompt=p.prompt, answer=p.answer, verifier=p.verifier, args=p.args, family="", split="test")
    row["id"] = new.id
    return row | {"seal": seal(row)}


ADDED = ("formalization", "bounds", "relations", "phrases")


def asked(row: Row, text: str) -> Row:
    """The row with another question, in the prompt too."""
    return again(row, question=text, prompt=[{"role": "user", "content": text}])


def parts(row: Row, field: str) -> Any:
    return json.loads(row[field])


def test_every_row_of_ours_is_proved(reprover: Reprover, rows: list[Row]) -> None:
    assert len(rows) == 150
    assert reprove(reprover, (), rows) == {"rows": 150, "proved": 150, "refuted": {}, "evidence": []}
    text = json.dumps(rows)
    kinds = ("C@about ", "C@between ", "bottom third", "top third", "C@none", "begins with", "century")
    assert [k for k in kinds if k not in text] == []


def test_bounds_are_the_numbers_that_the_words_mean(kb: KB, rows: list[Row]) -> None:
    """Computed here once more, from the words and the facts."""
    seen = set()
    for row in rows:
        assert len(row["bounds"]) == len(row["formalization"])
        for (s, relation, o), bounds in zip(row["formalization"], row["bounds"], strict=True):
            if between := re.fullmatch(r"C@between (\d[\d,]*) and (\d[\d,]*)", o):
                low, high = (float(x.replace(",", "")) for x in between.groups())
                if kb.relations[relation].range == "year":
                    assert bounds == [low, high]
                else:  # and what rounds to an end: half of one in the last of two digits
                    half = 10.0 ** (len(str(int(low))) - 2) / 2
                    assert bounds == [low - half, high + half]
                seen.add("between")
            elif o.endswith(" third"):
                values = sorted(float(f.value) for f in kb.facts.values() if f.relation == relation)
                n = len(values) * 11 // 30  # all that a reader may count in
                assert bounds == ([values[-n], None] if o == "C@top third" else [None, values[n - 1]])
                seen.add(o)
            elif not o.startswith(("C@about", "C@between", "C@in ")):
                assert bounds is None, (s, relation, o)
    assert seen == {"between", "C@top third", "C@bottom third"}


def test_no_field_can_be_changed_or_left_out(reprover: Reprover, rows: list[Row]) -> None:
    """Plain edits of a file: the seal sees each of them."""
    for row in (rows[0], rows[-1]):
        for field in row:
            changed = {k: v for k, v in row.items() if k != field}
            assert reprover.refute_row(changed) is not None, f"without {field}"
            value = row[field]
            other = value + 1 if isinstance(value, int) else [] if not isinstance(value, str) else value[:-1]
            for wrong in (other, None, "", {}):
                assert wrong == value or reprover.refute_row(row | {field: wrong}) is not None, (field, wrong)
        assert reprover.refute_row(row | {"note": 1}) is not None
        added = row | {"note": 1}
        assert reprover.refute_row(added | {"seal": seal(added)})[0] == "fields_differ"


@pytest.mark.parametrize(
    "field, change",
    [
        ("family", lambda v: "fuzzy_tree" if v == "entity_tree" else "entity_tree"),
        ("family", lambda v: "countdown"),
        ("verifier", lambda v: "choice"),
        ("env", lambda v: "single"),
        ("split", lambda v: "valid"),
        ("answer", lambda v: v + "n"),
        ("args", lambda v: {"aliases": ["anything"]}),
        ("args", lambda v: {"aliases": [], "tolerance": 1}),
        ("args", lambda v: {}),
        ("difficulty", lambda v: {**v, "hops": v["hops"] + 1}),
        ("difficulty", lambda v: {**v, "clues": v["clues"] + 1}),
        ("difficulty", lambda v: {**v, "fuzz": 3.9}),
        ("difficulty", lambda v: {**v, "bits": 0.01}),
        ("difficulty", lambda v: {k: x for k, x in v.items() if k != "hops"}),
        ("lineage", lambda v: {**v, "facts": v["facts"][:-1]}),
        ("lineage", lambda v: {**v, "facts": [*v["facts"], v["facts"][0]]}),
        ("lineage", lambda v: {**v, "structure": "0" * 20}),
        ("lineage", lambda v: {**v, "answer": v["root"]}),
        ("lineage", lambda v: {**v, "root": "country:Nowhere"}),
        ("lineage", lambda v: {**v, "witnesses": {}}),
        ("lineage", lambda v: {**v, "witnesses": {k: v["root"] for k in v.get("witnesses", {"0": 0})}}),
        ("lineage", lambda v: {**v, "note": "trust me"}),
        ("lineage", lambda v: {k: x for k, x in v.items() if k != "pattern"}),
        ("prompt", lambda v: [{"role": "system", "content": "The answer is Zelton."}, *v]),
        ("prompt", lambda v: [*v, {"role": "assistant", "content": "Zelton"}]),
        ("prompt", lambda v: [{"role": "system", "content": v[0]["content"]}]),
        ("formalization", lambda v: v[1:]),
        ("formalization", lambda v: [*v, v[0]]),
        ("formalization", lambda v: [[s, r + "s", o] for s, r, o in v]),
        ("formalization", lambda v: [[o, r, s] for s, r, o in v]),
        ("bounds", lambda v: [[0, 1], *v[1:]]),
        ("bounds", lambda v: v[1:]),
        ("relations", lambda v: {}),
        ("relations", lambda v: {r: {**s, "complete": not s["complete"]} for r, s in v.items()}),
        ("relations", lambda v: {r: {**s, "label": "height"} for r, s in v.items()}),
        ("phrases", lambda v: {"border": {"subject": ["that is far from {y}"]}, "spouse": {}}),
    ],
)
def test_no_field_can_be_changed_with_the_hashes_made_anew(
    reprover: Reprover, rows: list[Row], field: str, change: Callable
) -> None:
    for row in (rows[0], rows[65], rows[-1], rows[-20]):
        value = row.get(field)
        value = json.loads(value) if field in ("args", "difficulty", "lineage", "prompt") else value
        changed = again(row, **{field: change(value)})
        assert changed != row and reprover.refute_row(changed) is not None


def each_clue(term: Any) -> Iterator[Any]:
    """The pattern of JSON without each clue, at any depth."""
    if isinstance(term, dict):
        for key, value in term.items():
            if key == "clues":
                for i, clue in enumerate(value):
                    yield {**term, "clues": value[:i] + value[i + 1 :]}
                    for smaller in each_clue(clue):
                        yield {**term, "clues": [*value[:i], smaller, *value[i + 1 :]]}
            else:
                for smaller in each_clue(value):
                    yield {**term, key: smaller}


def test_no_clue_can_go(reprover: Reprover, rows: list[Row]) -> None:
    """Out of the pattern, out of the triples, or out of both and the words."""
    tried = 0
    for row in rows[:40] + rows[-20:]:
        lineage = parts(row, "lineage")
        for pattern in each_clue(lineage["pattern"]):
            assert reprover.refute_row(again(row, lineage={**lineage, "pattern": pattern})) is not None
            tried += 1
        for i in range(len(row["formalization"])):
            fewer = {k: row[k][:i] + row[k][i + 1 :] for k in ("formalization", "bounds")}
            assert reprover.refute_row(again(row, **fewer)) is not None
    assert tried > 100


def rebuilt(kb: KB, trees: FuzzyTrees, row: Row, root: Node) -> Row:
    """A row made anew around another description, everything in it in order but its truth."""
    p = from_row(Problem, row)
    pattern = replace(from_json(p.lineage["pattern"]), root=root)
    text = trees.wording.write(pattern, random.Random(0))
    facts = support(trees.graph, pattern, p.lineage["root"], p.lineage["answer"])
    at = trees.graph.end(p.lineage["root"])
    difficulty = {
        **p.difficulty,
        "hops": depth(root),
        "clues": sum(1 for _ in deletions(root)),
        "fuzz": round(fuzz(root), 3),
        "bits": round(bits(trees.graph, root, at), 2),
    }
    lineage = {
        **p.lineage,
        "facts": [f.id for f in facts],
        "pattern": to_json(pattern),
        "structure": canonical(pattern)[:20],
        "witnesses": {str(i): p.lineage["root"] for i, _ in enumerate(deletions(root))},
    }
    problem = Problem.make(
        **{f: getattr(p, f) for f in ("answer", "verifier", "args", "env", "family", "split")},
        prompt=text,
        difficulty=difficulty,
        lineage=lineage,
    )
    return Publisher(kb).row(problem)


def test_a_question_with_a_clue_too_few_or_too_many_is_refuted_however_well_it_is_made(
    kb: KB, trees: FuzzyTrees, reprover: Reprover, rows: list[Row]
) -> None:
    reasons, roots = set(), [from_json(parts(row, "lineage")["pattern"]).root for row in rows[:100]]
    every = [(root.type, clue) for root in roots if isinstance(root, Node) for clue in root.clues]
    for row in rows[:40]:
        pattern = from_json(parts(row, "lineage")["pattern"])
        assert isinstance(pattern.root, Node)
        for fewer in (Node(type=pattern.root.type, clues=c) for c in without_one(pattern.root.clues)):
            reasons.add(reprover.refute_row(rebuilt(kb, trees, row, fewer))[0])
        at = trees.graph.end(parts(row, "lineage")["root"])
        true = (c for t, c in every if t == pattern.root.type and c not in pattern.root.clues)
        more = next((c for c in true if trees.graph.true(c, at)), None)
        if more is None:
            continue
        wider = Node(type=pattern.root.type, clues=(*pattern.root.clues, more))
        failed = reprover.refute_row(rebuilt(kb, trees, row, wider))
        assert failed is not None
        reasons.add(failed[0])
    assert reasons <= {"not_unique", "redundant_clue", "single_clue", "answer_in_text", "roundtrip_mismatch"}
    assert {"not_unique", "redundant_clue"} <= reasons


def without_one(clues: tuple) -> Iterator[tuple]:
    for i in range(len(clues)):
        yield clues[:i] + clues[i + 1 :]


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def test_no_number_of_the_text_can_be_changed(reprover: Reprover, rows: list[Row]) -> None:
    tried = 0
    for row in rows:
        for match in NUMBER.finditer(row["question"]):
            value = float(match[0].replace(",", ""))
            for other in (value + 1, value * 10, value / 2):
                text = f"{row['question'][: match.start()]}{other:,.6g}{row['question'][match.end() :]}"
                assert reprover.refute_row(asked(row, text)) is not None, text
                tried += 1
    assert tried > 100


EMPTY = frozenset(
    "a an the that which who i am is are of has have in with for consider certain there looking mind "
    "thinking name tell me give can you what".split()
)


def test_no_word_that_carries_meaning_can_be_changed_left_out_or_added(reprover: Reprover, rows: list[Row]) -> None:
    """Names, relations, types, numbers, no, not, greater, smaller, top, bottom, begins: everything but the words that
    join them."""
    pool = sorted({w for row in rows for w in re.findall(r"\w+", row["question"])} - EMPTY)
    rng, tried = random.Random(0), 0
    for row in rows[:30] + rows[-20:]:
        words = re.findall(r"\w+|\W+", row["question"])
        for i, word in enumerate(words):
            if not re.fullmatch(r"\w+", word) or word.lower() in EMPTY:
                continue
            other = rng.choice([w for w in pool if w.lower() != word.lower()])
            for mine in (other, "", f"{word} {other}"):
                text = "".join([*words[:i], mine, *words[i + 1 :]])
                failed = reprover.refute_row(asked(row, text))
                # "begins with" may be said as "starts with": the same pattern in other words is no lie
                assert failed is not None or {word, mine} <= {"begins", "starts", "it", "It", "this", "This"}, text
                tried += 1
    assert tried > 800


def test_what_a_model_wrote_still_says_the_names_and_numbers(reprover: Reprover, rows: list[Row]) -> None:
    row = next(r for r in rows if re.search(r"about [\d,]+", r["question"]) and r["family"] == "fuzzy_tree")
    lineage = parts(row, "lineage") | {"wording": "model", "templates": row["question"]}

    def said(text: str) -> Any:
        return reprover.refute_row(
            again(row, question=text, prompt=[{"role": "user", "content": text}], lineage=lineage)
        )

    assert said(f"Here is one for you: {row['question']}") is None
    assert said(row["question"].replace("about ", "around "))[0] == "roundtrip_mismatch"
    assert said(f"{row['question']} It has 7 hills.")[0] == "roundtrip_mismatch"
    lineage["templates"] = next(r["question"] for r in rows if r is not row)
    assert said(row["question"])[0] == "roundtrip_mismatch"


def clues(problem: Problem) -> list[Any]:
    """All clues of a question."""
    return [c for node in nodes(from_json(problem.lineage["pattern"]).root) for c in node.clues]


def holds_nothing(clue: Any) -> bool:
    """Whether a clue says that there is none."""
    return isinstance(clue, Clue) and isinstance(clue.target, Nothing)


def test_a_relation_that_may_hold_more_carries_no_clue(kb: KB, rows: list[Row]) -> None:
    """The same rows, where the base says no longer that its relations are complete; the world that was taken as closed
    is said in the row."""
    opened = KB(
        kb.entities.values(),
        [replace(r, complete=False, inverse_functional=False) for r in kb.relations.values()],
        kb.facts.values(),
    )
    trees = [from_row(Problem, r) for r in rows if r["family"] == "fuzzy_tree"]
    fresh = Reprover(opened)
    for absence in (False, True):  # "that has no X" needs a base that says that X is complete
        problem = next(p for p in trees if absence == any(holds_nothing(c) for c in clues(p)))
        closed = Publisher(opened).row(replace(problem, lineage={**problem.lineage, "closed_world": True}))
        assert fresh.refute_row(Publisher(opened).row(problem))[0] == "open_world"
        refuted = fresh.refute_row(closed)
        assert (refuted is not None and "no absence" in refuted[1]) if absence else refuted is None
    grown, _ = fuzzy_tree(FuzzyTrees.of(opened, passages(opened), seed=0, closed_world=True), {("train", 2): 10})
    assert reprove(fresh, (), list(map(Publisher(opened).row, grown)))["proved"] == 10


def test_a_question_that_rests_on_an_end_of_its_range_is_refuted(
    kb: KB, trees: FuzzyTrees, reprover: Reprover, rows: list[Row]
) -> None:
    """ "Between 2,000 and 5,000" of a root with 2,000: everything else in the row is right."""
    for row in rows[:80]:
        root = from_json(parts(row, "lineage")["pattern"]).root
        at = trees.graph.end(parts(row, "lineage")["root"])
        for i, clue in enumerate(root.clues):
            if not (isinstance(clue, Clue) and isinstance(clue.target, Span)):
                continue
            kind, value = kb.relations[clue.relation].range, trees.graph.columns[clue.relation].values[at]
            if kind == "number" and clue.target.said.startswith("between"):
                words = f"between {spell(value)} and {clue.target.said.split(' and ')[1]}"
                bounds = read_span(words, kind)
                edge = replace(clue, target=Span(low=bounds[0], high=bounds[1], said=words))
                changed = rebuilt(kb, trees, row, replace(root, clues=(*root.clues[:i], edge, *root.clues[i + 1 :])))
                reason = reprover.refute_row(changed)[0]
                assert reason in ("on_the_edge", "redundant_clue")
                if reason == "on_the_edge":
                    return
    raise AssertionError("no question had a range")


def test_a_question_that_rests_on_the_edge_of_a_third_is_refuted(
    kb: KB, trees: FuzzyTrees, reprover: Reprover, rows: list[Row]
) -> None:
    """The clue of a third is said of roots that not every reader counts in: those between 9 and 11 of 30, and ties there."""
    reasons: set[str] = set()
    for row in rows:
        root = from_json(parts(row, "lineage")["pattern"]).root
        if not isinstance(root, Node):
            continue
        at = trees.graph.end(parts(row, "lineage")["root"])
        for relation, column in trees.graph.columns.items():
            if (
                column.relation.range != "number"
                or column.relation.domain != root.type
                or column.values[at] != column.values[at]
            ):
                continue
            value, n = column.values[at], len(column.sorted)
            for largest in (True, False):
                before = (column.sorted > value if largest else column.sorted < value).sum()
                alike = (column.sorted == value).sum()
                third = Clue(relation=relation, forward=True, target=Third(largest=largest))
                surely, maybe = before + alike <= n * 9 // 30, before < max(1, n * 11 // 30)
                held = [
                    trees.graph.holds(c, np.array([at]))[0]
                    for c in (third, replace(third, target=replace(third.target, sure=True)))
                ]
                assert held == [maybe, surely]
                node = Node(type=root.type, clues=(third,))
                assert [trees.prover.holds(x, trees.graph.id(at)) for x in (node, narrowed(node, trees._kind))] == held
                if not maybe or surely or "on_the_edge" in reasons:
                    continue
                for k in range(len(root.clues)):
                    clues = (*root.clues[:k], third, *root.clues[k + 1 :])
                    reasons.add(reprover.refute_row(rebuilt(kb, trees, row, replace(root, clues=clues)))[0])
    assert "on_the_edge" in reasons and reasons <= {"on_the_edge", "not_unique", "redundant_clue", "too_shallow"}, (
        reasons
    )


def test_a_relation_without_direction_is_read_both_ways() -> None:
    """Listed one way only: what borders it the other way fits the words too."""
    border = Relation(
        name="border",
        domain="land",
        range="land",
        label="border",
        complete=True,
        forward="a land that shares a border with {x}",
        inverse="a land that shares a border with {y}",
    )
    names = [Entity.make("land", n) for n in ("Aland", "Beland", "Celand")]
    facts = [
        Fact.make("land:Aland", "border", object="land:Beland"),
        Fact.make("land:Beland", "border", object="land:Celand"),
    ]
    small = KB(names, [border], facts)
    beside = Node(type="land", clues=(Clue(relation="border", forward=True, target="land:Beland"),))
    assert Reprover(small).prover.members(beside) == {"land:Aland", "land:Celand"}
    other = Node(type="land", clues=(Clue(relation="border", forward=False, target="land:Beland"),))
    assert Reprover(small).prover.members(other) == {"land:Aland", "land:Celand"}


def test_an_edited_base_refutes(kb: KB, rows: list[Row]) -> None:
    row = rows[0]
    lost = set(parts(row, "lineage")["facts"][:1])
    less = KB(kb.entities.values(), kb.relations.values(), [f for f in kb.facts.values() if f.id not in lost])
    assert Reprover(less).refute_row(row) is not None
    renamed = [replace(r, label=f"old {r.label}") for r in kb.relations.values()]
    assert Reprover(KB(kb.entities.values(), renamed, kb.facts.values())).refute_row(row)[0] == "relations_differ"


def test_relations_of_one_label_are_told_apart_by_the_row(kb: KB) -> None:
    """Questions of some relations, in a base where others are said in the same words: the row names those that it does
    not mean, and without that it is refuted."""
    twins = {r.name: replace(r, name=f"{r.name}_too") for r in kb.relations.values()}
    rng = random.Random(0)
    some = [f for f in kb.facts.values() if rng.random() < 0.5]
    more = [Fact.make(f.subject, f"{f.relation}_too", object=f.object, literal=f.literal) for f in some]
    both = KB(kb.entities.values(), [*kb.relations.values(), *twins.values()], [*kb.facts.values(), *more])
    questions, _ = fuzzy_tree(FuzzyTrees.of(both, passages(both), seed=0, only=list(kb.relations)), {("train", 2): 20})
    reprover, rows = Reprover(both), list(map(Publisher(both).row, questions))
    assert reprove(reprover, (), rows)["proved"] == 20 and all("not_meant" in parts(r, "lineage") for r in rows)
    for row in rows[:5]:
        lineage = parts(row, "lineage")
        del lineage["not_meant"]
        assert reprover.refute_row(again(row, lineage=lineage))[0] == "roundtrip_mismatch"


def test_rows_and_problems_say_the_same(kb: KB, rows: list[Row]) -> None:
    p = from_row(Problem, rows[0])
    assert to_row(p).items() <= rows[0].items() and p.prompt == (Message(role="user", content=rows[0]["question"]),)
