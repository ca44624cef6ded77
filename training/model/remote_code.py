"""Models that bring Python code of their own: never run, unless the user allowed it by the model's name.

A Hub repository or a folder can hold the code of its architecture (`auto_map` in its config.json), which transformers
would run in our process with all our rights. `allow` says whose may: `espalier` and the stages call it with what the
variable ESPALIER_REMOTE_CODE lists, a program of your own calls it itself.

A folder that training saved holds a copy of the code, and needs no name of its own: it is allowed if each of its files
of code has the bytes of the file in a model that is listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "ESPALIER_REMOTE_CODE"
_NAMES: set[str] = set()


def allow(names: Iterable[str]) -> None:
    """From now on the code of these models may run in this process, and of no others: Hub ids, and folders, as
    `sft.model` names them."""
    _NAMES.clear()
    _NAMES.update(names)


def allowed(path: str | Path) -> bool:
    """Whether the code of the model `path`, a folder or a Hub id, may run."""
    names, folder = sorted(_NAMES), Path(path)
    if not names:
        return False
    if str(path) in names or (folder.exists() and any(_same_place(folder, n) for n in names)):
        return True
    # at any depth: an auto_map may name code in folders below
    files = {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*.py")} if folder.is_dir() else {}
    if not files or not _elsewhere(folder) <= _NAMES:
        return False
    return any(all(data == _bytes(name, file) for file, data in files.items()) for name in names)


def refusal(path: str | Path) -> str:
    """The sentence for a model whose code may not run."""
    return (
        f"{path} needs code of its own, which its files bring and which would run with all your rights: read it, then allow this "
        f"model by name ({VARIABLE}={path}), or choose a model whose architecture transformers has"
    )


def _same_place(folder: Path, name: str) -> bool:
    other = Path(name).expanduser()
    return other.exists() and folder.samefile(other)


def _elsewhere(folder: Path) -> set[str]:
    """The Hub repositories that the `auto_map` of a folder takes code from ("owner/name--module.Class")."""
    out: set[str] = set()
    for file in folder.glob("*.json"):
        read = json.loads(file.read_text(encoding="utf-8"))
        told = read.get("auto_map") or {} if isinstance(read, dict) else {}
        classes = told.values() if isinstance(told, dict) else [told]
        for one in classes:
            for name in one if isinstance(one, list) else [one]:
                out |= {name.partition("--")[0]} if name and "--" in name else set()
    return out


def _bytes(name: str, file: str) -> bytes | None:
    """A file of a model that is listed, from its folder or the Hub's cache; None if it has none of that name."""
    from transformers.utils.hub import cached_file

    if (folder := Path(name).expanduser()).is_dir():
        return (folder / file).read_bytes() if (folder / file).is_file() else None
    try:
        path = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return None
    return Path(path).read_bytes() if path else None
