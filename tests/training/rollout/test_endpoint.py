"""The endpoint against a server that speaks the protocol on a real socket: cache, budget, retries, what is refused; and
a model's words."""

import json
import random
import re
import socket
import threading

import numpy as np
import pytest

from synth.knowledge.kb import passages
from synth.knowledge.world import world
from synth.questions.fuzzy.model import ModelWording, rewrite
from synth.questions.fuzzy_tree import FuzzyTrees, fuzzy_tree
from synth.questions.pattern import Named, Node, Nothing, Pattern, Span, Than, Third, canonical, inner
from synth.types import Message, Sampling
from tests.support.chat_server import Server
from training.rollout.endpoint import Budget, BudgetSpent, Endpoint, Prices

ASK = [Message(role="user", content="Hello?")]
SAMPLING = Sampling(temperature=0.5, max_tokens=10, stop=("END",), seed=3)


@pytest.fixture
def server():
    echo = Server(lambda body: f"you said {body['messages'][-1]['content']}")
    yield echo
    echo.http.shutdown()
    echo.http.server_close()


def endpoint(server, tmp_path, **knobs) -> Endpoint:
    return Endpoint(url=server.url, model="small", cache=tmp_path / "answers.sqlite", **knobs)


def asks(n: int) -> list:
    return [[Message(role="user", content=f"question {i}")] for i in range(n)]


def test_the_request_is_the_protocol_and_the_key_stays_in_its_header(server, tmp_path) -> None:
    model = endpoint(server, tmp_path, key="s3cret")
    assert model([ASK], SAMPLING) == ["you said Hello?"]
    assert server.bodies == [
        {
            "model": "small",
            "messages": [{"role": "user", "content": "Hello?"}],
            "temperature": 0.5,
            "top_p": 1.0,
            "max_tokens": 10,
            "seed": 3,
            "stop": ["END"],
        }
    ]
    assert server.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(model) and b"s3cret" not in (tmp_path / "answers.sqlite").read_bytes()


@pytest.fixture
def raw():
    """A server that sends exactly the bytes that it is told to, whatever it is asked: raw(*replies) -> its URL. What it
    was asked is in raw.heard."""
    opened = []

    def begin(*replies):
        listening = socket.create_server(("127.0.0.1", 0))
        opened.append(listening)

        def serve():
            for reply in replies:
                try:
                    caller, _ = listening.accept()
                except OSError:
                    return
                with caller:
                    request = b""
                    while b"\r\n\r\n" not in request:
                        request += caller.recv(65536)
                    head, _, body = request.partition(b"\r\n\r\n")
                    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
                    while len(body) < length:
                        body += caller.recv(65536)
                    begin.heard.append(head)
                    caller.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

    begin.heard = []
    yield begin
    for listening in opened:
        listening.close()


def reply(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    head = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{head}\r\n".encode() + body


def said(text="fine", **more) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], **more}).encode()


def hurried(url, tmp_path, **knobs) -> Endpoint:
    """An endpoint that waits for nothing and tries twice."""
    more = {"retries": 1, "timeout": 5.0, "key": "s3cret", "wait": lambda s: None, **knobs}
    return Endpoint(url=url, model="small", cache=tmp_path / "answers.sqlite", **more)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_the_key_goes_to_nobody_else(raw, tmp_path, status) -> None:
    other = raw(reply(said("from elsewhere")))
    url = raw(reply(status=status, Location=f"{other}/chat/completions"))
    with pytest.raises(ValueError, match=r"redirects to .*name that address"):
        hurried(url, tmp_path)([ASK], SAMPLING)
    assert len(raw.heard) == 1, "who it points to was not asked"


MANY = "".join(f"X-{i}: {i}\r\n" for i in range(500))
DEEP = b'{"choices": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    "bytes_, words",
    [
        (b"HTTP/1.1 abc OK\r\n\r\n", "cannot be reached"),
        (b"\x1b[2Jgarbage\r\n\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\nshort", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000 + b"\r\n\r\n", "cannot be reached"),
        (reply(b"\x1f\x8bno gzip", Content_Encoding="gzip"), "does not speak"),
        (reply(DEEP), "does not speak"),
        (reply(b"[" * 200_000), "does not speak"),
        (reply(b"\xff\xfe\x00"), "does not speak"),
        (reply(b'{"choices": [[]]}'), "does not speak"),
        (reply(b"7"), "does not speak"),
        (reply(said(["parts"])), "does not speak"),
        (reply(b"", status="204 No Content"), "refuses the request .204"),
        (reply(b"\x1b]0;title\x07 no", status="401 No"), "refuses the request .401"),
        (reply(status="503 Later", Retry_After="\u00b2"), "answers 503"),
        (reply(status="503 Later", Retry_After="9" * 400), "answers 503"),
    ],
)
def test_a_broken_reply_is_a_sentence(raw, tmp_path, bytes_, words) -> None:
    with pytest.raises(ValueError, match=words) as e:
        hurried(raw(bytes_, bytes_), tmp_path)([ASK], SAMPLING)
    assert str(e.value).isprintable() and len(str(e.value)) < 1000 and "s3cret" not in str(e.value)


