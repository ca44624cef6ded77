"""What `make bench-scaling` predicts is the model of `espalier estimate`, for devices that reach what was measured."""

import pytest

from benchmarks import scaling
from tasks.planning import estimate
from tasks.planning.devices import DEVICES, Machines
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


def test_a_core_that_moves_bytes_computes_nothing_meanwhile():
    """Two of four micro-batches each: a pass gathers the weights twice and sums the gradients into shares."""
    one = {"step": 0.0, "product": 1e10, "memory": 1e9, "link": 1e8}
    split = scaling.predicted([one, one], 2, 2, MODEL)
    whole = scaling.predicted([one, one], 2, 1, MODEL)
    assert split["compute"] == whole["compute"] > 0
    assert split["waiting"] == pytest.approx(2 * 3 * 4 * MODEL.parameters * 0.5 / 1e8), "none of it is hidden"
    gpu = DEVICES["H200"]
    assert gpu.overlaps, "a GPU hides what is less than its compute"
    p = {"dtype": "float32", "rows_per_step": 8, "max_length": 128, "tokens_per_microbatch": 256}
    assert estimate.step("sft", p, (), MODEL, Machines(1, 2, "H200", gpu), 2, 2)["waiting"] == 0
