"""Which variable causes which: a graph is drawn edge by edge from a few samples and an expert's wrong guess.

"Guide: Generalized-Prior and Data Encoders for DAG Estimation", 2025 (arXiv 2509.23992), of which the abstract was read; the
rest is our reading.

    x_j = sum over parents w_ij x_i + e_j,  e_j ~ N(0, 1)              w of 0.5 to 2 in size, either sign
    score(A) = - n d / 2 log(sum_j RSS_j(A) / (n d)) - |A| / 2 log n    BIC of equal noise variances
    r = (change of score(A) + guess x change of the entries that agree with the expert) / 10, - 1 for a cycle

Equal noise variances and variables that are not standardised make the score's optimum the true graph, given enough samples
(Peters and Buhlmann 2014); with standardised variables it has none there. The expert's entries are the true ones, each
flipped with probability `flips`; guess = log((1 - flips) / flips) makes agreement its log-likelihood.

A step decides one pair: no edge, i -> j or j -> i. An edge that would close a cycle is refused, so the graph is always
acyclic. All pairs are decided in the order of how much an edge would improve the empty graph, `passes` times over, so that an
early choice can be taken back. The observation: how many decisions are left; the expert's two entries (0 where `guess` is 0);
the improvement by either edge, squashed; whether either is allowed; which of them is there now; the log of the variances'
ratio. The part `shd` is the number of pairs that differ from the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("success", "shd")


@dataclass
class _State:
    moments: tuple[tuple[float, ...], ...]  # mean products of the variables, which have mean 0
    truth: np.ndarray
    said: np.ndarray
    graph: np.ndarray
    order: tuple[tuple[int, int], ...]
    at: int = 0


class Dag(World):
    def __init__(self, variables: int, samples: int, degree: float, flips: float, guess: float, passes: int):
        self._d, self._n, self._degree, self._flips = variables, samples, degree, flips
        self._guess, self._passes = guess, passes

    @property
    def shape(self) -> Shape:
        return Shape(observation=10, actions=3)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng, d = np.random.default_rng(seed_for(seed, "dag")), self._d
        causes = rng.permutation(d)
        truth = np.zeros((d, d), dtype=bool)
        upper = np.triu(rng.random((d, d)) < self._degree / (d - 1), 1)
        truth[np.ix_(causes, causes)] = upper
        weight = truth * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1, 1], (d, d))
        x = np.zeros((self._n, d))
        for j in causes:
            x[:, j] = x @ weight[:, j] + rng.normal(size=self._n)
        x -= x.mean(0)
        claimed = truth ^ ((rng.random((d, d)) < self._flips) & ~np.eye(d, dtype=bool))
        state = _State(tuple(map(tuple, x.T @ x / self._n)), truth, claimed, np.zeros((d, d), dtype=bool), ())
        pairs = [(i, j) for i in range(d) for j in range(i + 1, d)]
        gain = {p: max(self._gains(state, *p)) for p in pairs}
        state.order = tuple(sorted(pairs, key=lambda p: -gain[p]))
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        i, j = state.order[state.at % len(state.order)]
        before = self._worth(state)
        state.graph[i, j] = state.graph[j, i] = False
        reward = 0.0
        if action:
            a, b = (i, j) if action == 1 else (j, i)
            if self._allowed(state.graph, a, b):
                state.graph[a, b] = True
            else:
                reward = -1.0
        reward += (self._worth(state) - before) / 10
        state.at += 1
        over = state.at == self._passes * len(state.order)
        wrong = state.graph != state.truth
        shd = float((wrong | wrong.T).sum() // 2)
        parts = {"shd": shd, "success": float(shd == 0)} if over else {}
        return Step(observation=self._seen(state), reward=reward, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def score(self, state: _State, graph: np.ndarray) -> float:
        """BIC of a graph [d, d] (entry i, j: i causes j) with equal noise variances; higher is better."""
        c, left = np.array(state.moments), 0.0
        for j in range(len(c)):
            p = np.flatnonzero(graph[:, j])
            left += c[j, j] - (c[p, j] @ np.linalg.solve(c[np.ix_(p, p)], c[p, j]) if len(p) else 0.0)
        n, d = self._n, len(c)
        return float(-n * d / 2 * np.log(max(left, 1e-12) / d) - graph.sum() / 2 * np.log(n))

    def _worth(self, state: _State) -> float:
        return self.score(state, state.graph) + self._guess * float((state.graph == state.said).sum())

    def _gains(self, state: _State, i: int, j: int) -> tuple[float, float]:
        """By how much either edge improves the score of the graph without an edge of the pair."""
        graph = state.graph.copy()
        graph[i, j] = graph[j, i] = False
        none = self.score(state, graph)
        out = []
        for a, b in ((i, j), (j, i)):
            graph[a, b] = True
            out.append(self.score(state, graph) - none)
            graph[a, b] = False
        return out[0], out[1]

    def _allowed(self, graph: np.ndarray, a: int, b: int) -> bool:
        """Whether a is no effect of b."""
        reached, ahead = {b}, [b]
        for k in ahead:
            for m in np.flatnonzero(graph[k]):
                if m not in reached:
                    reached.add(int(m))
                    ahead.append(int(m))
        return a not in reached

    def _seen(self, state: _State) -> np.ndarray:
        i, j = state.order[state.at % len(state.order)]
        graph = state.graph.copy()
        graph[i, j] = graph[j, i] = False
        told = (2.0 * state.said[i, j] - 1, 2.0 * state.said[j, i] - 1) if self._guess else (0.0, 0.0)
        better = np.tanh(np.array(self._gains(state, i, j)) / 10)
        allowed = [float(self._allowed(graph, a, b)) for a, b in ((i, j), (j, i))]
        left = 1 - state.at / (self._passes * len(state.order))
        ratio = np.log(state.moments[i][i] / state.moments[j][j])
        return np.array([left, *told, *better, *allowed, state.graph[i, j], state.graph[j, i], ratio])


def dag(
    *,
    variables: int = 6,
    samples: int = 20,
    degree: float = 2.0,
    flips: float = 0.2,
    guess: float = 1.386,
    passes: int = 2,
) -> World:
    """variables: how many there are. samples: of them all. degree: mean number of edges of a variable. flips: share of
    the expert's entries that are wrong. guess: weight of agreement with the expert; 0 hides what the expert says. passes:
    how often each pair is decided."""
    if variables < 2 or samples <= variables or passes < 1:
        raise ValueError(
            f"control/dag: {variables} variables, {samples} samples and {passes} passes: give 2 variables or more, more samples than "
            "variables, and a pass"
        )
    if not 0 <= flips <= 0.5 or guess < 0:
        raise ValueError(
            f"control/dag: flips is {flips} and guess {guess}: flips are 0 to 0.5, and a guess weighs 0 or more"
        )
    return Dag(variables, samples, degree, flips, guess, passes)
