"""`make drill-power`: the power is cut while stages, checkpoints, events, the ledger, reviews, the registry and
params.yaml are written (tests/support/power.py says how). What was said to be done must be there; everything else is
absent, renamed with a sentence, or made again, and the work goes on."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CODE), str(CODE / "tests/support")]

from power import Scenario, drilled  # noqa: E402

RESULT = CODE / "benchmarks/results/power.json"
COMMAND = "make drill-power"

STATE = """
from pathlib import Path
from tasks.storage import state
for n in range(3):
    state.write(Path(".espalier/measured/rl.json"), {"n": n, "text": "x" * 1500})
    said(str(n))
"""


def state_check(root: Path, lines: list[str]) -> None:
    from tasks.storage import state

    path = root / ".espalier/measured/rl.json"
    value = state.read(path, else_="it is made anew")
    assert not lines or (value and value["n"] >= int(lines[-1])), (
        f"{lines[-1:]} was said, {value and value['n']} is there"
    )
    state.write(path, {"n": 9})
    assert state.read(path, else_="") == {"n": 9}


STAGE = """
import json
from tasks.runtime.stage import Stage

def play(version, said):
    s = Stage("problems", plan={"seed": 1, "params": {"version": version}}, root=".", deps=[])
    with s.running():
        rows = s.finished("rows")
        made = [rows(f"k{i}", lambda i=i: {"row": i, "text": str(version) * 200}) for i in range(4)]
        (s.out / "rows.json").write_text(json.dumps(made))
        (s.out / "model").mkdir()
        (s.out / "model/weights").write_bytes(bytes(range(256)) * 5 + str(version).encode())
        s.card({"n": len(made)})
    said(str(version))
"""


def _played(version: int) -> None:
    names: dict = {}
    exec(STAGE, names)  # noqa: S102 (the program above)
    names["play"](version, lambda text: None)


def stage_prepare(root: Path) -> None:
    import contextlib

    with contextlib.chdir(root):
        _played(1)


def stage_check(root: Path, lines: list[str]) -> None:
    from tasks.storage import commit

    folder = root / "artifacts/problems"

    def version() -> str:
        commit.forget()
        commit.check(folder)
        rows = json.loads((folder / "rows.json").read_text())
        (one,) = {r["text"][0] for r in rows}
        assert len(rows) == 4 and (folder / "model/weights").read_bytes()[-1:].decode() == one
        return one

    if lines:
        assert version() == "2", "said to be done, and another is there"
    elif folder.exists():
        try:
            assert version() in "12"
        except commit.Damaged as e:
            assert "\n" not in str(e)
            commit.remove(folder)  # espalier gc --damaged
    _played(2)
    assert version() == "2"
    left = [p for p in (root / ".espalier/work/problems").iterdir() if p.name != "lock"]
    assert not lines or not left or all((p / "out").exists() or not any(p.iterdir()) for p in left)


CHECKPOINTS = """
from pathlib import Path
import torch
from tasks.storage.checkpoint import Checkpoints
c = Checkpoints(Path(".espalier/work/rl/abc/checkpoints/rl"))
for step in range(1, 5):
    c.save(step, {"step": step, "w": torch.full((300,), float(step)), "rng": [1, (2, 3)]})
    said(str(step))
"""


def checkpoint_check(root: Path, lines: list[str]) -> None:
    import torch

    from tasks.storage import commit
    from tasks.storage.checkpoint import Checkpoints

    commit.forget()
    c = Checkpoints(root / ".espalier/work/rl/abc/checkpoints/rl")
    latest = c.latest()
    step = latest[0] if latest else 0
    assert step >= int(lines[-1] if lines else 0), (
        f"the checkpoint of step {lines[-1]} was saved, that of {step} is there"
    )
    if latest:
        assert latest[1]["step"] == step and torch.equal(latest[1]["w"], torch.full((300,), float(step)))
    c.save(step + 1, {"step": step + 1})
    commit.forget()
    again = c.latest()
    assert again and again[0] == step + 1


FAKE = """
class Told:
    '''MLflow as far as shipping needs it; what it is told is durable.'''
    def __init__(self, tell):
        self.tell = tell
    def get_experiment_by_name(self, name):
        return type("E", (), {"experiment_id": "1"})
    def search_runs(self, *a, **k):
        return []
    def create_run(self, *a, run_name="", **k):
        return type("R", (), {"info": type("I", (), {"run_id": run_name})})
    def get_run(self, run):
        return type("R", (), {"data": type("D", (), {"tags": {}})})
    def set_terminated(self, run, status, end_time=None):
        if end_time:
            self.tell(f"sent end")
    def set_tag(self, *a):
        pass
    def log_dict(self, *a):
        pass
    def log_batch(self, run, params=(), metrics=()):
        for m in metrics:
            self.tell(f"sent {m.step}")
