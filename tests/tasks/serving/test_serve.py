"""`espalier serve`: an endpoint that OpenAI's own client can use, whose answers are those of the sampler, and that
answers nobody else."""

import json
import os
import stat
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
from sealed import seal

from flows import cli
from synth.knowledge.kb import Passage
from synth.types import Message, PreferencePair, Problem, Sampling
from tasks.pages.cards import SERVED_SNIPPET
from tasks.results.chat import Chat
from tasks.results.decoding import serving
from tasks.core import local
from tasks.evaluation.decoding import decoding
from tasks.planning.pieces import bind
from tasks.serving.api import Served, guarded
from training.decode import ServedDecoder
from tasks.storage import tables
from tasks.serving.conversations import CHUNK, Conversations, Request, Writer, scored
from training.model.model import load_model, new_model, save_model
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

KEY = "k" * 43
CHAT = [{"role": "user", "content": "What is the capital of Norvia?"}]


class Endpoint:
    """A tiny model behind a port of this process."""

    def __init__(self, model, renderer, decoding=None):
        self.model, self.renderer = model, renderer
        sampler = TorchSampler(self.model, self.renderer.end_id)
        if decoding is not None:
            sampler = decoding.around(sampler, renderer, "cpu")
        conversations = Conversations(sampler, self.renderer, whole=decoding is not None)
        self.served = Served(conversations, name="tiny", context=256, decoding=decoding)
        self.port = free_port()
        self.server = uvicorn.Server(local.config(guarded(self.served, KEY), port=self.port))
        threading.Thread(target=self.server.run, daemon=True).start()
        until = time.monotonic() + 300
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.02)
        import openai

        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=KEY, max_retries=0)

    def greedy(self, prompt, n):
        """Ids of one turn, sampled at once."""
        session = TorchSampler(self.model, self.renderer.end_id).open([np.asarray(prompt)], [0])
        return session.generate(Sampling(temperature=0.0, max_tokens=n))[0]

    def raw(self, path="/v1/chat/completions", **body):
        """(status, JSON) of a POST."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        data = body.pop("data", None) or json.dumps(body).encode()
        status, _, reply = foreign.ask(self.port, "POST", path, headers, data)
        return status, json.loads(reply[reply.index(b"{") : reply.rindex(b"}") + 1])

    def close(self):
        self.server.should_exit = True
        self.served.conversations.close()


def by(name, budget=0, temperature=None, rewards=None, reference=None, **knobs):
    """A decoder as it is served; rewards: of rows of ids; reference: gives a sampler."""

    def around(sampler, renderer, device):
        decode = bind("decode", {"piece": name, **knobs})
        return decoding(
            decode, sampler, renderer, rewards=rewards, pairs=list, forward_tokens=budget, reference=reference
        )

    return ServedDecoder(name=name, budget=budget, temperature=temperature, around=around)


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    save_model(exported.build("qwen3", seed=7), exported.tokenizer(), folder)
    model, tokenizer = load_model(folder)
    it = Endpoint(model.eval(), Renderer(tokenizer))
    yield it
    it.close()


def test_it_says_what_chat_says(tmp_path, monkeypatch):
    """To the messages that an environment of the project begins with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    passage = Passage(id="p", entity="Norvia", title="Norvia", text="The capital of Norvia is Zelton.", facts=())
    tables.write(tmp_path / "artifacts/kb/passages.parquet", [passage], Passage)
    save_model(exported.build("qwen3", seed=7), exported.tokenizer(), tmp_path / "artifacts/sft/model")
    seal(tmp_path)
    talk, heard = Chat(tmp_path, "sft"), []
    talk.ask(CHAT[0]["content"], heard.append)
    problem = Problem.make(
        prompt=CHAT[0]["content"], answer="?", verifier="exact", env="search", family="chat", split="test"
    )
    begun = talk.envs["search"].start(problem, talk.tools)[1]
    it = Endpoint(talk.model, talk.renderer)
    try:
        reply = it.client.chat.completions.create(
            model="tiny",
            messages=[{"role": m.role, "content": m.content} for m in begun],
            temperature=0,
            max_tokens=talk.sampling.max_tokens,
        )
    finally:
        it.close()
    assert reply.choices[0].message.content == heard[0].content != ""


