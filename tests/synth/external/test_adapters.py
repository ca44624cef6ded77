"""The adapters against what they adapt: Gymnasium itself, a package that has what reasoning-gym is asked for, and servers
that speak as those of NeMo Gym and OpenEnv do."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gymnasium
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from flows.cli import main
from synth.external.parent import NO_ANSWER, begin, opened, problem
from synth.types import Scored, Unscorable, UserError
from synth.verify import verify
from tasks.evaluation.env_audit import audit_external, drawn

LAKE = {"adapter": "gymnasium", "id": "FrozenLake-v1", "actions": ["left", "down", "right", "up"], "is_slippery": True}


# --- reasoning-gym ----------------------------------------------------------------------------------------------------

# What the adapter asks of reasoning-gym 0.1.25, which pins a version that DVC does not take: item i of a data set is drawn
# from seed + i, and one task evaluates answers, as its n_queens does.
STANDS_IN = """
import random
from dataclasses import dataclass

@dataclass
class Config:
    size: int = 500
    seed: int = 0
    max_terms: int = 6

class Chain:
    def __init__(self, config):
        assert config.max_terms > 1, "max_terms must be above 1"
        self.config = config

    def __getitem__(self, i):
        rng = random.Random(self.config.seed + i)
        terms = [rng.randint(100, 999) for _ in range(rng.randint(2, self.config.max_terms))]
        return {"question": " + ".join(map(str, terms)), "answer": str(sum(terms)), "metadata": {"terms": terms}}

    def score_answer(self, answer, entry):
        return 1.0 if answer == str(sum(entry["metadata"]["terms"])) else 0.0

class Evaluates(Chain):
    def score_answer(self, answer, entry):
        if answer != entry["answer"]:
            try:
                eval(answer)
            except Exception:
                return 0.0
        return super().score_answer(answer, entry)

DATASETS = {"chain_sum": (Chain, Config), "n_queens": (Evaluates, Config)}

def create_dataset(name, **knobs):
    if name not in DATASETS:
        raise ValueError(f"Dataset '{name}' not registered")
    made, config = DATASETS[name]
    return made(config(**knobs))
