"""What rows begin with in common is computed once: the same values and gradients, fewer tokens."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tiny
import torch

from tests.training.learner.test_learner import seen_calls
from training.learner.learner import Learner, Optim, nll, score, token_stats
from training.learner.pack import Row, Stream, batch_paths, pack, select, split
from training.model.lora import adapt
from training.preference.loss.dpo import dpo
from training.preference.objective import PairObjective
from training.rl.critic import ValueModel, value_stats
from training.rl.objective import PolicyObjective
from training.rl.observation.corrupted import corrupted
from training.rl.policy_loss.clip import clip
from training.rl.ratio.sequence import sequence
from training.rl.ratio.token import token
from training.rl.regulariser.entropy import entropy

pytestmark = pytest.mark.usefixtures("either_way")

GRPO = PolicyObjective(
    ratio=token, policy_loss=partial(clip, aggregate="sequences"), regularisers=[partial(entropy, coef=0.01)]
)
GSPO = PolicyObjective(ratio=sequence, policy_loss=clip)


def row(prompt, turns, group, rng):
    """A prompt, and answers of the model with what the environment says between them."""
    parts, on = [prompt], [np.zeros(len(prompt), dtype=bool)]
    for i, n in enumerate(turns):
        parts.append(rng.integers(0, 300, n))
        on.append(np.full(n, i % 2 == 0))
    ids = np.concatenate(parts)
    columns = {"advantages": np.full(len(ids), rng.normal()), "sampling_logp": rng.normal(-6, 1, len(ids))}
    return Row(ids=ids, trainable=np.concatenate(on), group=group, columns=columns)


def groups(*, samples=4, seed=0, turns=((3,), (9,), (1,), (12, 5, 4))):
    """Groups of one prompt each, of one turn and of several; a row that is nothing but its prompt and one token; a row
    alone."""
    rng = np.random.default_rng(seed)
    header = rng.integers(0, 300, 3)
    rows = [
        row(prompt, turns[i % len(turns)], g, rng)
        for g, prompt in enumerate(np.concatenate([header, p]) for p in tiny.ids(20, 31, 14, seed=seed))
        for i in range(samples)
    ]
    return [*rows, row(tiny.ids(17, seed=9)[0], (6,), 9, rng)]


def gradient(batch, objective, **knobs):
    learner = Learner(tiny.build(), Optim(max_grad_norm=1e9))
    metrics = learner.step(batch, objective, **knobs)
    return metrics, [p.grad.clone() for p in learner.weights]


def apart(batch):
    return replace(batch, prefixes=[])


def computed(batch):
    return len(Stream.of(batch).ids)


@pytest.mark.parametrize("budget", [10**6, 90, 1])
@pytest.mark.parametrize("objective", [GRPO, GSPO, nll], ids=["grpo", "gspo", "nll"])
def test_a_shared_prompt_changes_neither_values_nor_gradients(objective, budget):
    batch = pack(groups())
    assert computed(batch) < 0.75 * len(batch.ids)
    want, whole = gradient(apart(batch), objective, temperature=0.7)
    got, shared = gradient(batch, objective, temperature=0.7, tokens_per_microbatch=budget)
    for name in {"loss", "grad_norm", "nll", "entropy"} & set(want):
        assert got[name] == pytest.approx(want[name], rel=1e-6, abs=1e-6), name
    for a, b in zip(whole, shared, strict=True):
        assert float((a - b).abs().max()) <= 1e-6 * max(1.0, float(a.abs().max()))


def test_statistics_of_every_token_are_those_of_the_unshared_pass():
    batch = pack(groups())
    model = tiny.build()
    for a, b in zip(
        *([s.logp, s.entropy] for s in (token_stats(model, batch), score(model, apart(batch)))), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("budget", [10**6, 60])
def test_both_answers_to_a_prompt_share_it(budget):
    rng = np.random.default_rng(1)
    batch = pack([row(p, (n,), g, rng) for g, p in enumerate(tiny.ids(18, 25, 9)) for n in (4, 7)])
    batch.add("reference", torch.full((len(batch.ids),), -5.0), "token")
    assert computed(batch) == len(batch.ids) - 18 - 25 - 9
    objective = PairObjective(loss=dpo, sft=0.3)
    want, got = (
        gradient(b, objective, tokens_per_microbatch=budget, rows_per_unit=2)[1] for b in (apart(batch), batch)
    )
    for a, b in zip(want, got, strict=True):
        assert float((a - b).abs().max()) <= 1e-6 * max(1.0, float(a.abs().max()))


def plain(*pieces, trained):
    """A row of pieces of ids of which the model wrote those that `trained` names."""
    on = np.concatenate([np.full(len(p), i in trained) for i, p in enumerate(pieces)])
    ids = np.concatenate(pieces)
    rng = np.random.default_rng(int(ids.sum()))
    columns = {"advantages": np.full(len(ids), rng.normal()), "sampling_logp": rng.normal(-6, 1, len(ids))}
    return Row(ids=ids, trainable=on, columns=columns)


def test_rows_part_where_their_ids_do():
    """Rows that differ nowhere, rows that part within the prompt, and one of another prompt."""
    prompt, other = tiny.ids(12, 12)
    turn = np.arange(5)
    bent = np.concatenate([prompt[:9], other[9:]])
    assert bent[9] != prompt[9]
    batch = pack([plain(p, turn, trained={1}) for p in (prompt, prompt, bent, other)])
    assert dict(batch.prefixes) in ({0: 0, 1: 17, 2: 9, 3: 0}, {0: 9, 1: 17, 2: 0, 3: 0})
    assert batch_paths(batch) == [(), ((0, 0, 16),), ((0, 0, 9),), ()], "a row keeps a token of its own"
    assert computed(batch) == 4 * 17 - 16 - 9
    assert computed(select(batch, 1, 4)) == 3 * 17 - 9, "the first row of a part has nobody before it"
    assert [computed(b) for b in split(batch, 1)] == [17] * 4


def sessions(agents=3, turns=5, seed=0, drop=True):
    """Requests of agents: each repeats the session so far, with every token that the model wrote in it; in the middle of
    a session the environment's last word is left out, and the session goes on from there."""
    rng = np.random.default_rng(seed)
    word = lambda n: rng.integers(0, 300, n)  # noqa: E731
    rows = []
    system = word(20)
    for g in range(agents):
        told: list[np.ndarray] = [system, word(18)]
        for turn in range(turns):
            if drop and turn == turns // 2 + 1:
                told = [*told[:-1], word(17)]
            answer = word(19)
            rows.append(replace(plain(*told, answer, trained={len(told)}), group=g))
            told += [answer, word(16)]
    return rows


