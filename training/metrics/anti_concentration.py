"""Whether a verifier has something to choose from: the spread of the rewards of one prompt, and the share above their
mean.

"Scaling Test-Time Compute Without Verification or RL is Suboptimal" (arXiv 2502.12118, 2025): cloning right traces
loses at least in proportion to the spread sigma of the reward under the base policy; choosing by a verifier gains where
mass lies above the mean.

    sigma               mean over problems of the standard deviation of the rewards of its samples (population)
    anti_concentration  mean over problems of the share of samples with reward >= mean + c sigma; a problem whose
                        samples are all alike has none
    heterogeneous       share of problems whose samples are not all alike

Input: per problem the rewards of its samples. Bernoulli(1/2) rewards have anti_concentration 1/2 at c = 1. Leaves out
the growth of the gap with the budget of tokens, which takes runs at several budgets.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.metrics import Metric, interval, scorable


def anti_concentration(
    scored: Sequence[Sequence[float]], *, c: float = 1.0, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, Metric]:
    rewards = [x for x in map(scorable, scored) if len(x)]
    sigma = [float(x.std()) for x in rewards]
    above = [
        float((x >= x.mean() + c * s - 1e-12).mean()) if s > 0 else 0.0 for x, s in zip(rewards, sigma, strict=True)
    ]
    more = {"level": level, "resamples": resamples, "seed": seed}
    return {
        "sigma": interval(sigma, **more),
        "anti_concentration": interval(above, shares=True, **more),
        "heterogeneous": interval([float(s > 0) for s in sigma], shares=True, **more),
    }
