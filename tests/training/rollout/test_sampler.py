"""The in-process sampler: its log-probs are the learner's, its frequencies the model's, and a sample belongs to its
seed alone."""

import math

import numpy as np
import pytest
import tiny
import torch

from synth.types import Message, Problem, Sampling, Scored
from training.learner.learner import Learner, Optim, nll, token_stats
from training.learner.pack import Row, pack
from training.model.attention import PackedRows
from training.model.native.build import library
from training.model.native.cached import CachedLayers
from training.model.model import head_weight, hidden_states
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler, _draw, _Turn, truncated

pytestmark = pytest.mark.usefixtures("either_way")

V = tiny.Vocabulary(16)  # so few that turns end by themselves after a dozen tokens
END = V.eos_token_id


def sampler(**more):
    return TorchSampler(tiny.build(vocabulary=V, init_range=0.2), END, version=3, **more)


def play(source, prompts, seeds, sampling, observations=()):
    """Segments of every conversation, turn by turn; between turns each alive conversation is told the next
    observation."""
    session, alive, out = source.open(prompts, seeds), list(range(len(prompts))), [[p] for p in prompts]
    for told in (*observations, None):
        for i, segment in zip(alive, session.generate(sampling), strict=True):
            out[i].append(segment)
        alive = [i for i in alive if out[i][-1].stop == "end"]
        if told is None or not alive:
            return out
        for i in alive:
            out[i].append(told[i])
        session.observe(alive, [told[i] for i in alive])


def as_row(parts):
    """The row that a learner would get, and the sampler's log-probs and entropies along it."""
    ids = np.concatenate([p if isinstance(p, np.ndarray) else p.ids for p in parts])
    model = np.concatenate(
        [np.full(len(p if isinstance(p, np.ndarray) else p.ids), not isinstance(p, np.ndarray)) for p in parts]
    )
    turns = [p for p in parts if not isinstance(p, np.ndarray)]
    columns = {name: np.zeros(len(ids)) for name in ("logp", "entropy")}
    for name, column in columns.items():
        column[model] = np.concatenate([getattr(s, name) for s in turns])
    return Row(ids=ids, trainable=model, columns=columns)


