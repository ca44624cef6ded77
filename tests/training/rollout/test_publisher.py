"""Weights that reach servers by each transport: the same bytes, the same checks, and a sentence where they would not arrive. Without a
GPU gloo stands in for NCCL and shared memory of the CPU for CUDA's handles; all other code is the same. The last test needs a GPU."""

import copy
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import yaml
from ports import free_port
from weight_server import server as stand_in

from synth.types import Sampling
from tasks.core.errors import UserError
from tasks.models import engines
from tasks.planning import plan
from tasks.planning.places import TRANSPORTS
from tasks.runtime.process import end_group
from training.model.model import save_model
from training.rollout import transport, vllm_worker
from training.rollout.engine import EngineSampler, WrongVersion
from training.rollout.publisher import Publisher
from training.rollout.servers import AFTER, SUPPORTED, Servers
from training.rollout.transport import token_digest
from training.rollout.vllm_engine import Sent, Server, settings

END = tiny.tokenizer().eos_token_id
ROOT = Path(__file__).resolve().parents[3]


def shaken(seed):
    """A small model with weights that no other seed has."""
    model = tiny.build()
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    return model


@pytest.fixture
def folder(tmp_path):
    save_model(tiny.build(), tiny.tokenizer(), tmp_path / "model")
    return tmp_path / "model"


@contextmanager
def serving(*stands):
    for s in stands:
        threading.Thread(target=s.serve_forever, daemon=True).start()
    try:
        yield [f"http://127.0.0.1:{s.server_port}" for s in stands]
    finally:
        for s in stands:
            s.shutdown()
            s.server_close()


def engine_of(urls, place, by, **more):
    """Servers behind one publisher, as tasks/models/engines.py puts them together."""
    servers = [Server(u, place / "weights", patience=0.0) for u in urls]
    publisher = Publisher(by, "cpu", place / "weights", **{"backend": "gloo", "limit": 5.0, "bucket": 4096, **more})
    source = Servers(servers, publisher=publisher)
    publisher.fit(servers)
    return source


def said(model, engine, version=0):
    source = EngineSampler(model, END, engine, version)
    return [
        s.ids.tolist()
        for s in source.open([np.array([1, 2, 3 + i]) for i in range(4)], range(4)).generate(Sampling(max_tokens=6))
    ]


@pytest.mark.parametrize("by", TRANSPORTS)
def test_the_same_bytes_arrive_by_every_transport(folder, tmp_path, by):
    """Two servers, one of two workers, and three versions: each worker has each weight, bit for bit, and samples follow them."""
    stands = stand_in(folder, END), stand_in(folder, END, workers=2)
    with serving(*stands) as urls:
        engine = engine_of(urls, tmp_path, by)
        for version in range(3):
            model = shaken(version)
            first = said(model, engine, version)
            want = model.state_dict()
            for worker in [w for s in stands for w in s.workers]:
                assert worker.came.keys() == want.keys() >= {"lm_head.weight", "model.embed_tokens.weight"}
                for name, t in want.items():
                    assert worker.came[name].dtype == t.dtype and torch.equal(worker.came[name], t), name
                assert worker.begun == version + 1
            assert engine.version() == version
        plain = engine_of(urls, tmp_path, "disk")
        assert said(model, plain, version) == first
        engine.publisher.leave()


def test_weights_of_every_type_are_the_same_in_buckets_of_any_size():
    torch.manual_seed(1)
    kinds = (torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool)
    weights = {f"w{i}": (torch.randn(3, 5 + i) * 9).to(k) for i, k in enumerate(kinds)}
    weights |= {
        "none": torch.zeros(0, 4),
        "one": torch.tensor(2.5),
        "view": torch.randn(8, 9).T[1:, ::2],
        "large": torch.randn(99, 99),
    }
    for size in (1, 64, 1000, 1 << 20):
        parts = list(transport.buckets(transport.entries_of(weights), size))
        assert [e[0] for part in parts for e in part] == list(weights)
        held = [sum(transport._room(transport._size(e)) for e in part) for part in parts]
        assert all(n <= size or len(part) == 1 for n, part in zip(held, parts, strict=True))
        got = {}
        with two(size) as (mine, theirs):
            take = lambda theirs=theirs, got=got: got.update(theirs.received(transport.entries_of(weights)))  # noqa: E731
            beside = threading.Thread(target=take)
            beside.start()
            mine.send(weights)
            beside.join(10)
        for name, t in weights.items():
            assert got[name].dtype == t.dtype and got[name].shape == t.shape and torch.equal(got[name], t)
        assert transport.checksum(got) == transport.checksum(dict(reversed(weights.items())))
    opened = dict(transport.opened(transport.handles(weights), "cpu"))
    assert transport.checksum(opened) == transport.checksum(weights)


