"""States of the project by name, and any file of them, read without running anything.

A name is `workspace`, a git revision, a DVC experiment, or a registered model: `champion`, another alias, a version
(`3`, `v3`). The dvc.lock of that state names the MD5 of every output, and DVC's cache holds the files under those
names; an output of the working directory is read where it lies. So a state of last month is as near as today's, unless
its files have left the cache (`dvc fetch` brings them from a remote).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tasks.core.errors import UserError, nearest
from tasks.core.config import read_text
from tasks.runtime import dvc
from tasks.runtime.stage import REMEDY
from tasks.storage import commit
from tasks.storage.commit import file_md5

WORKSPACE = "workspace"
MODEL = re.compile(r"champion|challenger|v?\d{1,3}|[0-9a-f]{32}")  # names that are looked up in the registry before git


@dataclass
class Snapshot:
    """One state. `lock`: stages of its dvc.lock; `about`: what the name resolved to; `commit`: "" if unknown."""

    root: Path
    name: str
    about: str
    commit: str
    lock: dict[str, Any]
    _folders: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """Stage -> MD5 of its output."""
        return {
            stage: out["md5"] for stage, entry in self.lock.items() for out in entry.get("outs", [])[:1] if "md5" in out
        }

    def path(self, name: str) -> Path | None:
        """The path of an output's bytes, `name` relative to the project; None if they are not available."""
        if self.name == WORKSPACE:
            path = self.root / name
            if not path.is_file():
                return None
            for folder in path.parents:
                if (folder / commit.MANIFEST).exists() and folder != self.root and path.name != commit.MANIFEST:
                    commit.check(folder, path.relative_to(folder).as_posix(), remedy=REMEDY)
                    break
            return path
        for out in (o for s in self.lock.values() for o in s.get("outs", [])):
            if name == out["path"]:
                return self._object(out["md5"])
            if name.startswith(out["path"] + "/"):
                inside = self._listing(out["md5"]).get(name.removeprefix(out["path"] + "/"))
                return self._object(inside) if inside else None
        return None

    def names(self, folder: str) -> list[str]:
        """The files directly below an output folder, by name."""
        if self.name == WORKSPACE:
            return sorted(p.name for p in (self.root / folder).glob("*") if p.is_file())
        listed = next(
            (self._listing(o["md5"]) for s in self.lock.values() for o in s.get("outs", []) if o["path"] == folder), {}
        )
        return sorted(n for n in listed if "/" not in n)

    def json(self, name: str) -> Any:
        """The content of a JSON file, None if it is not available."""
        path = self.path(name)
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))

    def rows(self, name: str, columns: list[str] | None = None) -> list[dict[str, Any]] | None:
        """The rows of a Parquet table, None if it is not available."""
        import pyarrow.parquet

        path = self.path(name)
        try:
            return None if path is None else pyarrow.parquet.read_table(path, columns=columns).to_pylist()
        except pyarrow.ArrowException as e:
            raise UserError(f"{path} cannot be read ({e}): {REMEDY}") from None

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The objects of a JSONL file; none if it is not available."""
        path = self.path(name)
        if path is not None:
            with path.open(encoding="utf-8") as f:
                yield from map(json.loads, f)

    def plans(self) -> dict[str, dict[str, Any]]:
        """Stage -> its plan; under "_run" recipe, profile and seed."""
        plans_by_stage = {
            n.removesuffix(".json"): self.json(f"artifacts/plan/{n}")
            for n in self.names("artifacts/plan")
            if n.endswith(".json")
        }
        return {stage: plan for stage, plan in plans_by_stage.items() if plan is not None and stage != "manifest"}

    def _listing(self, md5: str) -> dict[str, str]:
        if md5 not in self._folders:
            path = self._object(md5)
            entries = json.loads(path.read_bytes()) if path else []
            self._folders[md5] = {e["relpath"]: e["md5"] for e in entries}
        return self._folders[md5]

    def objects(self, stage: str) -> list[Path]:
        """The files of DVC's cache that hold the outputs of a stage, intact or not."""
        out = []
        for md5 in (o["md5"] for o in self.lock.get(stage, {}).get("outs", []) if "md5" in o):
            path = cache(self.root) / "files" / "md5" / md5[:2] / md5[2:]
            out.append(path)
            try:
                inside = [e["md5"] for e in json.loads(path.read_bytes())] if md5.endswith(".dir") else []
            except (OSError, ValueError, KeyError, TypeError):
                inside = []
            out += [cache(self.root) / "files" / "md5" / m[:2] / m[2:] for m in inside]
        return [p for p in out if p.is_file()]

    def _object(self, md5: str) -> Path | None:
        path = cache(self.root) / "files" / "md5" / md5[:2] / md5[2:]
        if not path.is_file():
            return None
        if file_md5(path) != path.parent.name + path.name.removesuffix(".dir"):
            raise commit.Damaged(f"{path} is not what its name says: {REMEDY}")
        return path


