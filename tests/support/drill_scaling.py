"""`make drill-scaling`: kill the parts of runs that have several, at moments drawn by a seed, and look at what is left.

Who is killed (SIGKILL, by process id, and only what this drill has started): a process that learns (`rank`), the first, which
also plays and writes (`first`), the launcher of both, a player (`rl.players`), a player on a Ray cluster (`actor`), one of two servers that sample
(stand-ins: they answer as vLLM does, and the model says the probe alone), the stage that writes shards of data (`shard`), a Ray task that writes one
(`task`), and a worker of a sweep with all that it has started. When: at any moment between the victim's first and its last, drawn from how long an unbroken run takes.

A kill is survived if, at the end, the outputs have the bytes of a run that nobody touched, its curve (if it has one) has each step
once, and no process is left that works in the project. A run that ends with its part is begun again first, by the same command; one that
loses a player, an actor, a task or a server must go on by itself. 0 failures of n say: below 3/n, at 95 %.

`--only` runs some of the parts and keeps the others' rows of before.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

import small  # noqa: E402
import yaml  # noqa: E402
from drill_all import entry  # noqa: E402
from ports import free_port  # noqa: E402
from ray_cluster import TOKEN, ray_cluster  # noqa: E402

from benchmarks.scale import conversations  # noqa: E402
from tasks.planning import plan  # noqa: E402

RESULT = CODE / "benchmarks/results/drill-scaling.json"
RAW = CODE / "benchmarks/runs/drill-scaling.json"
COMMAND = "make drill-scaling"
PATIENCE = 300.0  # seconds for anything to happen
LEFT = 30.0  # seconds until all that belongs to a killed run must be gone
TRIES = 4  # moments that are drawn for a kill, the later ones earlier, before it counts as not reached
SLOW = 0.1  # seconds of a turn of a stand-in


# An environment of four turns, each of which takes a while, so that kills fall into episodes.
WAITING = '''
import time
from synth.types import Message, Scored

TOOLS, BUDGETS, ENDS, GIVES = "", (), "the fourth turn", ("turns",)


class Waiting:
    def start(self, problem, tools):
        return {"said": []}, list(problem.prompt)

    def step(self, state, text):
        time.sleep(0.1)
        state["said"].append(text)
        if len(state["said"]) == 4:
            return [], True, Scored(value=len("".join(state["said"])) % 5 / 4, parts={"turns": 4.0})
        return [Message(role="tool", content=" and ".join(state["said"]))], False, None


def waiting():
    """Four turns, and their length."""
    return Waiting()
'''


class Part(NamedTuple):
    """kills: how many; stage, knobs: what runs; victim: its processes, of those of the run; again: whether the run ends with
    it and is begun again; served: whether the stand-ins sample; waits: whether problems are played in the environment above;
    rayed: whether its players or tasks are on a Ray cluster, which the drill starts; own: how many conversations of the user's it reads."""

    case: str
    kills: int
    stage: str
    knobs: dict[str, Any]
    victim: Callable[[psutil.Process], list[psutil.Process]]
    again: bool
    served: bool = False
    waits: bool = False
    rayed: bool = False
    own: int = 0


def children(run: psutil.Process, word: str = "") -> list[psutil.Process]:
    """Those that a process has started and are alive, the oldest first, with this word in their command."""
    with contextlib.suppress(psutil.Error):
        living = [p for p in run.children() if p.status() != psutil.STATUS_ZOMBIE]
        return sorted((p for p in living if word in " ".join(p.cmdline())), key=lambda p: (p.create_time(), p.pid))
    return []


def ranks(run: psutil.Process) -> list[psutil.Process]:
    return workers if len(workers := children(run)) == 2 else []


def elsewhere(run: psutil.Process, name: str) -> list[psutil.Process]:
    """The workers of Ray that do this in the folder of a run, which are no children of it."""
    with contextlib.suppress(psutil.Error):
        here, processes = run.cwd(), psutil.process_iter(["cwd", "cmdline"])
        return [p for p in processes if p.info["cwd"] == here and f"ray::{name}" in " ".join(p.info["cmdline"] or ())]
    return []


def writes(run: psutil.Process) -> list[psutil.Process]:
    """The run, once it has written a shard."""
    with contextlib.suppress(psutil.Error):
        return [run] if any(Path(run.cwd(), ".espalier", "work").glob("*/*/own/0/0*")) else []
    return []


PLAYED = {"max_mismatch": 1e9, "envs": [{"piece": "waiting"}], "include_questions": False, "include_families": True}
SHARDS = {"files": ["data/chats.jsonl"], "rows_per_shard": 500}
PARTS = {
    "rank": Part("a process that learns", 6, "sft", {"learners": 2}, lambda run: ranks(run)[1:], True),
    "first": Part("the first process, which plays and writes", 4, "rl", {"learners": 2}, lambda run: ranks(run)[:1], True),
    "launcher": Part("the launcher of two that learn", 5, "sft", {"learners": 2}, lambda run: [run] if ranks(run) else [], True),
    "player": Part("one of two players", 7, "rl", {"players": 2, **PLAYED}, lambda run: children(run, "spawn_main"), False, True, True),
    "actor": Part("one of two players on a Ray cluster", 4, "rl", {"players": 2, **PLAYED}, lambda run: elsewhere(run, "Seat"), False, True, True, True),
    "server": Part("one of two servers that sample", 4, "rl", dict(PLAYED), lambda run: [], False, True, True),
    "shard": Part("a stage that writes shards of data", 4, "demonstrations", SHARDS, writes, True, own=20_000),
    "task": Part("a Ray task that writes a shard", 4, "demonstrations", SHARDS, lambda run: elsewhere(run, "part"), False, rayed=True, own=20_000),
    "sweep": Part("a worker of a sweep, with all that it started", 4, "", {}, lambda run: [], True),
}  # fmt: skip


