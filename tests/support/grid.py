"""A project whose graph is two small scripts: for tests of sweeps, where the graph is not what is tested."""

import shutil
from pathlib import Path

import toy

PLAN = """
import json, pathlib, yaml
p = yaml.safe_load(open("params.yaml"))
out = pathlib.Path("artifacts/plan")
out.mkdir(parents=True, exist_ok=True)
(out / "_run.json").write_text(json.dumps({"recipe": "grpo", "profile": "cpu", "seed": p["seed"]}))
(out / "evaluate.json").write_text(json.dumps({"stage": "evaluate", "params": p.get("set") or {}, "seed": p["seed"]}))
"""
EVALUATE = """
import json, os, pathlib, signal, sys, time
p = json.loads(pathlib.Path("artifacts/plan/evaluate.json").read_text())
lr = p["params"].get("rl", {}).get("optimizer", {}).get("lr", 0.0)
for name in (f"kill-{lr}-{p['seed']}", f"fail-{lr}-{p['seed']}"):
    mark = pathlib.Path(os.environ["MARKS"]) / name
    if mark.exists():
        mark.unlink()
        if name.startswith("kill"):
            os.killpg(0, signal.SIGKILL)
        sys.exit(f"error: evaluate: lr {lr} does not go")
out = pathlib.Path("artifacts/evaluate")
out.mkdir(parents=True, exist_ok=True)
mean = lr + p["seed"] / 100
(out / "metrics.json").write_text(json.dumps({"models": {"rl": {"pass@1": {"mean": mean}}}}))
"""
GRAPH = """
stages:
  plan:
    cmd: python plan.py
    params: [params.yaml: ]
    deps: [plan.py]
    outs: [artifacts/plan]
  evaluate:
    cmd: python evaluate.py
    deps: [evaluate.py, artifacts/plan/evaluate.json]
    outs: [artifacts/evaluate]
"""


def project(root: Path) -> Path:
    """A committed repository at `root`; nothing has run."""
    (root / ".dvc").mkdir(parents=True)
    for name in (".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        shutil.copy(toy.CODE / name, root / name)
    files = {"plan.py": PLAN, "evaluate.py": EVALUATE, "dvc.yaml": GRAPH, ".gitignore": "/artifacts\n/.espalier\n"}
    for name, text in {**files, "params.yaml": "seed: 0\nset: {}\n"}.items():
        (root / name).write_text(text)
    toy.git(root, "init", "-q")
    toy.git(root, "add", "-A")
    toy.git(root, "commit", "-qm", "start")
    return root
