"""Pairs of the user's own in the stages preferences, clean and prefer: every row becomes a pair or is quarantined with
its place, and what was left out is said."""

import json

import pandas as pd
import numpy as np
import pytest

from synth.types import PreferencePair, Problem, Quarantined
from tasks.core.errors import UserError
from tasks.rows.read import OwnRow, chance, entries, shares
from tasks.planning.pieces import bind_all
from tasks.runtime.stage import Stage
from tasks.stages.clean import clean
from tasks.stages.preferences import preferences
from tasks.storage import commit, tables

ROWS = [
    {"prompt": f"What is {a} plus {b}?", "chosen": f"It is {a + b}.", "rejected": f"It is {a + b + 1}."}
    for a in range(9)
    for b in range(9)
]
BROKEN = ['{"prompt": "x"', json.dumps({"prompt": "x", "chosen": "same", "rejected": "same"})]


def run(root, function, **params):
    stage = Stage(function.__name__, plan={"params": params, "seed": 7}, root=root)
    pieces = dict.fromkeys(params.keys() & {"cleaners", "policy"}, "cleaner")
    with stage.running():
        function(stage, **bind_all(pieces, params))
    return json.loads((stage.target / "card.json").read_text())


def read(root, stage, name, cls):
    return tables.read(root / "artifacts" / stage / f"{name}.parquet", cls)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    lines = [*map(json.dumps, ROWS), *BROKEN]
    (tmp_path / "data/pairs.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_every_row_is_a_pair_or_quarantined_with_its_line(root, capsys):
    card = run(root, preferences, files=["data/pairs.jsonl"])
    pairs, own = read(root, "preferences", "pairs", PreferencePair), read(root, "preferences", "own", OwnRow)
    bad = read(root, "preferences", "quarantine", Quarantined)
    assert (card["produced"], card["accepted"]) == (83, 81) == (len(pairs) + len(bad), len(own))
    assert {q.id: q.reason for q in bad} == {
        "pairs.jsonl line 82": "not_json",
        "pairs.jsonl line 83": "identical_sides",
    }
    assert {o.place for o in own} == {f"pairs.jsonl line {i}" for i in range(1, 82)}
    assert {p.split for p in pairs} == {"train", "valid", "test"} and {p.source for p in pairs} == {"pairs.jsonl"}
    stderr = capsys.readouterr().err
    assert "preferences: data/pairs.jsonl: 83 rows read, 81 kept" in stderr and "1 not_json" in stderr
    cleaned = run(root, clean, cleaners=[{"piece": "duplicates"}])
    assert cleaned["produced"] == 81 and "against_truth" not in cleaned
    assert read(root, "clean", "own", OwnRow) == own


@pytest.mark.parametrize("layout", ["json", "csv", "parquet", "arrow", "folder", "two lines"])
def test_every_layout_gives_the_same_pairs(tmp_path, layout):
    folder, frame = tmp_path / "data", pd.DataFrame(ROWS)
    folder.mkdir()
    path = folder / f"mine.{layout}"
    if layout == "json":
        frame.to_json(path, orient="records")
    elif layout == "csv":
        frame.to_csv(path, index=False)
    elif layout == "parquet":
        frame.to_parquet(path)
    elif layout == "arrow":
        import datasets

        path = folder / "saved"
        datasets.Dataset.from_list(ROWS).save_to_disk(str(path))
    else:
        path = folder / "many"
        path.mkdir()
        for i in range(2):
            frame[i::2].to_json(path / f"{i}.jsonl", orient="records", lines=True)
    run(tmp_path, preferences, files=[str(path.relative_to(tmp_path))])
    pairs = read(tmp_path, "preferences", "pairs", PreferencePair)
    assert sorted((p.prompt[-1].content, p.chosen, p.rejected) for p in pairs) == sorted(
        (r["prompt"], r["chosen"], r["rejected"]) for r in ROWS
    )


def test_what_is_held_out_is_not_trained_on(root):
    held = [
        Problem.make(prompt=r["prompt"], answer="1", verifier="number", family="f", split="test") for r in ROWS[:20]
    ]
    tables.write(root / "artifacts/problems/problems.parquet", held, Problem)
    commit.seal(root / "artifacts/problems")
    (root / "data/secret.txt").write_text(ROWS[30]["prompt"] + "\n")
    card = run(root, preferences, files=[{"path": "data/pairs.jsonl", "use": "train"}], protect=["data/secret.txt"])
    assert card["quarantined"]["held_out"] == 21
    why = [q for q in read(root, "preferences", "quarantine", Quarantined) if q.reason == "held_out"]
    assert {q.id for q in why} == {f"pairs.jsonl line {i + 1}" for i in [*range(20), 30]}


def test_pairs_that_are_clean_already_pass_the_cleaners(root):
    folder = root / "data/cleaned"
    folder.mkdir()
    lines = [{**r, "weight": 0.5, "reasons": []} for r in ROWS[:30]]
    twice = [*lines, {**lines[0], "chosen": lines[0]["rejected"], "rejected": lines[0]["chosen"]}]
    (folder / "cleaned.jsonl").write_text("".join(json.dumps(r) + "\n" for r in twice))
    (folder / "removed.jsonl").write_text("")
    run(root, preferences, files=[{"path": "data/cleaned", "use": "train"}])
    card = run(root, clean, cleaners=[{"piece": "duplicates"}, {"piece": "confident_learning"}])
    assert (card["accepted"], card["quarantined"]) == (31, {})
    kept = read(root, "clean", "pairs", PreferencePair)
    assert all(p.columns["weight"] == 0.5 and not p.decisions for p in kept)


def test_weights_say_how_often_rows_are_drawn():
    chances = np.array([chance(0, f"{i}") for i in range(400)])
    drawn = shares(np.where(np.arange(400) < 200, 2.5, 1.0), chances).tolist()
    first = sum(i < 200 for i in drawn)
    assert set(drawn) == set(range(400)) and len(drawn) - first == 200 and 460 < first < 540
    assert shares(np.full(400, 3.0), chances).tolist() == list(range(400))


@pytest.mark.parametrize(
    "files, sentence",
    [
        (["data/none.jsonl"], "data/none.jsonl does not exist"),
        ([{"path": "data/pairs.jsonl", "weigth": 2}], "did you mean 'weight'"),
        ([{"path": "data/pairs.jsonl", "weight": 0}], "above 0"),
        ([{"path": "data/pairs.jsonl", "use": "trian"}], "did you mean 'train'"),
        (["data/pairs.jsonl", "data/pairs.jsonl"], "twice"),
        ([{"path": "data/pairs.jsonl", "clean": "no"}], "write true, or false"),
        (["data/empty.jsonl"], "not one row: it is empty"),
        (["data/other.jsonl"], "make no pairs"),
    ],
)
def test_mistakes_are_sentences(root, files, sentence):
    (root / "data/empty.jsonl").write_text("")
    (root / "data/other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(UserError, match=sentence.replace("[", r"\[")):
        run(root, preferences, files=files)


def test_a_name_of_the_hub_is_no_file():
    assert entries("sft", ["owner/name"])[0].name == "name"


def test_without_a_word_pairs_of_ones_own_are_judged_with_caution(tmp_path):
    """A label is never removed because a model of the labels doubts it: it is asked about, as `espalier clean` does."""
    from pathlib import Path

    from tasks.planning.resolve import check_params, resolve

    def judges(recipe="", **settings):
        stage = resolve(check_params({"recipe": recipe, "set": settings}, Path("params.yaml")))[0]["clean"]
        return [c["piece"] for c in stage.params["cleaners"]], (stage.params["policy"] or {}).get("cautious")

    usual, own = judges(), judges(preferences={"files": ["data/pairs.jsonl"]})
    assert usual == (["duplicates", "confident_learning"], None)
    assert own[1] is True and {"duplicates", "verified", "confident_learning"} < set(own[0])
    assert judges(clean={"reviews": "data/reviews.jsonl"}) == own == judges(prefer={"files": ["data/pairs.jsonl"]})
    chosen = {"files": ["data/pairs.jsonl"]}
    assert judges(preferences=chosen, clean={"cleaners": [{"piece": "duplicates"}]}) == (["duplicates"], None)
    assert judges("rpo-em", preferences=chosen)[0] == ["duplicates", "rpo_em"], "a recipe that cleans is asked for"


def test_decisions_of_a_person_count_in_the_stage(root, capsys):
    """What the cleaners doubt is kept and said; what a person calls wrong is turned, what they call right is kept."""
    from pathlib import Path

    from tasks.planning.resolve import check_params, resolve
    from tasks.results.review import Review

    pairs = [{**r, **{side: f"{r['prompt'][8:-1]} is{r[side][5:]}" for side in ("chosen", "rejected")}} for r in ROWS]
    rows = [{**r, "chosen": r["rejected"], "rejected": r["chosen"]} if i % 4 == 3 else r for i, r in enumerate(pairs)]
    (root / "data/pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run(root, preferences, files=["data/pairs.jsonl"])
    params = {"set": {"preferences": {"files": ["data/pairs.jsonl"]}}}
    settings = resolve(check_params(params, Path("params.yaml")))[0]["clean"].params
    knobs = {name: settings[name] for name in ("cleaners", "policy")}
    card = run(root, clean, **knobs)
    assert card["asked"] > 10 and card["quarantined"] == {}
    assert f"{card['asked']} of those that are kept are doubtful: `espalier review" in capsys.readouterr().err
    sitting = Review(root / "artifacts/clean/pairs.parquet", root / "data/reviews.jsonl")
    decided = {p.id for p in sitting.pairs}
    while (shown := sitting.next()) is not None:  # each says a wrong sum
        sitting.decide(shown, "first" if shown.swapped else "second")
    card = run(root, clean, reviews="data/reviews.jsonl", **knobs)
    assert card["reviewed"] == card["actions"]["policy: flip"] == len(decided) and not card["asked"]
    turned = [
        p for p in read(root, "clean", "pairs", PreferencePair) if p.decisions and p.decisions[-1].action == "flip"
    ]
    assert {p.id for p in turned} == decided
    assert card["noise_interval"]["method"] == "confident joint", "doubtful pairs do not tell how many labels are wrong"
