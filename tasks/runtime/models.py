"""The models of a project by name, and their folders."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.core.errors import UserError, nearest
from tasks.runtime.stage import REMEDY, Stage
from tasks.storage import commit

MODELS = {
    "base": ("sft", "base"),
    "sft": ("sft", "model"),
    "prefer": ("prefer", "model"),
    "rl": ("rl", "model"),
}  # name -> stage, folder


def model_path(root: Path, model: str) -> Path | str:
    """The folder of a model of this project, a folder given by path, or an unchanged Hub id. Raises UserError for a
    model that is not trained yet, and for a name that is none of these."""
    if model in MODELS:
        stage, folder = MODELS[model]
        path = root / "artifacts" / stage / folder
        if not path.is_dir():
            raise UserError(
                f"{path} does not exist: train it with `dvc repro {stage}` (or all with `espalier run`), or name a folder with a model"
            )
        commit.check(root / "artifacts" / stage, folder, remedy=REMEDY)
        return path
    if not Path(model).is_dir() and "/" not in model:
        raise UserError(
            f"there is no model {model!r}: {nearest(model, MODELS)}, or the path of a folder in Hugging Face layout, or a Hub id"
        )
    return Path(model) if Path(model).is_dir() else model


def named_by_user(stage: Stage, model: str) -> Path | str:
    """Where the model of a knob lies: a folder or GGUF file, relative to the project, or a Hub id (owner/name) as it
    is where nothing of that name is here. Raises UserError for a path that is missing, and for one whose change would
    go unseen."""
    is_hub_id = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model) is not None
    return model if is_hub_id and not (stage.root / model).exists() else stage.source(model)
