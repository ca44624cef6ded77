"""Makes answers depend on the context: maximises the divergence from the same answer under a corrupted context.

Wang et al. 2025, "Perception-Aware Policy Optimization for Multimodal Reasoning" (PAPO, arXiv 2507.06448), on text.

    d = log p_t(corrupted context) - log p_t         k3 = exp(d) - d - 1, at most `most`
    value_t = -gamma k3_t - eta log p_t

Shapes: stats.logp and columns["corrupted"] [T] in, values [T] out, mean over tokens. A share `ratio` of the tokens that
the environment wrote is drawn at random and replaced (`prepare` marks them, the observation `corrupted` runs the pass).
The second term, the paper's entropy loss with the sampled log-prob, prevents gibberish from raising the divergence. The
corrupted pass has no gradient, so its own entropy term would have none either and is left out.
"""

from __future__ import annotations

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

NEEDS = {"chance", "corrupted"}


def prepare(batch: Batch, *, ratio: float = 0.6, **_: object) -> None:
    """Adds columns["corrupt"] [T] bool. Raises ValueError for a share outside (0, 1]."""
    if not 0 < ratio <= 1:
        raise ValueError(
            f"perception: ratio is {ratio}; it is the share of the context that is corrupted, above 0 and at most 1"
        )
    batch.add("corrupt", (batch.columns["chance"] < ratio) & ~batch.trainable, "token")


def perception(
    stats: TokenStats, batch: Batch, *, gamma: float = 0.01, eta: float = 0.03, ratio: float = 0.6, most: float = 10.0
) -> Terms:
    d = live(batch.columns["corrupted"] - stats.logp, batch).clamp(-LIMIT, LIMIT)
    k3 = (d.exp() - d - 1).clamp(max=most)
    values = live(-gamma * k3 - eta * live(stats.logp, batch), batch)
    return Terms(
        values=values, denominator="tokens", metrics={"perception": (k3.detach().sum(), batch.trainable.sum())}
    )