def cache(root: Path) -> Path:
    """DVC's cache: `cache.dir` of its configuration, or .dvc/cache. Raises UserError if that cannot be read."""
    own = dvc.configured(root).get("cache", {}).get("dir", "")
    return (root / ".dvc" / own).resolve() if own else root / ".dvc" / "cache"


def snapshot(root: Path, name: str) -> Snapshot:
    """The state called `name`. Raises UserError if there is none, or if it has no dvc.lock because nothing was run
    there."""
    if name in (WORKSPACE, "."):
        path = root / "dvc.lock"
        text = read_text(path) if path.exists() else ""
        if not text and not (root / "artifacts").is_dir():
            raise UserError(f"nothing has been run in {root} yet: `espalier run`, or name a commit or an experiment")
        return Snapshot(root, WORKSPACE, "the working directory", _git(root, "rev-parse", "HEAD"), stages_of(text))
    if MODEL.fullmatch(name):
        from tasks.results import promote

        version = promote.registered(root, name)
        if not version.lock:
            raise UserError(
                f"{name} was registered before its dvc.lock was kept beside it: name its commit instead ({version.commit[:10]})"
            )
        about = f"version {version.version} of the registry ({', '.join([version.stage, *version.aliases])})"
        return Snapshot(root, name, about, version.commit, stages_of(version.lock))
    known = experiments(root)
    commit = known.get(name) or _git(root, "rev-parse", "--verify", "-q", f"{name}^{{commit}}")
    if not commit:
        if not _git(root, "rev-parse", "-q", "--verify", "HEAD"):
            raise UserError(
                f"states other than `{WORKSPACE}` are commits and experiments, and {root} has no commit yet: "
                "`git init && git add -A && git commit -m start`, then `espalier run` and commit again"
            )
        branches = _git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags").split()
        raise UserError(
            f"there is no state {name!r}: {nearest(name, [WORKSPACE, 'champion', 'HEAD', *known, *branches])}"
        )
    text = _git(root, "show", f"{commit}:./dvc.lock")
    if not text:
        raise UserError(f"{name} ({commit[:10]}) holds no dvc.lock: nothing had been run there")
    title = _git(root, "log", "-1", "--format=%s", commit)
    return Snapshot(
        root, name, f"experiment {name}" if name in known else f"commit {commit[:10]}, {title}", commit, stages_of(text)
    )


def experiments(root: Path) -> dict[str, str]:
    """Name of every DVC experiment -> its commit."""
    lines = _git(root, "for-each-ref", "--format=%(refname) %(objectname)", "refs/exps").splitlines()
    refs = [(ref.split("/"), commit) for ref, commit in map(str.split, lines)]
    return {parts[-1]: commit for parts, commit in refs if len(parts) == 5}


def stages_of(text: str, where: str = "dvc.lock") -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        stages = (yaml.load(text, Loader=loader) or {}).get("stages", {})
        sound = all(isinstance(o["path"], str) for s in stages.values() for o in s.get("outs", []))
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        sound = False
    if not sound:
        raise UserError(
            f"{where} is damaged: `git checkout dvc.lock` brings back the one that was committed, `espalier run` writes it anew"
        )
    return stages


def _git(root: Path, *args: str) -> str:
    """The output of a git command, "" if it fails."""
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
