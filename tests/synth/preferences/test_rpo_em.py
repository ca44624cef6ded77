"""RE-PO's EM: the published recovery of noise rates under calibrated probabilities, and an interval that holds the
truth."""

import numpy as np
import pytest

from synth.preferences.cleaners.rpo_em import reliability, reliability_interval


def labelled(eta, n, seed):
    """p [n] of labels by an annotator of reliability eta, margins N(0, 4), calibrated."""
    rng = np.random.default_rng(seed)
    right = 1 / (1 + np.exp(-rng.normal(0, 2, n)))  # probability that one of the two orders is the true one
    truth = rng.random(n) < right
    label = np.where(rng.random(n) < eta, truth, ~truth)
    return np.where(label, right, 1 - right)


@pytest.mark.parametrize("eta", [0.7, 0.8, 0.9])
def test_calibrated_probabilities_recover_the_reliability(eta):
    assert reliability(labelled(eta, 20000, 1), start=0.95) == pytest.approx(eta, abs=0.02)


def test_interval():
    p = labelled(0.8, 1500, 2)
    eta, low, high = reliability_interval(p, [str(i // 3) for i in range(len(p))], draws=60)
    assert low < eta < high and low < 0.8 < high and high - low < 0.2
