"""Published sets of reward models and judges: their columns, and their numbers by hand."""

import json
import math

import numpy as np
import pytest
import tiny

from synth.preferences.judge import Budget, Judge
from synth.testsets.judging import LAYOUTS, Comparison, measured, scores, ties
from synth.types import Message
from tasks.core.errors import UserError
from tasks.evaluation.judging import by_judge, by_reward, judged, load_judging
from tasks.runtime.stage import Stage
from training.model.render import Renderer


def row(name, subset):
    return Comparison(id=name, prompt=(Message(role="user", content=name),), right=("r",), wrong=("w",), subset=subset)


def of(*given):
    """(id, subset, rewards of the right, of the wrong)"""
    return [(row(name, subset), (right, wrong)) for name, subset, right, wrong in given]


def test_rewardbench_by_hand():
    by_subset = scores(
        "rewardbench",
        of(
            ("1", "alpacaeval-easy", [2], [1]),
            ("2", "alpacaeval-easy", [1], [1]),
            ("3", "mt-bench-easy", [2], [1]),
            ("4", "math-prm", [0], [1]),
            ("5", "hep-cpp", [1], [0]),
        ),
    )
    assert by_subset["alpacaeval-easy"] == 0.5, "equal rewards are wrong"
    assert by_subset["Chat"] == pytest.approx((100 * 0.5 + 28) / 128) and by_subset["Reasoning"] == pytest.approx(
        164 / 1148
    )
    assert by_subset["score"] == pytest.approx((78 / 128 + 164 / 1148) / 2) and "Safety" not in by_subset


def test_rewardbench_2_by_hand():
    tied = of(
        ("tied:1", "Ties", [5, 4], [1]),  # margin 3, spread 1
        ("ref:1", "Ties", [2], [0.5]),  # margin 1.5
        ("tied:2", "Ties", [9, 5], [4]),  # margin 1, spread 4
        ("ref:2", "Ties", [0], [1]),  # margin -1
    )
    ratio = (math.tanh(1.5 - 1) + math.tanh(-1 / 4 - 1)) / 2
    by_hand = 0.3 * 1 + 0.3 * 0.5 + 0.2 * 0.5 + 0.2 * 0.5 + 0.01 * ratio
    assert ties(tied) == pytest.approx(by_hand)
    by_subset = scores("rewardbench2", of(("a", "Focus", [3], [1, 2, 2.5]), ("b", "Focus", [2], [2, 1, 0])) + tied)
    assert by_subset == pytest.approx({"Focus": 0.5, "Ties": by_hand, "score": (0.5 + by_hand) / 2})


def test_ties_without_spread_or_without_the_prompt_beside_it():
    even = of(("tied:1", "Ties", [2, 2], [1]), ("ref:1", "Ties", [2], [1]))
    assert ties(even) == pytest.approx(1.0), "a spread of 0: the margins are larger, and the last term is 0"
    assert ties(even[:1]) == pytest.approx(0.3)


def test_rm_bench_by_hand():
    by_subset = scores("rm_bench", of(("1", "chat", [1, 2, 3], [2, 2, 0]), ("2", "math", [3, 3, 3], [0, 0, 0])))
    assert by_subset == pytest.approx(
        {"chat": 5 / 9, "math": 1.0, "easy": 5 / 6, "normal": 2 / 3, "hard": 5 / 6, "score": (5 / 9 + 1) / 2}
    )


def test_judgebench_by_hand():
    by_subset = scores("judgebench", of(("1", "math", [1], [0]), ("2", "math", [0], [1]), ("3", "coding", [1], [0])))
    assert by_subset == pytest.approx({"coding": 1.0, "math": 0.5, "score": 2 / 3})


def test_intervals_hold_the_numbers_and_rows_are_counted():
    rows = of(*[(str(i), "alpacaeval-easy", [i % 3], [1]) for i in range(30)], ("x", "math-prm", [1], [0]))
    numbers = measured("rewardbench", rows)
    assert (
        numbers["Chat"]["mean"] == pytest.approx(1 / 3) and numbers["Chat"]["n"] == 30 and numbers["score"]["n"] == 31
    )
    assert 0.1 < numbers["Chat"]["low"] < 1 / 3 < numbers["Chat"]["high"] < 0.6
    pairs = of(*[(f"{k}:{i}", "Ties", [2.1, 2], [1]) for i in range(6) for k in ("tied", "ref")])
    every = measured("rewardbench2", pairs)["Ties"]
    assert every["low"] == pytest.approx(every["mean"]) and every["mean"] == pytest.approx(1.01, abs=1e-3), (
        "drawn anew, a tied prompt keeps the one beside it"
    )