"""
SPOOL = (
    FAKE
    + """
import os
os.environ["ESPALIER_EXECUTION"] = "run-a-1"
from pathlib import Path
from tasks.runtime.stage import Stage
from tasks.tracking import spool
from tasks.tracking.observe import Shipping
def go(step, ship=True):
    s = Stage("kb", plan={"seed": step}, root=".", deps=[])
    with spool.recording(s):
        for i in range(3):
            s.log({"loss": 1.0}, step=step + i)
    said(f"done {step}")
    if ship:
        Shipping(Path("."), lambda root: Told(said)).all()
        said("shipped")
go(0)
go(10)
"""
)


def spool_check(root: Path, lines: list[str]) -> None:
    os.environ["ESPALIER_EXECUTION"] = "run-a-1"
    try:
        from tasks.runtime.stage import Stage
        from tasks.tracking import spool
        from tasks.tracking.observe import Shipping

        names: dict = {}
        exec(FAKE, names)  # noqa: S102 (the program above)
        told: list[str] = []
        s = Stage("kb", plan={"seed": 50}, root=root, deps=[])
        with spool.recording(s):
            s.log({"loss": 1.0}, step=50)
        Shipping(root, lambda r: names["Told"](told.append)).all()
    finally:
        del os.environ["ESPALIER_EXECUTION"]
    assert "sent 50" in told, "what was logged after the cut is not shipped"
    done = [int(t.split()[1]) for t in lines if t.startswith("done")]
    for step in done:
        for i in range(step, step + 3):
            assert f"sent {i}" in {*lines, *told}, f"the event of step {i} of a stage that had ended is lost"


LEDGER = """
from synth.selfplay.ledger import Ledger
from pathlib import Path
from tasks.storage import commit
commit.make_folder(Path("out/grpo"))
ledger = Ledger("out/grpo/ledger.db", {"seed": 1})
for n in range(4):
    ledger.add(n, {"proposal": [f"text {n} {i} " + "y" * 400 for i in range(3)], "summary": [{"round": n}]})
    said(str(n))
ledger.close()
said("closed")
"""


def ledger_check(root: Path, lines: list[str]) -> None:
    from synth.selfplay.ledger import Ledger

    if not (root / "out/grpo").exists():
        assert not lines, "the ledger is gone"
        return
    ledger = Ledger(root / "out/grpo/ledger.db", {"seed": 1})
    last = -1
    while ledger.get(last + 1, "summary") is not None:
        last += 1
        assert [b.split()[:3] for _, _, b in ledger.rows("proposal", last)] == [
            ["text", str(last), str(i)] for i in range(3)
        ]
    rounds = [int(s) for s in lines if s.isdigit()]
    assert last >= max(rounds, default=-1), f"round {max(rounds)} was written, {last} is there"
    assert not list(ledger.rows("proposal", last + 1)), "half a transaction"
    ledger.add(last + 1, {"summary": [{"round": last + 1}]})
    ledger.close()


REVIEWS = """
from pathlib import Path
from tasks.results.review import Review
r = Review(Path("pairs.jsonl"), Path("data/reviews.jsonl"), sample=0, reviewer="me")
while shown := r.next():
    r.decide(shown, "first")
    said(shown.pair.id)
"""


def reviews_prepare(root: Path) -> None:
    rows = [{"prompt": f"p{i}", "chosen": f"a{i}", "rejected": f"b{i}"} for i in range(4)]
    (root / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def reviews_check(root: Path, lines: list[str]) -> None:
    from tasks.results.review import Review
    from tasks.storage.reviews import decisions

    known = decisions(root / "data/reviews.jsonl")
    lost = [i for i in lines if i not in known]
    assert not lost, f"{len(lost)} of {len(lines)} decisions are lost"
    r = Review(root / "pairs.jsonl", root / "data/reviews.jsonl", sample=0, reviewer="me")
    while shown := r.next():
        r.decide(shown, "tie")
    assert len(decisions(root / "data/reviews.jsonl")) == 4


PARAMS = """
import os
from pathlib import Path
from tasks.runtime import dvc
with dvc.alone(Path(".")), dvc.overridden({"seed": 5}, Path(".")):
    said("set")
