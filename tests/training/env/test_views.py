"""Views of voxel objects: what carving finds, what the score says, and the control that mixes samples."""

import numpy as np
import pytest

from training.env.control.views import FORMS, HEIGHTS, KEPT, PROMPTS, N, build, carved, compared, seen, views

TINY = {"warm_steps": 0, "hidden": 8}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_views_of_one_object_score_0(prompt):
    rng = np.random.default_rng(1)
    for _ in range(5):
        solid = build(prompt, rng)
        again = carved(seen(solid))
        assert solid.any((1, 2)).sum() == HEIGHTS[prompt[1]] and (again >= solid).all()
        assert compared(seen(solid) * 2.0 - 1)[0] == 0


def test_a_distance_by_hand():
    solid = np.zeros((N, N, N), bool)
    solid[:2, 2:6, 3:5] = True
    right = seen(solid)
    bad = right.copy()
    bad[0, 0, 3] = (
        True  # one pixel high above the object, in one view of four: the bounding box is then 8 high and 4 wide
    )
    assert compared(bad * 2.0 - 1)[0] == pytest.approx(-(1 / 32) / 4)
    grey = right * 2.0 - 1
    grey[1] *= 0.6  # every pixel of a view is off by 0.2: 64 of them, on a box of 2 by 2
    assert compared(grey)[0] == pytest.approx(-1 / 4)
    assert compared(-np.ones((4, N, N)))[0] == -1
    # More that is wrong is further away.
    rng, order, scores = np.random.default_rng(0), None, []
    order = rng.permutation(64)
    for n in (0, 2, 6, 14, 30):
        worse = right[0].copy().ravel()
        worse[order[:n]] ^= True
        scores.append(compared(np.stack([worse.reshape(N, N), *right[1:]]) * 2.0 - 1)[0])
    assert scores[0] == 0 and all(a > b for a, b in zip(scores, scores[1:], strict=False))


def test_examples_are_mixed_as_often_as_said_and_prompts_are_split():
    for share in (0.0, 0.5):
        examples, told = views(**TINY, mixed=share).examples(400, np.random.default_rng(2))
        agree = [compared(m.reshape(4, N, N))[0] == 0 for m in examples]
        assert told.shape == (400, 7)
        assert np.mean(agree) == 1 if share == 0 else 1 - share - 0.08 < np.mean(agree) < 1 - share + 0.25
    prompts = [{views(**TINY, prompts=p).asked(s) for s in range(400)} for p in ("train", "test")]
    assert prompts[1] == KEPT and prompts[0] == set(PROMPTS) - KEPT
    assert {f for f, _ in prompts[0]} == set(range(len(FORMS)))


def test_the_control_judges_views_of_several_samples_of_one_group():
    rng = np.random.default_rng(3)
    world, control = views(**TINY), views(**TINY, rewarded="shuffled")
    samples = np.stack([seen(build((0, 1), rng)).ravel() * 2.0 - 1 for _ in range(6)])
    seeds = [7, 7, 7, 7, 8, 8]
    assert all(p["score"] == 0 for p in world.judge(samples, seeds))
    assert np.mean([p["score"] for p in control.judge(samples, seeds)]) < -0.05
    alike = np.tile(samples[:1], (6, 1))
    assert all(p["score"] == 0 for p in control.judge(alike, seeds)), "samples that are all alike agree"
    moved = np.concatenate([samples[:4], alike[:2]])
    assert [p["score"] for p in control.judge(moved, seeds)][4:] == [0, 0], "groups are not mixed with each other"


@pytest.mark.parametrize(
    "knobs, says",
    [({"rewarded": "other"}, "own or shuffled"), ({"mixed": -0.1}, "a share"), ({"window": 11}, "number of the 10")],
)
def test_knobs_that_cannot_be(knobs, says):
    with pytest.raises(ValueError, match=says):
        views(**knobs)
