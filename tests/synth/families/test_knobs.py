"""Families with knobs of their own refuse what is none of them, in one sentence that names the knob and what it may be."""

from collections.abc import Callable
from typing import Any

import pytest

from synth.families.bias_probes import bias_probes
from synth.families.errands import errands
from synth.families.home_moments import home_moments
from synth.families.matrix_games import matrix_games
from synth.families.safety_requests import safety_requests
from synth.families.alternating_offers import alternating_offers
from synth.families.teamwork import teamwork


@pytest.mark.parametrize(
    ("family", "knobs", "message"),
    [
        (matrix_games, {"kinds": ["response", "price"]}, "kinds .*'price'.*: name some of response, equilibrium"),
        (errands, {"rules": ["nearest", "fastest"]}, "rules .*'fastest'.*: name some of nearest"),
        (alternating_offers, {"asks": ["all"]}, "asks .*: name some of offer, keeps"),
        (teamwork, {"rules": []}, "rules .*: name some of "),
        (home_moments, {"silence": 1.5}, "silence is 1.5: a share from 0 to 1"),
        (bias_probes, {"ambiguous": -0.5}, "ambiguous is -0.5: .* from 0 to 1"),
        (safety_requests, {"unsafe_share": 2.0}, "unsafe_share is 2.0: .* from 0 to 1"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_no_value_of_a_knob_is_refused(family: Callable[..., Any], knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{family.__name__}: {message}") as refused:
        family(0, "train", 0, **knobs)
    assert "\n" not in str(refused.value)
