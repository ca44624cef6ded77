"""`espalier gc`: removes files that no run needs, the cheapest to lose first, until the project is within its disk
budget.

    always          work folders of other settings (those of the present plan are gone on from), events that have been
    shipped
    over `disk_gb`  1. DVC's cache of what neither the working directory nor a commit nor an experiment names: to have
    it again costs time
                    2. MLflow runs, the oldest first; never one with a registered model, never the last
`espalier gc --damaged` removes something else: files that have changed since they were written. DVC trusts size and
time stamp of files that it has hashed once, so it would restore a file with a flipped bit. Therefore every output is
hashed against its manifest, and every object of the cache against its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

from tasks.core.errors import UserError
from tasks.core.config import read_text, read_yaml
from tasks.results.snapshots import Snapshot, stages_of
from tasks.runtime import dvc, process
from tasks.runtime.stage import OUT, Stage, graph, load
from tasks.storage import commit
from tasks.tracking import observe, spool

BUDGET = 20  # disk_gb, if params.yaml does not say
CLOSED = 5  # number of executions whose events stay after shipping: `promote` and `status` read them
PLACES = (".dvc/cache", ".espalier", "artifacts", "reports", "mlartifacts", "mlflow.db")


class Item(NamedTuple):
    """Something to remove: its name, its size, and how to remove it."""

    what: str
    bytes: int
    remove: Callable[[], None]


@dataclass
class Freed:
    """What was removed, or would be; afterwards `used` bytes of `budget` are taken."""

    items: list[Item]
    used: int
    budget: int


def size(path: Path) -> int:
    """Bytes below a path; files that vanish meanwhile are not counted."""
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())


def collect(root: Path, *, dry: bool = False) -> Freed:
    """Frees useless files first, then the least useful, until the budget holds."""
    budget = int(read_yaml(root / "params.yaml").get("disk_gb", BUDGET)) * 10**9
    used = sum(size(root / place) for place in PLACES if (root / place).exists())
    freed = Freed([], used, budget)

    def free(items: Iterator[Item]) -> None:
        for item in items:
            freed.items.append(item)
            freed.used -= item.bytes
            if not dry:
                item.remove()

    free(old_work(root))
    free(shipped(root))
    for more in (unnamed_cache, old_runs):
        if freed.used > budget:
            free(_until(more(root), lambda: freed.used <= budget))
    return freed


def _until(items: Iterator[Item], enough: Callable[[], bool]) -> Iterator[Item]:
    for item in items:
        if enough():
            return
        yield item


def old_work(root: Path) -> Iterator[Item]:
    """Work folders from which no run of the current plan resumes, except those of a running stage."""
    for folder in sorted((root / ".espalier" / "work").glob("*/*/")):
        stage = folder.parent.name
        if folder.name != _identity(root, stage) and not _busy(folder.parent / "lock"):
            yield Item(
                f"unfinished work of {stage} with other settings ({folder.name})", size(folder), _remover(folder)
            )


def _identity(root: Path, stage: str) -> str:
    """The stage's identity in the current plan; "" if it is no longer planned."""
    if stage not in graph(root) or not (root / "artifacts" / "plan" / f"{stage}.json").exists():
        return ""
    return Stage(stage, plan=load(stage, root), root=root).identity


