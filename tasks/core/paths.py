"""Paths: the installed code, the current project, and the folders of pieces of both.

The project is the working directory: DVC runs every stage in the folder of its dvc.yaml, and the command line is used
there. In a checkout of Espalier the two are one folder; in a project made by `espalier init` they differ.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tasks.core.at_rest import once_at_rest
from tasks.core.errors import UserError

CODE = Path(__file__).resolve().parents[2]  # the folder that holds flows/, tasks/, synth/, training/
PACKAGES = ("flows", "tasks", "synth", "training")
# Kind of pieces -> the package that holds them. Recipes, checks and users' own folders name a piece by its kind and its
# name (`advantage/gigpo`), so that a package can move without a change of any public name.
KINDS = {
    "advantage": "training.rl.advantage",
    "asynchrony": "training.rl.asynchrony",
    "cleaner": "synth.preferences.cleaners",
    "control": "training.env.control",
    "correction": "training.rl.correction",
    "curriculum": "training.rl.curriculum",
    "decode": "training.decode",
    "env": "training.env",
    "family": "synth.families",
    "filter": "training.rl.filter",
    "flow": "flows",
    "generation": "training.rollout.generation",
    "gradient": "training.rl.gradient",
    "group_transform": "training.rl.group_transform",
    "layout": "synth.testsets.layouts",
    "merge": "training.model.merge",
    "metric": "training.metrics",
    "observation": "training.rl.observation",
    "pair_maker": "synth.preferences.makers",
    "placement": "tasks.lab.placement",
    "policy_loss": "training.rl.policy_loss",
    "preference_loss": "training.preference.loss",
    "profiles": "flows.profiles",
    "proposer": "synth.selfplay.propose",
    "ratio": "training.rl.ratio",
    "recipes": "flows.recipes",
    "regulariser": "training.rl.regulariser",
    "reward": "training.rl.reward",
    "reward_head": "training.preference.reward_head",
    "searcher": "synth.search.searchers",
    "solver": "synth.selfplay.solve",
    "source": "synth.knowledge.sources",
    "stage": "tasks.stages",
    "tool": "training.env.tool",
    "turn_budget": "training.rl.turn_budget",
    "update_rule": "training.preference.update_rule",
    "value_loss": "training.rl.value_loss",
    "verifier": "synth.verify",
}
KIND_OF = {package: kind for kind, package in KINDS.items()}


def package_of(kind: str) -> str:
    """The package of a kind of pieces; a dotted name stands for itself."""
    return KINDS.get(kind, kind)


def project() -> Path:
    return Path.cwd()


def inside() -> Path:
    """The project, for commands that need its graph. Raises UserError where the folder holds none."""
    root = project()
    if not (root / "dvc.yaml").exists():
        raise UserError(f"{root} holds no dvc.yaml: change to a project, or make one with `espalier init DIR`")
    return root


def own() -> list[Path]:
    """Folders with the user's own pieces and recipes: those of ESPALIER_PATH, then `pieces/` of the project, each with
    folders named as a kind: `advantage/`, `recipes/`."""
    listed = [p for p in os.environ.get("ESPALIER_PATH", "").split(os.pathsep) if p]
    # Texts, not paths: a plan asks thousands of times.
    return [Path(p).resolve() for p in [*listed, os.path.join(os.getcwd(), "pieces")] if os.path.isdir(p)]


def allow_remote_code() -> None:
    """Let the models that ESPALIER_REMOTE_CODE lists, separated by commas, bring code of their own into this process."""
    if listed := os.environ.get("ESPALIER_REMOTE_CODE"):
        from training.model import remote_code  # every command comes by here

        remote_code.allow(n for part in listed.split(",") if (n := part.strip()))


@once_at_rest
def folders(kind: str) -> list[Path]:
    """The folders on disk that together hold one kind of pieces: that of the code, then the user's own."""
    shipped, of_own = _places(kind)
    return [p for p in [shipped, *(root / of_own for root in own())] if os.path.isdir(p)]


@cache
def _places(kind: str) -> tuple[Path, Path]:
    """Where a kind lies in the code, and where in a folder of the user's own. A plan asks thousands of times."""
    inside = Path(*package_of(kind).split("."))
    return CODE / inside, Path(kind) if kind in KINDS else inside