PROMPTS = tiny.ids(5, 9, 2, 9, 30, below=16)
TOLD = [tiny.ids(3, 1, 7, 2, 5, seed=s, below=16) for s in (11, 12)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_the_learner_recomputes_the_samplers_log_probs(temperature):
    """Over three turns of different lengths, with one prompt given twice; the ratio is 1 everywhere."""
    source, prompts, told = sampler(), [*PROMPTS, PROMPTS[0]], [[*t, t[1]] for t in TOLD]
    out = play(source, prompts, range(6), Sampling(temperature=temperature, max_tokens=30), told)
    assert sum(len(parts) > 2 for parts in out) >= 3, "some conversations must go on after a first turn"
    batch = pack([as_row(parts) for parts in out])
    with torch.no_grad():
        stats = token_stats(source.model, batch, temperature=temperature)
    ratio = (stats.logp - batch.columns["logp"]).exp()
    torch.testing.assert_close(ratio[batch.trainable], torch.ones(int(batch.trainable.sum())), atol=1e-5, rtol=0)
    torch.testing.assert_close(stats.entropy, batch.columns["entropy"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("slots", [1, 2, 5, 7])
def test_rows_that_wait_take_the_place_of_those_that_end(slots):
    """However many are at work at a time, over three turns: the same turns, and log-probs that differ by rounding
    alone."""
    prompts, told, sampling = PROMPTS * 3, [t * 3 for t in TOLD], Sampling(max_tokens=20)
    want = play(sampler(), prompts, range(15), sampling, told)
    got = play(sampler(slots=slots), prompts, range(15), sampling, told)
    assert len({len(parts) for parts in want}) > 1 and {len(p[1].ids) for p in want} >= {1, 20}
    for a, b in zip(map(as_row, want), map(as_row, got), strict=True):
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_allclose(a.columns["logp"], b.columns["logp"], atol=1e-5)


@pytest.mark.parametrize("slots", [0, 3])
def test_compiled_layers_and_the_models_own_forward_say_the_same(slots):
    own = sampler(slots=slots)
    own._known = True  # as if it had been looked for and not found
    compiled = sampler(slots=slots)
    a, b = (play(x, PROMPTS, range(5), Sampling(max_tokens=20), TOLD) for x in (own, compiled))
    assert own.cached is None and (compiled.cached is None) == (library() is None)
    for x, y in zip(map(as_row, a), map(as_row, b), strict=True):
        np.testing.assert_array_equal(x.ids, y.ids)
        np.testing.assert_allclose(x.columns["logp"], y.columns["logp"], atol=1e-5)


def test_the_learner_at_another_temperature_disagrees():
    out = play(sampler(), PROMPTS, range(5), Sampling(temperature=0.7, max_tokens=20))
    batch = pack([as_row(parts) for parts in out])
    with torch.no_grad():
        d = token_stats(sampler().model, batch).logp - batch.columns["logp"]
    assert float(d[batch.trainable].abs().mean()) > 0.1


def test_a_sample_does_not_depend_on_its_neighbours():
    sampling = Sampling(max_tokens=30)
    together = play(sampler(), PROMPTS, [10, 11, 12, 13, 14], sampling, TOLD)
    for i, (prompt, want) in enumerate(zip(PROMPTS, together, strict=True)):
        alone = play(sampler(), [prompt], [10 + i], sampling, [[t[i]] for t in TOLD])[0]
        twice = play(
            sampler(), [PROMPTS[2], prompt, prompt], [99, 10 + i, 98], sampling, [[t[0], t[i], t[0]] for t in TOLD]
        )[1]
        for other in (alone, twice):
            np.testing.assert_array_equal(as_row(other).ids, as_row(want).ids)


def test_the_same_seed_says_the_same_and_another_does_not():
    draw = lambda seed: [tuple(p[1].ids) for p in play(sampler(), PROMPTS, [seed] * 5, Sampling(max_tokens=12))]  # noqa: E731
    assert draw(1) == draw(1) != draw(2)
    same = play(sampler(), [PROMPTS[0]] * 8, range(8), Sampling(max_tokens=12))
    assert len({tuple(p[1].ids) for p in same}) > 1, "the samples of one prompt must differ"


def test_a_turn_ends_with_the_end_token_or_at_the_limit():
    out = play(sampler(), PROMPTS * 8, range(40), Sampling(max_tokens=6))
    stops = {s.stop for _, s in out}
    assert stops == {"end", "length"}
    for _, s in out:
        assert len(s.ids) == len(s.logp) == len(s.entropy) and s.role == "model" and s.version == 3
        assert (s.ids[:-1] != END).all() and (s.ids[-1] == END) == (s.stop == "end")
        assert s.stop == "end" or len(s.ids) == 6
    assert len({len(s.ids) for _, s in out}) > 2


def test_greedy_takes_the_likeliest_token_and_needs_no_seed():
    source = sampler()
    (row, segment), (_, other) = play(
        source, [PROMPTS[1], PROMPTS[1]], [1, 2], Sampling(temperature=0.0, max_tokens=10)
    )
    np.testing.assert_array_equal(segment.ids, other.ids)
    ids = list(row)
    for token in segment.ids:
        batch = pack(
            [Row(ids=np.array([*ids, t]), trainable=np.arange(len(ids) + 1) == len(ids)) for t in range(len(V))]
        )
        with torch.no_grad():
            last = token_stats(source.model, batch).logp[batch.trainable]
        assert int(last.argmax()) == token
        ids.append(int(token))


def test_thousands_of_greedy_tokens_are_the_learners_likeliest():
    source = sampler()
    source.end_id = -1  # it never ends
    rows = tiny.ids(*[4] * 24, below=16)
    turns = [s for (s,) in (p[1:] for p in play(source, rows, range(24), Sampling(temperature=0.0, max_tokens=100)))]
    assert {s.stop for s in turns} == {"length"} and {len(s.ids) for s in turns} == {100}, (
        "what never ends is cut, and says so"
    )
    streams = [np.concatenate([r, s.ids]) for r, s in zip(rows, turns, strict=True)]
    lengths = [len(x) for x in streams]
    position = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))
    with torch.no_grad():
        hidden = hidden_states(source.model, torch.from_numpy(np.concatenate(streams)), position, PackedRows(lengths))
        best = (hidden @ head_weight(source.model).T).argmax(-1)
    for row, x, b in zip(rows, streams, best.split(lengths), strict=True):
        np.testing.assert_array_equal(b[len(row) - 1 : -1].numpy(), x[len(row) :])


def test_the_weights_of_a_session_are_those_of_its_opening():
    source = sampler()
    before = play(source, PROMPTS, range(5), Sampling(max_tokens=10))
    learner = Learner(source.model, Optim(lr=0.05, warmup=0))
    learner.step(pack([Row(ids=tiny.ids(20, below=16)[0], trainable=np.ones(20, dtype=bool))]), nll)
    after = play(source, PROMPTS, range(5), Sampling(max_tokens=10))
    batch = pack([as_row(parts) for parts in after])
    with torch.no_grad():
        logp = token_stats(source.model, batch).logp
    torch.testing.assert_close(logp[batch.trainable], batch.columns["logp"][batch.trainable], atol=1e-5, rtol=0)
    assert any(
        len(a[1].ids) != len(b[1].ids) or (a[1].logp != b[1].logp).any() for a, b in zip(before, after, strict=True)
    )


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(ValueError, match="prompt 1 has no tokens"):
        sampler().open([PROMPTS[0], PROMPTS[0][:0]], [0, 1])


# --- compiled layers --------------------------------------------------------------------------------------------------


def built(kind, **more):
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

    from training.model.attention import NAME

    config = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}[kind](
        vocab_size=40,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=40,
        max_position_embeddings=128,
        initializer_range=0.3,
        **{"tie_word_embeddings": False, **more},
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.set_attn_implementation(NAME)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:  # norms begin as ones and biases as zeros
                p.add_(0.3 * torch.randn_like(p))
    return model


@pytest.mark.parametrize(
    "kind, more", [("llama", {}), ("qwen2", {}), ("qwen3", {}), ("qwen3", {"tie_word_embeddings": True, "head_dim": 8})]
)
def test_compiled_layers_of_three_architectures_and_their_weights(kind, more):
    model = built(kind, **more)
    cached, named = CachedLayers.of(model), dict(model.named_parameters())
    assert (cached is None) == (library() is None)
    if cached is not None:
        assert set(cached.named()) == {n for n in named if n != "lm_head.weight"}
        for name, w in cached.named().items():
            assert torch.equal(w, named[name]) and w.data_ptr() != named[name].data_ptr(), name
    source = TorchSampler(model, -1)
    played = play(source, tiny.ids(5, 9, below=40), range(2), Sampling(max_tokens=15))
    batch = pack([as_row(parts) for parts in played])
    with torch.no_grad():
        torch.testing.assert_close(
            token_stats(model, batch).logp[batch.trainable],
            batch.columns["logp"][batch.trainable],
            atol=1e-5,
            rtol=1e-5,
        )


def test_a_bfloat16_model_samples_what_its_learner_recomputes():
    """With compiled layers both multiply in bfloat16 and add up in float32; without, both are the model's own."""
    source = TorchSampler(built("qwen3").bfloat16(), END)
    out = play(source, PROMPTS, range(5), Sampling(max_tokens=20), TOLD)
    assert (source.cached is None) == (library() is None) and source.turns is None
    assert {n: w.dtype for n, w in source.weights().items()} == {n: p.dtype for n, p in source.model.named_parameters()}
    batch = pack([as_row(parts) for parts in out])
    with torch.no_grad():
        logp = token_stats(source.model, batch).logp
    torch.testing.assert_close(
        logp[batch.trainable], batch.columns["logp"][batch.trainable], atol=0.1 if library() is None else 0.02, rtol=0
    )


def test_what_compiled_layers_do_not_know_is_left_to_the_model():
    class Adapted(torch.nn.Linear):
        pass

    adapted, hooked, wrong = built("qwen3"), built("qwen3"), built("qwen3")
    adapted.model.layers[1].mlp.up_proj = Adapted(24, 40, bias=False)
    hooked.model.layers[0].register_forward_hook(lambda *_: None)
    wrong.model.layers[1].self_attn.scaling = 0.5  # nothing shows it but a probe
    for model in (adapted, hooked, wrong, built("qwen3").double(), built("qwen3", hidden_act="gelu")):
        assert CachedLayers.of(model) is None
    source = TorchSampler(built("qwen3"), -1)
    source.open(PROMPTS, range(5))
    assert (source.cached is None) == (library() is None)
    source.model.model.layers[1].mlp.up_proj = Adapted(24, 40, bias=False)
    source.open(PROMPTS, range(5))
    assert source.cached is None, "adapters that came later"


# --- stops and choices ------------------------------------------------------------------------------------------------


def speaker(**more):
    """A model whose turns are text, and the tokenizer's renderer."""
    return TorchSampler(tiny.build(init_range=0.05), -1, renderer=Renderer(tiny.tokenizer()), **more)


def test_a_string_that_straddles_tokens_ends_the_turn_where_it_is_complete():
    source = speaker()
    decode = source.renderer.tokenizer.decode
    free = [p[1] for p in play(source, [PROMPTS[0]] * 6, range(6), Sampling(max_tokens=24))]
    stops = []
    for s in free[:3]:
        a, b = decode(s.ids[9:10]), decode(s.ids[9:11])
        stops.append(b[len(a) - 1 : len(a) + 1])  # the last letter of one token and the first of the next
    assert all(len(x) == 2 for x in stops)
    sampling = Sampling(max_tokens=24, stop=(*stops, "never said"))
    got = [p[1] for p in play(source, [PROMPTS[0]] * 6, range(6), sampling)]
    for f, s in zip(free, got, strict=True):
        cut = next((k for k in range(1, 25) if any(x in decode(f.ids[:k]) for x in stops)), None)
        np.testing.assert_array_equal(s.ids, f.ids[:cut])
        assert s.stop == ("length" if cut is None else "stop_string") and len(s.logp) == len(s.ids)
    assert [s.stop for s in got[:3]] == ["stop_string"] * 3 and all(len(s.ids) <= 11 for s in got[:3])


def test_a_turn_that_a_string_stopped_is_ended_by_the_environments_words():
    """So that the next turn is asked as the template writes it, and what the model did not write is not trained on."""

    class Twice:
        def start(self, problem, tools):
            return {"turns": 0}, list(problem.prompt)

        def step(self, state, text):
            state["turns"] += 1
            return [Message(role="tool", content="go on")], state["turns"] == 2, Scored(value=1.0)

    source = speaker()
    source.end_id = end = source.renderer.end_id
    player = Player(
        sampler=source,
        renderer=source.renderer,
        envs={"twice": Twice()},
        sampling=Sampling(max_tokens=40, stop=("e", "o")),
    )
    problem = Problem.make(prompt="?", answer="", verifier="exact", env="twice", family="f", split="train")
    (group,) = player.play([problem], 12, "seed")
    stops = set()
    for r in group.rollouts:
        for turn, told in zip(r.segments[1::2], r.segments[2::2], strict=False):
            stops.add(turn.stop)
            assert (told.ids[0] == end) == (turn.stop == "stop_string") and (turn.ids[-1] == end) == (
                turn.stop == "end"
            )
    assert "stop_string" in stops


def test_other_ids_end_a_turn_too():
    source = sampler()
    free = [p[1] for p in play(source, PROMPTS, range(5), Sampling(max_tokens=30))]
    got = [p[1] for p in play(source, PROMPTS, range(5), Sampling(max_tokens=30, stop_ids=(5, 9)))]
    for f, s in zip(free, got, strict=True):
        k = next((k for k, i in enumerate(f.ids, 1) if i in (5, 9)), None)
        np.testing.assert_array_equal(s.ids, f.ids[:k])
        assert s.stop == (f.stop if k is None else "stop_id")
    assert "stop_id" in {s.stop for s in got}


CHOICES = ("search", "search engine", "see", "Norvia", "What is the capital")


def test_a_guided_turn_is_one_of_the_choices_with_its_own_probability():
    """Also where one goes on from another: the log-probs are those of the model among what may follow."""
    source = speaker(slots=3)
    source.end_id = end = source.renderer.end_id
    written = [source.renderer.turn(c) for c in CHOICES]
    prompt = tiny.ids(7, below=300)[0]
    batch = pack([Row(ids=np.concatenate([prompt, w]), trainable=np.arange(7 + len(w)) >= 7) for w in written])
    with torch.no_grad():
        full = token_stats(source.model, batch).distribution().double().split([len(w) for w in written])
    want = {}
    for choice, ids, logp in zip(CHOICES, written, full, strict=True):
        total = []
        for k, token in enumerate(ids):
            allowed = sorted({int(w[k]) for w in written if len(w) > k and (w[:k] == ids[:k]).all()})
            total.append(float(logp[k, token] - logp[k, allowed].logsumexp(0)))
        want[choice] = total
    assert sum(math.exp(sum(x)) for x in want.values()) == pytest.approx(1)
    turns = [p[1] for p in play(source, [prompt] * 200, range(200), Sampling(max_tokens=12, choices=CHOICES))]
    counts = dict.fromkeys(CHOICES, 0)
    for s in turns:
        text = source.renderer.decode(s.ids)
        counts[text] += 1
        assert s.stop == "end" and s.ids[-1] == end
        np.testing.assert_allclose(s.logp, want[text], atol=1e-5)
    assert counts["search"] and counts["search engine"], "both the choice and the one that goes on from it"
    for choice, n in counts.items():
        p = math.exp(sum(want[choice]))
        assert abs(n - 200 * p) < 5 * math.sqrt(200 * p * (1 - p)) + 1


@pytest.mark.parametrize(
    ("source", "sampling", "why"),
    [
        (sampler, Sampling(stop=("x",)), "needs a renderer for stop strings: give it renderer"),
        (sampler, Sampling(choices=("x",)), "needs a renderer for choices"),
        (sampler, Sampling(stop_ids=(3, 16)), "stop_ids holds 16 and the model has the ids 0 to 15"),
        (speaker, Sampling(choices=("What is the capital of Norvia",), max_tokens=3), "more than max_tokens = 3"),
    ],
)
def test_stops_and_choices_that_cannot_be(source, sampling, why):
    with pytest.raises(ValueError, match=why):
        source().open(PROMPTS, range(5)).generate(sampling)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_p": 1.5},
        {"min_p": -0.1},
        {"min_p": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"temperature": -1.0},
        {"temperature": math.inf},
        {"max_tokens": 0},
        {"stop": ("",)},
        {"choices": ("a", "")},
    ],
)
def test_numbers_that_name_no_distribution_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} of the sampling is .*it must be"):
        Sampling(**wrong)


