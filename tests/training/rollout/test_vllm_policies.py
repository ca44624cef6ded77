"""Several policies in vLLM: each prompt is answered by its own adapters, in one batch with the others; only adapters that have
changed travel; what is lost comes back whole. The stand-in (tests/support/stand_in_vllm.py) everywhere, vLLM itself where it is
installed."""

import os
from importlib.util import find_spec

import numpy as np
import pytest
import stand_in_vllm
import tiny
import torch

from synth.types import Sampling
from tasks.core.errors import UserError
from tasks.models import engines
from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.learner.policies import Policies
from training.model.lora import use
from training.model.model import save_model
from training.rl.compose import widest
from training.rollout import vllm_engine
from training.rollout.engine import EngineSampler

END = tiny.tokenizer().eos_token_id
PROMPTS = tiny.ids(5, 9, 30, 9, 17)
WHO = ["one", "other", "one", "one", "other"]
ASKED = Sampling(max_tokens=6)


def team(folder, hidden=256, heads=8, kv_heads=4, layers=4):
    """A base in a folder and in memory, with the adapters of two policies of different ranks that are no longer zero."""
    base = tiny.build(seed=1, hidden=hidden, heads=heads, kv_heads=kv_heads, layers=layers, init_range=0.05)
    save_model(base, tiny.tokenizer(), folder)
    whole = sum(p.numel() * p.element_size() for p in base.parameters())
    policies = Policies(base)
    for name, rank in (("one", 1), ("other", 2)):
        policies.create(name, {"rank": rank, "modules": ["q_proj"]}, seed=rank)
        moved(policies, name, rank)
    return policies, whole


@torch.no_grad()
def moved(policies, name, seed):
    for p in policies.named[name].weights.values():
        p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)) * 0.2)


def engine_of(folder):
    return vllm_engine.InProcess(
        folder, vllm_engine.settings(max_length=128, memory=0.25, rank=2, policies=2), ("one", "other")
    )


def gaps(policies, name, prompt, ids, logp):
    """The largest difference of these log-probs [n] to those of a policy."""
    use(policies.model, name)
    whole = np.concatenate([prompt, ids])
    batch = pack([Row(ids=whole, trainable=np.arange(len(whole)) >= len(prompt))])
    with torch.no_grad():
        full = token_stats(policies.model, batch, temperature=1.0).distribution()
    return np.abs(full.gather(1, torch.from_numpy(ids)[:, None])[:, 0].numpy() - logp).max()


def speaks(policies, source, engine, whole):
    """Three versions of the weights; of the last two, one policy alone has changed. Says how far the engine's log-probs were
    from the learner's, and what a push was of the model."""
    sent, far = [], 0.0
    for version, changed in enumerate(("", "one", "other")):
        if changed:
            moved(policies, changed, 10 + version)
        source.version = version
        segments = source.open(PROMPTS, range(5), policies=WHO).generate(ASKED)
        for prompt, name, segment in zip(PROMPTS, WHO, segments, strict=True):
            far = max(far, gaps(policies, name, prompt, segment.ids, segment.logp))
            assert far < 1e-3 and segment.version == version
            assert gaps(policies, {"one": "other", "other": "one"}[name], prompt, segment.ids, segment.logp) > 1e-3
        sent.append(engine.pushed)
        assert engine.pushed <= 0.03 * whole, (engine.pushed, whole)
    assert sent[0] > sent[2] > sent[1] > 0, "both, then the one of rank 1, then the one of rank 2"
    assert engine.version() == 2
    print(f"at most {far:.1e} nats apart; pushes of {', '.join(f'{n / whole:.2%}' for n in sent)}")


def test_each_prompt_is_answered_by_its_policy_and_only_what_changed_travels(monkeypatch, tmp_path):
    stand_in_vllm.put(monkeypatch)
    policies, whole = team(tmp_path / "model")
    engine = engine_of(tmp_path / "model")
    speaks(policies, EngineSampler(policies.model, END, engine), engine, whole)
    (llm,) = stand_in_vllm.LLM.made
    names = [sorted(set(batch)) for batch in llm.batches]
    assert names == [["one-1", "other-2"], ["one-3", "other-2"], ["one-3", "other-4"]], "a batch has the turns of both"
    assert sorted(llm.adapters.values()) == ["one-3", "other-4"], "older ones are gone"


