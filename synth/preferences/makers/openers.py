"""A solution against its own opening: the negatives that teach a judge to resist master keys ("One Token to Fool
LLM-as-a-Judge", arXiv:2507.08794, 2025).

The rejected side is the first sentence of a sampled solution, cut where nothing has been answered, or one of the keys
themselves (`synth/preferences/cleaners/master_keys.py`), `key_share` of the time. The verifier confirms that it is no
answer.
"""

from __future__ import annotations

from random import Random

from synth.preferences.cleaners.master_keys import KEYS
from synth.preferences.makers._made import made, quarantined, right, steps
from synth.types import Generate, PreferencePair, Problem, Quarantined, seed_for

FIRST = (
    "Let us solve this step by step. ",
    "To answer this, we look at what is given. ",
    "First we write down what we know. ",
)


def openers(
    seed: int, problem: Problem, index: int, generate: Generate, *, key_share: float = 0.5
) -> PreferencePair | Quarantined:
    """Quarantined: no_solution, still_right (the opening already answers)."""
    solution = problem.lineage.get("solution", "")
    if not right(problem, solution):
        return quarantined(problem, index, "no_solution", f"the worked solution {solution!r} has no right answer")
    rng = Random(seed_for(seed, "openers", problem.id, index))
    first = rng.choice(FIRST)
    key = rng.choice([k for k in KEYS if k.strip()]) if rng.random() < key_share else ""
    rejected = key or (first + steps(solution)[0] if len(steps(solution)) > 2 else first).rstrip()
    if right(problem, rejected) is not False:
        return quarantined(problem, index, "still_right", rejected)
    return made(problem, "openers", first + solution, rejected, key=key)
