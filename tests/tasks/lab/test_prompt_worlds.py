"""The small world of prompts: chances by hand, and what choosing is worth where words matter and where they do not."""

import numpy as np
import pytest

from synth.types import UserError
from tasks.lab.prompt_worlds import ADVICE, RIGHT, VOCABULARY, WORDS, WRONG, _Answerer
from tasks.lab.registry import train


def test_an_answer_is_right_as_often_as_prompt_and_words_add_up_to():
    special = np.zeros((VOCABULARY, 2))
    special[3, 1], special[4, 1] = 2.0, -1.0
    answerer = _Answerer(np.array([0.0, 0.5]), special)
    question = np.array([3, 4, 5, 6])
    assert len(question) == WORDS and answerer.chance(question) == 0.5  # without a prompt, the first
    # 0.5 + (2 - 1 + 0 + 0) / 2 = 1
    assert answerer.chance(np.append(question, ADVICE + 1)) == pytest.approx(1 / (1 + np.exp(-1.0)))
    answers = [int(answerer.turn(np.append(question, ADVICE + 1), seed).ids[0]) for seed in range(400)]
    assert set(answers) == {RIGHT, WRONG} and abs(answers.count(RIGHT) / 400 - 0.731) < 0.09  # four standard errors


def test_there_is_nothing_to_gain_where_words_say_nothing():
    chosen, alike = (train(world, "prompt-oirl", {}, 1, 201) for world in ("advised", "alike"))
    assert alike["oracle"] == pytest.approx(alike["fixed"]) and alike["wanted"] <= alike["fixed"]
    assert chosen["oracle"] > chosen["wanted"] > chosen["fixed"]


def test_another_decoder_is_refused():
    with pytest.raises(UserError, match="prompt_choice"):
        train("advised", "palrs", {}, 1, 0)
