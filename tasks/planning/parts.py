"""Parts of scores and rewards of turns: which pieces read them, and which produce them.

A piece names its required inputs in READS: names of parts of a score, "{knob}" for those that a knob names, and
"turn_reward" for the reward of a turn. Environments, verifiers, observations and group transforms name their outputs in
GIVES: a tuple of names, or name -> the knob that must be set for it (a tuple of knobs: one of them; "knob:value": a
knob that holds this value; "": always). A name may end in "*". A recipe that reads a part which nothing produces would
always learn from zeros, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.core.paths import CODE
from tasks.planning import code as src
from tasks.planning.pieces import files, locate, observed
from tasks.planning.resolve import Resolved

ALWAYS = frozenset({"value", "parsed", "truncated", "timeout"})  # parts of every score
GIVERS = ("env", "verifier", "observation", "group_transform")
TURN = "turn_reward"
_KNOB = re.compile(r"\{(\w+)\}")


def reads(path: Path, knobs: Mapping[str, Any]) -> list[str]:
    """The parts that a piece with these knobs reads."""
    parts: list[str] = []
    for text in src.constant(path, "READS", ()):
        named = _KNOB.search(text)
        if named is None:
            parts.append(text)
            continue
        value = knobs[named.group(1)]
        parts += [_KNOB.sub(lambda _, v=v: v, text) for v in ([value] if isinstance(value, str) else value) if v]
    return parts


def gives(path: Path, knobs: Mapping[str, Any]) -> set[str]:
    """The parts that a piece with these knobs produces."""
    declared = src.constant(path, "GIVES", ())
    if not isinstance(declared, dict):
        return set(declared)
    return {
        name for name, on in declared.items() if any(_set(one, knobs) for one in ([on] if isinstance(on, str) else on))
    }


def _set(condition: str, knobs: Mapping[str, Any]) -> bool:
    knob, _, value = condition.partition(":")
    if not knob:
        return True
    has = knobs.get(knob)
    return value in has if value and has else bool(has) and has != "none" and not value


def given(stages: Mapping[str, Resolved]) -> set[str] | None:
    """All parts that scores of the stage rl can have; None if a user's or third-party environment or verifier does not
    declare its parts."""
    rl = stages["rl"]
    parts = set(ALWAYS) | ({"judge"} if rl.params["judge"] else set())
    named: list[tuple[str, str, Mapping[str, Any]]] = [("env", e["piece"], e) for e in rl.params["envs"]]
    named += [("group_transform", g["piece"], g) for g in rl.params["group_transforms"]]
    if world := rl.params["control"]:
        parts |= {TURN, *src.constant(CODE / "training/rollout/control.py", "GIVES", ())}
        named.append(("control", world["piece"], world))
    for _, kind, name in rl.used:
        named += [("observation", o, {}) for o in observed(kind, src.constant(locate(kind, name), "NEEDS", ()))]
    if rl.params["include_families"]:
        if stages["problems"].params.get("external"):
            return None
        for family in stages["problems"].params["families"]:
            spoken = src.source(locate("family", family["piece"])).names
            named += [("verifier", v, {}) for v in files("verifier") if v in spoken]
    for kind, name, knobs in named:
        path = locate(kind, name)
        if kind in ("env", "verifier") and not path.is_relative_to(CODE) and src.constant(path, "GIVES", None) is None:
            return None
        parts |= gives(path, knobs)
    return parts


def missing(stages: Mapping[str, Resolved]) -> Iterator[tuple[str, str]]:
    """(piece, part) for every part that a piece of the stage rl reads and nothing produces."""
    has, rl = given(stages), stages["rl"]
    if has is None:
        return
    for knob, kind in rl.pieces.items():
        value = rl.value(knob)
        specs = value if isinstance(value, list) else [value] if value else []
        for spec in specs:
            for part in reads(locate(kind, spec["piece"]), spec):
                if not any(fnmatchcase(part, name) for name in has):
                    yield f"{kind}/{spec['piece']}", part


def check(stages: Mapping[str, Resolved]) -> None:
    """Raises UserError if a piece of the stage rl reads a part that nothing produces, and names pieces that would
    produce it."""
    for piece, part in missing(stages):
        what = "the rewards of turns" if part == TURN else f"the part {part!r} of scores"
        raise UserError(
            f"rl: {piece} reads {what}, which nobody gives in this run, so it would be 0 at every step: {would(part)}"
        )


def would(part: str) -> str:
    """Advice on which pieces would produce a part."""
    pieces: dict[str, list[str]] = {}
    for kind in GIVERS:
        for name, path in files(kind).items():
            declared = src.constant(path, "GIVES", ())
            for one in declared:
                if fnmatchcase(part, one):
                    on = declared[one] if isinstance(declared, dict) else ""
                    knob = on if isinstance(on, str) else on[0]
                    pieces.setdefault(kind, []).append(f"{name} ({knob.replace(':', ': ')} set)" if knob else name)
    if part == "judge":
        return "set rl.judge"
    if not pieces:
        return "no environment or verifier here gives it; write one that does, with the constant GIVES (docs/environments.md)"
    where = {
        "env": "rl.envs",
        "group_transform": "rl.group_transforms",
        "verifier": "problems of the verifier",
        "observation": "NEEDS of the piece:",
    }
    return "; or ".join(
        f"choose {where[kind]} {'among ' if kind != 'observation' else ''}{', '.join(names)}"
        for kind, names in pieces.items()
    )
