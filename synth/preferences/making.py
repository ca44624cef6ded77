"""Makers give pairs one by one; a pair that was made before is quarantined as a duplicate."""

from __future__ import annotations

from synth.types import PreferencePair, Quarantined


def once(items: list[PreferencePair | Quarantined]) -> tuple[list[PreferencePair], list[Quarantined]]:
    """(pairs, rows quarantined); the second pair with one id is quarantined as `duplicate`."""
    pairs: dict[str, PreferencePair] = {}
    quarantined = []
    for item in items:
        if isinstance(item, Quarantined):
            quarantined.append(item)
        elif item.id in pairs:
            evidence = f"problem {item.problem}: {item.rejected!r} was planted before"
            quarantined.append(Quarantined(id=item.id, stage="preferences", reason="duplicate", evidence=evidence))
        else:
            pairs[item.id] = item
    return list(pairs.values()), quarantined
