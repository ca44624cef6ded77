"""`espalier clean FILE`: what goes in comes out again, sorted and with reasons; bad input is a sentence; the same bytes
twice."""

import json
from pathlib import Path
from random import Random

import pytest

from flows.cli import main
from tasks.rows import clean as module
from tasks.rows.clean import FILES

READ = {"cleaned", "removed", "asked"}


def sums(n=120, wrong=0.2, seed=0):
    """(rows of additions whose rejected side has a wrong sum, indices of those swapped)."""
    r, rows, swapped = Random(seed), [], set()
    for i in range(n):
        a, b = r.randint(10, 99), r.randint(10, 99)
        sides = [
            f"{a} + {b} = {a + b}. <answer>{a + b}</answer>",
            f"{a} + {b} = {a + b}. <answer>{a + b + r.choice((1, 2, 3))}</answer>",
        ]
        if i < wrong * n:
            sides.reverse()
            swapped.add(f"{a} + {b}")
        rows.append({"prompt": f"What is {a} + {b}?", "chosen": sides[0], "rejected": sides[1]})
    r.shuffle(rows)
    return rows, swapped


def write(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


def clean(tmp_path, rows, *options, name="mine.jsonl", code=0):
    out = tmp_path / "out"
    assert main(["clean", write(tmp_path / name, rows), "--out", str(out), *options]) == code
    if code:
        return None, None
    by_file = {n: [json.loads(line) for line in (out / f"{n}.jsonl").read_text().splitlines()] for n in FILES}
    return by_file, json.loads((out / "card.json").read_text())


@pytest.mark.parametrize("recipe", ["rpo-em", ""])
def test_swapped_labels_are_found_and_nothing_is_lost(tmp_path, capsys, recipe):
    rows, swapped = sums()
    bad = [{"prompt": "x", "chosen": "same", "rejected": "same"}, [1]]
    by_file, card = clean(tmp_path, rows + bad, *(["--recipe", recipe] if recipe else []))
    given = {(r["prompt"], r["chosen"]) for r in rows}
    assert {(r["prompt"], r["chosen"]) for n in READ for r in by_file[n]} == given and sum(
        len(by_file[n]) for n in READ
    ) == len(rows)
    assert card["pairs"] == {"read": 120} | {n: len(by_file[n]) for n in READ}
    assert {q["reason"] for q in by_file["quarantine"]} == {"identical_sides", "not_an_object"}
    doubted = {r["prompt"][8:-1] for n in ("removed", "asked") for r in by_file[n]}
    assert len(doubted & swapped) >= 20 and len(doubted - swapped) <= 4
    if not recipe:  # without a proven label a doubt is a question: only what is certain is removed
        assert {d["reason"].partition(":")[0] for r in by_file["removed"] for d in r["reasons"]} == {
            "exact_duplicate",
            "duplicates",
        }
        assert any(
            "wording of the side that is rejected" in d["reason"] for r in by_file["asked"] for d in r["reasons"]
        )
    assert all(r["reasons"] for n in ("removed", "asked", "flipped") for r in by_file[n])
    assert all(0 <= r["weight"] <= 1 for r in by_file["cleaned"])
    noise = card["noise"]
    assert (
        noise["low"] < 0.2 < noise["high"]
        and not noise["identifiable"]
        and noise["note"].startswith("no anchors: not identifiable")
    )
    output = capsys.readouterr().out
    assert "no anchors: not identifiable" in output and "120 pairs" in output
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg") == 2 and "How likely labels are right" in page


def test_two_sources_flip_and_the_flipped_are_kept_as_they_were(tmp_path):
    rows, swapped = sums()
    for r in rows:
        right = r["prompt"][8:-1] not in swapped
        r |= {"votes": {a: 1 if right else -1 for a in "abc"}}
    for r in rows[:30]:
        r["anchor"] = 1 if r["prompt"][8:-1] not in swapped else -1
    by_file, card = clean(tmp_path, rows)
    flipped = {r["prompt"]: r for r in by_file["flipped"]}
    assert card["flipped"] == len(flipped) >= 20 and {p[8:-1] for p in flipped} <= swapped
    after = {r["prompt"]: r for r in by_file["cleaned"]}
    assert all(after[p]["chosen"] == r["rejected"] and after[p]["rejected"] == r["chosen"] for p, r in flipped.items())
    assert card["noise"]["identifiable"] and card["noise"]["method"] == "anchors"


def test_progress_moves_while_a_cleaner_works(tmp_path, monkeypatch):
    seen = []

    class Told(module.Progress):
        def update(self, n=1, **shown):
            super().update(n, **shown)
            seen.append((self.shown, self.done))

    monkeypatch.setattr(module, "Progress", Told)
    monkeypatch.setattr(module, "LOOKED", 10)
    clean(tmp_path, sums(60)[0])
    done = {name: sorted({n for shown, n in seen if shown == f"now {name}"}) for name in ("duplicates", "policy")}
    assert len(done["duplicates"]) > 5 and done["duplicates"][-1] < done["policy"][-1] <= 60
    cleaning = [n for shown, n in seen if shown]
    assert cleaning == sorted(cleaning), "what was done stays done"


def test_the_same_bytes_twice(tmp_path):
    rows, _ = sums(60)
    for name in "ab":
        (tmp_path / name).mkdir()
        clean(tmp_path / name, rows)
    assert all(
        (tmp_path / "a" / "out" / f).read_bytes() == (tmp_path / "b" / "out" / f).read_bytes()
        for f in ("cleaned.jsonl", "index.html")
    )


def test_conversations_stay_conversations(tmp_path):
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "and?"},
    ]
    by_file, _ = clean(tmp_path, [{"prompt": history, "chosen": "well, then", "rejected": "no"}])
    (row,) = by_file["cleaned"]
    assert row["prompt"] == history and row["chosen"] == [{"role": "assistant", "content": "well, then"}]


