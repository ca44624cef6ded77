"""Tags in order by hand, a reward model that knows the user, and what is refused; and the family whose users it knows."""

import numpy as np
import pytest

from synth.families._sample import Refused
from synth.families.user_choices import THINGS, USERS, order, solve, user_choices
from tasks.lab.toy import groups
from training.rl.reward.tagged_for_user import tag_order, tagged_for_user
from training.rl.reward.typed_units import units

TAGS = ("examine", "infer", "compare", "decide")
ANA, BO = {"user": "ana", "chose": [["tea", "milk"]]}, {"user": "bo", "chose": [["milk", "tea"]]}
BOTH = [["<answer>tea</answer>", "<answer>milk</answer>"]] * 2


def paid(lineages, texts, steps=20, **knobs):
    given, state, rng = groups([[0.0, 0.0]] * len(texts), texts=texts, lineages=lineages), {}, np.random.default_rng(0)
    for _ in range(steps):
        out = tagged_for_user(given, [np.zeros(2)] * len(texts), state, rng, task=0.0, tag=0.0, user=1.0, **knobs)
    return out


@pytest.mark.parametrize(
    ("spans", "worth"),
    [
        ("examine infer compare decide", 1.0),
        ("examine compare decide", 0.75),
        ("decide compare infer examine", 0.25),
        ("compare examine infer", 0.5),
        ("examine examine infer compare decide", 0.9),
        ("examine " * 9, 0.0),  # a loop
        ("", 0.0),
    ],
)
def test_order_of_tags_by_hand(spans, worth):
    assert tag_order(spans.split(), TAGS, 0.1) == pytest.approx(worth)


def test_each_user_is_rated_by_their_own_choices():
    first, second = paid([ANA, BO], BOTH)
    assert first[0] > 0.7 > 0.3 > first[1] and second[1] > 0.7 > 0.3 > second[0]


def test_without_the_user_who_disagree_nothing_is_learned():
    assert np.allclose(paid([ANA, BO], BOTH, personal=False), 0.5)


def test_a_problem_without_user_is_not_rated():
    assert np.array_equal(paid([{}, ANA], BOTH)[0], [0.0, 0.0]) and np.array_equal(paid([{}], BOTH[:1])[0], [0.0, 0.0])


def test_tags_without_an_answer_are_paid_nothing():
    given = groups([[0.0]], texts=[["<examine>a</examine><infer>b</infer>"]], lineages=[ANA])
    assert tagged_for_user(given, [np.zeros(1)], {}, np.random.default_rng(0))[0].tolist() == [0.0]


def test_what_cannot_be_scored_stays_so():
    given = groups([[0.0, float("nan")]], texts=[["<answer>tea</answer>"] * 2], lineages=[ANA])
    out = tagged_for_user(given, [np.array([0.0, np.nan])], {}, np.random.default_rng(0))
    assert np.isnan(out[0]).tolist() == [False, True]


@pytest.mark.parametrize("lineage", [{"user": "ana"}, {"chose": [["a", "b"]]}, {"user": "ana", "chose": [["a"]]}])
def test_a_user_without_choices_is_refused(lineage):
    with pytest.raises(ValueError, match=r"tagged_for_user: problem .* give both"):
        paid([lineage], BOTH[:1])


@pytest.mark.parametrize("knobs", [{"tags": ()}, {"tags": ("a", "a")}, {"updates": -1}, {"buckets": 0}])
def test_what_means_nothing_is_refused(knobs):
    with pytest.raises(ValueError, match="tagged_for_user: tags"):
        paid([ANA], BOTH[:1], **knobs)


def test_a_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match="keep that number"):
        tagged_for_user(groups([[0.0]]), [np.zeros(1)], {"weights": [0.0]}, np.random.default_rng(0))


def test_users_disagree_in_pairs_and_demonstrations_are_tagged():
    assert all(order(a) == order(b)[::-1] for a, b in zip(USERS[::2], USERS[1::2], strict=True))
    assert all(sorted(order(u)) == sorted(THINGS) for u in USERS)
    for i in range(20):
        p = user_choices(0, "train", i, levels=[1, 2, 3])
        assert units(p.lineage["solution"], TAGS) == list(TAGS)
        assert all(order(p.lineage["user"]).index(a) < order(p.lineage["user"]).index(b) for a, b in p.lineage["chose"])


def test_choices_that_do_not_tell_are_refused():
    with pytest.raises(Refused, match="not_unique"):
        solve(
            "Ana took tea and left milk, took rice and left corn. Which does Ana take, tea or corn? Answer with its name alone."
        )
