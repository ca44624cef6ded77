"""Runs the machine's C compiler once: `library` compiles the sources beside this file into the user's cache and
loads them.

`turn_off` disables it (for users: ESPALIER_NATIVE=0 in the environment).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch  # before the library, which then shares torch's threads  # noqa: F401
from platformdirs import user_cache_path

COMPILERS = ("cc", "gcc", "clang")
FOLDER = Path(__file__).parent
SOURCES = ("layers.c", "decode.c")
BESIDE = (
    "layers.c",
    "decode.c",
    "vectors.h",
)  # the result depends on it: a change re-runs the training stages
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-shared", "-fPIC"]
THREADS = ["-fopenmp"]  # a flag of GCC, whose threads are torch's own; without it the code runs in one thread


_off: str | None = None


def turn_off(why: str) -> None:
    """Disable compiled code from now on, for this reason."""
    global _off
    _off = why


def compiler() -> str | None:
    """The path of a C compiler, None where there is none."""
    return next((p for name in COMPILERS if (p := shutil.which(name))), None)


def library() -> ctypes.CDLL | None:
    """The compiled code; None if it is not available (`why_not` says why)."""
    return None if _off else _made()[0]


def why_not() -> str | None:
    """Why there is no compiled code; None if there is."""
    return _off or _made()[1]


@functools.cache
def _made() -> tuple[ctypes.CDLL | None, str | None]:
    cc = compiler()
    if cc is None:
        return (
            None,
            f"there is no C compiler ({', '.join(COMPILERS)}) on the PATH: install one, for example the package gcc or Xcode's tools",
        )
    error_text = ""
    for flags in ([*FLAGS, *THREADS], FLAGS, [f for f in FLAGS if f != "-march=native"]):
        try:
            return ctypes.CDLL(str(_compiled(cc, flags))), None
        except (OSError, subprocess.SubprocessError) as e:
            error_text = (getattr(e, "stderr", None) or str(e)).strip()
    return None, f"{cc} could not compile it: {error_text.splitlines()[-1] if error_text else 'it said nothing'}"


def _compiled(cc: str, flags: list[str]) -> Path:
    """The library for this source, compiler, flags and processor; compiled if it is not cached yet."""
    told = subprocess.run([cc, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    if "clang" in told and "-fopenmp" in flags:
        raise OSError("its threads would be others than torch's")
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in BESIDE]
    key = hashlib.sha256("\n".join([*texts, cc, told, *flags, processor()]).encode()).hexdigest()[:16]
    folder = user_cache_path("espalier")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = Path(tempfile.mkdtemp(prefix="espalier-"))
    target = folder / f"kernels-{key}.so"
    if not target.exists():
        part = (
            folder / f".{key}-{os.getpid()}.so"
        )  # another process may be compiling too: the last one to finish wins, and both results are the same
        subprocess.run(
            [cc, *flags, "-o", str(part), *(str(FOLDER / name) for name in SOURCES), "-lm"],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        os.replace(part, target)
    return target


def processor() -> str:
    """The properties of the processor on which native code depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(sorted({x for x in lines if x.startswith(("flags", "Features", "model name"))}))
    except OSError:
        return platform.processor() + platform.machine()
