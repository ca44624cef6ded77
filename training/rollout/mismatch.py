"""Checks that the sampler matches the learner: the same weights, the same log-probs of a probe, and how far apart they
are on the sampled tokens.

A policy gradient assumes that the tokens were drawn from the policy that learns. If the sampler is another program,
holds copies, rounds differently or missed the last update, they were not, and training goes wrong without an error (Yao
et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; Liu et al. 2025, "When Speed
Kills Stability"). So it is checked in three ways, each before anything is clipped:

after each sync    version, checksum of the weights, and the log-probs of a probe on both sides (`compare`)
of what is played  that it was sampled with the weights of the stated version (`check_versions`)
in each step       KL, quantiles of the ratio and the effective sample size on the training tokens (`mismatch`), with a
                   limit (`stop_beyond`)

Pieces of training/rl/correction handle a mismatch that cannot be fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import digest
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.learner.reduction import LIMIT
from training.model.model import text_config
from training.rollout.engine import WrongVersion
from training.types import Group

QUANTILES = (0.01, 0.5, 0.99)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Disagreement(RuntimeError):
    """Sampler and learner hold the same weights and do not give the same log-probs."""


class Sampler(Protocol):
    """What `compare` needs from a sampler; TorchSampler has it."""

    version: int

    def weights(self) -> Mapping[str, Tensor]: ...

    def logp(self, prompt: np.ndarray, ids: np.ndarray) -> np.ndarray: ...


def checksum(weights: Mapping[str, Tensor]) -> str:
    """16 hex digits that distinguish sets of named weights. They hash the name, dtype and shape of each weight and sums
    of its bits (as integers, whose sum does not depend on the order) by rows and columns of 1024, weighted by position.
    From a GPU only the sums are copied."""
    parts = []
    for name in sorted(weights):
        w = weights[name].detach()
        bits = w.contiguous().view(-1).view(_BITS[w.element_size()])
        table, tail = bits[: bits.numel() // 1024 * 1024].view(-1, 1024), bits[bits.numel() // 1024 * 1024 :]
        sums = [_placed(x) for x in (table.sum(0, dtype=torch.long), table.sum(1, dtype=torch.long), tail.long())]
        parts.append([name, str(w.dtype), list(w.shape), *sums])
    return digest(parts)[:16]


def _shared(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    """Whether the two are the same tensors, so that no sums are needed."""
    return ours.keys() == theirs.keys() and all(
        (w.data_ptr(), w.dtype, w.shape, w.stride()) == (v.data_ptr(), v.dtype, v.shape, v.stride())
        for w, v in ((w, theirs[n]) for n, w in ours.items())
    )


def _placed(x: Tensor) -> int:
    """The sum of integers [n], each weighted by its position."""
    return int((x * torch.arange(1, len(x) + 1, device=x.device)).sum())


@dataclass(kw_only=True)
class Compared:
    """Checks after each sync whether a sampler holds a model's weights. A call returns {"probe_gap": largest
    difference of a log-prob}.

    model, sampler   the two sides
    most             largest gap before the run stops. In float32 the two differ by rounding alone, under 1e-5; in half
                     precision by a few hundredths
    prompt, said     ids of the probe; by default a few of the vocabulary

    Raises WrongVersion if versions or checksums differ, and Disagreement if equal weights give different log-probs.
    """

    model: nn.Module
    sampler: Sampler
    most: float = 1e-3
    prompt: np.ndarray = field(default_factory=lambda: np.arange(8))
    said: np.ndarray = field(default_factory=lambda: np.arange(8, 12))

    @staticmethod
    def of(model: nn.Module, sampler: Any) -> Compared | None:
        """None for a sampler that does not support it. The limit depends on the weights' precision."""
        if not hasattr(sampler, "weights") or not hasattr(sampler, "logp"):
            return None
        exact = next(model.parameters()).dtype in (torch.float32, torch.float64)
        return Compared(model=model, sampler=sampler, most=1e-3 if exact else 0.3)

    def __call__(self, version: int | None = None) -> dict[str, float]:
        held = self.sampler.version
        if version is not None and held != version:
            raise WrongVersion(
                f"the sampler holds the weights of version {held} and the learner is at version {version}: sync before you sample"
            )
        ours = dict(self.model.named_parameters())
        theirs = self.sampler.weights()
        if not _shared(ours, theirs) and (a := checksum(ours)) != (b := checksum(theirs)):
            other = [n for n in sorted(ours) if n not in theirs or checksum({n: ours[n]}) != checksum({n: theirs[n]})]
            raise WrongVersion(
                f"the sampler says that it holds version {held}, and its weights are others (checksum {b}, the learner's {a}; first {other[0]}): "
                "they changed after the sync, or it lost them on the way"
                if other
                else f"the sampler holds weights that the learner does not have (checksum {b}, the learner's {a})"
            )
        vocabulary = text_config(self.model).vocab_size
        prompt, completion = self.prompt % vocabulary, self.said % vocabulary
        ids = np.concatenate([prompt, completion])
        batch = pack(
            [Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt))], device=str(next(iter(ours.values())).device)
        )
        gap = float(
            np.abs(
                score(self.model, batch).logp[batch.trainable].cpu().numpy() - self.sampler.logp(prompt, completion)
            ).max()
        )
        if not gap <= self.most:
            raise Disagreement(
                f"sampler and learner hold the same weights (version {held}) and differ by {gap:.3g} nats on the probe, more than {self.most}: "
                "one of them computes something else (another attention, a cut, a temperature, half precision); try float32 on both sides"
            )
        return {"probe_gap": gap}


