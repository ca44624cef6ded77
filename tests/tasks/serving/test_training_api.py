"""`espalier serve --training`: loops against the client give the weights of the project's own steps, clients do not see
each other, and one that dies leaves nothing behind."""

import copy
import json
import subprocess
import sys
import threading
import time

import exported
import foreign
import numpy as np
import pytest
from ports import free_port
import torch
import uvicorn

from flows import cli
from tasks.core import local
from tasks.serving.training_api import SNAPSHOTS, Trainer, guarded
from tasks.serving.training_client import (
    AdamParams,
    Datum,
    ModelInput,
    SamplingParams,
    ServiceClient,
    TrainingApiError,
)
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.lora import adapt
from training.model.model import save_model
from training.model.render import Renderer
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.ratio.token import token

KEY = "k" * 43
LORA = {"rank": 4}
OPTIM = Optim(lr=1e-2, warmup=0, decay="constant", weight_decay=0.01, max_grad_norm=1.0)
ADAM = AdamParams(learning_rate=1e-2, eps=1e-8, weight_decay=0.01, grad_clip_norm=1.0)
# Of weights after three steps of 1e-2: Adam divides rounding by rounding where a gradient is near 0.
CLOSE = dict(rtol=0, atol=1e-4)
GRADIENT = dict(rtol=0, atol=1e-6)


def base():
    return exported.build("qwen3", seed=7).eval()


class Service:
    def __init__(self, folder, model=None, tokenizer=None, name="tiny", context=256):
        renderer = Renderer(tokenizer or exported.tokenizer())
        self.trainer = Trainer(model or base(), renderer, name=name, context=context, states=folder)
        self.port = free_port()
        self.server = uvicorn.Server(local.config(guarded(self.trainer, KEY), port=self.port))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until(lambda: self.server.started)

    def client(self):
        return ServiceClient(base_url=f"http://127.0.0.1:{self.port}", api_key=KEY)

    def raw(self, path, **body):
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        status, _, reply = foreign.ask(self.port, "POST", path, headers, json.dumps(body).encode())
        return status, json.loads(reply[reply.index(b"{") : reply.rindex(b"}") + 1])


def until(true, seconds=300):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    it = Service(tmp_path_factory.mktemp("states"))
    yield it
    it.server.should_exit = True
    it.thread.join(300)


@pytest.fixture
def client(at):
    with at.client() as one:
        yield one


def sequences(seed, n=4):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 300, size) for size in rng.integers(8, 20, n)]


def datum(ids, **inputs):
    return Datum(
        model_input=ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": [int(i) for i in ids[1:]], **inputs},
    )


def native(seed=5):
    model = base()
    adapt(model, LORA, seed=seed)
    return Learner(model, OPTIM)


def same(at, training, learner):
    mine = at.trainer.policies.named[training.model_id].learner.weights
    assert len(mine) == len(learner.weights) > 0
    for p, q in zip(mine, learner.weights, strict=True):
        torch.testing.assert_close(p, q, **CLOSE)


def gradients(at, training, learner):
    mine = at.trainer.policies.named[training.model_id].learner.weights
    for p, q in zip(mine, learner.weights, strict=True):
        torch.testing.assert_close(p.grad, q.grad, **GRADIENT)
    assert any(float(q.grad.abs().max()) > 1e-3 for q in learner.weights)


def moved(learner):
    assert any(float(p.detach().abs().max()) > 1e-3 for p in learner.weights if p.shape[0] != 4)  # B began as 0


def test_a_supervised_loop_gives_the_weights_of_the_stages_step(at, client):
    """Mean over the trained tokens: each weight is 1 / their number."""
    training, learner = client.create_lora_training_client("tiny", rank=4, seed=5), native()
    for step in range(3):
        rows = sequences(step)
        told = [np.arange(len(ids)) >= 4 for ids in rows]  # four tokens of prompt
        trained = sum(int(t[1:].sum()) for t in told)
        data = [datum(ids, weights=t[1:] / trained) for ids, t in zip(rows, told, strict=True)]
        result = training.forward_backward(data, loss_fn="cross_entropy")
        batch = pack([Row(ids=ids, trainable=t) for ids, t in zip(rows, told, strict=True)])
        if not step:
            result.result()
            once = native()
            once.forward_backward(batch, nll)
            gradients(at, training, once)
        training.optim_step(ADAM)
        was = learner.step(batch, nll)
        assert result.result().metrics["loss:sum"] == pytest.approx(was["loss"], abs=1e-5)
    training.optim_step(AdamParams(learning_rate=0.0)).result()  # all before it is done
    same(at, training, learner)
    moved(learner)


