"""One driver for every kind of training: a list of rounds, each of which lets one role learn from one source with one
objective.

SFT, reward modelling, preference optimisation and RL are lists of one round; iterated DPO,
self-play with a learning proposer or expert iteration are longer lists. A source yields the packed batches of a step
(it may first play rollouts with the roles' current weights); the driver is independent of the algorithms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from training.learner.learner import Learner, Objective
from training.learner.policies import Policy
from training.learner.profile import MEASURED
from training.types import Batch

# step -> the packed batches of that step (several for minibatches or epochs), and metrics of making them
Source = Callable[[int], tuple[Iterable[Batch], Mapping[str, float]]]


@dataclass(frozen=True, kw_only=True)
class Round:
    """`role` learns for `steps` steps from `source` with `objective`; a batch that names a policy trains that policy.

    objectives     policy -> the objective of its batches, where it is not `objective`
    prepare        called once on each whole batch, before the first update of the step: reference passes, masks and
                   totals that pieces declare
    rows_per_unit  rows that stay in one micro-batch (2 for preference pairs)
    temperature    at which log-probs are computed: the sampling temperature
    after          called with the step's metrics; raises to stop a run that went wrong
    """

    name: str
    role: str
    source: Source
    objective: Objective
    steps: int
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    prepare: Callable[[Batch], None] = lambda batch: None
    rows_per_unit: int = 1
    temperature: float = 1.0
    tokens_per_microbatch: int = 16384
    after: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None


def run(
    rounds: Sequence[Round], roles: Mapping[str, Learner | Policy], done: int = 0
) -> Iterator[tuple[Round, int, dict[str, float]]]:
    """Play the rounds in order; yields (round, step, metrics) after each step.

    The first `done` steps, counted over all rounds, are skipped: a resumed run has taken them already.
    """
    for current in rounds:
        first = min(done, current.steps)
        done -= first
        for step in range(first, current.steps):
            began = time.monotonic()
            batches, produced = current.source(step)
            batches = list(batches)
            drawn = time.monotonic()
            for (
                batch
            ) in batches:  # all of them before the first update: old-policy passes are of the policy that sampled
                current.prepare(batch)
            prepared = time.monotonic()
            learned: list[dict[str, float]] = []
            for batch in batches:
                one = roles[batch.policy or current.role].step(
                    batch,
                    current.objectives.get(batch.policy, current.objective),
                    tokens_per_microbatch=current.tokens_per_microbatch,
                    rows_per_unit=current.rows_per_unit,
                    temperature=current.temperature,
                )
                own = {f"{batch.policy}/{k}": v for k, v in one.items() if batch.policy and not k.endswith(MEASURED)}
                learned.append(one | own)
            metrics = dict(produced) | {
                k: _over(k, [m[k] for m in learned if k in m]) for k in sorted({k for m in learned for k in m})
            }
            if len(learned) > 1 and "mismatch_kl" in learned[0]:
                firsts = {b.policy: m["mismatch_kl"] for b, m in reversed(list(zip(batches, learned, strict=True)))}
                metrics["mismatch_kl_first"] = max(
                    firsts.values()
                )  # before the step's updates, so that only the sampler affects it
            metrics["prepare_seconds"] = prepared - drawn  # passes of reference, old policy and teachers
            metrics["step_seconds"] = time.monotonic() - began
            current.after(step, metrics)
            yield current, step, metrics


def _over(name: str, values: Sequence[float]) -> float:
    """A metric over the batches of a step: the maximum for maxima, the sum for times, the mean for everything else."""
    if name.endswith("_max"):
        return max(values)
    return sum(values) / (1 if name.endswith("_seconds") else len(values))