ROWS = {
    "rewardbench": {"prompt": "Why?", "chosen": "a", "rejected": "b", "subset": "hep-go", "id": 7},
    "rewardbench2": {"prompt": "Why?", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Math", "id": "7"},
    "rm_bench": {
        "prompt": "Why?",
        "chosen": list("abc"),
        "rejected": list("def"),
        "domain": "safety-refuse",
        "id": "7",
    },
    "judgebench": {"question": "Why?", "response_A": "b", "response_B": "a", "label": "B>A", "source": "mmlu-pro-law"},
}


def test_columns_as_they_are_published():
    cases = {name: LAYOUTS[name](r, 3) for name, r in ROWS.items()}
    assert [(c.right[0], c.wrong[0], c.prompt[0].content) for c in cases.values()] == [("a", "b", "Why?")] * 2 + [
        ("a", "d", "Why?"),
        ("a", "b", "Why?"),
    ]
    assert [c.subset for c in cases.values()] == ["hep-go", "Math", "safety", "mmlu-pro"] and cases[
        "judgebench"
    ].id == "3"
    for layout, change, message in (
        ("judgebench", {"label": "A=B"}, "wrong_label"),
        ("rm_bench", {"chosen": ["a"]}, "not_three_styles"),
        ("rewardbench2", {"rejected": "b"}, "missing_field: rejected"),
        ("rewardbench", {"subset": None}, "missing_field"),
        ("rewardbench", {"prompt": ""}, "empty"),
    ):
        with pytest.raises(ValueError, match=message):
            LAYOUTS[layout]({**ROWS[layout], **change}, 0)


def load(root, **spec):
    return load_judging(Stage("evaluate", root=root, deps=["data"]), {"name": "s", **spec}, 0)


def test_a_file_and_a_folder_in_the_layout_of_the_hub(tmp_path):
    (tmp_path / "data/set").mkdir(parents=True)
    for name, rows in (
        ("rows.jsonl", [ROWS["judgebench"], {"question": "Why?"}]),
        ("set/test.jsonl", [ROWS["rewardbench2"]]),
    ):
        (tmp_path / "data" / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
    loaded = load(tmp_path, layout="judgebench", path="data/rows.jsonl", by="judge")
    assert len(loaded.comparisons) == 1 and [q.reason for q in loaded.quarantined] == ["missing_field"]
    assert loaded.texts == (("s:mmlu-pro:0", "Why?"),)
    hub = load(tmp_path, layout="rewardbench2", hub=str(tmp_path / "data/set"), split="test")
    assert hub.comparisons[0].wrong == ("b", "c", "d")
    for spec, message in (
        (
            {"layout": "rewardbench", "path": "data/rows.jsonl"},
            "no row of data/rows.jsonl is of the layout rewardbench",
        ),
        ({"layout": "rm_bench", "path": "data/rows.jsonl", "by": "judge"}, "rm_bench needs a reward of each answer"),
        ({"layout": "judgebench", "path": "data/rows.jsonl", "by": "jugde"}, "did you mean 'judge'"),
        ({"layout": "judgebench", "path": "data/rows.jsonl", "samples": 2}, "unknown key 'samples'"),
        ({"layout": "judgebench"}, "name either a file"),
    ):
        with pytest.raises(UserError, match=message):
            load(tmp_path, **spec)


def test_rewards_are_of_each_answer_behind_the_prompt():
    renderer = Renderer(tiny.tokenizer())
    seen = []

    def longer(conversations):
        seen.extend(renderer.decode(x) for x in conversations)
        return [math.nan if len(x) > 200 else float(len(x)) for x in conversations]

    two = LAYOUTS["rewardbench2"]({**ROWS["rewardbench2"], "chosen": ["a a a a"]}, 0)
    long = LAYOUTS["rewardbench"]({**ROWS["rewardbench"], "chosen": "a b c " * 100}, 0)
    ((kept, (right, wrong)),) = by_reward([two, long], renderer, longer)
    assert kept is two and len(right) == 1 and len(wrong) == 3 and right[0] > max(wrong)
    assert "Why?" in seen[0] and seen[0].endswith("a a a a")


def test_a_judge_is_right_where_it_prefers_the_right_answer_in_both_orders():
    def says(conversations, sampling):
        first = ["right" in c[0].content.split("<<< Answer")[1] for c in conversations]
        return [f"<verdict>{1 if x else 2}</verdict>" for x in first]

    pairs = [
        LAYOUTS["judgebench"]({**ROWS["judgebench"], "response_B": a, "response_A": b, "pair_id": str(i)}, i)
        for i, (a, b) in enumerate([("right", "wrong"), ("wrong", "right"), ("other", "wrong")] * 4)
    ]
    rewards = [r for _, r in by_judge(pairs, Judge(says, budget=Budget()))]
    assert rewards == [([1.0], [0.0]), ([0.0], [1.0]), ([0.0], [0.0])] * 4, "the third follows the place: a tie"


def test_what_was_trained_on_is_left_out_and_a_judge_must_be_set(tmp_path):
    (tmp_path / "data").mkdir()
    rows = [{**ROWS["rewardbench"], "id": i, "prompt": f"Why {i}?"} for i in range(3)]
    (tmp_path / "data/rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    own = load(tmp_path, layout="rewardbench", path="data/rows.jsonl")
    model = type(
        "M", (), {"renderer": Renderer(tiny.tokenizer()), "of_ids": lambda self, c: [float(x[-2]) for x in c]}
    )()
    measures, card = judged([own], {"s:hep-go:1"}, lambda: model, None)
    assert card["s"]["rows"] == 2 and measures["s"]["score"]["n"] == 2 and measures["s"]["hep-go"]["mean"] in (0.0, 1.0)
    with pytest.raises(UserError, match="every row of the set 's' was trained on"):
        judged([own], {f"s:hep-go:{i}" for i in range(3)}, lambda: model, None)
    with pytest.raises(UserError, match="s asks a judge, and none is set"):
        judged([load(tmp_path, layout="rewardbench", path="data/rows.jsonl", by="judge")], set(), lambda: model, None)
    with pytest.raises(UserError, match="no row of s has a verdict"):
        mute = type("M", (), {"renderer": model.renderer, "of_ids": lambda self, c: [np.nan for _ in c]})()
        judged([own], set(), lambda: mute, None)
