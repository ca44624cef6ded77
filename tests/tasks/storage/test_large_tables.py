"""Values of a table are held one by one, and chosen without holding all."""

import weakref
from random import Random

import pytest
from traced import traced

from synth.types import Demonstration, Message, Problem
from tasks.lab.toy import problems
from tasks.storage import tables


def test_by_id_is_what_was_written(tmp_path):
    some = problems(9)
    tables.write(tmp_path / "a.parquet", some[:6], Problem)
    tables.write(tmp_path / "b.parquet", some[4:], Problem)
    known = tables.ById([tmp_path / "a.parquet", tmp_path / "b.parquet"], Problem)
    assert dict(known) == {p.id: p for p in some} and len(known) == 9
    assert known.get("none") is None and "none" not in known and some[0].id in known


def test_by_id_holds_no_value(tmp_path):
    messages = [Message(role="user", content="q"), Message(role="assistant", content="word " * 500)]
    demonstrations = (Demonstration.make(problem=f"{i}", messages=messages, split="train") for i in range(3000))
    tables.write(tmp_path / "a.parquet", demonstrations, Demonstration)
    tables.ById([tmp_path / "a.parquet"], Demonstration)  # what is imported late is there

    def read():
        known = tables.ById([tmp_path / "a.parquet"], Demonstration)
        assert len(known) == 3000
        return known

    size, _ = traced(read)
    assert size < 300_000, size


@pytest.mark.parametrize("n", [0, 1, 5, 400])
def test_the_first_of_each_cell_are_those_of_sorting_all(n):
    rng = Random(3)
    values = [(rng.choice("abc"), rng.randrange(40), i) for i in range(900)]  # many keys are equal
    got = tables.least(values, lambda cell: n if cell != "b" else 2, lambda v: v[1], lambda v: v[0])
    want = {c: sorted((v for v in values if v[0] == c), key=lambda v: v[1])[: n if c != "b" else 2] for c in "abc"}
    assert got == want and list(got) == ["a", "b", "c"]


def test_of_what_is_not_chosen_little_is_held():
    class Value:
        pass

    references, most = list[weakref.ref[Value]](), 0

    def values():
        nonlocal most
        for _ in range(2000):
            references.append(weakref.ref(value := Value()))
            yield value
            del value
            most = max(most, sum(one() is not None for one in references[-400:]))

    order = iter(Random(1).sample(range(2000), 2000))
    assert len(tables.least(values(), lambda _: 10, lambda _: next(order))[""]) == 10
    assert most <= 20 + tables.LEAST + 1
