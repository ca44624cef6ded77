"""`espalier pairs FILE`: pairs of your own conversations, by the makers that need a model, against an endpoint on a
real socket."""

import json

import pytest

from flows.cli import main
from tasks.rows.make import problems_of
from tests.training.rollout.test_endpoint import Server

TALK = [
    {"role": "user", "content": "How high is the tower?"},
    {"role": "assistant", "content": "It is 330 m high and stands in Paris."},
    {"role": "user", "content": "Too long, please only the number."},
    {"role": "assistant", "content": "330 m."},
    {"role": "user", "content": "Thanks!"},
]


@pytest.fixture
def server():
    one = Server(answer)
    yield one
    one.http.shutdown()


def answer(body):
    message = body["messages"][-1]
    if message["role"] == "assistant":  # to be continued behind a trigger
        return "I cannot help with that."
    if "write that reply again" in message["content"].lower():
        return "330 m, in Paris."
    return "It asks about locks. Sure, first take a pin."


def run(tmp_path, server, rows, recipe, *options, code=0):
    file = tmp_path / "mine.jsonl"
    file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    out = tmp_path / "out"
    given = [
        "pairs",
        str(file),
        "--recipe",
        recipe,
        "--endpoint",
        server.url,
        "--model",
        "m",
        "--out",
        str(out),
        "--cache",
        str(tmp_path / "a.sqlite"),
    ]
    assert main([*given, *options]) == code
    if code or "--dry-run" in options:
        assert not out.exists()
        return None
    by_file = {
        n: [json.loads(line) for line in (out / f"{n}.jsonl").read_text().splitlines()] for n in ("pairs", "quarantine")
    }
    return by_file, json.loads((out / "card.json").read_text())


def test_a_users_follow_up_becomes_a_pair_that_clean_reads(tmp_path, server, capsys, monkeypatch):
    row = {"messages": TALK, "persona": "Likes it short."}
    by_file, card = run(tmp_path, server, [row, {"messages": [{"role": "bard", "content": "x"}]}, "{broken"], "rlhi")
    (pair,) = by_file["pairs"]
    assert (pair["chosen"], pair["rejected"]) == ([{"role": "assistant", "content": "330 m, in Paris."}], [TALK[1]])
    assert pair["prompt"] == [{"role": "system", "content": "Likes it short."}, TALK[0]]
    assert sorted(q["reason"] for q in by_file["quarantine"]) == ["content", "not_json", "not_messages"]
    assert card["produced"] == 4 == card["accepted"] + sum(card["quarantined"].values())
    before = len(server.bodies)
    run(tmp_path, server, [row], "rlhi")
    assert len(server.bodies) == before and "3 from the cache" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["clean", str(tmp_path / "out" / "pairs.jsonl")]) == 0
    assert "1 pairs: 1 cleaned" in capsys.readouterr().out


def test_a_risky_request_is_intervened_in_at_the_cue(tmp_path, server):
    by_file, card = run(
        tmp_path, server, [{"prompt": "How do I pick a lock?", "risky": True}, {"prompt": "Hello?"}], "ipo-intervened"
    )
    (pair,) = by_file["pairs"]
    assert pair["rejected"] == "It asks about locks. Sure, first take a pin."
    assert pair["chosen"] == "It asks about locks. Wait, this could cause harm. I cannot help with that."
    continued = [b for b in server.bodies if b["messages"][-1]["role"] == "assistant"]
    assert continued and all(b["continue_final_message"] and not b["add_generation_prompt"] for b in continued)
    assert not any("continue_final_message" in b for b in server.bodies if b not in continued)
    assert card["quarantined"] == {"not_risky": 1} and card["used"]["requests"] == len(server.bodies)


def test_nothing_is_asked_by_a_dry_run_or_beyond_the_budget(tmp_path, server, capsys):
    run(tmp_path, server, [{"messages": TALK}], "rlhi", "--dry-run")
    assert not server.bodies and "2 places; at least 3 requests" in capsys.readouterr().out
    run(tmp_path, server, [{"messages": TALK}], "rlhi", "--max-tokens", "5", code=2)
    assert not server.bodies and "the budget of 5 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "recipe", "sentence"),
    [
        ([{"text": "x"}], "rlhi", "nothing to make pairs of: 1 empty_prompt; rows need `messages`"),
        ([], "rlhi", "nothing to make pairs of: it is empty"),
        ([{"prompt": "x"}], "dpo", "names no maker of pairs"),
    ],
)
def test_what_cannot_be_made_is_a_sentence(tmp_path, server, capsys, rows, recipe, sentence):
    run(tmp_path, server, rows, recipe, code=2)
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error


def test_an_endpoint_that_refuses_is_a_sentence(tmp_path, server, capsys):
    server.script[:] = [404]
    run(tmp_path, server, [{"messages": TALK}], "rlhi", code=2)
    assert "refuses the request (404" in capsys.readouterr().err


def test_every_follow_up_of_a_conversation_is_a_place():
    problems, quarantined = problems_of(
        [
            (
                "row 1",
                {
                    "conversations": [
                        {"from": "human", "value": "a"},
                        {"from": "gpt", "value": "b"},
                        {"from": "human", "value": "c"},
                    ]
                },
            ),
            ("row 2", [1]),
        ]
    )
    assert [[m.content for m in p.prompt] for p in problems] == [["a", "b", "c"]] and [
        q.reason for q in quarantined
    ] == ["not_an_object"]
