"""The same answer gets the same verdict, to the last bit, in whichever process it is scored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.support.drill_sandbox import scored
from tests.support.verdicts import PROGRAMS


def test_verdicts_are_bit_identical_across_processes():
    """Three processes, each with another seed of hashes and another time zone."""
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(scored, range(3))
    assert len(first) > 100 + len(PROGRAMS)
    for other in others:
        assert other == first
