"""Engines as samplers: what is asked once more, what stops a run, and vLLM itself, where it is installed (`make
engine-cpu`).

One engine of vLLM serves the whole run of the tests: importing it takes longer than all that is asked of it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import exported
import numpy as np
import pytest
import tiny
import torch
from ports import free_port
from safetensors.torch import load_file

from synth.types import Problem, Sampling, Scored, Unscorable
from tasks.export.export import Settings, export
from tasks.serving.sessions import Sessions
from training.env.program import program
from training.env.single import Single
from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.model.model import save_model
from training.rollout import vllm_engine
from training.rollout.ending import Ending
from training.rollout.engine import Completion, EngineLost, EngineSampler, WrongVersion
from training.rollout.play import Player
from training.rollout.transport import checksum

END = tiny.tokenizer().eos_token_id
ASKED = Sampling(max_tokens=8)


# --- any engine -------------------------------------------------------------------------------------------------------


class Fake:
    """An engine that says `turn` (ids) in this process; the requests numbered in `lose` are lost, counted over all that
    were made."""

    elsewhere = False

    def __init__(self, turn=(5, 6, END), lose=(), dead=0):
        self.turn, self.lose, self.dead, self.loaded, self.asked, self.revived = turn, set(lose), dead, [], [], 0
        self.held = None

    def load(self, model, version):
        self.held = version
        self.loaded.append(version)

    def version(self):
        return self.held

    def complete(self, prompts, seeds, sampling, end_id, conversations):
        if self.dead:
            self.dead -= 1
            raise EngineLost("the engine is gone")
        out = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            lost = len(self.asked) in self.lose
            self.asked.append((tuple(prompt), seed))
            ids = np.array(self.turn)
            out.append(
                None
                if lost
                else Completion(
                    ids=ids, logp=np.full(len(ids), -1.0, dtype=np.float32), stop="end" if ids[-1] == END else "length"
                )
            )
        return out

    def revive(self):
        self.revived += 1
        self.held = None


def problems(n):
    return [
        Problem.make(prompt=f"{i} ?", answer="1", verifier="exact", env="single", family="f", split="train")
        for i in range(n)
    ]


class Always(Single):
    def step(self, state, text):
        return [], True, Scored(value=1.0)


def play(engine, n=3, samples=2):
    renderer = tiny.Scripted(None).renderer
    sampler = EngineSampler(tiny.build(), END, engine)
    return sampler, Player(sampler=sampler, renderer=renderer, envs={"single": Always(0.0, "")}, sampling=ASKED).play(
        problems(n), samples, "s"
    )


def test_weights_are_pushed_before_the_first_turn_of_a_version_and_no_oftener():
    sampler = EngineSampler(tiny.build(), END, engine := Fake())
    session = sampler.open(tiny.ids(4, 5), [1, 2])
    assert engine.loaded == [], "nothing is pushed that is not sampled from"
    first = session.generate(ASKED)
    session.observe([0, 1], tiny.ids(2, 3))
    session.generate(ASKED)
    assert engine.loaded == [0]
    sampler.version = 7
    session.observe([1], tiny.ids(2))
    (last,) = session.generate(ASKED)
    assert engine.loaded == [0, 7] and first[0].version == 0 and last.version == 7


def test_a_turn_is_asked_with_the_whole_conversation_and_a_seed_of_its_own():
    sampler = EngineSampler(tiny.build(), END, engine := Fake())
    prompts, told = tiny.ids(4, 5), tiny.ids(2)
    session = sampler.open(prompts, [1, 2])
    session.generate(ASKED)
    session.observe([1], told)
    session.generate(ASKED)
    assert engine.asked[2][0] == (*prompts[1], 5, 6, END, *told[0])
    assert len({seed for _, seed in engine.asked}) == 3


def test_a_turn_ends_at_its_string_though_the_engine_went_on():
    renderer = tiny.Scripted(None).renderer
    ids = [*map(int, renderer.encode("one two three")), END]
    sampler = EngineSampler(tiny.build(), END, Fake(turn=ids), renderer=renderer)
    (turn,) = sampler.open(tiny.ids(4), [1]).generate(Sampling(max_tokens=32, stop=("two",)))
    assert turn.stop == "stop_string" and renderer.decode(turn.ids).endswith("two")
    assert turn.ids.tolist() == ids[: len(turn.ids)] and len(turn.logp) == len(turn.ids)
    (turn,) = sampler.open(tiny.ids(4), [1]).generate(Sampling(max_tokens=32, stop=("four",)))
    assert turn.stop == "end" and turn.ids.tolist() == ids
    with pytest.raises(ValueError, match="give it renderer"):
        EngineSampler(tiny.build(), END, Fake()).open(tiny.ids(4), [1]).generate(Sampling(stop=("two",)))


def test_a_lost_request_is_asked_once_more():
    sampler, groups = play(engine := Fake(lose={1, 4}))
    assert sampler.lost == [2, 0] and engine.revived == 1 and engine.loaded == [0, 0], (
        "what was revived is given the weights again"
    )
    assert [r.score for g in groups for r in g.rollouts] == [Scored(value=1.0)] * 6
    assert engine.asked[6:] == [engine.asked[1], engine.asked[4]], "the same prompt with the same seed"


def test_a_request_that_is_lost_twice_is_unscorable_and_no_zero(capsys):
    sampler, groups = play(Fake(lose={1, 4, 6}))
    scores = [r.score for g in groups for r in g.rollouts]
    assert [isinstance(s, Unscorable) for s in scores] == [False, True, False, False, False, False]
    assert scores[1].reason.startswith("engine_lost: ") and sampler.lost == [2, 1]
    assert groups[0].rollouts[1].n_model == 0 and np.isnan(groups[0].rewards[1])


def test_an_engine_that_dies_mid_batch_is_revived_once(capsys):
    sampler, groups = play(engine := Fake(dead=1))
    assert engine.revived == 1 and all(isinstance(r.score, Scored) for g in groups for r in g.rollouts)
    assert "the engine is gone: 6 requests will be asked once more" in capsys.readouterr().err
    _, groups = play(engine := Fake(dead=2))
    assert engine.revived == 1 and all(isinstance(r.score, Unscorable) for g in groups for r in g.rollouts)


def test_a_wrong_version_stops_the_run():
    """Before anything is sampled, and where the weights change while it is sampled."""
    engine = Fake()
    engine.load = lambda model, version: setattr(engine, "held", version + 1)
    with pytest.raises(WrongVersion, match="holds the weights of version 1, and those of version 0 were pushed"):
        play(engine)
    assert not engine.asked
    engine = Fake()
    complete = engine.complete
    engine.complete = lambda *a: (complete(*a), engine.load(None, 3))[0]
    with pytest.raises(WrongVersion, match="version 3"):
        play(engine)


# --- a server ---------------------------------------------------------------------------------------------------------


class Port(BaseHTTPRequestHandler):
    """What a vLLM server answers, as far as it is asked: `self.server.say`; `self.server.fail` counts completions that
    end with 500."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._say({"data": [{"id": "m"}]} if self.path == "/v1/models" else None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/collective_rpc":
            if body["method"] == "espalier_load":
                (file,) = Path(body["kwargs"]["folder"]).iterdir()
                self.server.seen.append((self.path, load_file(file)))
                self.server.held = body["kwargs"]["version"]
                receipt = {"checksum": checksum(load_file(file)), "dtype": "float32"}
                return self._say({"results": [receipt]})
            if body["method"] == "espalier_claim":
                return self._say({"results": [{}]})
            held = self.server.held
            return self._say({"results": [None if held is None else str(held)]})
        if self.path == "/v1/completions":
            self.server.seen.append((self.path, body))
            if self.server.fail:
                self.server.fail -= 1
                return self._say({"error": "x"}, 500)
            return self._say({"choices": [self.server.say]})
        return self._say(None) if self.path == "/reset_prefix_cache" else self._say({"error": "no such path"}, 404)

    def _say(self, value, code=200):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def port():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Port)
    server.seen, server.fail, server.held = [], 0, None
    server.say = {"token_ids": [7, END], "logprobs": {"token_logprobs": [-1.5, -0.25]}, "finish_reason": "stop"}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def served(port, tmp_path, **more):
    return vllm_engine.Server(f"http://127.0.0.1:{port.server_port}", tmp_path / "weights", **more)