# --- one draw ---------------------------------------------------------------------------------------------------------

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -2.0])


def frequencies(sampling, n=40_000, logits=LOGITS):
    uniform = torch.from_numpy(np.random.default_rng(3).random(n))
    token, logp, entropy = _draw(logits.expand(n, -1), sampling, uniform)
    return torch.bincount(token, minlength=len(logits)).double() / n, token, logp, entropy


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(), [0, 1, 2, 3, 4, 5]),
        (Sampling(temperature=0.7), [0, 1, 2, 3, 4, 5]),
        (Sampling(top_k=2), [0, 1]),
        (Sampling(top_k=99), [0, 1, 2, 3, 4, 5]),
        (Sampling(top_p=0.75), [0, 1]),  # 0.567 + 0.209 = 0.776
        (Sampling(top_p=0.8), [0, 1, 2]),
        (Sampling(top_p=0.01), [0]),
        (Sampling(temperature=2.0, top_k=4, top_p=0.6), [0, 1]),  # of the four: 0.40, 0.24, 0.19, 0.15
        (Sampling(min_p=0.2), [0, 1, 2]),  # e^-1 = 0.37, e^-1.5 = 0.22, e^-2 = 0.14
        (Sampling(min_p=1.0), [0]),
        (Sampling(min_p=0.2, top_k=2), [0, 1]),
        (Sampling(min_p=0.01, top_p=0.75, temperature=0.5), [0]),
    ],
)
def test_frequencies_and_log_probs_are_those_of_the_truncated_renormalised_distribution(sampling, allowed):
    p = torch.zeros(len(LOGITS), dtype=torch.float64)
    p[allowed] = torch.softmax(LOGITS[allowed].double() / sampling.temperature, 0)
    n = 40_000
    share, token, logp, entropy = frequencies(sampling, n)
    assert share[p == 0].sum() == 0
    kept = p > 0
    chi2 = float(n * ((share - p)[kept] ** 2 / p[kept]).sum())
    assert chi2 < 20.5, "the chance of more, with five degrees of freedom, is one in a thousand"
    torch.testing.assert_close(logp.double(), p.log()[token], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy[0].double(), -(p[kept] * p[kept].log()).sum(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "knobs", [{"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.8, "min_p": 0.05}]
)
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_truncation_is_that_of_transformers(knobs, temperature):
    from transformers.generation import logits_process as peers

    logits = torch.randn(64, 50, generator=torch.Generator().manual_seed(1)) * 3
    want = peers.TemperatureLogitsWarper(temperature)(None, logits.clone()) if temperature != 1 else logits.clone()
    for name, peer in (
        ("top_k", peers.TopKLogitsWarper),
        ("top_p", peers.TopPLogitsWarper),
        ("min_p", peers.MinPLogitsWarper),
    ):
        if name in knobs:
            want = peer(knobs[name])(None, want)
    torch.testing.assert_close(truncated(logits / temperature, Sampling(**knobs)), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53, 1 - 2**-25])
def test_a_token_without_probability_is_never_drawn(u):
    """At both ends of the unit interval, where rounding meets the first and the last token."""
    logits = torch.full((200, 50), -torch.inf)
    logits[:, 10:30] = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    token, logp, entropy = _draw(logits, Sampling(), torch.full((200,), u, dtype=torch.float64))
    assert torch.isfinite(logp).all() and torch.isfinite(entropy).all()
    assert (token == (10 if u == 0 else 29)).all() or u == 1 - 2**-25


def test_the_tail_of_a_large_vocabulary_is_reached():
    """60,000 tokens of 1e-9 beside one of nearly 1: in float32 sixty of them would share a number."""
    logits = torch.full((1, 60_001), math.log(1e-9))
    logits[0, 0] = math.log(1 - 6e-5)
    u = 1 - torch.linspace(5.9e-5, 1e-6, 500, dtype=torch.float64)
    token, _, _ = _draw(logits.expand(len(u), -1), Sampling(), u)
    want = 1 + (u - (1 - 6e-5)) / 1e-9
    assert float((token - want).abs().max()) < 20  # the probabilities themselves are float32


def test_every_turn_draws_numbers_of_its_own(monkeypatch):
    turns, real = [], _Turn.__init__
    monkeypatch.setattr(_Turn, "__init__", lambda self, *given: real(self, *given) or turns.append(self))
    play(sampler(), PROMPTS, range(5), Sampling(max_tokens=30), TOLD)
    numbers = [x for turn in turns for x in turn.uniforms.tolist() if x]  # 0: of a conversation that was over
    assert len(set(numbers)) == len(numbers) > 200, "no number serves two turns, samples or positions"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_drawn_is_what_the_definition_draws_from_these_numbers(monkeypatch, temperature):
    """From the turn's own numbers and the learner's log-probs by inverse CDF, token by token."""
    turns, real = [], _Turn.__init__
    monkeypatch.setattr(_Turn, "__init__", lambda self, *given: real(self, *given) or turns.append(self))
    source = sampler()
    out = play(source, PROMPTS, range(5), Sampling(max_tokens=30, temperature=temperature))
    uniforms = turns[0].uniforms.view(5, 30)
    for row, (prompt, turn) in enumerate(out):
        ids = torch.from_numpy(np.concatenate([prompt, turn.ids]))
        with torch.no_grad():
            hidden = hidden_states(source.model, ids, torch.arange(len(ids)), PackedRows([len(ids)]))[
                len(prompt) - 1 : -1
            ]
            token, logp, _ = _draw(
                hidden @ head_weight(source.model).T, Sampling(temperature=temperature), uniforms[row, : len(turn.ids)]
            )
        assert token.tolist() == turn.ids.tolist()
        np.testing.assert_allclose(turn.logp, logp, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("slots", [0, 3])
def test_a_gpu_says_what_the_cpu_says(slots):
    """Steps are replayed from CUDA graphs there; log-probs agree with the learner's on the same device."""
    source = TorchSampler(tiny.build(vocabulary=V, init_range=0.2).cuda(), END, slots=slots)
    out = play(source, PROMPTS, range(5), Sampling(max_tokens=30), TOLD)
    batch = pack([as_row(parts) for parts in out], device="cuda")
    with torch.no_grad():
        logp = token_stats(source.model, batch).logp
    torch.testing.assert_close(logp[batch.trainable], batch.columns["logp"][batch.trainable], atol=1e-4, rtol=0)


# --- rows of one batch with choices of their own ----------------------------------------------------------------------


def test_each_row_is_held_to_its_own_choices_and_a_free_row_to_none():
    """The log-probs and entropies are those that the learner gives from what was recorded, with their gradient."""
    source = speaker(slots=3)
    source.end_id = source.renderer.end_id
    lists = [("search", "search engine", "see"), ("Norvia",), (), ("What", "see")]
    prompts = [tiny.ids(7, below=300)[0]] * 3 + [tiny.ids(5, below=300)[0]]
    held = [[source.renderer.turn(c) for c in mine] for mine in lists]
    session = source.open(prompts * 10, range(40))
    turns = session.generate(Sampling(max_tokens=12), held * 10)
    texts = [source.renderer.decode(s.ids[:-1] if s.ids[-1] == source.end_id else s.ids) for s in turns]
    for k, mine in enumerate(lists):
        own_texts = set(texts[k::4])
        assert own_texts <= set(mine) if mine else len(own_texts) > 5
    assert len(set(texts[0::4])) > 1 and all(float(s.logp.sum()) == 0.0 for s in turns[1::4]), "one choice is certain"
    free = TorchSampler(source.model, source.end_id).open(prompts * 10, range(40)).generate(Sampling(max_tokens=12))
    assert [s.ids.tolist() for s in free[2::4]] == [s.ids.tolist() for s in turns[2::4]], "a free row draws as ever"
    rows = []
    for p, s in zip(prompts * 10, turns, strict=True):
        ids = np.concatenate([p, s.ids])
        wide = np.concatenate([np.zeros((len(p), s.extras["allowed"].shape[1])), s.extras["allowed"]])
        rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(p), columns={"allowed": wide}))
    batch = pack(rows)
    stats = token_stats(source.model, batch)
    np.testing.assert_allclose(
        stats.logp[batch.trainable].detach().numpy(), np.concatenate([s.logp for s in turns]), atol=1e-5
    )
    np.testing.assert_allclose(
        stats.entropy[batch.trainable].detach().numpy(), np.concatenate([s.entropy for s in turns]), atol=1e-5
    )


def test_the_gradient_of_a_held_turn_is_that_of_the_renormalised_distribution():
    model = tiny.build(vocabulary=V, init_range=0.2)
    ids, allowed = np.array([3, 4, 7]), np.zeros((3, 4))
    allowed[2, :2] = [8, 10]  # ids 7 and 9
    batch = pack([Row(ids=ids, trainable=np.arange(3) == 2, columns={"allowed": allowed})])
    token_stats(model, batch).logp.sum().backward()
    got = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    plain = pack([Row(ids=ids, trainable=np.arange(3) == 2)])
    full = token_stats(model, plain).distribution()[0]
    (full[7] - full[[7, 9]].logsumexp(0)).backward()
    for n, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(got[n], p.grad, atol=1e-6, rtol=1e-4)


def test_choices_of_rows_that_cannot_be_are_refused():
    source = speaker()
    source.end_id = source.renderer.end_id
    turn = source.renderer.turn
    with pytest.raises(ValueError, match="raise max_turn_tokens"):
        source.open(PROMPTS[:1], [0]).generate(Sampling(max_tokens=2), [[turn("What is the capital")]])
    with pytest.raises(ValueError, match="leave out one of them"):
        source.open(PROMPTS[:1], [0]).generate(Sampling(max_tokens=9, choices=("see",)), [[turn("see")]])
    with pytest.raises(ValueError, match="32 are the most"):
        source.open(PROMPTS[:1], [0]).generate(Sampling(max_tokens=9), [[np.array([i]) for i in range(40)]])
