"""Several policies on vLLM servers: what is told to a server, who answers, who is refused, and what a lost server costs. The
servers are stand-ins of this process that compute with the model and keep adapters as vLLM does; the last test starts a real one,
where vLLM is installed."""

import threading
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import stand_in_vllm
import test_vllm_policies as of
import tiny
import torch
from stub_server import stub

from tasks.core.errors import UserError
from tasks.models import engines
from tasks.runtime.process import end_group
from training.model.lora import use
from training.model.model import save_model
from training.rollout import vllm_engine
from training.rollout.engine import EngineSampler, WrongVersion
from training.rollout.servers import Servers
from training.rollout.vllm_engine import InProcess, Server

BOTH = ("one", "other")
SMALL = dict(hidden=64, heads=2, kv_heads=1, layers=1)


def about_of(folder_or_model, **more):
    config = folder_or_model.config
    sizes = {k: getattr(config, k) for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
    return {"dtype": "float32", "max_model_len": 128, "max_loras": 2, "max_lora_rank": 8, **sizes, **more}


@pytest.fixture
def serving(tmp_path):
    """A function that gives n servers of a base, and the policies on it."""
    ports = []

    def started(n=2, slow=0.0, **size):
        policies, whole = of.team(tmp_path / "model", **size)
        for _ in range(n):
            adapters = stand_in_vllm.Adapters(tmp_path / "model")
            port = stub(of.END, about_of(policies.model), slow=slow, adapters=adapters)
            threading.Thread(target=port.serve_forever, daemon=True).start()
            ports.append(port)
        urls = [f"http://127.0.0.1:{p.server_port}" for p in ports]
        servers = [Server(url, tmp_path / "weights", patience=0.0) for url in urls]
        return SimpleNamespace(policies=policies, whole=whole, ports=ports, urls=urls, engine=Servers(servers, BOTH))

    yield started
    for port in ports:
        port.shutdown()
        port.server_close()


def asked(source, who=of.WHO, seeds=range(5)):
    return source.open(of.PROMPTS, seeds, policies=who).generate(of.ASKED)


def anew(port):
    """The server is started again: what it was given is gone."""
    port.adapters, port.held = stand_in_vllm.Adapters(port.adapters.llm.folder), None


def same(turns, others):
    return all(a.ids.tolist() == b.ids.tolist() for a, b in zip(turns, others, strict=True))


def test_servers_say_what_the_learner_says_and_are_told_what_has_changed(serving, tmp_path):
    at = serving(slow=0.1)
    of.speaks(at.policies, EngineSampler(at.policies.model, of.END, at.engine), at.engine, at.whole)
    for port in at.ports:
        assert [name.split("-")[0] for name in port.adapters.told] == ["one", "other", "one", "other"]
        assert sorted(port.adapters.named) == sorted(name for name in port.adapters.told[2:]), "older names are gone"
        assert port.loads == 0, "the base was not sent"
    kept = {f.name for f in (tmp_path / "weights").iterdir()}
    assert kept == set(at.ports[0].adapters.named), "one folder for each policy"
    beside = set().union(*(port.beside for port in at.ports))
    assert any(len(names) == 2 for names in beside), "requests of both are there at the same time"


def test_servers_say_what_vllm_in_process_says(serving, monkeypatch, tmp_path):
    stand_in_vllm.put(monkeypatch)
    at = serving(**SMALL)
    inside = InProcess(tmp_path / "model", vllm_engine.settings(max_length=128, rank=2, policies=2), BOTH)
    want = asked(EngineSampler(at.policies.model, of.END, inside))
    got = asked(EngineSampler(at.policies.model, of.END, at.engine))
    assert same(got, want)
    for a, b in zip(got, want, strict=True):
        assert np.abs(a.logp - b.logp).max() < 1e-6


def test_adapters_that_a_server_threw_out_are_read_again(serving):
    """vLLM forgets what was not used for longest, be it the newest of a policy: its folder is still there."""
    at = serving(1, **SMALL)
    source = EngineSampler(at.policies.model, of.END, at.engine)
    asked(source)
    for version in (1, 2, 3):  # one alone changes, and speaks: the other's have to go
        of.moved(at.policies, "one", version)
        source.version = version
        source.open(of.PROMPTS[:1], [1], policies=["one"]).generate(of.ASKED)
    (port,) = at.ports
    assert [name.split("-")[0] for name in port.adapters.told] == ["one", "other", "one", "one", "one"]
    before = port.adapters.read
    for number in list(port.adapters.llm.adapters):
        port.adapters.llm.remove_lora(number)
    turns = asked(source)
    assert port.adapters.read >= before + 2
    for prompt, name, segment in zip(of.PROMPTS, of.WHO, turns, strict=True):
        assert of.gaps(at.policies, name, prompt, segment.ids, segment.logp) < 1e-3


def test_a_dead_servers_turns_are_asked_elsewhere_and_it_comes_back_with_all(serving, capsys):
    at = serving(**SMALL)
    source = EngineSampler(at.policies.model, of.END, at.engine)
    want = asked(source)
    assert all(len(port.asked) > 0 for port in at.ports)
    at.ports[1].dies_at = len(at.ports[1].asked) + 1
    assert same(asked(source), want) and source.lost == [0, 0]
    assert capsys.readouterr().err.count("left out until the next weights") == 1
    at.ports[1].gone, at.ports[1].dies_at = False, -1
    anew(at.ports[1])
    of.moved(at.policies, "one", 5)
    source.version = 1
    asked(source)
    assert [n.split("-")[0] for n in at.ports[1].adapters.told] == ["one", "other"], "what it had before is gone"
    assert [n.split("-")[0] for n in at.ports[0].adapters.told] == ["one", "other", "one"]


def test_a_server_that_was_started_anew_is_not_asked_for_adapters_that_it_does_not_have(serving, capsys):
    """Between two batches, in the middle of one, and where no other is left."""
    at = serving(3, **SMALL)
    source = EngineSampler(at.policies.model, of.END, at.engine)
    want = asked(source)
    anew(at.ports[0])
    assert same(asked(source), want) and source.lost == [0, 0]
    assert "has none of the weights that it was given" in capsys.readouterr().err
    held = at.ports[1].held
    anew(at.ports[1])
    at.ports[1].held = held  # it is asked for a turn before it is asked for its version
    assert same(asked(source), want) and source.lost == [0, 0]
    assert "no longer has the adapters" in capsys.readouterr().err
    anew(at.ports[2])
    assert same(asked(source), want) and source.lost == [5, 0]
    assert [len(p.adapters.named) for p in at.ports] == [2, 2, 2], "all are told again"


def test_another_runs_server_stops_the_run(serving):
    at = serving(1, **SMALL)
    source = EngineSampler(at.policies.model, of.END, at.engine)
    asked(source)
    held = at.ports[0].held
    other = EngineSampler(at.policies.model, of.END, Servers([Server(at.urls[0], at.engine.servers[0].weights)], BOTH))
    asked(other)
    assert at.ports[0].held != held
    with pytest.raises(WrongVersion, match="has weights of another run"):
        asked(source)


def test_another_base_is_refused_before_a_turn_is_asked(serving, tmp_path):
    """Of the same sizes, which only what it says tells."""
    at = serving(**SMALL)
    save_model(tiny.build(seed=2, init_range=0.05, **SMALL), tiny.tokenizer(), tmp_path / "another")
    at.ports[1].adapters = stand_in_vllm.Adapters(tmp_path / "another")
    with pytest.raises(ValueError, match=rf"{at.urls[1]} has another base than the policies: .*'one'.* nats from"):
        asked(EngineSampler(at.policies.model, of.END, at.engine))
    assert not any(port.asked for port in at.ports)


def test_servers_without_room_for_the_policies_are_refused(serving, tmp_path):
    at = serving(**SMALL)
    how = dict(
        folder=tmp_path / "model", work=tmp_path / "w", max_length=64, dtype="float32", memory=0.1, policies=BOTH
    )
    engine = ",".join(at.urls)
    source = engines.sampler(engine, at.policies.model, of.END, **how, rank=2)
    assert source.engine.policies == BOTH and len(source.engine.servers) == 2
    alone = engines.sampler(at.urls[0], at.policies.model, of.END, **how, rank=2)
    assert isinstance(alone.engine, Servers), "one server is given adapters too"
    asked(alone)
    start = r"start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-loras 2 --max-lora-rank 8"
    for broken, words in (
        ({"swaps": False}, rf"rl\.engine: the server {at.urls[1]} does not exchange adapters.*{start}"),
        ({"max_lora_rank": 0}, rf"does not exchange adapters while it runs.*{start}"),
        ({"max_lora_rank": 1}, "takes adapters up to rank 1, and a policy has 2: .*--max-lora-rank 8, or set a lower"),
        ({"max_loras": 1}, "has room for 1 set of adapters in a batch, and the run has 2 policies: .*--max-loras 2"),
        ({"hidden_size": 7}, "runs a model with hidden_size 7, and the policy has 64"),
        ({"dtype": "bfloat16"}, "runs a model with dtype bfloat16, and the policy has float32"),
    ):
        at.ports[1].swaps = broken.get("swaps", True)
        at.ports[1].about = about_of(at.policies.model, **broken)
        with pytest.raises(UserError, match=words):
            engines.sampler(engine, at.policies.model, of.END, **how, rank=2)
    at.ports[1].about = about_of(at.policies.model)
    with pytest.raises(UserError, match="up to rank 512, and a policy has 600"):
        engines.sampler(engine, at.policies.model, of.END, **how, rank=600)


def test_adapters_that_vllm_refuses_are_a_sentence(serving, tmp_path):
    at = serving(1, **SMALL)
    with pytest.raises(
        ValueError, match=r"does not take the adapters .*/gone \(404: .*No adapter found.*docs/engines.md"
    ):
        at.engine.servers[0].swap([tmp_path / "gone"], 0)
    at.ports[0].adapters.llm.settings["max_lora_rank"] = 1
    with pytest.raises(ValueError, match=r"\(500: LoRA rank 2 is greater than max_lora_rank 1"):
        asked(EngineSampler(at.policies.model, of.END, at.engine))


def test_servers_that_a_run_starts_are_told_to_hold_adapters(monkeypatch, serving, tmp_path):
    at = serving(**SMALL)
    begun = []

    def started(folder, n, options, work, devices=()):
        begun.append((n, options))
        return [(server, None) for server in at.engine.servers]

    monkeypatch.setattr(engines, "started", started)
    monkeypatch.setattr(engines, "find_spec", lambda name: True)
    how = dict(folder=tmp_path / "model", work=tmp_path / "w", max_length=64, dtype="float32", memory=0.1, samplers=2)
    source = engines.sampler("vllm", at.policies.model, of.END, **how, policies=BOTH, rank=2)
    asked(source)
    ((n, options),) = begun
    flags = vllm_engine.command(tmp_path, 1, options)
    assert n == 2 and {"--enable-lora", "--max-loras=2", "--max-lora-rank=8", "--max-cpu-loras=2"} <= set(flags)
    assert vllm_engine.environment(options)["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    use(at.policies.model, None)
    engines.sampler("vllm", at.policies.model, of.END, **how, rank=2)
    _, plain = begun[1]
    assert "enable_lora" not in plain, "one policy: whole weights, as ever"
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in vllm_engine.environment(plain)


@pytest.mark.engine
@pytest.mark.skipif(
    find_spec("vllm") is None, reason="vLLM is not installed here: `make engine-cpu` installs its CPU build"
)
def test_a_real_server(tmp_path):
    """Started by the stage's own function: every policy says what the learner says, of what has changed alone it is told,
    and another base is refused."""
    policies, whole = of.team(tmp_path / "model")
    options = vllm_engine.settings(max_length=128, memory=0.25, rank=2, policies=2)
    ((server, child),) = engines.started(tmp_path / "model", 1, options, tmp_path / "work")
    try:
        engine = engines._together([server], policies.model, "float32", 128, BOTH, 2)
        of.speaks(policies, EngineSampler(policies.model, of.END, engine), engine, whole)
        names = [m["id"] for m in server._ask("/v1/models")["data"] if m["parent"]]
        assert sorted(name.split("-")[0] for name in names) == ["one", "other"]
        with torch.no_grad():
            policies.model.get_input_embeddings().weight.mul_(1.5)
        with pytest.raises(ValueError, match="has another base than the policies"):
            engine.load(policies.model, 3)
    finally:
        end_group(child.pid)
        child.wait()
