"""All small worlds, of preference data, of decoders and of numbers, by name; and `train`, which runs one seed of one
recipe in one of them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.lab import (
    answer_worlds,
    arms,
    bias_worlds,
    code_worlds,
    control_worlds,
    decode_worlds,
    home_worlds,
    horizon_worlds,
    label_worlds,
    merge_worlds,
    painter_worlds,
    pair_worlds,
    prompt_worlds,
    safety_worlds,
    solution_worlds,
    speculation_worlds,
    stage_worlds,
    step_worlds,
    tail_worlds,
    thought_worlds,
    tone_worlds,
    writer_worlds,
)
from tasks.lab.worlds import Place, Room, plans, quiet, run_stage


def train(task: str, recipe: str, changes: Mapping[str, Mapping[str, Any]], steps: int, seed: int) -> dict[str, float]:
    """Runs one seed of one recipe in one world and returns the numbers that the world measures."""
    place = places()[task]
    with tempfile.TemporaryDirectory() as folder, quiet():
        room = Room(Path(folder), seed, recipe)
        place.lay(room)
        if recipe != "base":
            resolved = plans(recipe, changes, steps)
            room.kept["knobs"] = resolved
            for name in place.stages:
                run = place.make if name in ("preferences", "sft") and place.make else run_stage
                run(room, name, resolved[name])
        return place.measure(room)


def places() -> dict[str, Place]:
    return {name: Place(("prefer",), w.lay, w.measure) for name, w in pair_worlds.letters().items()} | {
        f.__name__: f()
        for f in (
            *answer_worlds.WORLDS,
            *home_worlds.WORLDS,
            *label_worlds.WORLDS,
            *safety_worlds.WORLDS,
            *solution_worlds.WORLDS,
            *code_worlds.WORLDS,
            *stage_worlds.WORLDS,
            *step_worlds.WORLDS,
            *tail_worlds.WORLDS,
            *tone_worlds.WORLDS,
            *writer_worlds.WORLDS,
            *bias_worlds.WORLDS,
            *decode_worlds.WORLDS,
            *speculation_worlds.WORLDS,
            *thought_worlds.WORLDS,
            *merge_worlds.WORLDS,
            *painter_worlds.WORLDS,
            *prompt_worlds.WORLDS,
            arms.arms,
            arms.any_arms,
            control_worlds.control,
            horizon_worlds.horizons,
        )
    }