def test_replies_that_are_odd_and_right(raw, tmp_path) -> None:
    url = raw(reply(said("one")).replace(b"Connection", MANY.encode() + b"Connection"), reply(said("a\ud800b")))
    model = hurried(url, tmp_path, budget=Budget(tokens=10_000))
    assert model([ASK], SAMPLING) == ["one"]
    assert model(asks(1), SAMPLING) == ["a\ufffdb"], "half of a pair is no text that can be kept"


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -10_000, "completion_tokens": -10_000},
        {"prompt_tokens": 10**30, "completion_tokens": 10**30},
        {"prompt_tokens": True, "completion_tokens": "7"},
        {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
        {"prompt_tokens": 0, "completion_tokens": 0},
        [3],
        None,
    ],
)
def test_what_is_used_is_never_less_than_nothing(raw, tmp_path, usage) -> None:
    """A usage that cannot be is estimated, so that a budget holds whatever an endpoint says."""
    model = hurried(raw(*[reply(said("word " * 20, usage=usage))] * 50), tmp_path, budget=Budget(tokens=400), workers=1)
    with pytest.raises(BudgetSpent):
        model(asks(50), SAMPLING)
    assert 0 < model.usage.requests < 20 and model.usage.prompt_tokens > 0 and model.usage.completion_tokens > 0


def test_a_url_and_a_key_that_cannot_be(tmp_path) -> None:
    for url in (
        "http://[::1",
        "http://",
        "http://127.0.0.1:99999/v1",
        "http://me:s3cret@127.0.0.1/v1",
        "http://a b/v1",
    ):
        with pytest.raises(ValueError) as e:
            hurried(url, tmp_path)
        assert "s3cret" not in str(e.value)
    for key in ("a\nHost: evil", "Schlüssel", "a b"):
        with pytest.raises(ValueError, match="the key") as e:
            hurried("http://127.0.0.1:1/v1", tmp_path, key=key)
        assert key not in str(e.value)