def test_the_snippet_on_the_card_runs_against_it(at):
    env = {**os.environ, "OPENAI_BASE_URL": str(at.client.base_url), "OPENAI_API_KEY": KEY}
    done = subprocess.run([sys.executable, "-c", SERVED_SNIPPET], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_a_greedy_answer_is_the_samplers(at):
    turn = at.greedy(at.renderer.prompt([Message(**CHAT[0])]), 40)
    reply = at.client.chat.completions.create(model="tiny", messages=CHAT, temperature=0, max_tokens=40)
    (choice,) = reply.choices
    assert choice.message.content == at.renderer.decode(turn.ids) and choice.message.role == "assistant"
    assert choice.finish_reason == ("stop" if turn.stop == "end" else "length")
    assert reply.usage.completion_tokens == len(turn.ids) > CHUNK
    assert reply.usage.prompt_tokens == len(at.renderer.prompt([Message(**CHAT[0])])) and reply.model == "tiny"


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1, "seed": 5}, {"top_p": 0.9, "seed": 6}])
def test_pieces_of_a_stream_join_to_the_whole_answer(at, settings):
    request = {"model": "tiny", "messages": CHAT, "max_tokens": 50, **settings}
    whole = at.client.chat.completions.create(**request)
    events = list(at.client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == whole.choices[0].message.content and len(events) > 3
    assert events[-1].usage == whole.usage and not events[-1].choices
    assert [e.choices[0].finish_reason for e in events[:-1]][-1] == whole.choices[0].finish_reason


def test_completions_go_on_from_the_prompt_as_it_stands(at):
    ids = at.renderer.encode("The capital of")
    turn = at.greedy(ids, 30)
    for prompt in ("The capital of", ids.tolist()):
        reply = at.client.completions.create(model="tiny", prompt=prompt, temperature=0, max_tokens=30)
        assert reply.choices[0].text == at.renderer.decode(turn.ids)
    pieces = at.client.completions.create(
        model="tiny", prompt="The capital of", temperature=0, max_tokens=30, stream=True
    )
    assert "".join(e.choices[0].text for e in pieces) == at.renderer.decode(turn.ids)
    two = at.client.completions.create(model="tiny", prompt=["The", "A"], temperature=0, max_tokens=3, echo=True)
    assert [c.text[:3] for c in two.choices] == ["The", "A" + two.choices[1].text[1:3]]


def test_a_seed_repeats_an_answer_and_others_beside_it_change_nothing(at):
    def ask(seed, n=1):
        reply = at.client.chat.completions.create(model="tiny", messages=CHAT, seed=seed, n=n, max_tokens=30)
        return [c.message.content for c in reply.choices]

    alone = ask(1)
    assert ask(1) == alone and ask(2) != alone
    three = ask(1, n=3)
    assert three[0] == alone[0] and len(set(three)) == 3
    texts = {}
    threads = [threading.Thread(target=lambda s=s: texts.update({s: ask(s)})) for s in (1, 2, 3, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert texts[1] == alone and len(texts) == 4


def test_an_answer_ends_before_a_stop_text_that_straddles_tokens(at):
    whole = at.client.chat.completions.create(model="tiny", messages=CHAT, temperature=0, max_tokens=50)
    text = whole.choices[0].message.content
    stop = text[20:24]
    for stream in (False, True):
        reply = at.client.chat.completions.create(
            model="tiny", messages=CHAT, temperature=0, max_tokens=50, stop=["never", stop], stream=stream
        )
        answer = (
            "".join(e.choices[0].delta.content or "" for e in reply) if stream else reply.choices[0].message.content
        )
        assert answer == text[: text.index(stop)]
        if not stream:
            assert reply.choices[0].finish_reason == "stop"
            assert reply.usage.completion_tokens < whole.usage.completion_tokens


def test_half_a_character_waits_for_the_other_half(at):
    ids = at.renderer.encode("aé😀b").tolist()
    writer, pieces = Writer(at.renderer, ()), []
    for n in range(1, len(ids) + 1):
        pieces.append(writer.add(ids[:n], 1, n == len(ids))[0])
    assert "".join(pieces) == "aé😀b" and "\ufffd" not in "".join(pieces) and "" in pieces


def test_log_probs_are_the_models(at):
    reply = at.client.chat.completions.create(
        model="tiny", messages=CHAT, temperature=0, max_tokens=20, logprobs=True, top_logprobs=2
    )
    prompt = at.renderer.prompt([Message(**CHAT[0])])
    turn = at.greedy(prompt, 20)
    at.model.set_attn_implementation("sdpa")
    with torch.no_grad():
        logits = at.model(torch.from_numpy(np.append(prompt, turn.ids))[None]).logits[0, len(prompt) - 1 : -1]
    from training.model.attention import NAME

    at.model.set_attn_implementation(NAME)
    logp = torch.log_softmax(logits, -1).gather(-1, torch.from_numpy(turn.ids)[:, None])[:, 0]
    log_probs = reply.choices[0].logprobs.content
    assert [t.logprob for t in log_probs] == pytest.approx(logp.tolist(), abs=1e-4)
    assert all(len(t.top_logprobs) == 2 and t.top_logprobs[0].token == t.token for t in log_probs)
    echoed = at.client.completions.create(model="tiny", prompt=prompt.tolist(), max_tokens=0, echo=True, logprobs=1)
    scores = echoed.choices[0].logprobs.token_logprobs
    assert scores[0] is None and len(scores) == len(prompt)
    assert scores[1:] == pytest.approx([t.logp for t in scored(at.model, prompt, 1, 0)], abs=1e-5)


def test_a_teacher_behind_it_tells_its_likeliest_tokens(at, tmp_path):
    """As `rl.teacher: [{url: ...}]` asks: each place of a row against the model's own whole distribution there."""
    from training.rollout import endpoint

    prompt = at.renderer.prompt([Message(**CHAT[0])])
    url = f"http://127.0.0.1:{at.port}/v1"
    teacher = endpoint.Endpoint(url=url, model="tiny", key=KEY, cache=tmp_path / "teacher.sqlite")
    ((ids, logp),) = teacher.top_logprobs([prompt], 5)
    whole = [t.top for t in scored(at.model, prompt, 1, 5)]
    assert ids.shape == (len(prompt), 5) and np.isneginf(logp[0]).all()
    assert ids[1:].tolist() == [[i for i, _ in t] for t in whole]
    assert logp[1:].ravel().tolist() == pytest.approx([x for t in whole for _, x in t], abs=1e-5)
    status, told = at.raw("/v1/completions", prompt=prompt.tolist(), max_tokens=1, prompt_logprobs=0)
    own = [next(iter(x)) for x in told["choices"][0]["prompt_logprobs"][1:]]
    assert status == 200 and own == [str(i) for i in prompt[1:]]  # with none of the likeliest, the token itself
    status, told = at.raw("/v1/completions", prompt="A", stream=True, prompt_logprobs=1)
    assert status == 400 and told["error"]["param"] == "prompt_logprobs" and "not streamed" in told["error"]["message"]


def test_the_model_is_listed(at):
    assert [m.id for m in at.client.models.list()] == ["tiny"]
    assert at.client.models.retrieve("tiny").id == "tiny"
    import openai

    with pytest.raises(openai.NotFoundError, match="the model 'big' is not served here"):
        at.client.chat.completions.create(model="big", messages=CHAT)


@pytest.mark.parametrize(
    "body, param, why",
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": CHAT, "temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"messages": CHAT, "top_p": 0}, "top_p", "greater than 0"),
        ({"messages": CHAT, "presence_penalty": 0.5}, "presence_penalty", "is not offered"),
        ({"messages": CHAT, "tools": []}, "tools", "is not known here, so it would be ignored"),
        ({"messages": CHAT, "stop": [""]}, "stop", "none of them empty"),
        ({"messages": CHAT, "top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages.0.role", "input should be"),
        ({"messages": CHAT, "max_tokens": 5000}, None, "more than the 256 of this model's context"),
        ({"messages": CHAT * 40}, None, "more than the 256 of this model's context"),
        ({"data": b"{"}, None, "is not JSON"),
    ],
)
def test_a_bad_request_is_one_sentence_in_the_apis_shape(at, body, param, why):
    status, reply = at.raw(**body)
    error = reply["error"]
    assert status == 400 and error["type"] == "invalid_request_error" and why in error["message"], error
    assert "\n" not in error["message"] and (param is None or error["param"].startswith(param))


def test_paths_that_there_are_not_and_wrong_ids(at):
    status, reply = at.raw("/v1/embeddings", input="x")
    assert status == 404 and "/v1/chat/completions" in reply["error"]["message"]
    status, reply = at.raw("/v1/completions", prompt=[1, 99999], max_tokens=3)
    assert status == 400 and "has the id 99999" in reply["error"]["message"]


def test_one_that_breaks_ends_nobody_elses(at, monkeypatch):
    def broken(*args):
        raise RuntimeError("no memory is left\nat all")

    monkeypatch.setattr(at.served.conversations.sampler, "open", broken)
    status, reply = at.raw(messages=CHAT, max_tokens=3)
    assert status == 500 and reply["error"]["message"] == "the model could not answer: no memory is left"
    monkeypatch.undo()
    assert at.raw(messages=CHAT, max_tokens=3)[0] == 200


def test_who_has_left_is_not_sampled_for(at):
    heard = []
    request = Request(
        prompt=at.renderer.encode("The"),
        sampling=Sampling(),
        seed=1,
        max_tokens=10**4,
        hear=heard.append,
        cancelled=True,
    )
    at.served.conversations.ask([request])
    until = time.monotonic() + 300
    while at.served.conversations.busy and time.monotonic() < until:
        time.sleep(0.02)
    assert not at.served.conversations.busy and not heard


def test_only_who_has_the_key_is_answered(at):
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        status, kind, reply = foreign.ask(at.port, "GET", "/v1/models", headers)
        assert status == 401 and kind["content-type"] == "application/json"
        assert json.loads(reply)["error"]["code"] == "invalid_api_key"
    import openai

    with pytest.raises(openai.AuthenticationError, match="send the key that `espalier serve` printed"):
        openai.OpenAI(base_url=at.client.base_url, api_key="no", max_retries=0).models.list()


def test_forty_requests_of_other_sites_are_refused(at):
    body = json.dumps({"messages": CHAT, "max_tokens": 2}).encode()
    about = {"get": "/v1/models", "post": "/v1/chat/completions", "body": body}
    assert foreign.accepted(at.port, **about, Authorization=f"Bearer {KEY}") == []
    assert len(list(foreign.requests(at.port))) == 40


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["serve"]) == 2
    assert "the schedules of prefect.yaml are started by `espalier schedule`" in capsys.readouterr().err
    assert cli.main(["serve", "nothing", "--port", "1234567"]) == 2
    assert "cannot be had" in capsys.readouterr().err
    save_model(exported.build("qwen3"), exported.tokenizer(), tmp_path / "m")
    began = []
    monkeypatch.setattr(local, "run", lambda app, port: began.append((app, port)))
    port = free_port()
    assert cli.main(["serve", "m", "--port", str(port), "--device", "cpu"]) == 0
    key = (tmp_path / ".espalier/serve/key").read_text().strip()
    output = capsys.readouterr().out
    assert key in output and f"http://127.0.0.1:{port}/v1" in output
    assert stat.S_IMODE((tmp_path / ".espalier/serve/key").stat().st_mode) == 0o600
    assert began[0][0].token == key and began[0][1] == port


