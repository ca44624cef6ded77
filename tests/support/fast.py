"""`pytest --fast` (`make test-fast`): the quick test functions, the many cases of one by its first and last.

Left out are the tests marked `slow` or `engine`, the functions named in `not_fast.txt` beside this file (over 1.5 seconds
of one core, measured), and the cases in between. Every package keeps most of its tests; CI runs everything.
"""

from pathlib import Path

LEFT_OUT = frozenset(
    line.strip()
    for line in Path(__file__).with_name("not_fast.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
)
CASES = 2  # of one function


def pytest_addoption(parser):
    parser.addoption(
        "--fast", action="store_true", help="only quick tests, and the first and last case of each test function"
    )


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--fast"):
        return
    cases: dict[str, list] = {}
    for item in items:
        marked = item.get_closest_marker("slow") or item.get_closest_marker("engine")
        if not marked and getattr(item, "originalname", item.name) not in LEFT_OUT:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for found in cases.values() for item in (found[: CASES - 1] + found[-1:])}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
