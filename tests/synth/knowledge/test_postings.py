"""Postings against the KB in memory: both directions, unions, ranges, intersections, and the way to disk and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.knowledge.kb import KB, Entity, Fact, Relation
from synth.knowledge.postings import Postings, Texts, as_number, intersect
from synth.knowledge.world import world


@pytest.fixture(scope="module")
def kb() -> KB:
    return world(countries=8, seed=3)


@pytest.fixture(scope="module")
def postings(kb: KB) -> Postings:
    return Postings.of(kb)


def test_both_directions_are_those_of_the_kb(kb: KB, postings: Postings) -> None:
    assert len(postings) == len(kb.facts)
    for name, r in postings.number.items():
        for e in kb.entities:
            got = [postings.value(v) for v in postings.forward(r, postings.index(e))]
            assert sorted(kb.forward(e, name)) == sorted(got)
        for value in {f.value for f in kb.facts.values()}:
            got = [postings.value(s) for s in postings.backward(r, postings.index(value))]
            assert sorted(kb.backward(name, value)) == sorted(got)


def test_reach_is_the_union(postings: Postings) -> None:
    rng = np.random.default_rng(0)
    for r in range(len(postings.relations)):
        for forward in (True, False):
            xs = np.unique(rng.integers(0, len(postings.ids), 40)).astype(np.int32)
            one = postings.forward if forward else postings.backward
            assert set(postings.reach(r, xs, forward)) == {v for x in xs for v in one(r, x)}
    assert len(postings.reach(0, np.zeros(0, np.int32), True)) == 0


def test_names_types_and_unknown_values(kb: KB, postings: Postings) -> None:
    for e in kb.entities.values():
        i = postings.index(e.id)
        assert (postings.ids[i], postings.text(i)) == (e.id, e.name)
    for t in postings.type_names:
        assert {postings.ids[i] for i in postings.of_type(t)} == {e.id for e in kb.entities.values() if e.type == t}
    assert postings.index("nobody") == postings.literal("no such text") == -1


def numbered(*values: str) -> Postings:
    r = Relation(name="size", domain="box", range="number", label="size")
    names = [f"B{i}" for i in range(len(values))]
    facts = [Fact.make(f"box:{n}", "size", literal=v) for n, v in zip(names, values)]
    return Postings.of(KB([Entity.make("box", n) for n in names], [r], facts))


def test_numbers_in_a_range() -> None:
    p = numbered("10", "-3", "2.5", "1,200", "unknown", "10")
    assert list(p.sorted_numbers(0)[0]) == [-3, 2.5, 10, 10, 1200]
    assert [p.ids[i] for i in p.between(0, -3, 10)] == [
        "box:B0",
        "box:B1",
        "box:B2",
        "box:B5",
    ]  # ends included, no repetition
    assert len(p.between(0, 11, 1199)) == 0 and len(p.between(0, 5, 1)) == 0


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), min_size=1, max_size=4))
def test_intersection(sets: list[list[int]]) -> None:
    arrays = [np.unique(np.array(s, np.int32)) for s in sets]
    assert set(intersect(arrays)) == set.intersection(*map(set, sets))


@given(st.lists(st.text(), max_size=10))
def test_texts(texts: list[str]) -> None:
    stored = Texts.of(texts)
    assert list(stored) == texts and stored[:2] == texts[:2]
    order = Texts.of(sorted(texts, key=str.encode))
    assert all(order[order.find(t)] == t for t in texts)


def test_saved_and_loaded(tmp_path, postings: Postings) -> None:
    postings.save(tmp_path / "p.npz")
    again = Postings.load(tmp_path / "p.npz")
    assert again.relations == postings.relations and list(again.ids) == list(postings.ids)
    for r in range(len(postings.relations)):
        assert all(np.array_equal(postings.forward(r, i), again.forward(r, i)) for i in range(0, len(postings.ids), 7))
    (tmp_path / "x.npz").write_bytes(b"not a zip")
    with pytest.raises(ValueError, match="x.npz holds no postings"):
        Postings.load(tmp_path / "x.npz")


def test_wrong_arrays_are_refused(postings: Postings) -> None:
    with pytest.raises(ValueError, match="beyond the 1 entities"):
        Postings(
            ids=["a"],
            names=["A"],
            types=np.zeros(1),
            type_names=["t"],
            literals=[],
            relations=postings.relations,
            facts=(np.zeros(1), np.zeros(1), np.ones(1)),
        )


def test_dates_are_in_order() -> None:
    r = Relation(name="born", domain="box", range="date", label="born")
    days = ("1999-12-31", "0800-01-02", "2000-01-01")
    p = Postings.of(
        KB(
            [Entity.make("box", f"B{i}") for i in range(3)],
            [r],
            [Fact.make(f"box:B{i}", "born", literal=d) for i, d in enumerate(days)],
        )
    )
    assert list(p.sorted_numbers(0)[0]) == [8000102, 19991231, 20000101]
    assert [p.ids[i] for i in p.between(0, 19990000, 19999999)] == ["box:B0"]


@pytest.mark.parametrize("text, number", [("1,234.5", 1234.5), ("-2", -2.0), ("x", np.nan), ("", np.nan)])
def test_as_number(text: str, number: float) -> None:
    np.testing.assert_equal(as_number(text), number)
