"""`make drill-resume N=50`: kill real runs at N random points, run them again, and compare every byte with a run that
nobody touched.

Who is killed (SIGKILL): the stage, DVC alone (the stage must then end by itself), or the whole process group. Where:
any passage of any fault point (tasks/storage/faults.py) of an unbroken run, drawn by a seed that the output names. A
point survives when the same command, given again, succeeds, gives the same outputs and the same dvc.lock, and leaves no
process behind. 0 failures of n say: below 3/n, at 95 %.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

import small  # noqa: E402

from flows import cli  # noqa: E402
from tasks.runtime import process  # noqa: E402
from tasks.storage import faults

STAGES, VICTIMS = ("questions", "sft", "prefer", "rl"), ("stage", "dvc", "group")
RESULT = CODE / "benchmarks/runs/drill-resume.json"
PATIENCE = 600.0  # seconds for anything to happen; a run that takes longer counts as hung


class Project:
    """A project in miniature that real DVC reproduces, in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, *stages: str) -> Path:
        """Init it and reproduce `stages` with all that they read; the passages of their fault points are in the
        returned file."""
        assert cli.main(["init", str(self.root)]) == 0
        small.write_project(self.root)
        log = self.root.parent / "passages.log"
        assert self.dvc("repro", *stages, log=log).wait(PATIENCE) == 0, self.said()
        return log

    def dvc(self, *args: str, fault: str = "", log: Path | None = None) -> subprocess.Popen:
        """`dvc <args>` in a process group of its own, a fault armed."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "ESPALIER_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
        env |= {"PYTHONPATH": str(CODE), "PATH": path, faults.ARM: fault, faults.LOG: str(log)}
        for name, value in ((faults.ARM, fault), (faults.LOG, log)):
            if not value:
                del env[name]
        with (self.root.parent / "said").open("w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "dvc", *args],
                cwd=self.root,
                env=env,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def said(self) -> str:
        return (self.root.parent / "said").read_text()

    def kill(self, stage: str, point: str, number: int, victim: str) -> bool:
        """Run `stage` and kill `victim` at the passage; whether the run came that far."""
        log = self.root.parent / "killed.log"
        log.unlink(missing_ok=True)
        action = "kill" if victim == "stage" else "hang"
        run = self.dvc("repro", "-s", "-f", stage, fault=f"{stage}/{point}:{number}={action}", log=log)
        if victim == "stage":
            return run.wait(PATIENCE) != 0
        line = f"{stage}/{point}\n"
        until(lambda: run.poll() is not None or (log.exists() and log.read_text().count(line) >= number))
        if run.poll() is not None:
            return False
        running = process.look(int((self.root / f".espalier/work/{stage}/lock").read_text()))
        if victim == "group":
            os.killpg(run.pid, signal.SIGKILL)
        else:
            run.kill()
        run.wait()
        if running is not None:
            until(lambda: not process.look(running.pid))
        return True

    def again(self, stage: str) -> str:
        """Run the stage again; what is wrong with the result, or ""."""
        lock = (self.root / "dvc.lock").read_bytes()
        before = self.kept[stage]
        if self.dvc("repro", "-s", "-f", stage).wait(PATIENCE):
            return "the second run failed: " + " | ".join(self.said().splitlines()[-3:])
        after = small.outputs(self.root, stage)
        if after != before:
            return "other bytes: " + ", ".join(
                sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
            )
        return "" if (self.root / "dvc.lock").read_bytes() == lock else "another dvc.lock"

    def keep(self) -> None:
        """Remember what the unbroken run made."""
        self.kept = {s: small.outputs(self.root, s) for s in STAGES if (self.root / "artifacts" / s).exists()}


def until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened within {PATIENCE:g} s")
        time.sleep(0.05)


def passages(log: Path) -> list[tuple[str, str, int]]:
    """(stage, point, which time) of every passage of an unbroken run."""
    seen, out = Counter(), []
    for line in log.read_text().split():
        seen[line] += 1
        stage, _, point = line.partition("/")
        out.append((stage, point, seen[line]))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new point is begun after this time")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    rng, begin, rows = random.Random(args.seed), time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "project")
        points = [p for p in passages(project.make("prefer", "rl")) if p[0] in STAGES]
        project.keep()
        print(
            f"seed {args.seed}; an unbroken run passes {len(points)} points of the stages {', '.join(STAGES)}",
            flush=True,
        )
        for i in range(args.points):
            if time.monotonic() - begin > args.seconds:
                break
            stage = STAGES[i % len(STAGES)]
            victim = VICTIMS[i // len(STAGES) % len(VICTIMS)]
            # The name first, then which of its passages: else the thousand rows would crowd out the rest.
            name = rng.choice(sorted({p for s, p, _ in points if s == stage}))
            number = rng.choice([n for s, p, n in points if (s, p) == (stage, name)])
            fired = project.kill(stage, name, number, victim)
            wrong = project.again(stage)
            rows.append(
                {"stage": stage, "point": name, "passage": number, "victim": victim, "fired": fired, "wrong": wrong}
            )
            print(
                f"{i + 1:4}  {stage:10} {name:20} {number:4}  kill {victim:6} {'' if fired else '(not reached) '}{wrong or 'survived'}",
                flush=True,
            )
            write(rows, args.points, args.seed, time.monotonic() - begin, args.out)
            if wrong:
                shutil.copytree(project.root, Path(tempfile.gettempdir()) / f"drill-{args.seed}-{i}", symlinks=True)
                project.dvc("repro", "-s", "-f", stage).wait(PATIENCE)
    fired = [r for r in rows if r["fired"]]
    bad = [r for r in fired if r["wrong"]]
    print(f"{len(rows)} points tried, {len(fired)} fired, {len(fired) - len(bad)} survived; {args.out}")
    return 1 if bad else 0


def write(rows: list[dict], planned: int, seed: int, seconds: float, into: Path) -> None:
    """The result so far: a drill that is ended early has its rows."""
    fired = [r for r in rows if r["fired"]]
    bad = [r for r in fired if r["wrong"]]
    result = {
        "planned": planned,
        "tried": len(rows),
        "fired": len(fired),
        "survived": len(fired) - len(bad),
        "below_at_95": round(3 / len(fired), 4) if fired and not bad else None,
        "points_named": sorted({r["point"] for r in fired}),
        "victims": dict(Counter(r["victim"] for r in fired)),
        "stages": dict(Counter(r["stage"] for r in fired)),
        "seed": seed,
        "seconds": round(seconds, 1),
        "rows": rows,
    }
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
