"""What `make bench-scaling` predicts is the model of `espalier estimate`, for devices that reach what was measured."""

import pytest

from benchmarks import scaling
from tasks.planning import estimate
from training.model.size import Size

MODEL = Size(
    parameters=4_000_000, layers=2, hidden=256, intermediate=512, heads=4, kv_heads=4, head_dim=64, vocabulary=1000
)


def test_rates_that_are_measured_stand_in_the_place_of_a_data_sheets():
    one = {"step": 0.0, "product": 1e10, "memory": 1e9, "link": 1e8}
    alone = scaling.predicted([one], 1, 1, MODEL)
    two = scaling.predicted([one, one | {"product": 5e9, "link": 2e8}], 2, 1, MODEL)
    assert alone["waiting"] == 0
    assert two["waiting"] == pytest.approx(2 * 4 * MODEL.parameters * 0.5 / 1e8), "the slowest link"
    assert two["compute"] == pytest.approx(alone["compute"]), "half of the work, at half of the rate"
    assert alone["optimizer"] == pytest.approx(34 * MODEL.parameters / 1e9)
    inner, tokens = MODEL.parameters - MODEL.root, scaling.ROWS * scaling.LENGTH
    weights = 6 * inner + 6 * 1000 * 256 + 6 * 2 * 256 * scaling.LENGTH
    assert alone["compute"] == pytest.approx(tokens * weights / (1e10 * estimate.LEARNING))