def test_a_decoder_answers_and_the_usage_has_its_forward_tokens(at):
    """The longest of three draws, which a reward model reads: prompt once, draws, and each conversation with a verdict."""
    heard = []

    def longest(rows):
        heard.extend(map(len, rows))
        return [float(len(r)) for r in rows]

    it = Endpoint(at.model, at.renderer, by("best_of_n", n=3, rewards=longest))
    request = {"model": "tiny", "messages": CHAT, "max_tokens": 40, "seed": 3}
    try:
        reply = it.client.chat.completions.create(**request)
        n = reply.usage.prompt_tokens
        assert len(heard) == 3 and reply.usage.completion_tokens == max(heard) - n
        cost = reply.usage.model_extra["forward_tokens"]
        assert cost == {"policy": sum(heard) - 2 * n, "reward": sum(heard) + 3}
        heard.clear()
        events = list(
            it.client.chat.completions.create(**request, n=2, stream=True, stream_options={"include_usage": True})
        )
        streamed = "".join(e.choices[0].delta.content or "" for e in events if e.choices and e.choices[0].index == 0)
        assert streamed == reply.choices[0].message.content
        assert events[-1].usage.model_extra["forward_tokens"]["reward"] == sum(heard) + 6 and len(heard) == 6
        text = reply.choices[0].message.content
        cut = it.client.chat.completions.create(**request, stop=text[5:9]).choices[0]
        assert cut.message.content == text[: text.index(text[5:9])] and cut.finish_reason == "stop"
    finally:
        it.close()
    assert not at.client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=2).usage.model_extra


