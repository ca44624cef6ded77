"""The compiled code: values and gradients are the model's own, whatever its sizes, the machine's vectors and its
threads; bad numbers and missing compilers are said."""

import copy
import ctypes
import importlib
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tiny
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from synth.types import Sampling
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model import products
from training.model.attention import NAME, PackedRows, SharedRows
from training.model.lora import adapt
from training.model.model import hidden_states
from training.model.native import build, decode, layers
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler, _Turn

pytestmark = pytest.mark.skipif(build.library() is None, reason=f"no compiled code: {build.why_not()}")

# architecture, its config, query heads, key heads, head size, hidden size, gates, vocabulary: none but the first fits
# vectors of 16
MODELS = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, 4, 2, 16, 64, 96, 64),
    "qwen3, odd sizes": (Qwen3ForCausalLM, Qwen3Config, 6, 2, 12, 40, 52, 37),
    "qwen3, one key head": (Qwen3ForCausalLM, Qwen3Config, 3, 1, 64, 48, 60, 50),
    "llama": (LlamaForCausalLM, LlamaConfig, 3, 3, 8, 24, 44, 33),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, 4, 2, 32, 128, 100, 70),
}
PACKED = [7, 40, 1, 33]
WHOLE = [30, 9]
# the fifth goes on from the second, which goes on from the first whole row; and the sixth from all three
AFTER = [
    (((0, 20),), 5),
    (((0, 20),), 17),
    (((30, 8),), 1),
    (((0, 12),), 3),
    (((0, 20), (44, 9)), 7),
    (((0, 20), (44, 9), (65, 2)), 4),
]


def model(name, tied=True):
    Model, Config, heads, kv, d, hidden, gates, vocabulary = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Model(
            Config(
                vocab_size=vocabulary,
                hidden_size=hidden,
                num_hidden_layers=3,
                num_attention_heads=heads,
                num_key_value_heads=kv,
                head_dim=d,
                intermediate_size=gates,
                max_position_embeddings=512,
                tie_word_embeddings=tied,
                initializer_range=0.2,
            )
        ).eval()
        for p in network.parameters():
            if p.dim() == 1:
                torch.nn.init.normal_(p, 1, 0.3)
    network.set_attn_implementation(NAME)
    return network


def streams():
    counts = [range(n) for n in PACKED]
    yield PackedRows(PACKED), torch.cat([torch.tensor(c) for c in counts])
    begun = [(sum(n for _, n in before), n) for before, n in AFTER]
    own = [*map(range, WHOLE), *(range(k, k + n) for k, n in begun)]
    yield SharedRows(WHOLE, AFTER), torch.cat([torch.tensor(c) for c in own])


def gradients(forward, of, weights):
    of.zero_grad()
    out = forward()
    (out * weights).sum().backward()
    return out.detach(), {n: p.grad.clone() for n, p in of.named_parameters() if p.grad is not None}


def error(a, b):
    return float((a.double() - b).norm() / b.norm())


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_the_models_own_in_float64(name, monkeypatch):
    """As near to float64 as torch's own float32 is, in packed rows and in rows that share their beginning."""
    ours = model(name)
    for rows, position in streams():
        gen = torch.Generator().manual_seed(1)
        ids = torch.randint(0, ours.config.vocab_size, position.shape, generator=gen)
        weights = torch.randn(len(ids), ours.config.hidden_size, generator=gen)
        assert layers.of(ours) is not None
        got = gradients(lambda i=ids, p=position, r=rows: hidden_states(ours, i, p, r), ours, weights)
        exact = copy.deepcopy(ours).double()
        with monkeypatch.context() as m:
            m.setattr(build, "_made", lambda: (None, "off"))
            plain = gradients(lambda i=ids, p=position, r=rows: hidden_states(ours, i, p, r), ours, weights)
            want = gradients(
                lambda i=ids, p=position, r=rows, e=exact: hidden_states(e, i, p, r), exact, weights.double()
            )
        assert error(got[0], want[0]) < max(3e-6, 2 * error(plain[0], want[0]))
        assert got[1].keys() == want[1].keys()
        for n, g in want[1].items():
            assert error(got[1][n], g) < max(1e-5, 2 * error(plain[1][n], g)), n


