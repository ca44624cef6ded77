"""Rewards a translation by a metric against the reference and by a reference-free scorer, gated by the form.

"MT-R1-Zero: Advancing LLM-based Machine Translation via R1-Zero-like Reinforcement Learning", 2025 (arXiv 2504.10160).

    R = format_bad                              where the form is broken, whatever the text is worth
    R = format_ok + Lex | Sem | Lex + Sem       else, for the modes lex, sem, mix
    Lex = sentence BLEU (add-1 smoothing of the higher orders) or chrF, by sacreBLEU, in [0, 1]
    Sem = 2 m / (n + w): n words of the source, w content words of the answer, m of them translate a word of the source
          (each once, with or without an English ending, in any order)

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. The form: <think>, then <answer>, and
nothing else. Raises ValueError if sacreBLEU is not installed, and in the modes sem and mix for a problem whose text
lists no words with their translations, as those of the family `translations` do. Sem replaces the paper's
reference-free model (COMETKiwi). It knows words but neither order nor endings: alone, it is satisfied by a list of
words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from synth.types import Problem
from training.rl.reward.typed_units import last_turn
from training.types import Group, Rewards

FORM = re.compile(r"\s*<think>[^<]*</think>\s*<answer>([^<]*)</answer>\s*")
_LISTED = re.compile(r"\b([a-z]+) = ([a-z]+)\b")
_WORD = re.compile(r"\b([a-z]+?)(?:ri|ta)?\b(?! =)")
_SMALL = {"the", "and"}


def translation_quality(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    mode: Literal["lex", "sem", "mix"] = "mix",
    metric: Literal["bleu", "chrf"] = "bleu",
    format_ok: float = 1.0,
    format_bad: float = -3.0,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = []
        for rollout in group.rollouts:
            form = FORM.fullmatch(last_turn(rollout))
            if form is None:
                paid.append(format_bad)
                continue
            lex = lexical(form[1].strip(), rollout.problem.answer, metric) if mode != "sem" else 0.0
            sem = adequacy(form[1], rollout.problem) if mode != "lex" else 0.0
            paid.append(format_ok + lex + sem)
        out.append(np.where(np.isnan(r), np.nan, np.array(paid, dtype=np.float64)))
    return out


def lexical(answer: str, reference: str, metric: Literal["bleu", "chrf"]) -> float:
    """The metric of one sentence, in [0, 1]. Raises ValueError if sacreBLEU is not installed."""
    return _metric(metric)(answer, [reference]) / 100


@lru_cache
def _metric(name: Literal["bleu", "chrf"]) -> Callable[[str, Sequence[str]], float]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise ValueError(
            "translation_quality counts with sacreBLEU, which is not installed: pip install 'espalier[translation]'"
        ) from None
    counted = BLEU(smooth_method="add-k", smooth_value=1, effective_order=True) if name == "bleu" else CHRF()
    return lambda answer, references: counted.sentence_score(answer, references).score


def adequacy(answer: str, problem: Problem) -> float:
    """Sem of an answer. Raises ValueError for a problem whose text lists no words."""
    wanted = glosses(problem.question)
    if not wanted:
        raise ValueError(
            f"translation_quality: problem {problem.id} lists no words with their translations (one = other), as those of the family translations do: set mode to lex"
        )
    answer_words = [word for word in answer.split() if word not in _SMALL]
    left = list(wanted)
    for word in answer_words:
        stem = next((x for x in left if word in (x, x + "s", x + "ed")), None)
        if stem is not None:
            left.remove(stem)
    return 2 * (len(wanted) - len(left)) / (len(wanted) + len(answer_words))


def glosses(question: str) -> list[str]:
    """The English of every word of the sentence in a question, without endings, in its order; none if no words are
    listed."""
    words = dict(_LISTED.findall(question))
    translated = (words.get(m[0]) or words.get(m[1]) for m in _WORD.finditer(question))
    return [english for english in translated if english is not None]
