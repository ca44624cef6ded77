"""Rows on disk are those that were written, and cost some bytes of memory each."""

import pytest
from traced import traced

from synth.types import Demonstration, Message
from tasks.storage.on_disk import OnDisk

N = 5000


def some(n):
    say = lambda i: [
        Message(role="user", content=f"question {i} é " + "word " * 150),
        Message(role="assistant", content="yes"),
    ]  # noqa: E731
    return (Demonstration.make(problem=f"{i}", messages=say(i), calls=i, split="train") for i in range(n))


def test_a_row_is_what_was_written():
    known = list(some(20))
    picture = Demonstration.make(
        problem="p", messages=[Message(role="user", content="look", media=("a.png",))], split="valid"
    )
    disk = OnDisk(Demonstration, [*known, picture])
    assert list(disk) == [*known, picture] and disk[-1] == picture and disk[3:5] == known[3:5] and len(disk) == 21
    with pytest.raises(IndexError):
        disk[21]
    assert not list(OnDisk(Demonstration))


def test_a_row_takes_few_bytes_of_memory():
    assert traced(lambda: OnDisk(Demonstration, some(N)))[1] / N < 300 < traced(lambda: list(some(N)))[1] / N