"""


@pytest.fixture
def chains(tmp_path):
    package = tmp_path / "reasoning_gym"
    package.mkdir()
    (package / "__init__.py").write_text("from reasoning_gym.factory import create_dataset\n")
    (package / "factory.py").write_text(STANDS_IN)
    (tmp_path / "reasoning_gym-0.1.25.dist-info").mkdir()
    (tmp_path / "reasoning_gym-0.1.25.dist-info/METADATA").write_text("Name: reasoning-gym\nVersion: 0.1.25\n")
    return {"adapter": "reasoning-gym", "task": "chain_sum", "variables": {"PYTHONPATH": str(tmp_path)}}


def test_reasoning_gym_gives_its_own_items_and_scores(chains):
    problems = [problem({**chains, "max_terms": 3}, 0, "train", i) for i in range(20)]
    assert {p.question.count("+") for p in problems} == {1, 2} and len({p.question for p in problems}) == 20
    for p in problems:
        assert int(p.answer) == sum(map(int, p.question.split(" + ")))
        assert verify(p, p.answer) == Scored(value=1.0) and verify(p, "0") == Scored(value=0.0)
    assert problems[0].family == "reasoning_gym.chain_sum" and problems[0].lineage["version"] == "0.1.25"


def test_neighbouring_seeds_share_items_where_the_package_draws_and_not_here(chains):
    native = {**chains, "native": True}
    texts = [{p.question for p in part} for part in drawn(native, 12)]
    assert len(texts[0] & texts[1]) == 10, "the seeds 0 and 2"
    findings = {f.name: f for f in audit_external(*drawn(native, 12))}
    assert findings["shared"].holds is False and findings["shared"].text.startswith("10 of 12")
    assert not [f for f in audit_external(*drawn(chains, 12)) if f.holds is False]


def test_scorers_that_evaluate_the_answer_are_found(chains, capsys):
    words = [f"variables={json.dumps(chains['variables'])}", "task=n_queens", "-n", "8", "--json"]
    assert main(["env", "audit", "reasoning-gym", *words]) == 1
    assert [f["name"] for f in json.loads(capsys.readouterr().out) if f["holds"] is False] == ["executed"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"task": "chain_some"}, "'chain_some' not registered; some of its 2 tasks are chain_sum, n_queens"),
        ({"terms": 3}, "the task chain_sum takes no such option"),
        ({"max_terms": 1}, "the task chain_sum refuses its options: max_terms must be above 1"),
    ],
)
def test_a_task_that_reasoning_gym_does_not_have_is_said(chains, more, message):
    with pytest.raises(UserError, match=re.escape(message)):
        opened({**chains, **more})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"adapter": "reasoning_gym"}, "it needs the option task"),
        ({"adapter": "gymnasium", "id": "NoLake-v1"}, "name the module that registers it"),
        ({"adapter": "gymnasium", "id": "CartPole-v1"}, "which is no text, and it has no render mode ansi"),
        ({"adapter": "gymnasium", "id": "Pendulum-v1"}, "only text and numbered actions can be written"),
        ({**LAKE, "actions": ["left"]}, "FrozenLake-v1 has 4 actions, and 1 names are given"),
        (
            {"adapter": "nemo_gym", "url": "http://127.0.0.1:1", "train": "/none.jsonl"},
            "/none.jsonl is no file of JSON lines",
        ),
        (
            {"adapter": "nemo_gym", "url": "http://example.com", "train": ""},
            "http://example.com is not on this machine",
        ),
        ({"adapter": "openenv", "url": "http://127.0.0.1:1", "action": "a", "observation": "b"}, "start it first"),
    ],
)
def test_what_an_adapter_cannot_honour_is_one_sentence(entry, message):
    with pytest.raises(UserError) as e:
        opened(entry)
    assert message in str(e.value) and "\n" not in str(e.value)


# --- Gymnasium --------------------------------------------------------------------------------------------------------


def test_an_episode_of_gymnasium_is_the_one_that_gymnasium_plays():
    p = problem(LAKE, 0, "train", 0)
    theirs = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=True)
    theirs.reset(seed=p.args["item"]["seed"])
    episode = begin(p)
    assert "[S]FFF\nFHFH" in episode.messages[0].content and "left, down, right, up" in episode.messages[0].content
    replies = [episode.turn("I go <answer>Down</answer>")]
    while not replies[-1][1]:
        replies.append(episode.turn("right"))
    for (messages, over, reward), action in zip(replies, [1, *[2] * len(replies)], strict=False):
        _, wanted, ended, cut, _ = theirs.step(action)
        row = next(i for i, line in enumerate(theirs.render().splitlines()[1:]) if "\x1b[41m" in line)
        assert "[" in messages[0].content.splitlines()[1 + row] and (over, reward) == (ended or cut, wanted)
    messages, over, reward = begin(p).turn("fly")
    assert (over, reward) == (False, 0.0) and messages[
        0
    ].content == "error: 'fly' is no action; they are left, down, right, up"


def test_an_episode_of_gymnasium_ends_with_its_turns():
    episode = begin(problem({**LAKE, "turns": 2}, 0, "train", 0))
    assert [episode.turn("fly")[1] for _ in range(2)] == [False, True]


def test_gymnasium_passes_the_audit():
    holding = {f.name: f.holds for f in audit_external(*drawn(LAKE, 6))}
    assert not [name for name, holds in holding.items() if holds is False] and holding["executed"] is True


# --- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def resources_server(swallows=False):
    """Scores as a resources server of NeMo Gym: /seed_session gives a cookie, /verify wants it, the row and the response."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, body))
            status, reply = 200, {}
            if self.path == "/verify":
                status, reply = self.verified(body)
            self.send_response(status)
            if self.path == "/seed_session":
                self.send_header("Set-Cookie", f"session={len(requests)}")
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

        def verified(self, body):
            if "session=" not in self.headers.get("Cookie", ""):
                return 400, {}
            from openai.types.responses import Response

            response = Response.model_validate(body["response"])
            try:
                reward = float(response.output_text == body["expected_answer"])
            except KeyError:
                if not swallows:
                    return 500, {}
                reward = 0.0
            return 200, {**body, "reward": reward, "length": len(response.output_text)}

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "train.jsonl"
    lines = [
        {
            "responses_create_params": {
                "input": [{"role": "developer", "content": "Be short."}, {"role": "user", "content": f"Spell {i}"}]
            },
            "expected_answer": f"w{i}",
            "id": i,
        }
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in lines))
    return str(path)


def test_a_resources_server_of_nemo_gym_scores_its_rows(rows):
    with resources_server() as (url, requests):
        entry = {"adapter": "nemo_gym", "url": url, "train": rows}
        by_split = {s: [] for s in ("train", "valid", "test")}
        for split, of_split in by_split.items():
            while p := problem(entry, 0, split, len(of_split)):
                of_split.append(p)
        assert (
            sum(map(len, by_split.values())) == 60 and len({p.question for ps in by_split.values() for p in ps}) == 60
        )
        assert len(by_split["train"]) > len(by_split["test"]) > 0
        p = by_split["train"][0]
        assert [m.role for m in p.prompt] == ["system", "user"] and p.answer == f"w{p.args['item']['id']}"
        assert verify(p, p.answer) == Scored(value=1.0, parts={"length": float(len(p.answer))})
        assert verify(p, "no") == Scored(value=0.0, parts={"length": 2.0})
        assert [path for path, _ in requests[-2:]] == ["/seed_session", "/verify"]
        of_split = {f.name: f for f in audit_external(by_split["train"][:8], by_split["test"])}
        assert of_split["grader"].holds is True and "500" in of_split["grader"].text
        assert of_split["executed"].holds is None and "is not watched" in of_split["executed"].text
    gone = verify(p, p.answer)
    assert isinstance(gone, Unscorable) and gone.reason.startswith("external_failed"), (
        "a server that is gone is no zero"
    )


