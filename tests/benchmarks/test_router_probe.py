"""What is said of routers: known labels give known numbers."""

import numpy as np
import pytest

from benchmarks.router_probe import above_chance, information, read_off


def test_information_is_that_of_the_counts():
    a = np.array([0, 0, 1, 1, 2, 2, 3, 3] * 50)
    assert information(a, a) == pytest.approx(2.0)  # four equally likely labels
    assert information(a, a // 2) == pytest.approx(1.0)  # half of what they say
    assert information(a, np.arange(len(a)) % 2) == pytest.approx(0.0, abs=1e-9)
    drawn = np.random.default_rng(1).integers(0, 4, len(a))
    assert information(a, drawn) > 0.005 and above_chance(a, drawn) == pytest.approx(0.0, abs=0.02)


def test_a_label_is_read_off_what_holds_it_and_nothing_else():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 5, 400)
    assert read_off(np.eye(5)[labels] + 0.1 * rng.normal(size=(400, 5)), labels) > 0.99
    assert read_off(rng.normal(size=(400, 5)), labels) == pytest.approx(0.2, abs=0.12)
