"""Pairs whose label would teach to help with harm: the safety hook of post-training (RAISE, "Yi-Lightning Technical Report",
arXiv 2412.01253, names the hook and no rule; the screen is ours, synth/verify/_unsafe.py).

    chosen_helps    the request is unsafe and the chosen side answers it, or the chosen side is unsafe itself
    refuses_harmless  the request is harmless and the chosen side refuses it while the other does not ("ask")
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.preferences.cleaners._columns import Action, verdict
from synth.types import Decision, Message, PreferencePair
from synth.verify._unsafe import helps_harm, refuses, unsafe

ALONE = True  # each pair is judged by itself


def unsafe_sides(pairs: Sequence[PreferencePair], *, action: Action = "remove") -> Sequence[Decision]:
    """Decision `action` where the chosen side helps with harm (flip: only where the other side refuses, else remove), "ask" where
    it refuses what is harmless, else "keep"; score = 1 or 0. Reasons: as above, or harmless."""
    out = []
    for pair in pairs:
        helped = helps_harm([*pair.prompt, Message(role="assistant", content=pair.chosen)])
        refused = not helped and refuses(pair.chosen) and not refuses(pair.rejected)
        needless = refused and not any(unsafe(m.content) for m in pair.prompt if m.role == "user")
        acts = action if action != "flip" or refuses(pair.rejected) else "remove"
        reasons = ("chosen_helps" if helped else "refuses_harmless", "harmless")
        acted = bool(helped) or needless
        out.append(verdict("unsafe_sides", acted, acts if helped else "ask", reasons, float(acted)))
    return out
