"""A sweep runs the graph for every value of a grid, several at a time. Each value has its own worktree and becomes an
experiment.

A worker is a process group in a git worktree of the project's commit, with the project's cache of DVC: what does not
depend on the value is made once and taken from there. What is written into the project itself are references of
experiments, by one process alone. A worker that is killed is begun again in its worktree and goes on from the last
checkpoint; a sweep that is begun again goes on with the values that have no experiment yet.
"""

from __future__ import annotations

import functools
import itertools
import json
import queue
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synth.types import digest
from tasks.core.errors import TRANSIENT, UserError, ended_by
from tasks.core.config import parse
from tasks.results import curves, curves_page, snapshots
from tasks.runtime import dvc, process
from tasks.runtime.stage import only
from tasks.schedule.sweeps import Kind, Runs, died
from tasks.storage import state

TRIES = 3  # tries of a value whose worker is killed, or ends with the code of a transient error
MOST = 10_000  # most values of a grid


@dataclass(frozen=True)
class Point:
    """One value of the grid. name: the experiment's name; words: the value as written; changes: dotted key of
    params.yaml -> value."""

    name: str
    words: tuple[str, ...]
    changes: Mapping[str, Any]


def axis(word: str) -> tuple[str, list[str]]:
    """`rl.optimizer.lr=1e-3,3e-4` or `seed=1..5` -> the key and its values as written. Raises UserError for any other
    form."""
    key, equals, text = word.partition("=")
    if not equals or not all(part.isidentifier() for part in key.split(".")):
        raise UserError(f"sweep {word}: write STAGE.KNOB=VALUE,VALUE or seed=1..5")
    values: list[str] = []
    for part in _split(text):
        low, dots, high = part.partition("..")
        if dots and low.isdecimal() and high.isdecimal():
            values += [str(n) for n in range(int(low), int(high) + 1)]
        elif part:
            values.append(part)
    if not values:
        raise UserError(f"sweep {word}: {key} has no values: write {key}=VALUE,VALUE or, of whole numbers, {key}=1..5")
    return key, list(dict.fromkeys(values))


def _split(text: str) -> Iterator[str]:
    """Splits at commas outside brackets."""
    depth, begin = 0, 0
    for i, c in enumerate(text):
        depth += (c in "[{") - (c in "]}")
        if c == "," and depth <= 0:
            yield text[begin:i].strip()
            begin = i + 1
    yield text[begin:].strip()