def check_versions(groups: Sequence[Group], newest: int, lag: int = 0) -> None:
    """Raises WrongVersion where a turn of the policy says that it was sampled by a version before newest - lag, or by
    one yet to come. For off-policy text (demonstrations, replays) the version does not matter."""
    for group in groups:
        for rollout in group.rollouts:
            for s in rollout.segments if not rollout.off_policy else ():
                if s.role == "model" and s.version is not None and not newest - lag <= s.version <= newest:
                    allowed = f"version {newest}" if not lag else f"versions {newest - lag} to {newest}"
                    raise WrongVersion(
                        f"a turn of {group.id} was sampled by version {s.version} of the weights, and this step learns from {allowed}: the sampler "
                        "was not synced after an update, or it counts its versions otherwise"
                    )


def mismatch(logp: Tensor, sampling_logp: Tensor, on: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Learner against sampler on the tokens `on` [T], as (sum, count) of metrics: the learner's current log-probs [T],
    and those recorded at sampling.

    mismatch_kl    k3 estimate of KL(sampler || learner) per token: mean of w - 1 - log w, where w = exp(logp -
                   sampling_logp)
    mismatch_max   largest |log w|
    ratio_p01, ratio_p50, ratio_p99   quantiles of w
    ess            effective sample size by tokens, (sum w)^2 / (n sum w^2): 1 where all weights are equal

    Quantiles and ess are those of a micro-batch; the step's are their means by tokens (exact where the step is one
    micro-batch).
    """
    count = on.sum()
    apart = torch.where(on, (logp - sampling_logp).detach(), 0.0)
    d = apart.clamp(-LIMIT, LIMIT)
    w = torch.where(on, d.exp(), 0.0)
    out = {
        "mismatch_kl": (torch.where(on, w - 1 - d, 0.0).sum(), count),
        "mismatch_max": (apart.abs().max(), torch.ones(())),
    }
    if not int(count):
        return out
    sorted_w = w[on].sort().values
    for q in QUANTILES:
        at = sorted_w[min(len(sorted_w) - 1, int(q * len(sorted_w)))]
        out[f"ratio_p{round(100 * q):02d}"] = (at * count, count)
    return out | {"ess": (w.sum().square() / w.square().sum(), count)}


def stop_beyond(metrics: Mapping[str, float], step: int, max_mismatch: float) -> None:
    """The hard stop. `mismatch_kl_first`, if given, is that of the first batch of a step, before its updates: later
    batches differ by the updates. Raises ValueError if it exceeds `max_mismatch` nats per token, or is NaN."""
    kl = metrics.get("mismatch_kl_first", metrics.get("mismatch_kl", 0.0))
    if math.isnan(kl) or kl > max_mismatch:
        raise ValueError(
            f"sampler and learner disagree by {kl:.3g} nats per token at step {step} (max_mismatch = {max_mismatch}): the weights that sampled "
            "are not those that learn, or half precision rounds them apart: try float32"
        )
