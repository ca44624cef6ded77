"""`make drill-files`: damage every file that a run leaves, each in six ways, and run every command: 0 tracebacks.

The project is one in miniature: outputs of every stage, sealed and in DVC's cache, two commits and an experiment, what a
run leaves in `.espalier`, and an MLflow database. Its stages are played by a script that copies what they made, so
`espalier run` is a real one and costs seconds. A command may end with any code; it must end with a sentence, never with
a traceback. After the damage `espalier gc --damaged` and `espalier run` are given, and then the run must succeed where
the file is not one of the user's own (params.yaml, dvc.yaml, what git keeps).

Root reads what its mode forbids, so those cases run in a child that has given up that capability.
"""

import argparse
import contextlib
import ctypes
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

import states  # noqa: E402

from flows import cli  # noqa: E402
from tasks.runtime.stage import Stage  # noqa: E402
from tasks.storage import commit  # noqa: E402
from tasks.tracking import observe, spool  # noqa: E402

RESULT = CODE / "benchmarks/runs/drill-files.json"
WAYS = ("empty", "cut", "flipped", "version", "unreadable", "folder")
QUICK = (  # read files in this process
    ["compare", "first", "workspace"],
    ["compare", "hot", "--json"],
    ["lineage", "rl"],
    ["lineage", "first:prefer", "--json"],
    ["why", "PROBLEM"],
    ["curves", "workspace", "first"],
    ["transfer", "first", "workspace"],
    ["show"],
    ["preview", "problems", "-n", "1"],
    ["promote"],
    ["schedule", "list"],
    ["review", "artifacts/clean/pairs.parquet", "--summary"],
    ["chat", "artifacts/rl/model", "--model-only"],
    ["selfplay", "show", "artifacts/problems"],
    ["sync"],
    ["gc", "--dry-run"],
    ["gc"],
)
SLOW = (  # start DVC, or import much and read nothing that a run leaves
    ["check", "grpo"],
    ["recipes"],
    ["schema"],
    ["verify", "artifacts/problems/problems.parquet"],
    ["doctor"],
    ["run", "--dry-run"],
    ["run", "--set", "seed=1"],
    ["gc", "--damaged"],
    ["run"],
)
PLAY = """
import shutil, sys
from tasks.runtime.stage import Stage
from tasks.tracking import spool

stage = Stage(sys.argv[1])
with spool.recording(stage), stage.running():
    shutil.copytree(f".made/{stage.name}", stage.out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("manifest.json"))
"""
PLAN = """
import shutil
from pathlib import Path
from tasks.storage import commit

shutil.copytree(".made/plan", "artifacts/plan", dirs_exist_ok=True)
commit.seal(Path("artifacts/plan"))
"""


def project(root: Path) -> Path:
    """The project, run to the end."""
    import yaml

    root.mkdir(parents=True)
    states.project(root)
    shutil.copytree(root / "artifacts", root / ".made")
    (root / "params.yaml").write_text("recipe: grpo\nprofile: cpu\nseed: 0\ntracking: 'off'\nset: {}\n")
    (root / "play.py").write_text(PLAY)
    (root / "plan.py").write_text(PLAN)
    stages = {"plan": {"cmd": "python -P plan.py", "deps": ["params.yaml"], "outs": ["artifacts/plan"]}}
    for stage, above in states.DEPS.items():
        deps = [f"artifacts/plan/{stage}.json", *(f"artifacts/{a}" for a in above)]
        stages[stage] = {"cmd": f"python -P play.py {stage}", "deps": deps, "outs": [f"artifacts/{stage}"]}
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    (root / ".gitignore").write_text("/artifacts\n/.espalier\n/.made\n/mlflow.db\n/mlartifacts\n__pycache__\n")
    for name in (".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(CODE / name, root / name)
    states.git(root, "add", "-A")
    states.git(root, "commit", "-qm", "a project")
    (root / "dvc.lock").unlink()  # of `states`: its digests are made up
    with inside(root):
        assert cli.main(["run", "-q"]) == 0
        states.git(root, "add", "-A")
        states.git(root, "commit", "-qm", "run")
        s = Stage("kb", root=root, deps=[])
        with contextlib.suppress(KeyError), spool.recording(s), s.running():  # work that was not finished
            s.finished("rows")("a", lambda: 1)
            s.log({"loss": 1.0}, step=0)
            raise KeyError
        if not (root / "mlflow.db").exists():
            observe.sync(root)
        from tasks.runtime import dvc
        from tasks.storage import state

        state.write(root / ".espalier" / dvc.KEPT, {"before": "x", "after": "y"})
        state.write(root / ".espalier/prefect/runs/1.json", {"pid": 2**22, "started": ""})
    return root


@contextlib.contextmanager
def inside(root: Path) -> Iterator[None]:
    """Work in `root`, with an environment of its own."""
    kept = dict(os.environ)
    for name in [k for k in os.environ if k.startswith(("DVC_", "ESPALIER_", "MLFLOW_"))]:
        del os.environ[name]
    os.environ["PYTHONPATH"] = str(CODE)
    try:
        with contextlib.chdir(root):
            yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def left(root: Path) -> list[str]:
    """Every file that a run leaves, below `root`; of git only what a command reads, of DVC's cache one object of each
    kind."""
    out = []
    for p in sorted(p for p in root.rglob("*") if p.is_file()):
        name = p.relative_to(root).as_posix()
        if name.startswith((".made/", ".git/")) or "__pycache__" in name or name in ("play.py", "plan.py"):
            continue
        out.append(name)
    inner = [n for n in out if n.startswith(".dvc/cache/")]
    kept = {min(n for n in inner if n.endswith(".dir") == folder) for folder in (True, False)}
    return [n for n in out if n not in inner or n in kept] + [".git/index", ".git/HEAD"]


def damage(path: Path, way: str) -> None:
    """Damage one file."""
    if way == "folder":
        path.unlink()
        path.mkdir()
        (path / "inside").write_text("x")
        return
    at, data = path.stat(), path.read_bytes()
    path.chmod(0o644)
    if way == "empty":
        path.write_bytes(b"")
    elif way == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif way == "flipped":
        changed = bytearray(data)
        if changed:
            changed[len(changed) // 2] ^= 4
        path.write_bytes(changed)
        path.chmod(at.st_mode & 0o7777)
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))  # DVC goes by mode, size and time stamp
    elif way == "version":
        path.write_bytes(b'{"version": 99, "schema": "9.0", "sha256": "", "value": {}, "files": {}}\n')
    else:
        path.chmod(0)


