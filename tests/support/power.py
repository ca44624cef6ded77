"""`make drill-power`: cut the power at any moment, as SQLite's tests do, and see that nothing is lost that was said to
be done.

A program runs with tests/support/power.c preloaded, which writes down what it does to files: writes, flushes, renames,
new and removed names. From that, every state that a power cut may leave is built again, and looked at. The disk that is
assumed is a bad one:

    data          what was not flushed (fsync) since it was written may be there, be gone, be zeros, be cut, or be there
                  but for what came before it; each file for itself
    names         a new name, a rename and a removal are kept for certain once a folder that they are in was flushed.
                  Before that they may be lost, whether the data is there or not; those of one folder in their order,
                  folders among each other in any (one time in two: all in one order, as journals do)
    folders       a new folder is lost with all that is in it until the one above it was flushed

A scenario is a program that says what is done (`said(...)`), and a check: given the folder and what had been said until
the cut, it looks, goes on with the work, and raises where something is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

HEAD = struct.Struct("<cqII")
SAY = """
import os, sys
def said(text):
    with open(os.environ["POWER_SAID"], "a") as f:
        f.write(text + "\\n")
"""
SECTOR = 512


class Op(NamedTuple):
    """One record of power.c."""

    what: str
    number: int
    path: str
    other: bytes


@dataclass(eq=False)
class File:
    """safe: what is on disk for certain; waiting: writes (offset, bytes) and sizes that are not."""

    safe: bytes = b""
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)

    def now(self) -> bytes:
        return applied(self.safe, self.waiting)


@dataclass(eq=False)
class Folder:
    entries: dict[str, File | Folder | str] = field(default_factory=dict)


Node = File | Folder | str | None


@dataclass(eq=False)
class Names:
    """A change of names: what some names of some folders are from now on. Whole or not at all."""

    changes: list[tuple[Folder, str, Node]]


def applied(data: bytes, changes: list[tuple[int, bytes | None]]) -> bytes:
    out = bytearray(data)
    for at, text in changes:
        if text is None:
            del out[at:]
            out.extend(bytes(at - len(out)))
        else:
            out.extend(bytes(max(0, at + len(text) - len(out))))
            out[at : at + len(text)] = text
    return bytes(out)


class Disk:
    """What is on the disk below `root`: as programs see it (`live`), and as it is for certain (`safe`, with the names
    that wait)."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.live, self.names, self.waiting = _read(root), [], []
        self.safe: dict[Folder, dict[str, Node]] = {}
        self.inodes: dict[int, str] = {}  # of files that were made: under which path
        for folder in _folders(self.live):
            self.safe[folder] = dict(folder.entries)

    def at(self, path: str) -> tuple[Folder, str] | None:
        """The folder of a path and its last part."""
        parts = path[len(self.root) :].strip("/").split("/")
        node: Node = self.live
        for part in parts[:-1]:
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return (node, parts[-1]) if isinstance(node, Folder) else None

    def node(self, path: str) -> Node:
        if path == self.root:
            return self.live
        entry = self.at(path)
        return entry[0].entries.get(entry[1]) if entry else None

    def file(self, path: str) -> File:
        node = self.node(path)
        assert isinstance(node, File), f"{path} is written, and nobody has made it"
        return node

    def take(self, op: Op) -> None:
        what, number, path, other = op
        if what == "W":
            self.file(path).waiting.append((number, other))
        elif what == "T":
            self.file(path).waiting.append((number, None))
        elif what == "S":
            if self.node(path) is None:
                self._rename("R", self.inodes[number], path.encode())
            self._flush(self.node(path))
        elif what == "A":
            self.waiting.clear()
            for folder in _folders(self.live):
                self.safe[folder] = dict(folder.entries)
                for node in folder.entries.values():
                    self._flush(node) if isinstance(node, File) else None
        elif what in "CMYUDRL":
            self._rename(what, path, other, number)
        elif what == "X":
            assert path.endswith("-shm"), f"{path} is written through a mapping, which this does not follow"

    def _rename(self, what: str, path: str, other: bytes, number: int = 0) -> None:
        folder, name = self.at(path) or (None, "")
        assert folder is not None, f"{what} {path}: its folder is not known"
        if what == "C":
            self.inodes[number] = path
        if what in "CMY":
            new: Node = {"C": File(), "M": Folder(), "Y": other.decode()}[what]
            if isinstance(new, Folder):
                self.safe[new] = {}
            changes = [(folder, name, new)]
        elif what in "UD":
            changes = [(folder, name, None)]
        else:
            there, as_ = self.at(other.decode()) or (None, "")
            assert there is not None, other
            changes = [(there, as_, folder.entries[name])] + ([(folder, name, None)] if what == "R" else [])
        for f, n, node in changes:
            if node is None:
                f.entries.pop(n, None)
            else:
                f.entries[n] = node
        self.waiting.append(Names(changes))

    def _flush(self, node: Node) -> None:
        if isinstance(node, File):
            node.safe, node.waiting = node.now(), []
        elif isinstance(node, Folder):
            kept = self._needed({n for n in self.waiting if any(f is node for f, _, _ in n.changes)})
            for n in [n for n in self.waiting if n in kept]:
                for folder, name, new in n.changes:
                    _set(self.safe[folder], name, new)
            self.waiting = [n for n in self.waiting if n not in kept]

    def _needed(self, some: set[Names]) -> set[Names]:
        """`some` of the waiting changes, and those that come before them in the same folders."""
        out: set[Names] = set()
        folders: set[int] = set()
        for n in reversed(self.waiting):
            mine = {id(f) for f, _, _ in n.changes}
            if n in some or folders & mine:
                out.add(n)
                folders |= mine
        return out

    def after(self, rng: random.Random, names: str, data: str) -> dict[str, bytes | None]:
        """Path -> content of every file (None: a folder) of one state that a cut at this moment may leave."""
        if names == "some":
            if rng.random() < 0.5:
                chosen = set(self.waiting[: rng.randint(0, len(self.waiting))])
            else:
                chosen = self._needed({n for n in self.waiting if rng.random() < 0.3})
        else:
            chosen = set(self.waiting) if names == "all" else set()
        entries = {folder: dict(e) for folder, e in self.safe.items()}
        for n in self.waiting:
            if n in chosen:
                for folder, name, new in n.changes:
                    _set(entries[folder], name, new)
        out: dict[str, bytes | None] = {}

        def walk(folder: Folder, at: str) -> None:
            for name, node in entries[folder].items():
                path = f"{at}{name}"
                if isinstance(node, Folder):
                    out[path] = None
                    walk(node, path + "/")
                elif isinstance(node, File):
                    how = rng.choice(DATA) if data == "mixed" else data
                    out[path] = _cut(node, how, rng)
                elif isinstance(node, str):
                    out[path] = b"\0link " + node.encode()

        walk(self.live, "")
        return out


