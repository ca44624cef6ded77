"""Pay for translations by hand: sentence BLEU, chrF, the scorer without a reference, and what is refused."""

import sys

import numpy as np
import pytest

from synth.families.translations import GRAMMAR, WORDINGS, solve, translations
from synth.types import Problem
from training.rl.reward import translation_quality as piece
from training.rl.reward.translation_quality import adequacy, glosses, lexical, translation_quality

WORDS = "gar = old, pik = help, sela = cat, tomu = dog"
QUESTION = WORDINGS.write(text="tomuri gar lo sela pikta", grammar=GRAMMAR, words=WORDS)
RIGHT = "the old dogs helped the cat"


def problem(question=QUESTION):
    return Problem.make(prompt=question, answer=RIGHT, verifier="exact", family="translations", split="train")


class Said:
    def __init__(self, text, of=None):
        self.text, self.problem, self.info = text, of or problem(), {}


class Of:
    def __init__(self, *rollouts):
        self.rollouts = rollouts


def paid(text, **knobs):
    (out,) = translation_quality([Of(Said(text))], [np.array([0.0])], {}, np.random.default_rng(0), **knobs)
    return float(out[0])


def test_the_grammar_by_hand():
    assert solve(QUESTION) == RIGHT and glosses(QUESTION) == ["dog", "old", "cat", "help"]
    two = WORDINGS.write(text="sela lo tomuri pik ne sela lo sela pik", grammar=GRAMMAR, words=WORDS)
    assert solve(two) == "the cat helps the dogs and the cat helps the cat"


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_a_right_translation_is_adequate_in_every_wording(level):
    problems = [translations(3, "train", i, levels=[level]) for i in range(40)]
    assert all(adequacy(p.answer, p) == 1.0 for p in problems)


def test_sentence_bleu_by_hand():
    # 5 of 5 words; of pairs 3 of 4, of triples 0 of 3, of fours 0 of 2, each plus one: (1 * 4/5 * 1/4 * 1/3) ** (1/4)
    swapped = lexical("the cat sees the dog", "the dog sees the cat", "bleu")
    assert swapped == pytest.approx((1 / 15) ** 0.25, abs=1e-9)
    # A text of three words of five, all right: three orders, all 1, and the brevity exp(1 - 5/3).
    assert lexical("the dog sees", "the dog sees the cat", "bleu") == pytest.approx(np.exp(-2 / 3), abs=1e-9)
    assert lexical(RIGHT, RIGHT, "bleu") == pytest.approx(1.0)


def test_chrf_by_hand():
    # Of "ab" against "abc": precision 1; recall of letters 2/3, of pairs 1/2, mean 7/12; 5 * 7/12 / (4 + 7/12) = 7/11.
    assert lexical("ab", "abc", "chrf") == pytest.approx(7 / 11, abs=1e-9)


def test_the_scorer_without_a_reference_knows_words_and_no_order():
    assert adequacy(RIGHT, problem()) == adequacy("the cat help old dog", problem()) == 1.0
    assert adequacy("the old dogs helped the king", problem()) == 2 * 3 / (4 + 4)
    assert adequacy("dog dog dog dog", problem()) == 2 * 1 / (4 + 4)  # a word counts once
    assert adequacy("", problem()) == 0.0


def test_modes_add_up_behind_the_gate():
    reply = "<think>so</think><answer>the cat helped the old dogs</answer>"
    lex = lexical("the cat helped the old dogs", RIGHT, "bleu")
    assert 0 < lex < 1
    assert paid(reply, mode="lex") == pytest.approx(1 + lex) and paid(reply, mode="sem") == 2.0
    assert paid(reply) == pytest.approx(2 + lex)
    assert paid(f"<think>so</think>\n<answer>{RIGHT}</answer>\n") == pytest.approx(3.0)
    for broken in (f"<answer>{RIGHT}</answer>", RIGHT, f"<think>so<answer>{RIGHT}</answer>", reply + reply, ""):
        assert paid(broken) == -3.0 and paid(broken, format_bad=-1.0) == -1.0


def test_a_problem_without_words_is_a_sentence():
    other = Said("<think>a</think><answer>b</answer>", problem("What is 2 + 2?"))
    with pytest.raises(ValueError, match="lists no words.*set mode to lex"):
        translation_quality([Of(other)], [np.zeros(1)], {}, np.random.default_rng(0))


def test_without_sacrebleu_a_sentence(monkeypatch):
    piece._metric.cache_clear()
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(ValueError, match=r"pip install 'espalier\[translation\]'"):
        paid("<think>so</think><answer>b</answer>")
