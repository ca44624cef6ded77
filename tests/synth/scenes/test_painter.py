"""A painter with a habit: few phrasings are honoured, and the picture alone is measured."""

from __future__ import annotations

from itertools import permutations

import pytest

from synth.families.counterfactual_prompts import counterfactual_prompts
from synth.preferences.own_answers import Episode, own_answers
from synth.scenes.painter import NAMES, PHRASINGS, honoured, larger, look, paint, phrased
from synth.scenes.scenes import SHAPES, Thing, pixels
from synth.types import Message, PreferencePair, Problem
from synth.verify import verify


def test_six_of_forty_phrasings_are_honoured_and_others_for_each_shape():
    assert len(PHRASINGS) == len(set(PHRASINGS)) == 40 and len({look(n) for n in NAMES}) == len(NAMES) == 16
    for a, b in permutations(NAMES, 2):
        if NAMES.index(a) < NAMES.index(b):
            obeyed = [k for k in range(40) if larger(paint(phrased(k, a, b)), a, b) == 36 / 16]
            assert obeyed == honoured(a) and len(obeyed) == 6
            assert larger(paint(f"the {a} is larger than the {b}"), a, b) == 16 / 36
    assert not set(honoured("ant")) & set(honoured("frog")) and len(SHAPES) == 4


def test_the_measure_agrees_with_every_scene_of_two_things():
    for a, b in permutations(NAMES, 2):
        for m, n in ((4, 4), (4, 6), (6, 4), (6, 6)):
            picture = pixels(32, [Thing(*look(a), m, 3, 2), Thing(*look(b), n, 0, 0)])
            assert larger(picture, a, b) == pytest.approx((m / n) ** 2)
    assert larger(pixels(32, [Thing(*look("ant"), 4, 0, 0)]), "ant", "cow") is None


def test_a_prompt_that_cannot_be_painted_is_one_sentence():
    for text in ("", "a picture of nothing", "ant bee cow dog rat"):
        with pytest.raises(ValueError, match="name 1 to 4 of ant"):
            paint(text)
    with pytest.raises(ValueError, match="does not know 'wolf'"):
        look("wolf")


def test_the_ratio_asked_for_decides():
    p = counterfactual_prompts(0, "train", 0)
    assert isinstance(p, Problem) and p.args["ratio"] == 1.5
    for ratio, value in ((2.25, 1.0), (0.4, 1.0)):
        wanted = Problem.make(
            prompt="?", answer=p.answer, verifier="painted", args={**p.args, "ratio": ratio}, family="f", split="train"
        )
        assert verify(wanted, p.answer).value == value
    assert verify(wanted, f"the {p.args['a']} beside the {p.args['b']}").value == 1.0  # 16 / 36 is above 0.4
    far = Problem.make(
        prompt="?", answer=p.answer, verifier="painted", args={**p.args, "ratio": 3.0}, family="f", split="train"
    )
    assert verify(far, p.answer).reason.startswith("bad_reference")


def test_a_pair_is_an_accepted_over_a_rejected_rewrite_of_one_prompt():
    p = counterfactual_prompts(0, "train", 1)
    assert isinstance(p, Problem)
    a, b = p.args["a"], p.args["b"]
    told = [phrased(k, a, b) for k in range(40)]
    episodes = [
        Episode(
            messages=(*p.prompt, Message(role="assistant", content=t)), score=verify(p, t).value, begins=len(p.prompt)
        )
        for t in told
    ]
    (pair,) = own_answers(p, episodes, most=1)
    assert isinstance(pair, PreferencePair) and told.index(pair.chosen) in honoured(a)
    assert told.index(pair.rejected) not in honoured(a)
