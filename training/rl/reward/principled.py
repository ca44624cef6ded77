"""Two signals for writing under principles, learned before the first step: a reward model from refined pairs, or a judge that was hardened.

"Igniting Creative Writing in Small Language Models: LLM-as-a-Judge versus Multi-Agent Refined Rewards" (2025, arXiv 2508.21476) compares them
as rewards of GRPO. Language models are left out: both signals read which clauses (principles) of a text are broken, each misread with probability
`misread`, and are linear in that, x_k = 1 where a clause of kind k is asked for and read as broken.

    critics   r = w . x,  w by Bradley-Terry on `pairs` pairs of drafts of up to three faults, ordered by two critics and a referee who err
              (synth/preferences/makers/by_critics.py has the debate; both hearings must agree)
    judge     r = [b + w . x > 0], good or bad.  It starts from plain examples, all kept against all broken. In each of `hardening` rounds a generator breaks one
              clause of a text, of a kind drawn from softmax(h), and is paid where the judge takes it for good: h += 4 (share of this kind that
              deceived - share of all). The judge learns from all texts so far, twice from those that it got wrong (reflection).

    R = r - length |words - words of the reference| / words of the reference

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN; a text whose words cannot be read breaks every clause. `state` holds w, b and
`trail`, the judge's accuracy on what each round's generator wrote, before it learned from that, and at the end. The size of steps, of rounds and of faults is ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from synth.verify import extract_answer
from synth.verify.clauses import KEEPS
from training.rl.reward.typed_units import last_turn
from training.types import Group, Rewards, Rollout

KINDS = tuple(KEEPS)
READS = ("kept",)
Array = np.ndarray


def principled(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    signal: Literal["judge", "critics"] = "judge",
    hardening: int = 3,
    pairs: int = 400,
    error: float = 0.1,
    misread: float = 0.02,
    length: float = 0.5,
) -> Rewards:
    if signal not in ("judge", "critics") or hardening < 0 or pairs < 1 or length < 0 or not max(error, misread) < 0.5:
        raise ValueError(
            f"principled: signal {signal!r} of judge, critics; hardening {hardening} and length {length}, 0 or more; pairs {pairs}, 1 or more; error "
            f"{error} and misread {misread}, probabilities below 0.5"
        )
    if "weights" not in state:
        own = np.random.default_rng(int(rng.integers(2**62)))
        learned = hardened(own, hardening, pairs) if signal == "judge" else refined(own, pairs, error)
        state |= {"weights": learned[0].tolist(), "bias": learned[1], "trail": learned[2]}
    weights, bias = np.array(state["weights"]), float(state["bias"])
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = []
        for rollout in group.rollouts:
            requested, broken = read(rollout)
            wrong = requested & (broken ^ (rng.random(len(KINDS)) < misread))
            value = bias + float(weights @ wrong)
            paid.append((float(value > 0) if signal == "judge" else value) - length * _apart(rollout))
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out


def read(rollout: Rollout) -> tuple[Array, Array]:
    """Which kinds of clauses are asked for, and which of them are broken: bool [K] each, by the parts c1, c2, ... of the score."""
    parts = getattr(rollout.score, "parts", {})
    told = [c["kind"] for c in rollout.problem.args.get("clauses", ())]
    told = told or [KINDS[i] for i in range(len(KINDS)) if f"c{i + 1}" in parts]
    requested, broken = np.zeros(len(KINDS), bool), np.zeros(len(KINDS), bool)
    for i, kind in enumerate(told, 1):
        requested[KINDS.index(kind)] = True
        broken[KINDS.index(kind)] = parts.get(f"c{i}", 0.0) != 1.0
    return requested, broken


def _apart(rollout: Rollout) -> float:
    want, answer = len(rollout.problem.answer.split()), extract_answer(last_turn(rollout)) or ""
    return min(1.0, abs(len(answer.replace(",", " ").split()) - want) / max(want, 1))


def _asked(rng: np.random.Generator, n: int) -> Array:
    """Texts under two to six clauses: bool [n, K]."""
    order = rng.random((n, len(KINDS))).argsort(1).argsort(1)
    return order < rng.integers(2, 7, n)[:, None]


def hardened(rng: np.random.Generator, rounds: int, n: int) -> tuple[Array, float, list[float]]:
    """Weights [K], bias and the trail of a judge. With rounds 0 it has seen plain examples alone."""
    x, y = np.concatenate([np.zeros((n, len(KINDS))), _asked(rng, n)]), np.repeat([1.0, 0.0], n)
    w, b = _logistic(x, y)
    h, trail = np.zeros(len(KINDS)), []
    for turn in range(rounds + 1):
        requested = _asked(rng, n)
        kind = np.where(requested, h + rng.gumbel(size=requested.shape), -np.inf).argmax(1)
        lie = np.eye(len(KINDS))[kind]
        fooled = b + lie @ w > 0
        trail.append(float(1 - fooled.mean()))
        if turn == rounds:
            break
        for k in range(len(KINDS)):
            if (mine := kind == k).any():
                h[k] += 4 * (fooled[mine].mean() - fooled.mean())
        again = lie[fooled]
        x = np.concatenate([x, lie, again, np.zeros((len(lie) + len(again), len(KINDS)))])
        y = np.concatenate([y, np.zeros(len(lie) + len(again)), np.ones(len(lie) + len(again))])
        w, b = _logistic(x, y)
    return w, b, trail


def refined(rng: np.random.Generator, n: int, error: float) -> tuple[Array, float, list[float]]:
    """Weights [K] of a reward model from the pairs on whose order two critics and a referee agree twice."""
    requested = _asked(rng, n)
    sides = [
        requested & (rng.random(requested.shape) < rng.integers(0, 4, n)[:, None] / requested.sum(1, keepdims=True))
        for _ in "ab"
    ]

    def heard(broken: Array) -> Array:
        claims = sum(
            np.where(rng.random(broken.shape) < error, broken, ~broken).astype(int)
            - np.where(rng.random(broken.shape) < error, ~broken, broken).astype(int)
            for _ in range(2)
        )
        return ((claims > 0) & requested).sum(1)

    first, second = ([heard(s) for s in sides] for _ in "12")
    order = np.sign(first[0] - first[1])
    kept = (order != 0) & (order == np.sign(second[0] - second[1]))
    gap = (order[:, None] * (sides[0].astype(float) - sides[1].astype(float)))[kept]
    w = np.zeros(len(KINDS))
    for _ in range(300):
        w += 0.5 * (gap / (1 + np.exp(np.clip(gap @ w, -50, 50)))[:, None]).mean(0) if len(gap) else 0.0
    return w, 0.0, []


def _logistic(x: Array, y: Array) -> tuple[Array, float]:
    """Logistic regression by 800 steps of gradient from 0."""
    w, b = np.zeros(x.shape[1]), 0.0
    for _ in range(800):
        miss = y - 1 / (1 + np.exp(-np.clip(x @ w + b, -50, 50)))
        w, b = w + 2.0 * (x * miss[:, None]).mean(0), b + 2.0 * float(miss.mean())
    return w, b
