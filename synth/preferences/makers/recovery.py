"""Deviation and recovery: a solution that goes wrong, notices it and ends right, over one that stays wrong:
AdvChain (arXiv:2509.24269, 2025), a reading of its abstract.

    temptation   a wrong step is inserted (one of its numbers changed), then "Wait, ..." and the right step; the
                 rejected side carries it on
    hesitation   a needless worry is inserted, then its correction and the full answer; the rejected side gives up

The split point lies within `split` of the steps. The verifier calls the chosen side right and the rejected one wrong.
The column `deviation` is the span of the inserted text in the chosen side, so that training may mask it and imitate the
recovery alone.
"""

from __future__ import annotations

from random import Random

from synth.preferences.injected_errors import _INTEGER, replace_number
from synth.preferences.makers._made import made, quarantined, right, steps
from synth.types import Generate, PreferencePair, Problem, Quarantined, seed_for

KINDS = ("temptation", "hesitation")
CAUGHT = ("Wait, that is not right: ", "No, I must check that again: ", "Stop, this does not follow: ")
WORRY = ("I am not sure that I may answer this. ", "Perhaps this asks for something that I should refuse. ")
CALMED = ("But nothing here does any harm: ", "But it is a plain question: ")


def recovery(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    kinds: tuple[str, ...] = ("temptation", "hesitation"),
    split: tuple[float, ...] = (0.2, 0.7),
) -> PreferencePair | Quarantined:
    """Quarantined: no_solution, not_editable, still_right. Raises ValueError for an unknown kind, or a split that is no
    two shares."""
    if set(kinds) - set(KINDS) or not kinds or len(split) != 2 or not 0 <= split[0] <= split[1] <= 1:
        raise ValueError(
            f"recovery: kinds {kinds} of {', '.join(KINDS)}; split {split} must be two shares, the lower first"
        )
    solution = problem.lineage.get("solution", "")
    if not right(problem, solution):
        return quarantined(problem, index, "no_solution", f"the worked solution {solution!r} has no right answer")
    rng = Random(seed_for(seed, "recovery", problem.id, index))
    parts = steps(solution)
    low, high = round(split[0] * len(parts)), max(round(split[0] * len(parts)), round(split[1] * len(parts)) - 1)
    at = rng.randint(low, min(high, len(parts) - 1))
    begun, rest = "".join(parts[:at]), "".join(parts[at:])
    kind = rng.choice(sorted(set(kinds)))
    if kind == "hesitation":
        astray, back, lost = rng.choice(WORRY), rng.choice(CALMED), "So I will not answer."
    elif not (numbers := _INTEGER.findall(parts[at])):
        return quarantined(problem, index, "not_editable", f"step {at} of {solution!r} has no number")
    else:
        new = str(int(numbers[-1]) + rng.choice((-2, -1, 1, 2)))
        astray = (
            replace_number(parts[at].rstrip(" ,;"), numbers[-1], new).replace("<answer>", "").replace("</answer>", "")
            + " "
        )
        back, lost = rng.choice(CAUGHT), replace_number(rest[len(parts[at]) :] or rest, numbers[-1], new)
    chosen, rejected = f"{begun}{astray}{back}{rest}", f"{begun}{astray}{lost}"
    if right(problem, rejected) is not False or not right(problem, chosen):
        return quarantined(problem, index, "still_right", f"{kind} at step {at}: {rejected!r}")
    return made(problem, "recovery", chosen, rejected, kind=kind, deviation=[len(begun), len(begun) + len(astray)])