def test_a_decoder_that_needs_a_reference_answers_with_its_draws(at):
    """Of two draws of the reference the one that the served model has made likelier by most; both models are charged."""
    before = exported.build("qwen3", seed=9).eval()
    sampler, calls = TorchSampler(before, at.renderer.end_id), []
    plain = sampler.open
    sampler.open = lambda prompts, seeds: calls.append((prompts, seeds)) or plain(prompts, seeds)
    it = Endpoint(at.model, at.renderer, by("implicit_reward", n=2, reference=lambda: sampler))
    try:
        reply = it.client.chat.completions.create(model="tiny", messages=CHAT, max_tokens=8, seed=3)
    finally:
        it.close()
    (((prompt, _), seeds),) = calls
    drawn = plain([prompt] * 2, seeds).generate(Sampling(max_tokens=8))
    gain = [
        float(TorchSampler(m, at.renderer.end_id).logp(prompt, s.ids).sum()) * sign
        for s in drawn
        for m, sign in ((at.model, 1), (before, -1))
    ]
    best = drawn[int(np.argmax([gain[0] + gain[1], gain[2] + gain[3]]))]
    assert reply.choices[0].message.content == at.renderer.decode(best.ids)
    cost, n = reply.usage.model_extra["forward_tokens"], reply.usage.prompt_tokens
    tokens = sum(len(s.ids) for s in drawn)
    assert cost["policy"] == n + tokens and cost["reference"] == 2 * n + 2 * tokens


