"""The alarms of RL: once, where the reward is gone or the entropy has grown, and never in a curve that is merely noisy."""

from training.rl.alarm import alarms


def fired(rewards, entropies):
    rows = [{"reward": r, "entropy": e} for r, e in zip(rewards, entropies, strict=True)]
    return [(i, name) for i in range(len(rows)) for name in alarms(rows[: i + 1])]


def test_a_reward_that_collapses_is_said_once():
    events = fired([0.2] * 8 + [0.0] * 10, [0.5] * 18)
    assert [name for _, name in events] == ["reward_collapsed"] and 8 < events[0][0] < 13


def test_an_entropy_that_explodes_is_said_once():
    events = fired([0.0] * 20, [0.4] * 8 + [4.0] * 12)
    assert [name for _, name in events] == ["entropy_exploded"]


def test_a_noisy_curve_and_a_short_one_are_silent():
    assert not fired([0.3, 0.1, 0.4, 0.0, 0.2, 0.3] * 4, [0.5, 0.9] * 12)
    assert not fired([0.02] * 5 + [0.0] * 9, [0.1] * 5 + [0.4] * 9), "no reward to lose; little entropy to grow"
    assert not alarms([]) and not alarms([{"loss": 1.0}])
