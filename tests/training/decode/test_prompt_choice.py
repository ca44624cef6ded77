"""A prompt for each question: what a log says of prompts, by hand; ties; what is refused."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from synth.types import Sampling
from training.decode import Ask, Engine, Example
from training.decode.prompt_choice import fit, learned, prompt_choice
from training.types import Segment


def test_where_words_say_nothing_it_is_the_share_of_right_answers():
    log = [("sum", 0, y) for y in (1, 1, 1, 0)] + [("sum", 1, y) for y in (0, 0, 1, 0)]
    known = learned(log, 2, dim=64)
    assert known.means == pytest.approx((3.5 / 5, 1.5 / 5)) and known.logged == (4, 4)
    assert known.pick("sum") == 0 == known.pick("", "average")


def test_weights_of_words_by_hand():
    """One word in each question, so x = 1, and opposite results, so b = 0: w = 1 - sigmoid(w) at l2 = 1, which 0.4010581 solves."""
    known = learned([("red", 0, 1), ("blue", 0, 0), ("red", 1, 0), ("blue", 1, 1)], 2)
    w = 0.4010581
    assert 1 / (1 + np.exp(w)) == pytest.approx(w, abs=1e-7)
    assert known.weights[:, -1] == pytest.approx([0, 0], abs=1e-9)
    assert sorted(known.weights[0][known.weights[0] != 0].round(6)) == [-0.401058, 0.401058]
    assert known.of("Red!") == pytest.approx([1 - w, w], abs=1e-6)  # as words, whatever their case
    assert known.of("green") == pytest.approx([0.5, 0.5], abs=1e-9)
    assert [known.pick(q) for q in ("red", "blue", "green")] == [0, 1, 0]  # of equals the first


def test_a_question_of_many_words_is_no_louder():
    """Two words have 1 / sqrt 2 each: 2 u / sqrt 2 is the one w of the other question."""
    known = learned([("red sky", 0, 1), ("blue", 0, 0), ("red sky", 1, 0), ("blue", 1, 1)], 2)
    assert known.of("red sky")[0] == pytest.approx(1 - 0.4010581, abs=1e-6)
    assert known.of("red")[0] == pytest.approx(1 / (1 + np.exp(-0.4010581 / 2**0.5)), abs=1e-6)


def test_more_l2_takes_more_evidence():
    log = [("red", 0, 1), ("blue", 0, 0), ("red", 1, 0), ("blue", 1, 1)]
    spread = [learned(log, 2, l2=l2).of("red")[0] for l2 in (0.1, 1.0, 10.0)]
    assert spread[0] > spread[1] > spread[2] > 0.5


def test_shares_are_results_too_and_the_fit_is_where_the_slope_is_zero():
    rng = np.random.default_rng(0)
    log = [(f"w{rng.integers(9)} w{rng.integers(9)}", int(rng.integers(3)), float(rng.random())) for _ in range(200)]
    known = learned(log, 3, l2=0.7, dim=32)
    for k in range(3):
        mine = [(q, y) for q, p, y in log if p == k]
        rest = np.array([y - known.of(q)[k] for q, y in mine])
        of_nothing = 0.5 - 1 / (1 + np.exp(-known.weights[k, -1]))
        assert rest.sum() + of_nothing == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(
    ("log", "prompts", "message"),
    [
        ([("a", 0, 1)], 1, "1 prompts to choose among"),
        ([("a", 0, 1)], 2, "prompt 2 has no result"),
        ([("a", 0, 1), ("a", 1, 1.5)], 2, "a result of prompt 2 is 1.5"),
    ],
)
def test_bad_logs_are_one_sentence(log, prompts, message):
    with pytest.raises(ValueError, match=message):
        learned(log, prompts)


@dataclass
class Told:
    """Right (id 1) where question and prompt are of one kind: question 5 with none, question 6 with the prompt 9."""

    model: None = None
    version: int = 0
    asked: list = field(default_factory=list)

    def open(self, prompts, seeds):
        self.asked += [p.tolist() for p in prompts]
        rows = [int((p[0] == 6) == (len(p) > 1)) for p in prompts]

        class Session:
            def generate(self, sampling: Sampling):
                return [
                    Segment(ids=np.array([r]), role="model", logp=np.zeros(1, dtype=np.float32), stop="end")
                    for r in rows
                ]

        return Session()


def played(**knobs):
    class Reader(Engine):
        bytes_per_token = 0

    sampler, knobs = Told(), {"prompts": ("", "Now: "), **knobs}
    engine = Reader(
        sampler=sampler,
        text=lambda ids: f"q{ids[0]}",
        said=lambda ids: str(int(ids[0])),
        ids=lambda text: np.array([9]),
    )
    pairs = [Example(prompt=np.array([q]), chosen=np.array([1]), rejected=np.array([0])) for q in (5, 6, 5, 6)]
    fitted = fit(engine, pairs, **knobs)
    logged = len(sampler.asked)
    asks = [Ask(prompt=np.array([q]), seed=i, max_tokens=3) for i, q in enumerate((5, 6) * 8)]
    done = prompt_choice(engine, asks, fitted, **knobs)
    return sampler.asked[logged:], done, logged


def test_the_prompt_stands_behind_the_question_and_choosing_asks_no_model():
    prompts, done, logged = played()
    assert logged == 4 * 2 and prompts == [[5], [6, 9]] * 8  # one draw an ask
    assert all(d.segment.ids[0] == 1 for d in done)
    assert [d.account.events[0] for d in done[:2]] == ["prompt 1: (none)", "prompt 2: Now:"]
    assert [d.account.spent for d in done[:2]] == [2, 3]


def test_controls_do_not_read_the_question():
    prompts, _, _ = played(choose="average")
    assert prompts == [[5], [6]] * 8  # both prompts are right half of the time: of equals the first
    by_chance, _, _ = played(choose="random")
    assert 2 < sum(len(a) == 2 for a in by_chance) < 14
    assert played(choose="random")[0] == by_chance and played(tries=3)[2] == 24


def test_fitting_needs_prompts():
    with pytest.raises(ValueError, match="1 prompts and 1 tries"):
        played(prompts=("",))