def test_few_pairs_one_prompt_and_one_annotator(tmp_path):
    by_file, card = clean(tmp_path, sums(3)[0])
    assert len(by_file["cleaned"]) == 3 and "too few to fit" in card["notes"][-1] and card["noise"] is None
    many = [
        {"prompt": "Name a number.", "chosen": f"{i} is one", "rejected": f"{i} is no name", "votes": {"only": 1}}
        for i in range(200)
    ]
    by_file, card = clean(tmp_path, many)
    assert "fewer prompts than 5 folds" in card["notes"][0] and card["pairs"]["read"] == 200
    assert "annotators" in card["cleaners"]


def test_judges_who_err_together_are_asked_about(tmp_path):
    camps = [
        dict.fromkeys("abcd", 1 if i % 10 < 7 else -1) | dict.fromkeys("xyz", 1 if i % 2 else -1) for i in range(100)
    ]
    rows = [{**r, "votes": v} for r, v in zip(sums(100, wrong=0)[0], camps, strict=True)]
    by_file, card = clean(tmp_path, rows)
    assert any(reason.startswith("ask: not_identifiable") for reason in card["decisions"]["annotators"])
    assert any("not_identifiable" in d["reason"] for r in by_file["asked"] for d in r["reasons"])


def test_votes_that_are_all_equal(tmp_path, capsys):
    rows = [
        {"prompt": r["prompt"], "response_a": r["chosen"], "response_b": r["rejected"]} for r in sums(60, wrong=0)[0]
    ]
    by_file, card = clean(tmp_path, [r | {"votes": dict.fromkeys("uvw", "a")} for r in rows])
    assert (
        card["pairs"]["read"] == 60
        and "annotators" in card["cleaners"]
        and not by_file["asked"]
        and not by_file["flipped"]
    )
    assert not card["noise"]["identifiable"]
    assert (
        main(["clean", write(tmp_path / "ties.jsonl", [r | {"votes": dict.fromkeys("uv", "tie")} for r in rows])]) == 2
    )
    assert "has no pair to clean: 60 tie" in capsys.readouterr().err


def test_a_malicious_majority_is_told_by_anchors_alone(tmp_path):
    """Two are right, three in one hand are not. Without anchors nothing tells, and the card says so; a dozen anchors
    turn it round."""
    votes = dict.fromkeys("gh", "a") | dict.fromkeys("xyz", "b")
    rows = [
        {"prompt": r["prompt"], "response_a": r["chosen"], "response_b": r["rejected"], "votes": votes}
        for r in sums(80, wrong=0)[0]
    ]
    by_file, card = clean(tmp_path, rows)
    assert not by_file["flipped"] and "not identifiable" in card["noise"]["note"]
    by_file, card = clean(tmp_path, [r | ({"anchor": -1} if i < 12 else {}) for i, r in enumerate(rows)])
    good = {r["prompt"]: r["response_a"] for r in rows}
    assert all(r["chosen"] == good[r["prompt"]] for r in by_file["cleaned"]) and len(by_file["flipped"]) == 12
    assert card["noise"]["method"] == "anchors" and card["noise"]["rate"] > 0.9