def variants():
    """Compilers and flags: one thread alone, no flags for this processor, Clang, and narrower vectors where this
    machine has them."""
    yield "one thread", build.compiler(), build.FLAGS
    yield "any processor", build.compiler(), [f for f in build.FLAGS if f != "-march=native"]
    if clang := shutil.which("clang"):
        yield "clang", clang, build.FLAGS
    if platform.machine() in ("x86_64", "AMD64"):
        yield "vectors of 8", build.compiler(), [*build.FLAGS, "-mno-avx512f"]
        yield "vectors of 4", build.compiler(), [*build.FLAGS, "-mno-avx512f", "-mno-avx"]


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """A cache for all cases: each variant serves both models."""
    return tmp_path_factory.mktemp("variants")


@pytest.mark.parametrize(("cc", "flags"), [v[1:] for v in variants()], ids=[v[0] for v in variants()])
@pytest.mark.parametrize("name", ["qwen3", "qwen3, odd sizes"])
def test_other_vectors_give_the_same_numbers(name, cc, flags, compiled_once, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled_once))
    lib = ctypes.CDLL(str(build._compiled(cc, flags)))
    ours = model(name)
    prompts = tiny.ids(5, 21, 5, 40, seed=3, below=ours.config.vocab_size)

    def all_of_it():
        (rows, position), *_ = streams()
        ids = torch.arange(len(position)) % ours.config.vocab_size
        sampler = TorchSampler(ours, -1)
        turns = sampler.open(prompts, range(4)).generate(Sampling(max_tokens=9))
        weights = torch.linspace(-1, 1, ours.config.hidden_size)
        return gradients(lambda: hidden_states(ours, ids, position, rows), ours, weights), turns

    (want, grads), turns = all_of_it()
    monkeypatch.setattr(build, "_made", lambda: (lib, None))
    monkeypatch.setattr(layers, "_MADE", type(layers._MADE)())
    (got, others), again = all_of_it()
    # Threads change nothing at all.
    same = torch.equal if (cc, flags) == (build.compiler(), build.FLAGS) else lambda a, b: error(a, b.double()) < 1e-5
    assert same(got, want) and all(same(others[n], g) for n, g in grads.items())
    for a, b in zip(turns, again, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert same(torch.from_numpy(a.logp), torch.from_numpy(b.logp))


@pytest.mark.parametrize(
    ("name", "temperature"),
    [*((name, 0.7) for name in MODELS), *(("qwen3, odd sizes", t) for t in (0.0, 1.0)), ("llama", 0.0), ("qwen3", 1.0)],
)
def test_turns_are_those_of_the_models_own_forward(name, temperature, monkeypatch):
    """More conversations than are at work at a time, longer turns than one call decodes, three turns; one head is not
    tied."""
    ours = model(name, tied=name != "llama")
    vocabulary = ours.config.vocab_size
    prompts = tiny.ids(*[5, 21, 5, 40, 9, 1] * 3, seed=3, below=vocabulary)
    prompts[1::2] = prompts[::2]
    told = [tiny.ids(*[3, 1, 7] * 6, seed=s, below=vocabulary) for s in (4, 5)]
    sampling = Sampling(max_tokens=decode.STEPS + 6, temperature=temperature)

    def played():
        session = TorchSampler(ours, 7, slots=5).open(prompts, range(len(prompts)))
        alive, out = list(range(len(prompts))), []
        for more in (*told, None):
            turn = session.generate(sampling)
            out += zip(alive, turn, strict=True)
            if more is None:
                return out
            alive = alive[::3]
            session.observe(alive, [more[i] for i in alive])

    compiled = played()
    called = []
    with monkeypatch.context() as m:
        m.setattr(build, "_made", lambda: (None, "off"))
        m.setattr(decode.TurnDecoder, "__call__", lambda *_: called.append(1))
        plain = played()
    assert not called and len(compiled) == len(plain) == 18 + 6 + 2
    assert len({s.stop for _, s in compiled}) == 2 or temperature == 0
    # conversations in which a draw lay on the very border of two ids, which rounding moves: from there on they differ
    apart = set()
    for (i, a), (j, b) in zip(compiled, plain, strict=True):
        if i in apart:
            continue
        n = next((k for k, (x, y) in enumerate(zip(a.ids, b.ids, strict=False)) if x != y), min(len(a.ids), len(b.ids)))
        assert i == j
        if not n == len(a.ids) == len(b.ids):
            apart.add(i)
        np.testing.assert_allclose(a.logp[:n], b.logp[:n], atol=2e-4)
        np.testing.assert_allclose(a.entropy[:n], b.entropy[:n], atol=2e-4)
        assert a.logp.dtype == b.logp.dtype and a.ids.dtype == b.ids.dtype
    assert len(apart) <= 1


@pytest.mark.parametrize("name", MODELS)
def test_new_tokens_are_read_as_by_compiled_layers(name, monkeypatch):
    """Prompts of one block of tokens, of several and of one more; then what is told to some of the conversations,
    behind shared prompts."""
    ours = model(name, tied=name != "llama")
    prompts = tiny.ids(1, 15, 16, 17, 33, 700, seed=3, below=ours.config.vocab_size) * 2
    told = tiny.ids(5, 16, 40, 2, 18, 1, seed=4, below=ours.config.vocab_size)

    def read(prompts=prompts, told=told, alive=(0, 1, 4, 5, 8, 11)):
        session = TorchSampler(ours, -1).open(prompts, range(len(prompts)))
        states = [session.last.clone()]
        turns = [s.ids.tolist() for s in session.generate(Sampling(max_tokens=3, temperature=0.0))]
        session.observe(alive, told)
        return turns, *states, session.last[: len(alive)].clone(), session.row_in[: len(alive)].tolist()

    called = []
    with monkeypatch.context() as m:
        real = decode.TurnDecoder.read
        m.setattr(decode.TurnDecoder, "read", lambda self, *args: called.append(1) or real(self, *args))
        turns, *compiled, order = read()
    assert len(called) == 2
    with monkeypatch.context() as m:
        m.setattr(decode.TurnDecoder, "reads", False)
        words, *plain, same_order = read()
    assert turns == words and order == same_order
    for a, b in zip(compiled, plain, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4 * float(b.abs().max()), rtol=0)
    for i, place in ((4, 2), (8, 4)):  # alone, to the bit
        _, first, then, _ = read([prompts[i]], [told[place]], (0,))
        assert torch.equal(first[0], compiled[0][i])
        assert torch.equal(then[0], compiled[1][order.index(i)])


def test_large_models_read_through_torch(monkeypatch):
    sampler, calls = TorchSampler(model("qwen3"), -1), []
    monkeypatch.setattr(decode, "READ", 1000)
    monkeypatch.setattr(decode.TurnDecoder, "read", lambda *_: calls.append(1))
    assert sampler.open(tiny.ids(5, 9, below=64), [0, 1]).last.isfinite().all()
    assert not sampler.turns.reads and not calls


def test_the_largest_model_depends_on_the_type_of_its_weights(monkeypatch):
    model = tiny.build()
    size = sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(layers, "LARGEST", {torch.float32: size, torch.bfloat16: size - 1})
    assert layers.usable(model) and not layers.usable(copy.deepcopy(model).bfloat16())
    monkeypatch.setitem(layers.LARGEST, torch.bfloat16, size)
    assert layers.usable(copy.deepcopy(model).bfloat16())


def test_a_conversation_is_the_same_to_the_bit_whoever_shares_its_batch():
    ours = model("qwen3")
    (prompt,), sampling = tiny.ids(11, below=64), Sampling(max_tokens=40)
    together = TorchSampler(ours, 7).open([prompt] * 37, range(37)).generate(sampling)
    assert len({len(s.ids) for s in together}) > 5
    for i in (0, 17, 36):
        (alone,) = TorchSampler(ours, 7).open([prompt], [i]).generate(sampling)
        assert alone.ids.tolist() == together[i].ids.tolist()
        assert (
            alone.logp.tolist() == together[i].logp.tolist() and alone.entropy.tolist() == together[i].entropy.tolist()
        )


def test_turns_that_end_at_a_string_are_decoded_in_one_call_too(monkeypatch):
    """The ids after which a string may be complete are learned while a turn is drawn: the call comes back for each."""
    calls, real = [], decode.TurnDecoder.__call__
    monkeypatch.setattr(decode.TurnDecoder, "__call__", lambda self, *args: calls.append(1) or real(self, *args))
    source = TorchSampler(tiny.build(init_range=0.05), -1, renderer=Renderer(tiny.tokenizer()))
    (prompt,), sampling = tiny.ids(11), Sampling(max_tokens=40, stop=("e", "o"))
    together = source.open([prompt] * 20, range(20)).generate(sampling)
    assert calls and {s.stop for s in together} >= {"stop_string"} and len({len(s.ids) for s in together}) > 3
    (alone,) = source.open([prompt], [13]).generate(sampling)
    assert alone.ids.tolist() == together[13].ids.tolist() and alone.logp.tolist() == together[13].logp.tolist()
    monkeypatch.setattr(_Turn, "plain", False)  # as drawn by torch over the compiled layers
    for a, b in zip(together, source.open([prompt] * 20, range(20)).generate(sampling), strict=True):
        assert a.ids.tolist() == b.ids.tolist() and a.stop == b.stop


def test_numbers_that_are_none_are_never_hidden():
    """One weight: the step is refused, and nothing is sampled that looks like a number."""
    for at in ("self_attn.k_proj", "mlp.gate_proj", "self_attn.v_proj", "input_layernorm"):
        broken = tiny.build()
        assert layers.of(broken) is not None
        with torch.no_grad():
            broken.get_submodule(f"model.layers.1.{at}").weight.view(-1)[3] = torch.nan
        before = {k: v.clone() for k, v in broken.state_dict().items()}
        with pytest.raises(FloatingPointError, match="at step 0"):
            Learner(broken, Optim()).step(pack([Row(ids=tiny.ids(20)[0], trainable=np.arange(20) > 4)]), nll)
        assert all(torch.equal(v.nan_to_num(7), before[k].nan_to_num(7)) for k, v in broken.state_dict().items())
    sampler = TorchSampler(tiny.build(), -1)
    session = sampler.open(tiny.ids(4, 9), [0, 1])
    assert sampler.turns is not None
    with torch.inference_mode():
        session.last[1] = torch.nan
    fine, lost = session.generate(Sampling(max_tokens=5))
    assert np.isfinite(fine.logp).all() and np.isnan(lost.logp).any()


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00080, 0x7FC001FF])
def test_a_key_that_is_no_number_reaches_all_who_read_it(bits):
    """Also a NaN whose other bits would make an exponent: of such a one exp could come out finite, or 0."""
    of = layers.of(ours := tiny.build())
    rows = PackedRows([20])
    kernels = layers.Kernels(of, *of.angles(ours, torch.arange(20)), rows.spans, rows.longest)
    (h, g, d), generator = kernels.sizes, torch.Generator().manual_seed(0)
    qk, qkv = torch.randn(20, (h + g) * d, generator=generator), torch.randn(20, (h + 2 * g) * d, generator=generator)
    qk.view(torch.int32)[5, h * d + 1] = bits
    y, lse = kernels.attend(qk, qkv)
    for x in (y, lse):
        assert x.isnan().any(-1).tolist() == [t >= 5 for t in range(20)]