def apart(work: Callable[[], list[dict]]) -> list[dict]:
    """What `work` gives in a child that may not read what its mode forbids, root or not; so may none of its
    children."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        rows: list[dict] = [{"trace": "the child ended"}]
        try:
            _no_override()
            rows = work()
        finally:
            with os.fdopen(writing, "w") as f:
                json.dump(rows, f)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as f:
        rows = json.load(f)
    os.waitpid(pid, 0)
    return rows


def _no_override() -> None:
    """Give up the capabilities by which root reads what it may not: CAP_DAC_OVERRIDE (1), CAP_DAC_READ_SEARCH (2)."""
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):
        assert libc.prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
    head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, data) == 0
    for at in (0, 1, 2):
        data[at] &= ~0b110
    assert libc.capset(head, data) == 0


def command(argv: list[str]) -> tuple[int | str, str]:
    """(exit code, or the last line of a traceback; all that was said)."""
    commit._hash.cache_clear()
    said = io.StringIO()
    with tempfile.TemporaryFile() as seen:  # what children say: stages, DVC
        keep = os.dup(1), os.dup(2)
        os.dup2(seen.fileno(), 1)
        os.dup2(seen.fileno(), 2)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code: int | str = cli.main(argv)
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 2
        except BaseException:
            code = traceback.format_exc()
        finally:
            for n, fd in enumerate(keep, 1):
                os.dup2(fd, n)
                os.close(fd)
        seen.seek(0)
        text = said.getvalue() + seen.read().decode(errors="replace")
    if isinstance(code, int) and "Traceback (most recent call last)" in text:
        code = text[text.index("Traceback (most recent") :]
    return code, text


def tried(pristine: Path, name: str, way: str, commands: list[list[str]]) -> Iterator[dict]:
    """Run each command on a copy with one file damaged."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(shutil.copytree(pristine, Path(folder) / "p", symlinks=True))
        damage(root / name, way)
        with inside(root):
            yield from (
                apart(lambda: all_of(name, way, commands)) if way == "unreadable" else all_of(name, way, commands)
            )


def all_of(name: str, way: str, commands: list[list[str]]) -> list[dict]:
    """A row for each command."""
    rows = []
    for argv in commands:
        code, said = command([states.problems()[0].id if a == "PROBLEM" else a for a in argv])
        trace = code if isinstance(code, str) else ""
        row = {"file": name, "way": way, "command": " ".join(argv), "code": 1 if trace else code}
        rows.append(row | {"trace": trace[-1500:], "said": said[-300:] if trace or code else ""})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1500.0, help="no new file is begun after this time")
    parser.add_argument("--slow", type=int, default=60, help="of how many (file, way) the commands that take long run")
    parser.add_argument("--only", default="", help="files whose path holds this text")
    args = parser.parse_args()
    begin, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        pristine = project(Path(folder) / "pristine")
        for row in tried(pristine, ".gitignore", "version", list(QUICK)):  # import all before a capability is given up
            assert not row["trace"], row
        files = [f for f in left(pristine) if args.only in f]
        cases = [(f, w) for f in files for w in WAYS]
        random.Random(1).shuffle(cases)
        small = [c for c in cases if not c[0].startswith("artifacts/")]
        slow = set(small[: args.slow])
        print(f"{len(files)} files, {len(cases)} damages", flush=True)
        for f, w in cases:
            if time.monotonic() - begin > args.seconds:
                break
            for row in tried(pristine, f, w, [*QUICK, *(SLOW if (f, w) in slow else ())]):
                rows.append(row)
                if row["trace"]:
                    print(f"{f} {w}: {row['command']}: {row['trace'].strip().splitlines()[-1]}", flush=True)
    bad = [r for r in rows if r["trace"]]
    result = {
        "files": len({r["file"] for r in rows}),
        "damages": len({(r["file"], r["way"]) for r in rows}),
        "commands": len(rows),
        "tracebacks": len(bad),
        "ways": dict(Counter(r["way"] for r in rows)),
        "seconds": round(time.monotonic() - begin, 1),
        "rows": bad,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print({k: v for k, v in result.items() if k != "rows"})
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
