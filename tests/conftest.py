"""What holds for all tests.

No test is timed: a deadline of Hypothesis fails on a busy machine and says nothing about the code. In CI Hypothesis
draws the same examples each time, so that a commit is judged by what it changed; new examples are looked for by hand
(`make test`, where what fails is kept in .hypothesis). And Ctrl-C can be
tested where the tests themselves run in the background: a shell starts background jobs with SIGINT ignored, and the
processes that they start inherit that.
"""

import atexit
import gc
import os
import signal

# What is imported stays, so looking for garbage meanwhile finds none: a sixth of the time to collect all tests. It begins
# with the tests (`pytest_runtestloop`).
gc.disable()

# Read when torch is loaded: threads that wait sleep. By default they spin, which costs many times the work itself where
# two workers of two threads each share two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import pytest
import torch
from hypothesis import settings

pytest_plugins = ["no_skips", "fast"]  # of tests/support: --no-skips, --fast
THREADS = 2  # of the profile cpu
settings.register_profile("untimed", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """What is imported and collected by now stays, so the garbage collector need not look at it: a tenth of the time. At
    exit it does again, or libraries say that objects of theirs are left."""
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    gc.enable()  # in the process that hands tests to workers too, which collects none


@pytest.fixture(params=["compiled", "torch"])
def either_way(request, monkeypatch):
    """The test runs twice: with the compiled code of training/model/native, and as where there is no compiler."""
    from training.model.native import build

    if request.param == "torch":
        monkeypatch.setattr(build, "_made", lambda: (None, "turned off for a test"))
    elif build.library() is None:
        pytest.skip(f"no compiled code: {build.why_not()}")
    return request.param


@pytest.fixture(autouse=True)
def two_threads():
    """However many cores there are, and whatever a test or a fixture of a whole file made of it: the last bit of a
    product depends on it."""
    if torch.get_num_threads() != THREADS:
        torch.set_num_threads(THREADS)
