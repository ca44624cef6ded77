"""Two skills in one problem, every pair equally often: the pair whose count so far is lowest comes next.

Instruct-SkillMix, Kaur et al. 2024, "Instruct-SkillMix: A Powerful Pipeline for LLM Instruction Tuning" (arXiv
2408.14774): an instruction must show k = 2 skills drawn at random. Here a skill is a step of the family `skill_pairs`
(functions of lists), a pair is its question, and the lowest count takes the place of uniform draws: coverage of all
pairs is the same and comes sooner.

Keeps the counts in view.state. Ties are broken at random. Families other than `skill_pairs` are left to the ladder.
"""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np

from synth.families._lists import PHRASES, PLAIN, RANGE
from synth.families.skill_pairs import WORDINGS
from synth.selfplay.loop import View
from synth.selfplay.propose.ladder import drawn
from synth.selfplay.spec import Spec


def skill_pairs(view: View, rng: np.random.Generator, n: int) -> list[str]:
    counts = view.state.setdefault("pairs", {})
    pairs = list(combinations(sorted(PHRASES), 2))
    out = []
    for cell in view.wanted[:n]:
        if cell.family != "skill_pairs":
            out.append(drawn(cell, rng))
            continue
        names = [json.dumps(p) for p in pairs]
        least = min(counts.get(k, 0) for k in names)
        chosen = [i for i, k in enumerate(names) if counts.get(k, 0) == least]
        i = chosen[int(rng.integers(len(chosen)))]
        counts[names[i]] = least + 1
        steps = [_phrase(s, rng) for s in (pairs[i] if rng.random() < 0.5 else pairs[i][::-1])]
        numbers = " ".join(str(rng.integers(1, 16)) for _ in range(rng.integers(4, 7)))
        question = WORDINGS.write(numbers=numbers, one=steps[0], two=steps[1])
        out.append(Spec(family="skill_pairs", level=cell.level, question=question).text())
    return out


def _phrase(name: str, rng: np.random.Generator) -> str:
    return (
        PHRASES[name] if name in PLAIN else PHRASES[name].format(int(rng.integers(RANGE[name][0], RANGE[name][1] + 1)))
    )
