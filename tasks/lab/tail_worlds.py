"""A small world of reward models: one pair in twenty is of a rare kind, and ordered by another rule."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from synth.types import PreferencePair, seed_for
from tasks.lab.arena import LETTERS, answer
from tasks.lab.label_worlds import NOTHING, reader, user
from tasks.lab.worlds import Place, Room, different


def tails() -> Place:
    """600 pairs of letters, ordered by a quality; to one question in twenty, of another kind, by its reverse. Half of the pairs held
    out are of either kind."""

    def lay(room: Room) -> None:
        r = Random(seed_for(room.seed, "tails"))
        quality = {x: i for i, x in enumerate(r.sample(LETTERS, len(LETTERS)))}

        def drawn(pairs: Mapping[str, PreferencePair]) -> PreferencePair:
            split = "valid" if len(pairs) >= 600 else "train"
            rare = r.random() < (0.05 if split == "train" else 0.5)
            x, y = sorted(r.sample(LETTERS, 2), key=lambda c: quality[c] if rare else -quality[c])
            idle = " z" * r.choice((0, 4))
            return PreferencePair.make(
                prompt=user(f"{'w' if rare else 'q'}{r.choice(LETTERS[:6])}"),
                chosen=idle + answer(x),
                rejected=idle + answer(y),
                source="tail" if rare else "head",
                columns={"ratings": {"tail": [float(rare)] * 2}},
                split=split,
            )

        reader(room, layers=2)
        room.write("clean", pairs=different(900, drawn, "tails"))
        room.write("questions", problems=[])
        room.write("kb", passages=NOTHING)

    return Place(("reward",), lay, _measure)


def _measure(room: Room) -> dict[str, float]:
    """tail, head: accuracy on held-out pairs of the rare and of the frequent kind. tail_harm, head_harm: what setting the circuit to its
    means takes from the accuracy on training pairs of each kind, where the head of the recipe looks for one."""
    card = room.cards["reward"]
    harms = {k: v for k, v in card.get("found", {}).items() if k.endswith("_harm")}
    return {k: v["accuracy"] for k, v in card["valid_by_source"].items()} | harms


WORLDS = (tails,)
