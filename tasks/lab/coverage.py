"""What the recipes cover: which choices of a deep-research or RL system they settle, and which pieces of the library
none of them uses.

The axes are those of two surveys: "Reinforcement Learning Foundations for Deep Research Systems" (2025) names data,
algorithm, reward, advantage, context, system and evaluation; "A Technical Survey of Reinforcement Learning Techniques for
Large Language Models" (2025) names
the source of the reward, its granularity and the optimiser. A recipe settles an axis where it sets a knob of it.
Nothing is imported: recipes are read as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.planning import code
from tasks.planning.kinds import settled, slot_kind, slots
from tasks.planning.pieces import files
from tasks.planning.resolve import yaml_files

AXES = ("data", "algorithm", "reward", "advantages", "context", "system", "evaluation")
DATA = {"kb", "questions", "problems", "demonstrations", "preferences", "clean"}
KNOBS = {  # knob of a training stage -> axis; every other knob of a training stage is the algorithm's
    "rewards": "reward",
    "families": "data",
    "init": "algorithm",
    "curriculum": "data",
    "filters": "data",
    "advantage": "advantages",
    "envs": "context",
    "sampling.max_turn_tokens": "context",
    "sampling.max_tokens": "context",
    "sampling.search_top_k": "context",
    "sampling.search_embeddings": "context",
    "sampling.search_follow": "context",
    "turn_budget": "context",
    "refill": "system",
    "epochs": "system",
    "minibatches": "system",
    "corrections": "system",
    "group_transforms": "system",
    "engine.name": "system",
    "engine.memory": "system",
    "engine.concurrent_batches": "system",
    "engine.tool_calls": "system",
}


@dataclass(frozen=True)
class Coverage:
    """recipes: how many were read. axes: axis -> the recipes that settle it. unused: "folder/piece" that no recipe
    uses. cells: (optimiser, granularity) -> recipes."""

    recipes: int
    axes: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...]
    cells: Mapping[tuple[str, str], tuple[str, ...]]

    @property
    def empty(self) -> tuple[str, ...]:
        """What no recipe covers: axes, then pairs of optimiser and granularity."""
        return (
            *(a for a, r in self.axes.items() if not r),
            *(f"{o}, by {g}" for (o, g), r in self.cells.items() if not r),
        )


OPTIMISERS = ("policy gradient", "clipped", "clipped with a critic", "offline pairs")
GRANULARITIES = ("answer", "turn", "token")
BY_TURN = {"gigpo", "step_group", "step_returns", "turn_value", "outcome_and_steps", "progress", "tapo"}
BY_TOKEN = {"gae"}


def coverage(recipes: Mapping[str, Mapping[str, Any]]) -> Coverage:
    """recipes: name -> stages, what they extend merged below (`tasks.lab.checks.load`)."""
    axes: dict[str, list[str]] = {a: [] for a in AXES}
    cells: dict[tuple[str, str], list[str]] = {
        (o, g): [] for o in OPTIMISERS for g in (GRANULARITIES if o != "offline pairs" else ("answer",))
    }
    used: set[str] = set()
    for name, stages in recipes.items():
        chosen = {axis(stage, knob) for stage, knobs in stages.items() for knob, _ in settled(stage, knobs or {})}
        for a in AXES:
            if a in chosen:
                axes[a].append(name)
        for stage, knobs in stages.items():
            used |= set(pieces(stage, knobs or {}))
        for cell in kinds(stages):
            cells[cell].append(name)
    every = {f"{folder}/{piece}" for folder in folders() for piece in files(folder)}
    return Coverage(
        len(recipes),
        {a: tuple(r) for a, r in axes.items()},
        tuple(sorted(every - used)),
        {c: tuple(r) for c, r in cells.items()},
    )


def axis(stage: str, knob: str) -> str:
    if stage in DATA:
        return "data"
    return "evaluation" if stage in ("evaluate", "report") else KNOBS.get(knob, "algorithm")


def kinds(stages: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The cells of the taxonomy that a recipe stands in: at most one of online learning and one of pairs."""
    out = []
    rl = stages.get("rl") or {}
    if rl.get("advantage") or rl.get("policy_loss"):
        piece = _name(rl.get("advantage"))
        fine = "token" if piece in BY_TOKEN else "turn" if piece in BY_TURN else "answer"
        plain = _name(rl.get("policy_loss")) == "policy_gradient"
        out.append(
            (
                "policy gradient"
                if plain
                else "clipped with a critic"
                if code.lookup(rl, "critic.loss")
                else "clipped",
                fine,
            )
        )
    if (stages.get("prefer") or {}).get("loss"):
        out.append(("offline pairs", "answer"))
    return out


def pieces(stage: str, knobs: Mapping[str, Any]) -> list[str]:
    """ "folder/piece" of every piece that a stage of a recipe names."""
    out = []
    for knob, value in settled(stage, knobs):
        if (kind := slot_kind(stage, knob)) and value:
            out += [f"{kind}/{_name(v)}" for v in (value if isinstance(value, list) else [value]) if _name(v)]
    return out


def folders() -> list[str]:
    """The folders of pieces that some stage chooses from."""
    return sorted({kind for knobs in slots().values() for kind in knobs.values()})


def _name(spec: Any) -> str:
    name = spec.get("piece", "") if isinstance(spec, Mapping) else spec if isinstance(spec, str) else ""
    return str(name).replace("-", "_")


def of_the_library() -> Coverage:
    """The coverage of all recipes, including the user's own."""
    from tasks.lab.checks import load

    return coverage({name: load(name)["stages"] for name in sorted(yaml_files("recipes"))})