def grid(words: Sequence[str], commit: str, base: Mapping[str, Any], keys: frozenset[str]) -> tuple[str, list[Point]]:
    """The name of a sweep and its values: all combinations. keys: those of the top level of params.yaml; base: changes
    that hold for all. Raises UserError for a repeated key, and for more than MOST values."""
    axes = [axis(w) for w in words]
    if twice := [k for k, n in ((k, [a[0] for a in axes].count(k)) for k, _ in axes) if n > 1]:
        raise UserError(f"sweep: {twice[0]} is given twice: list its values together, {twice[0]}=A,B")
    n = 1
    for _, values in axes:
        n *= len(values)
    if n > MOST:
        raise UserError(f"sweep: the grid has {n:,} values, more than {MOST:,}: leave some out")
    name = digest([commit, dict(base), [list(a) for a in axes]])[:8]
    out = []
    for i, values in enumerate(itertools.product(*(v for _, v in axes))):
        chosen = {k: v for (k, _), v in zip(axes, values, strict=True)}
        changes = {k if k.split(".")[0] in keys else f"set.{k}": parse(v, f"sweep {k}") for k, v in chosen.items()}
        words_of = tuple(f"{k}={v}" for k, v in chosen.items())
        out.append(Point(f"sweep-{name}-{i:0{len(str(n))}}", words_of, {**base, **changes}))
    return name, out


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Ensures that a project runs one sweep at a time. Raises UserError if another is running."""
    path = root / ".espalier" / "sweep" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with only(path, lambda who: f"a sweep is already running in {root} (process {who}): wait for it, or end it"):
        yield


def clean(root: Path) -> str:
    """The commit that all values start from. Raises UserError if files differ from it: a worktree would not have the
    changes."""
    dvc.committed(root)
    changed = _git(root, "status", "--porcelain", "--untracked-files=no").splitlines()
    if changed:
        raise UserError(
            f"sweep: {changed[0][3:]} differs from the last commit, and every value starts from that commit: commit it first"
        )
    return _git(root, "rev-parse", "HEAD")


def run(
    root: Path,
    name: str,
    points: Sequence[Point],
    commit: str,
    *,
    workers: int,
    say: Callable[[str], None],
    devices: int = 0,
    runs: Runs | None = None,
) -> dict[str, str]:
    """Runs values without an experiment, `workers` at a time. Returns the failed experiments -> why each failed. With
    devices, worker k sees only device k modulo their number; `runs` shows each value as a run of Prefect's."""
    folder = root / ".espalier" / "sweep" / name
    known = snapshots.experiments(root)
    todo: queue.SimpleQueue[Point] = queue.SimpleQueue()
    left = [p for p in points if p.name not in known]
    for p in left:
        todo.put(p)
    say(f"sweep {name}: {len(points)} values, {len(points) - len(left)} are there already, {workers} at a time")
    failed: dict[str, str] = {}
    errors: list[BaseException] = []
    runs = runs or Runs(name, say)  # that no server hears of
    git, stop, done = threading.Lock(), threading.Event(), itertools.count(len(points) - len(left) + 1)

    def work(k: int) -> None:
        try:
            with git:
                tree = _worktree(root, folder / f"worker-{k}", commit)
            env = {"ESPALIER_QUIET": "1"} | ({"CUDA_VISIBLE_DEVICES": str(k % devices)} if devices else {})
            while not stop.is_set():
                try:
                    point = todo.get_nowait()
                except queue.Empty:
                    return
                runs.begin(point.name, " ".join(point.words), shown(point))
                log, again = folder / f"{point.name}.log", functools.partial(runs.again, point.name)
                try:
                    how, why = _one(root, tree, point, commit, env, log, git, stop, again)
                except BaseException as e:
                    runs.end(point.name, *died(e))
                    raise
                runs.end(point.name, how, why)
                if how == "Cancelled":
                    return
                if how != "Completed":
                    failed[point.name] = why
                bad = "" if how == "Completed" else f"  failed: {why}"
                say(f"  {next(done)}/{len(points)}  {' '.join(point.words)}{bad}")
        except BaseException as e:
            errors.append(e)
            stop.set()
        finally:
            over[k].set()

    over = [threading.Event() for _ in range(min(workers, len(left)))]
    threads = [threading.Thread(target=work, args=(k,), name=f"worker-{k}") for k in range(len(over))]

    def wait() -> None:
        """Until each worker that was begun is over. Not Thread.join: before Python 3.13 a thread whose join a signal interrupts counts
        as ended."""
        for thread, worker in zip(threads, over, strict=True):
            while not worker.wait(2.0) and thread.ident is not None:  # without an id it was never begun
                pass

    try:
        for thread in threads:
            thread.start()
        wait()
    except BaseException:
        stop.set()
        wait()
        raise
    if errors:
        raise errors[0]
    return failed


def shown(point: Point) -> dict[str, Any]:
    """The values of a point by the names that a person writes, all of them JSON."""
    return {k.removeprefix("set."): v for k, v in json.loads(json.dumps(dict(point.changes), default=str)).items()}