@contextmanager
def two(bucket=1 << 20, limit=5.0):
    """A learner and a worker of one group, in this process."""
    listener = transport.listening("127.0.0.1")
    at = listener.getsockname()
    assert at[0] == "127.0.0.1", "others cannot reach it"
    groups = {}
    join = lambda rank, **more: groups.update(
        {rank: transport.Group(at, rank, 2, "gloo", "cpu", limit, bucket, **more)}
    )  # noqa: E731
    beside = threading.Thread(target=join, args=(1,))
    beside.start()
    join(0, listener=listener)
    beside.join(10)
    try:
        yield groups[0], groups[1]
    finally:
        groups[0].close()
        groups[1].close()


@pytest.mark.parametrize("bit", [0, 7, 2047])
def test_a_checksum_sees_every_bit_name_shape_and_order(bit):
    torch.manual_seed(2)
    weights = {"a": torch.randn(8, 8), "b": torch.randn(3, dtype=torch.float64).to(torch.bfloat16)}
    was = transport.checksum(weights)
    other = weights["a"].clone()
    other.view(torch.uint8).view(-1)[bit // 8] ^= 1 << bit % 8
    swapped = weights["a"].flip(0)
    changed = [{**weights, "a": other}, {**weights, "a": swapped}, {**weights, "a": weights["a"].view(4, 16)}]
    changed += [
        {"c": weights["a"], "b": weights["b"]},
        {"a": weights["a"]},
        {**weights, "b": weights["b"].view(torch.float16)},
    ]
    assert (
        len({was, *map(transport.checksum, changed)}) == 7
        and transport.checksum({k: t.clone() for k, t in weights.items()}) == was
    )


@pytest.mark.parametrize("by", TRANSPORTS)
def test_other_bytes_than_were_sent_are_refused_before_a_request(folder, tmp_path, by, monkeypatch):
    stand = stand_in(folder, END)
    with serving(stand) as urls:
        engine = engine_of(urls, tmp_path, by)
        monkeypatch.setattr(Sent, "of", classmethod(lambda cls, weights: Sent("0" * 32, "float32")))
        with pytest.raises(
            ValueError, match=r"holds other weights than it was sent \(checksum [0-9a-f]{32} .*000 of float32"
        ):
            said(shaken(1), engine)
        assert stand.workers[0].espalier_held is None and not stand.asked
        engine.publisher.leave()
        monkeypatch.undo()
        stand.workers[0].model_config.dtype = torch.bfloat16
        with pytest.raises(ValueError, match="of a bfloat16 model"):
            said(shaken(1), engine_of(urls, tmp_path, by))
        assert not stand.asked
        engine.publisher.leave()


@pytest.mark.parametrize("by", TRANSPORTS)
def test_a_server_that_computes_something_else_is_refused_before_a_request(folder, tmp_path, by):
    stand = stand_in(folder, END)
    with serving(stand) as urls:
        engine = engine_of(urls, tmp_path, by)
        stand.workers[0].rank, stand.adapters.llm.model = 0, shaken(9)  # answers by another model than it loads into
        with pytest.raises(ValueError, match="computes something else than the learner: .* nats from the learner's"):
            said(shaken(1), engine)
        assert not stand.asked
        engine.publisher.leave()


def test_another_version_than_was_published_stops_the_run(folder, tmp_path):
    stand = stand_in(folder, END)
    with serving(stand) as urls:
        engine = engine_of(urls, tmp_path, "nccl")
        said(shaken(1), engine)
        stand.workers[0].espalier_held += 1
        with pytest.raises(WrongVersion, match="the weights of version 1, and those of version 0 were pushed"):
            source = EngineSampler(shaken(1), END, engine)
            source.held = 0
            source.open([np.array([1])], [1]).generate(Sampling())
        engine.publisher.leave()


def test_a_single_server_is_asked_for_its_tokens_and_what_it_computes(folder, tmp_path):
    """With the transport disk too, and before anything is sampled."""
    model = shaken(1)
    how = {"work": tmp_path / "w", "max_length": 64, "dtype": "float32", "memory": 0.1}
    with serving(stand := stand_in(folder, END)) as urls:
        stand.release = "0.33.0"
        with pytest.raises(
            UserError, match=r"runs vLLM 0\.33\.0, and this version of espalier works with 0\.32: install"
        ):
            engines.sampler(urls[0], model, END, folder=folder, **how)
        stand.release = "0.32.3"
        source = engines.sampler(urls[0], model, END, folder=folder, **how)
        worker = stand.workers[0]
        worker.espalier_tokens = token_digest(tiny.tokenizer())
        engines.sampler(urls[0], model, END, folder=folder, **how)
        more = copy.deepcopy(tiny.tokenizer())
        more.add_tokens(["<another>"])
        worker.espalier_tokens, right = token_digest(more), worker.espalier_tokens
        with pytest.raises(UserError, match=rf"{urls[0]} has another tokenizer than the policy.*--tokenizer"):
            engines.sampler(urls[0], model, END, folder=folder, **how)
        worker.espalier_tokens = right
        stand.adapters.llm.model = shaken(9)  # answers by another model than it loads into
        with pytest.raises(ValueError, match="computes something else than the learner"):
            source.open([np.array([1, 2])], [0]).generate(Sampling(max_tokens=2))
        assert not stand.asked


@contextmanager
def apart(folder, ends, device="cpu"):
    """A server in a process of its own, which ends amid the weights."""
    how = [str(port := free_port()), str(folder), str(ends), device]
    start = [sys.executable, "-m", "tests.support.weight_server", *how]
    child = subprocess.Popen(start, cwd=ROOT, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not Server(url := f"http://127.0.0.1:{port}", folder).answers():
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.1)
        yield url, child
    finally:
        end_group(child.pid)
        child.wait()


def test_a_server_that_is_killed_amid_the_weights_is_left_out_and_the_others_get_them_by_disk(folder, tmp_path, capsys):
    with serving(stand_in(folder, END)) as urls, apart(folder, 3) as (killed, child):
        engine, model = engine_of([*urls, killed], tmp_path, "nccl"), shaken(1)
        began = time.monotonic()
        ids = said(model, engine)
        assert time.monotonic() - began < 15 and child.wait(5) == -signal.SIGKILL
        told = capsys.readouterr().err
        assert "version 0 did not reach all servers by nccl" in told and "it goes by disk" in told
        assert f"{killed} does not answer: it is left out until the next weights" in told
        assert engine.version() == 0 and [s.url for s in engine._live] == urls
        assert not list((tmp_path / "weights").iterdir())
        said(shaken(2), engine, 1)
        assert "by nccl" not in capsys.readouterr().err and engine.publisher._group.size == 2, "the next in a new group"
        assert said(model, engine_of(urls, tmp_path, "disk"), 2) == ids
        engine.publisher.leave()


def test_a_server_that_does_not_take_a_bucket_is_waited_for_no_longer_than_the_limit(folder, tmp_path, capsys):
    stand = stand_in(folder, END, ends=-3)
    with serving(stand) as urls:
        began = time.monotonic()
        said(shaken(1), engine_of(urls, tmp_path, "nccl", limit=1.0))
        assert time.monotonic() - began < 15 and stand.workers[0].begun == 2
        assert "the workers of the servers did not take" in capsys.readouterr().err


def test_a_learner_that_dies_leaves_no_worker_that_waits():
    with two(limit=1.0) as (mine, theirs):
        entries, began = [["a", "float32", [4]]], time.monotonic()
        with pytest.raises(TimeoutError, match="the learner did not send 16 bytes of weights in 1 s"):
            list(theirs.received(entries))
        assert time.monotonic() - began < 5 and mine.alive()
        mine.close()
        assert not theirs.alive()
        with pytest.raises(RuntimeError):
            list(theirs.received(entries))


def test_nobody_at_the_meeting_point_is_said_in_time():
    listener = transport.listening("127.0.0.1")
    with pytest.raises((TimeoutError, RuntimeError)):
        transport.Group(listener.getsockname(), 0, 2, "gloo", "cpu", 0.5, listener=listener)


REFUSED = {
    "an older extension": ({"copies": ...}, "nccl", "start it with the worker extension of this version"),
    "copies": ({"copies": 2}, "nccl", r"holds 2 copies of the model \(--data-parallel-size\)"),
    "workers": ({"workers": 4}, "nccl", r"has 4 workers \(--tensor-parallel-size\) and 1 of them answer"),
    "no CUDA there": ({"device": "cpu"}, "nccl", "computes on cpu, where nccl would bring nothing: start it on CUDA"),
    "another torch": (
        {"libraries": {"torch": "1.0", "nccl": "2"}},
        "nccl",
        "runs with torch 1.0, and the learner with 2",
    ),
    "another NCCL": ({"libraries": {"torch": "2", "nccl": "1"}}, "ipc", "runs with nccl 1, and the learner with 2"),
    "one device": (
        {"device_id": "mine"},
        "nccl",
        "is on the device of the learner, and NCCL takes one rank of a device",
    ),
    "another device": ({}, "ipc", r"is on another device than the learner \(here theirs, not here mine\)"),
    "another host": (
        {"machine": "there", "device_id": "mine"},
        "ipc",
        r"\(there mine, not here mine\), whose memory it cannot see",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_server_that_weights_would_not_reach_is_refused_before_anything_is_sent(tmp_path, what, monkeypatch):
    changes, by, sentence = REFUSED[what]
    good = {"machine": "here", "device": "cuda", "device_id": "theirs", "workers": 1, "copies": 1}
    about = {**good, "libraries": {"torch": "2", "nccl": "2"}, **changes}
    about = {k: v for k, v in about.items() if v is not ...}
    here = {"machine": "here", "device_id": "mine", "libraries": {"torch": "2", "nccl": "2"}}
    monkeypatch.setattr("training.rollout.publisher._here", lambda device: here)
    server = Server("http://one", tmp_path, run=7)
    server.workers_about = lambda: [about]
    with pytest.raises((ValueError, WrongVersion), match=f"the server http://one.*{sentence}|{sentence}"):
        Publisher(by, "cuda:0", tmp_path).fit([server])
    about.update({**good, "libraries": here["libraries"], "device_id": "mine" if by == "ipc" else "theirs"})
    Publisher(by, "cuda:0", tmp_path).fit([server])


def test_two_servers_of_one_device_and_a_learner_without_cuda_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="nccl needs a learner on CUDA, and this one is on cpu: set rl.device=cuda"):
        Publisher("nccl", "cpu", tmp_path).fit([])
    here = {"machine": "here", "device_id": "mine", "libraries": {}}
    monkeypatch.setattr("training.rollout.publisher._here", lambda device: here)
    servers = [Server(f"http://{n}", tmp_path) for n in ("one", "two")]
    about = {**here, "device": "cuda", "device_id": "theirs", "workers": 1, "copies": 1}
    for s in servers:
        s.workers_about = lambda: [about]
    with pytest.raises(
        ValueError, match="http://two is on the device of the server http://one, and NCCL takes one rank"
    ):
        Publisher("nccl", "cuda:0", tmp_path).fit(servers)


def test_a_run_that_is_in_a_group_with_a_server_keeps_others_away_until_it_is_gone(folder, tmp_path, monkeypatch):
    """However long its learner does not ask: `SILENT` is for transports by which a server cannot know."""
    monkeypatch.setattr(vllm_worker, "SILENT", 1e-9)
    with serving(stand_in(folder, END)) as urls:
        engine, model = engine_of(urls, tmp_path, "nccl"), shaken(1)
        said(model, engine)
        other = [Server(urls[0], tmp_path / "other")]
        publisher = Publisher("nccl", "cpu", tmp_path, backend="gloo")
        with pytest.raises(
            UserError, match=rf"rl\.engine: another run publishes to .*{tmp_path}/weights, heard 0 s ago"
        ):
            engines._together(other, model, "float32", 64, publisher=publisher)
        monkeypatch.setattr(vllm_worker, "SILENT", 1000.0)
        engine.publisher.leave()
        engines._together(other, model, "float32", 64, publisher=publisher)


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"transport": "ncl"}, "rl.transport is ncl: did you mean 'nccl'? (valid: disk, ipc, nccl)"),
        ({"transport": 1}, "params.yaml: set.rl.transport must be str, not 1"),
        ({"engine": {"name": "torch"}}, "the engine torch is in the learner's process, where nothing travels"),
        ({"engine": {"name": "vllm"}}, "the engine vllm is in the learner's process, where nothing travels"),
        (
            {"device": "cpu"},
            "the learner is on cpu, from where NCCL and CUDA handles bring nothing: set rl.device=cuda",
        ),
        (
            {"policies": {"one": {}, "other": {}}},
            "of rl.policies adapters alone are published, which vLLM reads as files",
        ),
        (
            {"transport": "ipc", "engine": {"name": "vllm"}, "samplers": 2},
            "servers that the stage starts have devices of their own",
        ),
    ],
)
def test_a_transport_that_would_bring_nothing_is_refused_by_the_plan(tmp_path, monkeypatch, knobs, sentence):
    monkeypatch.chdir(tmp_path)
    good = {"transport": "nccl", "device": "cuda", "engine": {"name": "http://127.0.0.1:8000"}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"set": {"rl": {**good, **knobs}}}))
    with pytest.raises(UserError) as e:
        plan.plans(tmp_path)
    assert sentence in str(e.value)