def test_a_loop_of_grpo_gives_the_weights_of_the_stages_step(at, client):
    """Sampled by the service, scored here; the mean over tokens of a row, then over rows, is in the advantages."""
    training, learner = client.create_lora_training_client("tiny", rank=4, seed=5), native()
    objective = PolicyObjective(ratio=token, policy_loss=lambda *a, **k: clip(*a, **k, aggregate="sequences"))
    for step in range(3):
        sampler, data, rows = training.save_weights_and_get_sampling_client(f"step-{step}"), [], []
        prompts = sequences(step, 2)
        for g, prompt in enumerate(prompts):
            params = SamplingParams(max_tokens=6, seed=step)
            samples = sampler.sample(ModelInput.from_ints(prompt), 4, params).result().sequences
            assert all(len(s.tokens) == len(s.logprobs) > 0 for s in samples)
            rewards = np.array([sum(t % 2 for t in s.tokens) / len(s.tokens) for s in samples])
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
            for s, a in zip(samples, advantages, strict=True):
                ids, n, before = np.array([*prompt, *s.tokens]), len(s.tokens), len(prompt)
                share = np.r_[np.zeros(before - 1), np.full(n, a / n / 8)]
                logp = np.r_[np.zeros(before - 1), s.logprobs]
                data.append(datum(ids, logprobs=logp, advantages=share))
                columns = {
                    "advantages": np.r_[np.zeros(before), np.full(n, a)],
                    "sampling_logp": np.r_[np.zeros(before), s.logprobs],
                }
                rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= before, group=g, columns=columns))
        training.forward_backward(data, loss_fn="ppo").result()
        if not step:  # later ones begin from weights that have parted by rounding
            once = native()
            once.forward_backward(pack(rows), objective)
            gradients(at, training, once)
        training.optim_step(ADAM).result()
        learner.step(pack(rows), objective)
    same(at, training, learner)
    moved(learner)


def test_losses_by_hand(client):
    training = client.create_lora_training_client(rank=2, seed=1)
    ids = sequences(3, 1)[0]
    n = len(ids) - 1
    rng = np.random.default_rng(0)
    weights, advantages = rng.normal(size=n), rng.normal(size=n)
    seen = training.forward([datum(ids, weights=weights)], "cross_entropy").result()
    logp = np.array(seen.loss_fn_outputs[0]["logprobs"])
    old = logp - rng.normal(size=n) * 0.5
    ratio = np.exp(logp - old)
    assert len(logp) == n and seen.metrics["loss:sum"] == pytest.approx(-(weights * logp).sum(), abs=1e-4)
    held = np.clip(ratio, 0.9, 1.3)
    bounds = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.3}
    for name, config, expected in (
        ("importance_sampling", None, -(ratio * advantages).sum()),
        ("ppo", bounds, -np.minimum(ratio * advantages, held * advantages).sum()),
        ("cispo", bounds, -(held * advantages * logp).sum()),
    ):
        result = training.forward_backward([datum(ids, logprobs=old, advantages=advantages)], name, config).result()
        assert result.metrics["loss:sum"] == pytest.approx(expected, abs=1e-4), name