def test_a_reply_that_drips_has_an_end(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip():
            caller, _ = listening.accept()
            try:
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while True:
                    caller.sendall(b" ")
                    threading.Event().wait(0.05)
            except OSError:
                pass

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with pytest.raises(ValueError, match="cannot be reached"):
            hurried(url, tmp_path, timeout=0.3, retries=0)([ASK], SAMPLING)


def test_answers_come_in_order_and_are_paid_for_once(server, tmp_path) -> None:
    model = endpoint(server, tmp_path, workers=4)
    replies = model([*asks(9), asks(1)[0]], SAMPLING)
    assert replies == [f"you said question {i}" for i in (*range(9), 0)] and len(server.bodies) == 9
    assert (model.usage.requests, model.usage.prompt_tokens, model.usage.completion_tokens) == (9, 18, 36)
    again = endpoint(server, tmp_path)
    assert (
        again(asks(9), SAMPLING) == replies[:9]
        and len(server.bodies) == 9
        and again.usage.cached == 9
        and again.usage.requests == 0
    )
    again(asks(1), Sampling(temperature=0.5, max_tokens=10, stop=("END",), seed=4))
    Endpoint(url=server.url, model="other", cache=tmp_path / "answers.sqlite")(asks(1), SAMPLING)
    assert len(server.bodies) == 11, "another seed or model is another answer"


def test_what_it_would_cost_is_said_before(server, tmp_path) -> None:
    model = endpoint(server, tmp_path, prices=Prices(prompt=2.0, completion=10.0))
    model(asks(1), SAMPLING)
    e = model.estimate(asks(5), SAMPLING)
    assert (e.requests, e.cached, e.completion_tokens) == (4, 1, 40) and len(server.bodies) == 1
    assert e.cost == pytest.approx((e.prompt_tokens * 2 + 40 * 10) / 1e6) and e.prompt_tokens >= 4 * 2
    assert endpoint(server, tmp_path).estimate(asks(5), SAMPLING).cost is None and model.spent == pytest.approx(
        (2 * 2 + 4 * 10) / 1e6
    )


def test_a_budget_stops_before_it_is_passed_and_keeps_what_was_paid_for(server, tmp_path) -> None:
    model = endpoint(server, tmp_path, budget=Budget(requests=3), workers=2)
    with pytest.raises(BudgetSpent, match="3 requests could be passed"):
        model(asks(8), SAMPLING)
    # the third may not have been sent yet when the fourth is refused
    assert len(server.bodies) in (2, 3)
    assert endpoint(server, tmp_path).estimate(asks(8), SAMPLING).cached == len(server.bodies)
    assert len(endpoint(server, tmp_path)(asks(8), SAMPLING)) == 8 and len(server.bodies) == 8
    with pytest.raises(BudgetSpent, match="tokens"):
        endpoint(server, tmp_path, budget=Budget(tokens=5))([ASK], SAMPLING)
    with pytest.raises(ValueError, match="needs the prices"):
        endpoint(server, tmp_path, budget=Budget(cost=1.0))
    with pytest.raises(BudgetSpent, match="cost"):
        endpoint(server, tmp_path, budget=Budget(cost=1e-9), prices=Prices(prompt=1.0, completion=1.0))([ASK], SAMPLING)


def test_what_passes_is_tried_again(server, tmp_path) -> None:
    waits: list[float] = []
    model = endpoint(server, tmp_path, wait=waits.append)
    server.script = [429, 503, 200]
    assert model([ASK], SAMPLING) == ["you said Hello?"]
    assert waits == [7.0, 1.0] and model.usage.failed == 2


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([404], r"refuses the request \(404: .*no such model"),
        ([401], "401"),
        ([500] * 3, "answers 500 after 3 tries"),
        ([b"<html>"], "does not speak"),
        ([b'{"choices": []}'], "does not speak"),
        ([b'{"choices": [{"message": {"content": null}}]}'], "no text"),
    ],
)
def test_what_does_not_pass_is_one_sentence(server, tmp_path, script, message) -> None:
    server.script = script
    with pytest.raises(ValueError, match=message):
        endpoint(server, tmp_path, retries=2, wait=lambda s: None, key="s3cret")([ASK], SAMPLING)


def test_no_server_and_no_url(tmp_path) -> None:
    with pytest.raises(ValueError, match="cannot be reached"):
        Endpoint(url="http://127.0.0.1:9/v1", model="m", cache=tmp_path / "c.sqlite", retries=1, wait=lambda s: None)(
            [ASK], SAMPLING
        )
    with pytest.raises(ValueError, match="is no URL"):
        Endpoint(url="file:///etc/passwd", model="m", cache=tmp_path / "c.sqlite")


# ---- a model's words behind the gates


@pytest.fixture(scope="module")
def grown():
    kb = world(countries=30, seed=4)
    trees = FuzzyTrees.of(kb, passages(kb), seed=0)
    return trees, fuzzy_tree(trees, {("train", 2): 12, ("test", 3): 4})[0]


def as_json(pattern: Pattern, name) -> str:
    """What an honest reader replies."""

    def node(n: Node) -> dict:
        return {"type": n.type, "clues": [clue(c) for c in n.clues]}

    def clue(c) -> dict:
        if isinstance(c, Named):
            return {"initial": c.initial, "words": c.words}
        t = c.target
        value = (
            {"value": t.said}
            if isinstance(t, Span)
            else {"third": "top" if t.largest else "bottom"}
            if isinstance(t, Third)
            else {"none": True}
            if isinstance(t, Nothing)
            else {"more_than" if t.larger else "less_than": node(t.other)}
            if isinstance(t, Than)
            else {"name": name(t)}
            if isinstance(t, str)
            else node(inner(c))
        )
        return {"relation": c.relation, "side": "subject" if c.forward else "object", "is": value}

    return json.dumps({"ask": pattern.relation, "root": node(pattern.root)})


def scripted(trees, *, careless=()):
    """A model: it writes by adding a courtesy, and reads by the templates; `careless` readers and writers do it
    wrong."""

    def answer(body) -> str:
        last = body["messages"][-1]["content"]
        if body["messages"][0]["role"] == "system":
            (pattern,) = trees.wording.read(last.removesuffix(" Thank you!"))
            if "reader" in careless:
                pattern = Pattern(
                    relation=pattern.relation,
                    forward=True,
                    root=Node(type=pattern.root.type, clues=pattern.root.clues[:1]),
                )
            return "no idea" if "silent" in careless else f"Here you are: {as_json(pattern, trees.lexicon.name)}"
        text = last.split("\n\n")[-1] + " Thank you!"
        return f"{text} I think of {next(e for e in trees.lexicon._bearers)[1]}." if "leak" in careless else text

    return Server(answer)


