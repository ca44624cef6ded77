"""Annotator models where the truth is known: real judges, real models that vote, simulated annotators. Part of `make
bench-cleaning`.

PROTOCOL, committed before the first run. Judges: LLMBar's 65 judge configurations, one order, each subset apart.
Voters: the models of GSM8K that wrote neither side of a pair vote for the side that ends in their own answer.
Simulated: 400 pairs, nine annotators whose accuracies are drawn from [0.55, 0.95], independent; or five, three of them
malicious (0.1). 10 anchors, drawn 30 times; accuracy on all other pairs where anybody voted. `gain` is the accuracy of
`auto` above the majority's, with a 95 % interval of its mean over the draws.

The defaults of `annotators` (the weighted vote; the warning above an excess agreement of 0.03) were chosen when
LLMBar's figures had been seen. Voters and simulated annotators are the check on other data: which model is best there
with 10 anchors, and, without anchors, how often the warning comes where annotators are independent (a false alarm) and
where they share their errors. A first look at this check said that the weighted vote loses to the majority on both,
where Dawid-Skene wins: so `auto` became the default, the weighted vote only where the warning comes. Its own check are
the sets called `fresh`, of other seeds, drawn after it was written down.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np

from benchmarks.rows import result_row
from benchmarks.cleaning_data import GSM8K, _vote
from synth.preferences.cleaners._annotators import MODELS, dependence, majority
from synth.preferences.cleaners.annotators import fitted

LLMBAR = Path(__file__).resolve().parents[2] / "shared" / "data" / "llmbar"
DRAWS, ANCHORS, EXCESS = 30, 10, 0.03
COMMAND = "make bench-cleaning"
Votes = tuple[np.ndarray, np.ndarray]  # votes [n, A] in {1, -1, 0}, truth [n] in {1, -1}


def llmbar(path: Path) -> Votes:
    data = json.loads(path.read_text(encoding="utf-8"))
    code = {"1": 1.0, "2": -1.0}
    votes = np.array([[code.get(first, 0.0) for first, _ in judge] for judge in data["verdicts"].values()]).T
    return votes, np.where(np.array(data["labels"]) == 1, 1, -1)


def gsm8k(seed: int = 0) -> Votes:
    lines = [json.loads(line) for line in GSM8K.open(encoding="utf-8")]
    models = [k for k in lines[0] if k not in ("question", "ground_truth")]
    rows = [
        (x, a, b)
        for x in lines
        for a in range(4)
        for b in range(4)
        if x[models[a]]["is_correct"] > x[models[b]]["is_correct"]
    ]
    truth = np.random.default_rng(seed).choice([-1, 1], len(rows))
    votes = np.array([[_vote(x, models, m, a, b) for m in range(4)] for x, a, b in rows], dtype=float)
    voted = np.abs(votes).sum(axis=1) > 0
    return (votes * truth[:, None])[voted], truth[voted]


def simulated(accuracy: np.ndarray, n: int, rng: np.random.Generator, *, shared: float = 0.0) -> Votes:
    """shared: the share of pairs on which all follow one common opinion, which is wrong as often as they are."""
    truth = rng.choice([-1, 1], n)
    right = rng.random((n, len(accuracy))) < accuracy
    common = rng.random(n) < accuracy.mean()
    follows = rng.random(n) < shared
    right[follows] = common[follows, None]
    return np.where(right, truth[:, None], -truth[:, None]).astype(float), truth


def compared(case: str, votes: np.ndarray, truth: np.ndarray) -> list[dict]:
    """Accuracy of every model with 10 anchors over 30 draws, that of the majority, the best judge on the anchors, the
    gain, the warning."""
    none = np.zeros(len(truth))
    right: dict[str, list[float]] = {}
    for draw in range(DRAWS):
        rows = np.random.default_rng([draw, 5]).choice(len(truth), ANCHORS, replace=False)
        anchors = none.copy()
        anchors[rows] = truth[rows]
        rest = anchors == 0
        best = int(np.argmax((votes[rows] * truth[rows, None]).sum(axis=0)))
        chances = {name: model(votes, anchors) for name, model in MODELS.items()} | {
            "auto": fitted(votes, anchors, "auto", EXCESS)
        }
        chances |= {"best on anchors": (votes[:, best] + 1) / 2}
        chances["majority"] = majority(votes, none)
        for name, p in chances.items():
            right.setdefault(name, []).append(float(np.where(p == 0.5, 0.5, (p > 0.5) == (truth > 0))[rest].mean()))
    gain = [a - b for a, b in zip(right["auto"], right["majority"], strict=True)]
    spread = 1.96 * statistics.stdev(gain) / DRAWS**0.5
    label = f"{case} ({len(truth)} pairs, {votes.shape[1]} annotators)"
    out = [result(label, name, 100 * statistics.fmean(x), "%") for name, x in right.items()]
    mean = statistics.fmean(gain)
    out.append(result(label, "gain", 100 * mean, "points", 100 * (mean - spread), 100 * (mean + spread)))
    seen, implied = dependence(votes, MODELS["weighted"](votes, none))
    return [*out, result(label, "agreement above independence", seen - implied, "")]


def warnings() -> list[dict]:
    """How often the warning comes over 100 simulated sets of each kind; a warning is agreement above independence by
    more than EXCESS."""
    out = []
    for annotators, n in ((3, 100), (5, 50), (5, 500), (15, 200)):
        for kind, shared in (("independent", 0.0), ("errors shared on a fifth", 0.2), ("errors shared on half", 0.5)):
            warned = 0
            for i in range(100):
                rng = np.random.default_rng([annotators, n, round(10 * shared), i])
                votes, _ = simulated(rng.uniform(0.55, 0.95, annotators), n, rng, shared=shared)
                seen, implied = dependence(votes, MODELS["weighted"](votes, np.zeros(n)))
                warned += seen > implied + EXCESS
            better = "lower" if not shared else "higher"
            out.append(
                result(f"{annotators} annotators, {n} pairs", kind, float(warned), "% warned", n=100, better=better)
            )
    return out


def judges() -> list[dict]:
    out = []
    for path in sorted(LLMBAR.rglob("judges.json")):
        out += compared(f"LLMBar {path.parent.name}", *llmbar(path))
    if GSM8K.exists():
        out += compared("GSM8K models", *gsm8k())
    rng = np.random.default_rng(17)
    out += compared("simulated, independent", *simulated(rng.uniform(0.55, 0.95, 9), 400, rng))
    out += compared("simulated, three of five malicious", *simulated(np.array([0.9, 0.9, 0.1, 0.1, 0.1]), 400, rng))
    fresh = np.random.default_rng(2024)
    for name, count, n, shared in (
        ("independent", 12, 300, 0.0),
        ("a third shared", 7, 250, 0.33),
        ("half shared", 20, 120, 0.5),
    ):
        out += compared(f"fresh: {name}", *simulated(fresh.uniform(0.45, 0.9, count), n, fresh, shared=shared))
    return out


def result(
    case: str,
    metric: str,
    value: float,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    n: int = DRAWS,
    better: str = "higher",
) -> dict:
    return result_row(case, metric, value, unit, COMMAND, n, better=better, low=low, high=high, numpy=np.__version__)
