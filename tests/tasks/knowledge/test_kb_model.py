"""`espalier kb build --endpoint`: a model behind a server on a real socket reads paragraphs; what is asked once is never asked
again, and what is read without it is never lost."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from tasks.knowledge import bases
from tasks.storage import tables
from synth.types import Quarantined
from tests.support.chat_server import Server
from tests.support.scripted_reader import Reader
from training.rollout.endpoint import Endpoint

WEND = "Otto Wend was born in Zelton in 1901. He married Clara Roth. He was employed by Aerowerk Vael."
BORN, MARRIED, EMPLOYED = (f"{s.rstrip('.')}." for s in WEND.split(". "))
FACTS = {
    BORN: [("Otto Wend", "place of birth", "Zelton"), ("Otto Wend", "place of birth", "Atlantis")],
    MARRIED: [("Clara Roth", "employer", "Otto Wend")],
    EMPLOYED: [("He", "employer", "Aerowerk Vael")],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/wend.txt").write_text(f"Otto Wend\n\n{WEND}\n")
    Path("notes/zelton.txt").write_text("Zelton\n\nZelton is a city in Norvia.\n")
    return tmp_path


@pytest.fixture
def server():
    made = []

    def start(answer):
        made.append(Server(lambda body: answer(body["messages"][-1]["content"])))
        return made[-1]

    yield start
    for one in made:
        one.http.shutdown()
        one.http.server_close()


def build(url, out="kb", *more):
    return main(["kb", "build", "notes", "--out", out, "--endpoint", url, "--model", "m", *more])


def facts(out="kb"):
    kb = bases.load(Path(out))
    return {(f.subject.partition(":")[2], f.relation, kb.text(f.value)): f for f in kb.facts.values()}


def test_a_base_with_facts_of_a_model(folder, server, capsys):
    one = server(Reader(FACTS, FACTS).answer)
    assert build(one.url) == 0
    said = capsys.readouterr().out
    assert "m wrote 4 lines about 4 sentences: 1 fact of its own, 1 that patterns found too" in said
    assert "requests: 6 (0 more answers" in said
    employer = facts()["Otto Wend", "employer", "Aerowerk Vael"]
    assert employer.source.endswith(" [model]") and employer.span == EMPLOYED
    card = json.loads(Path("kb/card.json").read_text())
    assert card["model"]["name"] == "m" and card["model"]["lineage"] == {"pattern, model": 1, "model": 1}
    assert card["quarantined"] == {"model_object_not_in_sentence": 1, "model_no_page": 1}
    assert card["produced"] == card["accepted"] + sum(card["quarantined"].values())
    rows = tables.read(Path("kb/quarantine.parquet"), Quarantined)
    assert any("Otto Wend | place of birth | Atlantis" in q.evidence and BORN in q.evidence for q in rows)
    assert all(b["temperature"] == 0 and b["seed"] == 0 and b["model"] == "m" for b in one.bodies)
    assert main(["kb", "show", "kb", "--relations"]) == 0 and "m wrote 4 lines" in capsys.readouterr().out


def test_the_same_command_asks_nothing_twice_and_writes_the_same(folder, server, capsys):
    one = server(Reader(FACTS, FACTS).answer)
    assert build(one.url) == 0 and build(one.url, "again") == 0
    assert len(one.bodies) == 6 and "requests: 0 (6 more answers" in capsys.readouterr().out
    for name in ("facts.parquet", "card.json", "quarantine.parquet"):
        assert (Path("kb") / name).read_bytes() == (Path("again") / name).read_bytes()


def test_rows_that_a_model_wrote_are_no_bad_rows_of_the_user(folder, server):
    assert build(server(Reader(FACTS, FACTS).answer).url, "kb", "--bad-rows", "0") == 0


def test_the_base_can_be_built_again_from_its_schema(folder, server):
    one = server(Reader(FACTS, FACTS).answer)
    assert build(one.url) == 0
    again = ["kb", "build", "--schema", "kb/schema.yaml", "--out", "again", "--endpoint", one.url, "--model", "m"]
    assert main(again) == 0 and facts("again").keys() == facts().keys() and len(one.bodies) == 6


def without_a_model(capsys, said):
    """What patterns find is there, and the command says why there is no more in one sentence."""
    error = capsys.readouterr().err
    assert said in error and "kb has what is read without a model, and the same command goes on from here" in error
    assert ("Otto Wend", "born_in", "Zelton") in facts() and ("Otto Wend", "employer", "Aerowerk Vael") not in facts()
    assert json.loads(Path("kb/card.json").read_text())["model"]["stopped"]
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "answer, said",
    [
        ("I am sorry, Dave.", "the model wrote no line `number | subject | relation | object` in 2 answers"),
        ("\x1b[31m{}[]|||||\n|\n", "the model wrote no line"),
    ],
)
def test_a_model_that_answers_rubbish(folder, server, capsys, answer, said):
    assert build(server(lambda prompt: answer).url) == 2
    without_a_model(capsys, said)


def test_an_endpoint_that_answers_no_chat(folder, server, capsys):
    one = server(lambda prompt: "")
    one.script = [b"<html>", b"<html>"]
    assert build(one.url) == 2
    without_a_model(capsys, "does not speak the chat-completions protocol")


def test_an_endpoint_that_only_fails(folder, server, capsys, monkeypatch):
    monkeypatch.setitem(Endpoint.__init__.__kwdefaults__, "wait", lambda seconds: None)
    one = server(lambda prompt: "")
    one.script = [500] * 100
    assert build(one.url) == 2
    without_a_model(capsys, "answers 500 after 6 tries: start it, or fix the URL")


def test_a_few_failures_are_retried(folder, server, capsys):
    one = server(Reader(FACTS, FACTS).answer)
    one.script = [503]
    assert build(one.url) == 0 and ("Otto Wend", "employer", "Aerowerk Vael") in facts()


def test_a_budget_stops_and_a_larger_one_goes_on(folder, server, capsys):
    one = server(Reader(FACTS, FACTS).answer)
    assert build(one.url, "kb", "--max-tokens", "900") == 2
    without_a_model(capsys, "the budget of 900 tokens could be passed by the next request")
    asked = len(one.bodies)
    assert 0 < asked < 6 and build(one.url) == 0 and len(one.bodies) == 6


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--endpoint", "http://127.0.0.1:1/v1"], "--endpoint needs --model"),
        (["--model", "m"], "--model needs --endpoint"),
        (["--endpoint", "nowhere", "--model", "m"], "the endpoint 'nowhere' is no URL"),
    ],
)
def test_half_of_an_endpoint_is_one_sentence(folder, capsys, arguments, said):
    assert main(["kb", "build", "notes", "--out", "kb", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_table_has_no_paragraphs(folder, capsys):
    Path("mine.csv").write_text("subject,relation,object\nNorvia,capital,Zelton\n")
    arguments = ["kb", "build", "mine.csv", "--out", "kb", "--endpoint", "http://127.0.0.1:1/v1", "--model", "m"]
    assert main(arguments) == 2 and "no source has any: leave --endpoint out" in capsys.readouterr().err