class Project:
    """A project in miniature whose stages run in several parts."""

    def __init__(self, base: Path, root: Path, part: Part, knobs: dict[str, Any]) -> None:
        shutil.copytree(base, root, ignore=shutil.ignore_patterns("work"))
        params = yaml.safe_load((root / "params.yaml").read_text())
        params["set"][part.stage] |= knobs
        if part.waits:
            params["set"]["problems"]["env"] = "waiting"
            (root / "pieces/env").mkdir(parents=True, exist_ok=True)
            (root / "pieces/env/waiting.py").write_text(WAITING)
        if part.own:
            (root / "data").mkdir()
            conversations(root / "data/chats.jsonl", part.own)
        (root / "params.yaml").write_text(yaml.safe_dump(params))
        with contextlib.chdir(root):
            plan.write(root)
        shutil.rmtree(root / "artifacts" / part.stage, ignore_errors=True)
        if part.waits:
            small.run(root, "problems")
        self.root, self.part, self.said = root, part, root.parent / "said"

    def begun(self) -> Any:
        return small.begun(self.root, self.part.stage, self.said, env=TOKEN if self.part.rayed else None)

    def result(self) -> dict[str, bytes]:
        return small.outputs(self.root, self.part.stage)

    def left(self) -> list[psutil.Process]:
        """Processes that work in this project."""
        processes = psutil.process_iter(["cwd", "status"])
        return [p for p in processes if p.info["cwd"] == str(self.root) and p.info["status"] != psutil.STATUS_ZOMBIE]


def uneven(curve: Path) -> str:
    """What is wrong with the steps of a curve, which must be there once each, in order; "" if nothing."""
    with curve.open() as f:
        steps = [int(r["step"]) for r in csv.DictReader(f)]
    return "" if steps and steps == list(range(steps[0], steps[0] + len(steps))) else f"steps {steps}"


def wait(until: Callable[[], Any], seconds: float) -> Any:
    """What `until` says, once it says something, or the last that it said."""
    end = time.monotonic() + seconds
    while not (value := until()) and time.monotonic() < end:
        time.sleep(0.01)
    return value


def killed(
    project: Project, victims: Callable[[psutil.Process], list[psutil.Process]], delay: float, rng: random.Random
) -> tuple[bool, str]:
    """(whether a victim was killed, what was wrong) of a run."""
    child = project.begun()
    run = psutil.Process(child.pid)
    wait(lambda: victims(run) or not child.is_alive(), PATIENCE)
    time.sleep(delay)
    living = victims(run)
    fired = bool(living) and child.is_alive()
    if fired:
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(living).kill()
    child.join(PATIENCE)
    if child.is_alive():
        child.kill()
        return fired, f"it did not end within {PATIENCE:g} s"
    if project.part.again and fired and child.exitcode == 0:
        return False, ""  # it was over
    if (child.exitcode != 0) != (project.part.again and fired):
        return fired, f"it ended with {child.exitcode}: {project.said.read_text()[-600:]}"
    wait(lambda: not project.left(), LEFT)
    if left := project.left():
        return fired, f"left: {[' '.join(p.cmdline())[:80] for p in left]}"
    return fired, ""


def compared(project: Project, reference: dict[str, bytes]) -> str:
    """What is wrong with the outputs, after another run if they are not there."""
    if project.part.again:
        small.run(project.root, project.part.stage)
    got = project.result()
    if names := [n for n in reference.keys() | got.keys() if reference.get(n) != got.get(n)]:
        return f"other bytes: {', '.join(sorted(names))}"
    curve = project.root / f"artifacts/{project.part.stage}/curve.csv"
    return uneven(curve) if curve.name in reference else ""