def test_what_it_does_not_know_is_left_to_the_model():
    known = tiny.build()
    assert layers.of(known) is not None
    hook = known.model.layers[0].register_forward_hook(lambda *_: None)
    assert layers.of(known) is None
    hook.remove()
    assert layers.of(known) is not None
    assert layers.of(tiny.build().to(torch.bfloat16)) is not None
    assert layers.of(tiny.build().double()) is None
    adapted_later = tiny.build()
    assert layers.of(adapted_later) is not None
    adapt(adapted_later, {"rank": 2})
    assert layers.of(adapted_later) is None
    odd = tiny.build()
    odd.config.hidden_act = "gelu"
    assert layers.of(odd) is None
    wrong = tiny.build()  # looks like one that is known and computes something else
    wrong.model.layers[0].mlp.act_fn = torch.nn.GELU()
    assert layers.of(wrong) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "there is no C compiler (cc, gcc, clang) on the PATH"),
        ("broken", "broken/cc could not compile it: no such luck"),
    ],
)
def test_without_a_compiler_it_says_why_and_the_model_runs(path, reason, tmp_path, monkeypatch):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "cc").write_text(
        "#!/bin/sh\ncase $1 in --version) echo 1;; *) echo 'no such luck' >&2; exit 1;; esac\n"
    )
    (tmp_path / "broken" / "cc").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    kernels = build._made.__wrapped__()
    monkeypatch.setattr(build, "_made", lambda: kernels)
    ours = tiny.build()
    assert layers.of(ours) is None
    assert hidden_states(ours, torch.arange(5), torch.arange(5), PackedRows([5])).isfinite().all()
    assert reason in build.why_not()
    assert not list(tmp_path.rglob("*.so"))