def test_greedy_as_a_decoder_is_the_plain_greedy_answer_and_other_wishes_are_refused(at):
    n = len(at.renderer.prompt([Message(**CHAT[0])]))
    it = Endpoint(at.model, at.renderer, by("greedy", budget=n + 30, temperature=0.0))
    try:
        reply = it.client.chat.completions.create(model="tiny", messages=CHAT)
        turn = at.greedy(at.renderer.prompt([Message(**CHAT[0])]), 30)
        assert reply.choices[0].message.content == at.renderer.decode(turn.ids)
        assert reply.usage.model_extra["forward_tokens"] == {"policy": n + len(turn.ids)}
        for body, why in (
            ({"temperature": 0.7}, "the decoder greedy draws at temperature 0: leave temperature out"),
            ({"logprobs": True}, "logprobs are those of one plain draw, and here the decoder greedy"),
            ({"messages": CHAT * 4}, f"a budget of {n + 30} forward tokens has no room for an answer"),
        ):
            status, refusal = it.raw(**{"messages": CHAT, "max_tokens": 5, **body})
            assert (
                status == 400
                and why in refusal["error"]["message"]
                and refusal["error"]["type"] == "invalid_request_error"
            )
    finally:
        it.close()


def test_what_a_decoder_refuses_is_the_requests_mistake(at):
    it = Endpoint(at.model, at.renderer, by("majority", k=-1))
    try:
        status, reply = it.raw(messages=CHAT, max_tokens=3)
    finally:
        it.close()
    assert status == 400 and reply["error"]["message"].startswith("the decoder majority: ")