@pytest.mark.parametrize("budget", [10**6, 260])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_tree_of_any_depth_changes_neither_values_nor_gradients(shuffled, budget):
    rows = [*sessions(), *groups()]
    order = np.random.default_rng(0).permutation(len(rows)) if shuffled else range(len(rows))
    batch = pack([rows[i] for i in order])
    if not shuffled:
        assert max(map(len, batch_paths(batch))) == 4, "a last request goes on from each before it"
    assert computed(batch) < 0.5 * len(batch.ids)
    want, whole = gradient(apart(batch), GRPO, temperature=0.7)
    got, shared = gradient(batch, GRPO, temperature=0.7, tokens_per_microbatch=budget)
    for name in {"loss", "grad_norm", "entropy"} & set(want):
        assert got[name] == pytest.approx(want[name], rel=1e-6, abs=1e-6), name
    for a, b in zip(whole, shared, strict=True):
        assert float((a - b).norm()) <= 1e-6 * float(a.norm())


@pytest.mark.parametrize("lora", [{}, {"rank": 4}], ids=["all weights", "lora"])
def test_a_tree_with_layers_computed_again_and_with_adapters(lora):
    batch, out = pack(sessions(agents=2)), []
    assert computed(batch) < 0.5 * len(batch.ids)
    for b, checkpointing in ((apart(batch), False), (batch, True)):
        model = tiny.build()
        adapt(model, lora, seed=0)
        learner = Learner(model, Optim(max_grad_norm=1e9), gradient_checkpointing=checkpointing)
        learner.step(b, GRPO, tokens_per_microbatch=200)
        out.append([p.grad.clone() for p in learner.weights])
    assert len(out[0]) == len(out[1]) > 0
    want, got = (torch.cat([g.flatten() for g in gradients]) for gradients in out)
    assert float((want - got).norm()) <= 1e-6 * float(want.norm())
    for a, b in zip(*out, strict=True):  # of each weight, small ones by the accuracy of float32
        assert float((a - b).norm()) <= 2e-6 * max(float(a.norm()), 1e-3)


def test_a_critic_reads_a_tree_once():
    batch, out = pack(sessions(agents=2)), []
    for b in (apart(batch), batch):
        torch.manual_seed(0)
        model = ValueModel(tiny.build())
        torch.nn.init.normal_(model.value.weight)
        value = value_stats(model, b).extras["value"]
        value.square().sum().backward()
        out.append((value.detach(), model.body.embed_tokens.weight.grad.clone()))
    assert float(out[0][0].abs().max()) > 0.1
    for a, b in zip(*out, strict=True):
        assert float((a - b).norm()) <= 2e-6 * float(a.norm())