def test_a_server_is_given_weights_as_a_folder_and_asked_with_ids(port, tmp_path):
    sampler, groups = play(served(port, tmp_path), n=1, samples=1)
    segment = groups[0].rollouts[0].segments[1]
    assert (
        segment.ids.tolist() == [7, END]
        and segment.logp.tolist() == [-1.5, -0.25]
        and segment.stop == "end"
        and segment.version == 0
    )
    (_, weights), (_, body) = port.seen
    assert not list((tmp_path / "weights").iterdir()), "the folder is gone when it was read"
    want = sampler.model.state_dict()
    assert weights.keys() == want.keys() >= {"lm_head.weight", "model.embed_tokens.weight"}, (
        "tied ones by both names: vLLM packs the head apart"
    )
    assert all(torch.equal(weights[name], t) for name, t in want.items())
    assert (
        body["logprobs"] == 0
        and body["return_token_ids"]
        and body["stop_token_ids"] == [END]
        and body["prompt"][0] == 1
    )


def test_a_server_that_fails_is_asked_once_more(port, tmp_path, capsys):
    port.fail = 1
    sampler, groups = play(served(port, tmp_path), n=2, samples=2)
    assert sampler.lost == [1, 0] and all(isinstance(r.score, Scored) for g in groups for r in g.rollouts)
    port.fail = 99
    sampler, groups = play(served(port, tmp_path), n=2, samples=2)
    assert sampler.lost == [4, 4] and all(isinstance(r.score, Unscorable) for g in groups for r in g.rollouts)


