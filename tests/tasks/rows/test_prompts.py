"""`espalier prompts`: logs of your own, what the choice is worth on questions that were held out, and bad rows."""

import json

import pytest

from flows.cli import main
from tasks.core.errors import UserError
from tasks.rows.prompts import held_out, learn, read_log


def rows(n=80):
    """Prompt A is right for questions about sums, B for those about names, C for one in ten."""
    out = []
    for i in range(n):
        kind = "sum" if i % 3 else "name"  # sums are more common
        for prompt, right in (("A", kind == "sum"), ("B", kind == "name"), ("C", i % 10 == 0)):
            out.append({"query": f"the {kind} of n{i}", "prompt": prompt, "score": int(right)})
    return out


def written(path, given):
    path.write_text("".join(json.dumps(r) + "\n" for r in given), encoding="utf-8")
    return str(path)


def test_the_choice_beats_the_best_prompt_on_average(tmp_path):
    log = read_log(written(tmp_path / "log.jsonl", rows()))
    known = learn(log)
    assert known.prompts == ("A", "B", "C")
    assert [known.choose(q)[0] for q in ("the sum of n200", "the name of n201")] == ["A", "B"]
    tried = held_out(log)
    worth = {k: v["mean"] for k, v in tried["rows"].items()}
    assert worth["chosen for each question"] == worth["best"] == 1.0
    sums = tried["chosen"]["A"] / tried["questions"]
    assert worth["best on average"] == pytest.approx(sums) and worth["gain"] == pytest.approx(1 - sums)
    assert 0.15 < tried["questions"] / 80 < 0.45


def test_nothing_is_held_out_of_a_log_without_whole_questions(tmp_path):
    log = read_log(written(tmp_path / "log.jsonl", [r for i, r in enumerate(rows()) if i % 3 == (i // 3) % 3]))
    assert held_out(log) == {} and learn(log).prompts == ("A", "B", "C")


def test_the_command(tmp_path, capsys):
    log = written(tmp_path / "log.jsonl", rows())
    queries = written(tmp_path / "new.jsonl", [{"query": "the name of n500"}, {"query": "the sum of n501"}])
    assert main(["prompts", log, "--queries", queries]) == 0
    out = capsys.readouterr().out
    assert "chosen for each question  1.000" in out
    chosen = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [c["prompt"] for c in chosen] == ["B", "A"] and chosen[0]["expected"] > 0.5
    assert main(["prompts", log, "--queries", queries, "--out", str(tmp_path / "out.jsonl"), "--json"]) == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "q", "prompt": "A"}, "line 241 has no 'score'"),
        ({"query": "q", "prompt": "A", "score": "good"}, "score is 'good'"),
        ({"query": "q", "prompt": "A", "score": 7}, "score is 7"),
        (["q"], "has no 'query'"),
    ],
)
def test_bad_rows_are_one_sentence(tmp_path, row, message):
    with pytest.raises(UserError, match=message):
        read_log(written(tmp_path / "log.jsonl", [*rows(), row]))


def test_bad_logs_and_shares_are_one_sentence(tmp_path, capsys):
    one = written(tmp_path / "one.jsonl", [r for r in rows() if r["prompt"] == "A"])
    assert main(["prompts", one]) == 2 and "1 prompts to choose among" in capsys.readouterr().err
    assert main(["prompts", written(tmp_path / "log.jsonl", rows()), "--held-out", "2"]) == 2
    assert "is 2.0: it lies between 0 and 1" in capsys.readouterr().err
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    assert main(["prompts", str(bad)]) == 2 and "not_json" in capsys.readouterr().err
