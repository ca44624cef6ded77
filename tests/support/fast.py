"""`pytest --fast` (`make test-fast`): the quick test functions, the many cases of one by its first and last; and the order
of the files, so that the workers end together.

Both read `times.txt` beside this file: seconds of one core that the functions took, where a core is what they use. Left
out of --fast are the tests marked `slow` or `engine` and the functions whose first and last case took over 0.3 seconds.
Files that take long begin first: a worker that begins such a one last keeps the others waiting. Every package keeps most of
its tests under --fast; CI runs everything.

`pytest --times FOLDER...` measures these folders and writes their lines anew; `make test ARGS="--times -n 4 --dist loadfile
--no-loadscope-reorder"` measures all, and prints the seconds of each file that takes over ten.
"""

import resource
import time
from collections import defaultdict
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

TIMES = Path(__file__).with_name("times.txt")
CASES = 2  # of one function
QUICK = 0.3  # seconds
SLOW = 10.0  # seconds, the least that a function marked `slow` takes
WORTH = 1.0  # seconds of all cases from which on a function is written down
PRINTED = 10.0  # seconds from which on a file is named at the end of --times
HEAD = """\
# Seconds of one core of all cases of a test function, of its first and last case, and its name (tests/support/fast.py).
# Written by `pytest --times`. Functions that take less are not listed.
"""


def listed(path: Path | None = None) -> dict[str, tuple[float, float]]:
    """Function -> seconds of all its cases, and of the first and last, of a file (default: TIMES)."""
    path = path or TIMES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: (float(whole), float(ends)) for whole, ends, name in rows}


def pytest_addoption(parser):
    parser.addoption(
        "--fast", action="store_true", help="only quick tests, and the first and last case of each test function"
    )
    parser.addoption(
        "--times", action="store_true", help="write what the tests that run took to tests/support/times.txt"
    )


def pytest_configure(config):
    if config.getoption("--times"):
        config.pluginmanager.register(Stopwatch(config), "stopwatch")


def pytest_collection_modifyitems(config, items):
    known = listed()
    if config.getoption("--fast"):
        cases: dict[str, list] = {}
        for item in items:
            name = item.nodeid.partition("[")[0]
            marked = item.get_closest_marker("slow") or item.get_closest_marker("engine")
            if not marked and known.get(name, (0, 0))[1] <= QUICK:
                cases.setdefault(name, []).append(item)
        kept = {item for alike in cases.values() for item in (alike[: CASES - 1] + alike[-1:])}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    longest_first(items, {name: seconds[config.getoption("--fast")] for name, seconds in known.items()})


def longest_first(items, seconds):
    """Sort tests by what their files take by `seconds` of functions; a file stays whole, what is not listed in its order.
    A new file, which nobody measured yet, takes ten seconds for each of its functions that are marked slow."""
    of_file: dict[str, float] = defaultdict(float)
    for name, some in seconds.items():
        of_file[name.partition("::")[0]] += some
    slow = {i.nodeid.partition("[")[0] for i in items if i.get_closest_marker("slow")}
    new = [file for file in (name.partition("::")[0] for name in slow) if file not in of_file]
    for file in new:
        of_file[file] += SLOW
    items.sort(key=lambda item: -of_file[item.nodeid.partition("::")[0]])


class Stopwatch:
    """What each test takes of a core: its process's time and that of the children it waited for; a fifth of the clock
    where that is more, for what other processes do. Under pytest-xdist each worker measures, and the process that hands
    out the tests writes."""

    def __init__(self, config):
        self.config = config
        self.took: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        core, clock = _core(), time.monotonic()
        yield
        self.took[item.nodeid.partition("[")[0]].append(max(_core() - core, (time.monotonic() - clock) / 5))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        for name, each in getattr(node, "workeroutput", {}).get("times", {}).items():
            self.took[name] += each

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["times"] = dict(self.took)
            return
        files = {name.partition("::")[0] for name in self.took}
        rows = {name: two for name, two in listed().items() if name.partition("::")[0] not in files}
        rows |= {
            name: (sum(each), sum({0: each[0], len(each) - 1: each[-1]}.values())) for name, each in self.took.items()
        }
        write(rows)

    def pytest_terminal_summary(self, terminalreporter):
        of_file: dict[str, float] = defaultdict(float)
        for name, each in self.took.items():
            of_file[name.partition("::")[0]] += sum(each)
        terminalreporter.section("seconds of one core")
        for file, seconds in sorted(of_file.items(), key=lambda x: -x[1]):
            if seconds >= PRINTED:
                terminalreporter.line(f"{seconds:8.1f} {file}")
        terminalreporter.line(f"{sum(of_file.values()):8.1f} all {len(of_file)} files, without collecting them")


def write(rows: dict[str, tuple[float, float]], path: Path | None = None) -> None:
    kept = {name: two for name, two in rows.items() if two[0] >= WORTH or two[1] > QUICK}
    lines = [
        f"{whole:.2f} {ends:.2f} {name}\n"  # 0.31 is over QUICK, and read again
        for name, (whole, ends) in sorted(kept.items(), key=lambda x: (-x[1][0], x[0]))
    ]
    (path or TIMES).write_text(HEAD + "".join(lines), encoding="utf-8")


def _core() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + _forked()


def _forked() -> float:
    """Seconds of the server that forks stages for tests (`small.begun`) and of its children, for which nobody here
    waits."""
    server = forkserver._forkserver._forkserver_pid
    try:
        return sum(psutil.Process(server).cpu_times()[:4]) if server else 0.0
    except psutil.NoSuchProcess:
        return 0.0