def test_a_server_that_is_gone_is_waited_for_and_then_given_up(tmp_path, capsys):
    engine = vllm_engine.Server("http://127.0.0.1:9", tmp_path, patience=0.0)
    sampler, groups = play(engine, n=1, samples=1)
    assert isinstance(groups[0].rollouts[0].score, Unscorable) and "did not come back in 0 s" in capsys.readouterr().err


def test_what_vllm_would_do_otherwise_is_refused(port, tmp_path):
    """By both ways of asking it, and not as a lost request."""
    source = EngineSampler(tiny.build(), END, served(port, tmp_path))
    for sampling, message in (
        (Sampling(choices=("a", "b")), "held to choices"),
        (Sampling(min_p=0.1, top_p=0.9), "set top_p = 0.9 or min_p = 0.1 alone"),
    ):
        with pytest.raises(ValueError, match=message):
            vllm_engine.request(sampling, 1, END)
        with pytest.raises(ValueError, match=message):
            source.open(tiny.ids(4), [1]).generate(sampling)
    assert not [path for path, _ in port.seen if path == "/v1/completions"]


def test_all_of_a_sampling_is_asked_for(port, tmp_path):
    sampling = Sampling(temperature=0.5, top_k=7, min_p=0.1, max_tokens=5, stop=("\x00",), stop_ids=(7,))
    source = EngineSampler(tiny.build(), END, served(port, tmp_path), renderer=tiny.Scripted(None).renderer)
    (turn,) = source.open(tiny.ids(4), [1]).generate(sampling)
    body = port.seen[-1][1]
    want = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 1.0,
        "min_p": 0.1,
        "max_tokens": 5,
        "stop": ["\x00"],
        "stop_token_ids": [END, 7],
    }
    assert turn.stop == "stop_id" and {k: body[k] for k in want} == want
    for ids, reason, stop in (
        ([7], "stop", "stop_id"),
        ([5, 8], "stop", "stop_string"),
        ([5, 8], "length", "length"),
        ([5], "abort", "lost"),
    ):
        port.say = {"token_ids": ids, "logprobs": {"token_logprobs": [-1.0] * len(ids)}, "finish_reason": reason}
        assert source.open(tiny.ids(4), [1]).generate(sampling)[0].stop == stop