def test_the_command_with_a_decoder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    save_model(exported.build("qwen3"), exported.tokenizer(), tmp_path / "m")
    began = []
    monkeypatch.setattr(local, "run", lambda app, port: began.append(app))
    monkeypatch.setattr(local, "free", lambda port: None)
    for more, why in (
        (["--budget", "9"], "--budget is what a decoder may spend"),
        (["--decoder", "greedi"], "did you mean 'greedy'"),
        (["--decoder", "steer"], "learns from preference pairs"),
        (
            ["--decoder", "best_of_n"],
            "the decoder best_of_n: this decoder chooses by a reward model, and there is none",
        ),
        (["--decoder", "implicit_reward"], "there is none: run the stage sft, or take a decoder that needs none"),
        (["--decoder", "greedy", "--engine", "vllm"], "which --engine vllm does not give it"),
        (["--decoder", "greedy", "--training"], "leave out --decoder"),
    ):
        assert cli.main(["serve", "m", "--device", "cpu", *more]) == 2
        assert why in capsys.readouterr().err
    assert not began
    assert cli.main(["serve", "m", "--device", "cpu", "--decoder", "majority", "--budget", "400"]) == 0
    assert len(began) == 1


def test_where_a_decoder_makes_compiled_layers_step_aside_it_is_said_once(tmp_path):
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    pairs = [
        PreferencePair.make(
            prompt=[Message(**CHAT[0])],
            chosen=f"Osla {i}.",
            rejected=f"Birk {i}.",
            source="t",
            problem=str(i),
            split="train",
        )
        for i in range(4)
    ]
    (tmp_path / "artifacts" / "clean").mkdir(parents=True)
    tables.write(tmp_path / "artifacts" / "clean" / "pairs.parquet", pairs, PreferencePair)
    renderer, heard = Renderer(exported.tokenizer()), []
    for name, cached, lines in (("steer", True, 1), ("greedy", True, 0), ("steer", False, 0)):
        sizes = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 48, "max_length": 256}
        sampler = TorchSampler(new_model(exported.tokenizer(), **sizes, init_range=0.1, seed=1), renderer.end_id)
        sampler.sync()
        assert sampler.cached is not None
        if not cached:
            sampler.cached = sampler.turns = None
        decoder = serving(tmp_path, name, 0, say=heard.append).around(sampler, renderer, "cpu")
        prompt = renderer.prompt([Message(**CHAT[0])])
        for seed in (1, 2):
            decoder.open([np.asarray(prompt)], [seed]).generate(Sampling(max_tokens=3))
        assert len(heard) == lines, (name, cached)
        assert all(line.startswith(f"the decoder {name} changes what the layers compute") for line in heard)
        heard.clear()