@pytest.mark.parametrize("name", ["gspo", "dro"])
def test_losses_of_sequences_as_they_are_published(at, client, name):
    """Values and gradients are those of the formula, written as a loss of one's own."""
    rng = np.random.default_rng(1)
    rows = sequences(4, 2)
    each = [rng.normal(size=(2, len(ids) - 1)) * 0.3 for ids in rows]
    masks = [np.arange(len(ids) - 1) >= 2 for ids in rows]
    bounds = {"clip_low_threshold": 0.98, "clip_high_threshold": 1.04}
    config = {"gspo": bounds, "dro": {"beta": 0.3}}[name]
    ways = {}
    for way in ("named", "own"):
        training = client.create_lora_training_client(rank=4, seed=5)
        seen = training.forward([datum(ids, weights=np.ones(len(ids) - 1)) for ids in rows], "cross_entropy").result()
        old = [np.array(o["logprobs"]) - e[0] for o, e in zip(seen.loss_fn_outputs, each, strict=True)]

        def own(data, logprobs, old=old):
            total = 0
            for logp, before, (_, advantages), mask in zip(logprobs, old, each, masks, strict=True):
                ratio = logp - torch.tensor(before, dtype=torch.float32)
                advantages = torch.tensor(advantages, dtype=torch.float32)
                if name == "dro":
                    total = total - (logp * advantages - 0.5 * 0.3 * ratio**2).sum()
                else:
                    s = (ratio.detach()[torch.tensor(mask)].mean() + ratio - ratio.detach()).exp()
                    total = total - torch.minimum(s * advantages, s.clamp(0.98, 1.04) * advantages).sum()
            return total, {}

        if way == "named":
            more = [{"sequence_ratio_mask": m.astype(float)} if name == "gspo" else {} for m in masks]
            data = [
                datum(ids, logprobs=o, advantages=e[1], **m) for ids, o, e, m in zip(rows, old, each, more, strict=True)
            ]
            result = training.forward_backward(data, name, config).result()
        else:
            result = training.forward_backward_custom(
                [datum(ids, weights=np.ones(len(ids) - 1)) for ids in rows], own
            ).result()
        weights = at.trainer.policies.named[training.model_id].learner.weights
        ways[way] = (result.metrics["loss:sum"], [p.grad.clone() for p in weights if p.grad is not None])
    assert ways["named"][0] == pytest.approx(ways["own"][0], abs=1e-4)
    assert ways["named"][1] and max(g.abs().max() for g in ways["own"][1]) > 1e-4
    for ours, theirs in zip(ways["named"][1], ways["own"][1], strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_gradients_add_up_and_a_loss_of_ones_own_is_the_same(at, client):
    """Two halves of the data are the whole, and sum(weights x -logp), written by hand, is cross_entropy."""
    rows = sequences(11)
    data = [datum(ids, weights=np.full(len(ids) - 1, 0.01)) for ids in rows]

    def own(data, logprobs):
        return sum(-0.01 * x.sum() for x in logprobs), {"mine": 3.0}

    ways = {}
    for way in ("whole", "halves", "own"):
        training = client.create_lora_training_client(rank=4, seed=5)
        if way == "own":
            result = training.forward_backward_custom(data, own).result()
            assert result.metrics["mine"] == 3.0 and result.metrics["loss:sum"] > 0
        else:
            for part in [data] if way == "whole" else [data[:2], data[2:]]:
                training.forward_backward(part, "cross_entropy")
        training.optim_step(ADAM).result()
        ways[way] = at.trainer.policies.named[training.model_id].snapshot()
    for name, p in ways["whole"].items():
        torch.testing.assert_close(ways["halves"][name], p, rtol=0, atol=1e-5)
        torch.testing.assert_close(ways["own"][name], p, rtol=0, atol=1e-5)


def step(training, seed):
    rows = sequences(seed)
    training.forward_backward([datum(ids, weights=np.full(len(ids) - 1, 0.02)) for ids in rows], "cross_entropy")
    return training.optim_step(ADAM).result()


def test_two_clients_do_not_see_each_other(at, client):
    alone = client.create_lora_training_client(rank=4, seed=5)
    for k in range(2):
        step(alone, k)
    kept = copy.deepcopy(at.trainer.policies.named[alone.model_id].snapshot())
    with at.client() as second:
        one, other = client.create_lora_training_client(rank=4, seed=5), second.create_lora_training_client(rank=3)
        for k in range(2):
            step(one, k)
            step(other, 20 + k)
        for name, p in at.trainer.policies.named[one.model_id].weights.items():
            assert torch.equal(p, kept[name]), name
        path = one.save_weights_for_sampler("w").result().path
        with pytest.raises(TrainingApiError, match="no weights"):
            second.create_sampling_client(path).sample(ModelInput.from_ints([5]), 1, SamplingParams()).result()


def test_a_saved_state_takes_the_same_next_step(at, client):
    training = client.create_lora_training_client(rank=4, seed=5)
    step(training, 0)
    path = training.save_state("first").result().path
    step(training, 1)
    with at.client() as later:
        whole = later.create_training_client_from_state_with_optimizer(path)
        assert step(whole, 1)["step"] == 2
        weights = at.trainer.policies.named[training.model_id].weights
        for name, p in at.trainer.policies.named[whole.model_id].weights.items():
            assert torch.equal(p, weights[name]), name
        fresh = later.create_training_client_from_state(path)
        assert step(fresh, 1)["step"] == 1
        assert any(not torch.equal(p, weights[n]) for n, p in at.trainer.policies.named[fresh.model_id].weights.items())
    with pytest.raises(TrainingApiError, match="give another name"):
        training.save_state("first").result()


def test_a_client_that_dies_leaves_nothing_behind(at):
    before = set(at.trainer.policies.named)
    program = (
        "import sys; from tasks.serving.training_client import ServiceClient\n"
        f"c = ServiceClient('http://127.0.0.1:{at.port}', '{KEY}')\n"
        "c.create_lora_training_client(rank=4); print('made', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"made\n"
        (name,) = set(at.trainer.policies.named) - before
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    until(lambda: name not in at.trainer.policies.named)
    until(lambda: not any(name in n for n, _ in at.trainer.policies.model.named_parameters()))


def test_snapshots_are_pinned_and_few(client):
    training = client.create_lora_training_client(rank=4, seed=5)
    params = SamplingParams(max_tokens=5, seed=1, temperature=0.7)
    prompt = ModelInput.from_ints(sequences(1, 1)[0])
    first = training.save_weights_and_get_sampling_client("w0")
    was = first.sample(prompt, 2, params).result()
    plain = client.create_sampling_client().sample(prompt, 2, params).result()
    assert [s.tokens for s in plain.sequences] == [
        s.tokens for s in was.sequences
    ]  # new adapters say what the base says
    step(training, 0)
    assert first.sample(prompt, 2, params).result() == was
    plain = first.sample(prompt, 1, SamplingParams(max_tokens=5, seed=1)).result().sequences[0]
    read = first.compute_logprobs(ModelInput.from_ints([*prompt.to_ints(), *plain.tokens])).result()
    assert read[0] is None and np.allclose(read[prompt.length :], plain.logprobs, atol=1e-4)
    now = training.save_weights_and_get_sampling_client("w1").sample(prompt, 2, params).result()
    assert [s.logprobs for s in now.sequences] != [s.logprobs for s in was.sequences]
    for k in range(SNAPSHOTS):
        training.save_weights_for_sampler(f"x{k}").result()
    with pytest.raises(TrainingApiError, match="call save_weights_for_sampler"):
        first.sample(prompt, 1, params).result()


def test_what_is_refused(at, client):
    training = client.create_lora_training_client(rank=4)
    ids = [5, 6, 7]
    weights = {"weights": [1.0, 1.0]}
    for data, loss, config, message in (
        ([], "cross_entropy", None, "data"),
        ([datum(ids, **weights)], "hinge", None, "loss_fn"),
        ([datum(ids, advantages=[1.0, 1.0])], "cross_entropy", None, "reads target_tokens, weights"),
        ([datum(ids, weights=[1.0])], "cross_entropy", None, "1 values for 2 tokens"),
        ([datum(ids, **weights)], "cross_entropy", {"beta": 1.0}, "no setting 'beta'"),
        ([datum(ids, logprobs=[0.0, 0.0], advantages=[1.0, 1.0])], "dro", None, "dro needs loss_fn_config with beta"),
        (
            [datum(ids, sequence_ratio_mask=[0.0, 0.0], logprobs=[0.0, 0.0], advantages=[1.0, 1.0])],
            "gspo",
            None,
            "marks no token",
        ),
        ([datum([5, 6, 10**6], **weights)], "cross_entropy", None, "tokenizer knows"),
        ([datum([5] * 300, weights=[1.0] * 299)], "cross_entropy", None, "context"),
        (
            [Datum(model_input=ModelInput.from_ints([5, 6]), loss_fn_inputs={"target_tokens": [9, 7], **weights})],
            "cross_entropy",
            None,
            "moved by one",
        ),
    ):
        with pytest.raises(TrainingApiError, match=message) as e:
            training.forward_backward(data, loss, config).result()
        assert "\n" not in str(e.value)
    for call, message in (
        (lambda: client.create_lora_training_client("another"), "is not served here, 'tiny' is"),
        (lambda: client.create_lora_training_client(train_mlp=False, train_attn=False), "nothing would be trained"),
        (lambda: client.create_training_client_from_state("../../etc/passwd"), "not a path that save_state returned"),
        (lambda: client.create_training_client_from_state("a/b"), "no state"),
        (lambda: training.save_state("../x").result(), "cannot be a name"),
        (lambda: ServiceClient(f"http://127.0.0.1:{at.port}", "wrong"), "key"),
    ):
        with pytest.raises(TrainingApiError, match=message):
            call()
    training.unload()
    with pytest.raises(TrainingApiError, match="unloaded"):
        training.optim_step(ADAM).result()
    nobody = free_port()
    with pytest.raises(TrainingApiError, match="nobody answers"):
        ServiceClient(f"http://127.0.0.1:{nobody}", KEY)


def test_other_sites_are_not_answered(at):
    answered = foreign.accepted(
        at.port,
        get="/api/v1/get_server_capabilities",
        post="/api/v1/unload_model",
        body=b'{"model_id": "x"}',
        Authorization=f"Bearer {KEY}",
    )
    assert not answered, answered
    assert at.raw("/api/v1/nothing")[0] == 404


def test_the_command_serves_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    save_model(base(), exported.tokenizer(), tmp_path / "model")
    served = []
    monkeypatch.setattr(local, "run", lambda app, *, port: served.append((app, port)))
    assert cli.main(["serve", str(tmp_path / "model"), "--training", "--port", "0", "--name", "tiny"]) == 0
    ((app, port),) = served
    told = capsys.readouterr().out
    assert port == 0 and app.token in told and "training tiny at http://127.0.0.1" in told
    assert cli.main(["serve", "model", "--training", "--engine", "vllm", "--port", "0"]) == 2
    assert "leave out --engine vllm" in capsys.readouterr().err


def test_the_adapters_of_a_part_alone(at, client):
    training = client.create_lora_training_client(rank=2, train_mlp=False)
    names = at.trainer.policies.named[training.model_id].weights
    assert names and all("attn" in n for n in names)
