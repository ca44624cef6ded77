"""One run of one stage: its parameters, its inputs, and the life of the folder it writes into.

Work under way lives in `.espalier/work/<stage>/<identity>/`, where identity = hash of the stage's plan file and of
its inputs (the dependencies that dvc.yaml lists). DVC empties a stage's outputs before it runs the command, so
nothing under way may live there: outputs are written to `<work>/out` and moved into place in one rename at the end,
and the work folder is then removed. A run that died leaves its work folder; the next run of the same identity finds
it again (`stage.work`) and goes on. One lock per stage: two runs of a stage in one checkout would move each other's
outputs. Outputs are sealed with a manifest of hashes (tasks/storage/commit.py) that `input` verifies: what a stage
reads is what another wrote.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from synth.types import digest
from tasks.core.errors import UserError
from tasks.core.config import read_yaml
from tasks.runtime.progress import Progress
from tasks.storage import commit, faults, state
from tasks.storage.faults import fault
from tasks.storage.finished import Finished

OUT = {"report": "reports"}  # stages whose outputs are not in artifacts/<stage>
REMEDY = "`espalier gc --damaged` removes what is damaged, `espalier run` makes it anew"


@contextmanager
def only(path: Path, busy: Callable[[str], str]) -> Iterator[None]:
    """Holds the lock `path`, a file that names the process. Raises UserError(busy(process)) if another process holds
    it."""
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise UserError(busy(lock.read().strip() or "?")) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of all files below a folder (`__pycache__` left out)."""
    if path.is_file():
        return commit.file_hash(path)
    inside = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return digest([[p.relative_to(path).as_posix(), file_digest(p)] for p in inside])


def graph(root: Path) -> dict[str, Any]:
    """The stages of the project's dvc.yaml, in the order of the file; {} where there is no dvc.yaml (a test of one
    stage)."""
    path = root / "dvc.yaml"
    if not path.exists():
        return {}
    stages = read_yaml(path).get("stages")
    if not isinstance(stages, dict) or not all(isinstance(s, dict) for s in stages.values()):
        raise UserError(f"{path} holds no stages: `git checkout {path.name}` brings back the file that was committed")
    return stages


def load(name: str, root: Path | str = ".") -> dict[str, Any]:
    """The plan of a stage: artifacts/plan/<name>.json. Raises UserError if the stage `plan` has not written it."""
    path = Path(root) / "artifacts" / "plan" / f"{name}.json"
    # _run describes the whole run and is not a stage
    then = "`espalier run`" if name == "_run" else f"`dvc repro {name}`"
    if not path.exists():
        raise UserError(f"{path} does not exist: run {then} (or `python -m flows.plan` first)")
    commit.check(path.parent, path.name, remedy=f"`dvc repro -f -s plan` writes it anew, then {then}")
    return json.loads(path.read_text(encoding="utf-8"))


def place(name: str, root: Path | str = ".") -> dict[str, Any]:
    """In how many parts the stage runs, and where, as the plan of the whole run says it: it is no part of the stage's own, for it
    changes nothing that a stage is asked for."""
    known = (Path(root) / "artifacts" / "plan" / "_run.json").exists()
    return dict(load("_run", root).get("place", {}).get(name, {})) if known else {}


def measured(path: Path) -> dict[str, float] | None:
    """{"seconds", "peak_rss_mb"} of .espalier/measured/<stage>.json; None if it no longer exists."""
    return state.read(
        path, else_="what the stage took is not known until it runs again", needs=("seconds", "peak_rss_mb")
    )


