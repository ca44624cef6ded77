"""Several vLLM servers as one engine: who is asked, who is left out, and who comes back. The servers are stand-ins of
this process that answer as vLLM does; the last test starts two real ones, where vLLM is installed."""

import os
import signal
import threading
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest
import tiny
from stub_server import stub

from synth.types import Sampling
from tasks.core.errors import UserError, sentence
from tasks.models import engines
from tasks.runtime.process import end_group
from training.model.model import save_model
from training.rollout import servers as routing
from training.rollout import vllm_worker
from training.rollout.engine import EngineLost, EngineSampler, WrongVersion
from training.rollout.servers import Servers, agree
from training.rollout.vllm_engine import Server, settings

END = tiny.tokenizer().eos_token_id
ABOUT = {"dtype": "float32", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "max_model_len": 128}


@pytest.fixture
def three(tmp_path):
    """Three servers, and the engine that they are together."""
    ports = [stub(END, ABOUT, model=tiny.build()) for _ in range(3)]
    for port in ports:
        threading.Thread(target=port.serve_forever, daemon=True).start()
    yield ports, Servers([Server(f"http://127.0.0.1:{p.server_port}", tmp_path, patience=0.0) for p in ports])
    for port in ports:
        port.shutdown()
        port.server_close()


def sampler(engine):
    return EngineSampler(tiny.build(), END, engine)


def prompts(n):
    return [np.array([1, 2, 3 + i]) for i in range(n)]


def test_new_conversations_are_shared_out_and_stay_where_they_began(three):
    ports, engine = three
    source = sampler(engine)
    session = source.open(prompts(12), range(12))
    session.generate(Sampling())
    assert [len(p.asked) for p in ports] == [4, 4, 4] and [p.loads for p in ports] == [1, 1, 1]
    began = [{prompt[:3] for prompt, _ in p.asked} for p in ports]
    for p in ports:
        p.asked.clear()
    session.observe([0, 3, 5, 6, 11], [np.array([9])] * 5)
    session.generate(Sampling())
    assert sum(len(p.asked) for p in ports) == 5
    for p, mine in zip(ports, began, strict=True):
        assert {prompt[:3] for prompt, _ in p.asked} <= mine, "a turn is asked where the earlier ones are cached"


def test_samples_of_one_prompt_share_a_server_within_limits(three):
    ports, engine = three
    same = [np.array([1, 2, 3])] * (routing.SLACK + 1)
    sampler(engine).open([*same, *prompts(4)[1:]], range(len(same) + 3)).generate(Sampling())
    where = [Counter(prompt for prompt, _ in p.asked)[1, 2, 3] for p in ports]
    assert sorted(where) == [0, 0, routing.SLACK + 1], "its cache reads the prompt once"
    for p in ports:
        p.asked.clear()
    many = [np.array([1, 2, 3])] * 60
    sampler(engine).open(many, range(60)).generate(Sampling())
    where = [len(p.asked) for p in ports]
    assert max(where) - min(where) <= routing.SLACK + 1 and min(where) > 0, "not all others wait for one"


def test_a_servers_turns_are_asked_elsewhere_with_their_seeds(three, capsys):
    ports, engine = three
    source = sampler(engine)
    want = [s.ids.tolist() for s in source.open(prompts(12), range(12)).generate(Sampling())]
    for p in ports:
        p.asked.clear()
    ports[1].dies_at = 2
    turns = source.open(prompts(12), range(12)).generate(Sampling())
    assert [s.ids.tolist() for s in turns] == want and source.lost == [0, 0], "nothing is lost, and nothing differs"
    assert len(ports[0].asked) + len(ports[2].asked) == 10
    stderr = capsys.readouterr().err
    assert f"127.0.0.1:{ports[1].server_port}" in stderr and stderr.count("left out until the next weights") == 1


def test_a_server_that_is_back_gets_the_weights_before_it_is_asked(three):
    ports, engine = three
    source = sampler(engine)
    ports[1].gone = True
    source.open(prompts(6), range(6)).generate(Sampling())
    ports[1].gone = False
    source.open(prompts(6), range(6)).generate(Sampling())
    assert [len(p.asked) for p in ports] == [6, 0, 6], "not with weights that nobody has given it"
    source.version = 1
    source.open(prompts(6), range(6)).generate(Sampling())
    assert [len(p.asked) for p in ports] == [8, 2, 8] and ports[1].held == ports[0].held