def test_a_server_that_is_none_of_vllms_is_a_sentence(port, tmp_path):
    engine = served(port, tmp_path)
    with pytest.raises(
        ValueError, match=r"refuses /other \(404.*was it started as docs/engines.md says.*--worker-extension-cls"
    ):
        engine._post("/other", {})


# --- vLLM -------------------------------------------------------------------------------------------------------------


def installed(test):
    """Of a test that needs vLLM: CI runs these apart, in the environment of `make engine-cpu` (`-m engine`)."""
    missing = find_spec("vllm") is None
    reason = "vLLM is not installed here: `make engine-cpu` installs its CPU build"
    return pytest.mark.engine(pytest.mark.skipif(missing, reason=reason)(test))


PROMPTS = tiny.ids(5, 9, 30, 9, 17)


def built(**more):
    """Heads of 32 numbers are the smallest that vLLM has kernels for on a CPU."""
    return tiny.build(hidden=64, heads=2, kv_heads=1, **more)


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    """As a stage starts it: what ranks pages has been imported, and numba with it."""
    import synth.search.bm25  # noqa: F401

    for name, value in vllm_engine.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    folder = tmp_path_factory.mktemp("vllm") / "model"
    save_model(built(), tiny.tokenizer(), folder)
    engine = vllm_engine.InProcess(folder, vllm_engine.settings(max_length=128, memory=0.25))
    yield engine
    engine.close()


def sampler(engine, **build):
    return EngineSampler(built(**build), END, engine, renderer=tiny.Scripted(None).renderer)


def learned(model, prompt, ids, sampling=ASKED):
    """The learner's log-probs of ids [n] after a prompt, and its whole distributions [n, V], at temperature 1 where the
    turn was greedy."""
    whole = np.concatenate([prompt, ids])
    batch = pack([Row(ids=whole, trainable=np.arange(len(whole)) >= len(prompt))])
    with torch.no_grad():
        full = token_stats(model, batch, temperature=sampling.temperature or 1.0).distribution()
    return full.gather(1, torch.from_numpy(np.asarray(ids))[:, None])[:, 0].numpy(), full


@installed
def test_greedy_turns_are_the_learners(vllm, record_property):
    source = sampler(vllm, seed=3)
    ties = 0
    for prompt, segment in zip(
        PROMPTS, source.open(PROMPTS, range(5)).generate(Sampling(temperature=0.0, max_tokens=24)), strict=True
    ):
        _, full = learned(source.model, prompt, segment.ids)
        best = full.topk(2, -1)
        gap = (best.values[:, 0] - best.values[:, 1]).numpy()
        same = best.indices[:, 0].numpy() == segment.ids
        assert same[gap >= 1e-3].all(), f"another token with a gap of {gap[~same].max()}"
        ties += int((~same).sum())
    record_property("ties", ties)


@installed
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=24),
        Sampling(temperature=0.7, max_tokens=24),
        Sampling(temperature=1.3, top_k=7, top_p=0.8, max_tokens=24),
        Sampling(temperature=1.3, top_k=50, min_p=0.1, max_tokens=24),
        Sampling(temperature=0.0, max_tokens=24),
    ],
    ids=["plain", "cold", "truncated", "not unlikely", "greedy"],
)
def test_log_probs_are_those_of_the_distribution_sampled_from(vllm, sampling, record_property):
    source = sampler(vllm, seed=1)
    apart = []
    for prompt, segment in zip(PROMPTS, source.open(PROMPTS, range(5)).generate(sampling), strict=True):
        want, full = learned(source.model, prompt, segment.ids, sampling)
        kept = full
        if sampling.top_k:
            kept = kept.masked_fill(kept < kept.topk(sampling.top_k, -1).values[:, -1:], -torch.inf).log_softmax(-1)
        if sampling.top_p < 1:
            order = kept.sort(-1, descending=True)
            drop = order.values.exp().cumsum(-1) - order.values.exp() >= sampling.top_p
            kept = kept.masked_fill(torch.zeros_like(drop).scatter(-1, order.indices, drop), -torch.inf).log_softmax(-1)
        if sampling.min_p:
            kept = kept.masked_fill(
                kept < kept.amax(-1, keepdim=True) + np.log(sampling.min_p), -torch.inf
            ).log_softmax(-1)
        want = kept.gather(1, torch.from_numpy(segment.ids)[:, None])[:, 0].numpy()
        assert np.isfinite(want).all(), "a token was drawn that the truncation leaves out"
        apart.append(np.abs(want - segment.logp))
    apart = np.concatenate(apart)
    print(
        f"\nvLLM against the learner, {len(apart)} tokens, {sampling}: mean {apart.mean():.2e}, largest {apart.max():.2e} nats"
    )
    record_property("largest", float(apart.max()))
    assert apart.mean() < 1e-3