def _one(
    root: Path,
    tree: Path,
    point: Point,
    commit: str,
    env: Mapping[str, str],
    log: Path,
    git: threading.Lock,
    stop: threading.Event,
    again: Callable[[str], None],
) -> tuple[Kind, str]:
    """Runs one value in a worktree; returns how it ended, and why or as which experiment. again: gets why a worker is
    begun once more."""
    code, how, killed = 0, "", False
    for k in range(TRIES):
        if k:
            again(f"its worker was ended ({how}), and is begun again: try {k + 1} of {TRIES}")
        lines: list[str] = []
        with log.open("a", encoding="utf-8") as out:

            def hear(line: str, out: Any = out, lines: list[str] = lines) -> None:
                out.write(line + "\n")
                out.flush()
                lines.append(line)

            _git(tree, "checkout", "-q", "-f", "--detach", commit)
            try:
                with dvc.alone(tree), dvc.overridden(point.changes, tree):
                    code = process.run_group(
                        process.ending_with_us("dvc", "repro", "-q"),
                        cwd=tree,
                        env=dvc.environment(env),
                        each=hear,
                        stopped=stop.is_set,
                    )
                    if not code:
                        with git:  # references and objects belong to the project
                            dvc.save(point.name, " ".join(point.words), tree)
            except InterruptedError:
                return "Cancelled", "the sweep was ended; the same command runs it"
            finally:
                _git(tree, "checkout", "-q", "-f", "--detach", commit)
        if not code:
            return "Completed", f"experiment {point.name}"
        how = ended_by(code)
        errors = [x.strip().removeprefix("error: ") for x in lines if x.startswith("error: ")]
        killed = code < 0 or any("exited with -" in x for x in lines)
        if not killed and code != TRANSIENT and not any(f"exited with {TRANSIENT}" in x for x in lines):
            last = lines[-1].strip() if lines else f"dvc ended with code {code}; see {log}"
            return "Failed", errors[-1] if errors else last
    return "Crashed" if killed else "Failed", f"its worker was ended {TRIES} times ({how}); {log} has what it said"


def _worktree(root: Path, place: Path, commit: str) -> Path:
    """A worktree of the commit with the project's cache; an existing one is reused, with its unfinished work."""
    if not (place / ".git").exists():
        _git(root, "worktree", "prune")
        place.parent.mkdir(parents=True, exist_ok=True)
        _git(root, "worktree", "add", "--detach", "-f", str(place), commit)
    above = _git(root, "rev-parse", "--show-prefix")  # the project may be a subfolder of the repository
    tree = place / above if above else place
    state.replace(tree / ".dvc" / "config.local", _settings(root).encode())
    return tree


def _settings(root: Path) -> str:
    """DVC's settings of a worktree: the project's local settings, and its cache."""
    from configobj import ConfigObj

    path = root / ".dvc" / "config.local"
    own = ConfigObj(str(path)) if path.exists() else ConfigObj()
    cache: Any = own.setdefault("cache", {})
    cache["dir"] = str(snapshots.cache(root))
    own.filename = None
    return "\n".join(own.write() or []) + "\n"


def remove(root: Path, name: str) -> None:
    """Removes a sweep's worktrees; its experiments stay."""
    for place in sorted((root / ".espalier" / "sweep" / name).glob("worker-*")):
        _git(root, "worktree", "remove", "--force", str(place))


def report(root: Path, name: str, points: Sequence[Point]) -> tuple[Path, dict[str, Any]]:
    """Writes the page and the numbers of a sweep beside its logs. Settings that differ only in the seed are one row
    with an interval. Returns the page's path and its content."""
    known = snapshots.experiments(root)
    there = [p for p in points if p.name in known]
    results = curves.curves([snapshots.snapshot(root, p.name) for p in there], most=MOST)
    words = {p.name: " ".join(w for w in p.words if not w.startswith("seed=")) for p in there}
    _named_by(results, {g["name"]: words[g["states"][0]] or "seeds alone" for g in results["groups"]})
    folder = root / ".espalier" / "sweep" / name
    page = folder / "index.html"
    state.replace(page, str(curves_page.page(results, f"sweep {name}")).encode())
    state.replace(folder / "sweep.json", (json.dumps(results, indent=1, sort_keys=True) + "\n").encode())
    return page, results


def _named_by(results: dict[str, Any], names: Mapping[str, str]) -> None:
    """Names each group by its values, in place."""
    for group in results["groups"]:
        group["name"] = names[group["name"]]
    for by in (m for part in ("curves", "scores") for of in results[part].values() for m in of.values()):
        for old in list(by):
            by[names[old]] = by.pop(old)


def _git(root: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"`git {shlex.join(args)}` failed in {root}: {done.stderr.strip() or 'no message'}")
    return done.stdout.rstrip("\n")
