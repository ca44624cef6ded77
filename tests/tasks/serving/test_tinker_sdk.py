"""`espalier serve --training` as Tinker's published SDK asks it: the client is theirs, unchanged but for the address."""

import struct
import time

import numpy as np
import pytest
import test_training_api as api
import torch

from tasks.serving import tinker as wire
from tasks.serving.refusal import Refused
from training.learner.learner import nll
from training.learner.pack import Row, pack
from training.preference.loss.dpo import dpo
from training.types import Terms

tinker = pytest.importorskip("tinker", reason="Tinker's SDK is not installed here: the extra ci brings it")
ADAM = tinker.AdamParams(learning_rate=1e-2, eps=1e-8, weight_decay=0.01, grad_clip_norm=1.0)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """It tells its maker nothing from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_TELEMETRY", "0")
        yield


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    it = api.Service(tmp_path_factory.mktemp("states"))
    yield it
    it.server.should_exit = True
    it.thread.join(600)


def service(at):
    return tinker.ServiceClient(base_url=f"http://127.0.0.1:{at.port}", api_key=f"tml-{api.KEY}")


@pytest.fixture(scope="module")
def client(at):
    return service(at)


def datum(ids, **inputs):
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints([int(i) for i in ids[:-1]]),
        loss_fn_inputs={"target_tokens": [int(i) for i in ids[1:]], **inputs},
    )


def step(training, seed):
    data = [datum(ids, weights=[1.0] * (len(ids) - 1)) for ids in api.sequences(seed)]
    training.forward_backward(data, "cross_entropy")
    return training.optim_step(ADAM).result()


def weights(at, training):
    return at.trainer.policies.named[at_name(at, training)].weights


def at_name(at, training):
    """A model that was loaded has the name that the SDK gave it."""
    name = training.get_info().model_id
    sessions = wire_of(at).clients.values()
    return next((c.models[name] for c in sessions if name in c.models), name)


def wire_of(at):
    return at.trainer.wire


def test_a_supervised_loop_gives_the_weights_of_the_stages_step(at, client):
    training, learner = client.create_lora_training_client("tiny", rank=4, seed=5).result(), api.native(5)
    assert training.get_info().model_data.tokenizer_id == "tiny" and training.get_info().lora_rank == 4
    for k in range(3):
        whole = api.sequences(k)
        n = sum(len(ids) - 1 for ids in whole)
        data = [datum(ids, weights=[1.0 / n] * (len(ids) - 1)) for ids in whole]
        out = training.forward_backward(data, "cross_entropy").result()
        assert [len(x["logprobs"].data) for x in out.loss_fn_outputs] == [len(ids) - 1 for ids in whole]
        nlls = -sum(float(sum(x["logprobs"].data)) for x in out.loss_fn_outputs) / n
        assert out.metrics["loss:sum"] == pytest.approx(nlls, abs=1e-5)
        rows = [Row(ids=ids, trainable=np.arange(len(ids)) > 0) for ids in whole]
        if k == 0:
            mine = at.trainer.policies.named[training.model_id].learner.weights
            held = [p.grad.clone() for p in mine]
        training.optim_step(ADAM).result()
        learner.step(pack(rows), nll)
        if k == 0:
            for p, q in zip(held, learner.weights, strict=True):
                scale = min(1.0, 1.0 / float(sum((g**2).sum() for g in held)) ** 0.5)  # both are clipped to a norm of 1
                torch.testing.assert_close(p * scale, q.grad, **api.GRADIENT)
    api.same(at, training, learner)
    api.moved(learner)


def test_what_is_sampled_is_learned_from(client):
    """rl_loop's step: sample, centre the rewards, importance_sampling. The ratio of the first step is 1."""
    training = client.create_lora_training_client("tiny", rank=4, seed=5).result()
    sampler = training.save_weights_and_get_sampling_client().result()
    prompt = [5, 6, 7]
    params = tinker.SamplingParams(max_tokens=6, seed=3)
    futures = [sampler.sample(tinker.ModelInput.from_ints(prompt), 4, params) for _ in range(2)]
    first, again = (f.result().sequences for f in futures)
    assert [s.tokens for s in first] == [s.tokens for s in again] and len({tuple(s.tokens) for s in first}) > 1
    data, advantages = [], [1.0, -1.0, 0.5, -0.5]
    for s, a in zip(first, advantages, strict=True):
        before = len(prompt) - 1
        ids = [*prompt, *s.tokens]
        one = datum(ids, logprobs=[0.0] * before + list(s.logprobs), advantages=[0.0] * before + [a] * len(s.tokens))
        one.loss_fn_inputs["target_tokens"].data[:before] = [0] * before  # as rl_loop writes what has no advantage
        data.append(one)
    out = training.forward_backward(data, "importance_sampling").result()
    for s, x in zip(first, out.loss_fn_outputs, strict=True):
        np.testing.assert_allclose(x["logprobs"].data[len(prompt) - 1 :], s.logprobs, atol=1e-4)
    want = -sum(a * len(s.tokens) for s, a in zip(first, advantages, strict=True))
    assert out.metrics["loss:sum"] == pytest.approx(want, abs=1e-3)
    assert training.optim_step(ADAM).result().metrics["grad_norm"] > 0


