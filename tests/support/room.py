"""A small file system of its own, to be filled up or made read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Room:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def leave(self, size: int) -> None:
        """Leave `size` bytes free."""
        disk = os.statvfs(self.folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        self.remount(f"size={(used + size) // 4096 * 4096}")

    def remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", self.folder], check=True)


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Room]:
    """A tmpfs at `folder`. Skips the test where none can be mounted."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here, which takes root: {done.stderr.strip()}")
    try:
        yield Room(folder)
    finally:
        subprocess.run(["umount", folder], check=True)
