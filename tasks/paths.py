"""Where things are: the code that is installed, the project that is worked on, and the folders of pieces of both.

The project is the working directory: DVC runs every stage in the folder of its dvc.yaml, and the command line is used there.
In a checkout of Espalier the two are one folder; in a project made by `espalier init` they differ.
"""

from __future__ import annotations

import os
from pathlib import Path

CODE = Path(__file__).resolve().parent.parent  # the folder that holds flows/, tasks/, synth/, training/
PACKAGES = ("flows", "tasks", "synth", "training")


def project() -> Path:
    return Path.cwd()


def own() -> list[Path]:
    """Folders with the user's own pieces and recipes: those of ESPALIER_PATH, then `pieces/` of the project, each holding folders such as
    `training/advantage/` and `flows/recipes/`."""
    listed = [Path(p) for p in os.environ.get("ESPALIER_PATH", "").split(os.pathsep) if p]
    return [p.resolve() for p in [*listed, project() / "pieces"] if p.is_dir()]


def folders(dotted: str) -> list[Path]:
    """The folders on disk that together are one folder of pieces: `training.advantage` in the code, then in the user's own folders."""
    inside = Path(*dotted.split("."))
    return [p / inside for p in [CODE, *own()] if (p / inside).is_dir()]
