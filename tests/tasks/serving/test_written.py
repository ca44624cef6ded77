"""`espalier chat` and `espalier serve` of a model that does not write token by token (evaluate.generation): they answer as
evaluation does, or say in a sentence why not and what to do."""

import exported
import foreign
import json
import pytest
import threading
import time
import uvicorn
from ports import free_port

from flows import cli
from synth.types import Message, Sampling
from tasks.core import local
from tasks.core.errors import UserError
from tasks.models import served as models
from tasks.planning.pieces import bind
from tasks.results.chat import Chat
from tasks.serving.api import guarded
from training.model.model import load_model, save_model
from training.model.render import Renderer

KEY = "k" * 43
CHAT = [{"role": "user", "content": "What is the capital of Norvia?"}]
WAYS = {
    "mixture_of_tokens": "{piece: mixture_of_tokens, k: 3}",
    "gaussian_latents": "{piece: gaussian_latents, c_max: 3, c: 3}",
    "masked_diffusion": "{piece: masked_diffusion, length: 12, steps: 4}",
}
SPECS = {
    "mixture_of_tokens": {"piece": "mixture_of_tokens", "k": 3},
    "gaussian_latents": {"piece": "gaussian_latents", "c_max": 3, "c": 3},
    "masked_diffusion": {"piece": "masked_diffusion", "length": 12, "steps": 4},
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of test models: `m` (plain), and for each way one with its layers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    save_model(exported.build("qwen3", seed=7), exported.tokenizer(), tmp_path / "m")
    for name, spec in SPECS.items():
        model, tokenizer = load_model(tmp_path / "m")
        bind("generation", spec)().begin(model, Renderer(tokenizer))
        save_model(model, tokenizer, tmp_path / name)

    def sets(way):
        text = "recipe: grpo\n" + (f"set: {{evaluate: {{generation: {WAYS[way]}}}}}\n" if way else "")
        (tmp_path / "params.yaml").write_text(text)
        return tmp_path

    return sets


class Answering:
    """A served model behind a port of this process."""

    def __init__(self, served):
        self.served, self.port = served, free_port()
        self.server = uvicorn.Server(local.config(guarded(served, KEY), port=self.port))
        threading.Thread(target=self.server.run, daemon=True).start()
        until = time.monotonic() + 300
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.served.conversations.close()

    def ask(self, **body):
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        data = json.dumps({"messages": CHAT, **body}).encode()
        status, _, reply = foreign.ask(self.port, "POST", "/v1/chat/completions", headers, data)
        return status, json.loads(reply[reply.index(b"{") : reply.rindex(b"}") + 1])


@pytest.mark.parametrize("name", sorted(WAYS))
def test_what_is_served_is_what_the_sampler_of_that_way_writes(project, name):
    root = project(name)
    model, tokenizer = load_model(root / name)
    renderer, way = Renderer(tokenizer), bind("generation", SPECS[name])()
    way.begin(model, renderer, root / name)
    with Answering(models.served(root, str(root / name), name="it", device="cpu")) as it:
        status, reply = it.ask(temperature=0, max_tokens=20)
        assert status == 200, reply
        prompt = renderer.prompt([Message(**CHAT[0])])
        turn = way.sampler(model, renderer).open([prompt], [0]).generate(Sampling(temperature=0.0, max_tokens=20))[0]
        assert reply["choices"][0]["message"]["content"] == renderer.decode(turn.ids)
        status, reply = it.ask(max_tokens=20, logprobs=True)
        assert status == 400 and f"this model writes its turns by {name}: leave them out" in reply["error"]["message"]
        status, reply = it.ask(max_tokens=20, top_p=0.5)
        assert status == 400 and "leave out top_k, top_p" in reply["error"]["message"]
        if name == "masked_diffusion":
            status, reply = it.ask(max_tokens=5)
            assert status == 400 and "writes turns of 12 tokens" in reply["error"]["message"]
        assert it.ask(max_tokens=20, seed=3, n=2)[1] != it.ask(max_tokens=20, seed=4, n=2)[1]


@pytest.mark.parametrize("name", sorted(WAYS))
def test_chat_answers_by_the_way_and_decoders_do_or_say_why_not(project, name):
    root = project(name)
    (root / "artifacts").mkdir()
    (root / "dvc.yaml").write_text("stages: {}\n")
    path = str(root / name)
    kb = root / "kb"
    from synth.knowledge.kb import Passage
    from tasks.storage import tables

    tables.write(
        kb / "passages.parquet", [Passage(id="p", entity="Norvia", title="Norvia", text="Zelton.", facts=())], Passage
    )
    heard = []
    talk = Chat(root, path, kb=kb)
    assert getattr(talk.sampler, "writes", "tokens") == ("turns" if name == "masked_diffusion" else "steps")
    talk.ask(CHAT[0]["content"], heard.append)
    assert heard and heard[0].role == "assistant"
    for decoder in ("greedy", "majority"):
        if name == "masked_diffusion":
            with pytest.raises(UserError, match="reads a whole turn several times, .* leave out the decoder, or"):
                Chat(root, path, kb=kb, decoder=decoder, tokens=2000)
        else:
            by, again = Chat(root, path, kb=kb, decoder=decoder, tokens=2000), []
            by.ask(CHAT[0]["content"], again.append)
            assert by.accounts and by.accounts[0].spent <= 2000
            assert decoder != "greedy" or again[0].content == heard[0].content
    with pytest.raises(UserError, match="the decoder plans: .*(piece by piece|several times).* leave out the"):
        Chat(root, path, kb=kb, decoder="plans", tokens=2000)


def test_a_model_and_a_setting_that_do_not_go_together_are_refused(project, capsys):
    root = project("gaussian_latents")
    for name, why in (
        ("m", "has no layers for it (latent_thought.safetensors in its folder): train it so (sft.generation)"),
        (
            "masked_diffusion",
            "was trained to write its turns by masked_diffusion, and evaluate.generation is gaussian_latents",
        ),
    ):
        with pytest.raises(UserError) as e:
            models.served(root, str(root / name), device="cpu")
        assert why in str(e.value)
    with pytest.raises(UserError, match="--training samples and learns one token after another: name another model"):
        models.trained(root, str(root / "gaussian_latents"), device="cpu")
    root = project("")
    with pytest.raises(UserError, match="evaluate.generation is not set: set it to {piece: gaussian_latents, ...}"):
        models.served(root, str(root / "gaussian_latents"), device="cpu")
    (root / "params.yaml").write_text(
        "recipe: grpo\nset: {evaluate: {generation: {piece: gaussian_latents, c_max: 9}}}\n"
    )
    with pytest.raises(
        UserError, match="evaluate.generation: .* name the generation with the knobs that it was trained"
    ):
        models.served(root, str(root / "gaussian_latents"), device="cpu")
    assert cli.main(["chat", str(root / "gaussian_latents"), "--question", "x"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