@contextlib.contextmanager
def serving(base: Path) -> Iterator[tuple[str, Callable[[psutil.Process], list[psutil.Process]]]]:
    """The URLs of two stand-ins, started anew by `victims.up` for each run: a server is held by the run before, whose process ends here
    without its exit functions."""
    model = (base / "artifacts/sft/model").resolve()
    config = json.loads((model / "config.json").read_text())
    about = {k: config[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
    about = json.dumps({"dtype": "float32", "max_model_len": 4096, **about})
    ports, live = [free_port(), free_port()], {}

    def down() -> None:
        for p in live.values():
            p.kill()
            p.wait()

    def up() -> None:
        down()
        for port in ports:
            live[port] = subprocess.Popen(
                [sys.executable, "-m", "tests.support.stub_server", str(port), str(config["eos_token_id"]), about, str(SLOW), str(model)],
                cwd=CODE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        wait(lambda: all(_answers(p) for p in ports), PATIENCE)

    def victims(run: psutil.Process) -> list[psutil.Process]:
        """The stand-ins, once the run plays."""
        asking = any(c.raddr and c.raddr.port in ports for c in run.net_connections(kind="tcp")) or victims.seen  # type: ignore[attr-defined]
        victims.seen = asking  # type: ignore[attr-defined]
        return [psutil.Process(p.pid) for p in live.values() if p.poll() is None] if asking else []

    victims.seen, victims.up = False, up  # type: ignore[attr-defined]
    try:
        up()
        yield ",".join(f"http://127.0.0.1:{p}" for p in ports), victims
    finally:
        down()


def _answers(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def drilled(name: str, part: Part, base: Path, folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """A row of each kill."""
    rng = random.Random(f"{seed} {name}")
    with contextlib.ExitStack() as stack:
        knobs, victims, servers = dict(part.knobs), part.victim, None
        if part.served:
            urls, servers = stack.enter_context(serving(base))
            knobs["engine"] = {"name": urls}
            victims = servers if name == "server" else part.victim
        if part.rayed:
            knobs["ray"] = stack.enter_context(ray_cluster()).address
        whole = Project(base, folder / f"{name}-whole", part, knobs)
        begin = time.monotonic()
        child = whole.begun()
        run, here = psutil.Process(child.pid), 0.0
        with contextlib.suppress(psutil.Error):
            wait(lambda: victims(run) or not child.is_alive(), PATIENCE)
            here = time.monotonic()
        child.join(PATIENCE)
        assert child.exitcode == 0, whole.said.read_text()[-2000:]
        lasts, reference = time.monotonic() - here, whole.result()
        print(f"{name}: unbroken in {time.monotonic() - begin:.1f} s, its victims live {lasts:.1f} s", flush=True)
        for k in range(part.kills):
            fired, wrong, delay = False, "", 0.0
            for shrink in range(TRIES):
                shutil.rmtree(folder / f"{name}-{k}", ignore_errors=True)
                project = Project(base, folder / f"{name}-{k}", part, knobs)
                if servers is not None:
                    servers.up()  # type: ignore[attr-defined]
                    servers.seen = False  # type: ignore[attr-defined]
                delay = rng.uniform(0, lasts) / 2**shrink
                with contextlib.suppress(psutil.NoSuchProcess):
                    fired, wrong = killed(project, victims, delay, rng)
                if fired or wrong:
                    break
            wrong = wrong or (compared(project, reference) if fired else "")
            yield {"part": name, "kill": k, "after": round(delay, 2), "fired": fired, "wrong": wrong}
            shutil.rmtree(project.root, ignore_errors=True)


def swept(part: Part, seed: int) -> Iterator[dict[str, Any]]:
    """A sweep of as many values as kills and two more: each victim ends its process group in the middle of its value."""
    from benchmarks import sweep

    n = 2 * ((part.kills + 3) // 2)
    numbers = sweep.one(n, part.kills, 2, seed)
    good = {"code": 0, "experiments": n, "right": n, "left": 0, "clean": True}
    wrong = "" if {k: numbers[k] for k in good} == good else str(numbers)
    for k in range(part.kills):
        yield {"part": "sweep", "kill": k, "after": None, "fired": True, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    args = parser.parse_args()
    rows = [r for r in json.loads(RAW.read_text()) if r["part"] not in args.only] if RAW.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        if set(args.only) - {"sweep"}:
            small.write_project(base)
            for stage in ("kb", "questions", "problems", "demonstrations", "sft"):
                small.run(base, stage)
        for name in args.only:
            part = PARTS[name]
            for row in (
                swept(part, args.seed) if name == "sweep" else drilled(name, part, base, Path(folder), args.seed)
            ):
                rows.append({**row, "seed": args.seed})
                print(row, flush=True)
                write(rows, args.only)
    fired = [r for r in rows if r["fired"]]
    bad = [r for r in rows if r["wrong"]]
    print(f"{len(rows)} kills planned, {len(fired)} done, {len(fired) - len(bad)} survived; {RESULT}")
    return int(bool(bad) or len(fired) < len(rows))


def write(rows: list[dict[str, Any]], here: Sequence[str] = tuple(PARTS)) -> None:
    """here: the parts that ran on this machine now; what is written of the others stays."""
    RAW.parent.mkdir(parents=True, exist_ok=True)
    RAW.write_text(json.dumps(rows, indent=1) + "\n")
    before = json.loads(RESULT.read_text()) if RESULT.exists() else []
    out = []
    for name, part in PARTS.items():
        if name not in here:
            out += [r for r in before if r["case"] == part.case]
            continue
        fired = [r for r in rows if r["part"] == name and r["fired"]]
        if fired:
            held = len([r for r in fired if not r["wrong"]])
            out += [
                entry(part.case, m, v, "", len(fired)) | {"command": COMMAND}
                for m, v in (("killed", len(fired)), ("survived", held))
            ]
    RESULT.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
