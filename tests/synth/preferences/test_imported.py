"""Rows of others become pairs: each layout by an example of each published kind, each reason for quarantining by a row
that earns it."""

import json

import pytest

from synth.preferences.imported import Reader
from synth.types import Message, PreferencePair, Quarantined
from tasks.core.errors import UserError
from tasks.rows.files import rows

ASK = "Name a river."


def read(*given, **knobs):
    results = list(Reader(name="file", **knobs).pairs((f"file line {i}", row) for i, row in enumerate(given, 1)))
    return [m for m in results if isinstance(m, PreferencePair)], [m for m in results if isinstance(m, Quarantined)]


def one(row, **knobs):
    pairs, quarantined = read(row, **knobs)
    assert not quarantined, quarantined
    (pair,) = pairs
    return pair


USER, GOOD, BAD = (
    {"role": "user", "content": ASK},
    {"role": "assistant", "content": "Rhine"},
    {"role": "assistant", "content": "Alps"},
)
WRITTEN_ALIKE = {
    "texts": {"prompt": ASK, "chosen": "Rhine", "rejected": "Alps"},
    "UltraFeedback binarized": {"prompt": ASK, "chosen": [USER, GOOD], "rejected": [USER, BAD], "score_chosen": 8.0},
    "messages apart": {"messages": [USER], "chosen": [GOOD], "rejected": [BAD]},
    "one message": {"prompt": [USER], "chosen": GOOD, "rejected": BAD},
    "ShareGPT": {
        "conversation": [{"from": "human", "value": ASK}],
        "chosen": {"from": "gpt", "value": "Rhine"},
        "rejected": "Alps",
    },
    "HH": {"chosen": f"\n\nHuman: {ASK}\n\nAssistant: Rhine", "rejected": f"\n\nHuman: {ASK}\n\nAssistant: Alps"},
    "no prompt": {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "ratings": {"instruction": ASK, "responses": ["Alps", "Rhine"], "ratings": [1, 4.5]},
    "ratings within": {
        "prompt": ASK,
        "completions": [{"response": "Alps", "overall_score": "2/5"}, {"response": "Rhine", "overall_score": "4"}],
    },
    "HelpSteer2": {"prompt": ASK, "response_1": "Rhine", "response_2": "Alps", "preference_strength": -2},
    "SafeRLHF": {"prompt": ASK, "response_0": "Alps", "response_1": "Rhine", "better_response_id": 1},
    "LLMBar": {"input": ASK, "output_1": "Rhine", "output_2": "Alps", "label": 1},
    "arena": {"conversation_a": [USER, BAD], "conversation_b": [USER, GOOD], "winner": "model_b", "prompt": ASK},
    "votes": {
        "prompt": ASK,
        "response_a": "Alps",
        "response_b": "Rhine",
        "votes": {"ann": "b", "bob": "a", "eve": "response_b"},
    },
    "votes listed": {
        "prompt": ASK,
        "response_a": "Alps",
        "response_b": "Rhine",
        "votes": [{"annotator": "ann", "vote": "B"}],
    },
}


@pytest.mark.parametrize("row", WRITTEN_ALIKE.values(), ids=WRITTEN_ALIKE)
def test_every_layout_says_the_same(row):
    pair = one(row)
    assert (pair.prompt, pair.chosen, pair.rejected) == ((Message(role="user", content=ASK),), "Rhine", "Alps")
    assert pair.source.startswith("file line 1") and pair.split == "train"


def test_votes_and_scores_come_along_about_the_chosen_side():
    assert one(WRITTEN_ALIKE["votes"]).columns["votes"] == {"ann": 1, "bob": -1, "eve": 1}
    assert one(WRITTEN_ALIKE["ratings"]).columns["scores"] == {"rating": [4.5, 1.0]}
    kept = one(WRITTEN_ALIKE["texts"] | {"tags": ["geo"], "anchor": -1, "annotator": "z", "unknown": 3})
    assert {k: v for k, v in kept.columns.items() if k != "group"} == {"tags": ["geo"], "anchor": -1, "annotator": "z"}


def test_votes_may_be_a_plain_list():
    row = {"prompt": ASK, "response_a": "Alps", "response_b": "Rhine", "votes": ["b", "b", "a"]}
    assert one(row).columns["votes"] == {"0": 1, "1": 1, "2": -1}


def test_rows_of_several_annotators_become_one_pair():
    base = {"prompt": ASK, "response_a": "Alps", "response_b": "Rhine"}
    swapped = {"prompt": ASK, "response_a": "Rhine", "response_b": "Alps"}
    pairs, quarantined = read(
        base | {"winner": "b", "judge": "x"},
        swapped | {"winner": "a", "judge": "y"},
        base | {"winner": "tie", "judge": "z"},
    )
    assert not quarantined and [(p.chosen, p.columns["votes"]) for p in pairs] == [("Rhine", {"x": 1, "y": 1, "z": 0})]


def test_all_ratings_or_the_ends():
    row = {"prompt": ASK, "responses": ["a", "b", "c"], "ratings": [1, 3, 3]}
    assert [(p.chosen, p.rejected) for p in read(row)[0]] == [("b", "a")]
    assert sorted((p.chosen, p.rejected) for p in read(row, ratings="all")[0]) == [("b", "a"), ("c", "a")]


def test_a_scale_of_words_needs_its_order():
    row = {"prompt": ASK, "responses": ["Alps", "Rhine"], "ratings": ["poor", "Great"]}
    with pytest.raises(ValueError, match=r"no rating is a number \(seen: 'poor'\): give the words of the scale"):
        read(row)
    assert one(row, scale=("poor", "fair", "great")).chosen == "Rhine"
    (quarantined,) = read(row, row | {"ratings": ["poor", "brilliant"]}, scale=("poor", "fair", "great"))[1]
    assert (quarantined.reason, quarantined.evidence) == ("unknown_rating", "brilliant")


PAIR = WRITTEN_ALIKE["texts"]
SIDES = {"prompt": ASK, "response_a": "Alps", "response_b": "Rhine"}
FAULTS = [
    ("identical_sides", PAIR, PAIR | {"rejected": "Rhine"}),
    ("empty_side", PAIR, PAIR | {"rejected": " \n"}),
    ("empty_side", PAIR, PAIR | {"chosen": None}),
    ("empty_prompt", PAIR, PAIR | {"prompt": ""}),
    ("too_long", PAIR, PAIR | {"chosen": "x" * 5_000_000}),
    ("not_unicode", PAIR, PAIR | {"chosen": "\ud800"}),
    ("not_messages", PAIR, PAIR | {"chosen": [{"role": "bard", "content": "x"}]}),
    ("not_messages", PAIR, PAIR | {"chosen": {"text": 1}}),
    ("not_an_object", PAIR, [1, 2]),
    ("not_columns", PAIR, PAIR | {"columns": "{broken"}),
    ("missing_columns", SIDES | {"winner": "a"}, {"prompt": ASK, "response_a": "x"}),
    ("missing_columns", SIDES | {"winner": "a"}, SIDES),
    ("empty_side", PAIR, {"prompt": ASK}),
    ("tie", SIDES | {"winner": "a"}, SIDES | {"winner": "tie"}),
    ("tie", SIDES | {"votes": {"x": "a"}}, SIDES | {"votes": {"x": "tie", "y": None}}),
    ("unknown_verdict", SIDES | {"winner": "a"}, SIDES | {"winner": "perhaps"}),
    ("equal_ratings", WRITTEN_ALIKE["ratings"], WRITTEN_ALIKE["ratings"] | {"ratings": [2, 2]}),
    ("few_answers", WRITTEN_ALIKE["ratings"], WRITTEN_ALIKE["ratings"] | {"ratings": [2]}),
]


@pytest.mark.parametrize(("reason", "good", "bad"), FAULTS, ids=[f"{r}-{i}" for i, (r, _, _) in enumerate(FAULTS)])
def test_a_bad_row_is_set_aside_and_the_rest_goes_on(reason, good, bad):
    pairs, quarantined = read(good, bad, good)
    assert len(pairs) == 2 and [(q.id, q.reason) for q in quarantined] == [("file line 2", reason)]
    assert len(quarantined[0].evidence) < 500 and json.dumps(vars(quarantined[0]))


def test_unknown_columns_are_listed():
    with pytest.raises(
        ValueError, match="file has the columns good, bad, which make no pairs: needed are chosen and rejected"
    ):
        read({"good": "x", "bad": "y"})
    assert (
        one({"ask": ASK, "good": "x", "bad": "y"}, rename={"prompt": "ask", "chosen": "good", "rejected": "bad"}).chosen
        == "x"
    )
    with pytest.raises(ValueError, match=r"no column 'goood' \(it has ask, good, bad\)"):
        read({"ask": ASK, "good": "x", "bad": "y"}, rename={"chosen": "goood"})


def test_files_of_every_kind_give_the_same_rows(tmp_path):
    import pandas as pd

    frame = pd.DataFrame([PAIR, PAIR | {"chosen": "Elbe"}])
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.json", orient="records")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in frame.to_dict("records")))
    for name in ("a.csv", "a.tsv", "a.parquet", "a.json", "folder"):
        assert [dict(row) for _, row in rows(str(tmp_path / name))] == frame.to_dict("records"), name


def test_a_saved_dataset_and_its_splits(tmp_path):
    import datasets

    datasets.DatasetDict({"test": datasets.Dataset.from_list([PAIR])}).save_to_disk(tmp_path / "saved")
    assert [row for _, row in rows(str(tmp_path / "saved"), split="test")] == [PAIR]
    with pytest.raises(UserError, match=r"has no split 'train' \(it has test\)"):
        list(rows(str(tmp_path / "saved")))


def test_broken_lines_are_set_aside(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(json.dumps(PAIR).encode() + b'\n\n{"prompt": \n\xff\xfe\n')
    lines = list(rows(str(path)))
    assert lines[0] == ("x.jsonl line 1", PAIR) and [(q.id, q.reason) for q in lines[1:]] == [
        ("x.jsonl line 3", "not_json"),
        ("x.jsonl line 4", "not_utf8"),
    ]


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    text = json.dumps({**PAIR, "prompt": "é"}, ensure_ascii=False) + "\n"
    for encoding in ("latin-1", "utf-16-le"):
        path.write_bytes(text.encode(encoding) * 2)
        first = next(rows(str(path)))
        assert first.reason == "not_utf8" and "save the file as UTF-8" in first.evidence, encoding


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_cells_of_a_csv_are_separated_by_what_its_first_line_says(tmp_path, mark):
    lines = [[*PAIR], ["a, b, c", *list(PAIR.values())[1:]]]
    (tmp_path / "x.csv").write_text("".join(mark.join(line) + "\n" for line in lines))
    assert [list(row.values()) for _, row in rows(str(tmp_path / "x.csv"))] == lines[1:]


def test_what_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="does not exist: give a file, a folder"):
        rows(str(tmp_path / "none.jsonl"))
    (tmp_path / "x.docx").write_text("")
    with pytest.raises(UserError, match="ends in .docx: rows are read from .jsonl"):
        rows(str(tmp_path / "x.docx"))
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(UserError, match="bad.parquet cannot be read as a dataset"):
        list(rows(str(tmp_path / "bad.parquet")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no file that can be read: rows are read from .jsonl"):
        rows(str(tmp_path / "empty"))
