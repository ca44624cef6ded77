"""The facts of source files that the plan keeps between commands: the same plan with and without them."""

import json
import os
import subprocess
import sys

import pytest

from tasks.core.paths import CODE
from tasks.planning import facts

PLAN = """
import json, sys
from pathlib import Path
from tasks.planning import code, facts, plan
parsed = []
parse, code.parse = code.parse, lambda data, **how: parsed.append(how) or parse(data, **how)
print(json.dumps([plan.plans(Path(sys.argv[1]), to_run=False), len(parsed)]))
"""


def planned(root, cache):
    """The plan that another process makes, and how many files it parsed."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "HOME": str(cache), "PYTHONPATH": str(CODE)}
    env.pop("ESPALIER_PATH", None)
    out = subprocess.run(
        [sys.executable, "-c", PLAN, str(root)], cwd=root, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(out.stdout)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pieces/advantage").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text("set: {rl: {advantage: mine}}\n")
    (tmp_path / "pieces/advantage/mine.py").write_text("def mine(groups, *, eps: float = 1e-5): ...\n")
    return tmp_path


def test_a_second_process_parses_little_and_plans_the_same(root):
    cache = root / "cache"
    first, cold = planned(root, cache)
    second, warm = planned(root, cache)
    assert first == second
    assert cold > 300 and warm < cold / 4
    mine = root / "pieces/advantage/mine.py"
    stat = mine.stat()
    mine.write_text("def mine(groups, *, eps: float = 2e-5):\n    import synth.search.bm25\n")
    os.utime(mine, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # its bytes count, not its time
    edited, _ = planned(root, cache)
    assert edited["rl"]["params"]["advantage"]["eps"] == 2e-5
    assert "synth/search/bm25.py" in edited["rl"]["sources"]
    (kept,) = cache.rglob("sources-*.json")
    assert facts._read(kept)
    for damage in (b"", b"{}", kept.read_bytes()[:-1], kept.read_bytes().replace(b"bm25", b"bm26")):
        kept.write_bytes(damage)
        assert facts._read(kept) == {}
    assert planned(root, cache)[0] == edited


def test_a_cache_that_cannot_be_written_is_none(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(facts, "_path", lambda: tmp_path / "file/sources.json")
    monkeypatch.setattr(facts, "_learned", {"x"})
    facts.save()
    assert not (tmp_path / "file").read_text()


def test_the_cache_keeps_what_was_used_last(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "_path", lambda: tmp_path / "sources.json")
    monkeypatch.setattr(facts, "FILES", 2)
    for digest in "abca":
        monkeypatch.setattr(facts, "_used", {digest: [[digest]] * 5})
        monkeypatch.setattr(facts, "_learned", {digest})
        facts.save()
    assert list(facts._read(tmp_path / "sources.json")) == ["c", "a"]
