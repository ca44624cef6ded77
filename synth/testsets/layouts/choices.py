"""Multiple choice, scored by how likely the model finds each choice as what comes next; nothing is sampled.

The layouts of ARC (Clark et al. 2018, arXiv 1803.05457), HellaSwag (Zellers et al. 2019, arXiv 1905.07830), MMLU
(Hendrycks et al. 2020, arXiv 2009.03300), and rows of your own: a question, a list of choices, and which is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from synth.testsets.layouts import field, problem
from synth.types import Problem

QUESTIONS = ("question", "query", "ctx", "goal", "prompt", "input")
CHOICES = ("choices", "endings", "options")
ANSWERS = ("answer", "answerKey", "label", "gold", "target")


def choices(
    row: Mapping[str, Any],
    index: int,
    *,
    name: str = "choices",
    question: str = "",
    options: str = "",
    answer: str = "",
    begin: str = "Question: {question}\nAnswer:",
) -> Problem:
    """{"question", "choices": [text, ...] or {"text": [...], "label": [...]}, "answer": place from 0, label, letter or
    text}. `question`, `options`, `answer`: names of the fields. `begin`: what stands before each choice, which follows
    it after a space. The problem's lineage has the choices and `gold`, the place of the right one.

    Raises ValueError for fewer than two choices, and for an answer that names none or several."""
    text = field(row, question) if question else field(row, *QUESTIONS)
    given = next((row[n] for n in ((options,) if options else CHOICES) if row.get(n) is not None), None)
    labels: list[str] = []
    if isinstance(given, Mapping):
        given, labels = given.get("text"), [str(x) for x in given.get("label") or []]
    if not isinstance(given, list) or len(given) < 2 or not all(isinstance(c, str) and c.strip() for c in given):
        raise ValueError(f"few_choices: {given!r:.80} is no list of two texts or more")
    key = answer or next((n for n in ANSWERS if row.get(n) is not None), "answer")
    gold = _gold(row.get(key), given, labels)
    item = problem(name, index, question=text, answer=given[gold], verifier="exact", ask="")
    told = {"choices": list(given), "gold": gold, "begin": begin.format(question=text.strip())}
    return replace(item, lineage={**item.lineage, **told})


def _gold(answer: Any, given: list[str], labels: list[str]) -> int:
    if isinstance(answer, int) and not isinstance(answer, bool):
        indices = [answer] if 0 <= answer < len(given) else []
    else:
        word = str(answer).strip()
        letters = [chr(ord("A") + i) for i in range(len(given))]
        places = [str(i) for i in range(len(given))]
        spellings = (labels, [c.strip() for c in given], letters, places)
        indices = next((at for names in spellings if (at := [i for i, n in enumerate(names) if n == word])), [])
    if len(indices) != 1:
        raise ValueError(f"wrong_answer: {answer!r} names {len(indices)} of the {len(given)} choices")
    return indices[0]
