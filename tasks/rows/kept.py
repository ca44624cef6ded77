"""Where `espalier clean` and `espalier audit` keep what is done, so that a run that is killed goes on there.

    with kept(Path("pairs.jsonl"), out, "clean", settings=[...], code=["synth/..."]) as parts:
        ...parts.values("scores", compute)

The parts (tasks/storage/shards.py) lie in a folder beside the folder that is written, and are removed with the last of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from synth.types import digest
from tasks.core.errors import UserError
from tasks.planning import code
from tasks.runtime.stage import file_digest, only
from tasks.storage import commit
from tasks.storage.shards import Parts

SMALL = 1 << 24  # bytes of a file that takes seconds: to flush its parts to disk may take longer
LIBRARIES = ("numpy", "scipy", "scikit-learn")  # whose numbers parts hold


@contextmanager
def kept(path: Path, out: Path, command: str, *, settings: Any, files: Iterable[Path]) -> Iterator[Parts | None]:
    """The parts of `espalier <command>` over `path` into `out`; they are removed when it is done or refused.

    settings: what the result depends on beside the input, as JSON values; files: the code that makes it, with all that they import.
    None for less than SMALL bytes; for a dataset of the Hub (no such path), of which nothing says that it is the same when it is read
    again; and where the parts would lie in the folder that is read. Raises UserError while another process holds them.
    """
    folder = out.parent / f".{out.name}.part"
    size = sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file())
    if size < SMALL or folder.resolve().is_relative_to(path.resolve()):
        yield None
        return
    of = {"input": file_digest(path), "settings": digest([command, settings]), "code": _code(files)}
    commit.make_folder(folder)
    busy = f"`espalier {command}` already writes into {out} (process {{}}): wait for it, end it, or name another folder with --out"
    with only(folder / "lock", busy.format):
        try:
            parts = Parts(folder, of)
            if any(folder.glob(f"**/[!.]*/{commit.MANIFEST}")):
                print(f"goes on with what a run that did not end left in {folder}", file=sys.stderr)
            yield parts
        except UserError:
            commit.remove(folder)
            raise
        commit.remove(folder)


def _code(files: Iterable[Path]) -> str:
    """The digest of all code that `files` run, and of what computes numbers."""
    sources = {code.name_of(p): code.digest(p) for p in sorted(code.closure(list(files), code.Imports()))}
    return digest([sources, sys.version, *map(version, LIBRARIES)])