def test_languages_beside_each_other(tmp_path):
    questions = [
        ("What is the capital?", "It is Paris."),
        ("Quelle est la capitale ?", "C'est Paris."),
        ("首都是什么？", "是巴黎。"),
        ("Какая столица?", "Париж."),
        ("ما هي العاصمة؟", "باريس"),
        ("수도는?", "파리입니다."),
    ]
    rows = [
        {"prompt": f"{q} {i}", "chosen": f"{a} {i}", "rejected": f"{a} {i + 1}"} for i in range(8) for q, a in questions
    ]
    rows.append(
        {
            "prompt": "What is the capital?",
            "chosen": "是巴黎，它是法国的首都和最大的城市。",
            "rejected": "I do not know.",
        }
    )
    by_file, card = clean(tmp_path, rows)
    assert card["pairs"]["read"] == 49 and not by_file["quarantine"]
    assert [r["chosen"] for r in by_file["asked"]] == [
        "是巴黎，它是法国的首都和最大的城市。"
    ] and "language" in json.dumps(by_file["asked"][0]["reasons"])


def test_protected_texts_are_kept_out(tmp_path):
    rows = sums(12, wrong=0)[0]
    (tmp_path / "test.txt").write_text(f"{rows[0]['prompt']}\n")
    rows[0]["prompt"] = f"Please tell me now: {rows[0]['prompt']}"
    by_file, card = clean(tmp_path, rows, "--protect", str(tmp_path / "test.txt"))
    assert [r["prompt"] for r in by_file["removed"]] == [rows[0]["prompt"]] and "decontamination" in card["cleaners"]


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ([{"good": "x", "bad": "y"}], [], "has the columns good, bad, which make no pairs"),
        ([], [], "has no pair to clean: it is empty"),
        ([{"prompt": "q", "chosen": "x", "rejected": "x"}], [], "has no pair to clean: 1 identical_sides"),
        ([{"prompt": "q", "chosen": "x", "rejected": "y"}], ["--recipe", "grpo"], "sets nothing of the stage clean"),
        ([{"prompt": "q", "chosen": "x", "rejected": "y"}], ["--recipe", "prefcleanbench"], "needs the column 'votes'"),
        (
            [{"prompt": "q", "chosen": "x", "rejected": "y"}],
            ["--recipe", "rpoem"],
            "there is no recipe 'rpoem': did you mean 'rpo-em'",
        ),
        ([{"prompt": "q", "chosen": "x", "rejected": "y"}], ["--columns", "chosen:x"], "write OURS=YOURS"),
        ([{"prompt": "q", "responses": ["x", "y"], "ratings": ["good", "bad"]}], [], "give the words of the scale"),
    ],
)
def test_what_cannot_be_cleaned_is_a_sentence(tmp_path, capsys, rows, options, sentence):
    clean(tmp_path, rows, *options, code=2)
    error = capsys.readouterr().err
    assert error.startswith("error: ") and sentence in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_asked_can_be_decided_and_the_decisions_count_in_the_next_cleaning(tmp_path, capsys):
    """From asked.jsonl to decisions, to the same file cleaned again, and to the same pairs from another file."""
    from tasks.results.review import Review
    from tasks.storage.reviews import anchored, read

    knots = [("a", "b"), ("b", "c"), ("c", "a")]  # a better than b better than c better than a: somebody is wrong
    rows = [{"prompt": "Which?", "chosen": f"answer {x}", "rejected": f"answer {y}"} for x, y in knots]
    rows += [{"prompt": f"What is {i}?", "chosen": f"It is {i}.", "rejected": f"It is {i + 1}."} for i in range(6)]
    by_file, _ = clean(tmp_path, rows)
    assert len(by_file["asked"]) == 3 and "espalier review" in capsys.readouterr().out
    to = tmp_path / "reviews.jsonl"
    sitting = Review(tmp_path / "out/asked.jsonl", to)
    assert sitting.left == 3, "without --sample: those that are asked about"
    wrong = ""
    while (shown := sitting.next()) is not None:
        good = shown.pair.chosen != "answer c"
        wrong = wrong if good else shown.pair.id
        sitting.decide(shown, "first" if good != shown.swapped else "second")
    by_file, card = clean(tmp_path, rows, "--reviews", str(to))
    assert card["reviewed"] == 3 and not by_file["asked"]
    assert [r["id"] for r in by_file["flipped"]] == [wrong] and "decided about 3" in capsys.readouterr().out
    elsewhere = read(Path(write(tmp_path / "copy.jsonl", rows[:3])))
    marked, n = anchored(to, elsewhere)
    assert n == 3 and [p.columns["anchor"] for p in marked] == [1, 1, -1], "found by content where ids are others"
    message = "does not exist: `espalier review"
    clean(tmp_path, rows, "--reviews", str(tmp_path / "none.jsonl"), code=2)
    assert message in capsys.readouterr().err