STOPPING = Sampling(max_tokens=32, stop=("e", "th"), stop_ids=(40, 41, 42, 43, 44, 45))


def stops_where_the_torch_sampler_does(source):
    """Each turn ends at the first token at which the rule of the sampler of this process ends it, and says the same of
    it. Prompts end as prompts do, in text: vLLM counts what their last bytes leave open to the turn."""
    renderer = tiny.Scripted(None).renderer
    ending = Ending.of(STOPPING, END, renderer, len(tiny.tokenizer()))
    segments = source.open([np.append(p, renderer.encode("\n")) for p in PROMPTS * 8], range(40)).generate(STOPPING)
    for segment in segments:
        ids = segment.ids
        whys = ((i, ending.why(int(ids[i]), ids[: i + 1])) for i in range(len(ids)))
        assert (len(ids) - 1, segment.stop) == next((x for x in whys if x[1]), (STOPPING.max_tokens - 1, "length"))
    return {s.stop for s in segments}


@installed
def test_turns_stop_at_strings_and_ids(vllm):
    assert stops_where_the_torch_sampler_does(sampler(vllm, seed=1)) >= {"stop_string", "stop_id"}


@installed
def test_frequencies_are_the_models(vllm):
    source = sampler(vllm, seed=1, init_range=0.1)
    n = 4000
    turns = source.open([PROMPTS[0]] * n, range(n)).generate(Sampling(max_tokens=1))
    _, full = learned(source.model, PROMPTS[0], turns[0].ids)
    p = full[0].double().exp().numpy()
    share = np.bincount([int(s.ids[0]) for s in turns], minlength=len(p))
    likely = p * n >= 5
    expected, observed = np.append(p[likely], p[~likely].sum()) * n, np.append(share[likely], share[~likely].sum())
    chi2, freedom = float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5, f"chi2 {chi2:.0f} with {freedom} degrees of freedom"


@installed
def test_a_weight_update_is_seen_by_the_next_sample(vllm):
    """And by nothing before it; the prefix cache holds no keys of the weights before."""
    greedy = Sampling(temperature=0.0, max_tokens=12)
    source, other = sampler(vllm, seed=1), built(seed=2)
    session = source.open(PROMPTS[:2], [0, 1])
    before = session.generate(greedy)
    with torch.no_grad():
        for mine, theirs in zip(source.model.parameters(), other.parameters(), strict=True):
            mine.copy_(theirs)
    source.version += 1
    again = source.open(PROMPTS[:2], [0, 1]).generate(greedy)
    assert [s.version for s in before] == [0, 0] and [s.version for s in again] == [1, 1]
    for prompt, one, two in zip(PROMPTS, before, again, strict=False):
        assert one.ids.tolist() != two.ids.tolist()
        want, _ = learned(other, prompt, two.ids)
        assert np.abs(want - two.logp).mean() < 1e-3
    session.observe([0], tiny.ids(3))
    (later,) = session.generate(greedy)
    whole = np.concatenate([PROMPTS[0], before[0].ids, tiny.ids(3)[0]])
    want, _ = learned(other, whole, later.ids)
    assert later.version == 1 and np.abs(want - later.logp).mean() < 1e-3, (
        "a conversation that goes on is read with the new weights"
    )


@installed
def test_a_sample_belongs_to_its_seed_and_turn(vllm):
    source = sampler(vllm, seed=1)
    draw = lambda seeds: [s.ids.tolist() for s in source.open([PROMPTS[0]] * len(seeds), seeds).generate(ASKED)]  # noqa: E731
    together = draw([1, 2, 3, 1])
    assert together[0] == together[3] == draw([1])[0] and together[0] != together[1]
    session = source.open([PROMPTS[0]], [1])
    (first,) = session.generate(ASKED)
    assert first.ids.tolist() == together[0]


