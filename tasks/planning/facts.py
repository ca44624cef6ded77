"""The facts that a plan reads from each source file, kept between commands in the user's cache.

A plan reads some 300 files of this code, and parsing them takes most of a command's time. The facts are a function of a
file's bytes and are kept under their digest, so an edited file is read again. A cache that is damaged, or of another
version of this code or of Python, counts as empty. The cache only saves time.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

from tasks.core.paths import package_of

OPENERS = {"import_module", "find", "bind", "module"}  # calls that import a module by name
FILES = 3000  # most files in the cache; those unused for longest are dropped first


@dataclass(frozen=True)
class Facts:
    """The facts of one file: the `modules` that it imports, the `folders` of pieces that it opens by computed names,
    its string literals that are valid identifiers (`names`, which a piece can be called), the `constants` of the
    module, its `functions`."""

    modules: frozenset[str]
    folders: frozenset[str]
    names: frozenset[str]
    constants: frozenset[str]
    functions: frozenset[str]


def of(tree: ast.Module) -> Facts:
    modules, folders, names = set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.isidentifier():
                names.add(node.value)
        elif isinstance(node, ast.Call) and node.args:
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else node.func.id
                if isinstance(node.func, ast.Name)
                else ""
            )
            if name in OPENERS:
                _opened(node.args, modules, folders)
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return Facts(*map(frozenset, (modules, folders, names, constants(tree), functions)))


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The constants of a module, by name."""
    assigned = [
        (n.targets[0] if isinstance(n, ast.Assign) else n.target, n.value)
        for n in tree.body
        if isinstance(n, ast.Assign | ast.AnnAssign)
    ]
    return {t.id: v for t, v in assigned if isinstance(t, ast.Name) and v is not None}


def _opened(args: list[ast.expr], modules: set[str], folders: set[str]) -> None:
    """`import_module("a.b.c")`, `find("a.b", "c")` name a module; `import_module(f"a.b.{x}")`, `find("a.b", x)` open a
    folder."""
    texts = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in args]
    if isinstance(args[0], ast.JoinedStr) and args[0].values and isinstance(args[0].values[0], ast.Constant):
        folders.add(str(args[0].values[0].value).rstrip("."))
    elif texts[0] is not None and len(args) > 1:
        package = package_of(texts[0])
        modules.add(f"{package}.{texts[1].replace('-', '_')}") if texts[1] is not None else folders.add(package)
    elif texts[0] is not None:
        modules.add(texts[0])


def known(digest: str) -> Facts | None:
    """The facts of a file with these bytes, None if the cache does not hold it."""
    lists = _cache().get(digest)
    if lists is None:
        return None
    _used[digest] = lists
    return Facts(*map(frozenset, lists))


def learn(digest: str, tree: ast.Module) -> Facts:
    """Stores the facts of a file with these bytes, for this command and later ones."""
    facts = of(tree)
    if not _learned:
        atexit.register(save)
    _used[digest] = [sorted(x) for x in astuple(facts)]
    _learned.add(digest)
    return facts


_used: dict[str, list[list[str]]] = {}
_learned: set[str] = set()


def save() -> None:
    """Writes the new facts to the cache; if that cannot be written, does nothing."""
    if not _learned:
        return
    _learned.clear()
    path = _path()
    kept = _read(path)  # facts that other processes have written meanwhile
    for digest, lists in _used.items():
        kept.pop(digest, None)
        kept[digest] = lists
    text = json.dumps(dict(list(kept.items())[-FILES:]), ensure_ascii=False, separators=(",", ":"))
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=".sources-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{_digest(text)}\n{text}")
            os.replace(part, path)
        except OSError:
            Path(part).unlink(missing_ok=True)
            raise


@cache
def _cache() -> dict[str, list[list[str]]]:
    return _read(_path())


def _read(path: Path) -> dict[str, list[list[str]]]:
    try:
        first, _, text = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return {}
    return json.loads(text) if first == _digest(text) else {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _path() -> Path:
    """The path of the cache for this code and this Python."""
    mine = Path(__file__).read_bytes() + sys.version.encode()
    return user_cache_path("espalier") / f"sources-{hashlib.sha256(mine).hexdigest()[:16]}.json"
