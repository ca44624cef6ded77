"""Quotas: an attribute of a root is asked once, a share over its quota only fills what is left, and nothing is lost."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from synth.questions.fuzzy_tree import fuzzy_tree, in_turn, indexes
from synth.questions.pattern import Clue, Named, Node, Pattern, Span, to_json
from synth.questions.quotas import Tally, diversity, links, shape
from synth.types import Problem

RANGES = {"area": "number", "capital": "city", "motto": "string"}


def node(*relations, **more):
    return Node(
        type="country",
        clues=(*(Clue(relation=r, forward=True, target="x") for r in relations), Named(initial="A")),
        **more,
    )


def question(root, asked, *relations, n=0):
    """A question with a text and a structure of its own."""
    pattern = Pattern(relation=asked, forward=True, root=node(*relations))
    text = f"{root}{n} {asked}{n} {' '.join(relations)}{n} is it?"
    made = Problem.make(prompt=text, answer="a", verifier="exact", family="fuzzy_tree", split="train")
    return replace(made, lineage={"root": root, "pattern": to_json(pattern), "structure": text})


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
    assert grown([*same, *other], 4, relation=0.25)[0] == ["A", "E", "B", "C"], "of 4 one of each, then as they came"
    assert grown([*same, *other], 4)[0] == ["A", "B", "C", "D"]


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
    made = []

    def make(split, depth, index):
        made.append(index)
        root, relation = cell[index % len(cell)]
        return question(root, relation, "border", n=index)

    limits = {"root_attribute": 1, "answer": 0.5}
    accepted, left = fuzzy_tree(
        make, {("train", 2): 4, ("train", 3): 4}, tally=Tally(RANGES, **limits), pairs=lambda split, depth: cell
    )
    assert len(accepted) == 8 and not left and len(made) == 8, "none is made to be refused"
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
