"""What it costs to be watched: MLflow, Prefect, and servers that are gone. `make bench-overhead`

Where a run can only wait, seconds of the clock are measured; where it computes, processor seconds (user and system, of
all processes concerned), which say the same on a machine that does other things. The raw numbers are in
benchmarks/runs/overhead.json, with both, and the load.

- *tracking*: a stage that records WRITES metrics a second under `spool.shipped`, as `espalier run` does, with MLflow in
  a local file, at an address where nobody listens, at one that accepts and never answers, and at a server that is
  killed as soon as the run is shown there. What a run grows by is the time inside the calls that record, and the time
  that the end of the run is held. The process beside it takes processor seconds, measured for two lengths of the stage:
  their difference is what each further second costs, the rest is importing MLflow. For the default run they are counted
  as if they displaced its own work one for one, so its share is an upper bound: the process is niced, and a second core
  may be idle.
- *first line*: from the start of a command in a fresh clone to the first line that it prints.
- *Prefect*: the real graph with stages that do next to nothing (tests/support/toy.py), all of them due and none of them
  due, by `dvc repro` and by `espalier run --watch` on a server that runs; the difference over the number of stages.
  What a run costs before its first stage (Prefect's import) is in the case "not due", once.
- *learner task*: a task that does nothing, on the same server, against the seconds of steps that one holds
  (tasks/runtime/train_loop.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.learning import t_interval
from benchmarks.rows import result_row

ROOT = Path(__file__).resolve().parents[1]
RESULTS, RAW = ROOT / "benchmarks/results/overhead.json", ROOT / "benchmarks/runs/overhead.json"
SHORT, LONG, WRITES = 25.0, 85.0, 4  # seconds of a stage; metrics a second (the default run records about one)
CASES = (("local", SHORT), ("local", LONG), ("absent", SHORT), ("silent", SHORT), ("gone", SHORT))
WORDS = {
    "local": "MLflow in a local file",
    "absent": "tracking server absent",
    "silent": "tracking server never answers",
    "gone": "tracking server killed under way",
}
ESPALIER = [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main())"]
STAGES = 13


def environment(root: Path, **more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "ESPALIER_", "PREFECT_", "MLFLOW_"))}
    who = {
        k: "bench@example.org"
        for k in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**plain, **who, "PATH": path, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1", **more}


def ask(root: Path, script: str, *args: str, **more: str) -> str:
    """What a script prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *args], cwd=root, env=environment(ROOT, **more), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def processor(*who: int) -> float:
    used = [resource.getrusage(w) for w in who or (resource.RUSAGE_CHILDREN,)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def of_group(group: int) -> float:
    """Processor seconds of the living processes of a group and of the children that they have waited for."""
    used = 0.0
    for member in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getpgid(member.pid) == group:
                used += sum(member.cpu_times()[:4])  # user and system, its own and those of ended children
    return used


# --- tracking --------------------------------------------------------------------------------------------------------

RECORD = """
import json, resource, sys, time
from pathlib import Path
import os
from tasks.runtime import process
from tasks.runtime.stage import Stage
from tasks.tracking import spool

length, writes, root = float(sys.argv[1]), int(sys.argv[2]), Path.cwd()
env, children, inside = {}, [], 0.0
begun = spool._Beside.start
spool._Beside.start = lambda self: (begun(self), children.append(self.child))
os.environ[spool.EXECUTION] = "measured"
spool.open_execution(root, "measured", process.look(os.getpid()))
with spool.shipped(root, "measured", env, lambda said: None):
    os.environ.update(env)
    stage = Stage("rl", plan={"params": {"rows": 3}}, root=root)
    with spool.recording(stage), stage.running():
        until = time.monotonic() + length
        step = 0
        while time.monotonic() < until:
            begin = time.monotonic()
            stage.log({"loss": 1.0 / (step + 1), "reward": 0.5, "entropy": 1.5, "grad_norm": 0.1, "length": 20.0}, step=step)
            inside += time.monotonic() - begin
            step += 1
            time.sleep(1.0 / writes)
        (stage.out / "x.txt").write_text("x")
    begin = time.monotonic()
held = time.monotonic() - begin
children[-1].wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"inside": inside, "held": held, "processor": used.ru_utime + used.ru_stime}))
"""


def tracking(folder: Path, rounds: int) -> list[dict[str, float]]:
    """Per round: seconds that the run was held and spent recording, and processor seconds of what it started, per
    case."""
    out: list[dict[str, float]] = []
    for i in range(rounds):
        row: dict[str, float] = {}
        for j, (case, seconds) in enumerate(CASES[i % len(CASES) :] + CASES[: i % len(CASES)]):
            root = folder / f"tracked-{i}-{j}"
            root.mkdir()
            (root / "params.yaml").write_text("seed: 0\n")
            with server(case, root) as uri:
                timings = json.loads(
                    ask(root, RECORD, str(seconds), str(WRITES), **({"MLFLOW_TRACKING_URI": uri} if uri else {}))
                )
            row |= {f"{case} {seconds:g}, {k}": v for k, v in timings.items()}
            print(
                f"tracking {case:7} {seconds:g} s",
                {k: round(v, 2) for k, v in timings.items()},
                file=sys.stderr,
                flush=True,
            )
        out.append({**row, "load": os.getloadavg()[0]})
    return out


@contextmanager
def server(case: str, folder: Path) -> Iterator[str]:
    """The tracking URI of a case, "" for the local file."""
    if case == "local":
        yield ""
        return
    with socket.create_server(("127.0.0.1", 0), backlog=64) as held:
        port = held.getsockname()[1]
        if case == "silent":
            yield f"http://127.0.0.1:{port}"  # the kernel accepts, nobody answers
            return
    uri = f"http://127.0.0.1:{port}"
    if case == "absent":
        yield uri
        return
    command = [
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{folder}/served.db",
    ]
    with (folder / "mlflow.log").open("a") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *command], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait(lambda: answers(f"{uri}/health"))
        threading.Thread(target=kill_when_shown, args=(child, uri), daemon=True).start()
        yield uri
    finally:
        end(child.pid)
        child.wait()


