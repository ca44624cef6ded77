"""What a lent GPU would run: every command of benchmarks/gpu_day.sh is there, names cases that are there, and a part
that hangs or fails loses itself alone."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_day.sh"
TEN_MINUTES = 600


def plan() -> list[tuple[int, str, list[str]]]:
    """Seconds, name and words of each part."""
    done = subprocess.run([str(SCRIPT), "--plan"], capture_output=True, text=True, check=True)
    parts = [line.split("|", 2) for line in done.stdout.splitlines()]
    return [(int(limit), name, shlex.split(command)) for limit, name, command in parts]


def test_every_command_exists_and_names_a_case() -> None:
    from benchmarks import crossover, learner

    cases = {
        "benchmarks.learner": [
            *learner.CUDA_HEADS,
            *(f"{s}, {n}" for n in learner.CUDA_VOCABULARIES for s in learner.SHAPES),
        ],
        "benchmarks.crossover": [f"{k} {s}" for s in crossover.ON_GPU for k in crossover.PROVIDERS],
    }
    reached = set()
    for _, name, (_, how, what, *rest) in plan():
        if how == "-c":
            ast.parse(what)
        elif what == "pytest":
            assert all((ROOT / x).exists() for x in rest if x.startswith("tests/")), name
        else:
            assert hasattr(import_module(what), "main")
            options = dict(zip(rest[::2], rest[1::2], strict=True))
            assert set(options) <= {"--only", "--turns", "--device"}
            named = {c for c in cases[what] if options["--only"] in c}
            assert named, f"{name}: no case holds {options['--only']!r}"
            reached |= named
    assert reached == {c for held in cases.values() for c in held}, "cases for a GPU that no part measures"


def test_a_rehearsal_runs_the_same_modules_and_writes_no_results_of_ours(tmp_path: Path) -> None:
    """A stand-in for Python that notes what it was asked."""
    fake = tmp_path / "python"
    fake.write_text(f'#!/usr/bin/env bash\necho "$@" >>{tmp_path}/asked\n', encoding="utf-8")
    fake.chmod(0o755)
    out, env = tmp_path / "out", {**os.environ, "PYTHON": str(fake)}
    subprocess.run([str(SCRIPT), "--rehearse", str(out)], env=env, check=True, capture_output=True)
    commands = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    real = {words[2] for *_, words in plan()}
    assert {words[1] for words in commands if words[0] == "-m"} == {m for m in real if not m.startswith("import")}
    assert all(f"--results {out}" in " ".join(w) for w in commands if w[1].startswith("benchmarks."))
    assert all("cuda" not in w for w in commands if w[0] == "-m") and {p.name for p in out.iterdir()} >= {"parts.json"}
    from benchmarks import crossover, learner

    known = [*(f"{k} {s}" for s in crossover.SIZES for k in crossover.PROVIDERS)]
    known += [
        *(f"dpo {h}" for h in learner.HEADS),
        *(f"{s}, {n}" for n in learner.VOCABULARIES for s in learner.SHAPES),
    ]
    for words in commands:
        if "--only" in words:
            at = words.index("--only") + 1
            end = next((i for i in range(at, len(words)) if words[i].startswith("--")), len(words))
            assert any(" ".join(words[at:end]) in case for case in known), words


def test_a_part_that_hangs_or_fails_loses_itself_alone(tmp_path: Path) -> None:
    """A stand-in for Python: the first part hangs beyond its limit, the second fails, the rest say their words."""
    fake = tmp_path / "python"
    fake.write_text(
        '#!/usr/bin/env bash\n[ "$1" = -c ] && sleep 60\n[ "$2" = pytest ] && exit 3\necho "$@"\n', encoding="utf-8"
    )
    fake.chmod(0o755)
    script = tmp_path / "benchmarks" / "gpu_day.sh"
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text(encoding="utf-8").replace('"20|device', '"5|device'), encoding="utf-8")
    env = {**os.environ, "PYTHON": str(fake)}
    done = subprocess.run(
        ["bash", str(script), str(tmp_path / "out")], env=env, check=True, capture_output=True, text=True
    )
    told = {p["part"]: p["code"] for p in json.loads((tmp_path / "out" / "parts.json").read_text())}
    assert list(told) == [name for _, name, _ in plan()]
    assert told.pop("device") == "124" and told.pop("kernels") == "3"
    assert set(told.values()) == {"0"}, done.stdout
    assert "crossover" in (tmp_path / "out" / "steps-600M.log").read_text()


def test_without_time_nothing_more_is_begun(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHON": "false", "BUDGET": "0"}
    subprocess.run(["bash", str(SCRIPT), str(tmp_path / "out")], env=env, check=True, capture_output=True)
    told = json.loads((tmp_path / "out" / "parts.json").read_text())
    assert {p["code"] for p in told} == {"no-time"} and len(told) == len(plan())


def test_its_limits_leave_room_within_ten_minutes() -> None:
    assert "budget=${BUDGET:-570}" in SCRIPT.read_text(encoding="utf-8") and 570 + 5 < TEN_MINUTES
    assert all(5 < limit <= 180 for limit, _, _ in plan())
