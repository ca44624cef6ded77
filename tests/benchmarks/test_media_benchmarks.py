"""The benchmarks of what media cost, and of what one recipe does to a flow."""

import numpy as np
import pytest

from benchmarks import few_step_flow, media_minutes
from tasks.lab.behaviour import evidence_of
from training.env.control.modes import CENTRES


def test_a_cluster_counts_where_enough_samples_lie_in_it():
    assert few_step_flow.covered(np.repeat(CENTRES, 5, axis=0)) == 8
    # 2 of 80 each.
    assert few_step_flow.covered(np.concatenate([np.repeat(CENTRES[:1], 78, axis=0), CENTRES[1:3]])) == 1
    assert few_step_flow.covered(CENTRES * 1.5) == 0  # beside them


def test_every_recipe_of_the_table_has_the_seconds_of_its_protocol():
    for kind, listed in media_minutes.RECIPES.items():
        for name in listed.split():
            row = media_minutes.of_recipe(name, kind)
            evidence = evidence_of(name, "on_task") or evidence_of(name)
            assert evidence is not None and row["n"] == 2 * evidence["protocol"]["seeds"]
            assert 0 < row["value"] * row["n"] <= evidence["seconds"] + row["n"]


def test_an_unknown_warm_start_is_named():
    with pytest.raises(SystemExit, match="no warm start 'pixels': those known are pictures, shared"):
        media_minutes.main(["pixels"])
