"""A graph of questions before the turn (question_graph, SPRING)."""

import numpy as np
import pytest
import tiny

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine
from training.decode.question_graph import ordered
from training.rollout.torch_sampler import TorchSampler
from training.types import Segment

V = tiny.Vocabulary(16)
END = 2
GRAPH = [
    {"name": "c", "ask": "5", "reads": ["a"]},
    {"name": "a", "ask": "4"},
    {"name": "z", "ask": "6", "reads": ["a", "c"]},
]


class Counts:
    """Answers with how many questions it was asked before, 7 for the first, and keeps what it was shown."""

    version, end_id = 0, END

    def __init__(self):
        self.model, self.prompts = tiny.build(vocabulary=V, init_range=0.2), []

    def open(self, prompts, seeds):
        first = 7 + len({tuple(p[-1:].tolist()) for p in self.prompts})
        self.prompts += list(prompts)

        class Session:
            def generate(self, sampling):
                ids = np.array([first, END])[: sampling.max_tokens]
                stop = "end" if len(ids) == 2 else "length"
                return [
                    Segment(ids=ids, role="model", logp=np.zeros(len(ids), dtype=np.float32), stop=stop)
                    for _ in prompts
                ]

        return Session()

    @property
    def shown(self):
        return [p.tolist() for p in self.prompts]


def engine(sampler, **more):
    known = {"ids": lambda text: np.array([int(w) for w in text.split()], dtype=np.int64)}
    return Engine(
        sampler=sampler,
        text=lambda ids: " ".join(str(i) for i in ids if i != END),
        said=str,
        sampling=Sampling(max_tokens=8),
        **known | more,
    )


def graph(**more):
    return bind("decode", {"piece": "question_graph", "questions": GRAPH, "piece_tokens": 2, **more})


def ask(first=3, **more):
    return Ask(prompt=np.array([first]), seed=first, max_tokens=8, **more)


def test_every_question_once_in_order_and_each_sees_exactly_the_answers_that_it_reads():
    told = Counts()
    done = graph()(engine(told), [ask(3), ask(9)], None)
    assert told.shown == [[3, 4], [9, 4], [3, 4, 7, 5], [9, 4, 7, 5], [3, 4, 7, 5, 8, 6], [9, 4, 7, 5, 8, 6]]
    assert [d.segment.ids.tolist() for d in done] == [[9, END]] * 2, "the last answer alone, with its end"
    assert done[0].account.tokens == {"policy": (2 + 2) + (4 + 2) + (6 + 2)}
    told = Counts()
    graph(edges="none")(engine(told), [ask()], None)
    assert told.shown == [[3, 4], [3, 5], [3, 6]]


def test_what_was_said_becomes_the_action_that_is_spelled_most_alike():
    done = graph(actions=["11 12", "9 13"])(engine(Counts()), [ask()], None)[0]
    assert done.segment.ids.tolist() == [9, 13, END] and done.segment.stop == "end"
    last = np.array([3, 4, 7, 5, 8, 6])
    assert done.account.spent == (2 + 2) + (4 + 2) + (6 + 2) + len(last) + 3, "the action is read too"
    told = TorchSampler(tiny.build(vocabulary=V, init_range=0.2), END).logp(last, done.segment.ids)
    assert np.allclose(done.segment.logp, told, atol=1e-4)
    same = graph(actions=["9", "10"])(engine(Counts()), [ask()], None)[0]
    assert same.account.spent == (2 + 2) + (4 + 2) + (6 + 2), "what is an action already costs nothing more"


def test_the_manual_is_what_the_model_says_matters(monkeypatch):
    words = {"yes": "14", "no": "15", "Does this matter here? ": "13"}
    numbers = lambda text: np.array([int(w) for w in words.get(text, text).split()], dtype=np.int64)  # noqa: E731
    told = Counts()
    source = engine(told, ids=numbers)
    likes = lambda rows: np.array([float((p[0] == 10) == (w[0] == 14)) for p, w in rows])  # noqa: E731
    monkeypatch.setattr(source, "logp", likes, raising=False)
    done = graph(manual=["10 10", "11", "10"])(source, [ask()], None)[0]
    assert told.shown[0] == [3, 10, 10, 10, 4]
    studied = 2 * (3 + 1) + 2 * (2 + 1) + 2 * (2 + 1)
    assert done.account.spent == studied + (5 + 2) + (7 + 2) + (9 + 2)


def test_the_budget_leaves_questions_out_and_never_the_turn():
    for limit in range(2, 60):
        done = graph()(engine(Counts()), [ask(forward_tokens=limit)], None)[0]
        assert 0 < done.account.spent <= limit
    with pytest.raises(ValueError, match="no room for an answer"):
        graph()(engine(Counts()), [ask(forward_tokens=1)], None)


def test_what_is_refused():
    circle = [{"name": "a", "ask": "1", "reads": ["b"]}, {"name": "b", "ask": "2", "reads": ["a"]}]
    for questions, why in (
        (circle, "in a circle"),
        ([{"name": "a", "ask": "1", "reads": ["x"]}], "reads x, which is none of a"),
        ([{"name": "a", "ask": "1"}, {"name": "a", "ask": "2"}], "a name of its own"),
        ([{"name": "a"}], "and a text `ask`"),
        ([], "no questions"),
        ([{"name": "a", "ask": "1"}, {"name": "b", "ask": "2"}], "leads nowhere"),
    ):
        with pytest.raises(ValueError, match=why):
            ordered(questions)
    with pytest.raises(ValueError, match="1 token or more"):
        graph(piece_tokens=0)(engine(Counts()), [ask()], None)
    with pytest.raises(ValueError, match="leave both out"):
        graph(actions=["1"])(engine(Counts(), ids=None), [ask()], None)
    assert [n for n, _, _ in ordered(GRAPH)] == ["a", "c", "z"]
