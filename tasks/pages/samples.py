"""What a policy that writes no tokens made, as pictures: the rows that `rl` keeps of some steps (tasks/models/samples.py), on a page of
their own and on that of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tasks.pages import page
from tasks.pages.render import Macros

HTML = Macros("samples.html")


def whole(rows: Sequence[Mapping[str, Any]], recipe: str, seed: int) -> Markup:
    """The page of a run's samples."""
    facts = (
        f"Recipe: {recipe or 'the defaults'}. Seed: {seed}. Of the first, the middle and the last step: the first prompts, and the first "
        "samples of each, whatever they scored. Steps are counted from 0, as in curve.csv. Samples have the noise of training."
    )
    lead = "Prompts, samples and their rewards."
    return page.page("Espalier: what the policy makes", lead, facts, sections(rows))


def sections(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Markup]]:
    """(heading, content) of each step."""
    steps = dict.fromkeys(row["step"] for row in rows)
    return [(f"Samples of step {k}", HTML.samples(_by_prompt([r for r in rows if r["step"] == k]))) for k in steps]


def _by_prompt(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[list[str], str, str]]]]:
    """(prompt, [(pictures, score and parts, the sample in words)]) of the rows of a step."""
    out: dict[tuple[str, str], list[tuple[list[str], str, str]]] = {}
    for row in rows:
        prompt, answer = row["messages"]
        reward = ", ".join([row["outcome"], *(f"{k} {v:.3g}" for k, v in row["parts"].items())])
        out.setdefault((row["group"], prompt["content"]), []).append((page.pictures(answer), reward, answer["content"]))
    return [(prompt, samples) for (_, prompt), samples in out.items()]
