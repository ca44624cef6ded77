"""How long does `make run` take, and how much memory? `make bench-run`

A clone of the last commit in a fresh folder, in this environment; `espalier run` of the default settings, then once
more with nothing to do. Seconds and peak memory of each stage are what the stage wrote of itself; `all` is the clock
from the command to its end. One run at a time, on a machine that does nothing else: load above the number of cores is
said in `device`. `--of FOLDER --seconds S` records a run that somebody made there by hand and that took S seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.rows import result_row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "run.json"
COMMAND = "make bench-run"


def espalier(folder: Path, *words: str) -> float:
    """Seconds of a command in the project of a folder. Raises SystemExit where it fails."""
    env = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main())", *words],
        cwd=folder,
        env=env,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"espalier {' '.join(words)} ended with {done.returncode} in {folder}")
    return time.monotonic() - began


def measured(folder: Path) -> list[tuple[str, float, float]]:
    """(stage, seconds, peak MB) of the stages that ran, in the order of the graph."""
    import yaml

    from tasks.runtime.stage import measured as of_stage

    measures = []
    for stage in yaml.safe_load((folder / "dvc.yaml").read_text(encoding="utf-8"))["stages"]:
        path = folder / ".espalier" / "measured" / f"{stage}.json"
        if path.exists() and (row := of_stage(path)) is not None:
            measures.append((stage, row["seconds"], row["peak_rss_mb"]))
    return measures


def rows(stages: list[tuple[str, float, float]], whole: float, again: float | None, load: float) -> list[dict]:
    busy = f", load {load:.0f}" if load > (os.cpu_count() or 1) else ""
    device = f"{os.cpu_count()} CPU cores{busy}"
    versions = {n: version(n) for n in ("torch", "transformers")}
    values = [(stage, "seconds", s, "s") for stage, s, _ in stages] + [
        (stage, "peak memory", mb, "MB") for stage, _, mb in stages
    ]
    values += [("all", "seconds", whole, "s"), ("all", "peak memory", max(mb for _, _, mb in stages), "MB")]
    if again is not None:
        values.append(("again, nothing to do", "seconds", again, "s"))
    return [
        result_row(c, m, v, u, COMMAND, 1, better="lower", low=v, high=v, device=device, **versions)
        for c, m, v, u in ((c, m, round(v, 2), u) for c, m, v, u in values)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of", type=Path, help="a project whose run is to be recorded")
    parser.add_argument("--seconds", type=float, help="what that run took")
    args = parser.parse_args()
    if (args.of is None) != (args.seconds is None):
        parser.error("--of and --seconds go together")
    if args.of:
        results = rows(measured(args.of), args.seconds, None, 0.0)
    else:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "espalier"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
            whole = espalier(folder, "run")
            load = os.getloadavg()[1]
            results = rows(measured(folder), whole, espalier(folder, "run"), load)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