@installed
def test_conversations_go_on(vllm):
    """Turn by turn, with what was told between; the learner agrees on every turn."""
    source = sampler(vllm, seed=1, init_range=0.05)
    session, row = source.open([PROMPTS[0]], [4]), [PROMPTS[0]]
    for told in (*tiny.ids(3, 6, seed=5), None):
        (segment,) = session.generate(ASKED)
        want, _ = learned(source.model, np.concatenate(row), segment.ids)
        assert np.abs(want - segment.logp).mean() < 1e-3
        row.append(segment.ids)
        if told is not None:
            session.observe([0], [told])
            row.append(told)
    assert segment.stop in ("end", "length") and len(segment.ids) <= ASKED.max_tokens


@installed
def test_the_learners_randomness_and_threads_are_its_own(vllm):
    source = sampler(vllm, seed=1)
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    source.open(PROMPTS, range(5)).generate(ASKED)
    assert torch.equal(before, torch.get_rng_state())
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


@installed
def test_an_engine_that_breaks_is_started_again(vllm, monkeypatch, capsys):
    source = sampler(vllm, seed=1)
    want = source.open(PROMPTS, range(5)).generate(ASKED)
    dead, times = vllm.llm, []

    def break_down(*_, **__):
        times.append(1)
        raise RuntimeError("out of everything")

    monkeypatch.setattr(dead, "generate", break_down)
    got = source.open(PROMPTS, range(5)).generate(ASKED)
    assert times == [1] and vllm.llm is not dead and source.lost == [5, 0]
    assert [s.ids.tolist() for s in got] == [s.ids.tolist() for s in want], "the same seeds, the same weights"


@installed
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_an_exported_folder_says_what_the_learner_says(vllm, tied, tmp_path):
    """The export has vLLM read the folder itself. One engine at a time: the next test starts its own again."""
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    network = exported.build("qwen3", tie_word_embeddings=tied, seed=6, **sizes)
    save_model(network, exported.tokenizer(), tmp_path / "model")
    vllm.close()
    about = Settings(prompts=3)
    checks = export(tmp_path, str(tmp_path / "model"), "vllm", tmp_path / "out", about, say=lambda line: None)
    vllm.close()  # the engine of the export, too
    (by_vllm,) = [p for p in checks if p.reader.startswith("vllm ")]
    assert by_vllm.prompts == 3 and by_vllm.tokens > 10 and by_vllm.differ == 0