def test_all_gone_is_a_lost_engine_and_some_back_go_on(three, capsys):
    ports, engine = three
    source = sampler(engine)
    source.open(prompts(3), range(3)).generate(Sampling())
    for p in ports:
        p.gone = True
    turns = source.open(prompts(3), range(3)).generate(Sampling())
    assert [s.stop for s in turns] == ["lost"] * 3 and "none of the 3 servers" in capsys.readouterr().err
    ports[2].gone = False
    turns = source.open(prompts(3), range(3)).generate(Sampling())
    assert [s.stop for s in turns] == ["end"] * 3 and ports[2].loads == 2, "it was given the weights once more"


def test_other_weights_stop_the_run(three):
    """Of another run, of another version, and of a model that computes something else from the same weights."""
    ports, engine = three
    source = sampler(engine)
    source.open(prompts(3), range(3)).generate(Sampling())
    mine = ports[1].held
    ports[1].held = 3  # as another run, with another number, has version 3
    with pytest.raises(WrongVersion, match=f"{ports[1].server_port} has weights of another run"):
        source.open(prompts(3), range(3)).generate(Sampling())
    ports[1].held = mine + 1
    with pytest.raises(WrongVersion, match="weights of different versions"):
        source.open(prompts(3), range(3)).generate(Sampling())
    ports[1].held, ports[1].logp, source.version = mine, -1.1, 1
    with pytest.raises(ValueError, match="differ after they read the same weights"):
        source.open(prompts(3), range(3)).generate(Sampling())


def test_servers_that_agree_with_each_other_alone_stop_the_run(three):
    ports, engine = three
    source = sampler(engine)
    source.open(prompts(3), range(3)).generate(Sampling())
    for port in ports:
        port.logp = -1.1
    source.version = 1
    with pytest.raises(ValueError, match="computes something else than the learner: .* up to 0.1000 nats"):
        source.open(prompts(3), range(3)).generate(Sampling())


def test_servers_that_do_not_fit_are_refused_before_anything_is_sampled(three, capsys):
    ports, engine = three
    wanted = {k: v for k, v in ABOUT.items() if k != "max_model_len"}
    agree(engine.servers, wanted, 128)
    with pytest.raises(ValueError, match="takes conversations of 128 tokens, and the stage has up to 129"):
        agree(engine.servers, wanted, 129)
    ports[1].about["dtype"] = "bfloat16"
    with pytest.raises(ValueError, match=f"{ports[1].server_port} runs a model with dtype bfloat16"):
        agree(engine.servers, wanted, 128)
    ports[1].about = {**ABOUT, "vocab_size": 65}
    with pytest.raises(ValueError, match="vocab_size 65, and the policy has 64"):
        agree(engine.servers, wanted, 128)
    ports[1].about, ports[2].release = ABOUT, "0.32.1"
    with pytest.raises(ValueError, match="different versions of vLLM"):
        agree(engine.servers, wanted, 128)
    ports[2].release = "0.33.0"
    with pytest.raises(ValueError, match=rf"{ports[2].server_port} runs vLLM 0\.33\.0"):
        agree(engine.servers, wanted, 128)
    ports[1].about = {**ABOUT, "tokenizer": "another"}
    with pytest.raises(ValueError, match=rf"{ports[1].server_port} has another tokenizer than the policy"):
        agree(engine.servers, wanted, 128, tokenizer="mine")
    assert f"{ports[0].server_port} does not say which tokens it has" in capsys.readouterr().err
    ports[2].gone = True
    with pytest.raises(EngineLost, match="did not come back in 0 s"):
        agree(engine.servers, wanted, 128)


