"""Quotas: an attribute of a root is asked once, a share over its quota only fills what is left, and nothing is lost."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from synth.questions.fuzzy_tree import fuzzy_tree, in_turn, indexes
from synth.questions.pattern import Clue, Named, Node, Pattern, Span, from_json, to_json
from synth.questions.quotas import QUOTA_FULL, End, Full, Tally, diversity, links, shape
from synth.types import Problem, Quarantined, to_row

RANGES = {"area": "number", "capital": "city", "motto": "string"}


def node(*relations, **more):
    return Node(
        type="country",
        clues=(*(Clue(relation=r, forward=True, target="x") for r in relations), Named(initial="A")),
        **more,
    )


def question(root, relation, *relations, n=0):
    """A question with a text and a structure of its own."""
    pattern = Pattern(relation=relation, forward=True, root=node(*relations))
    text = f"{root}{n} {relation}{n} {' '.join(relations)}{n} is it?"
    problem = Problem.make(prompt=text, answer="a", verifier="exact", family="fuzzy_tree", split="train")
    return replace(problem, lineage={"root": root, "pattern": to_json(pattern), "structure": text})


def grown(items, wanted, **quotas):
    queue = iter([*items, None])
    accepted, quarantined = fuzzy_tree(lambda *key: next(queue), {("train", 2): wanted}, tally=Tally(RANGES, **quotas))
    return [p.lineage["root"] for p in accepted], [(q.reason, q.evidence.partition(" | ")[2]) for q in quarantined]


def test_shape_and_links_of_a_tree():
    inner = Node(type="city", clues=(Clue(relation="river", forward=False, target="r1"),))
    span = Clue(relation="area", forward=True, target=Span(low=1, high=2, said="about 1"))
    root = Node(
        type="country", clues=(span, Clue(relation="capital", forward=True, target=inner), Named(initial="A", words=2))
    )
    assert shape(root) == "((name), named, span)" and shape("x") == "name"
    assert links(Pattern(relation="motto", forward=True, root=root)) == {"capital", "river"}, "a value is no link"


def test_an_attribute_of_a_root_is_asked_once():
    items = [question("A", "area", "border", n=i) for i in range(3)] + [question("A", "motto", "border")]
    assert grown(items, 4, root_attribute=1) == (
        ["A", "A"],
        [("over_quota", "1 about area of A already")] * 2,
    )
    assert len(grown(items, 4, root_attribute=2)[0]) == 3 and len(grown(items, 4)[0]) == 4


def test_a_share_is_kept_where_there_is_other_to_ask_and_else_filled_in_order():
    same = [question(root, "area", "border") for root in "ABCD"]
    other = [question(root, "motto", "river") for root in "EF"]
    accepted, left = grown([*same, *other], 4, answer=0.5)
    assert accepted == ["A", "B", "E", "F"]
    assert left == [("over_quota", "2 of 4 have the answer number already")] * 2
    assert grown([*same, other[0]], 4, answer=0.5)[0] == ["A", "B", "E", "C"], (
        "nothing else: what waited first fills it"
    )
    assert grown([*same, *other], 4, relation=0.25)[0] == ["A", "E", "B", "F"], "of 4 one of each, then the other two"
    assert grown([*same, *other], 4)[0] == ["A", "B", "C", "D"]


def test_what_waits_for_the_share_of_its_answer_keeps_the_other_shares():
    """Where a base has numbers alone to ask for, half of its questions still do without a border."""
    borders = [question(root, "area", "border") for root in "ABCD"]
    rivers = [question(root, "area", "river") for root in "EF"]
    assert grown([*borders, *rivers], 4, answer=0.5, relation=0.5)[0] == ["A", "B", "E", "F"]
    mottos = [question(root, "motto", "border") for root in "GH"]
    assert grown([*borders[:2], *rivers, *mottos], 6, answer=0.3, relation=0.5)[0] == ["A", "B", "G", "E", "F", "H"]


def test_a_relation_is_left_out_while_enough_wait_that_use_it():
    calls = []

    def make(split, depth, index, full=Full()):
        calls.append(full)
        return question(f"R{index}", "area", "river" if "border" in full.relations else "border")

    accepted, _ = fuzzy_tree(make, {("train", 2): 100}, tally=Tally(RANGES, answer=0.1, relation=0.5))
    assert set(calls[64:128]) == {Full(relations=frozenset({"border"}))}, "10 were accepted, 40 wait"
    assert Counter(r for p in accepted for r in links(from_json(p.lineage["pattern"]))) == {"border": 50, "river": 50}


def test_shares_are_raised_step_by_step_to_fill_a_cell():
    """Of two relations that are both over their share in the end, neither is far over it."""

    def make(split, depth, index, full=Full()):
        left = [r for r in ("border", "river") if r not in full.relations]
        if not left:
            return Quarantined(id=f"tree/{split}/{depth}/{index}", stage="questions", reason=QUOTA_FULL, evidence="x")
        return question(f"R{index}", "area", left[0])

    accepted, left = fuzzy_tree(make, {("train", 2): 200}, tally=Tally(RANGES, relation=0.3))
    used = Counter(r for p in accepted for r in links(from_json(p.lineage["pattern"])))
    assert used.total() == 200 and max(used.values()) <= 120 and {q.reason for q in left} <= {QUOTA_FULL, "over_quota"}


def test_a_cell_ends_when_twice_what_it_wants_was_good():
    drawn = []

    def make(split, depth, index):
        drawn.append(index)
        return question(f"R{index}", "area", "border")

    accepted, left = fuzzy_tree(make, {("train", 2): 10}, tally=Tally(RANGES, answer=0.1))
    assert len(accepted) == 10 and len(left) == 10 and len(drawn) <= 21
    assert [q.id for q in left] == [f"tree/train/2/{i}" for i in range(10, 20)]


def test_shares_count_anew_in_every_cell_and_roots_in_all():
    def make(split, depth, index):
        return question(f"{'ABC'[index]}{depth}", ("area", "area", "motto")[index], "border") if index < 3 else None

    accepted, _ = fuzzy_tree(make, {("train", 2): 2, ("train", 3): 2}, tally=Tally(RANGES, answer=0.5))
    assert [p.lineage["root"] for p in accepted] == ["A2", "C2", "A3", "C3"]

    def again(split, depth, index):
        return question(f"R{index}", "area", "border", n=depth) if index < 8 else None

    accepted, left = fuzzy_tree(again, {("train", 2): 2, ("train", 3): 2}, tally=Tally(RANGES, root_attribute=1))
    assert [p.lineage["root"] for p in accepted] == ["R0", "R1", "R2", "R3"]
    assert [q.id for q in left] == ["tree/train/3/0", "tree/train/3/1"]


def test_what_fills_a_cell_is_checked_again():
    items = [question("A", "area", "border"), *(question("B", "area", "border", n=i) for i in range(2))]
    assert grown(items, 3, answer=0.3, root_attribute=1) == (["A", "B"], [("over_quota", "1 about area of B already")])


@pytest.mark.parametrize("bad", [{"root_attribute": -1}, {"relation": 0}, {"answer": 1.5}, {"shape": -0.1}])
def test_impossible_quotas_are_refused(bad):
    with pytest.raises(ValueError, match=rf"quotas: {next(iter(bad))} is {next(iter(bad.values()))}: give"):
        Tally(RANGES, **bad)


def test_the_card_gives_the_largest_shares():
    some = [question("A", "area", "border"), question("A", "area", "river", n=1), question("B", "capital", "border")]
    card = diversity(some, RANGES)
    assert card["asked_again"] == round(1 / 3, 4)
    assert card["relation"] == {"border": 0.6667, "river": 0.3333}
    assert card["answer"] == {"number": 0.6667, "city": 0.3333} and card["shape"] == {"(name, named)": 1.0}


def test_queues_take_turns():
    queues = [np.array(rows, np.int32).reshape(-1, 2) for rows in ([(0, 1), (0, 2), (0, 3)], [(1, 9)], [])]
    assert in_turn(queues).tolist() == [[0, 1], [1, 9], [0, 2], [0, 3]] and in_turn([]).tolist() == []


def test_kinds_of_answers_take_turns_and_depths_begin_elsewhere(trees):
    kinds = [trees.graph.columns[relation].relation.range for relation, _ in trees.roots("train")[:40]]
    several = len({trees.graph.columns[r].relation.range for r in trees._guess})
    assert several > 2 and set(Counter(kinds[:several]).values()) == {1}
    assert not set(trees.roots("train", 2)[:20]) & set(trees.roots("train", 3)[:20])
    assert sorted(trees.roots("train", 2)) == sorted(trees.roots("train", 3))


@pytest.fixture(scope="module")
def trees():
    from synth.knowledge.kb import passages
    from synth.knowledge.world import world
    from synth.questions.fuzzy_tree import FuzzyTrees

    kb = world(countries=30, seed=4)
    return FuzzyTrees.of(kb, passages(kb), seed=0)


def test_what_was_asked_often_enough_is_not_made_again():
    cell = [(f"R{i}", relation) for i in range(4) for relation in ("area", "motto")]
    indexes_made = []

    def make(split, depth, index):
        indexes_made.append(index)
        root, relation = cell[index % len(cell)]
        return question(root, relation, "border", n=index)

    limits = {"root_attribute": 1, "answer": 0.5}
    accepted, left = fuzzy_tree(
        make, {("train", 2): 4, ("train", 3): 4}, tally=Tally(RANGES, **limits), pairs=lambda split, depth: cell
    )
    assert len(accepted) == 8 and not left and len(indexes_made) == 8, "none is made to be refused"
    assert list(indexes(cell, full := Tally(RANGES, root_attribute=1), 4, 100))[0] == list(range(8))
    for p in accepted:
        full.add(p)
    assert list(indexes(cell, full, 4, 100)) == [], "nothing is left to ask"


def test_answers_over_their_share_are_made_last():
    cell = [("A", "area"), ("B", "area"), ("C", "motto"), ("D", "motto")]
    tally = Tally(RANGES, answer=0.5)
    assert list(indexes(cell, tally, 2, 10)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    tally.add(question("A", "area", "border"))
    assert list(indexes(cell, tally, 2, 6)) == [[2, 3], [0, 1], [6, 7]]
    assert list(indexes((), tally, 2, 70)) == [list(range(64)), list(range(64, 70))], "without pairs in turn"


def test_full_relations_are_left_out_as_questions_grow():
    """What the first 64 settle is a fourth argument of the next ones."""
    calls = []

    def make(split, depth, index, full=Full()):
        calls.append(full)
        return question(f"R{index}", "area", "river" if "border" in full.relations else "border")

    ends = {}
    accepted, left = fuzzy_tree(make, {("train", 2): 100}, tally=Tally(RANGES, relation=0.5), ends=ends)
    assert calls[:64] == [Full()] * 64 and calls[64:] == [Full(relations=frozenset({"border"}))] * 50
    assert [p.lineage["root"] for p in accepted] == [f"R{i}" for i in (*range(50), *range(64, 114))]
    assert [q.id for q in left] == [f"tree/train/2/{i}" for i in range(50, 64)]
    assert ends["train", 2] == End(wanted=100, accepted=100, drawn=114, over=0, dry=False)
    assert not ends["train", 2].why()


def test_shapes_are_full_too_and_a_share_of_one_never_is():
    tally = Tally(RANGES, shape=0.5)
    tally.add(question("A", "area", "border"))
    assert tally.shut(2) == Full(shapes=frozenset({"(name, named)"})) and tally.shut(3) == Full()
    tally = Tally(RANGES)
    tally.add(question("A", "area", "border"))
    assert not tally.shut(1)
    assert str(Full(relations=frozenset({"a"}))) != str(Full(shapes=frozenset({"a"}))), "keys of what is finished"


def test_what_cannot_do_without_what_is_full_fills_a_cell_and_the_card_says_so():
    cell = [(f"R{i}", "area") for i in range(120)]
    calls = []

    def make(split, depth, index, *full):
        calls.append((index, bool(full)))
        if full:
            return Quarantined(id=f"tree/{split}/{depth}/{index}", stage="questions", reason=QUOTA_FULL, evidence="x")
        return question(*cell[index % 120], "border")

    ends = {}
    accepted, left = fuzzy_tree(
        make,
        {("train", 2): 100},
        tally=Tally(RANGES, relation=0.5, root_attribute=1),
        pairs=lambda split, depth: cell,
        ends=ends,
        tries=2,
    )
    assert [p.lineage["root"] for p in accepted] == [f"R{i}" for i in range(100)], "as they came"
    assert calls[:64] == [(i, False) for i in range(64)] and calls[64:120] == [(i, True) for i in range(64, 120)]
    assert [q.reason for q in left] == [QUOTA_FULL] * 100, "200 draws, each accepted or quarantined once"
    assert len({q.id for q in left}) == 100
    assert ends["train", 2].over == 50 and ends["train", 2].dry
    assert "50 of them over a share: the source has no more" in ends["train", 2].why()


def test_a_cell_that_ends_by_its_draws_says_that():
    cell = [(f"R{i}", "area") for i in range(50)]
    ends = {}

    def make(split, depth, index, *full):
        return Quarantined(id=str(index), stage="questions", reason="no_branch", evidence="x")

    fuzzy_tree(make, {("train", 2): 10}, tries=4, pairs=lambda split, depth: cell, ends=ends)
    assert ends["train", 2] == End(wanted=10, accepted=0, drawn=40, over=0, dry=False)
    assert "0 of 10: the 40 draws that it may take were used up" in ends["train", 2].why()
    fuzzy_tree(make, {("train", 2): 10}, tries=5, pairs=lambda split, depth: cell, ends=ends)
    assert ends["train", 2].why().startswith("0 of 10: the source has no more")


def test_answers_of_a_full_kind_are_not_drawn_once_enough_wait():
    """Beyond those that fill the cell, all of them would be refused."""
    cell = [(f"R{i}", "area") for i in range(400)] + [(f"S{i}", "motto") for i in range(10)]
    cells_made = []

    def make(split, depth, index, *full):
        cells_made.append(index % len(cell))
        return question(*cell[index % len(cell)], "border")

    accepted, left = fuzzy_tree(
        make,
        {("train", 2): 100},
        tally=Tally(RANGES, root_attribute=1, answer=0.5),
        pairs=lambda split, depth: cell,
    )
    assert len(accepted) == 100 and sum(p.lineage["root"].startswith("S") for p in accepted) == 10
    assert len([i for i in cells_made if i < 400]) == 128, "two blocks: one until it was full, one to fill what is left"
    assert len(left) == 38


def test_trees_grow_without_what_is_full(trees):
    plain = [trees("train", 2, i) for i in range(60)]
    assert [to_row(trees("train", 2, i, Full())) for i in range(60)] == list(map(to_row, plain))
    patterns = [from_json(p.lineage["pattern"]) for p in plain if isinstance(p, Problem)]
    shapes = Counter(shape(p.root) for p in patterns)
    full = Full(
        relations=frozenset({Counter(r for p in patterns for r in links(p)).most_common(1)[0][0]}),
        shapes=frozenset(s for s, _ in shapes.most_common(2)),
    )
    others = [trees("train", 2, i, full) for i in range(60)]
    patterns = [from_json(p.lineage["pattern"]) for p in others if isinstance(p, Problem)]
    assert len(patterns) > 10
    assert not any(links(p) & full.relations or shape(p.root) in full.shapes for p in patterns)
    assert any(isinstance(p, Quarantined) and p.reason == QUOTA_FULL for p in others)
    assert [to_row(trees("train", 2, i)) for i in range(60)] == list(map(to_row, plain)), "and then with it again"


def test_quotas_give_the_same_bytes_for_any_order_of_work(trees):
    def backwards(make, *lists):
        keys = list(zip(*lists, strict=True))
        return reversed([make(*key) for key in reversed(keys)])

    counts = {("train", 2): 80, ("test", 2): 8}
    quotas = {"root_attribute": 1, "relation": 0.3, "shape": 0.2, "answer": 0.5}
    rows = []
    for run in (map, backwards):
        parts = fuzzy_tree(trees, counts, run=run, tally=Tally({}, **quotas), pairs=trees.pairs)
        rows.append([to_row(x) for part in parts for x in part])
    assert rows[0] == rows[1]
    assert any(r.get("reason") == QUOTA_FULL for r in rows[0]), "something was full"
