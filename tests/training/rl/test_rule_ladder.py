"""Rules in order: what is paid where, and that no rule pays behind one that is broken."""

import numpy as np
import pytest

from tasks.lab.toy import groups
from training.rl.reward.rule_ladder import rule_ladder

GOOD = "<think>so</think><answer>0</answer>"


@pytest.mark.parametrize(
    ("text", "parsed", "value", "paid"),
    [
        (GOOD, 1.0, 1.0, 7.0),
        (GOOD, 1.0, 0.5, 5.0),
        (GOOD, 1.0, 0.0, 3.0),
        (GOOD, 0.0, 0.0, 1.0),
        (f"well {GOOD}", 1.0, 1.0, 0.0),
        ("<answer>0</answer>", 1.0, 1.0, 0.0),
        (f"{GOOD}<answer>0</answer>", 1.0, 1.0, 0.0),
        ("", 0.0, 0.0, 0.0),
    ],
)
def test_each_rule_by_hand(text, parsed, value, paid):
    played = groups([[value]], parts=[[{"parsed": parsed}]], texts=[[text]])
    (out,) = rule_ladder(played, [np.array([value])], {}, np.random.default_rng(0), form=1.0, extract=2.0, correct=4.0)
    assert out.tolist() == [paid]


def test_what_could_not_be_scored_stays_so():
    played = groups([[float("nan")]], texts=[[GOOD]])
    (out,) = rule_ladder(played, [np.array([np.nan])], {}, np.random.default_rng(0))
    assert np.isnan(out).all()
