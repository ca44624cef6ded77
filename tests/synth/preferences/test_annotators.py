"""Annotator models: hand-computed cases, simulated annotators, and real judges (LLMBar) whose majority is worse than a
coin."""

import json
from pathlib import Path

import numpy as np
import pytest

from synth.preferences.cleaners._annotators import MODELS, accuracies, dependence, majority, posterior, weighted
from synth.preferences.cleaners.annotators import annotators
from synth.types import Message, PreferencePair

LLMBAR = Path(__file__).resolve().parents[4] / "shared" / "data" / "llmbar" / "Adversarial"


def simulated(accuracy, n=300, seed=0):
    """(votes [n, A], truth [n]) of independent annotators."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([-1, 1], n)
    return np.where(rng.random((n, len(accuracy))) < accuracy, truth[:, None], -truth[:, None]).astype(float), truth


def share_right(p, truth, rows=slice(None)):
    return float(((p > 0.5) == (truth > 0))[rows].mean())


def test_by_hand():
    votes = np.array([[1.0, 1, -1], [1, 0, -1], [0, 0, 0]])
    assert majority(votes, np.zeros(3)).tolist() == pytest.approx([2 / 3, 0.5, 0.5])
    # accuracies 3/4, 1/2, 1/4: odds of the first row 3 * 1 * 3
    assert posterior(votes[:1], np.array([0.75, 0.5, 0.25])).tolist() == pytest.approx([0.9])
    # one anchor, the first row, true: two of three were right; smoothed (1 + 1) / 3, (1 + 1) / 3, (0 + 1) / 3
    anchors = np.array([1, 0, 0])
    assert accuracies(votes, (anchors + 1) / 2, known=anchors).tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert weighted(votes, anchors).tolist() == pytest.approx([1.0, 0.8, 0.5])


def test_skill_is_learned_from_the_votes_alone_where_errors_are_independent():
    votes, truth = simulated([0.95, 0.9, 0.55, 0.55, 0.55])
    none = np.zeros(len(truth))
    base = share_right(majority(votes, none), truth)
    assert all(share_right(MODELS[m](votes, none), truth) > base for m in ("weighted", "dawid_skene", "glad"))
    seen, implied = dependence(votes, MODELS["dawid_skene"](votes, none))
    assert abs(seen - implied) < 0.02


@pytest.mark.parametrize("model", ["weighted", "dawid_skene", "glad"])
def test_anchors_tell_a_malicious_majority(model):
    votes, truth = simulated([0.9, 0.9, 0.1, 0.1, 0.1])
    anchors = np.where(np.arange(len(truth)) < 20, truth, 0)
    assert (
        share_right(MODELS[model](votes, np.zeros(len(truth))), truth)
        < 0.5
        < 0.9
        < share_right(MODELS[model](votes, anchors), truth)
    )


def pair(i, votes, **columns):
    return PreferencePair(
        id=f"{i:04d}",
        prompt=(Message(role="user", content=str(i)),),
        chosen="a",
        rejected="b",
        source="t",
        split="train",
        columns={"votes": votes, **columns},
    )


def test_reasons_and_one_sided_votes():
    decisions = annotators(
        [pair(0, {"a": 1, "b": 1}), pair(1, {"a": -1, "b": -1}), pair(2, {}), pair(3, {"a": 1}, anchor=-1)]
    )
    assert [(d.action, d.reason) for d in decisions[2:]] == [("keep", "no_votes"), ("remove", "proven_wrong")]
    alone = annotators([pair(i, {"only": 1 if i else -1}) for i in range(5)])
    assert [d.action for d in alone] == ["remove"] + ["keep"] * 4 and "no anchors" in alone[0].reason
    equal = annotators([pair(i, {"a": 0, "b": 0}) for i in range(3)])
    assert {(d.action, d.reason, d.score) for d in equal} == {("keep", "no_votes", 0.5)}


def test_without_anchors_judges_who_err_together_are_not_believed():
    votes, _ = simulated([0.7], n=200)
    shared = [
        pair(i, {n: int(v[0]) for n in "abcdef"} | {"g": 1 if i % 2 else -1, "h": 1 if i % 3 else -1})
        for i, v in enumerate(votes)
    ]
    acted = {d.action for d in annotators(shared, model="majority")}
    assert acted == {"keep", "ask"}
    assert any(d.reason.startswith("not_identifiable: no anchors") for d in annotators(shared, model="majority"))


@pytest.mark.skipif(not LLMBAR.exists(), reason="the LLMBar judges are not beside the checkout (../shared/data/llmbar)")
@pytest.mark.parametrize("subset", ["GPTInst", "GPTOut", "Manual"])
def test_real_judges_are_repaired_by_ten_anchors(subset):
    """65 judges, one order. Anchors are drawn 30 times; the rest is scored. The lower end of the interval of the gain
    lies above 0."""
    data = json.loads((LLMBAR / subset / "judges.json").read_text())
    truth = np.where(np.array(data["labels"]) == 1, 1, -1)
    code = {"1": 1.0, "2": -1.0}
    votes = np.array([[code.get(first, 0.0) for first, _ in judge] for judge in data["verdicts"].values()]).T
    none = np.zeros(len(truth))
    gains = []
    for draw in range(30):
        rows = np.random.default_rng(draw).choice(len(truth), 10, replace=False)
        anchors = none.copy()
        anchors[rows] = truth[rows]
        rest = anchors == 0
        gains.append(
            share_right(weighted(votes, anchors), truth, rest) - share_right(majority(votes, none), truth, rest)
        )
    assert np.mean(gains) - 1.96 * np.std(gains, ddof=1) / 30**0.5 > 0
    if subset == "GPTInst":
        assert share_right(majority(votes, none), truth) < 0.5, (
            "the documented effect: the majority is worse than a coin"
        )
    decisions = annotators(
        [pair(i, dict(zip(data["verdicts"], map(int, row), strict=True))) for i, row in enumerate(votes)]
    )
    assert {d.reason.partition(":")[0] for d in decisions} == {"not_identifiable"} and {
        d.action for d in decisions
    } == {
        "ask",
        "keep",
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*(inplace|copy) keyword")  # crowd-kit's own
def test_dawid_skene_agrees_with_crowd_kit():
    """With its model of one accuracy per annotator, which is ours; ours pulls accuracies towards a prior, theirs does not."""
    crowdkit = pytest.importorskip(
        "crowdkit.aggregation", reason="crowd-kit, the reference implementation, is not installed"
    )
    import pandas as pd

    for seed in range(5):
        votes, truth = simulated([0.9, 0.85, 0.8, 0.6, 0.55], seed=seed)
        # Labels are texts: crowd-kit names columns by labels and then mixes True up with "True" and 1.
        rows = [(i, j, "yes" if votes[i, j] > 0 else "no") for i in range(len(votes)) for j in range(votes.shape[1])]
        table = pd.DataFrame(rows, columns=["task", "worker", "label"])
        theirs = crowdkit.OneCoinDawidSkene(n_iter=100).fit_predict_proba(table).sort_index()["yes"].to_numpy()
        ours = MODELS["dawid_skene"](votes, np.zeros(len(truth)))
        assert np.abs(theirs - ours).max() < 0.12 and ((theirs > 0.5) == (ours > 0.5)).mean() > 0.97
