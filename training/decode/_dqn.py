"""A small network of action values and how it learns: double, dueling deep Q-learning.

Mnih et al. 2015, "Human-level control through deep reinforcement learning"; van Hasselt et al. 2016 (arXiv 1509.06461);
Wang et al. 2016 (arXiv 1511.06581).

    Q(s, a) = V(s) + A(s, a) - mean_a A(s, a)
    y = r + gamma Q'(s', argmax_a Q(s', a))        r alone where the episode ends;  the loss is smooth L1 (Q(s, a) - y)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from synth.types import seed_for
from training.decode import Ask, Engine, Example
from training.decode._networks import seeded

FAR = -1e9
Choose = Callable[[Sequence[int], Sequence[np.ndarray], Sequence[np.ndarray]], list[int]]  # places, states, allowed


class Values(nn.Module):
    """States [n, s] and which actions are allowed [n, a] -> Q [n, a], FAR where one is not."""

    def __init__(self, states: int, actions: int, hidden: int, seed: int) -> None:
        super().__init__()
        with seeded(seed):
            self.body = nn.Sequential(nn.Linear(states, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
            self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, actions)

    def forward(self, state: Tensor, allowed: Tensor) -> Tensor:
        x = self.body(state)
        a = self.advantage(x)
        return torch.where(allowed, self.value(x) + a - a.mean(1, keepdim=True), FAR)


@dataclass(frozen=True, kw_only=True)
class Step:
    """state [s]; action; reward; after: the next state [s] and the actions allowed there [a]; None: the episode ended."""

    state: np.ndarray
    action: int
    reward: float
    after: tuple[np.ndarray, np.ndarray] | None


@dataclass(kw_only=True)
class Learning:
    """Learns from what was seen: `see` takes a step in, `learn` makes one update of 32 steps of the last `kept`; the copy Q'
    is renewed every `renew` updates."""

    values: Values
    gamma: float
    rng: np.random.Generator
    lr: float = 2e-3
    kept: int = 5000
    renew: int = 50
    steps: list[Step] = field(default_factory=list)
    updates: int = 0

    def __post_init__(self) -> None:
        self.target = copy.deepcopy(self.values)
        self.optimizer = torch.optim.Adam(self.values.parameters(), lr=self.lr)

    def see(self, step: Step) -> None:
        self.steps.append(step)
        del self.steps[: -self.kept]

    def learn(self) -> None:
        few = [self.steps[i] for i in self.rng.integers(len(self.steps), size=32)]
        state = _stacked([s.state for s in few])
        allowed = torch.ones(len(few), self.values.advantage.out_features, dtype=torch.bool)
        action = torch.tensor([s.action for s in few])
        wanted = torch.tensor([s.reward for s in few], dtype=torch.float32)
        on = [i for i, s in enumerate(few) if s.after is not None]
        if on:
            after = [few[i].after for i in on]
            state2 = _stacked([a[0] for a in after if a is not None])
            allowed2 = torch.from_numpy(np.stack([a[1] for a in after if a is not None]))
            with torch.no_grad():
                wanted[on] = double_q(
                    wanted[on], self.values(state2, allowed2), self.target(state2, allowed2), self.gamma
                )
        self.optimizer.zero_grad()
        smooth_l1_loss(self.values(state, allowed).gather(1, action[:, None])[:, 0], wanted).backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.renew == 0:
            self.target.load_state_dict(self.values.state_dict())


def double_q(reward: Tensor, own: Tensor, copied: Tensor, gamma: float) -> Tensor:
    """y [n] of rewards [n], and of Q and Q' [n, a] of the states that followed."""
    return reward + gamma * copied.gather(1, own.argmax(1, keepdim=True))[:, 0]


def chosen(values: Values, states: Sequence[np.ndarray], allowed: Sequence[np.ndarray]) -> list[int]:
    """The best allowed action in each state."""
    with torch.no_grad():
        return values(_stacked(states), torch.from_numpy(np.stack(allowed))).argmax(1).tolist()


def explored(
    engine: Engine,
    pairs: Sequence[Example],
    values: Values,
    play: Callable[[list[Ask], Choose, Callable[[int, Step], None]], object],
    *,
    episodes: int,
    gamma: float,
    floor: float,
    seed: int,
) -> tuple[float, float]:
    """Teach `values` in so many episodes on the prompts of the pairs, 16 at a time, with a share of random actions that
    falls from 1 to `floor`. play: answers these prompts by the actions that it is given, and tells the steps of each by
    its place. Returns the mean return of the first and the last tenth of the episodes."""
    rng = np.random.default_rng(seed_for(seed, "episodes"))
    learning = Learning(values=values, gamma=gamma, rng=rng)
    returns: list[float] = []
    while len(returns) < episodes:
        few = [
            Ask(
                prompt=pairs[int(rng.integers(len(pairs)))].prompt,
                seed=seed_for(seed, "episode", len(returns) + j),
                max_tokens=engine.sampling.max_tokens,
            )
            for j in range(min(16, episodes - len(returns)))
        ]
        epsilon = max(floor, 1 - len(returns) / (0.7 * episodes))

        def choose(
            places: Sequence[int],
            states: Sequence[np.ndarray],
            allowed: Sequence[np.ndarray],
            epsilon: float = epsilon,
        ) -> list[int]:
            best = chosen(values, states, allowed)
            return [
                int(rng.choice(np.flatnonzero(a))) if rng.random() < epsilon else b
                for a, b in zip(allowed, best, strict=True)
            ]

        total = [0.0] * len(few)

        def hear(i: int, step: Step, total: list[float] = total) -> None:
            total[i] += step.reward
            learning.see(step)

        play(few, choose, hear)
        returns += total
        for _ in range(16):
            learning.learn()
    tenth = max(1, len(returns) // 10)
    return (float(np.mean(returns[:tenth])), float(np.mean(returns[-tenth:]))) if returns else (0.0, 0.0)


def _stacked(rows: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(rows)).float()
