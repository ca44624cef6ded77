"""The public goods game: its equilibria by backward induction on the payoff that the environment pays, and what
agents see of each other."""

from functools import partial

import numpy as np
import pytest

from synth.types import Problem, Scored
from training.env.goods import goods, utilities

PAPER = partial(utilities, returns=1.5, synergy=0.5, cost=1.0, linear=False)
CLASSIC = partial(utilities, returns=1.5, synergy=0.0, cost=1.0, linear=True)
GRID = np.linspace(0.0, 3.0, 3001)


def reply(payoff, before, n):
    """What the agent after `before` gives where those after it answer in the same way, to within the grid."""
    i = len(before)

    def worth(q):
        play = [*before, q]
        while len(play) < n:
            play.append(exact(payoff, play, n))
        return payoff(play, play)[i]

    grid, best = np.linspace(0.0, 3.0, 31), 0.0
    for width in (0.1, 0.005, 0.0002):
        best = max(grid, key=worth)
        grid = np.clip(np.linspace(best - width, best + width, 41), 0.0, 3.0)
    return float(best)


def exact(payoff, before, n):
    """The reply of the last agent, and of one that looks no further, is that of a parabola: known by three of its points."""
    f = lambda q: payoff([*before, q, *[0.0] * (n - len(before) - 1)], [*before, q, *[0.0] * (n - len(before) - 1)])[
        len(before)
    ]  # noqa: E731
    a, b, c = f(0.0), f(1.0), f(2.0)
    bend, slope = (c - 2 * b + a) / 2, (4 * b - c - 3 * a) / 2
    if bend > -1e-12:
        return 0.0 if slope <= 0 else 3.0
    q = max(0.0, -slope / (2 * bend))
    return q if len(before) == n - 1 else reply(payoff, before, n)


def test_there_is_one_equilibrium_and_everybody_contributes():
    first = reply(PAPER, [], 3)
    second = reply(PAPER, [first], 3)
    third = exact(PAPER, [first, second], 3)
    assert [first, second, third] == pytest.approx([1.4375, 1.8438, 1.8203], abs=2e-3)


def test_who_looks_no_further_gives_less():
    play = []
    for i in range(3):  # n - i = 1 agents after it, as if it were the last
        play.append(0.5 + 0.5 * (1 + (np.mean(play) if i else 0.0)))
        best = max(GRID, key=lambda q: PAPER([*play[:-1], q, *[0.0] * (2 - i)], [*play[:-1], q, *[0.0] * (2 - i)])[i])
        assert best == pytest.approx(play[-1], abs=1e-3)
    assert play == pytest.approx([1.0, 1.5, 1.625])


def test_in_the_classic_game_nobody_gives_anything():
    for before in ([], [1.0], [1.0, 0.5]):
        own = [
            CLASSIC([*before, q, *[0.0] * (2 - len(before))], [*before, q, *[0.0] * (2 - len(before))])[len(before)]
            for q in GRID
        ]
        assert int(np.argmax(own)) == 0


def played(host, *turns):
    problem = Problem.make(prompt="3 + 4?", answer="7", verifier="number", env="goods", family="f", split="train")
    state, shown = host.start(problem, {})
    out = [(state["speaker"], shown[-1].content)]
    for text in turns:
        replies, over, score = host.step(state, text)
        if not over:
            out.append((state["speaker"], replies[-1].content))
    return out, score


def test_who_speaks_and_what_they_see():
    turns = ["<answer>7</answer>", "hm <answer>8</answer>", "I do not know"]
    everything, score = played(goods(agents=3), *turns)
    assert everything == [
        ("agent1", "3 + 4?"),
        ("agent2", "3 + 4? Agent 1 says 7."),
        ("agent3", "3 + 4? Agent 1 says 7. Agent 2 says 8."),
    ]
    assert isinstance(score, Scored) and score.parts["answered"] == pytest.approx(2 / 3)
    assert played(goods(observe="last"), *turns)[0][2] == ("agent3", "3 + 4? Agent 2 says 8.")
    assert goods(agents=2).roles == ("agent1", "agent2")


def test_numbers_that_cannot_be():
    with pytest.raises(ValueError, match="must be at least 1"):
        goods(agents=0)
