"""Decoders that choose: rollbacks, feedback, tournaments and plans, against what is known in small closed cases."""

import numpy as np
import pytest
import tiny
import torch

from synth.types import Sampling
from tasks.planning.pieces import bind
from training.decode import Ask, Engine
from training.decode.plans import _middle
from training.decode.rosa import step
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)
WORDS = ["x", "y", ".", *"abcdefghijklm"]


def engine(**more):
    known = {
        "sampler": TorchSampler(tiny.build(vocabulary=V, init_range=0.2), 2),
        "text": lambda ids: " ".join(WORDS[int(i)] for i in ids),
        "said": lambda ids: WORDS[int(ids[0])],
        "sampling": Sampling(max_tokens=8, stop_ids=()),
    }
    return Engine(**known | more)


def asks(n, max_tokens=8, **more):
    return [Ask(prompt=p, seed=i, max_tokens=max_tokens, **more) for i, p in enumerate(tiny.ids(*[5] * n, below=16))]


def kl(p, q):
    return float((p * (p.log() - q.log())).sum())


def test_one_step_reaches_the_optimum_of_the_feedback():
    # Ten arms whose logits are the parameters; r = -1 on the likeliest.
    for seed in range(3):
        logits = torch.from_numpy(np.random.default_rng(seed).normal(size=10))
        p, y = torch.softmax(logits, 0), int(logits.argmax())
        want = torch.log(p).clone()
        want[y] -= 1.0
        want = torch.softmax(want, 0)
        d = step(logits[None], np.array([y]), -1.0, lambda x: x, torch.eye(10, dtype=torch.float64), 1.0, 0.01)
        assert kl(want, torch.softmax(logits + d, 0)) < 0.05 * kl(want, p)
        exact = step(logits[None], np.array([y]), -1.0, lambda x: x, torch.eye(10, dtype=torch.float64), 1.0, 1e-9)
        assert kl(want, torch.softmax(logits + exact, 0)) < 0.05 * kl(want, p)
    # Two arms alike, r / beta = -log 3: pi* = (1/4, 3/4). J = ((.5, -.5), (-.5, .5)), delta = log (1/2, 3/2);
    # J d = delta has no solution; least squares gives d_0 - d_1 = (delta_0 - delta_1) = -log 3, and so pi* itself.
    d = step(
        torch.zeros(1, 2, dtype=torch.float64),
        np.array([0]),
        -1.0,
        lambda x: x,
        torch.eye(2, dtype=torch.float64),
        1 / np.log(3),
        1e-9,
    )
    assert torch.softmax(d, 0).tolist() == pytest.approx([0.25, 0.75], abs=1e-6)


def test_feedback_goes_through_the_norm_of_the_model():
    """On the real model: after a bad answer of one token that token is less likely at that place, by about what pi*
    says, and the account is what was read."""
    source = engine()
    norm, head = source.read_out()
    head = head.detach()
    prompt = asks(1)[0].prompt
    (stream,) = source.streams([prompt], [1])
    last = stream[0, -1]
    before = torch.log_softmax(head.double() @ norm(last).double(), 0).detach()
    assert float(before[5]) == pytest.approx(float(source.logp([(prompt, np.array([5]))])[0]), abs=1e-4)
    y = int(before.argmax())
    d = step(last[None], np.array([y]), -1.0, norm, head, 1.0, 0.001)
    after = torch.log_softmax(head.double() @ norm(last + d.float()).double(), 0).detach()
    want = before.clone()
    want[y] -= 1
    want = torch.log_softmax(want, 0)
    assert kl(want.exp(), after.exp()) < 0.3 * kl(want.exp(), before.exp())


def test_turns_end_with_a_good_answer_and_are_paid_for():
    bad = engine(rewards=lambda rows: [0.0] * len(rows))
    good = engine(rewards=lambda rows: [1.0] * len(rows))
    decode = bind("decode", {"piece": "rosa", "turns": 3})
    for done in decode(good, asks(3), None):
        n = 5 + len(done.segment.ids)
        assert done.account.tokens == {"policy": n, "reward": n + 1}
    for done in decode(bad, asks(3), None):
        assert done.account.tokens["policy"] > 3 * 5 + 2 * 5 and done.account.tokens["reward"] > 2 * 5
    with pytest.raises(ValueError, match="and there is none: train one"):
        decode(engine(), asks(1), None)
    with pytest.raises(ValueError, match="beta 0.0"):
        bind("decode", {"piece": "rosa", "beta": 0.0})(good, asks(1), None)