def test_a_server_is_of_one_run_until_that_run_ends_or_is_not_heard(three, tmp_path, monkeypatch):
    ports, engine = three
    wanted = {k: v for k, v in ABOUT.items() if k != "max_model_len"}
    mine, url = engine.servers, engine.servers[1].url
    other = [Server(s.url, tmp_path / "other", patience=0.0) for s in mine]
    agree(mine[1:2], wanted, 128)
    with pytest.raises(
        WrongVersion, match=rf"another run publishes to the server {url} now: that of .*:{tmp_path}, heard 0 s"
    ):
        agree(other, wanted, 128)
    agree([Server(mine[0].url, tmp_path / "a third")], wanted, 128)  # which `other` has left again
    with pytest.raises(WrongVersion, match="another run publishes to"):
        mine[0].load(tiny.build(), 0)
    ports[0].worker.espalier_holder = None
    source = sampler(engine)
    source.open(prompts(3), range(3)).generate(Sampling())  # the other did not touch what this run has
    again = [Server(s.url, tmp_path, patience=0.0) for s in mine]
    agree(again, wanted, 128)  # it was killed and begins again
    assert again[0].run != mine[0].run and again[0].run == again[1].run
    again[0].free()
    agree(other[:1], wanted, 128)
    again[1].load(tiny.build(), 0)
    for port in ports:
        run, who, heard = port.worker.espalier_holder
        port.worker.espalier_holder = run, who, heard - vllm_worker.SILENT / 2
    again[1].version()
    for port in ports:
        run, who, heard = port.worker.espalier_holder
        port.worker.espalier_holder = run, who, heard - vllm_worker.SILENT / 2 - 10
    with pytest.raises(WrongVersion):
        agree(other[1:2], wanted, 128)  # a run that asks for its version is heard
    agree(other[2:], wanted, 128)
    with pytest.raises(WrongVersion) as e:
        again[2].load(tiny.build(), 1)
    assert sentence("rl", e.value).startswith("rl: another run publishes to")


def test_a_server_that_does_not_say_which_run_holds_it_is_refused(three, monkeypatch):
    ports, engine = three
    about = engine.servers[0].about()
    monkeypatch.setattr(engine.servers[0], "about", lambda: {k: v for k, v in about.items() if k != "holder"})
    with pytest.raises(ValueError, match="start it with the worker extension of this version"):
        agree(engine.servers, {}, 128)


def test_all_servers_together_are_waited_for_and_then_given_up(three):
    ports, engine = three
    for p in ports[1:]:
        p.gone = True
    engine.revive()
    ports[0].gone = True
    with pytest.raises(EngineLost, match="none of the 3 servers answers, and did not come back in 0 s"):
        engine.revive()


def test_the_knob_takes_several_urls(three, tmp_path):
    ports, _ = three
    model = tiny.build()
    for p in ports:
        sizes = {k: getattr(model.config, k) for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
        p.about = {**ABOUT, **sizes}
    urls = ",".join(f"http://127.0.0.1:{p.server_port}/v1" for p in ports)
    save_model(model, tiny.tokenizer(), tmp_path / "model")
    how = {"folder": tmp_path / "model", "work": tmp_path / "w", "max_length": 64, "dtype": "float32", "memory": 0.1}
    source = engines.sampler(urls, model, END, **how)
    source.open(prompts(6), range(6)).generate(Sampling())
    assert [len(p.asked) for p in ports] == [2, 2, 2]
    with pytest.raises(UserError, match="names a server twice"):
        engines.sampler(f"{urls},http://127.0.0.1:{ports[0].server_port}", model, END, **how)
    ports[0].about["hidden_size"] = 7
    with pytest.raises(UserError, match=r"rl\.engine: the server .* hidden_size 7"):
        engines.sampler(urls, model, END, **how)


@pytest.mark.engine
@pytest.mark.skipif(
    find_spec("vllm") is None, reason="vLLM is not installed here: `make engine-cpu` installs its CPU build"
)
def test_two_real_servers_of_which_one_is_killed(tmp_path):
    """Started by the stage's own function: the killed one's turns come from the other, with the same ids."""
    model = tiny.build(hidden=64, heads=2, kv_heads=1)  # vLLM's smallest heads on a CPU
    save_model(model, tiny.tokenizer(), tmp_path / "model")
    options = settings(max_length=128, memory=0.25)
    (one, killed), (other, _) = pair = engines.started(tmp_path / "model", 2, options, tmp_path / "work")
    try:
        source = EngineSampler(model, END, engine := engines._together([one, other], model, "float32", 128))
        sampling = Sampling(temperature=1.0, max_tokens=8)
        session = source.open(prompts(6), range(6))
        first = session.generate(sampling)
        assert len(set(engine._home.values())) == 2 and all(s.stop != "lost" for s in first)
        want = [s.ids.tolist() for s in source.open(prompts(6), range(6, 12)).generate(sampling)]
        os.killpg(killed.pid, signal.SIGKILL)
        again = source.open(prompts(6), range(6, 12)).generate(sampling)
        assert [s.ids.tolist() for s in again] == want and source.lost == [0, 0]
        assert [s.url for s in engine._live] == [other.url]
    finally:
        for _, child in pair:
            end_group(child.pid)
            child.wait()