def test_a_sampler_reads_log_probs_as_the_learner_does(client):
    training = client.create_lora_training_client("tiny", rank=4, seed=5).result()
    step(training, 0)
    sampler = training.save_weights_and_get_sampling_client().result()
    ids = [int(i) for i in api.sequences(3)[0]]
    want = training.forward([datum(ids, weights=[1.0] * (len(ids) - 1))], "cross_entropy").result()
    step(training, 1)  # the sampler keeps its weights
    whole = sampler.compute_logprobs(tinker.ModelInput.from_ints(ids)).result()
    assert whole[0] is None
    np.testing.assert_allclose(whole[1:], want.loss_fn_outputs[0]["logprobs"].data, atol=1e-6)
    last = sampler.compute_logprobs(tinker.ModelInput.from_ints(ids), prompt_logprobs_last_n=3).result()
    assert last == [None] * (len(ids) - 3) + whole[-3:]
    base = client.create_sampling_client(base_model="tiny").result()
    base = base.compute_logprobs(tinker.ModelInput.from_ints(ids)).result()
    assert np.abs(np.array(base[1:]) - whole[1:]).max() > 1e-3, "they are those of its own weights"


def test_a_preference_loop_has_the_gradients_of_dpo(at, client):
    """The cookbook's DPO: the reference is a sampler of the first weights, the loss the client's own."""
    beta, pairs = 0.1, [(api.sequences(k, 2)) for k in range(3)]
    training, learner = client.create_lora_training_client("tiny", rank=4, seed=5).result(), api.native(5)
    reference = training.save_weights_and_get_sampling_client().result()

    def known(ids):
        return reference.compute_logprobs(tinker.ModelInput.from_ints([int(i) for i in ids])).result()[1:]

    flat = [ids for pair in pairs for ids in pair]
    before = [torch.tensor(known(ids)) for ids in flat]

    def theirs(_, logprobs):
        gain = torch.stack([(x - y).sum() for x, y in zip(logprobs, before, strict=True)])
        loss = -torch.nn.functional.logsigmoid(beta * (gain[::2] - gain[1::2])).mean()
        return loss, {"loss": loss.item()}

    data = [datum(ids, weights=[1.0] * (len(ids) - 1)) for ids in flat]
    out = training.forward_backward_custom(data, theirs).result()
    assert out.metrics["loss"] == pytest.approx(np.log(2), abs=1e-5)
    held = [p.grad.clone() for p in at.trainer.policies.named[training.model_id].learner.weights]
    batch = pack([Row(ids=ids, trainable=np.arange(len(ids)) > 0) for ids in flat])
    sums = torch.stack([x.sum() for x in before])

    def ours(stats, batch):
        total = batch.row_sum(torch.where(batch.trainable, stats.logp, 0.0))
        values = dpo(total[::2], total[1::2], sums[::2], sums[1::2], None, None, beta=beta)
        return [Terms(values=values / len(pairs), denominator="constant")]

    learner.forward_backward(batch, ours)
    for p, q in zip(held, learner.weights, strict=True):
        torch.testing.assert_close(p, q.grad, **api.GRADIENT)
    assert max(float(g.abs().max()) for g in held) > 1e-4