def test_what_stands_before_a_rollback_keeps_every_id_and_events_say_what_happened():
    free = bind("decode", {"piece": "cognition_of_thought", "principles": ["none: zzz"], "check_every": 3})
    watched = bind("decode", {"piece": "cognition_of_thought", "principles": ["care: e, f"], "check_every": 3})
    hints = []

    def ids(text):
        hints.append(text)
        return np.array([9, 9, 9])

    source = engine(ids=ids)
    plain, kept = free(source, asks(40), None), watched(source, asks(40), None)
    assert not any(p.account.events for p in plain)
    rolled = 0
    for a, b in zip(plain, kept, strict=True):
        words = source.text(b.segment.ids).split()
        if not b.account.events:
            assert a.segment.ids.tolist() == b.segment.ids.tolist() and not {"e", "f"} & set(words)
            continue
        rolled += 1
        start = int(b.account.events[0].rpartition("token ")[2]) if "rolled" in b.account.events[0] else 0
        assert a.segment.ids[:start].tolist() == b.segment.ids[:start].tolist()
        assert len(b.account.events) <= 4
    assert rolled > 5 and hints and "care" in hints[0]
    broken = lambda done: np.mean([bool({"e", "f"} & set(source.text(d.segment.ids).split())) for d in done])  # noqa: E731
    assert broken(kept) < 0.6 * broken(plain)
    with pytest.raises(ValueError, match="forbids nothing"):
        bind("decode", {"piece": "cognition_of_thought", "principles": ["be good"]})(source, asks(1), None)


def test_a_rollback_goes_where_it_is_told():
    from training.decode.cognition_of_thought import cognition_of_thought

    places = {}
    for back in ("sentence", "start", "anywhere"):
        done = cognition_of_thought(engine(), asks(40), None, principles=["care: e, f"], check_every=3, back=back)
        told = [d.account.events[0] for d in done if d.account.events and "rolled" in d.account.events[0]]
        places[back] = [tuple(int(w.rstrip(";")) for w in e.split() if w.rstrip(";").isdigit()) for e in told]
    assert all(at == 0 for _, at in places["start"]) and len(places["start"]) > 5
    assert all(0 <= at < breach for breach, at in places["anywhere"]) and len({at for _, at in places["anywhere"]}) > 1
    assert [breach for breach, _ in places["start"]] == [breach for breach, _ in places["sentence"]]


def test_the_plan_in_the_middle_shares_most():
    a, b, c = np.array([3, 4, 5]), np.array([3, 4, 6]), np.array([7, 8, 9])
    assert _middle([c, a, b]) == 1 and _middle([c, b, a]) == 1 and _middle([c, c, a]) == 0
    with pytest.raises(ValueError, match="k is 0.* there is no budget"):
        bind("decode", {"piece": "plans", "k": 0})(engine(), asks(1), None)


def test_a_budget_buys_plans_and_leaves_room_to_carry_one_out():
    decode = bind("decode", {"piece": "plans", "k": 0, "plan_tokens": 3})
    for budget in (30, 60, 200):
        for done in decode(engine(), asks(4, forward_tokens=budget), None):
            assert done.account.spent <= budget


def test_the_tournament_of_the_system_beats_the_vote():
    """Pure numbers: nine candidates, right 0.34 against a wrong one of 0.36 and three of 0.1; a judge who is right four
    times in five about two members. The tournament finds the right one more often by ten points and more."""
    from training.decode.tournament import _winner

    rng, hits = np.random.default_rng(0), {"tournament": 0, "largest": 0}
    for _ in range(1000):
        results = rng.choice(5, 9, p=[0.34, 0.36, 0.1, 0.1, 0.1])
        rewards = (results == 0) + 0.84 * rng.normal(size=9)
        groups = [np.flatnonzero(results == r).tolist() for r in dict.fromkeys(results.tolist())]
        for how in hits:
            hits[how] += int(results[_winner(groups, rewards, how)[0]] == 0)
    assert hits["tournament"] > hits["largest"] + 100
