"""The page of `espalier curves`: one curve per setting, with its interval over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from tasks.pages import page as pages
from tasks.pages import plots
from tasks.core.labels import NAMES, TRAINED
from tasks.pages.render import Macros
from tasks.results.curves import over

HTML = Macros("curves.html")
COLOURS = ("rl", "sft", "prefer", "other", "bad", "base")  # in the order of the groups


def page(curves: Mapping[str, Any], title: str = "learning curves over seeds") -> str:
    """One self-contained page for the result of tasks/results/curves.py. If there are more groups than colours, only
    the first groups are drawn."""
    groups = curves["groups"]
    colour = {g["name"]: COLOURS[i] if i < len(COLOURS) else COLOURS[-1] for i, g in enumerate(groups)}
    drawn = {g["name"] for g in groups[: len(COLOURS)]}
    seeds = sum(len(g["seeds"]) for g in groups)
    lead = f"{len(groups)} setting{'s' if len(groups) > 1 else ''}, {seeds} runs. A line is the mean over seeds, the band its 95 % interval."
    facts = "Student's t at every step by itself. The seed decides worlds, questions, weights and samples; one seed has no band."
    rows = [
        [pages.dotted(colour[g["name"]], g["name"]), ", ".join(map(str, g["seeds"])), ", ".join(g["states"])]
        for g in groups
    ]
    settings = HTML.settings(["setting", "seeds", "states"], rows, curves["copies"])
    sections = [("Settings", settings)]
    if curves["scores"]:
        sections.append(("Scores", _scores(curves["scores"], colour)))
    of = lambda by: {name: m for name, m in by.items() if name in drawn}  # noqa: E731
    order = [s for s in ("rl", *TRAINED) if s in curves["curves"]]
    for s in dict.fromkeys(order):
        columns = curves["curves"][s]
        sections.append((TRAINED[s], pages.panels(list(columns), lambda c, y, by=columns: plot(of(by[c]), colour, y))))
    if curves["missing"]:
        sections.append(("Not shown", HTML.missing([[m] for m in curves["missing"]])))
    return pages.page(f"Espalier: {title}", lead, facts, sections)


def _scores(scores: Mapping[str, Mapping[str, Mapping[str, Any]]], colour: Mapping[str, str]) -> Markup:
    rows = [
        [
            pages.dotted(colour[name], name),
            NAMES.get(run, run),
            metric,
            f"{m['mean']:.1%}",
            _interval(m),
            ", ".join(f"{v:.1%}" for v in m["values"]),
        ]
        for run, metrics in scores.items()
        for metric, by in metrics.items()
        for name, m in by.items()
    ]
    head = ["setting", "model", "metric", "mean over seeds", "95 % interval", "each seed"]
    return pages.table(head, rows, (3, 4, 5))


def _interval(m: Mapping[str, Any]) -> str:
    return "one seed" if m["low"] is None else f"{100 * m['low']:.1f} to {100 * m['high']:.1f}"


def plot(by: Mapping[str, Mapping[str, Any]], colour: Mapping[str, str], y: str) -> Markup:
    """Mean and interval of each group. A curve of more than 60 points is first smoothed seed by seed, so that the band
    belongs to the drawn curve."""
    series = {}
    for name, m in by.items():
        values = np.asarray(m["values"], dtype=np.float64)
        if not values.shape[1]:
            continue
        window = values.shape[1] // 25 if values.shape[1] > 60 else 1
        drawn = over([plots.smooth(v, window) for v in values])
        series[name] = (colour[name], m["step"], drawn["mean"], drawn["low"], drawn["high"])
    return plots.bands(series, x="step", y=y)
