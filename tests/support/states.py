"""A project with two states, as DVC leaves them: outputs on disk, dvc.lock, and the cache under MD5 names, in a git
repository."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import yaml
from sealed import seal

from synth.families.linear_equations import linear_equations
from synth.preferences.cleaning import Judgement
from synth.types import Decision, Demonstration, Message, PreferencePair, Problem, Quarantined, digest
from tasks.storage import tables

DEPS = {
    "problems": [],
    "demonstrations": ["problems"],
    "preferences": ["problems"],
    "clean": ["preferences"],
    "sft": ["demonstrations"],
    "prefer": ["clean", "sft"],
    "rl": ["problems", "sft"],
    "evaluate": ["rl", "sft", "prefer"],
}


def git(root, *args):
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", *who, *args], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def problems(n=6):
    drawn = [p for p in (linear_equations(0, "train", i) for i in range(60)) if isinstance(p, Problem)]
    return list({p.id: p for p in drawn}.values())[:n]


def write(root: Path, *, lr: float, right: set[int], n: int = 6) -> None:
    """Outputs of every stage; `right`: indices of the questions that rl answers."""
    at, given = root / "artifacts", problems(n)
    for stage in DEPS:
        plan = {
            "params": {"optimizer": {"lr": lr}} if stage == "rl" else {},
            "sources": {"training/x.py": f"{lr}" if stage == "rl" else "1"},
            "seed": 0,
        }
        _json(at / f"plan/{stage}.json", plan)
    _json(at / "plan/_run.json", {"recipe": "grpo", "profile": "cpu", "seed": 0})
    tables.write(at / "problems/problems.parquet", given, Problem)
    quarantined = Quarantined(
        id="linear_equations/train/99",
        stage="problems",
        reason="duplicate",
        evidence="Solve 1x + 1 = 2. is made before",
    )
    tables.write(at / "problems/quarantine.parquet", [quarantined], Quarantined)
    talks = [[*p.prompt, Message(role="assistant", content=p.lineage["solution"])] for p in given]
    shown = [Demonstration.make(problem=p.id, messages=m, split="train") for p, m in zip(given, talks, strict=True)]
    tables.write(at / "demonstrations/demonstrations.parquet", shown, Demonstration)
    kept, gone = (pair(given[i], d) for i, d in ((0, ("ask", "unsure", 0.5)), (1, ("remove", "label_error", 0.1))))
    tables.write(at / "preferences/pairs.parquet", [pair(given[0]), pair(given[1])], PreferencePair)
    tables.write(at / "clean/pairs.parquet", [kept], PreferencePair)
    tables.write(at / "clean/removed.parquet", [gone], PreferencePair)
    tables.write(
        at / "clean/decisions.parquet", [Judgement(id=p.id, **vars(p.decisions[0])) for p in (kept, gone)], Judgement
    )
    cards = {
        "problems": {"produced": n + 1, "accepted": n, "quarantined": {"duplicate": 1}},
        "clean": {
            "produced": 2,
            "accepted": 1,
            "quarantined": {"label_error": 1},
            "actions": {"judge: ask": 1, "judge: remove": 1},
        },
        "sft": {"trained_on": digest([t.id for t in shown])},
        "prefer": {"trained_on": digest([kept.id])},
        "rl": {"trained_on": digest([p.id for p in given])},
        "evaluate": {"held_out": digest([p.id for p in given])},
    }
    for stage in DEPS:
        _json(at / stage / "card.json", {"stage": stage, **cards.get(stage, {})})
    plan = json.loads((at / "plan/rl.json").read_text())
    _json(at / "plan/rl.json", {**plan, "params": {**plan["params"], "include_families": True}})
    rows = [
        {
            "run": r,
            "model": r,
            "blanked": False,
            "family": p.family,
            "problem": p.id,
            "sample": s,
            "score": float(r == "rl" and i in right),
            "outcome": "right" if r == "rl" and i in right else "wrong",
        }
        for r in ("sft", "rl")
        for i, p in enumerate(given)
        for s in (0, 1)
    ]
    (at / "evaluate").mkdir(exist_ok=True)
    pd.DataFrame(rows).to_parquet(at / "evaluate/scores.parquet")
    with (at / "evaluate/episodes.jsonl").open("w") as f:
        for i, p in enumerate(given):
            answer = "<answer><script>x</script></answer>" if i in right else "<answer>0</answer>"
            talk = [{"role": "user", "content": p.question}, {"role": "assistant", "content": answer}]
            f.write(json.dumps({"run": "rl", "problem": p.id, "answer": p.answer, "messages": talk}) + "\n")


def pair(problem, decision=None):
    sides = {"chosen": f"<answer>{problem.answer}</answer>", "rejected": "<answer>-77</answer>"}
    drawn = PreferencePair.make(prompt=problem.prompt, **sides, source="t", problem=problem.id, split="train")
    return (
        drawn
        if decision is None
        else PreferencePair(
            **{
                **vars(drawn),
                "decisions": (Decision(step="judge", action=decision[0], reason=decision[1], score=decision[2]),),
            }
        )
    )


def commit(root: Path, message: str) -> None:
    """Copy every output into the cache, write dvc.lock, commit it."""
    seal(root)
    stages = {}
    for stage in ("plan", *DEPS):
        deps = (
            [f"artifacts/plan/{stage}.json", *(f"artifacts/{d}" for d in DEPS.get(stage, ()))]
            if stage != "plan"
            else []
        )
        stages[stage] = {
            "cmd": f"python -m flows.{stage}",
            "deps": [{"path": d, "md5": "0"} for d in deps],
            "outs": [{"path": f"artifacts/{stage}", "md5": store(root, root / "artifacts" / stage)}],
        }
    (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    git(root, "add", "dvc.lock")
    git(root, "commit", "-qm", message)


def store(root: Path, folder: Path) -> str:
    entries = [
        {"md5": _object(root, p.read_bytes()), "relpath": p.relative_to(folder).as_posix()}
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    ]
    return _object(root, json.dumps(entries).encode(), ".dir")


def _object(root: Path, data: bytes, ending: str = "") -> str:
    name = hashlib.md5(data).hexdigest() + ending
    path = root / ".dvc/cache/files/md5" / name[:2] / name[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name


def _json(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def project(root: Path) -> Path:
    """Commit `first` (rl answers two of six), then an experiment `hot` (another lr, four of six); the working directory
    is that of `hot`."""
    git(root, "init", "-q")
    write(root, lr=0.1, right={0, 1})
    commit(root, "first")
    git(root, "tag", "first")
    shutil.rmtree(root / "artifacts")
    write(root, lr=0.5, right={1, 2, 3, 4})
    commit(root, "second")
    git(root, "update-ref", "refs/exps/ab/cdef/hot", "HEAD")
    return root