said("back")
"""


def params_prepare(root: Path) -> None:
    (root / "params.yaml").write_text("recipe: grpo\nseed: 0\nset: {}\n")


def params_check(root: Path, lines: list[str]) -> None:
    from tasks.runtime import dvc

    with dvc.alone(root):
        pass
    assert (root / "params.yaml").read_text() == "recipe: grpo\nseed: 0\nset: {}\n", "the settings of the user are lost"


REGISTRY = """
from pathlib import Path
from tasks.results import promote
said(promote.promote(Path(".")))
"""
SCORES = {"a": [1.0], "b": [1.0]}


def registry_prepare(root: Path) -> None:
    import pandas as pd
    import states

    from tasks.storage import commit
    from tasks.tracking import observe

    (root / "params.yaml").write_text("recipe: grpo\nseed: 0\nset: {}\n")
    states.git(root, "init", "-q")
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    model = root / "artifacts/rl/model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(range(256)) * 40)
    at = root / "artifacts/evaluate"
    at.mkdir()
    pd.DataFrame([{"run": "rl", "problem": p, "score": v[0]} for p, v in SCORES.items()]).to_parquet(
        at / "scores.parquet"
    )
    (at / "card.json").write_text(json.dumps({"held_out": "h" * 20}))
    for folder in ("rl", "evaluate"):
        commit.seal(root / "artifacts" / folder)
    observe.client(root).search_experiments()  # makes the database


def registry_check(root: Path, lines: list[str]) -> None:
    import tempfile

    from tasks.results import promote
    from tasks.runtime.stage import file_digest
    from tasks.storage import commit
    from tasks.tracking import observe

    commit.forget()
    model = root / "artifacts/rl/model"
    if not lines:
        promote.promote(root)
    client = observe.client(root)
    champion = promote._champion(client)
    assert champion is not None, "the champion is gone"
    with tempfile.TemporaryDirectory() as t:
        held = promote._fetched(client, champion, "model", t)
        assert file_digest(held) == champion.tags["espalier.digest"] == file_digest(model), (
            "another model is registered"
        )
    assert promote.registered(root, "champion").lock == (root / "dvc.lock").read_text()
    assert promote.promote(root).endswith("already")


SCENARIOS = {
    "small state": Scenario(STATE, state_check),
    "a stage, over its earlier output": Scenario(STAGE + "play(2, said)\n", stage_check, stage_prepare),
    "checkpoints": Scenario(CHECKPOINTS, checkpoint_check),
    "events and their shipping": Scenario(SPOOL, spool_check),
    "the ledger of self-play": Scenario(LEDGER, ledger_check),
    "reviews": Scenario(REVIEWS, reviews_check, reviews_prepare),
    "params.yaml under --set": Scenario(PARAMS, params_check, params_prepare),
    "the registry of models": Scenario(REGISTRY, registry_check, registry_prepare, apart=True),
}
SLOW = {"the registry of models": 10}  # a state takes so many times longer


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Cut the power at any moment; nothing is lost that was said to be done."
    )
    parser.add_argument("--states", type=int, default=1000, help="of each scenario, at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of them")
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--show", type=int, default=5, help="misses of each that are printed")
    args = parser.parse_args()
    names = [n for n in SCENARIOS if args.only in n]
    until, out, bad = time.monotonic() + args.seconds, [], 0
    for i, name in enumerate(names):
        begin = time.monotonic()
        mine = (until - begin) / (len(names) - i)
        o = drilled(SCENARIOS[name], args.states // SLOW.get(name, 1), seconds=mine)
        bad += len(o.wrong)
        took = time.monotonic() - begin
        print(f"{name}: {o.operations} operations, {o.states} states, {len(o.wrong)} wrong, {took:.0f} s", flush=True)
        for line in o.wrong[: args.show]:
            print("   ", line)
        out += [entry(name, "tried", o.states), entry(name, "held", o.states - len(o.wrong))]
    if not args.only:
        args.out.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    return int(bad > 0)


def entry(case: str, metric: str, value: int) -> dict:
    from drill_all import entry

    return entry(case, metric, value, "", value) | {"command": COMMAND}


if __name__ == "__main__":
    sys.exit(main())