def test_a_model_writes_and_another_prompt_reads(grown, tmp_path) -> None:
    trees, problems = grown
    server = scripted(trees)
    wording = ModelWording(endpoint(server, tmp_path), trees.wording, trees.lexicon)
    accepted, quarantined = rewrite(trees, problems, wording, seed=0)
    assert len(accepted) == len(problems) and not quarantined and len(server.bodies) == 2 * len(problems)
    for p, q in zip(problems, accepted, strict=True):
        assert (
            q.question.endswith("Thank you!")
            and q.answer == p.answer
            and q.lineage["wording"] == "model"
            and q.id != p.id
        )
        assert q.lineage["pattern"] == p.lineage["pattern"] and q.lineage["templates"] == p.question
    pattern = next(iter(wording._read.values()))[0]
    assert [canonical(x) for x in wording.read(wording.write(pattern, random.Random(0)))] == [canonical(pattern)]
    assert len(server.bodies) == 2 * len(problems), "nothing is asked twice"
    server.http.shutdown()


@pytest.mark.parametrize("careless", ["reader", "silent"])
def test_what_is_read_differently_is_set_aside(grown, tmp_path, careless) -> None:
    trees, problems = grown
    server = scripted(trees, careless=(careless,))
    accepted, quarantined = rewrite(
        trees, problems, ModelWording(endpoint(server, tmp_path), trees.wording, trees.lexicon), seed=0
    )
    assert (
        not accepted and {q.reason for q in quarantined} == {"roundtrip_mismatch"} and len(quarantined) == len(problems)
    )
    server.http.shutdown()


def test_a_writer_who_gives_the_answer_away_is_caught(grown, tmp_path) -> None:
    trees, problems = grown
    leaking = Server(lambda body: f"It is {problems[0].answer}, is it not?")
    accepted, quarantined = rewrite(
        trees, problems[:1], ModelWording(endpoint(leaking, tmp_path), trees.wording, trees.lexicon), seed=0
    )
    assert not accepted and [q.reason for q in quarantined] == ["answer_in_text"]
    leaking.http.shutdown()


def prompt_logprobs(told) -> bytes:
    body = json.dumps({"choices": [{"text": "", "prompt_logprobs": told}]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_a_teacher_tells_the_likeliest_tokens_of_a_prompt_once(raw, tmp_path) -> None:
    one = {"7": {"logprob": -0.1, "rank": 1}, "3": {"logprob": -3.0, "rank": 2}, "9": {"logprob": -9.0, "rank": 40}}
    two = {"5": {"logprob": -0.7, "rank": 1}, "2": {"logprob": -0.7, "rank": 2}}
    url = raw(prompt_logprobs([None, one, two]))
    teacher = Endpoint(url=url, model="big", cache=tmp_path / "teacher.sqlite")
    row = np.array([4, 9, 2])
    for _ in range(2):  # the second time from the cache
        (ids, logp), (again, _) = teacher.top_logprobs([row, row], 2)
        assert ids.tolist() == again.tolist() == [[0, 0], [7, 3], [2, 5]]
        np.testing.assert_allclose(logp, [[-np.inf] * 2, [-0.1, -3.0], [-0.7, -0.7]])
    assert teacher.usage.requests == 1 and teacher.usage.prompt_tokens == 3
    path = raw.heard[0].split()[1]
    assert path.endswith(b"/completions") and b"chat" not in path


@pytest.mark.parametrize(
    "told", [None, [None], [None, {"1": {"logprob": -1.0}}], [None, {"x": {"logprob": 0}}, {}], [None, {"1": 3}]]
)
def test_a_teacher_that_does_not_tell_them_is_refused_in_a_sentence(raw, tmp_path, told) -> None:
    teacher = Endpoint(url=raw(prompt_logprobs(told)), model="big", cache=tmp_path / "teacher.sqlite")
    with pytest.raises(ValueError, match="does not tell the log-probs of a prompt .* --max-logprobs 2"):
        teacher.top_logprobs([np.array([4, 9])], 2)


def test_a_teacher_is_asked_for_no_more_than_its_budget(tmp_path) -> None:
    teacher = Endpoint(url="http://127.0.0.1:9/v1", model="big", cache=tmp_path / "t.sqlite", budget=Budget(tokens=10))
    with pytest.raises(BudgetSpent, match="10 tokens"):
        teacher.top_logprobs([np.arange(10)], 2)