def test_a_resources_server_that_calls_its_own_errors_wrong_answers_is_found(rows):
    with resources_server(swallows=True) as (url, _):
        train, test = drawn({"adapter": "nemo_gym", "url": url, "train": rows}, 8)
        failing = [f.name for f in audit_external(train, test) if f.holds is False]
    assert failing == ["grader"]


@contextmanager
def environment_server():
    """A guessing game over the protocol of OpenEnv: /schema, and an episode for each connection to /ws."""
    schema = {
        "action": {"title": "GuessAction", "properties": {"metadata": {}, "guess": {"type": "string"}}},
        "observation": {"properties": {"done": {}, "reward": {}, "text": {"type": "string"}}},
    }
    left = []

    def http(connection, request):
        if request.path == "/schema":
            return connection.respond(200, json.dumps(schema))
        return None

    def received(socket):
        try:
            yield from socket
        except ConnectionClosed:
            return

    def play(socket):
        number = None
        for text in received(socket):
            message = json.loads(text)
            if message["type"] == "reset":
                number = message["data"]["seed"] % 9 + 1
                seen = {"observation": {"text": "1 to 9?"}, "reward": None, "done": False}
            elif message["data"]["guess"] == "break":
                socket.send(
                    json.dumps({"type": "error", "data": {"message": "no such guess", "code": "EXECUTION_ERROR"}})
                )
                continue
            else:
                right = message["data"]["guess"] == str(number)
                seen = {"observation": {"text": "right" if right else "no"}, "reward": float(right), "done": right}
            socket.send(json.dumps({"type": "observation", "data": seen}))
        left.append(number)

    with serve(play, "127.0.0.1", 0, process_request=http) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}", left
        server.shutdown()


def test_an_environment_server_of_openenv_plays_an_episode_for_each_connection():
    with environment_server() as (url, left):
        entry = {"adapter": "openenv", "url": url, "action": "guess", "observation": "text", "turns": 12}
        p, other = problem(entry, 0, "train", 0), problem(entry, 0, "train", 1)
        assert p.answer == NO_ANSWER and p.family == "openenv.GuessAction" and p.env == "external"
        number = p.args["item"]["seed"] % 9 + 1
        one, two = begin(p), begin(other)
        assert one.messages[0].content == "1 to 9?"
        reply = one.turn("0")
        assert (reply[0][0].content, *reply[1:]) == ("no", False, 0.0)
        assert two.turn("break").reason.startswith("external_failed: RuntimeError: the server says")
        reply = one.turn(f"it is <answer>{number}</answer>")
        assert (reply[0][0].content, *reply[1:]) == ("right", True, 1.0)
        with pytest.raises(UserError, match="has no field 'gess', but guess: name one"):
            opened({**entry, "action": "gess"})


# --- verifiers ---------------------------------------------------------------------------------------------------------

