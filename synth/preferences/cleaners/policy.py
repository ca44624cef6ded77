"""Combines the decisions of the other cleaners into one: flip, remove, ask, weight or keep, by the probability that the
label is wrong.

    p_d    of a detector whose score is the probability that the label is right (PROBABILITY), 1 - score
    p_s    of a source of information (SOURCES): the mean log-odds of its detectors, which see the same evidence and
           count once
    p      log-odds(prior) + sum over sources of (log-odds(p_s) - log-odds(prior)) / T_s

With at least `least` anchors of both kinds (label proven right, proven wrong) the temperature T_s of a source minimises
the log-loss on them; without, T_s = 1, and p is as good as the detectors' own calibration. A pair is

    flipped    where p > flip_above and at least two sources say p_s > 1/2, or the label is proven wrong
    removed    where p > the threshold among .5, .55, ..., .7 with the greatest (wrong removed) - cost * (right removed)
               on the anchors, .6 without them; and where a detector of form (duplicates, broken text, identical sides)
               says so, whatever the label
    asked      where a detector asks and nothing removes; with `cautious` and too few anchors also if it would be
               removed for its label: without proven labels the accuracy of the detectors is unknown, so doubts become
               questions, and only certain cases (copies, contradictions, broken text) are removed
    weighted   by 1 - p else, where any detector spoke; 1 where the label is proven right

With `rate: estimated` the reported probability, which also gives the weight, has as prior the share of wrong labels e
of this file: that among the anchors that were drawn at random where there are enough (those that a cleaner asked about
are the doubtful ones), else that of the confident joint (`confident_learning`) of 30 pairs or more, within [0.01,
0.49], else the prior. A label model without information about a pair gives 1/2 to either side; its label is then wrong
with probability e, not 1/2:

    p      log-odds(e) + log-odds of the mean 1 - score of the models of the labels
                       + sum over other sources of (log-odds(p_s) - log-odds(prior)) / T_s

Which pairs are flipped, removed or asked about is decided as before.

Nothing is deleted here: the stage keeps removed pairs, with this decision and all decisions that led to it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from synth.preferences.cleaners._columns import anchor, drawn_anchor
from synth.preferences.cleaners.confident_learning import noise_rate_of_pairs
from synth.preferences.ledger import Verdicts
from synth.types import Decision, PreferencePair

SOURCES = {
    "confident_learning": "text",
    "rpo_em": "text",
    "blind_margin": "text",
    "annotators": "votes",
    "voting": "votes",
    "score_gap": "scores",
}
PROBABILITY = {"confident_learning", "rpo_em", "blind_margin", "annotators"}
SAID = {
    "voting": 0.8,
    "score_gap": 0.8,
}  # p of a detector that acts without giving a probability: the accuracy of PrefCleanBench's voters
AGAINST = {  # source -> its evidence, in words that a person can check
    "text": "pairs with other prompts, most of whose labels go with the wording of the side that is rejected here",
    "votes": "its annotators, each weighed by how often the others agree with them, are for the rejected side",
    "scores": "its scores are higher for the rejected side",
}
LEAST = 30  # pairs that a model of the labels judged, for an estimate of how many labels are wrong
TEMPERATURES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7)


def policy(
    pairs: Sequence[PreferencePair],
    *,
    prior: float = 0.1,
    flip_above: float = 0.9,
    cost: float = 0.5,
    least: int = 10,
    cautious: bool = False,
    rate: Literal["assumed", "estimated"] = "assumed",
) -> Sequence[Decision]:
    """One decision per pair from `pair.decisions`; score = 1 - p, the probability that the label is right.

    prior: share of wrong labels that is assumed. cost: of a right pair removed, where a wrong one kept costs 1.
    cautious: without anchors a pair is not removed for its label, but asked about. rate: the prior of the reported
    probability: `prior`, or the rate estimated on these pairs. Raises ValueError for a probability outside (0, 1), or a
    negative cost.
    """
    if not 0 < prior < 1 or not 0 < flip_above < 1 or cost < 0:
        raise ValueError(
            f"policy: prior = {prior}, flip_above = {flip_above}, cost = {cost}: write probabilities in (0, 1), and cost >= 0"
        )
    proven, drawn, scores = list[tuple[dict[str, float], bool]](), list[bool](), array("d")
    for pair in pairs:
        if k := anchor(pair):
            proven.append((_evidence(pair), k < 0))
        if k := drawn_anchor(pair):
            drawn.append(k < 0)
        scores.extend(d.score for d in pair.decisions if d.step == "confident_learning")
    enough = len(proven) >= least and len({wrong for _, wrong in proven}) == 2
    heat = {s: _temperature(s, proven, prior) for s in sorted(set(SOURCES.values()))} if enough else {}
    threshold = _threshold(proven, heat, prior, cost) if enough else 0.6
    share = _rate(scores, drawn if len(drawn) >= least else [], prior) if rate == "estimated" else None
    doubted: Literal["ask", "remove"] = "remove" if enough or not cautious else "ask"
    return Verdicts(
        _decision(
            p,
            e,
            anchor(p),
            _combined(e, heat, prior),
            threshold,
            flip_above,
            doubted,
            None if share is None else (_told(e, heat, prior, share), share),
        )
        for p in pairs
        for e in (_evidence(p),)
    )


def _rate(scores: Sequence[float], wrong: Sequence[bool], prior: float) -> float:
    """The share of wrong labels: among those that were drawn and proven, else of the confident joint, else the prior.
    scores: of confident learning."""
    if wrong:
        rate = sum(wrong) / len(wrong)
    elif len(scores) >= LEAST:
        rate = noise_rate_of_pairs(np.asarray(scores))
    else:
        return prior
    return min(max(rate, 0.01), 0.49)


def _told(evidence: Mapping[str, float], heat: Mapping[str, float], prior: float, share: float) -> float:
    """The probability that the label is wrong where `share` of all are: models of the labels begin at even odds."""
    base = {"text": 0.0}
    return _sigmoid(
        _logit(share)
        + math.fsum((x - base.get(s, _logit(prior))) / heat.get(s, 1.0) for s, x in sorted(evidence.items()))
    )


def _evidence(pair: PreferencePair) -> dict[str, float]:
    """source -> log-odds that the label is wrong."""
    odds: dict[str, list[float]] = {}
    for d in pair.decisions:
        if (
            d.step in PROBABILITY
            and d.reason not in ("no_votes", "proven_right", "proven_wrong")
            and not d.reason.startswith("not_ident")
        ):
            odds.setdefault(SOURCES[d.step], []).append(_logit(1 - d.score))
        elif d.step in SAID and d.action in ("remove", "flip"):
            odds.setdefault(SOURCES[d.step], []).append(_logit(SAID[d.step]))
    return {source: math.fsum(x) / len(x) for source, x in odds.items()}


def _combined(evidence: Mapping[str, float], heat: Mapping[str, float], prior: float) -> float:
    base = _logit(prior)
    return _sigmoid(base + math.fsum((x - base) / heat.get(s, 1.0) for s, x in sorted(evidence.items())))


def _temperature(source: str, proven: Sequence[tuple[Mapping[str, float], bool]], prior: float) -> float:
    """The temperature of one source that makes its own probabilities fit the anchors it spoke about."""
    mine = [({source: e[source]}, wrong) for e, wrong in proven if source in e]

    def loss(t: float) -> float:
        return -math.fsum(
            math.log(p if wrong else 1 - p) for e, wrong in mine for p in [_clip(_combined(e, {source: t}, prior))]
        )

    return min(TEMPERATURES, key=lambda t: (loss(t), abs(math.log(t)))) if mine else 1.0


def _threshold(
    proven: Sequence[tuple[Mapping[str, float], bool]], heat: Mapping[str, float], prior: float, cost: float
) -> float:
    ps = [(_combined(e, heat, prior), wrong) for e, wrong in proven]
    return max(THRESHOLDS, key=lambda t: (math.fsum((1.0 if wrong else -cost) for p, wrong in ps if p > t), t))


def _decision(
    pair: PreferencePair,
    evidence: Mapping[str, float],
    known: int,
    p: float,
    threshold: float,
    flip_above: float,
    doubted: Literal["ask", "remove"],
    told: tuple[float, float] | None,
) -> Decision:
    against = sorted(s for s, x in evidence.items() if x > 0)
    form = [d for d in pair.decisions if d.step not in SOURCES and d.step != "verified" and d.action == "remove"]
    asks = [d for d in pair.decisions if d.action == "ask"]
    sides = "; ".join(AGAINST[s] for s in against) or "nothing is against it"
    wrong, share = told or (p, None)
    among = "" if share is None else f", where {share:.0%} of all labels are"
    why = f": {sides} (probability that the label is wrong: {wrong:.2f}{among})"

    def say(
        action: Literal["keep", "weight", "ask", "remove", "flip"], reason: str, score: float = 1 - wrong
    ) -> Decision:
        return Decision(step="policy", action=action, reason=reason, score=score)

    if form:
        return say("remove", f"{form[0].step}: {form[0].reason}")
    if known:
        return say("flip", "proven_wrong", 0.0) if known < 0 else say("keep", "proven_right", 1.0)
    if p > flip_above and len(against) >= 2:
        return say("flip", f"sources_agree{why}")
    if p > threshold:
        return say(doubted, f"label_unlikely{why}")
    if asks:
        return say("ask", f"{asks[0].step}: {asks[0].reason}")
    return say("weight", f"weighed{why}") if evidence else say("keep", "no_evidence")


def _clip(p: float) -> float:
    return min(max(p, 1e-6), 1 - 1e-6)


def _logit(p: float) -> float:
    p = _clip(p)
    return math.log(p / (1 - p))


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))
