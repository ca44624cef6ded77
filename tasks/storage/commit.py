"""The one way in which a folder comes into being: written beside, flushed, sealed, renamed. And the one way in which it
is trusted.

A sealed folder holds manifest.json, written last: the SHA-256 and the size of every other file below it. A folder
without one is unfinished. DVC, safetensors and Parquet all serve a flipped bit without a word, so code that reads what
another process wrote calls `check` first.

    seal(folder)            flush every file to disk, then write manifest.json, then flush the folders
    place(part, target)     seal `part` and rename it to `target`; an earlier `target` is moved away first, never
                            written into
    check(folder, name)     raise Damaged unless file or subfolder `name` (all, without one) is byte for byte what was
                            sealed

A power cut may leave a file empty that was renamed before it was flushed, so the order matters: files, manifest,
rename, parent folder. Where a flush fails, the folder is not committed: the kernel may have dropped the pages, so it
is written again, never just flushed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.storage.faults import fault

MANIFEST, VERSION = "manifest.json", 1


class Damaged(UserError):
    """The content on disk is not what was written."""


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes; read once per process while time stamp, size and inode stay as they are."""
    at = path.stat()
    return _hash(str(path), at.st_mtime_ns, at.st_size, at.st_ino)


def forget() -> None:
    """Clears the cache of hashes: a time stamp can be set, and an inode reused."""
    _hash.cache_clear()


def file_md5(path: Path) -> str:
    """MD5 of a file's bytes, the name that DVC's cache gives it; likewise."""
    at = path.stat()
    return _hash(str(path), at.st_mtime_ns, at.st_size, at.st_ino, "md5")


@lru_cache(maxsize=4096)
def _hash(path: str, mtime: int, size: int, inode: int, kind: str = "sha256") -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, kind).hexdigest()


def seal(folder: Path) -> None:
    """Flush all files below `folder` and write its manifest. The same content gives the same bytes."""
    fault("commit.seal")
    remove(folder / MANIFEST)
    inside = sorted(folder.rglob("*"))
    files = [p for p in inside if p.is_file()]
    for p in files:
        flush(p)
    listed = {p.relative_to(folder).as_posix(): {"bytes": p.stat().st_size, "sha256": file_hash(p)} for p in files}
    fault("commit.manifest")
    part = folder / f".{MANIFEST}.part"
    part.write_text(
        json.dumps({"version": VERSION, "files": listed}, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    flush(part)
    part.rename(folder / MANIFEST)
    for p in [*(p for p in inside if p.is_dir()), folder]:
        flush(p)


def place(part: Path, target: Path, *, keep: bool = False) -> None:
    """Seal `part` and give it the name `target`; to another file system it is copied first. There is no instant at which
    `target` is half there. keep: if `target` is there, also by another writer at this moment, it stays and `part` is removed."""
    make_folder(target.parent)
    if part.stat().st_dev != target.parent.stat().st_dev:
        near = target.with_name(f".{target.name}.part")
        remove(near)
        shutil.copytree(part, near)
        part = near
    seal(part)
    fault("commit.rename")
    old = part.with_name(part.name + ".old")
    remove(old)
    if target.exists() and not keep:
        target.rename(old)
    fault("commit.between")
    try:
        part.rename(target)
    except OSError:
        if not keep or not target.is_dir():
            raise
        return remove(part)
    for held in {target.parent, part.parent}:
        flush(held)
    remove(old)


def check(folder: Path, name: str = "", *, remedy: str = "make it anew") -> None:
    """Raises Damaged, with `remedy`, unless `name` below `folder` is what was sealed: every listed file, and no
    other."""
    if not (folder / MANIFEST).is_file():
        raise Damaged(f"{folder} is not whole (it has no {MANIFEST}, which is written last): {remedy}")
    listed = _listed(folder, remedy)
    whole = folder / name
    wanted = [n for n in listed if n == name or not name or n.startswith(f"{name}/")]
    present = [whole] if whole.is_file() else [p for p in whole.rglob("*") if p.is_file() and p != folder / MANIFEST]
    for n in sorted({*wanted, *(p.relative_to(folder).as_posix() for p in present)}):
        path, entry = folder / n, listed.get(n)
        if entry is None:
            wrong = f"nothing is known of it in {MANIFEST}"
        elif not path.is_file():
            wrong = "it is missing"
        elif path.stat().st_size != entry["bytes"]:
            wrong = f"it has {path.stat().st_size} bytes instead of {entry['bytes']}"
        else:
            try:
                if file_hash(path) == entry["sha256"]:
                    continue
                wrong = f"its SHA-256 is not that of {MANIFEST}"
            except OSError as e:
                wrong = f"it cannot be read: {(e.strerror or str(e)).lower()}"
        raise Damaged(f"{path} is not what was written ({wrong}): {remedy}")


def read_json(folder: Path, name: str, *, remedy: str = "make it anew") -> Any:
    """The content of a JSON file of a sealed folder. Raises Damaged if it has changed."""
    check(folder, name, remedy=remedy)
    return json.loads((folder / name).read_bytes())


def read_object(path: Path, *, remedy: str = "make it anew") -> dict[str, Any]:
    """The JSON object in a file of a folder that may be sealed or not: one that a command wrote for a user has no
    manifest. Raises Damaged where it cannot be read, or is not what was written."""
    if (path.parent / MANIFEST).is_file():
        return read_json(path.parent, path.name, remedy=remedy)
    try:
        content = json.loads(path.read_bytes())
    except OSError as e:
        raise Damaged(f"{path} cannot be read ({(e.strerror or str(e)).lower()}): {remedy}") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Damaged(f"{path} is damaged (it holds no JSON object): {remedy}")
    return content


def make_folder(path: Path) -> Path:
    """Makes a folder and its missing parents, and flushes each parent. Otherwise a power cut could remove the new
    folder with everything flushed into it later, because its name is stored in the parent."""
    missing = [p for p in (path, *path.parents) if not p.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for p in reversed(missing):
        flush(p.parent)
    return path


def remove(path: Path) -> None:
    """Removes a file, or a folder with its content; does nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _listed(folder: Path, remedy: str) -> dict[str, dict]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        version, listed = manifest["version"], manifest["files"]
        sound = all(isinstance(e["bytes"], int) and isinstance(e["sha256"], str) for e in listed.values())
    except OSError as e:
        raise Damaged(f"{path} cannot be read ({(e.strerror or str(e)).lower()}): {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{path} is damaged: {remedy}") from None
    if version != VERSION or not sound:
        raise Damaged(f"{path} is of version {version!r}, this code reads {VERSION}: {remedy}")
    return listed


def flush(path: Path) -> None:
    """fsync of a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
