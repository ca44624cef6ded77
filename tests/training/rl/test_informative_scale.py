"""Groups that say something, by their rewards or by their outcomes."""

import numpy as np
import pytest

from tasks.lab.toy import groups
from training.rl.advantage.informative_scale import informative_scale


def test_pay_for_calls_hides_from_rewards_what_outcomes_say():
    """Four groups, of which one has right answers and wrong ones; the pay for calls makes all rewards differ."""
    played = groups([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, np.nan]])
    paid = [np.array(r) for r in ([1.0, 0.1], [0.1, 0.0], [1.0, 0.5], [0.1, np.nan])]
    plain = informative_scale(played, paid, {}, np.random.default_rng(0))
    scaled = informative_scale(played, paid, {}, np.random.default_rng(0), of="outcomes")
    # By rewards three of four groups differ: 4 / 3. By outcomes one of four: 4. A group of two has advantages +-1.
    assert plain[0] == pytest.approx([4 / 3, -4 / 3], abs=1e-4) and scaled[0] == pytest.approx([4, -4], abs=1e-4)
    assert scaled[1] == pytest.approx([4, -4], abs=1e-4), "every group is scaled, whatever it says"
    assert scaled[3][0] == 0
