"""Four layers and the floors within them, one direction: parses every import and fails on an arrow that is not drawn in
ARCHITECTURE.md."""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARROWS = {  # package -> what it may import of ours
    "flows": ("flows", "tasks"),
    "tasks": ("tasks", "synth", "training"),
    "synth": ("synth",),
    "training": ("training", "synth.types", "synth.verify", "synth.pictures"),
}
ALONE = {  # who alone may import it
    "mlflow": {
        "tasks/tracking/observe.py",
        "tasks/tracking/models.py",
        "tasks/results/promote.py",
        "tasks/tracking/ui.py",
    },
    "dvc": {"tasks/runtime/dvc_process.py"},  # which is that process; tasks/runtime/dvc.py starts it
    "ray": {"tasks/runtime/cluster.py"},
    "prefect": {
        "tasks/runtime/prefect_shim.py",
        "tasks/schedule/app.py",
        "tasks/schedule/server.py",
        "tasks/schedule/deployments.py",
        "tasks/schedule/sweeps.py",
        "flows/pipeline.py",
        "flows/champion.py",
        "flows/elsewhere.py",
        "flows/leaderboard.py",
    },
}
# The rooms of each package by floor, the ground first: a room may import rooms of lower floors, and itself.
FLOORS = {
    "training": ("types", "metrics model env", "lm_head", "learner", "rollout", "rl preference decode"),
    "synth": (
        "types quantities sandbox lookup in_order",
        "external scenes pictures",
        "verify knowledge",
        "families preferences",
        "questions selfplay testsets",
        "search",
        "demonstrations",
    ),
    "tasks": (
        "core",
        "storage pages",
        "serving",
        "planning",
        "runtime",
        "rows knowledge tracking evaluation models schedule",
        "problems run",
        "stages",
        "results lab export",
    ),
}
HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "pandas",
    "pandera",
    "mlflow",
    "prefect",
    "vllm",
    "sklearn",
    "matplotlib",
    "numpy",
    "pyarrow",
}
FORBIDDEN_CALLS = {"eval", "exec"}
SANDBOX = {  # running code is its purpose: the parent sends its own to the child, which runs the model's in an empty environment
    "synth/sandbox/parent.py": {"marshal"},
    "synth/sandbox/child.py": {"exec", "environ"},
    "synth/sandbox/probe.py": {"environ"},
}
FILES = sorted(p for package in ARROWS for p in (ROOT / package).rglob("*.py"))


@cache
def imports(text):
    """(module, line, whether it runs when the file is imported) of every import of a file; three tests ask of each."""
    return list(found_imports(ast.parse(text)))


def found_imports(tree):
    inside = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names]
        else:
            continue
        for name in names:
            yield name, node.lineno, id(node) not in inside


def faults(path, text):
    """What a file of the project does that its layer may not."""
    name = path.relative_to(ROOT).as_posix()
    package = name.split("/")[0]
    allowed = SANDBOX.get(name, set())
    tree = ast.parse(text)
    for module, line, at_import in imports(text):
        first = module.split(".")[0]
        if first in ARROWS and not any(module == a or module.startswith(f"{a}.") for a in ARROWS[package]):
            yield f"{name}:{line} imports {module}: no arrow from {package} to it"
        if first in ALONE and name not in ALONE[first]:
            yield f"{name}:{line} imports {first}, which {' and '.join(sorted(ALONE[first])) or 'nobody'} may"
        if (
            package == "flows"
            and at_import
            and first in HEAVY
            and not (first == "prefect" and name in ALONE["prefect"])
        ):
            yield f"{name}:{line} imports {first} at module level: a flow file must import fast"
        if first in ("pickle", "dill", "cloudpickle", "shelve", "marshal") and first not in allowed:
            yield f"{name}:{line} imports {first}: loading it runs code"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS - allowed:
            yield f"{name}:{node.lineno} calls {node.func.id}"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{name}:{node.lineno} has a bare except"
        if (
            package in ("synth", "training")
            and isinstance(node, ast.Attribute)
            and node.attr in {"environ", "getenv"} - allowed
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        ):
            yield f"{name}:{node.lineno} reads the environment: a library takes arguments"


