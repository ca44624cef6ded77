"""Instruction-following difficulty: IFD-R and IFD-Gap-R/F of PrefCleanBench (arXiv:2509.23564, 2025), after IFD
(2308.12032).

    IFD(y) = perplexity of y given the prompt / perplexity of y alone        (below 1 where the prompt helps)
    gap = false   (IFD-R) act on the floor(p n) pairs with the lowest IFD(chosen) among those with IFD(chosen) <= 1, and
                  on all above 1
    gap = true    (IFD-Gap) act on the floor(p n) pairs with the lowest IFD(chosen) - IFD(rejected)

The column holds ready values: [IFD(chosen), IFD(rejected)]. Rows keep their identity when those above 1 are left out;
the published code applies positions in the filtered list to the whole one.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.preferences.cleaners._columns import Action, lowest, verdict
from synth.preferences.cleaners._columns import gap as difference
from synth.types import Decision, PreferencePair

NEEDS = {"ifd"}


def instruction_difficulty(
    pairs: Sequence[PreferencePair], *, gap: bool = False, share: float = 0.2, action: Action = "remove"
) -> Sequence[Decision]:
    """Decision `action` with reason low_ifd, low_ifd_gap or ifd_above_one, else "keep"; score = IFD of chosen, or the
    gap.

    Raises ValueError where a pair lacks the column, or for a share outside [0, 1).
    """
    gaps = [difference(pair, "ifd") for pair in pairs]
    values = gaps if gap else [float(pair.columns["ifd"][0]) for pair in pairs]
    above = set() if gap else {i for i, x in enumerate(values) if x > 1}
    low = lowest(pairs, values, share, among=[i for i in range(len(pairs)) if i not in above])
    return [
        verdict(
            "instruction_difficulty",
            i in low | above,
            action,
            ("ifd_above_one" if i in above else "low_ifd_gap" if gap else "low_ifd", "ifd_plausible"),
            x,
        )
        for i, x in enumerate(values)
    ]