def kill_when_shown(child: subprocess.Popen, uri: str) -> None:
    """SIGKILL to the tracking server as soon as it holds our experiment."""
    while child.poll() is None:
        if answers(f"{uri}/api/2.0/mlflow/experiments/get-by-name?experiment_name=espalier"):
            end(child.pid)
        time.sleep(0.5)


def end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def wait(true) -> None:
    until = time.monotonic() + 300
    while not true():
        if time.monotonic() > until:
            raise SystemExit("nothing happened within 300 s")
        time.sleep(0.2)


# --- the first line --------------------------------------------------------------------------------------------------


def first_lines(folder: Path, rounds: int) -> list[dict[str, float]]:
    """Per round and command: seconds to its first line in a fresh clone, and processor seconds until then."""
    root = folder / "fresh"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
    commands = {
        "dvc repro": [sys.executable, "-m", "dvc", "repro"],
        "espalier run": ESPALIER + ["run"],
        "espalier run --watch": ESPALIER + ["run", "--watch"],
    }
    out = []
    for _ in range(rounds):
        row: dict[str, float] = {}
        for name, command in commands.items():
            begin = time.monotonic()
            child = subprocess.Popen(
                command,
                cwd=root,
                env=environment(root),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            assert child.stdout is not None
            if not child.stdout.readline().strip():
                raise SystemExit(f"{name} printed nothing")
            row |= {name: time.monotonic() - begin, f"{name}, processor": of_group(child.pid)}
            os.killpg(child.pid, signal.SIGTERM)
            child.stdout.read()
            child.wait()
        print("first line", {k: round(v, 1) for k, v in row.items()}, file=sys.stderr, flush=True)
        out.append({**row, "load": os.getloadavg()[0]})
    return out


# --- Prefect ---------------------------------------------------------------------------------------------------------

TASKS = """
import os, time
from pathlib import Path
from tasks.schedule import server
server.connect(Path.cwd())
os.environ["ESPALIER_PREFECT"] = "1"
from tasks import run
@run.task
def nothing(): pass
@run.flow
def many():
    nothing()
    begin = time.process_time()
    for _ in range(50): nothing()
    print("each", (time.process_time() - begin) / 50)
many()
assert not run._lost, run._lost
"""


def prefect(folder: Path, rounds: int) -> tuple[list[dict[str, float]], list[float]]:
    """Per round: (processor) seconds of the graph by DVC and by Prefect, all stages due and none; and processor seconds
    of an empty task."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    import toy

    root = toy.project(folder / "toy")
    (root / "prefect.yaml").write_text("deployments:\n- name: nightly\n  entrypoint: flows.pipeline.pipeline\n")
    with (folder / "serve.log").open("w") as log:
        served = subprocess.Popen(
            [*ESPALIER, "schedule", "--port", "0"], cwd=root, env=environment(root), stdout=log, stderr=log
        )
    try:
        wait(lambda: served.poll() is not None or "Prefect: http" in (folder / "serve.log").read_text())
        if served.poll() is not None:
            raise SystemExit((folder / "serve.log").read_text())
        rows, seed = [], 100
        for _ in range(rounds):
            row: dict[str, float] = {}
            for how, command in (
                ("dvc", [sys.executable, "-m", "dvc", "repro"]),
                ("prefect", ESPALIER + ["run", "--watch"]),
            ):
                seed += 1
                (root / "params.yaml").write_text(f"recipe: grpo\nprofile: cpu\ntracking: off\nseed: {seed}\n")
                for due in ("due", "not due"):
                    begin, before = time.monotonic(), processor()
                    done = subprocess.run(command, cwd=root, env=environment(root), capture_output=True, text=True)
                    if done.returncode:
                        raise SystemExit(done.stdout + done.stderr)
                    row |= {f"{how}, {due}": time.monotonic() - begin, f"{how}, {due}, processor": processor() - before}
            print("prefect", {k: round(v, 1) for k, v in row.items()}, file=sys.stderr, flush=True)
            rows.append({**row, "load": os.getloadavg()[0]})
        tasks = [float(ask(root, TASKS, PYTHONPATH=str(root)).rpartition("each ")[2].split()[0]) for _ in range(rounds)]
    finally:
        served.terminate()
        served.wait()
    return rows, tasks


# --- results ---------------------------------------------------------------------------------------------------------


def results(raw: dict) -> list[dict]:
    """The one shape of all benchmarks."""

    def result(case: str, metric: str, values: list[float], unit: str) -> dict:
        value, low, high = t_interval(values)
        return result_row(
            case,
            metric,
            value,
            unit,
            "make bench-overhead",
            len(values),
            better="lower",
            low=low,
            high=high,
            device=f"{os.cpu_count()} CPU cores, {raw['where']}",
            **{p: version(p) for p in ("prefect", "mlflow", "dvc")},
        )

    out = []
    if rows := raw.get("tracking"):
        out += [
            result(
                f"a run, {words}",
                "grows by",
                [r[f"{case} {SHORT:g}, held"] + r[f"{case} {SHORT:g}, inside"] for r in rows],
                "s",
            )
            for case, words in WORDS.items()
        ]
        run = sum(raw["default_run"].values())
        slope = [(r[f"local {LONG:g}, processor"] - r[f"local {SHORT:g}, processor"]) / (LONG - SHORT) for r in rows]
        fixed = [r[f"local {SHORT:g}, processor"] - SHORT * s for r, s in zip(rows, slope, strict=True)]
        out.append(result("the process beside a run", "to start and import", fixed, "processor s"))
        out.append(result("the process beside a run", "per minute", [60 * s for s in slope], "processor s"))
        held = [r[f"local {SHORT:g}, held"] + r[f"local {SHORT:g}, inside"] * run / SHORT for r in rows]
        share = [100 * (h + f + s * run) / run for h, f, s in zip(held, fixed, slope, strict=True)]
        out.append(result(f"default run ({run:.0f} s), MLflow against tracking off", "at most", share, "%"))
    for name in ("dvc repro", "espalier run", "espalier run --watch") if raw.get("first_line") else ():
        out.append(
            result(
                f"first line of {name}", "after", [r[f"{name}, processor"] for r in raw["first_line"]], "processor s"
            )
        )
    if rows := raw.get("prefect"):
        used = [{k.removesuffix(", processor"): v for k, v in r.items() if k.endswith("processor")} for r in rows]
        out.append(
            result(
                "Prefect, a stage that runs",
                "more than dvc repro",
                [(u["prefect, due"] - u["dvc, due"]) / STAGES for u in used],
                "processor s",
            )
        )
        out.append(
            result(
                "Prefect, a stage that does not run",
                "more than dvc repro",
                [(u["prefect, not due"] - u["dvc, not due"]) / STAGES for u in used],
                "processor s",
            )
        )
        out.append(
            result(
                "Prefect, the learner task",
                "share of its steps",
                [100 * t / raw["task_holds"] for t in raw["task"]],
                "%",
            )
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", choices=("tracking", "first_line", "prefect"), help="measure this part anew and keep the others"
    )
    parser.add_argument(
        "--default-run",
        type=Path,
        metavar="CHECKOUT",
        help="a checkout in which `make run` has run: seconds of its stages",
    )
    args = parser.parse_args()
    raw = json.loads(RAW.read_text()) if RAW.exists() else {}
    if args.default_run:
        files = sorted((args.default_run / ".espalier/measured").glob("*.json"))
        from tasks.runtime.stage import measured

        raw["default_run"] = {p.stem: row["seconds"] for p in files if (row := measured(p)) is not None}
    if not raw.get("default_run"):
        raise SystemExit(
            "the seconds of a default run are not known yet: give --default-run CHECKOUT, in which `make run` has run"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for part, measure in (("tracking", tracking), ("first_line", first_lines), ("prefect", prefect)):
            if args.only not in (None, part):
                continue
            if part == "prefect":
                from tasks.runtime.train_loop import WATCHED

                raw["prefect"], raw["task"] = prefect(folder, args.rounds)
                raw["task_holds"] = WATCHED
            else:
                raw[part] = measure(folder, args.rounds)
            loads = [r["load"] for p in ("tracking", "first_line", "prefect") for r in raw.get(p, [])]
            raw["where"] = f"load {min(loads):.0f} to {max(loads):.0f}"
            RAW.write_text(json.dumps(raw, indent=1) + "\n")
    rows = results(raw)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    for r in rows:
        print(f"{r['case']:62} {r['metric']:22} {r['value']:8.3f} [{r['low']:.3f}, {r['high']:.3f}] {r['unit']}")


if __name__ == "__main__":
    main()
