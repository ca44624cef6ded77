"""A dueling bandit with noisy comparisons: which pairs a rule asks about, and its exact regret.

Ten arms with hidden rewards; a first policy that nine times in ten says the worst of them, by far; labels drawn by
Bradley-Terry. Each step draws eight arms of the policy p = p_0 exp(r / beta) / Z, r what the rule `uncertain_pairs` of
the recipe has learned, asks about the two that it picks, and lets it learn. No model is trained.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from synth.types import UserError, seed_for
from tasks.lab.worlds import Place, Room
from tasks.planning.pieces import bind_all
from training.preference.update_rule.uncertain_pairs import uncertain_pairs

ARMS, DRAWS, BETA, BAD, COMMON = 10, 8, 0.5, -6.0, 0.9


def arms() -> Place:
    """The steps of a protocol are labels; see the docstring of this module."""
    return Place((), lambda room: None, _measure)


def any_arms() -> Place:
    """As `arms`, with nothing planted: all ten rewards are drawn alike, and so is the first policy, from all that there are."""
    return Place((), lambda room: None, partial(_measure, planted=False))


def tilted(first: np.ndarray, r: np.ndarray, beta: float = BETA) -> np.ndarray:
    """[n] p_0 exp(r / beta) / Z."""
    logits = np.log(first) + r / beta
    p = np.exp(logits - logits.max())
    return p / p.sum()


def value(p: np.ndarray, first: np.ndarray, r: np.ndarray, beta: float = BETA) -> float:
    """p . r - beta KL(p || p_0), which `tilted` makes largest."""
    return float(p @ r - beta * (p * np.log(np.maximum(p, 1e-300) / first)).sum())


def _measure(room: Room, *, planted: bool = True) -> dict[str, float]:
    """regret: sum over the labels of value(best policy) - value(policy then); final: of the last tenth of the labels, a
    label; order: share of pairs of the good arms whose learned rewards stand in order; on_bad: share of questions
    about the bad arm."""
    stage = room.kept["knobs"]["prefer"] if "knobs" in room.kept else None
    update_rules = bind_all(stage.pieces, stage.params, stage.settings)["update_rules"] if stage else ()
    rule = next((r for r in (one() for one in update_rules) if isinstance(r, uncertain_pairs)), None)
    if rule is None or rule.dim < ARMS:
        raise UserError(f"the world arms compares by the update rule uncertain_pairs with a dim of at least {ARMS}")
    assert stage is not None
    rng = np.random.default_rng(seed_for(room.seed, "arms"))
    if planted:
        gold = np.r_[BAD, rng.normal(size=ARMS - 1)]
        first = np.r_[COMMON, np.full(ARMS - 1, (1 - COMMON) / (ARMS - 1))]
    else:
        gold, first = rng.normal(size=ARMS), rng.dirichlet(np.ones(ARMS))
    best, eye = value(tilted(first, gold), first, gold), np.eye(ARMS, rule.dim)
    regret, bad = [], 0
    for _ in range(stage.params["steps"]):
        p = tilted(first, rule.theta[:ARMS])
        regret.append(best - value(p, first, gold))
        drawn, calibration = rng.choice(ARMS, DRAWS, p=p), int(rng.choice(ARMS, p=first))
        if rule.query == "optimism":
            drawn[-1] = calibration
        a, b = (int(drawn[i]) for i in rule.pick(eye[drawn], eye[calibration]))
        bad += 0 in (a, b)
        if a != b:
            won = rng.random() < 1 / (1 + math.exp(gold[b] - gold[a]))
            rule.learn(eye[a] - eye[b] if won else eye[b] - eye[a])
    at, other = np.triu_indices(ARMS - 1, 1)
    good, learned = gold[1:], rule.theta[1:ARMS]
    return {
        "regret": float(np.sum(regret)),
        "final": float(np.mean(regret[-max(len(regret) // 10, 1) :])),
        "order": float(((good[at] > good[other]) == (learned[at] > learned[other])).mean()),
        "on_bad": bad / len(regret),
    }
