"""Reasoning under tags, paid for their order, and a reward model that knows whom it rates for: TagPR ("Tagging the Thought: Unlocking
Personalization Reasoning via Reinforcement Learning", 2025, arXiv 2509.23140; read from the abstract, so all formulas are our reading).

    R = task r + tag t + user s
    t = max(0, (longest run of `tags` in their order among the spans) / n - repeat_penalty * (spans that repeat an earlier one))
    s = sigmoid( w . x(u, y) ),   x counts pairs (user, word of the answer) hashed into `buckets`; `personal` false: words alone

t is 0 for working that does not parse into spans <tag>text</tag> of these tags alone (training/rl/reward/typed_units.py). w is learned
from the choices of each problem's user, `lineage["user"]` and `lineage["chose"]` ([taken, left] pairs), by Bradley-Terry: before
each step `updates` steps of gradient of size `lr` on the mean over the pairs of the step of -log sigmoid(w . x(u, taken) - w . x(u, left)).
Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. `state` holds w. A body of a language model, its embeddings of
users and a tanh are left out: s is linear in (user, word). Without an answer t and s
are 0, and so is s for a problem without user (family user_choices has them). Raises ValueError where one of user and chose is missing or a
choice is no pair."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from synth.types import seed_for
from synth.verify import extract_answer
from training.rl.reward.typed_units import last_turn, units
from training.types import Group, Rewards


def tagged_for_user(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    tags: tuple = ("examine", "infer", "compare", "decide"),
    task: float = 1.0,
    tag: float = 0.2,
    user: float = 0.5,
    repeat_penalty: float = 0.1,
    lr: float = 1.0,
    updates: int = 5,
    buckets: int = 1024,
    personal: bool = True,
) -> Rewards:
    if not tags or len(set(tags)) < len(tags) or updates < 0 or buckets < 1:
        raise ValueError(
            f"tagged_for_user: tags {list(tags)}: one or more, each once; updates {updates} and buckets {buckets}: 0 and 1 or more"
        )
    weights = np.array(state.setdefault("weights", [0.0] * buckets))
    if len(weights) != buckets:
        raise ValueError(
            f"tagged_for_user: buckets is {buckets}, but {len(weights)} were learned before: keep that number"
        )
    gaps = []
    for group in groups:
        whom, chose = _choices(group)
        gaps += [_counts(whom, a, buckets, personal) - _counts(whom, b, buckets, personal) for a, b in chose]
    x = np.array(gaps).reshape(len(gaps), buckets)
    for _ in range(updates if gaps else 0):
        weights += lr * (x / (1 + np.exp(np.clip(x @ weights, -50, 50)))[:, None]).mean(0)
    state["weights"] = weights.tolist()
    out = []
    for group, r in zip(groups, rewards, strict=True):
        whom, _ = _choices(group)
        paid = []
        for rollout, right in zip(group.rollouts, r, strict=True):
            text = last_turn(rollout)
            answer = extract_answer(text)
            if not answer:  # a sigmoid of 0 would pay silence more than what the user leaves
                paid.append(task * right)
                continue
            liked = 1 / (1 + np.exp(-weights @ _counts(whom, answer, buckets, personal))) if whom else 0.0
            paid.append(task * right + tag * tag_order(units(text, tags), tags, repeat_penalty) + user * liked)
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out


def tag_order(spans: Sequence[str], tags: Sequence[str], penalty: float) -> float:
    """t, from 0 to 1: the longest chain of spans whose tags rise in the order of `tags`, less the repetitions."""
    best = [0] * len(tags)  # best[i]: the longest chain that ends with tag i
    for at in map(list(tags).index, spans):
        best[at] = max(best[at], 1 + max(best[:at], default=0))
    return max(0.0, max(best) / len(tags) - penalty * (len(spans) - len(set(spans))))


def _choices(group: Group) -> tuple[str, list[tuple[str, str]]]:
    """The user of a group's problem and the choices known of that user; "" and none where the problem has no user."""
    problem = group.rollouts[0].problem
    whom, chose = str(problem.lineage.get("user", "")), problem.lineage.get("chose", ())
    if any(len(pair) != 2 or isinstance(pair, str) for pair in chose) or bool(whom) != bool(chose):
        raise ValueError(
            f"tagged_for_user: problem {problem.id}: lineage.user is {whom!r} and lineage.chose {list(chose)}: give both, the choices as "
            "pairs [taken, left], or neither"
        )
    return whom, [(a, b) for a, b in chose]


def _counts(user: str, text: str, buckets: int, personal: bool) -> np.ndarray:
    """x(u, y) [buckets], of length 1; 0 where there is no word."""
    out = np.zeros(buckets)
    for word in re.findall(r"\w+", text.lower()):
        out[seed_for("choice", user if personal else "", word) % buckets] += 1
    return out / max(float(np.linalg.norm(out)), 1.0)