def test_the_version_of_vllm_is_the_one_that_is_installed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["vllm"] == [f"vllm>={SUPPORTED},<{AFTER}"]


def test_a_transport_is_a_place_and_changes_no_plan_of_a_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rl = {"device": "cuda", "engine": {"name": "http://127.0.0.1:8000"}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"set": {"rl": rl}}))
    before = plan.plans(tmp_path)
    for by in TRANSPORTS:
        (tmp_path / "params.yaml").write_text(yaml.safe_dump({"set": {"rl": {**rl, "transport": by}}}))
        now = plan.plans(tmp_path)
        assert now["rl"] == before["rl"] and callable(getattr(Publisher, by))
        assert now["_run"].get("place", {}).get("rl", {}).get("transport", "disk") == by


@pytest.mark.engine
@pytest.mark.skipif(
    find_spec("vllm") is None, reason="vLLM is not installed here: `make engine-cpu` installs its CPU build"
)
def test_real_servers_take_weights_by_every_transport_and_after_a_reload_that_was_cut_short(
    tmp_path, monkeypatch, capsys
):
    """vLLM's own loading behind each transport: log-probs are the learner's (`Servers` asks), and one of two is killed amid a version."""
    model = tiny.build(hidden=64, heads=2, kv_heads=1)  # vLLM's smallest heads on a CPU
    save_model(model, tiny.tokenizer(), tmp_path / "model")
    pair = engines.started(tmp_path / "model", 2, settings(max_length=128, memory=0.25), tmp_path / "work")
    urls = [server.url for server, _ in pair]
    try:
        ids = {}
        for version, by in enumerate([*TRANSPORTS, "nccl"]):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(torch.randn_like(p) * 0.02)
            engine = engine_of(urls, tmp_path, by)
            ids[by] = said(model, engine, version)
            assert said(model, engine_of(urls, tmp_path, "disk"), version) == ids[by]
            engine._agrees(model, {"": ""})  # raises where they differ, whatever the transport
            if by == "nccl":
                engine.publisher.leave()
        sent, (_, child) = [], pair[1]
        plain = transport.Group._broadcast

        def broadcast(group, data, lost=lambda: None):
            sent.append(len(data))
            if len(sent) == 4:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            plain(group, data, lost)

        monkeypatch.setattr(transport.Group, "_broadcast", broadcast)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.02)
        engine = engine_of(urls, tmp_path, "nccl")
        said(model, engine, 9)
        told = capsys.readouterr().err
        assert "it goes by disk" in told and "asked once more" not in told, (
            "a reload that was cut short spoils no later one"
        )
        assert [s.url for s in engine._live] == urls[:1]
        engine._agrees(model, {"": ""})
        monkeypatch.setattr(transport.Group, "_broadcast", plain)
        said(model, engine, 10)
        assert "by nccl" not in capsys.readouterr().err
        engine.publisher.leave()
    finally:
        for _, child in pair:
            end_group(child.pid)
            child.wait()


GPUS = [
    pytest.param(n, marks=pytest.mark.skipif(torch.cuda.device_count() < n, reason=f"no CUDA device {n - 1}"))
    for n in (1, 2)
]


@pytest.mark.parametrize("devices", GPUS)
def test_a_gpu_gives_its_weights_to_another_process(devices, folder, tmp_path):
    """With one GPU by ipc, with two by NCCL: nobody has run this yet (docs/engines.md)."""
    by, at = ("ipc", 0) if devices == 1 else ("nccl", 1)
    model = shaken(1).cuda(0)
    with apart(folder, 0, f"cuda:{at}") as (url, _):
        server = Server(url, tmp_path / "weights", patience=0.0)
        publisher = Publisher(by, "cuda:0", tmp_path / "weights", limit=60.0, bucket=1 << 16)
        engine = Servers([server], publisher=publisher)
        publisher.fit([server])
        for version in range(3):
            said(model, engine, version)  # the checksum is that of the learner's bytes, or it raises
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(0.01)
        with pytest.raises(ValueError, match="set rl.transport"):
            Publisher("nccl" if by == "ipc" else "ipc", "cuda:0", tmp_path).fit([server])
        publisher.leave()
