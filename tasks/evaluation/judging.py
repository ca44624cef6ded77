"""Published test sets of reward models and judges (synth/testsets/judging.py), run on the project's own reward model or
judge.

    set:
      evaluate:
        sets:
        - {name: rb2, layout: rewardbench2, path: data/rewardbench2.parquet}
        - {name: jb, layout: judgebench, path: data/judgebench.jsonl, by: judge}

Keys: name; path (a file below data/) or hub with config and split; layout: rewardbench, rewardbench2, rm_bench or
judgebench; limit (rows, drawn by hash); by: reward (the model of the stage `reward`, unless said) or judge (that of
`evaluate.judge`, for pairs of two answers: rewardbench and judgebench).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synth.preferences.judge import Case, Verdict
from synth.testsets.judging import LAYOUTS, Comparison, measured
from synth.types import Quarantined, digest
from tasks.core.errors import UserError, nearest
from tasks.evaluation.testsets import hub, read
from tasks.runtime.stage import Stage
from training.learner.rows import prompt_ids
from training.model.render import Renderer

KEYS = {"name", "path", "hub", "config", "split", "layout", "limit", "by"}
BY = ("reward", "judge")


@dataclass(frozen=True)
class JudgingSet:
    name: str
    source: str
    layout: str
    by: str
    comparisons: tuple[Comparison, ...]
    quarantined: tuple[Quarantined, ...]

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """(id, text) of each prompt, for the contamination check."""
        return tuple((f"{self.name}:{c.subset}:{c.id}", c.prompt[-1].content) for c in self.comparisons)

    def left(self, leaked: set[str]) -> list[Comparison]:
        """The rows that were not trained on. Raises UserError if there is none."""
        kept = [c for c, (i, _) in zip(self.comparisons, self.texts, strict=True) if i not in leaked]
        if not kept:
            raise UserError(
                f"evaluate: every row of the set {self.name!r} was trained on: there is nothing left to ask"
            )
        return kept


def is_judging(spec: Any) -> bool:
    return isinstance(spec, Mapping) and spec.get("layout") in LAYOUTS


def load_judging(stage: Stage, spec: Mapping[str, Any], i: int) -> JudgingSet:
    """Raises UserError for an unknown key, a file that is missing, and a set without a usable row."""
    where, layout, by = f"evaluate.sets[{i}]", str(spec["layout"]), str(spec.get("by", "reward"))
    for key in spec:
        if key not in KEYS:
            raise UserError(f"{where}: unknown key {key!r}: {nearest(key, KEYS)}")
    if not isinstance(spec.get("name"), str) or not spec["name"].strip() or "," in spec["name"]:
        raise UserError(f"{where} must have a name without a comma, for example {{name: rb2, layout: rewardbench2}}")
    if ("path" in spec) == ("hub" in spec):
        raise UserError(
            f"{where}: name either a file (path: data/rows.jsonl) or a data set of the Hub (hub: owner/name)"
        )
    if by not in BY:
        raise UserError(f"{where}: by = {by!r}: {nearest(by, BY)}")
    if by == "judge" and layout not in ("rewardbench", "judgebench"):
        raise UserError(f"{where}: {layout} needs a reward of each answer, which a judge does not give: leave `by` out")
    source = str(spec.get("path") or spec["hub"])
    rows = (
        read(stage.source(source))
        if "path" in spec
        else hub(source, spec.get("config"), str(spec.get("split", "test")))
    )
    comparisons: list[Comparison] = []
    quarantined: list[Quarantined] = []
    for n, row in enumerate(rows):
        try:
            if not isinstance(row, Mapping):
                raise ValueError(f"not_a_row: {row!r:.80} is no object")
            comparisons.append(LAYOUTS[layout](row, n))
        except ValueError as e:
            reason, _, evidence = str(e).partition(":")
            place = f"{source}, row {n}: {evidence.strip()}"
            quarantined.append(Quarantined(id=f"{spec['name']}/{n}", stage="evaluate", reason=reason, evidence=place))
    if not comparisons:
        first = quarantined[0].evidence if quarantined else f"{source} has no rows"
        raise UserError(f"{where}: no row of {source} is of the layout {layout}; the first: {first}")
    order = sorted(comparisons, key=lambda c: digest("evaluate", stage.seed, c.id.rpartition(":")[2], c.subset))
    return JudgingSet(spec["name"], source, layout, by, tuple(order[: spec.get("limit") or None]), tuple(quarantined))


def by_reward(
    comparisons: Sequence[Comparison], renderer: Renderer, rewards: Callable[[Sequence[np.ndarray]], list[float]]
) -> list[tuple[Comparison, tuple[list[float], list[float]]]]:
    """The rows with the rewards of their answers; rows with an answer longer than the model's context are left out."""
    out = []
    for c in comparisons:
        prompt = prompt_ids(renderer, c.prompt)
        given = rewards([np.concatenate([prompt, renderer.turn(text)]) for text in (*c.right, *c.wrong)])
        if not np.isnan(given).any():
            out.append((c, (given[: len(c.right)], given[len(c.right) :])))
    return out


def by_judge(comparisons: Sequence[Comparison], judge: Any) -> list[tuple[Comparison, tuple[list[float], list[float]]]]:
    """The rows with 1 for the answer that the judge prefers and 0 for the other, or 0 for both if it calls a tie or
    contradicts itself; rows without a verdict are left out. A hash decides which answer is shown first. (JudgeBench
    also counts a pair as right if one order is right and the other a tie.)"""
    cases, turned = [], []
    for c in comparisons:
        turned.append(int(digest("judging", c.id, c.subset)[:2], 16) % 2 == 1)
        case = Case(question="\n\n".join(m.content for m in c.prompt), first=c.right[0], second=c.wrong[0])
        cases.append(case.swapped if turned[-1] else case)
    out = []
    for c, swapped, verdict in zip(comparisons, turned, judge.compare(cases), strict=True):
        if isinstance(verdict, Verdict):
            right, wrong = ("second", "first") if swapped else ("first", "second")
            out.append((c, ([float(verdict.winner == right)], [float(verdict.winner == wrong)])))
    return out


def judged(
    sets: Sequence[JudgingSet], leaked: set[str], reward: Callable[[], Any], judge: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """({set: {metric: {"mean", "low", "high", "n"}}}, {set: counts for the card}). `reward()` loads the reward model.

    Raises UserError if a set needs a judge and none is set, and if no row has a verdict."""
    measures, cards = {}, {}
    for s in sets:
        rows = s.left(leaked)
        if s.by == "judge":
            if judge is None:
                raise UserError(
                    f"evaluate.sets: {s.name} asks a judge, and none is set: write evaluate.judge, or by: reward"
                )
            scored = by_judge(rows, judge)
        else:
            model = reward()
            scored = by_reward(rows, model.renderer, model.of_ids)
        if not scored:
            raise UserError(
                f"evaluate.sets: no row of {s.name} has a verdict: all are too long, or the judge said nothing"
            )
        measures[s.name] = measured(s.layout, scored)
        cards[s.name] = {"source": s.source, "rows": len(rows), "without_verdict": len(rows) - len(scored), "by": s.by}
    return measures, cards
