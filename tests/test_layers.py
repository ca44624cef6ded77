"""Four layers, one direction: parses every import and fails on an arrow that is not drawn in ARCHITECTURE.md."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARROWS = {  # package -> what it may import of ours
    "flows": ("flows", "tasks"),
    "tasks": ("tasks", "synth", "training"),
    "synth": ("synth",),
    "training": ("training", "synth.types", "synth.verify"),
}
ALONE = {  # who alone may import it
    "mlflow": {"tasks/tracking/observe.py", "tasks/tracking/promote.py"},
    "dvc": set(),  # tasks/dvc.py runs it as a process
    "prefect": {"tasks/run.py", "tasks/schedule/server.py", "tasks/schedule/deployments.py", "flows/pipeline.py", "flows/champion.py",
                "flows/leaderboard.py"},  # fmt: skip
}
HEAVY = {"torch", "transformers", "datasets", "pandas", "pandera", "mlflow", "prefect", "vllm", "sklearn", "matplotlib", "numpy", "pyarrow"}
FORBIDDEN_CALLS = {"eval", "exec"}
FILES = sorted(p for package in ARROWS for p in (ROOT / package).rglob("*.py"))


def imports(tree):
    """(module, line, whether it runs when the file is imported) of every import."""
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for n in ast.walk(f)}
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
    tree = ast.parse(text)
    for module, line, at_import in imports(tree):
        first = module.split(".")[0]
        if first in ARROWS and not any(module == a or module.startswith(f"{a}.") for a in ARROWS[package]):
            yield f"{name}:{line} imports {module}: no arrow from {package} to it"
        if first in ALONE and name not in ALONE[first]:
            yield f"{name}:{line} imports {first}, which {' and '.join(sorted(ALONE[first])) or 'nobody'} may"
        if package == "flows" and at_import and first in HEAVY and not (first == "prefect" and name in ALONE["prefect"]):
            yield f"{name}:{line} imports {first} at module level: a flow file must import fast"
        if first in ("pickle", "dill", "cloudpickle", "shelve", "marshal"):
            yield f"{name}:{line} imports {first}: loading it runs code"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            yield f"{name}:{node.lineno} calls {node.func.id}"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{name}:{node.lineno} has a bare except"
        if (
            package in ("synth", "training")
            and isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv")
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        ):
            yield f"{name}:{node.lineno} reads the environment: a library takes arguments"


@pytest.mark.parametrize("package", ARROWS)
def test_layers(package):
    found = [f for p in FILES if p.is_relative_to(ROOT / package) for f in faults(p, p.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "where, text",
    [
        ("synth/x.py", "from training.types import Batch"),
        ("synth/x.py", "from tasks import run"),
        ("training/x.py", "import synth.kb"),
        ("training/x.py", "from synth import tree"),
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
    assert not list(faults(ROOT / "flows/x.py", "from tasks.run import flow\ndef f():\n    import json"))
    assert not list(faults(ROOT / "training/x.py", "from synth.types import Problem\nfrom synth.verify import verify\nimport torch"))
