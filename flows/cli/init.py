"""`espalier init DIR`: a project of the user's own, outside the source tree of Espalier."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.core.paths import CODE

TEMPLATE = CODE / "flows" / "template"
CONTROL = TEMPLATE / "control"  # files in the place of TEMPLATE's where a policy writes no text
# Names that git and DVC would act on inside our own source tree: DVC runs every dvc.yaml that it finds.
RENAMED = {
    "graph.yaml": "dvc.yaml",
    "gitignore": ".gitignore",
    "dvcignore": ".dvcignore",
    "dvc/config": ".dvc/config",
    "dvc/gitignore": ".dvc/.gitignore",
}


def add(commands: Any) -> None:
    p = commands.add_parser(
        "init", help="make a project of your own: params.yaml, dvc.yaml, a place for data and for own pieces"
    )
    p.add_argument("dir", metavar="DIR", type=Path)
    p.add_argument(
        "--control",
        action="store_true",
        help="for recipes that set rl.control, whose policy writes no text: the stages plan and rl, and the recipe control-ppo",
    )
    p.set_defaults(run=init)


def init(args: argparse.Namespace) -> int:
    """Raises UserError if DIR exists and is not empty, or is inside a source tree of Espalier."""
    root: Path = args.dir.resolve()
    make(root, control=args.control)
    print(
        f"{root} is ready:\n  cd {args.dir}\n  espalier run\n"
        + (
            "The recipe is control-ppo (see params.yaml); your own pieces go to pieces/ (see pieces/README.md)."
            if args.control
            else "Your data goes to data/ (see kb.sources in params.yaml), your own pieces to pieces/ (see pieces/README.md)."
        )
    )
    return 0


def make(root: Path, *, control: bool = False) -> None:
    """Makes a project in a new folder. control: of a policy that writes no text, without data. Raises UserError as
    `init` does."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserError(f"{root} exists and is not empty: name a new folder")
    if root.is_relative_to(CODE):
        raise UserError(f"{root} lies inside the source tree {CODE}: name a folder outside it")
    if shutil.which("git") is None:
        raise UserError("git is not installed, and runs are kept in it: install git first")
    names = _files(TEMPLATE, without=("control", "data") if control else ("control",))
    for name, path in (names | (_files(CONTROL) if control else {})).items():
        target = root / RENAMED.get(name, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _git(root)


def _files(folder: Path, without: Collection[str] = ()) -> dict[str, Path]:
    """Name below the folder -> path of its files, except those below the folders `without`."""
    names = {p.relative_to(folder): p for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name.as_posix(): p for name, p in names.items() if name.parts[0] not in without}


def _git(root: Path) -> None:
    """Makes a git repository with one commit, because experiments are kept in git. A user without a git identity gets a
    placeholder for this commit only."""
    known = subprocess.run(["git", "config", "user.email"], cwd=root, capture_output=True).returncode == 0
    who = [] if known else ["-c", "user.name=espalier", "-c", "user.email=espalier@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "Start a project on Espalier"]):
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"`git {' '.join(command)}` failed in {root}: {' '.join(done.stderr.split())}")