class Stage:
    """The first argument of a stage function.

    params   its keyword arguments, resolved by the plan       seed     of the run; derive others with
    `synth.types.seed_for(stage.seed, stage.name, ...)` name, profile, recipe, threads, needs (passes that its pieces
    ask for), place (knobs of where it runs, no part of its identity) work     folder of this identity, kept until success: checkpoints and finished rows go here out
    folder to write outputs into; becomes artifacts/<name> on success
    """

    def __init__(
        self,
        name: str,
        *,
        plan: Mapping[str, Any] | None = None,
        root: Path | str = ".",
        deps: Iterable[str] | None = None,
        place: Mapping[str, Any] | None = None,
        target: Path | None = None,
    ) -> None:
        """plan: the content of artifacts/plan/<name>.json; deps: paths the stage may read, None = those that dvc.yaml
        lists for it; target: the folder that its outputs become, None = artifacts/<name>."""
        plan = plan or {}
        self.name, self.root = name, Path(root).resolve()
        self.params: dict[str, Any] = dict(plan.get("params", {}))
        self.pieces: dict[str, str] = dict(plan.get("pieces", {}))
        self.settings: dict[str, str] = dict(plan.get("settings", {}))
        self.place = dict(place or {})
        self.needs = frozenset(plan.get("needs", ()))
        self.seed, self.threads = int(plan.get("seed", 0)), int(plan.get("threads", 2))
        self.profile, self.recipe = plan.get("profile", "cpu"), plan.get("recipe", "")
        listed = graph(self.root).get(name) if deps is None else {"deps": list(deps)}
        self.deps: list[str] | None = None if listed is None else list(listed.get("deps", []))
        self.identity = digest(
            plan, [[d, file_digest(self.root / d)] for d in self.deps or [] if (self.root / d).exists()]
        )[:16]
        self.work = self.root / ".espalier" / "work" / name / self.identity
        self.target = target.resolve() if target else self.root / OUT.get(name, f"artifacts/{name}")
        self.resumed = self.work.is_dir()
        self.emit: Callable[[dict[str, Any]], None] = lambda event: (
            None
        )  # tasks.tracking.spool sets it in a real run of a stage

    @property
    def out(self) -> Path:
        folder = self.work / "out"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def input(self, stage: str, name: str = "") -> Path:
        """artifacts/<stage>/<name>, verified. Raises UserError if it is missing or damaged, and if dvc.yaml does not
        list it as an input of this stage."""
        folder = self.root / OUT.get(stage, f"artifacts/{stage}")
        path = folder / name
        self._known(path)
        if not path.exists():
            raise UserError(f"{path.relative_to(self.root)} does not exist: run `dvc repro {stage}` first")
        commit.check(folder, name, remedy=REMEDY)
        return path

    def reads(self, stage: str) -> bool:
        """Whether dvc.yaml lets this stage read that one: a project of one method has fewer stages than the shipped one."""
        place = OUT.get(stage, f"artifacts/{stage}")
        return self.deps is None or any(
            d == place or d.startswith(f"{place}/") or place.startswith(f"{d}/") for d in self.deps
        )

    def source(self, path: str | Path) -> Path:
        """A user's file or folder, relative to the project. Raises UserError if it is missing, or if DVC would not
        notice a change of it."""
        full = (self.root / path).resolve()
        if not full.exists():
            raise UserError(
                f"{path} does not exist (looked for {full}): fix the path in params.yaml (what it does not name has its "
                "default: `espalier show`)"
            )
        self._known(full)
        return full

    def _known(self, path: Path) -> None:
        if self.deps is not None and not any(
            path.resolve().is_relative_to((self.root / d).resolve()) for d in self.deps
        ):
            raise UserError(
                f"the stage {self.name} reads {path}, which is not among its deps in dvc.yaml ({', '.join(self.deps)}), so a change of it "
                f"would go unseen: put it under one of them or add it to the deps"
            )

    def log(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Records the metrics of one step for MLflow. A server that is down raises nothing: events go to a local spool
        first."""
        self.emit({"kind": "metrics", "step": int(step), "metrics": {k: float(v) for k, v in metrics.items()}})

    def progress(self, work: Iterable[Any] | int | None, label: str = "") -> Progress[Any]:
        """Iterate over it, or give it a total and call `update(n, loss=...)`."""
        return Progress(work, f"{self.name}: {label}" if label else self.name)

    def card(self, card: Mapping[str, Any]) -> None:
        """Write card.json: counts, hashes, gates of what was made. If it counts rows, produced = accepted + quarantined
        is asserted."""
        if {"produced", "accepted", "quarantined"} <= card.keys():
            quarantined = card["quarantined"]
            quarantined = sum(quarantined.values()) if isinstance(quarantined, Mapping) else quarantined
            if card["produced"] != card["accepted"] + quarantined:
                raise AssertionError(
                    f"{self.name} lost rows: produced {card['produced']}, accepted {card['accepted']}, quarantined {quarantined}"
                )
        full = {"stage": self.name, "seed": self.seed, "recipe": self.recipe, **card}
        (self.out / "card.json").write_text(
            json.dumps(full, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        self.emit({"kind": "card", "card": full})

    def finished(self, name: str, *types: type) -> Finished:
        """The rows called `name` that a run of this identity has finished (tasks/storage/finished.py); kept until the
        stage succeeds."""
        return Finished(self.work / f"{name}.jsonl", *types)

    def dataset(self, path: Path, rows: int) -> None:
        """Records a dataset that this stage read, with its digest."""
        self.emit(
            {
                "kind": "dataset",
                "name": str(path.relative_to(self.root)),
                "rows": int(rows),
                "digest": file_digest(path),
            }
        )

    def artifact(self, path: Path) -> None:
        """Record a file of `out` to be shown with the run. It is read when events are shipped, after it has moved into
        place."""
        final = self.target / path.relative_to(self.out) if path.is_relative_to(self.out) else path
        self.emit({"kind": "artifact", "path": self._named(final)})

    def episodes(self, path: Path, n: int, seconds: Mapping[str, Sequence[float]] = {}) -> None:
        """Record n conversations of a file of `out` (JSONL as the stage `evaluate` writes it), to be opened turn by
        turn. seconds: what each message took, by `run/problem`, where it was measured: of no output, since it differs
        between runs."""
        self.emit(
            {
                "kind": "episodes",
                "path": self._named(self.target / path.relative_to(self.out)),
                "n": int(n),
                **({"seconds": {k: [round(x, 6) for x in v] for k, v in seconds.items()}} if seconds else {}),
            }
        )

    def timings(self, stage: str = "") -> Path:
        """A table of the times of a stage's steps (of this one's, without a name), from its last run in this checkout.
        Not an output: it differs from run to run."""
        return self.root / ".espalier" / "measured" / f"{stage or self.name}.csv"

    def measured(self) -> dict[str, dict[str, float]]:
        """Stage -> {"seconds", "peak_rss_mb"} of the last run of every stage in this checkout. Not an output: it
        differs from run to run."""
        return {
            p.stem: values
            for p in sorted((self.root / ".espalier" / "measured").glob("*.json"))
            if (values := measured(p)) is not None
        }

    @contextmanager
    def running(self) -> Iterator[Stage]:
        """Hold the lock, make the work folder; on success move `out` into place and remove the work folder; on an
        error leave it for the next run."""
        commit.make_folder(self.work.parent)
        already = f"the stage {self.name} already runs in {self.root} (process {{}}): wait for it, or end it"
        with only(self.work.parent / "lock", already.format):
            commit.make_folder(self.work)
            faults.stage = self.name
            fault("stage.begin")
            shutil.rmtree(
                self.work / "out", ignore_errors=True
            )  # half-written outputs are no state; what is resumed from lies beside them
            begin = time.monotonic()
            yield self
            if not any(self.out.iterdir()):
                raise AssertionError(f"the stage {self.name} ended without writing anything into stage.out")
            self._readable()
            self._record(time.monotonic() - begin)
            fault("stage.end")
            commit.place(self.out, self.target)
            fault("stage.placed")
            shutil.rmtree(self.work)

    def _readable(self) -> None:
        """README.md beside the tables, so that `datasets.load_dataset` and the Hub's viewer read the folder as it is."""
        if tables := sorted(self.out.glob("*.parquet")):
            from pyarrow.parquet import read_metadata

            from tasks.pages import cards

            rows = {p.name: read_metadata(p).num_rows for p in tables}
            recipe = f", recipe {self.recipe}" if self.recipe else ""  # stages that no recipe changes know none
            told = f"Made by Espalier's stage `{self.name}`{recipe}, seed {self.seed}; card.json has the counts."
            text = cards.folder_card(self.name, rows, told, self._named(self.target))
            (self.out / "README.md").write_text(text, encoding="utf-8")

    def _named(self, path: Path) -> str:
        """The path from the project's root on; whole where it is outside."""
        return str(path.relative_to(self.root) if path.is_relative_to(self.root) else path)

    def _record(self, seconds: float) -> None:
        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB on Linux
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
        values = {"seconds": round(seconds, 2), "peak_rss_mb": round(peak, 1)}
        values |= {k: v for k, v in self.place.items() if not isinstance(v, str)}
        path = self.root / ".espalier" / "measured" / f"{self.name}.json"
        for left in path.parent.glob(f".{path.name}.*.part"):  # of a run that was killed here: we hold the stage's lock
            left.unlink(missing_ok=True)
        state.write(path, values)
        self.emit({"kind": "metrics", "step": 0, "metrics": values})
