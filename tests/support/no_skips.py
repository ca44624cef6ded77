"""`pytest --no-skips`: a test that is skipped fails, unless `allowed_skips.toml` beside this file names the reason.

A skipped test says nothing, and in a list of thousands of dots nobody sees it. In CI all that can be installed is
installed, so a skip there means that something is missing.
"""

import tomllib
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.toml")


def pytest_addoption(parser):
    parser.addoption(
        "--no-skips",
        action="store_true",
        help=f"fail where a test is skipped for a reason that is not in {ALLOWED.name}",
    )


def allowed(path: Path = ALLOWED) -> list[str]:
    """The parts of reasons for which a test may be skipped. Raises ValueError where an entry is incomplete."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("skip", [])
    for entry in entries:
        if set(entry) != {"reason", "why"} or not all(isinstance(v, str) and v.strip() for v in entry.values()):
            raise ValueError(f"{path}: give each [[skip]] a `reason` and a `why`, and nothing else: {entry}")
    return [entry["reason"] for entry in entries]


def _judged(report, config) -> None:
    """Turn the report of a skip into that of a failure, in place, unless its reason is allowed."""
    if not (config.getoption("--no-skips") and report.skipped) or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(part in reason for part in allowed()):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped, which --no-skips forbids: {reason.removeprefix('Skipped: ')}\n"
            f"Install what it needs (.ci/run does), or, where that is impossible, add the reason to {ALLOWED}."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _judged(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A whole file may be skipped while it is imported (`importorskip`)."""
    report = yield
    _judged(report, collector.config)
    return report