def _busy(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def shipped(root: Path) -> Iterator[Item]:
    """Events of closed executions that MLflow has taken, except the last CLOSED of them."""
    closed = []
    for folder, facts in spool.executions(root):
        if facts.get("closed") and not process.look(facts["pid"]):
            closed.append((facts["time"], folder))
    for _, folder in sorted(closed)[:-CLOSED]:
        yield Item(f"events of the run {folder.name}, which MLflow has", size(folder), _remover(folder))


def unnamed_cache(root: Path) -> Iterator[Item]:
    """What `dvc gc` would remove: objects that neither a commit nor an experiment nor the working directory names."""
    if unnamed := dvc.unnamed(root):
        yield Item(
            f"{len(unnamed)} objects of DVC's cache that nothing names",
            sum(map(size, unnamed)),
            lambda: dvc.collect(root),
        )


def cache_objects(root: Path) -> list[Path]:
    """The files of DVC's cache, which are named by their MD5."""
    return sorted((root / ".dvc" / "cache" / "files" / "md5").glob("??/*"))


def old_runs(root: Path) -> Iterator[Item]:
    """MLflow runs in the project's own store, each parent with its children, the oldest first."""
    if not spool.tracking(root) or not observe.uri(root).startswith("sqlite:") or not (root / "mlflow.db").exists():
        return
    with observe.refusals(root):
        client = observe.client(root)
        experiment = client.get_experiment_by_name(observe.EXPERIMENT)
        if experiment is None:
            return
        runs = [r for r in _pages(client, experiment.experiment_id) if r.info.status != "RUNNING"]
        kept = {v.run_id for v in client.search_model_versions()}
    parents = sorted((r for r in runs if "mlflow.parentRunId" not in r.data.tags), key=lambda r: r.info.start_time)
    for parent in parents[:-1]:
        family = [parent, *(r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id)]
        if not any(r.info.run_id in kept for r in family):
            folders = [Path(urlparse(r.info.artifact_uri).path).parent for r in family]
            yield Item(
                f"MLflow run {parent.info.run_name} and its {len(family) - 1} stages",
                sum(size(f) for f in folders if f.exists()),
                lambda family=family, folders=folders: _forget(client, family, folders),
            )


def _pages(client: Any, experiment: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _forget(client: Any, runs: list[Any], folders: list[Path]) -> None:
    for r in runs:
        client.delete_run(r.info.run_id)
    for f in folders:
        shutil.rmtree(f, ignore_errors=True)


def damaged(root: Path, *, dry: bool = False) -> list[str]:
    """Removes damaged outputs and damaged objects of the cache; returns one line for each. Raises UserError while a
    stage runs."""
    problems = []
    for stage in ["plan", *(n for n in graph(root) if n != "plan")]:
        folder = root / OUT.get(stage, f"artifacts/{stage}")
        if not folder.exists():
            continue
        if _busy(root / ".espalier" / "work" / stage / "lock"):
            raise UserError(f"the stage {stage} is running in {root}: wait for it, or end it")
        try:
            commit.check(folder, remedy="")
        except commit.Damaged as e:
            problems.append(str(e).rstrip(": "))
            if not dry:
                commit.remove(folder)
    for path in cache_objects(root):
        if wrong := _wrong(path):
            problems.append(f"{path} {wrong}")
            if not dry:
                commit.remove(path)
    return problems


def _wrong(path: Path) -> str:
    """What is wrong with an object of the cache; "" if it is intact."""
    try:
        with path.open("rb") as f:
            right = hashlib.file_digest(f, "md5").hexdigest() == path.parent.name + path.name.removesuffix(".dir")
    except OSError as e:
        return f"cannot be read ({(e.strerror or str(e)).lower()})"
    return "" if right else "is not what its name says"


def outputs(root: Path) -> dict[str, list[Any]]:
    """Stage -> the file-system stamps of its outputs and of its last run, which `restored` compares with."""
    out = {}
    for stage in graph(root):
        folder = root / OUT.get(stage, f"artifacts/{stage}")
        inside = sorted(p for p in folder.rglob("*") if p.is_file())
        seen = [(str(p), (at := p.stat()).st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino) for p in inside]
        ran = root / ".espalier" / "measured" / f"{stage}.json"
        out[stage] = [seen, ran.stat().st_mtime_ns if ran.exists() else 0]
    return out


def restored(root: Path, before: Mapping[str, list[Any]]) -> list[str]:
    """Removes damaged outputs that DVC has restored from its cache since `before`, and the cache objects that they came
    from; returns one line for each. DVC restores by size and time stamp and hashes nothing."""
    restored_files = []
    commit.forget()
    for stage, (seen, ran) in outputs(root).items():
        folder = root / OUT.get(stage, f"artifacts/{stage}")
        old_seen, old_ran = before.get(stage, [[], 0])
        if seen == old_seen or ran != old_ran or not (folder / commit.MANIFEST).exists():
            continue  # it is untouched, or the stage has just made it, or it is a user's stage without a manifest
        try:
            commit.check(folder, remedy="")
        except commit.Damaged as e:
            restored_files.append(f"{str(e).rstrip(': ')}; DVC's cache had it so")
            commit.remove(folder)
            state = Snapshot(root, "", "", "", stages_of(read_text(root / "dvc.lock")))
            objects = state.objects(stage)
            bad = [p for p in objects if commit.file_md5(p) != p.parent.name + p.name.removesuffix(".dir")]
            # All files are intact: a damaged list of files was restored and hashed again by DVC, so its name is right
            # by now.
            for path in bad or [p for p in objects if p.suffix == ".dir"]:
                path.unlink()
    return restored_files


def _remover(folder: Path) -> Callable[[], None]:
    return lambda: shutil.rmtree(folder)