def test_a_user_can_turn_it_off(monkeypatch):
    """When the command line is loaded, by the environment."""
    import flows

    monkeypatch.setenv("ESPALIER_NATIVE", "0")
    monkeypatch.setattr(build, "_off", None)
    monkeypatch.setattr(products, "_off", False)  # it is turned off too, and would stay so for the tests that follow
    importlib.reload(flows)
    assert build.why_not() == "ESPALIER_NATIVE is 0" and set(products.chosen().values()) == {"MKL"}
    assert layers.of(tiny.build()) is None


def test_it_is_compiled_once_and_again_after_an_edit(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cc = build.compiler()
    first = build._compiled(cc, build.FLAGS)
    compiled_at = first.stat().st_mtime_ns
    assert build._compiled(cc, build.FLAGS) == first and first.stat().st_mtime_ns == compiled_at
    for source in build.FOLDER.glob("*.[ch]"):
        (tmp_path / source.name).write_text(source.read_text())
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build._compiled(cc, build.FLAGS) == first
    with (tmp_path / "vectors.h").open("a") as f:
        f.write("/* */\n")
    assert build._compiled(cc, build.FLAGS) != first
    assert not list((tmp_path / "cache").rglob(".*")), "nothing half done is left"


def test_an_edit_of_the_c_code_runs_training_again(tmp_path, monkeypatch):
    from tasks.planning import code, plan

    build_py = build.FOLDER / "build.py"
    plans = plan.plans(build.FOLDER.parents[2])
    assert all(
        plans[stage]["sources"]["training/model/native/build.py"] == code.digest(build_py)[:16]
        for stage in ("sft", "rl", "evaluate")
    )
    for name in ("build.py", *build.BESIDE):
        (tmp_path / name).write_text((build.FOLDER / name).read_text())
    assert code.digest(tmp_path / "build.py") == code.digest(build_py)
    with (tmp_path / "decode.c").open("a") as f:
        f.write("/* */\n")
    assert code.digest(tmp_path / "build.py") != code.digest(build_py)


def test_a_row_that_memory_does_not_hold_is_said_and_not_a_crash():
    """In a process that may have little memory: the sentence of a learner says what to lower."""
    code = (
        "import resource, numpy as np, tiny, torch\nfrom training.model.native import layers\nfrom training.learner.learner import Learner, Optim, nll\n"
        "from training.learner.pack import Row, pack\nmodel = tiny.build()\nassert layers.of(model) is not None\n"
        "batch = lambda n: pack([Row(ids=np.arange(n) % 300, trainable=np.arange(n) > n - 5)])\n"
        "learner = Learner(model, Optim())\nlearner.step(batch(50), nll)\n"
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (held + (40 << 20), held + (40 << 20)))\n"
        "try:\n    learner.step(batch(200_000), nll)\nexcept ValueError as e:\n    print(e)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["tests/support", "."]), "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "does not fit into memory: lower the length of rows" in done.stdout, done.stderr[-500:]
    rows, kernels = PackedRows([3]), layers.of(tiny.build())
    # More than addresses reach.
    of_no_machine = layers.Kernels(kernels, torch.ones(3, 4), torch.ones(3, 4), rows.spans, 1 << 40)
    with pytest.raises(
        RuntimeError, match="could not allocate memory for the attention of a row of 1099511627776 tokens"
    ):
        of_no_machine.attend(torch.ones(3, 48), torch.ones(3, 64))