def test_a_saved_state_takes_the_same_next_step_in_another_session(at, client):
    training = client.create_lora_training_client("tiny", rank=4, seed=5).result()
    step(training, 0)
    path = training.save_state("first").result().path
    assert path == f"tinker://{training.model_id}/weights/first"
    step(training, 1)
    whole = service(at).create_training_client_from_state_with_optimizer(path).result()
    step(whole, 1)
    for name, p in weights(at, whole).items():
        assert torch.equal(p, weights(at, training)[name]), name
    fresh = client.create_training_client_from_state(path).result()
    step(fresh, 1)
    assert any(not torch.equal(p, weights(at, training)[n]) for n, p in weights(at, fresh).items())


def test_two_clients_beside_each_other_have_the_bytes_of_one_alone(at, client):
    alone = client.create_lora_training_client("tiny", rank=4, seed=5).result()
    for k in range(2):
        step(alone, k)
    one, other = (service(at).create_lora_training_client("tiny", rank=4, seed=s).result() for s in (5, 6))
    for k in range(2):
        step(other, k + 7)
        step(one, k)
    for name, p in weights(at, one).items():
        assert torch.equal(p, weights(at, alone)[name]), name


def test_a_client_whose_heart_stops_leaves_nothing_behind(at, monkeypatch):
    begun = wire_of(at).begin()["session_id"]
    created = wire_of(at).create_model({"session_id": begun, "base_model": "tiny", "lora_config": {"rank": 2}})
    name = wire_of(at).clients[begun].results[created["request_id"]].result(60)["model_id"]
    assert name in at.trainer.policies.named
    wire_of(at).clients[begun].heard = time.monotonic() - wire.SILENCE - 1
    api.until(lambda: name not in at.trainer.policies.named)
    with pytest.raises(Refused, match="session has ended"):
        wire_of(at).beat(begun)


def test_what_is_refused_is_a_sentence(at, client):
    training = client.create_lora_training_client("tiny", rank=2).result()
    ones = {"weights": [1.0, 1.0]}
    for call, message in (
        (lambda: client.create_lora_training_client("gpt-4", rank=2).result(), "is not served here, 'tiny' is"),
        (lambda: training.forward_backward([datum([5, 6, 7], **ones)], "stable_reinforce").result(), "loss_fn"),
        (
            lambda: training.forward_backward([datum([5, 6, 10**6], **ones)], "cross_entropy").result(),
            "tokenizer knows",
        ),
        (lambda: training.save_state("../x").result(), "cannot be a name"),
        (lambda: client.create_training_client_from_state("tinker://a/weights/b").result(), "no state"),
    ):
        with pytest.raises(Exception, match=message):
            call()


def test_bytes_that_are_no_message_are_refused():
    sent = wire._bytes(1, b"model") + wire._bytes(4, b"cross_entropy") + wire._int(6, 1)
    sent += wire._bytes(7, wire._bytes(1, b"clip") + wire._bytes(2, b"\x09" + struct.pack("<d", 0.25)))
    assert wire.read_pass(sent) == ("model", [], "cross_entropy", {"clip": 0.25}, True)
    for broken in (b"\x0a\x05abc", b"\xff" * 12, b"\x0f", b"\x09\x01"):
        with pytest.raises(Refused, match="not a whole protocol buffer"):
            list(wire.fields_of(broken))
