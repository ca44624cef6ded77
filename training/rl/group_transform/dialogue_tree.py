"""A tree of dialogues for each problem: what came of a turn says where the next dialogues go on.

Chen et al. 2024, "Optima: Optimizing Effectiveness and Efficiency for LLM-Based Multi-Agent System" (arXiv 2410.08115),
its data for DPO, after Monte-Carlo tree search. Which turns are told apart, and by how much, is our reading.

    R of a dialogue = r - tokens n / max n of the tree + loss g         (training/rl/reward/task_token_readability.py)
    value of a node (the turns so far) = mean R of the dialogues that pass through it
    expansions times: one node after which somebody spoke, drawn by softmax(value), from which `branches` dialogues go on

A node is left out if its turns were drawn before, or if its last turn is nearly one that was drawn before (edits of ids over
the longer one's length, `apart` or less). g is by the base model where policies are adapters on one.

Shapes: groups in; each group with up to expansions x branches rollouts more out. What an added rollout goes on from is in
it as it was sampled. R is the reward of every role (the part reward_ROLE) where several policies play, and else the score.
Unscorable rollouts count nowhere; a problem of single turns has no node to go on from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synth.types import Scored
from training.rl.reward.task_token_readability import task_token_readability
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout

GIVES = ("reward_*",)
SEVERAL = True  # works with several policies: what it adds was sampled by those who speak there

Turns = tuple[bytes, ...]


def dialogue_tree(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    expansions: int = 3,
    branches: int = 3,
    apart: float = 0.25,
    tokens: float = 0.6,
    loss: float = 0.6,
) -> list[Group]:
    if expansions < 0 or branches < 1:
        raise ValueError(
            f"dialogue_tree: expansions is {expansions} and branches {branches}: give 0 or more, and 1 or more"
        )
    trees = [[group, services.by_base(group.rollouts), []] for group in groups]
    for _ in range(expansions):
        chosen = []
        for tree in trees:
            group, read, drawn = tree
            nodes = _nodes(group, _worth(group, read, rng, tokens, loss))
            free = [n for n in nodes if n not in drawn and all(_apart(n[-1], x[-1]) > apart for x in drawn)]
            if free:
                value = np.array([np.mean(nodes[n]) for n in free])
                chance = np.exp(value - value.max())
                drawn.append(free[rng.choice(len(free), p=chance / chance.sum())])
                chosen.append(tree)
        ways = [(next(r for r in g.rollouts if turns_of(r)[: len(d[-1])] == d[-1]), len(d[-1])) for g, _, d in chosen]
        for tree, more in zip(chosen, services.branch(ways, branches) if ways else (), strict=True):
            tree[0] = replace(tree[0], rollouts=(*tree[0].rollouts, *more))
            tree[1] = [*tree[1], *services.by_base(more)]
    return [
        replace(group, rollouts=tuple(_paid(r, float(x)) for r, x in zip(group.rollouts, worth, strict=True)))
        for group, worth in ((g, _worth(g, read, rng, tokens, loss)) for g, read, _ in trees)
    ]


def turns_of(rollout: Rollout) -> Turns:
    """The ids of each turn of the model."""
    return tuple(np.asarray(s.ids, dtype=np.int64).tobytes() for s in rollout.segments if s.role == "model")


def _worth(group: Group, read: Sequence[Rollout], rng: np.random.Generator, tokens: float, loss: float) -> np.ndarray:
    """R of each rollout; read: with the log-probs that make messages readable."""
    same = replace(group, rollouts=tuple(read))
    return np.asarray(task_token_readability([same], [group.rewards], {}, rng, tokens=tokens, loss=loss)[0])


def _nodes(group: Group, worth: np.ndarray) -> dict[Turns, list[float]]:
    """R of the dialogues that pass through each node after which somebody spoke, in the order in which they came."""
    out: dict[Turns, list[float]] = {}
    for rollout, x in zip(group.rollouts, worth, strict=True):
        turns = turns_of(rollout)
        for n in range(1, len(turns) if np.isfinite(x) else 0):
            out.setdefault(turns[:n], []).append(float(x))
    return out


def _paid(rollout: Rollout, worth: float) -> Rollout:
    if not isinstance(rollout.score, Scored):
        return rollout
    roles = sorted({s.speaker for s in rollout.segments if s.speaker})
    if not roles:
        return replace(rollout, score=replace(rollout.score, value=worth))
    parts = {**rollout.score.parts, **{f"reward_{role}": worth for role in roles}}
    return replace(rollout, score=replace(rollout.score, parts=parts))


def _apart(one: bytes, other: bytes) -> float:
    """Insertions, deletions and substitutions between two turns, by the length of the longer one."""
    a, b = (np.frombuffer(x, dtype=np.int64) for x in (one, other))
    row = np.arange(len(b) + 1)
    for i, token in enumerate(a, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (b != token))
        row = np.minimum.accumulate(np.append(i, best) - np.arange(len(b) + 1)) + np.arange(len(b) + 1)
    return float(row[-1]) / max(len(a), len(b), 1)