DATA = ("all", "none", "zeros", "half", "last")
STATES = (  # (names, data): what a cut leaves of what was not flushed
    ("all", "none"),
    ("all", "zeros"),
    ("all", "half"),
    ("none", "all"),
    ("none", "none"),
    ("some", "none"),
    ("some", "mixed"),
    ("some", "all"),
    ("all", "last"),
    ("all", "all"),
)


def _cut(file: File, how: str, rng: random.Random) -> bytes:
    w = file.waiting
    if how == "all" or not w:
        return file.now()
    if how == "none":
        return file.safe
    if how == "zeros":  # the size is known to the disk, the data is not
        size = len(file.now())
        return file.safe[:size] + bytes(max(0, size - len(file.safe)))
    if how == "last":
        return applied(file.safe, w[-1:])
    n = rng.randrange(len(w))
    at, text = w[n]
    half = (
        [] if text is None else [(at, text[: rng.randint(0, max(1, len(text) // SECTOR)) * SECTOR or len(text) // 2])]
    )
    return applied(file.safe, [*w[:n], *half])


def _set(entries: dict, name: str, node: Node) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _read(path: Path) -> Folder:
    out = Folder()
    for p in sorted(path.iterdir()):
        out.entries[p.name] = os.readlink(p) if p.is_symlink() else _read(p) if p.is_dir() else File(p.read_bytes())
    return out


def _folders(top: Folder) -> Iterator[Folder]:
    yield top
    for node in top.entries.values():
        if isinstance(node, Folder):
            yield from _folders(node)


@contextlib.contextmanager
def unflushed() -> Iterator[None]:
    """Nobody cuts the power while a state is looked at."""
    real, os.fsync = os.fsync, lambda fd: None
    try:
        yield
    finally:
        os.fsync = real


def build(root: Path, state: dict[str, bytes | None]) -> None:
    """Make `root` what a state says."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name, content in state.items():
        path = root / name
        if content is None:
            path.mkdir()
        elif content.startswith(b"\0link "):
            path.symlink_to(content[6:].decode())
        else:
            path.write_bytes(content)


@cache
def shim() -> Path:
    """power.c, compiled."""
    target = Path(tempfile.mkdtemp(prefix="power-")) / "power.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-w", "-o", str(target), str(CODE / "tests/support/power.c"), "-ldl"],
        check=True,
    )
    return target


def recorded(root: Path, program: str) -> list[Op]:
    """What `program` (Python, run in `root`) does to files below `root`."""
    beside = root.parent / f"{root.name}.log"
    beside.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "ESPALIER_", "MLFLOW_"))}
    env |= {"LD_PRELOAD": str(shim()), "POWER_ROOT": str(root), "POWER_LOG": str(beside / "log")}
    env |= {
        "POWER_SAID": str(beside / "said"),
        "PYTHONPATH": os.pathsep.join(sys.path[:2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    env |= {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SAY + program], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    data, at, ops = (beside / "log").read_bytes(), 0, []
    while at < len(data):
        what, number, n1, n2 = HEAD.unpack_from(data, at)
        at += HEAD.size
        path, other = data[at : at + n1].decode(), data[at + n1 : at + n1 + n2]
        at += n1 + n2
        if path == str(beside / "said"):
            if what == b"W":
                ops.append(Op("!", 0, "", other))
            continue
        ops.append(Op(what.decode(), number, path, other))
    shutil.rmtree(beside)
    return ops


@dataclass(frozen=True)
class Scenario:
    """prepare(root): what lies there before. program: says what is done. check(root, said): raises where that is not
    so, or where the work cannot go on."""

    program: str
    check: Callable[[Path, list[str]], None]
    prepare: Callable[[Path], None] = lambda root: None
    apart: bool = False  # each state is looked at in a process of its own, since a library keeps files open


@dataclass
class Outcome:
    operations: int
    states: int = 0
    wrong: list[str] = field(default_factory=list)


def drilled(scenario: Scenario, most: int, seed: int = 0, seconds: float = float("inf")) -> Outcome:
    """Try at most `most` states of a scenario, spread over all moments of it; every moment at which something was said
    is among them. After `seconds` of looking no other state is begun."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="power-") as folder:
        root = Path(folder).resolve() / "project"
        root.mkdir()
        if scenario.apart:  # once here, with other files: what is imported is inherited
            with tempfile.TemporaryDirectory() as warm:
                scenario.prepare(Path(warm).resolve())
                looked(scenario.check, Path(warm).resolve(), [])
        if scenario.apart and (said_wrong := apart(lambda: scenario.prepare(root))):
            raise AssertionError(said_wrong)
        if not scenario.apart:
            scenario.prepare(root)
        disk = Disk(root)
        ops = recorded(root, scenario.program)
        until = time.monotonic() + seconds  # from here: what is recorded has to be, however long that takes
        here = [i for i, op in enumerate(ops) if op.what == "!"]
        others = [
            i for i in range(len(ops)) if ops[i].what in "SRCMUDTAL!" or (i + 1 < len(ops) and ops[i + 1].what == "S")
        ]
        plan = [(i, s) for i in here for s in STATES]
        more = [(i, s) for i in sorted(set(others) - set(here)) for s in STATES]
        rng.shuffle(plan)
        plan = plan[: most * 2 // 3]
        plan += rng.sample(more, min(len(more), most - len(plan)))
        wanted: dict[int, list[tuple[str, str]]] = {}
        for i, state in plan:
            wanted.setdefault(i, []).append(state)
        out, seen, lines = Outcome(len(ops)), set(), []
        for i, op in enumerate(ops):
            if op.what == "!":
                lines += op.other.decode().splitlines()
            else:
                disk.take(op)
            for names, data in wanted.get(i, ()):
                if time.monotonic() > until:
                    return out
                state = disk.after(rng, names, data)
                key = hashlib.sha256(repr((sorted(state.items()), lines)).encode()).digest()
                if key in seen:
                    continue
                seen.add(key)
                build(root, state)
                out.states += 1
                look = partial(looked, scenario.check, root, list(lines))
                if wrong := (apart if scenario.apart else caught)(look):
                    now = f"names: {names}, data: {data}; said: {lines[-1:]}"
                    out.wrong.append(f"after {_shown(op, root)} ({now}): {wrong}")
    return out


def looked(check: Callable[[Path, list[str]], None], root: Path, lines: list[str]) -> None:
    with contextlib.chdir(root), contextlib.redirect_stderr(io.StringIO()), unflushed():
        check(root, lines)


def caught(work: Callable[[], None]) -> str:
    """What `work` raised, "" where nothing."""
    try:
        work()
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:300]}"
    return ""


def apart(work: Callable[[], None]) -> str:
    """The same, in a child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, caught(work).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as f:
        wrong = f.read()
    code = os.waitpid(pid, 0)[1]
    return wrong or ("" if code == 0 else f"the child ended with {code}")


def _shown(op: Op, root: Path) -> str:
    words = {"W": "a write to", "S": "a flush of", "R": "a rename of", "!": "what was said", "C": "a new file"}
    return f"{words.get(op.what, op.what)} {op.path.removeprefix(str(root))[-80:]}"