@pytest.fixture(scope="session")
def real_server(tmp_path_factory):
    """`vllm serve` as docs/engines.md starts it, on a free port of this machine."""
    place = tmp_path_factory.mktemp("served")
    save_model(built(), tiny.tokenizer(), place / "model")
    port = free_port()
    env = {**os.environ, **vllm_engine.SERVED, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    with (place / "log").open("w") as log:
        arguments = vllm_engine.command(place / "model", port, vllm_engine.settings(max_length=128, memory=0.25))
        process = subprocess.Popen(arguments, env=env, stdout=log, stderr=log, start_new_session=True)
    engine = vllm_engine.Server(f"http://127.0.0.1:{port}", place / "weights", patience=2.0)
    try:
        until = time.monotonic() + 600
        while True:
            try:
                engine.revive()
                break
            except EngineLost:
                assert process.poll() is None and time.monotonic() < until, (place / "log").read_text()[-3000:]
        yield engine
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@installed
def test_a_real_server_says_what_the_learner_says_and_takes_its_weights(real_server):
    source = sampler(real_server, seed=1)
    for version, seed in enumerate((1, 2)):
        with torch.no_grad():
            for mine, theirs in zip(source.model.parameters(), built(seed=seed).parameters(), strict=True):
                mine.copy_(theirs)
        source.version = version
        for prompt, segment in zip(
            PROMPTS,
            source.open(PROMPTS, range(5)).generate(Sampling(temperature=0.8, top_k=9, max_tokens=16)),
            strict=True,
        ):
            _, full = learned(source.model, prompt, segment.ids, Sampling(temperature=0.8))
            kept = full.masked_fill(full < full.topk(9, -1).values[:, -1:], -torch.inf).log_softmax(-1)
            want = kept.gather(1, torch.from_numpy(segment.ids)[:, None])[:, 0].numpy()
            assert np.abs(want - segment.logp).mean() < 1e-3 and segment.version == version and len(segment.ids) <= 16
    assert real_server.version() == 1
    assert stops_where_the_torch_sampler_does(source) >= {"stop_string", "stop_id"}


@installed
def test_a_program_is_sampled_by_vllm_and_by_its_server(vllm, real_server, tmp_path):
    """Two turns and a fork of an agent program, asked of vLLM in this process and of a server: the rows are what the learner
    reads, and it agrees."""
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import json, os, sys, httpx\n"
        "problem = json.load(sys.stdin)\n"
        "c = httpx.Client(headers={'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}, timeout=120)\n"
        "def said(m):\n"
        "    return c.post(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json={'messages': m}).json()['choices'][0]['message']\n"
        "m = [*problem['prompt'], said(problem['prompt']), {'role': 'user', 'content': 'more'}]\n"
        "m += [said(m)]\n"
        "said([{'role': 'user', 'content': 'anew'}])\n"
        "print('4')\n"
    )
    played = Problem.make(prompt="2 + 2 ?", answer="4", verifier="number", env="program", family="f", split="train")
    running = Sessions()
    try:
        for engine in (vllm, real_server):
            source = sampler(engine, seed=1)
            player = Player(
                sampler=source,
                renderer=source.renderer,
                envs={"program": program(command=f"{sys.executable} {agent}", seconds=120)},
                tools={"programs": running},
                sampling=Sampling(max_tokens=6),
                max_tokens=120,
            )
            for rollout in player.play([played], 3, "seed")[0].rollouts:
                assert isinstance(rollout.score, Scored) and rollout.score.value == 1.0, rollout.score
                assert [sum(s.role == "model" for s in row) for row in rollout.forks] == [2, 1]
                for row in rollout.forks:
                    before = []
                    for segment in row:
                        if segment.role == "model":
                            want, _ = learned(source.model, np.concatenate(before), segment.ids)
                            assert np.abs(want - segment.logp).mean() < 1e-3
                        before.append(segment.ids)
    finally:
        running.close()


@installed
def test_adapters_alone_are_pushed(vllm, tmp_path):
    """Adapters are exchanged while vLLM runs: the learner agrees with each of them to 1e-3, and a push is a small part of
    the model. One engine at a time: the next test starts its own again."""
    from training.model.lora import adapt

    vllm.close()
    build = dict(hidden=256, heads=8, kv_heads=4, layers=4)
    base = tiny.build(seed=1, **build)
    save_model(base, tiny.tokenizer(), tmp_path / "model")
    whole = sum(p.numel() * p.element_size() for p in base.parameters())
    engine = vllm_engine.InProcess(tmp_path / "model", vllm_engine.settings(max_length=128, memory=0.25, rank=2))
    adapt(base, {"rank": 2, "modules": ["q_proj", "v_proj"]}, seed=3)
    source = EngineSampler(base, END, engine, renderer=tiny.Scripted(None).renderer)
    log_probs = []
    try:
        for version in range(3):
            source.version = version
            segments = source.open(PROMPTS, range(5)).generate(ASKED)
            for prompt, segment in zip(PROMPTS, segments, strict=True):
                want, _ = learned(base, prompt, segment.ids)
                assert np.abs(want - segment.logp).max() < 1e-3 and segment.version == version
            log_probs.append([s.logp.tolist() for s in segments])
            with torch.no_grad():
                for p in base.parameters():
                    if p.requires_grad:
                        p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(version)) * 0.2)
        assert log_probs[0] != log_probs[1] != log_probs[2] and engine.version() == 2
        assert engine.pushed <= 0.03 * whole, (engine.pushed, whole)
    finally:
        engine.close()
