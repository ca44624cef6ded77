"""Rules that are learned from mispredictions and veto actions (rule_guard, WALL-E 2.0)."""

import numpy as np
import pytest
import tiny

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine, Example
from training.decode.rule_guard import _Seen, fires, induced
from training.types import Segment

V = tiny.Vocabulary(16)
END = 2
WORDS = ["", "", "", "axe", "wood", "stone", "chop", "mine", "yes", "no"]


class Says:
    """These actions, one after the other."""

    version, end_id = 0, END

    def __init__(self, *ids):
        self.model, self.left, self.prompts = tiny.build(vocabulary=V, init_range=0.2), list(ids), []

    def open(self, prompts, seeds):
        told = self
        told.prompts += [p.tolist() for p in prompts]

        class Session:
            def generate(self, sampling):
                each = [np.array([told.left.pop(0), END]) for _ in prompts]
                return [Segment(ids=i, role="model", logp=np.zeros(2, dtype=np.float32), stop="end") for i in each]

        return Session()


def text(ids):
    return " ".join(WORDS[i] for i in ids if i != END)


def engine(sampler, ids=None, **more):
    return Engine(sampler=sampler, text=text, said=text, sampling=Sampling(max_tokens=4), ids=ids, **more)


def pair(state, chosen, rejected):
    return Example(prompt=np.array(state), chosen=np.array([chosen, END]), rejected=np.array([rejected, END]))


LOG = [pair([3, 4], 6, 7), pair([3], 6, 7), pair([5], 7, 6), pair([5, 4], 7, 6)]
NEEDED = (("chop", "needs", "axe"), ("mine", "needs", "stone"))


def guard(**more):
    return bind("decode", {"piece": "rule_guard", "ask": "", **more})


def test_a_rule_that_a_success_contradicts_is_dropped_and_one_cover_is_enough():
    assert guard().fit(engine(Says()), LOG).rules == NEEDED
    contradicted = [*LOG, pair([4], 6, 7)]  # it has chopped without an axe
    rules = guard().fit(engine(Says()), contradicted).rules
    assert ("chop", "needs", "axe") not in rules and ("chop", "fails with", "stone") in rules
    log = [_Seen(frozenset("a"), frozenset("x"), False, foreseen) for foreseen in (True, False)]
    assert induced(log, 20, 2) == [], "what was foreseen teaches nothing, and one failure is too few"
    assert induced(log, 20, 1) == [("x", "fails with", "a")]
    assert guard(max_rules=1).fit(engine(Says()), LOG).rules == NEEDED[:1]


def test_an_action_that_a_rule_forbids_is_drawn_again_and_the_agent_is_told_why():
    decode = guard(replan_max=2)
    fitted, told = decode.fit(engine(Says()), LOG), Says(6, 7, 7)
    asks = [Ask(prompt=np.array([5]), seed=i, max_tokens=4) for i in range(2)]
    done = decode(engine(told, ids=lambda text: np.array([9])), asks, fitted)
    assert told.prompts == [[5], [5], [5, 9]], "the second needs no other"
    assert [text(d.segment.ids) for d in done] == ["mine", "mine"]
    assert [d.account.events for d in done] == [["vetoed: chop needs axe."], []]
    assert [d.account.spent for d in done] == [3 + 4, 3]


def test_after_replan_max_the_last_action_is_played_and_the_budget_holds():
    decode = guard(replan_max=2)
    fitted = decode.fit(engine(Says()), LOG)
    done = decode(engine(Says(6, 6, 6)), [Ask(prompt=np.array([5]), seed=0, max_tokens=4)], fitted)[0]
    assert text(done.segment.ids) == "chop" and len(done.account.events) == 3 and done.account.spent == 3 * (1 + 2)
    short = decode(engine(Says(6, 6, 6)), [Ask(prompt=np.array([5]), seed=0, max_tokens=4, forward_tokens=7)], fitted)[
        0
    ]
    assert short.account.spent == 3, "no room for another turn of 4 tokens behind the prompt"


def test_the_world_model_is_asked_and_what_it_foresaw_teaches_nothing(monkeypatch):
    source = engine(Says(), ids=lambda t: np.array([{"yes": 8, "no": 9}.get(t, 1)]))
    knows = lambda rows: np.array([float((6 in p) == (3 in p) and w[0] == 8) - 0.5 for p, w in rows])  # noqa: E731
    monkeypatch.setattr(source, "logp", knows, raising=False)
    fitted = guard(ask="?").fit(source, LOG)
    assert fitted.rules == () and fitted.covered == 0.0


def test_the_control_has_as_many_rules_by_chance():
    fitted = guard(rules="random").fit(engine(Says()), LOG)
    assert len(fitted.rules) == 2 and fitted.rules != NEEDED
    assert fires(("chop", "needs", "axe"), frozenset({"wood"}), frozenset({"chop"}))
    assert not fires(("chop", "fails with", "axe"), frozenset({"wood"}), frozenset({"chop"}))


def test_what_is_refused():
    for spec in ({"max_rules": 0}, {"least": 0}, {"replan_max": -1}):
        with pytest.raises(ValueError, match="1 or more, the last 0 or more"):
            guard(**spec).fit(engine(Says()), LOG)
    with pytest.raises(ValueError, match='set ask to ""'):
        guard(ask="?").fit(engine(Says()), LOG)
