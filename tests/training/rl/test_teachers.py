"""Teachers of a policy: several with weights, behind an endpoint, and with another tokenizer."""

import numpy as np
import pytest
import torch

from synth.types import Problem
from tasks.lab.arena import Arena, World, other_tokenizer, tokenizer
from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.lm_head.divergence import dense_divergence
from training.model.model import new_model
from training.model.render import Renderer
from training.rl.teachers import Teacher, Teachers, aligned, ends, log_rest
from training.types import Batch

KINDS = [("forward", 0.5), ("reverse", 0.5), ("jensen_shannon", 0.5), ("skewed_reverse", 0.1)]


def model(seed, tok=tokenizer):
    return new_model(
        tok(), hidden=16, layers=1, heads=2, kv_heads=1, intermediate=16, max_length=64, init_range=0.5, seed=seed
    )


def rows(lengths=(6, 4, 5)) -> Batch:
    rng = np.random.default_rng(0)
    packed = [Row(ids=rng.integers(5, 60, n), trainable=np.arange(n) > 1) for n in lengths]
    return pack(packed)


def distribution(m, batch):
    return token_stats(m, batch).distribution().detach()


def of(teachers, batch, policy, kind="reverse", mix=0.5):
    together = Teachers(each=tuple(teachers))
    together.prepare(batch)
    stats = token_stats(policy, batch)
    return together.divergence(stats, batch, kind, mix)


@pytest.mark.parametrize("kind, mix", KINDS)
def test_a_model_is_compared_by_whole_distributions_with_its_gradient(kind, mix):
    batch, policy, teacher = rows(), model(1), model(2)
    d = of([Teacher(model=teacher)], batch, policy, kind, mix)
    stats = token_stats(policy, batch)
    want = dense_divergence(stats.distribution(), distribution(teacher, batch), kind, mix)
    torch.testing.assert_close(d[batch.trainable], want, atol=1e-5, rtol=1e-5)
    assert (d[~batch.trainable] == 0).all()
    got = torch.autograd.grad(d.sum(), list(policy.parameters()))
    for a, b in zip(got, torch.autograd.grad(want.sum(), list(policy.parameters())), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_teachers_add_up_by_their_weights_for_the_family():
    batch, policy, teachers = rows(), model(1), [model(2), model(3)]
    weights = [{"home": 0.25}, {"away": 2.0, "": 0.5}]
    assert [Teacher(model=teachers[1], weights=weights[1]).weight(f) for f in ("away", "home")] == [2.0, 0.5]
    at = torch.tensor([0.25, 1.0, 0.25])[batch.row], torch.tensor([0.5, 2.0, 0.5])[batch.row]
    for k, w in enumerate(at):
        batch.add(f"teacher_weight_{k}", w, "token")
    d = of([Teacher(model=m, weights=w) for m, w in zip(teachers, weights, strict=True)], batch, policy)
    alone = [of([Teacher(model=m)], rows(), policy) for m in teachers]
    torch.testing.assert_close(d, at[0] * alone[0] + at[1] * alone[1], atol=1e-5, rtol=1e-5)


def told(m, k, batch):
    """What an endpoint tells of the rows."""
    known = distribution(m, batch)
    whole = torch.full((len(batch.ids), known.shape[1]), -5.0)
    whole[batch.trainable] = known
    top = whole.topk(k, -1)
    parts = torch.split(top.indices, batch.lengths), torch.split(top.values, batch.lengths)
    return [(i.numpy(), v.numpy()) for i, v in zip(*parts, strict=True)]


def test_an_endpoint_with_all_tokens_but_one_tells_as_much_as_the_model():
    batch, policy, teacher = rows(), model(1), model(2)
    v = len(distribution(teacher, batch)[0])
    whole = of([Teacher(model=teacher)], rows(), policy, "forward")
    most = of([Teacher(top_k=lambda wanted: told(teacher, v - 1, batch))], batch, policy, "forward")
    torch.testing.assert_close(most, whole, atol=2e-4, rtol=1e-3)
    few = of([Teacher(top_k=lambda wanted: told(teacher, 5, rows()))], rows(), policy, "forward")
    assert (few <= whole + 1e-4).all() and float(few.detach().sum()) > 0, "fewer outcomes never tell more"


def test_log_rest_is_exact_where_little_is_left_and_where_most_is():
    x = torch.tensor([-1e-3, -0.1, -1.0, -20.0])
    torch.testing.assert_close(log_rest(x), torch.log(-torch.expm1(x.double())).float(), atol=1e-6, rtol=1e-6)
    assert torch.isfinite(log_rest(torch.zeros(1)))


def test_spans_are_the_shortest_texts_that_end_together():
    own, other = Renderer(tokenizer()), Renderer(other_tokenizer())
    text = "<answer>b</answer>"
    one, two = own.turn(text), other.turn(text)
    assert len(one) != len(two)
    a, b = ends(own, one), ends(other, two)
    spans = aligned(a, b)
    assert spans[0][0][0] == spans[0][1][0] == 0 and spans[-1][0][1] == len(one) and spans[-1][1][1] == len(two)
    for (i, j), (u, v) in spans[:-1]:
        assert own.tokenizer.decode(one[i:j].tolist()) == other.tokenizer.decode(two[u:v].tolist())
    between = [set(x[1][i : j - 1]) for x, k in ((a, 0), (b, 1)) for i, j in (s[k] for s in spans)]
    half = len(between) // 2
    assert not any(x & y for x, y in zip(between[:half], between[half:], strict=True)), "a span could be cut again"
    assert aligned(a, ("another text", [1])) == []


def test_a_character_of_several_tokens_is_one_span():
    own, other = Renderer(tokenizer()), Renderer(other_tokenizer())
    ids = own.turn("é")
    assert len(ids) > 2 and ends(own, ids)[1] == [-1, 1, 2]
    assert aligned(ends(own, ids), ends(other, other.turn("é")))[0][0] == (0, 2)


def test_another_tokenizer_of_the_same_model_finds_the_same_spans_as_likely():
    """A teacher that is the policy itself, told that its tokens are others: every span is one token, of the policy's
    own log-prob."""
    renderer, policy = Renderer(tokenizer()), model(1)
    here = Arena(world=World((), ()), base=policy, renderer=renderer)
    player = here.player(max_turn_tokens=6, max_tokens=60)
    problem = Problem.make(prompt="qb", answer="b", verifier="exact", env="marked", family="home", split="train")
    groups = player.play([problem], 3, 0)
    teachers = Teachers(each=(Teacher(model=policy, renderer=renderer, weights={"home": 0.5}),))
    groups = teachers.observe(player, groups, [problem], ())
    for r in groups[0].rollouts:
        spans, logp = r.each("teacher_span_0"), r.each("teacher_span_logp_0")
        n = max(int(spans.max()), 0)
        assert (r.each("teacher_weight_0") == 0.5).all() and n >= 1
        mine = r.each("logp")
        for s in range(1, n + 1):
            if renderer.turn(renderer.decode(r.segments[1].ids)).tolist()[: len(mine)] == r.segments[1].ids.tolist():
                np.testing.assert_allclose(logp[spans == s][0], mine[spans == s].sum(), atol=1e-4)


def test_a_teacher_is_a_model_or_an_endpoint():
    with pytest.raises(ValueError, match="give one of the two"):
        Teacher()