# What the adapter asks of verifiers 0.4, which asks for versions that DVC does not take: the modules that it imports, with an
# agent's interaction as an environment uses it. Tried by hand with verifiers 0.4.0 itself and the same taskset.
VERIFIERS = {
    "__init__": "",
    "v1/__init__": "",
    "v1/graph": """
from types import SimpleNamespace as MessageNode
""",
    "v1/types": """
from dataclasses import dataclass

@dataclass
class UserMessage:
    content: str
    role: str = "user"

@dataclass
class SystemMessage(UserMessage):
    role: str = "system"

@dataclass
class AssistantMessage(UserMessage):
    role: str = "assistant"

def content_text(content):
    return content
""",
    "v1/trace": """
from types import SimpleNamespace

class TraceTask(SimpleNamespace):
    @classmethod
    def model_construct(cls, **fields):
        return cls(**fields)

class Trace(TraceTask):
    reward = property(lambda self: sum(r.value for r in self.rewards.values()))
    num_turns = property(lambda self: sum(n.sampled for n in self.nodes))

    def record_reward(self, name, value, weight=1.0):
        self.rewards[name] = SimpleNamespace(value=value * weight)
""",
    "v1/episode": "from verifiers.v1.trace import TraceTask as Episode\n",
    "v1/agent": """
from dataclasses import dataclass

@dataclass
class Segment:
    messages: list
    root_reply: str
    terminated: bool = False
    last_reply = property(lambda self: self.root_reply.strip())
""",
    "v1/configs/__init__": "",
    "v1/configs/agent": "agent_config_fields = lambda config: config.seats\n",
    "v1/utils/__init__": "",
    "v1/utils/loaders": """
from importlib import import_module
from types import SimpleNamespace

taskset_config_type = lambda name: lambda **given: SimpleNamespace(**given)
load_taskset = lambda config: import_module(config.id).tasks(config)
environment_class = lambda name: getattr(import_module(name), "Env", type("SingleAgentEnv", (), {}))
resolve_env_config = lambda given: SimpleNamespace(seats=import_module(given["taskset"]["id"]).SEATS)
def load_environment(config):
    env = environment_class("higher")()
    env.config = config
    return env
""",
    "higher": """
from types import SimpleNamespace

SEATS = {"player": None}

class Task:
    NEEDS_CONTAINER = False

    def __init__(self, i, opens):
        said = f"Game {i}: a number from 1 to 9." if opens else None
        self.data = SimpleNamespace(prompt=said, prompt_text=said or "", system_prompt="Say a number.", hidden=i % 9 + 1)
        self.hash, self.config = str(i), None

    def hooks(self, kind):
        return []

    def toolsets(self, config):
        return []

    async def score(self, trace):
        trace.record_reward("short", 1 / trace.num_turns)

def tasks(config):
    return [Task(i, getattr(config, "opens", True)) for i in range(40)]

class Env:
    async def setup(self, agents):
        pass

    async def run(self, task, agents):
        async with agents.player.interaction(task) as talk:
            segment = await (talk.turn() if task.data.prompt else talk.turn("Guess."))
            for _ in range(3):
                if int(segment.last_reply) == task.data.hidden:
                    break
                segment = await talk.turn("higher" if int(segment.last_reply) < task.data.hidden else "lower")
        talk.trace.record_reward("right", float(segment.last_reply == str(task.data.hidden)))
        if task.data.hidden == 9:
            async with agents.player.interaction(task) as again:
                await again.turn()

    async def finalize(self, task, episode):
        episode.traces[0].record_reward("end", 1.0)
""",
}


@pytest.fixture
def higher(tmp_path):
    for name, text in VERIFIERS.items():
        path = tmp_path / (f"{name}.py" if name == "higher" else f"verifiers/{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "verifiers-0.4.0.dist-info").mkdir()
    (tmp_path / "verifiers-0.4.0.dist-info/METADATA").write_text("Name: verifiers\nVersion: 0.4.0\n")
    return {"adapter": "verifiers", "taskset": "higher", "variables": {"PYTHONPATH": str(tmp_path)}}


def numbered(hidden, source):
    """A problem to train on whose hidden number it is."""
    drawn = (problem(source, 0, "train", i) for i in range(40))
    return next(p for p in drawn if p and p.args["item"]["idx"] % 9 + 1 == hidden)


def test_an_environment_of_verifiers_is_played_over_several_turns(higher):
    played = numbered(3, higher)
    assert played.env == "external" and played.answer == NO_ANSWER
    assert [m.role for m in played.prompt] == ["system", "user"]
    episode, other = begin(played), begin(played)
    assert episode.messages == list(played.prompt)
    assert [m.content for m in episode.turn("5")[0]] == ["lower"]
    assert [m.content for m in other.turn("1")[0]] == ["higher"]  # each is on its own
    assert episode.turn("3") == ([], True, 0.5 + 1.0 + 1.0)  # its task's reward, its own, and that of its end
    assert other.turn("3") == ([], True, 0.5 + 1.0 + 1.0)


def test_an_environment_of_verifiers_may_speak_first(higher):
    played = problem({**higher, "opens": False}, 0, "train", 0)
    assert [(m.role, m.content) for m in played.prompt] == [("user", "Guess.")]


def test_what_an_environment_of_verifiers_cannot_take_is_no_score(higher):
    lost = begin(numbered(3, higher)).turn("three")
    assert isinstance(lost, Unscorable) and lost.reason.startswith("external_failed: ValueError: invalid literal")
    episode = begin(numbered(9, higher))
    lost = episode.turn("9")
    assert isinstance(lost, Unscorable) and "begins a second conversation: play it as a program" in lost.reason


def test_an_environment_of_two_agents_is_a_program(higher):
    there = next(iter(higher["variables"].values()))
    (Path(there) / "higher.py").write_text(VERIFIERS["higher"].replace('{"player": None}', '{"user": 1, "player": 1}'))
    with pytest.raises(UserError, match="is played by user and player, and one agent is trained: play it as a program"):
        opened(higher)
