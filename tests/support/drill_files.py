"""`make drill-files`: damage every file that a run leaves, each in six ways, and run the commands that read it: 0
tracebacks.

The project is one in miniature: outputs of every stage, sealed and in DVC's cache, two commits and an experiment, what a
run leaves in `.espalier` (a ledger of self-play and a checkpoint among it), reviews, a report, and an MLflow database.
Its stages are played by a script that copies what they made, so `espalier run` is a real one and costs seconds. A command
may end with any code; it must end with a sentence, never with a traceback.

Which commands read a file is watched (inotify) on the sound project. Each of them meets the damage: where a command has
put it right, it is damaged again before the next. Then `espalier gc --damaged` and `espalier run` are given, and the run
must succeed where the file is not one of the user's own (params.yaml, dvc.yaml, what git keeps). These two, and what
starts DVC, run on the first files of each kind only: the card of one stage is like that of another.

Root reads what its mode forbids, so those cases run in a child that has given up that capability. DVC is imported once,
and each of its commands is a fork.
"""

import argparse
import contextlib
import ctypes
import io
import json
import os
import selectors
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

import psutil  # noqa: E402
import states  # noqa: E402

from flows import cli  # noqa: E402
from tasks.runtime import dvc as our_dvc  # noqa: E402
from tasks.runtime.stage import OUT, Stage  # noqa: E402
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
    ["show", "grpo"],
    ["preview", "problems", "-n", "1"],
    ["promote"],
    ["status"],
    ["review", "artifacts/clean/pairs.parquet", "--summary"],
    ["audit", "data/pairs.jsonl"],
    ["verify", "artifacts/problems/problems.parquet"],
    ["doctor"],
    ["sync"],
    ["gc", "--dry-run"],
    ["gc"],
)
WHOLE = (  # likewise, where all stages are there: what they read takes more to make
    ["chat", "rl", "--question", "Who?"],
    ["chat", "sft", "--question", "Who?"],
    ["kb", "show", "artifacts/kb"],
    ["search", "ask", "a", "--kb", "artifacts/kb"],
    ["questions", "show", "artifacts/questions"],
    ["questions", "show", "artifacts/questions", "--page", ".espalier/questions.html"],
    ["measure", "artifacts/questions", "--n", "1", "--most", "20"],
    ["verify", "artifacts/questions/problems.parquet"],
    ["compare", "workspace", "first", "--json"],
    ["lineage", "reward"],
    ["stage", "report"],
    ["recipes"],
    ["schema"],
    ["env", "list"],
    SELFPLAY := [
        *("selfplay", "--recipe", "socratic-zero", "--out", ".espalier/selfplay/x", "--set", "problems.rounds=2"),
        *("--set", "problems.proposals=4", "--set", "problems.held=1", "--set", "problems.attempts=2"),
        *("--set", 'problems.families=[{"piece":"list_sorting","levels":[1]}]'),
    ],
)
RUN = (["run", "--dry-run"], ["run", "--set", "seed=1"], ["run"])  # start DVC
AFTER = (["gc", "--damaged"], ["run"])  # what a person is told to do; then the run must succeed
OWN = (
    "params.yaml",
    "dvc.yaml",
    "dvc.lock",
    ".gitignore",
    ".dvcignore",
    ".dvc/config",
    ".dvc/.gitignore",
    ".git/",
    "data/",
)
OF_A_KIND = 2  # so many files of each kind meet RUN and AFTER
PLAY = """
import shutil, sys
from tasks.runtime import dvc as our_dvc
from tasks.runtime.stage import OUT, Stage
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


def project(root: Path, whole: bool = False) -> Path:
    """The project, run to the end. whole: with the outputs of the stages that take seconds to make."""
    import yaml

    root.mkdir(parents=True)
    states.project(root)
    deps = dict(states.DEPS)
    if whole:
        _made_by_stages(root)
        deps |= {"kb": [], "questions": ["kb"], "reward": ["clean", "sft"]}
        deps |= {"report": [*deps]}
    (root / "data").mkdir()
    rows = [{"prompt": f"p{i}", "chosen": f"a{i}", "rejected": f"b{i}"} for i in range(4)]
    (root / "data/pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    shutil.copytree(root / "artifacts", root / ".made")
    shutil.rmtree(root / "artifacts/report", ignore_errors=True)
    (root / "params.yaml").write_text("recipe: grpo\nprofile: cpu\nseed: 0\nset: {}\n")
    (root / "play.py").write_text(PLAY)
    (root / "plan.py").write_text(PLAN)
    stages = {"plan": {"cmd": "python -P plan.py", "deps": ["params.yaml"], "outs": ["artifacts/plan"]}}
    for stage, above in deps.items():
        reads = [f"artifacts/plan/{stage}.json", *(f"artifacts/{a}" for a in above)]
        out = OUT.get(stage, f"artifacts/{stage}")
        stages[stage] = {"cmd": f"python -P play.py {stage}", "deps": reads, "outs": [out]}
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    (root / ".gitignore").write_text(
        "/artifacts\n/reports\n/.espalier\n/.made\n/mlflow.db*\n/mlartifacts\n__pycache__\n"
    )
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
        from tasks.results.review import Review
        from tasks.runtime import dvc
        from tasks.storage import state

        state.write(root / ".espalier" / dvc.KEPT, {"before": "x", "after": "y"})
        state.write(root / ".espalier/prefect/runs/1.json", {"pid": 2**22, "started": ""})
        r = Review(Path("artifacts/clean/pairs.parquet"), Path("data/reviews.jsonl"), sample=0, reviewer="me")
        while shown := r.next():
            r.decide(shown, "first")
        if whole:
            from tasks.storage.checkpoint import Checkpoints

            Checkpoints(s.work / "checkpoints/x").save(1, {"step": 1})
            assert command(list(SELFPLAY))[0] == 0
            assert command(["promote"])[0] == 0
        settle(root)
        folder, about = spool.executions(root)[-1]
        state.write(folder / "execution.json", {**about, "closed": False})  # else nobody reads its events any more
    return root


def settle(root: Path, seconds: float = 900.0) -> None:
    """Wait until no other process works in the project: a run leaves a sender behind, which writes mlflow.db. Raises
    TimeoutError."""
    until = time.monotonic() + seconds
    while busy := [p.pid for p in psutil.process_iter() if p.pid != os.getpid() and _works_in(p, root)]:
        if time.monotonic() > until:
            raise TimeoutError(f"processes {busy} still work in {root}")
        time.sleep(0.1)


def _works_in(process: psutil.Process, root: Path) -> bool:
    try:
        return Path(process.cwd()).is_relative_to(root) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _made_by_stages(root: Path) -> None:
    """Add what the stages of the project in miniature made, wherever `states` has made nothing by hand."""
    import small

    with tempfile.TemporaryDirectory() as folder:
        small_project = Path(folder) / "small"
        assert cli.main(["init", str(small_project)]) == 0
        small.write_project(small_project)
        for stage in small.STAGES:
            small.run(small_project, stage)
        (small_project / "reports").rename(small_project / "artifacts/report")
        for p in sorted((small_project / "artifacts").rglob("*")):
            to = root / "artifacts" / p.relative_to(small_project / "artifacts")
            if p.is_file() and (not to.exists() or p.parent.name == "evaluate"):
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(p, to)


@contextlib.contextmanager
def inside(root: Path) -> Iterator[None]:
    """Work in `root`, with an environment of its own."""
    kept = dict(os.environ)
    for name in [k for k in os.environ if k.startswith(("DVC_", "ESPALIER_", "MLFLOW_"))]:
        del os.environ[name]
    os.environ |= {"PYTHONPATH": str(CODE), spool.SHIPPED: "1", "DVC_SITE_CACHE_DIR": str(root.parent / "site")}
    os.environ |= {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
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


def _stage(name: str) -> int:
    from tasks.run import run_stage

    run_stage(name)
    return 0


def warm() -> None:
    """Import DVC once; from now on each of its commands is a fork of this process, and nothing ships beside a run."""
    import dvc.cli
    import dvc.commands.experiments.run
    import dvc.commands.repro
    import dvc.commands.status
    import dvc.repo
    import dvc.repo.experiments
    import dvc.stage.run  # noqa: F401

    def forked(args: Sequence[str], root: Path, extra: Mapping[str, str] | None, out: int | None) -> int:
        pid = os.fork()
        if not pid:
            try:
                os.chdir(root)
                os.environ.update(our_dvc.environment(extra))
                if out is not None:
                    os.dup2(out, 1)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                code = dvc.cli.main(list(args))
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(code)
            except BaseException:
                os.write(2, traceback.format_exc().encode())
                os._exit(70)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def run(args: Sequence[str], root: Path, extra: Mapping[str, str] | None = None) -> int:
        our_dvc.configured(root)  # as the function that this one stands for
        return forked(args, root, extra, None)

    class Subprocess:
        """`subprocess` as tasks/runtime/dvc.py sees it: what starts DVC and is read is a fork."""

        def __getattr__(self, name: str) -> object:
            return getattr(subprocess, name)

        @staticmethod
        def run(args: list[str], **more: object) -> subprocess.CompletedProcess:
            if args[1:4] != ["-P", "-m", "dvc"]:
                return subprocess.run(args, **more)
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                keep = os.dup(2)
                os.dup2(err.fileno(), 2)
                code = forked(args[4:], more["cwd"], more.get("env"), out.fileno())
                os.dup2(keep, 2)
                os.close(keep)
                out.seek(0), err.seek(0)
                return subprocess.CompletedProcess(args, code, out.read().decode(), err.read().decode())

    our_dvc.run, our_dvc.subprocess = run, Subprocess()
    spool.shipped = lambda *args, **more: contextlib.nullcontext()


class Watch:
    """Which files below a folder are opened."""

    def __init__(self, root: Path) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        self.root, self.folders = root, {}
        for p in (root, *(p for p in root.rglob("*") if p.is_dir())):
            self.folders[self.libc.inotify_add_watch(self.fd, os.fsencode(p), 0x20)] = p  # IN_OPEN

    def seen(self) -> set[str]:
        """Their names since the last call."""
        out = set()
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return out
            while data:
                number, mask, _, n = struct.unpack_from("iIII", data)
                name = os.fsdecode(data[16 : 16 + n].rstrip(b"\0"))
                data = data[16 + n :]
                if name and not mask & 0x40000000 and number in self.folders:  # IN_ISDIR
                    out.add((self.folders[number] / name).relative_to(self.root).as_posix())


def readers(pristine: Path, commands: list[list[str]]) -> dict[str, list[list[str]]]:
    """File -> the commands that open it on a sound project. AssertionError where one of them fails there."""
    out: dict[str, list[list[str]]] = {}
    with copied(pristine) as root, inside(root):
        for argv in commands:
            begin, watch = time.monotonic(), Watch(root)
            (row,) = all_of("", "", [argv])
            if row["trace"] or row["code"]:
                print(f"without any damage: {row}")
                assert not row["trace"] and argv[0] in ("status", "doctor", "promote", "transfer")
            for name in watch.seen():
                out.setdefault(name, []).append(argv)
            os.close(watch.fd)
            print(f"{time.monotonic() - begin:6.1f} s  {' '.join(argv)[:90]}", flush=True)
    return out


@contextlib.contextmanager
def copied(pristine: Path) -> Iterator[Path]:
    # A command may leave a sender behind that still writes here while the copy is deleted: what it adds may stay.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        yield Path(shutil.copytree(pristine, Path(folder) / "p", symlinks=True))


def kind(name: str) -> str:
    """What files that are alike have in common."""
    path = Path(name)
    if name.startswith("artifacts/"):
        return "/".join(path.parts[2:]) if path.parts[1] != "plan" or path.name == "manifest.json" else "plan"
    return f"{path.parts[1] if name.startswith('.espalier/') else path.parent}/{path.suffix or path.name}"


def command(argv: list[str]) -> tuple[int | str, str]:
    """(exit code, or the last line of a traceback; all that was said)."""
    commit._hash.cache_clear()
    output = io.StringIO()
    with tempfile.TemporaryFile() as seen:  # what children say: stages, DVC
        keep = os.dup(1), os.dup(2)
        os.dup2(seen.fileno(), 1)
        os.dup2(seen.fileno(), 2)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code: int | str = _stage(argv[1]) if argv[0] == "stage" else cli.main(argv)
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 2
        except BaseException:
            code = traceback.format_exc()
        finally:
            for n, fd in enumerate(keep, 1):
                os.dup2(fd, n)
                os.close(fd)
        seen.seek(0)
        text = output.getvalue() + seen.read().decode(errors="replace")
    if isinstance(code, int) and "Traceback (most recent call last)" in text:
        code = text[text.index("Traceback (most recent") :]
    return code, text


def tried(pristine: Path, name: str, way: str, commands: list[list[str]]) -> Iterator[dict]:
    """Run each command on a copy with one file damaged."""
    with copied(pristine) as root:
        with inside(root):
            work = lambda: all_of(name, way, commands, pristine)  # noqa: E731
            yield from apart(work) if way == "unreadable" else work()


def all_of(name: str, way: str, commands: list[list[str]], pristine: Path | None = None) -> list[dict]:
    """A row for each command. Before each, the file is damaged (again); but what is given after a damage meets it as
    the command before has left it."""
    rows, again = [], True
    for argv in commands:
        again = again and argv != AFTER[0]
        if pristine is not None and again:
            commit.remove(Path(name))
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(pristine / name, name)
            damage(Path(name), way)
        code, output = command([states.problems()[0].id if a == "PROBLEM" else a for a in argv])
        trace = code if isinstance(code, str) else ""
        if not trace and code and not output.strip():
            trace = f"{argv[0]} ended with {code} and said nothing"
        if not trace and code and not again and argv == ["run"] and not name.startswith(OWN):
            trace = f"after `espalier gc --damaged` the run ended with {code}"
        row = {"file": name, "way": way, "command": " ".join(argv), "code": 1 if trace else code}
        rows.append(row | {"trace": trace[-1500:], "said": output[-600:] if trace or code else ""})
    return rows


def planned(files: list[str], read: Mapping[str, list[list[str]]]) -> list[tuple[str, str, list[list[str]]]]:
    """(file, way, commands) of every damage: the first files of all kinds first."""
    of_a_kind: Counter[str] = Counter()
    out = []
    for f in files:
        of_a_kind[kind(f)] += 1
        whole = of_a_kind[kind(f)] <= OF_A_KIND
        slow = ["run --set"] if f in read and RUN[1] in read[f] else []
        mine = [c for c in read.get(f, []) if c not in RUN]
        more = [*(c for c in RUN if c != RUN[1] or (slow and not f.startswith("artifacts/"))), *AFTER] if whole else []
        out += [(of_a_kind[kind(f)], f, w, [*mine, *more]) for w in WAYS if mine or more]
    return [(f, w, commands) for _, f, w, commands in sorted(out, key=lambda c: (c[0], kind(c[1]), c[:3]))]


def worked(pristine: Path, cases: list[tuple[str, str, list[list[str]]]], until: float, jobs: int) -> list[dict]:
    """The rows of all cases that are begun before `until`, by several processes: each takes every n-th case."""
    pipes = []
    for j in range(jobs):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            with os.fdopen(writing, "w") as f:
                for name, way, commands in cases[j::jobs]:
                    if time.monotonic() > until:
                        break
                    try:
                        rows = list(tried(pristine, name, way, commands))
                    except Exception:
                        rows = [
                            {
                                "file": name,
                                "way": way,
                                "command": "",
                                "code": 1,
                                "trace": traceback.format_exc(),
                                "said": "",
                            }
                        ]
                    f.write(json.dumps(rows) + "\n")
                    f.flush()
            os._exit(0)
        os.close(writing)
        pipes.append((pid, os.fdopen(reading)))
    out = []
    with selectors.DefaultSelector() as ready:
        for pid, f in pipes:
            ready.register(f, selectors.EVENT_READ, pid)
        while ready.get_map():
            for key, _ in ready.select():
                line = key.fileobj.readline()
                if not line:
                    ready.unregister(key.fileobj)
                    os.waitpid(key.data, 0)
                    continue
                for row in json.loads(line):
                    out.append(row)
                    if row["trace"]:
                        last = row["trace"].strip().splitlines()[-1]
                        print(f"{row['file']} {row['way']}: {row['command'][:60]}: {last[:200]}", flush=True)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1500.0, help="no new file is begun after this time")
    parser.add_argument("--only", default="", help="files whose path holds this text")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--keep", type=Path, help="folder of the sound project: made there, or taken from there")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        pristine = (args.keep or Path(folder)).resolve() / "pristine"
        if not pristine.exists():
            project(pristine, whole=True)
        print(f"the project was made in {time.monotonic() - begin:.0f} s", flush=True)
        warm()
        commands = [*WHOLE, *QUICK, *RUN]
        read = readers(pristine, commands)
        files = [f for f in left(pristine) if args.only in f]
        cases = planned(files, read)
        print(f"{len(files)} files, {len(cases)} damages, {sum(len(c[2]) for c in cases)} commands", flush=True)
        rows = worked(pristine, cases, begin + args.seconds, args.jobs)
    bad = [r for r in rows if r["trace"]]
    result = {
        "files": len({r["file"] for r in rows}),
        "damages": len({(r["file"], r["way"]) for r in rows}),
        "planned": len(cases),
        "commands": len(rows),
        "tracebacks": len(bad),
        "ways": dict(Counter(r["way"] for r in rows)),
        "seconds": round(time.monotonic() - begin, 1),
        "rows": bad,
    }
    if not args.only:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print({k: v for k, v in result.items() if k != "rows"})
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
