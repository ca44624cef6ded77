"""Samples of one problem, ordered by their outcome and, where outcomes tie, by the share of their steps that are right.

"StepORLM: A Self-Evolving Framework With Generative Process Supervision For Operations Research Language Models", 2025
(arXiv 2509.22558).

    o   whether the verifier finds the answer right          s   share of the steps that are right
    pair of different outcomes: o = 1 over o = 0             pair of one outcome: the greater s over the less

The columns `outcome` and `process` hold [chosen, rejected], from which the loss `wdpo` has its weight: 1, or the
difference of the shares. A step is right if it occurs at the same position in the problem's worked solution: an exact
judge replaces the paper's generative process reward model, so no model is trained or refined. The kind of pair (if
samples allow both) and the pair are drawn at random.
"""

from __future__ import annotations

from random import Random

from synth.preferences.makers._made import ask, made, quarantined, right, steps
from synth.types import Generate, PreferencePair, Problem, Quarantined, seed_for


def outcome_then_process(
    seed: int, problem: Problem, index: int, generate: Generate, *, samples: int = 8, least: float = 0.1
) -> PreferencePair | Quarantined:
    """Quarantined: no_solution (nothing to judge steps by), no_contrast (no two outcomes, and no shares of steps that
    differ by `least`)."""
    solution = problem.lineage.get("solution")
    if not solution:
        return quarantined(problem, index, "no_solution", "the problem has no worked solution to judge steps by")
    key = (seed, "outcome_then_process", problem.id, index)
    known = [
        (t, v, share(t, solution))
        for t in ask(generate, problem.prompt, samples, *key)
        if (v := right(problem, t)) is not None
    ]
    tied = [(a, b) for a in known for b in known if a[1] == b[1] and a[2] - b[2] >= least]
    kinds = [twos for twos in ([(a, b) for a in known for b in known if a[1] and not b[1]], tied) if twos]
    if not kinds:
        shares = sorted({s for *_, s in known})
        return quarantined(
            problem, index, "no_contrast", f"{len(known)} samples of one outcome, shares of right steps {shares}"
        )
    rng = Random(seed_for(*key, "pair"))
    chosen, rejected = rng.choice(rng.choice(kinds))
    process = [round(chosen[2], 6), round(rejected[2], 6)]
    outcome = [int(chosen[1]), int(rejected[1])]
    margin = 1.0 if outcome[0] > outcome[1] else process[0] - process[1]
    return made(
        problem, "outcome_then_process", chosen[0], rejected[0], margin=margin, outcome=outcome, process=process
    )


def share(text: str, solution: str) -> float:
    """The share of the steps of a text before its answer that stand at their place in the solution; 0 without steps."""
    written, known = ([s.strip() for s in steps(t) if "<answer>" not in s] for t in (text, solution))
    return sum(a == b for a, b in zip(written, known, strict=False)) / len(written) if written else 0.0
