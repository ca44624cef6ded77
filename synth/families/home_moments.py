"""Should an assistant at home speak now, and about what? A person's likes, quiet hours and earlier ratings are told.

ProPerSim (arXiv 2509.21730; read from the abstract, so how ratings are made is our reading). Env "home" hides the likes and the quiet
hours and shows what is remembered. Certificate: rules in order (quiet, then nearness, then the best liked), against the rating of every
action. Difficulty axes: kinds of suggestions, memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.types import Problem, Quarantined, Split
from synth.verify._home import EVENTS, KINDS, SILENCE, Moment, rating, read, told, wants_quiet

LADDER = (
    {"kinds": 3, "memories": 2},
    {"kinds": 4, "memories": 4},
    {"kinds": 5, "memories": 6},
    {"kinds": 6, "memories": 8},
)
CERTIFICATE = ("rules in order", "the rating of every action")
NAMES = "Ana Ben Cleo Dan Eva Finn Gus Hana".split()


def home_moments(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), silence: float = 0.15, env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: a kind of suggestion, or silence. `levels` are the levels to draw from; `silence` is the share of moments
    in which silence is best (as a question, few: else it would be a good guess); env "home" has it played (training/env/home.py). Raises
    ValueError for a share that is none."""
    if not 0 <= silence <= 1:
        raise ValueError(f"home_moments: silence is {silence}: a share from 0 to 1")

    def drawn(rng: Random, *, kinds: int, memories: int) -> tuple[str, Moment]:
        return draw(rng, kinds=kinds, memories=memories, silence=silence)

    return item(
        seed,
        split,
        index,
        levels,
        family="home_moments",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, kinds: int, memories: int, silence: float = 0.15) -> tuple[str, Moment]:
    who, silent = person(rng, rng.choice(NAMES), kinds, memories), rng.random() < silence
    while (pose(m := moment(rng, who))["answer"] == SILENCE) != silent:
        pass  # everybody has moments of both kinds: hours are drawn from all
    return told(m), m


def person(rng: Random, name: str, kinds: int, memories: int) -> Moment:
    """Somebody with likes, of which one is the greatest, quiet hours, and rated suggestions of earlier days."""
    names = rng.sample(KINDS, kinds)
    likes = dict(zip(names, [rng.choice((4, 5)), *(rng.randint(1, 3) for _ in names[1:])], strict=True))
    likes = {k: likes[k] for k in sorted(likes)}
    bare = Moment(
        name,
        likes,
        (rng.randint(20, 23), rng.randint(6, 9)),
        rng.choice(EVENTS),
        rng.randint(1, 3),
        (),
        12,
        EVENTS[0],
        3,
    )
    log = []
    for _ in range(memories):
        then, kind = moment(rng, bare), rng.choice(list(likes))
        log.append((then.hour, then.event, kind, round(rating(then, kind)["rating"])))
    return replace(bare, log=tuple(log))


def moment(rng: Random, m: Moment) -> Moment:
    return replace(m, hour=rng.randrange(24), event=rng.choice(EVENTS), since=rng.randint(0, 4))


def pose(m: Moment) -> dict[str, Any]:
    best = max(m.likes, key=lambda k: m.likes[k])
    near = max(0, m.gap - m.since)
    if wants_quiet(m):
        answer = SILENCE
    elif near:  # 4 for silence against (likes + 5 + 5 - 2 near) / 3
        answer = best if m.likes[best] + 10 - min(4, 2 * near) > 12 else SILENCE
    else:
        answer = best if m.likes[best] + 10 > 9 else SILENCE
    return {"prompt": told(m), "answer": answer, "verifier": "exact"}


def solve(question: str) -> str:
    m = read(question)
    if m is None:
        raise Refused(f"roundtrip: no moment is told by {question[:80]!r}")
    rated = sorted(((rating(m, x)["rating"], x) for x in (*m.likes, SILENCE)), reverse=True)
    if rated[0][0] == rated[1][0]:
        raise Refused(f"not_unique: {rated[0][1]} and {rated[1][1]} are both rated {rated[0][0]:.2f}")
    return rated[0][1]
