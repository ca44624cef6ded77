"""A ranking of passages against graded relevance: the answer is a list of their numbers, `[3] > [1] > [2]` or 3 > 1 > 2, best
first.

    DCG@k = sum_{i <= k} (2^rel_i - 1) / log2(i + 1),   NDCG = DCG / DCG of the best order
    recall@k = relevant among the first k / min(k, relevant)
    RBO = (1 - p) sum_{d <= n} p^(d-1) |first d of both| / d + p^n |all of both| / n        (extrapolated; 1 for equal
    lists)

Järvelin and Kekäläinen 2002; Webber, Moffat and Zobel 2010. As parts of one reward: ReasonRank, 2025 (arXiv
2508.07050). The problem's reference answer is the teacher's list. A list that is not a permutation of all passages is
unparsable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

MAX_CHARS = 4000
FORM = "number"
EXAMPLE = {"prompt": "Rank the passages [1] [2] [3].", "answer": "[2] > [1] > [3]", "args": {"relevance": [1, 2, 0]}}
GIVES = ("ndcg", "recall", "rbo")
_BARE = re.compile(r"[0-9]{1,4}(?:\s*>\s*[0-9]{1,4})*")
_LIST = re.compile(r"\[([0-9]{1,4})\](?:\s*>\s*\[(?:[0-9]{1,4})\])*")


def order(text: str, n: int) -> list[int] | None:
    """The numbers of a list, best first, from 0; None where it is no permutation of n passages."""
    text = text.strip() if len(text) <= MAX_CHARS else ""
    if _BARE.fullmatch(text):
        text = re.sub(r"[0-9]+", r"[\g<0>]", text)
    if not _LIST.fullmatch(text):
        return None
    indices = [int(x) - 1 for x in re.findall(r"[0-9]+", text)]
    return indices if sorted(indices) == list(range(n)) else None


def ranked_list(problem: Problem, answer: str, *, relevance: Sequence[float], k: int = 10, p: float = 0.9) -> Score:
    """`relevance[i]` is that of passage i + 1. Value: NDCG@k, 1 for a best order alone; parts ndcg, recall and rbo."""
    teacher = order(problem.answer, len(relevance))
    if teacher is None or not any(relevance) or k < 1 or not 0 < p < 1:
        return Unscorable(
            reason=f"bad_reference: {problem.answer!r} is no ranking of {len(relevance)} passages of which one is relevant"
        )
    given = order(answer, len(relevance))
    if given is None:
        return UNPARSABLE
    best = _dcg(sorted(relevance, reverse=True), k)
    relevant = {i for i, r in enumerate(relevance) if r > 0}
    recall = len(relevant & set(given[:k])) / min(k, len(relevant))
    ndcg = _dcg([relevance[i] for i in given], k) / best
    return Scored(value=ndcg, parts={"parsed": 1.0, "ndcg": ndcg, "recall": recall, "rbo": rbo(given, teacher, p)})


def _dcg(gains: Sequence[float], k: int) -> float:
    return sum((2**g - 1) / math.log2(i + 2) for i, g in enumerate(gains[:k]))


def rbo(a: Sequence[int], b: Sequence[int], p: float) -> float:
    """Rank-biased overlap of two permutations of the same things."""
    shared = [len(set(a[:d]) & set(b[:d])) / d for d in range(1, len(a) + 1)]
    return (1 - p) * sum(p**d * s for d, s in enumerate(shared)) + p ** len(a) * shared[-1]