def test_an_engine_that_breaks_is_given_all_adapters_again(monkeypatch, tmp_path, capsys):
    stand_in_vllm.put(monkeypatch)
    policies, _ = team(tmp_path / "model", hidden=64, heads=2, kv_heads=1, layers=1)
    source = EngineSampler(policies.model, END, engine_of(tmp_path / "model"))
    session = source.open(PROMPTS, range(5), policies=WHO)
    session.generate(ASKED)
    stand_in_vllm.LLM.made[0].broken = True
    session.observe([1, 3], tiny.ids(2, 3))
    turns = session.generate(ASKED)
    assert source.lost == [2, 0] and len(stand_in_vllm.LLM.made) == 2 and not session.joins
    assert len(stand_in_vllm.LLM.made[1].adapters) == 2
    for row, segment in zip((1, 3), turns, strict=True):
        before = np.array(session.said[row][: -len(segment.ids)])
        assert gaps(policies, WHO[row], before, segment.ids, segment.logp) < 1e-3


def test_without_names_nothing_has_changed(monkeypatch, tmp_path):
    """A run with `rl.lora` and one policy: one set of adapters, whole batches with it."""
    from training.model.lora import adapt

    stand_in_vllm.put(monkeypatch)
    base = tiny.build(seed=1)
    save_model(base, tiny.tokenizer(), tmp_path / "model")
    adapt(base, {"rank": 2}, seed=3)
    engine = vllm_engine.InProcess(tmp_path / "model", vllm_engine.settings(max_length=64, rank=2))
    source = EngineSampler(base, END, engine)
    for version in (0, 1):
        source.version = version
        source.open(PROMPTS[:2], [1, 2]).generate(ASKED)
    (llm,) = stand_in_vllm.LLM.made
    assert llm.settings["max_loras"] == 1 and llm.batches == [["default-1"] * 2] * 2
    assert engine.pushed == 0, "the adapters have not changed"


def test_mistakes_are_sentences(monkeypatch, tmp_path):
    stand_in_vllm.put(monkeypatch)
    policies, _ = team(tmp_path / "model", hidden=64, heads=2, kv_heads=1, layers=1)
    source = EngineSampler(policies.model, END, engine_of(tmp_path / "model"))
    with pytest.raises(ValueError, match="no adapters of a policy 'third'"):
        source.open(PROMPTS[:1], [1], policies=["third"]).generate(ASKED)
    assert widest({"a": {"lora": {"rank": 600}}, "b": {}, "c": {"lora": {"rank": "x"}}}, {"rank": 4}) == 600
    with pytest.raises(ValueError, match="adapters up to rank 512, and a policy has 600: set a lower lora.rank"):
        vllm_engine.settings(max_length=8, rank=600, policies=2)
    how = dict(folder=tmp_path, work=tmp_path, max_length=64, dtype="float32", memory=0.1, policies=("one", "other"))
    monkeypatch.setattr(engines, "find_spec", lambda name: True)
    with pytest.raises(UserError, match="up to rank 512, and a policy has 600.*or engine.name=torch"):
        engines.sampler("vllm", policies.model, END, **how, rank=600)
    with pytest.raises(
        UserError, match="at most the 256 positions of this model, and a conversation may have 512 tokens"
    ):
        engines.sampler("vllm", policies.model, END, **{**how, "max_length": 512}, rank=2)
    sampler = engines.sampler("vllm", policies.model, END, **how, rank=2)
    assert sampler.engine.policies == ("one", "other") and sampler.engine.settings["max_loras"] == 2


missing = find_spec("vllm") is None


@pytest.mark.engine
@pytest.mark.skipif(missing, reason="vLLM is not installed here: `make engine-cpu` installs its CPU build")
def test_vllm_itself(tmp_path):
    for name, value in vllm_engine.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    policies, whole = team(tmp_path / "model")
    engine = engine_of(tmp_path / "model")
    try:
        speaks(policies, EngineSampler(policies.model, END, engine), engine, whole)
    finally:
        engine.close()
