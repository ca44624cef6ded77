"""Kinds of planted noise: exact rates, the right victims; and the benchmark of cleaners hands them no mask."""

import numpy as np
import pytest

from benchmarks.cleaning import holm
from benchmarks.cleaning_data import trial
from synth.preferences.noise_kinds import ANNOTATORS, KINDS, flips, mixture

N = 2000
RNG = np.random.default_rng(0)
MARGIN, LENGTH, STYLE = np.abs(RNG.normal(size=N)), RNG.normal(size=N), RNG.normal(size=N)


def drawn(kind, rate=0.2, seed=1):
    return flips(kind, rate, np.random.default_rng(seed), margin=MARGIN, length=LENGTH, style=STYLE)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("mixture", "duplicate")])
@pytest.mark.parametrize("rate", [0.0, 0.05, 0.35])
def test_rates_are_exact_and_seeds_decide(kind, rate):
    assert drawn(kind, rate).sum() == round(rate * N) and (drawn(kind, rate) == drawn(kind, rate)).all()


def test_each_kind_finds_its_victims():
    base = {"margin": MARGIN.mean(), "length": LENGTH.mean(), "style": STYLE.mean()}
    assert abs(MARGIN[drawn("random")].mean() - base["margin"]) < 0.08
    assert MARGIN[drawn("instance")].mean() < 0.75 * base["margin"], "close calls"
    assert LENGTH[drawn("length")].mean() < -0.6 and abs(STYLE[drawn("length")].mean()) < 0.15, (
        "the better side was the shorter"
    )
    assert STYLE[drawn("style")].mean() < -0.6
    wrong = drawn("adversarial")
    assert MARGIN[wrong].min() >= MARGIN[~wrong].max()


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.35])
def test_a_mixture_errs_at_the_rate_and_annotators_as_they_are(rate):
    wrong, labeller, votes = mixture(40_000, rate, np.random.default_rng(2))
    assert wrong.mean() == pytest.approx(rate, abs=0.008)
    assert (np.abs(votes).sum(axis=1) == 3).all() and ((votes[np.arange(len(wrong)), labeller] < 0) == wrong).all()
    for j, (name, accuracy) in enumerate(ANNOTATORS.items()):
        cast = votes[:, j] != 0
        assert (votes[cast, j] > 0).mean() == pytest.approx(accuracy, abs=0.02), name


def test_senseless_noise_is_refused():
    with pytest.raises(
        ValueError, match="draws no noise of the kind 'lenght': it has random, instance, length, style, adversarial"
    ):
        drawn("lenght")
    with pytest.raises(ValueError, match=r"the rate 0.5 must lie in \[0, 0.5\)"):
        drawn("random", 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cleaners_see_does_not_hold_the_mask(kind):
    noisy = trial("simulated", kind, 0.2, 3)
    assert abs(noisy.wrong.mean() - 0.2) < 0.02
    seen = {
        k: np.asarray(v)
        for k, v in noisy.visible.items()
        if v is not None and k not in ("difference", "groups", "texts", "hidden")
    }
    for name, values in seen.items():
        for column in values.reshape(-1, noisy.n) if values.size % noisy.n == 0 and values.dtype.kind in "if" else []:
            told = np.abs(np.corrcoef(column, noisy.wrong)[0, 1]) if column.std() else 0.0
            assert told < 0.95, f"{name} tells which labels are wrong"
    known = noisy.visible["anchor"]
    assert (
        (known != 0).sum() == 50
        and ((known[known != 0] < 0) == noisy.wrong[known != 0]).all()
        and not noisy.scored[known != 0].any()
    )


def test_holm_by_hand():
    # Of three: 3 * 0.01, then 2 * 0.02 = 0.04, then 0.9 as it is; never below the one before.
    assert holm({"a": 0.02, "b": 0.01, "c": 0.9}) == pytest.approx({"b": 0.03, "a": 0.04, "c": 0.9})
    assert holm({"a": 0.03, "b": 0.029})["a"] == pytest.approx(0.058)