def rooms(package):
    """Room -> the rooms of the same package that its files import."""
    out = {}
    for path in (ROOT / package).rglob("*.py"):
        parts = path.relative_to(ROOT / package).parts
        for module, _, _ in imports(path.read_text(encoding="utf-8")):
            names = module.split(".")
            room = parts[0].removesuffix(".py")
            if names[0] == package and len(names) > 1 and names[1] != room and room != "__init__":
                out.setdefault(room, set()).add(names[1])
    return out


@pytest.mark.parametrize("package", FLOORS)
def test_a_room_imports_only_from_lower_floors(package):
    floor = {room: i for i, names in enumerate(FLOORS[package]) for room in names.split()}
    places = {
        p.name.removesuffix(".py")
        for p in (ROOT / package).iterdir()
        if not p.name.startswith("__") and p.name != "py.typed"
    }
    assert places == set(floor), "a new room needs a floor"
    wrong = [f"{a} -> {b}" for a, seen in rooms(package).items() for b in seen if b in floor and floor[a] <= floor[b]]
    assert not wrong, f"{package}: {', '.join(sorted(wrong))} run up or along a floor"


@pytest.mark.parametrize("package", FLOORS)
def test_the_page_has_the_rooms_and_arrows_of_today(package):
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    told = re.search(rf"\| `{package}` \| (\d+) \| (\d+) \| 0 \| 0 \|", page)
    arrows = sum(map(len, rooms(package).values()))
    assert told and [int(n) for n in told.groups()] == [len(" ".join(FLOORS[package]).split()), arrows]


def test_no_files_import_each_other_in_a_circle():
    known = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}
    arrows = {
        name: {m if m in known else m.rpartition(".")[0] for m, _, _ in imports(p.read_text("utf-8"))}
        for name, p in known.items()
    }
    left = {name: {m for m in seen if m in known and m != name} for name, seen in arrows.items()}
    while free := [name for name, seen in left.items() if not seen]:
        for name in free:
            del left[name]
        left = {name: seen - set(free) for name, seen in left.items()}
    assert not left, f"these import each other in a circle, or what is in one: {sorted(left)}"


@pytest.mark.parametrize("package", ARROWS)
def test_layers(package):
    problems = [f for p in FILES if p.is_relative_to(ROOT / package) for f in faults(p, p.read_text(encoding="utf-8"))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "where, text",
    [
        ("synth/x.py", "from training.types import Batch"),
        ("synth/x.py", "from tasks import run"),
        ("training/x.py", "import synth.knowledge.kb"),
        ("training/x.py", "from synth.questions import pattern as tree"),
        ("training/x.py", "def f():\n    import flows.plan"),
        ("tasks/x.py", "from flows.cli import main"),
        ("tasks/x.py", "import mlflow"),
        ("flows/x.py", "import torch"),
        ("flows/x.py", "from synth.types import digest"),
        ("synth/x.py", "import os\nos.environ['x']"),
        ("tasks/x.py", "try:\n    pass\nexcept:\n    pass"),
        ("training/x.py", "eval('1')"),
        ("training/x.py", "import pickle"),
    ],
)
def test_the_test_sees_what_it_should(where, text):
    assert list(faults(ROOT / where, text))


def test_drawn_arrows_pass():
    assert not list(
        faults(ROOT / "flows/x.py", "from tasks.runtime.prefect_shim import flow\ndef f():\n    import json")
    )
    assert not list(
        faults(ROOT / "training/x.py", "from synth.types import Problem\nfrom synth.verify import verify\nimport torch")
    )


def test_every_test_file_has_a_name_of_its_own():
    """pytest imports them by their bare names: of two that share one, the second is an error of collection."""
    places = sorted((p.name, str(p.relative_to(ROOT))) for p in (ROOT / "tests").rglob("test_*.py"))
    shared = [(a, b) for (one, a), (two, b) in pairwise(places) if one == two]
    assert places and not shared, shared


def test_no_import_of_ours_sets_the_environment_of_who_imports_it():
    """Tests import benchmarks, all in one process: a variable that one sets at import is everybody's."""
    places = []
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            reads = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr == "environ"]
            if reads and isinstance(node, ast.Assign | ast.Expr):
                places.append(f"{path.name}:{node.lineno}")
    assert not places, f"set it where the benchmark is run: {places}"
