"""Two worlds of numbers: what agents that gather see, and the score and the rules of a causal graph."""

import numpy as np
import pytest

from training.env.control.dag import dag
from training.env.control.gather import gather


@pytest.mark.parametrize("unseen", [False, True])
def test_a_subset_is_never_larger_than_what_was_learned(unseen):
    world = gather(unseen=unseen, steps=20)
    sizes, most, shown = [], [], set()
    for seed in range(30):
        state, seen = world.start(seed)
        most.append(len(state.things[0]))
        for _ in range(10):
            places = seen[4:].reshape(2, 8, 3)
            sizes.append(places[:, :, 0].sum(1))
            shown |= {tuple(np.flatnonzero(places[0, :, 0]))}
            step = world.step(state, 4)
            seen = step.observation
    sizes = np.array(sizes)
    assert sizes.max() == 3 and len(shown) > 20  # another place each time
    if unseen:
        assert min(most) == 6 and (sizes == 3).all()  # as many as there were in training, out of more
    else:
        assert max(most) == 3 and sizes.min() == 1
    state, seen = gather(unseen=True, flicker=False).start(0)
    assert seen[4:].reshape(2, 8, 3)[:, :, 0].sum(1).tolist() == [len(t) for t in state.things]


def test_agents_act_in_turn_and_a_trap_stays():
    world = gather(agents=2, learned=[1, 1], later=[1, 1], flicker=False)
    state, _ = world.start(0)
    state.agents, state.things, state.first = [(0, 0), (6, 6)], ([(5, 5)], [(1, 0)]), 1
    assert world.step(state, 1).reward == -0.5 and state.agents == [(1, 0), (6, 6)]
    assert world.step(state, 0).reward == 0.0 and state.agents == [(1, 0), (6, 5)]
    assert world.step(state, 4).reward == 0.0  # waiting in a trap costs no more
    step = world.step(state, 3)
    assert step.reward == 1.0 and step.done and step.parts == {"eaten": 1.0, "trapped": 1.0}
    with pytest.raises(ValueError, match="do not fit"):
        gather(size=3)
    with pytest.raises(ValueError, match="learned is"):
        gather(learned=[3, 1])


def test_the_truth_has_the_best_score_where_there_are_samples_enough():
    """Against every acyclic graph that differs in one pair."""
    world = dag(variables=5, samples=4000)
    for seed in range(10):
        state, _ = world.start(seed)
        best = world.score(state, state.truth)
        for i, j in state.order:
            for a, b in ((0, 0), (0, 1), (1, 0)):
                other = state.truth.copy()
                other[i, j], other[j, i] = a, b
                cyclic = np.linalg.matrix_power(other.astype(int), len(other)).any()  # more edges than a graph may have
                slack = 5.0 if other[state.truth].all() else 0.0  # one edge too many may win a little by chance
                assert cyclic or (other == state.truth).all() or world.score(state, other) < best + slack


def test_a_graph_stays_acyclic_and_its_rewards_add_up():
    rng = np.random.default_rng(0)
    world = dag(passes=3)
    for seed in range(5):
        state, _ = world.start(seed)
        first, paid = world._worth(state), 0.0
        done = False
        while not done:
            step = world.step(state, int(rng.integers(3)))
            paid, done = paid + step.reward, step.done
            assert np.trace(np.linalg.matrix_power(state.graph.astype(int), len(state.graph))) == 0
            assert np.linalg.matrix_power(state.graph.astype(int), len(state.graph)).sum() == 0
        refused = paid - (world._worth(state) - first) / 10
        assert refused == pytest.approx(round(refused)) and refused <= 0  # 1 for each cycle that was refused
        wrong = state.graph != state.truth
        assert step.parts["shd"] == sum(wrong[i, j] or wrong[j, i] for i, j in state.order)
    with pytest.raises(ValueError, match="flips is 0.7"):
        dag(flips=0.7)
    with pytest.raises(ValueError, match="more samples than"):
        dag(samples=4)
