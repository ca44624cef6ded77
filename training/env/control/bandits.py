"""Bandits whose arms are unknown when an episode begins: what a policy learns of them is in what it sees, and nowhere else.

The multi-armed bandits in which in-context learners are tried (Lee et al. 2023, "Supervised Pretraining Can Learn In-Context Reinforcement Learning", arXiv
2306.14892).

An arm pays 1 with its own probability, else 0; the probabilities are those of the seed, uniform from 0 to 1, and so are the coins, so that rollouts of one start that pull
an arm for the k-th time are paid the same. An episode is `pulls` pulls. The observation has a row (one-hot arm, reward) for each pull so far, zeros for those to
come, and the share of pulls done. The policy is a small transformer with two mixtures of experts (training/model/in_context.py). success: whether the last
pull was of the best arm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("success",)


@dataclass
class _State:
    means: np.ndarray
    coins: np.ndarray  # [arms, pulls]
    told: np.ndarray  # [pulls, arms + 1]
    at: int = 0


@dataclass(frozen=True, kw_only=True)
class Bandits:
    arms: int
    pulls: int
    sizes: dict[str, Any]
    hidden: int
    network: str = "in_context"

    @property
    def shape(self) -> Shape:
        return Shape(observation=self.pulls * (self.arms + 1) + 1, actions=self.arms)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng = np.random.default_rng(seed_for(seed, "bandits"))
        state = _State(
            rng.random(self.arms), rng.random((self.arms, self.pulls)), np.zeros((self.pulls, self.arms + 1))
        )
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        before = int(state.told[:, action].sum())
        reward = float(state.coins[action, before] < state.means[action])
        state.told[state.at, action], state.told[state.at, -1] = 1.0, reward
        state.at += 1
        over = state.at == self.pulls
        parts = {"success": float(action == state.means.argmax())} if over else {}
        return Step(observation=self._seen(state), reward=reward, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def _seen(self, state: _State) -> np.ndarray:
        return np.append(state.told.ravel(), state.at / self.pulls)


def bandits(
    *,
    arms: int = 5,
    pulls: int = 16,
    mixture: Literal["dual", "dense"] = "dual",
    experts: int = 4,
    top_k: int = 2,
    inner: int = 16,
    hidden: int = 32,
) -> World:
    """arms, pulls: of an episode. mixture: of the policy: two mixtures of experts, or one dense layer with as many multiplications a token. experts, top_k: of each mixture, and how many
    of them act. inner: width of an expert. hidden: of the transformer, an even number."""
    if arms < 2 or pulls < 1:
        raise ValueError(f"control/bandits: arms is {arms} and pulls {pulls}: give 2 arms or more, and a pull")
    if mixture not in ("dual", "dense") or not 1 <= top_k <= experts or inner < 1 or hidden < 2 or hidden % 2:
        raise ValueError(
            f"control/bandits: mixture is {mixture!r}, top_k {top_k} of {experts} experts, inner {inner} and hidden {hidden}: dual or dense, top_k from 1 to experts, an even hidden"
        )
    sizes = {"mixture": mixture, "experts": experts, "top_k": top_k, "inner": inner}
    return Bandits(arms=arms, pulls=pulls, sizes=sizes, hidden=hidden)
