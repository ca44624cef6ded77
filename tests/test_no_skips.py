"""`--no-skips` fails on each kind of skip, in tests and while files are imported, and lets the listed reasons pass; `--fast`
selects what it says."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fast
import no_skips
import pytest

TESTS = Path(no_skips.__file__).parents[1]

CASES = {
    "in_a_test": ("import pytest\ndef test(): pytest.skip('no fish here')\n", "no fish here"),
    "by_a_mark": (
        "import pytest\n@pytest.mark.skipif(True, reason='no fish here')\ndef test(): pass\n",
        "no fish here",
    ),
    "in_a_fixture": (
        "import pytest\n@pytest.fixture\ndef f(): pytest.skip('no fish here')\ndef test(f): pass\n",
        "no fish here",
    ),
    "at_import": ("import pytest\npytest.importorskip('fish_' + 'none')\ndef test(): pass\n", "fish_none"),
    "allowed": ("import pytest\ndef test(): pytest.skip('there is no CUDA device')\n", None),
    "expected_failure": ("import pytest\n@pytest.mark.xfail\ndef test(): assert False\n", None),
    "nothing_skipped": ("def test(): pass\n", None),
}


def run(folder: Path, source: str, *options: str):
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no_skips", "-p", "no:cacheprovider", *options, "test_it.py"]
    env = {"PYTHONPATH": str(Path(no_skips.__file__).parent), "PATH": "/usr/bin:/bin"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of other packages take longer to import than the tests to run
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("case", CASES)
def test_a_skip_is_a_failure_unless_its_reason_is_listed(case, tmp_path):
    source, seen = CASES[case]
    done = run(tmp_path, source, "--no-skips")
    assert (done.returncode == 0) == (seen is None), done.stdout
    if seen:
        assert "which --no-skips forbids" in done.stdout and seen in done.stdout


def test_without_the_option_a_skip_is_a_skip(tmp_path):
    assert "1 skipped" in run(tmp_path, CASES["in_a_test"][0]).stdout


def test_each_allowed_reason_says_why(tmp_path):
    assert no_skips.allowed()
    (tmp_path / "list.toml").write_text('[[skip]]\nreason = "no fish"\n')
    with pytest.raises(ValueError, match="give each"):
        no_skips.allowed(tmp_path / "list.toml")


def test_fast_keeps_each_quick_function_and_its_first_and_last_case(tmp_path):
    source = """
import pytest
@pytest.mark.parametrize("i", range(5))
def test_many(i): print("ran many", i)
@pytest.mark.parametrize("i", range(1))
def test_single(i): print("ran single", i)
def test_plain(): print("ran plain")
@pytest.mark.slow
def test_slow(): print("ran slow")
@pytest.mark.engine
def test_engine(): print("ran engine")
class TestIn:
    def test_plain(self): print("ran inner")
"""
    done = run(tmp_path, source, "-p", "fast", "--fast", "-s", "-q", "-W", "ignore")
    ran = [line.partition("ran ")[2] for line in done.stdout.splitlines() if "ran " in line]
    assert ran == ["many 0", "many 4", "single 0", "plain", "inner"], done.stdout
    assert "5 passed, 5 deselected" in done.stdout


def test_the_functions_whose_time_is_listed_exist():
    known = fast.listed()
    assert len(known) > 50
    for name in known:
        path, _, function = name.partition("::")
        assert f"def {function.rpartition('::')[2]}(" in (TESTS.parent / path).read_text(encoding="utf-8"), (
            f"{name} is gone: take its line out of tests/support/times.txt"
        )


def test_files_that_take_long_begin_first():
    def items(*names, slow=()):
        return [SimpleNamespace(nodeid=n, get_closest_marker=lambda mark, n=n: n in slow or None) for n in names]

    tests = items("a.py::x", "b.py::x", "b.py::y[1]", "c.py::x", "d.py::x")
    fast.longest_first(tests, {"c.py::x": 9.0, "b.py::x": 5.0, "b.py::y": 6.0})
    assert [t.nodeid for t in tests] == ["b.py::x", "b.py::y[1]", "c.py::x", "a.py::x", "d.py::x"]
    tests = items("a.py::x", "c.py::x", "d.py::x", "d.py::y", slow=("d.py::y",))
    fast.longest_first(tests, {"c.py::x": 9.0})
    assert [t.nodeid for t in tests] == ["d.py::x", "d.py::y", "c.py::x", "a.py::x"], "marked slow and not measured yet"


def test_times_are_written_of_what_takes_time(tmp_path):
    path = tmp_path / "times.txt"
    fast.write({"a.py::x": (0.9, 0.2), "a.py::many": (7.0, 0.1), "b.py::y": (0.31, 0.31)}, path)
    assert fast.listed(path) == {"a.py::many": (7.0, 0.1), "b.py::y": (0.31, 0.31)}


@pytest.mark.parametrize("how", [("-p", "no:xdist"), ("-p", "xdist", "-n", "2", "--dist", "loadfile")])
def test_times_are_measured_with_and_without_workers(how, tmp_path):
    (tmp_path / "here.py").write_text("import fast, pathlib\nfast.TIMES = pathlib.Path('times.txt').absolute()\n")
    (tmp_path / "times.txt").write_text("7.0 7.0 test_it.py::test_gone\n8.0 8.0 test_other.py::test_stays\n")
    busy = "import time, pytest\ndef work():\n    end = time.process_time() + 0.4\n    while time.process_time() < end: pass\n"
    source = f"{busy}@pytest.mark.parametrize('i', range(3))\ndef test_many(i): work()\ndef test_quick(): pass\n"
    done = run(tmp_path, source, "-p", "fast", "-p", "here", "--times", "-q", *how)
    known = fast.listed(tmp_path / "times.txt")
    assert set(known) == {"test_it.py::test_many", "test_other.py::test_stays"}, done.stdout + done.stderr
    whole, ends = known["test_it.py::test_many"]
    assert whole >= 1.2 and 0.8 <= ends < whole
    assert "all 1 files" in done.stdout
