"""Sources that are packed: a .gz is read as the file in it, a .zip as the folder in it (of one file: as that file).

What is in an archive is unpacked into a folder that lasts as long as this process. A path goes on below a .zip as below a
folder: museum.zip/rooms.xlsx.
"""

from __future__ import annotations

import atexit
import gzip
import shutil
import stat
import tempfile
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from tasks.core.errors import UserError

LARGEST = 1 << 33  # bytes of what an archive holds, at most
MOST = 100_000  # members of a .zip, at most
SURE = 1 << 28  # bytes that any archive may hold
SWELLS = 200  # how many times its own size may be in a larger one: ten thousand equal rows reach about 100
_LOCKED = 1  # the bit of a member that is encrypted
_PIECE = 1 << 20


class _Members(NamedTuple):
    """What was unpacked of a .zip. root: the folder, or the file where there is only one; skipped: other members -> why."""

    root: Path
    skipped: dict[str, str]


def unpacked(path: Path) -> Path:
    """Where a path can be read: below a .zip what is unpacked of it, of a .gz what is in it, else the path itself. Raises
    UserError for an archive that is damaged, too large, or writes outside its folder."""
    place, inside = parted(path)
    if inside is not None:
        root = _zip(place).root
        path = root / inside if inside.parts else root
    if path.suffix.lower() != ".gz" or not path.is_file():
        return path
    changed = path.stat()
    return _gz(path.resolve(), changed.st_mtime_ns, changed.st_size)


def parted(path: Path) -> tuple[Path, PurePosixPath | None]:
    """(the .zip, the path below it) of a path in one; (path, None) of any other."""
    for place in (*reversed(path.parents), path):
        if place.suffix.lower() == ".zip" and place.is_file():
            return place, PurePosixPath(path.relative_to(place).as_posix())
    return path, None


def skipped(path: Path) -> dict[str, str]:
    """The members of a .zip that were not unpacked, and why; of any other path none. Raises UserError as `unpacked`."""
    place, inside = parted(path)
    return {} if inside is None else _zip(place).skipped


def _zip(path: Path) -> _Members:
    changed = path.stat()
    return _members(path.resolve(), changed.st_mtime_ns, changed.st_size)


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="espalier-unpacked-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@lru_cache(maxsize=None)
def _gz(path: Path, *_changed: int) -> Path:
    out = _folder() / path.stem
    try:
        with gzip.open(path) as packed:
            _copy(packed, out, path, 0)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged, or no .gz ({error}): pack it again, or name the file itself") from error
    return out


@lru_cache(maxsize=None)
def _members(path: Path, *_changed: int) -> _Members:
    root, left, size = _folder(), {}, 0
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [e for e in archive.infolist() if not e.is_dir()]
            if len(entries) > MOST:
                raise UserError(f"{path} holds {len(entries):,} files, at most {MOST:,} are unpacked: name a folder")
            for entry in entries:
                place = _inside(path, entry.filename)
                why = _unread(entry, place) or ("another member has this name" if (root / place).exists() else "")
                if not why:
                    try:
                        size = _write(archive, entry, root / place, path, size)
                    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
                        (root / place).unlink(missing_ok=True) if (root / place).is_file() else None
                        why = f"it cannot be unpacked ({error}): pack it again"
                if why:
                    left[str(place)] = why
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{path} is damaged, or no .zip ({error}): pack it again, or name a folder") from error
    files = [p for p in root.rglob("*") if p.is_file()]
    seen = [p for p in files if not any(part.startswith(".") for part in p.relative_to(root).parts)]
    if not seen:
        first = next(iter(left.items()), None)
        raise UserError(f"{path} holds no file that can be read{f' ({first[0]}: {first[1]})' if first else ''}: fix it")
    if len(seen) == 1:
        left |= {p.relative_to(root).as_posix(): "a hidden file" for p in files if p not in seen}
        return _Members(seen[0], left)
    return _Members(root, left)


def _inside(path: Path, name: str) -> PurePosixPath:
    """Where a member lies below its archive. Raises UserError for one that would be written elsewhere."""
    place = PurePosixPath(name.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts or name[1:2] == ":" or not place.parts:
        raise UserError(
            f"{path} holds {name!r}, which lies outside its folder: nothing of it is unpacked; pack it again"
        )
    return place


def _unread(entry: zipfile.ZipInfo, place: PurePosixPath) -> str:
    """Why a member is left out before it is looked into, or ""."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "a link, or no file"
    if place.parts[0] == "__MACOSX":
        return "what macOS notes about a file"
    if entry.flag_bits & _LOCKED:
        return "it is locked by a password: pack it without one"
    return ""


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, out: Path, path: Path, size: int) -> int:
    """Unpack a member; `size` and what is returned: bytes unpacked of the archive, before and after."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as packed:
        return _copy(packed, out, path, size)


def _copy(packed: IO[bytes], out: Path, path: Path, size: int) -> int:
    """Copy what is in an archive, of which `size` bytes were unpacked; returns how many are now. What its head says of
    sizes is not believed. Raises UserError if it is too much."""
    least = max(SURE, SWELLS * path.stat().st_size)
    with out.open("wb") as plain:
        while piece := packed.read(_PIECE):
            plain.write(piece)
            size += len(piece)
            if size > min(LARGEST, least):
                out.unlink()
                raise UserError(
                    f"{path} holds more than {min(LARGEST, least):,} bytes, and has {path.stat().st_size:,}: unpack it, "
                    "and name what is in it"
                )
    return size