@pytest.mark.parametrize("trained", [{1, 3}, {3}], ids=["in each row", "once"])
def test_tokens_that_several_rows_share_count_as_often_as_rows_train_them(trained, monkeypatch):
    """Three answers that branch off after a first turn of the model: the turn counts in each of them, or in the first
    alone (the others read it). Either way its state and its logits are computed once."""
    from training.learner import learner

    prompt, turn, told, *turns = tiny.ids(20, 17, 16, 6, 9, 4)
    rows = [plain(prompt, turn, told, x, trained=trained if i else {1, 3}) for i, x in enumerate(turns)]
    batch = pack(rows)
    seen = []
    real = learner.fused_logprob
    monkeypatch.setattr(learner, "fused_logprob", lambda h, *args, **kw: seen.append(len(h)) or real(h, *args, **kw))
    want, whole = gradient(apart(batch), GRPO)
    got, shared = gradient(batch, GRPO)
    targets = int(batch.trainable.sum())
    assert targets == 6 + 9 + 4 + 17 * (3 if 1 in trained else 1)
    assert seen == [targets, 6 + 9 + 4 + 17]
    assert got["loss"] == pytest.approx(want["loss"], rel=1e-6)
    for a, b in zip(whole, shared, strict=True):
        assert float((a - b).abs().max()) <= 1e-6 * max(1.0, float(a.abs().max()))


def test_distribution_of_shared_targets():
    prompt, turn, told, *turns = tiny.ids(20, 17, 16, 6, 9)
    batch = pack([plain(prompt, turn, told, x, trained={1, 3}) for x in turns])
    model = tiny.build()
    a, b = (token_stats(model, x).distribution() for x in (batch, apart(batch)))
    assert a.shape == b.shape == (int(batch.trainable.sum()), 336)
    torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-6)


def test_a_tree_is_parted_where_least_is_computed_again():
    """Two sessions of 40 and 60 common tokens: a cut between them costs nothing, one within a session its beginning."""
    a, b, *turns = tiny.ids(40, 60, 10, 10, 10, 10, 10, 10)
    rows = [plain(p, x, trained={1}) for p, x in zip((a, a, a, b, b, b), turns, strict=True)]
    batch = pack(rows)
    assert computed(batch) == 40 + 60 + 6 * 10
    parts = list(split(batch, 100))
    assert [p.lengths for p in parts] == [[50] * 3, [70] * 3] and sum(map(computed, parts)) == computed(batch)
    # 80 hold two of the second session: its beginning is computed twice
    assert [p.lengths for p in split(batch, 80)] == [[50] * 3, [70, 70], [70]]
    assert [p.lengths for p in split(batch, 160)] == [[50] * 3 + [70] * 3], "what is shared does not count twice"


def test_parts_of_rows_in_any_order_stay_within_the_budget():
    for seed in range(10):
        rows = sessions(seed=seed)
        rng = np.random.default_rng(seed)
        batch = pack([rows[i] for i in rng.permutation(len(rows))])
        for budget in (200, 300, 400):
            parts = list(split(batch, budget))
            assert sum(p.rows for p in parts) == batch.rows
            assert all(computed(p) <= budget or p.rows == 1 for p in parts)


def test_rows_that_share_little_are_left_as_they_were():
    """A few common tokens of a chat's header cost more than they save; the pass is then the plain one, to the bit."""
    header = np.arange(2)
    rng = np.random.default_rng(0)
    rows = [row(np.concatenate([header, p]), (20,), g, rng) for g, p in enumerate(tiny.ids(15, 15, 15))]
    batch = pack(rows)
    assert batch.prefixes == [] and Stream.of(batch).place is None


def test_ids_that_were_changed_are_not_taken_for_those_they_were():
    """The pass over corrupted prompts: each row's own, although the prompts had been one."""
    rows = [
        replace(r, columns={**r.columns, "corrupt": (np.arange(len(r.ids)) % (3 + i)) == 1})
        for i, r in enumerate(groups())
    ]
    model, out = tiny.build(), []
    for batch in (pack(rows), apart(pack(rows))):
        corrupted(batch, lambda other: score(model, other).logp)
        out.append(batch.columns["corrupted"])
    torch.testing.assert_close(*out, atol=1e-6, rtol=1e-6)


def test_every_token_of_a_batch_has_a_place_where_its_own_id_is():
    for seed in range(20):
        batch = pack(groups(samples=1 + seed % 4, seed=seed))
        stream = Stream.of(batch)
        if stream.place is not None:
            assert torch.equal(stream.ids[stream.place], batch.ids) and torch.equal(
                stream.position[stream.place], batch.position
            )
            assert sorted(set(stream.place.tolist())) == list(range(len(stream.ids)))


def test_local_schedule_with_shared_prompts():
    """Head and loss chunk by chunk, prompts once: as all at once, apart."""
    batch, out = pack(groups()), []
    for b, logits in ((apart(batch), 1 << 25), (batch, 7 * 336)):
        learner = Learner(tiny.build(init_range=0.1), Optim(max_grad_norm=1e9), logits=logits)
        with seen_calls("training.learner.learner.fused_policy_loss") as calls:
            learner.step(b, PolicyObjective(ratio=token, policy_loss=clip))
        assert bool(calls) == (logits < 1 << 25)
        out.append([p.grad.clone() for p in learner.weights])
    for a, b in zip(*out, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
