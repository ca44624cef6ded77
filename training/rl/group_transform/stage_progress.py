"""Rewards of steps from the stages of a task: how many are done, and a learned guess of whether the next will be.

Mu et al. 2024, "DrS: Learning Reusable Dense Rewards for Multi-Stage Tasks" (arXiv 2404.16779).

    k(s) in 0..K       how many of the task's stages are done in state s
    f_k                a classifier for each stage k < K, trained on states of stage k (cross-entropy, as many positives as negatives):
                       positive if their episode went beyond stage k later, negative if it ended there
    r(s') = k(s') + alpha * tanh(f_{k(s')}(s')), and K where all stages are done

alpha < 1/2 makes every state of a stage better than every state of the one before. The reward of a step is that of the state that it leads
to, which is the observation of the next step. The last state of an episode is not stored: its stage is the part `stage` of the score,
and its f is read from the observation before it.

Shapes: groups in and out, with the rewards of turns replaced; scores stay, and so do rollouts without one. `state` holds the classifiers and, for each stage, the newest
`kept` positive and `kept` negative states.

Our reading: positives are states of stage k itself, since f_k is asked nowhere else. Leaves out demonstrations. A reward that is paid in every
state needs episodes that go on after the goal (`ends: false` of key_door); otherwise it pays to stay away from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.nn.functional import softplus

from synth.types import Scored
from training.rl.group_transform._steps import Small, each_step, paid
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout

STEPS = True  # it does not use the services, so it works for worlds of numbers too
READS = ("stage",)
GIVES = ("turn_reward",)


def stage_progress(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    done: Sequence[int] = (8, 9, 10),
    alpha: float = 0.3333,
    hidden: int = 64,
    updates: int = 32,
    states: int = 128,
    lr: float = 3e-3,
    kept: int = 10_000,
) -> list[Group]:
    """done: the indices of the observation that are 1 once a stage is done, one for each stage; the default is that of key_door. alpha: weight of the classifiers, from 0 to
    below 1/2. hidden: their width. updates: how many updates of each classifier at each call, with `states` positives and as many negatives.
    lr: their learning rate. kept: how many of the newest states of each kind they are trained on."""
    if not done:
        raise ValueError(
            "group_transform/stage_progress: done is empty: name the observations that say which stages are done"
        )
    if not 0 <= alpha < 0.5:
        raise ValueError(
            f"group_transform/stage_progress: alpha is {alpha}: it is from 0 to below 1/2, so that no state is worth more than one of the "
            "next stage"
        )
    last = len(done)
    known = state.setdefault("states", [[[], []] for _ in range(last)])
    reached = {}  # id of a rollout -> the stage of the state that each step leads to
    for rollout in (r for g in groups for r in g.rollouts if r.n_model):
        if not isinstance(rollout.score, Scored):
            continue
        seen = each_step(rollout, "observation")
        if max(done) >= seen.shape[1]:
            raise ValueError(
                f"group_transform/stage_progress: done is {list(done)}, and an observation has {seen.shape[1]} numbers: name those that say "
                "which stages are done"
            )
        at = seen[:, list(done)].sum(1).round().astype(int)
        end = int(rollout.score.parts["stage"])
        reached[id(rollout)] = np.append(at[1:], end)
        highest = max(int(at.max()), end)
        for k in range(min(highest + 1, last)):
            known[k][int(highest > k)].extend(seen[at == k])
    nets = state.setdefault("nets", [{} for _ in range(last)])
    learned = {}
    for k, (negative, positive) in enumerate(known):
        del negative[:-kept], positive[:-kept]
        if not negative and not positive:
            continue
        net = Small(nets[k], len((negative or positive)[0]), hidden=hidden, seed=int(rng.integers(2**31)))
        learned[k] = net
        for _ in range(updates if negative and positive else 0):
            rows = [np.stack([side[i] for i in rng.integers(len(side), size=states)]) for side in (negative, positive)]

            def loss(net=net, rows=rows) -> torch.Tensor:
                return (softplus(net(rows[0])).mean() + softplus(-net(rows[1])).mean()) / 2

            net.learn(loss, lr)

    def rewards(rollout: Rollout) -> np.ndarray:
        seen, stages = each_step(rollout, "observation"), reached[id(rollout)]
        after = np.concatenate([seen[1:], seen[-1:]])
        out = stages.astype(np.float64)
        for k, net in learned.items():
            if (here := stages == k).any():
                out[here] += alpha * np.tanh(net.values(after[here]))
        return out

    return [
        replace(g, rollouts=tuple(paid(r, rewards(r)) if id(r) in reached else r for r in g.rollouts)) for g in groups
    ]
