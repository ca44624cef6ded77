"""The cleaners of `benchmarks/cleaning.py`, run in a process that holds the noisy pairs and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from synth.preferences.cleaners._noise import estimate
from synth.preferences.cleaning import margins
from synth.types import Decision, Message, PreferencePair
from tasks.planning.pieces import bind

FOLDS, MODELS = 5, 8
# name -> (cleaner, knobs, the column it reads as `scores` or `votes`, what it knows beside the labels)
METHODS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "confident learning": ("confident_learning", {}, "", ""),
    "confident learning, flip": ("confident_learning", {"flip": True}, "", ""),
    "blind margin": ("blind_margin", {}, "", "what is style"),
    "RE-PO weights": ("rpo_em", {"fitted_to_labels": True}, "", ""),
    "RE-PO, remove": ("rpo_em", {"fitted_to_labels": True, "remove_below": 0.5}, "", ""),
    "RwGap-R": ("score_gap", {"share": 0.2}, "own", ""),
    "RwGap-F": ("score_gap", {"share": 0.2, "action": "flip"}, "own", ""),
    "length balance": ("length_balance", {}, "", "what is style"),
    "LLM-Judge-R": ("score_gap", {}, "judge", "a judge"),
    "LLM-Judge-F": ("score_gap", {"action": "flip"}, "judge", "a judge"),
    "VoteAll-R": ("voting", {"rule": "all"}, "voters", "6 voters"),
    "VoteAll-F": ("voting", {"rule": "all", "action": "flip"}, "voters", "6 voters"),
    "VoteMaj-R": ("voting", {}, "voters", "6 voters"),
    "VoteMaj-F": ("voting", {"action": "flip"}, "voters", "6 voters"),
    "annotators": ("annotators", {}, "votes", "votes"),
    "annotators, 50 anchors": ("annotators", {"anchors": True}, "votes", "votes, anchors"),
    "Dawid-Skene, 50 anchors": ("annotators", {"model": "dawid_skene", "anchors": True}, "votes", "votes, anchors"),
    "IFD-R": ("instruction_difficulty", {}, "ifd", ""),
    "IFD-Gap-R": ("instruction_difficulty", {"gap": True}, "ifd", ""),
    "IFD-Gap-F": ("instruction_difficulty", {"gap": True, "action": "flip"}, "ifd", ""),
    "duplicates": ("duplicates", {}, "texts", ""),
    "policy": ("policy", {}, "", "what is style"),
    "policy, 50 anchors": ("policy", {"anchors": True}, "", "what is style, anchors"),
}
KNOWS = {name: knows for name, (_, _, _, knows) in METHODS.items()}
PROBABILITY = {"confident_learning", "blind_margin", "rpo_em", "annotators", "policy"}


def decide(visible: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """name -> {weight [n], flip [n], suspicion [n], probability: bool, estimate}; methods whose column is not there are
    left out."""
    pairs = _pairs(visible)
    n, out, advice = len(pairs), {}, []
    right = np.array([p.columns["out_of_fold"] for p in pairs])
    for name, (cleaner, knobs, column, _) in METHODS.items():
        if column not in ("", "own") and visible.get(column) is None:
            continue
        knobs = dict(knobs)
        anchored, flip = knobs.pop("anchors", False), knobs.pop("flip", False)
        given = pairs if anchored else [_without(p, "anchor") for p in pairs]
        if column in ("own", "judge"):
            given = [_with(p, "scores", p.columns[column]) for p in given]
        elif column == "voters":
            given = [_with(p, "votes", p.columns["voters"]) for p in given]
        if cleaner == "policy":
            given = [replace(p, decisions=tuple(d[i] for d in advice)) for i, p in enumerate(given)]
        decisions: list[Decision] = bind("cleaner", {"piece": cleaner, **knobs})(given)
        if name in ("confident learning", "blind margin", "annotators, 50 anchors", "duplicates"):
            advice.append(decisions)
        acts = np.array([d.action in ("remove", "flip") for d in decisions])
        score = np.array([d.score for d in decisions])
        flips = acts if flip else np.array([d.action == "flip" for d in decisions])
        weight = np.where(acts & ~flips, 0.0, 1.0)
        if name == "RE-PO weights":
            weight = score
        suspicion = acts.astype(float) if cleaner in ("duplicates", "length_balance") else 1 - score
        counted = cleaner in ("confident_learning", "blind_margin")
        columns = np.array(
            [p.columns["out_of_fold_blind" if cleaner == "blind_margin" else "out_of_fold"] for p in pairs]
        )
        rate = estimate(columns, visible["groups"], np.zeros(n), draws=20) if counted and not flip else None
        out[name] = {
            "weight": weight,
            "flip": flips,
            "suspicion": suspicion,
            "probability": cleaner in PROBABILITY,
            "estimate": rate,
        }
    assert len(right) == n
    return out


def _pairs(visible: dict[str, Any]) -> list[PreferencePair]:
    x, groups = visible["difference"], visible["groups"]
    columns: dict[str, list] = {
        "out_of_fold": margins(x, groups, folds=FOLDS, c=1.0).round(6).tolist(),
        "out_of_fold_blind": margins(x, groups, folds=FOLDS, c=1.0, hidden=visible["hidden"]).round(6).tolist(),
        "own": [{"own": [float(v), 0.0]} for v in _own(x)],
        "anchor": [int(a) for a in visible["anchor"]],
    }
    for name, make in _COLUMNS.items():
        if visible.get(name) is not None:
            columns[name] = make(np.asarray(visible[name]))
    spelled = visible["texts"] or [(f"p{i}", "c" * 50, "r" * 50) for i in range(len(x))]
    lengths = x[:, visible["hidden"][0]]
    out = []
    for i, (prompt, chosen, rejected) in enumerate(spelled):
        if visible["texts"] is None:  # texts as long as the feature says, for cleaners that measure them
            chosen = "c" * max(1, round(50 + 10 * lengths[i]))
        values = {name: column[i] for name, column in columns.items()}
        question = (Message(role="user", content=prompt),)
        pair = PreferencePair(
            id=f"{i:06d}",
            prompt=question,
            chosen=chosen,
            rejected=rejected,
            source="bench",
            columns=values,
            split="train",
        )
        out.append(pair)
    return out


def _votes(table: np.ndarray) -> list[dict[str, int]]:
    return [{f"a{j}": int(v) for j, v in enumerate(row) if v} for row in table.T]


_COLUMNS: dict[str, Callable[[np.ndarray], list]] = {
    "votes": _votes,
    "voters": _votes,
    "judge": lambda gap: [{"judge": [float(g), 0.0]} for g in gap],
    "ifd": lambda two: two.T.tolist(),
}


def _own(x: np.ndarray) -> np.ndarray:
    """[n] mean margin of eight reward models, each fitted to a bootstrap sample of the same pairs."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    margins_ = np.zeros(len(x))
    for _ in range(MODELS):
        mine = x[rng.integers(0, len(x), len(x))]
        model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000)
        margins_ += x @ model.fit(np.concatenate([mine, -mine]), np.repeat([1, 0], len(mine))).coef_[0] / MODELS
    return margins_


def _with(pair: PreferencePair, name: str, value: Any) -> PreferencePair:
    return replace(pair, columns={**pair.columns, name: value})


def _without(pair: PreferencePair, name: str) -> PreferencePair:
    return replace(pair, columns={k: v for k, v in pair.columns.items() if k != name})
