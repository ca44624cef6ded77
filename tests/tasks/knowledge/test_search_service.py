"""The search service: its answers are the library's, its limits, hosts and sites that it refuses, health, metrics,
recording."""

import foreign
import pytest
from fastapi.testclient import TestClient

from synth.search.index import Page, build_index
from tasks.knowledge.recording import replay
from tasks.knowledge.service import MAX_BODY, service
from tests.tasks.core.test_local_service import served

INDEX = build_index(
    [
        Page(id="n", title="Norvia", text="The capital is Zelton.\nIt borders Halia."),
        Page(id="h", title="Halia", text="x"),
    ]
)


@pytest.fixture
def client():
    with TestClient(service(INDEX), base_url="http://127.0.0.1:8000") as c:
        yield c


def test_answers_are_those_of_the_library(client):
    for path, body, text in (
        ("/search", {"query": "capital"}, INDEX.search("capital")),
        ("/search", {"query": "norvia", "k": 1}, INDEX.search("norvia", 1)),
        ("/open", {"page": "Norvia"}, INDEX.open("Norvia")),
        ("/find", {"text": "borders halia", "page": "Norvia"}, INDEX.find("borders halia", "Norvia")),
    ):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()) == (200, {"text": text})


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("/search", {"query": "x" * 1001}, 422),
        ("/search", {"query": "x", "k": 51}, 422),
        ("/search", {"query": "x", "k": 0}, 422),
        ("/search", {"query": 3}, 422),
        ("/search", {"query": "x", "more": 1}, 422),
        ("/search", {}, 422),
        ("/open", {"page": "x", "part": 0}, 422),
        ("/nothing", {}, 404),
        ("/docs", {}, 404),
    ],
)
def test_what_is_not_asked_well(client, path, body, status):
    assert client.post(path, json=body).status_code == status


def test_bodies_are_bounded(client):
    assert client.post("/search", content=b"x" * (MAX_BODY + 1)).status_code == 413
    assert client.post("/search", headers={"content-length": "many"}, content=b"{}").status_code == 413

    def endless():
        for _ in range(100):
            yield b'{"query": "' + b"x" * 1000

    assert client.post("/search", content=endless()).status_code >= 400  # chunked: no length is said


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:8000"])
def test_other_hosts_are_refused(client, host):
    assert client.post("/search", json={"query": "x"}, headers={"host": host}).status_code == 421
    assert client.get("/health", headers={"host": host}).status_code == 421


def test_pages_of_other_sites_are_refused_and_names_can_be_added(client):
    assert client.post("/search", json={"query": "x"}, headers={"origin": "https://evil.example"}).status_code == 403
    assert client.post("/search", json={"query": "x"}, headers={"origin": "http://localhost:3000"}).status_code == 403
    assert client.post("/search", json={"query": "x"}, headers={"origin": "http://127.0.0.1:8000"}).status_code == 200
    with TestClient(service(INDEX, hosts=("box.lan",)), base_url="http://box.lan") as c:
        assert c.get("/health").status_code == 200


@pytest.mark.parametrize(
    "headers, body",
    [
        ({"host": "[::1"}, b"{}"),
        ({"origin": "http://[::1"}, b"{}"),
        ({}, b'{"query": "x", "k": NaN}'),
        ({}, b'{"query": "x", "k": 1e999}'),
        ({}, b'{"query": "\\ud800"}'),
        ({}, b'{"query": "x", "\\ud800": 1}'),
        ({}, b"\xff\xfe"),
        ({}, b"[" * 5000),
        ({}, b'{"query": ' + b"9" * 5000 + b"}"),
        ({}, b'{"query": 1, "k": "\\ud800"}'),
    ],
)
@pytest.mark.parametrize("path", ["/search", "/open", "/find"])
def test_a_broken_request_is_the_caller_s_mistake(client, path, headers, body):
    body = body if path == "/search" else body.replace(b"query", b"page" if path == "/open" else b"text")
    answer = client.post(path, content=body, headers={"content-type": "application/json", **headers})
    assert 400 <= answer.status_code < 500, answer.text


def test_requests_of_other_sites():
    with served(service(INDEX)) as port:
        about = {"get": "/health", "post": "/search", "body": b'{"query": "capital"}'}
        assert foreign.accepted(port, **about) == []
        answer = foreign.ask(port, "POST", "/search", {"Content-Type": "application/json"}, about["body"])
        assert answer[0] == 200 and b"Zelton" in answer[2]


def test_health_and_metrics(client):
    health = client.get("/health").json()
    assert health["status"] == "ok" and health["digest"] == INDEX.digest() and health["line"] == 3
    for _ in range(3):
        client.post("/search", json={"query": "capital"})
    client.post("/search", json={})
    text = client.get("/metrics").text
    assert 'espalier_search_requests_total{path="/search",status="200"} 3' in text
    assert 'espalier_search_requests_total{path="/search",status="422"} 1' in text
    assert 'espalier_search_seconds_bucket{path="/search",le="+Inf"} 4' in text and "espalier_search_lines 3" in text


def test_a_recorded_service_replays(tmp_path):
    with TestClient(service(INDEX, record=tmp_path / "calls.jsonl"), base_url="http://localhost") as c:
        c.post("/search", json={"query": "capital", "k": 2})
        c.post("/find", json={"text": "borders"})
        c.post("/find", json={"text": 7})
    assert replay(tmp_path / "calls.jsonl", INDEX) == (2, [])
