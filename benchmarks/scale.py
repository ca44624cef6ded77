"""The data path at many rows: CPU seconds and greatest memory of each stage: `make bench-scale`

Made-up rows: conversations of a question of 12 words and an answer of 40, and pairs of a prompt of 12 words and two sides of
40, every word drawn by the hash of its place, so that the k-th row depends on k alone; of a hundred pairs three copy
an earlier one. A stage runs in a process of its own, on one thread: `demonstrations` reads a file of conversations of one's own, `sft`
tokenises what it wrote and takes two steps of a small model, `problems` makes lists to be sorted, `kb` writes a fictional world of as many
facts as there are rows, `questions` asks about one of a tenth as many countries (made before, and not counted), `rl` and `prefer` take two steps of
such a model on made-up problems (`prefer` one on as many pairs, one on answers that it samples), `audit` and `clean` read a file of
pairs, and `clean-forms` is `clean` of pairs whose prompts are six sentences with a name in each. Memory is the greatest resident set of the process and of those that it starts, as the kernel counts it. What a size takes is written when it is done;
`--rows N ...` and `--only NAME ...` run a part.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow

from benchmarks.rows import result_row
from synth.types import Message, PreferencePair, Problem

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
SIZES = (100_000, 300_000, 1_000_000)
COMMAND = "make bench-scale"
WORDS = [
    f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("la", "me", "ni", "ro", "su", "ta", "ke", "vo")
]
FORMS = (
    "Tell me the continent of the country whose capital is {}.",
    "Please tell me as exactly as you can on which continent {} lies today.",
    "Who is the mayor of the city in which {} was born and educated?",
    "Name the teacher of the teacher of the mayor of {}.",
    "Which river flows through {}?",
    "What is the currency of {}?",
)
PART = 10_000  # rows drawn at once
FACTS = 22.5  # of a country of the fictional world

STAGE = """
from pathlib import Path
from tasks.planning.pieces import bind_all
from tasks.planning.resolve import check_params, resolve
from tasks.runtime.stage import Stage
from tasks.stages.{name} import {name}
planned = resolve(check_params({{"set": {{{name!r}: {params!r}}}}}, Path("params.yaml")))[0][{name!r}]
stage = Stage({name!r}, plan={{"params": planned.params, "seed": 1, "threads": 1}}, root={root!r}, deps={deps!r})
with stage.running():
    {name}(stage, **bind_all(planned.pieces, planned.params, planned.settings))
"""
MADE = """
from pathlib import Path
from benchmarks.scale import made_pairs, made_problems
from synth.types import PreferencePair, Problem
from tasks.runtime.stage import Stage
from tasks.storage import tables
for name, table, cls, made in (("questions", "problems", Problem, made_problems({n})), ("clean", "pairs", PreferencePair, made_pairs({n}))):
    stage = Stage(name, plan={{"params": {{}}, "seed": 1, "threads": 1}}, root=Path({root!r}), deps=["data"])
    with stage.running():
        tables.write(stage.out / (table + ".parquet"), made, cls)
"""
COMMANDS = "import sys; from flows.cli import main; sys.exit(main({argv!r}))"
LISTS = [{"piece": "list_sorting", "levels": [2, 3, 4]}]  # a family that does not run out of problems
SMALL = {
    "hidden": 32,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "intermediate": 64,
    "base_steps": 1,
    "base_lists_steps": 0,
}


def texts(first: int, n: int, words: int) -> list[str]:
    """The texts of rows first to first + n, of so many words each."""
    drawn = np.random.default_rng([first, words]).integers(len(WORDS), size=(n, words))
    return [" ".join(WORDS[j] for j in row) for row in drawn.tolist()]


def conversations(path: Path, n: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, n, PART):
            questions, told = texts(first, min(PART, n - first), 12), texts(first, min(PART, n - first), 40)
            file.writelines(
                json.dumps({"prompt": f"{q}?", "completion": a}) + "\n" for q, a in zip(questions, told, strict=True)
            )


def pairs(path: Path, n: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, n, PART):
            k = min(PART, n - first)
            questions, good, bad = texts(first, k, 12), texts(first, k, 40), texts(first + 1, k, 40)
            for i in range(k):
                j = i - 7 if i % 100 in (20, 40, 60) else i
                file.write(json.dumps({"prompt": questions[j], "chosen": good[j], "rejected": bad[j]}) + "\n")


def of_a_form(path: Path, n: int) -> None:
    """Pairs whose prompts are one of six sentences with a made-up name of one or two words, and whose answers are of one form."""
    rng = np.random.default_rng(n)
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, n, PART):
            k = min(PART, n - first)
            words = [WORDS[j] for j in rng.integers(len(WORDS), size=8 * k).tolist()]
            of = rng.integers(len(FORMS), size=k).tolist()
            longer = (rng.random(k) < 0.3).tolist()
            for i in range(k):
                a, b, c, d, e, f, g, h = words[8 * i : 8 * i + 8]
                file.write(
                    json.dumps(
                        {
                            "prompt": FORMS[of[i]].format(f"{a}{b} {c}{d}" if longer[i] else f"{a}{b}"),
                            "chosen": f"It is {e}{f}, as far as I know.",
                            "rejected": f"I would say {g}{h}.",
                        }
                    )
                    + "\n"
                )


def made_problems(n: int) -> Iterator[Problem]:
    """Questions of 40 words, of eight families and four levels."""
    for first in range(0, n, PART):
        questions, more = texts(first, min(PART, n - first), 40), texts(first, min(PART, n - first), 12)
        for i, (question, fact) in enumerate(zip(questions, more, strict=True), first):
            yield Problem.make(
                prompt=f"{question}?",
                answer=fact.partition(" ")[0],
                verifier="exact_match",
                family=f"family {i % 8}",
                difficulty={"level": i % 4},
                lineage={"root": fact},
                split="train",
            )


def made_pairs(n: int) -> Iterator[PreferencePair]:
    """Pairs of answers of 40 words to the same questions."""
    for first in range(0, n, PART):
        k = min(PART, n - first)
        questions, good, bad = texts(first, k, 40), texts(first, k, 40), texts(first + 1, k, 40)
        for q, a, b in zip(questions, good, bad, strict=True):
            prompt = [Message(role="user", content=f"{q}?")]
            yield PreferencePair.make(prompt=prompt, chosen=a, rejected=b, source="made", margin=1.0, split="train")


def run(code: str) -> tuple[float, float]:
    """(CPU seconds, GB at most) of a process of Python."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", code], env)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"it ended with {os.waitstatus_to_exitcode(status)}: {code}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def stage(name: str, root: Path, *deps: str, **params: object) -> tuple[float, float]:
    return run(STAGE.format(name=name, params=params, root=str(root), deps=list(deps)))


def of_a_model(name: str, root: Path, **params: object) -> tuple[float, float]:
    """A stage that trains a small model, which some rows have made."""
    if not (root / "few").exists():
        (root / "few" / "data").mkdir(parents=True)
        conversations(root / "few" / "data" / "chats.jsonl", 300)
        stage("demonstrations", root / "few", "data", files=["data/chats.jsonl"])
        stage("sft", root / "few", "artifacts/demonstrations", steps=2, **SMALL)
        (root / "artifacts").mkdir(exist_ok=True)
        (root / "few" / "artifacts" / "sft").rename(root / "artifacts" / "sft")
    deps = [f"artifacts/{dep}" for dep in ("sft", "questions", "clean")]
    return stage(name, root, *deps, envs=[{"piece": "single"}], steps=2, sampling={"max_turn_tokens": 8}, **params)


def world(root: Path, countries: int) -> tuple[float, float]:
    return stage("kb", root, "data", sources=[], world_countries=max(100, countries))


def of_a_world(root: Path, n: int) -> tuple[float, float]:
    world(root, n // 10)
    return stage("questions", root, "artifacts/kb", n_train=n, n_valid=0, n_test=0)


def cases(root: Path, n: int) -> dict[str, Callable[[], tuple[float, float]]]:
    """Name -> what runs it. `sft` reads what `demonstrations` wrote."""
    data = root / "data"
    command = lambda *argv: lambda: run(COMMANDS.format(argv=list(argv)))  # noqa: E731
    return {
        "demonstrations": lambda: stage("demonstrations", root, "data", files=["data/chats.jsonl"]),
        "sft": lambda: stage("sft", root, "artifacts/demonstrations", steps=2, **SMALL),
        "problems": lambda: stage("problems", root, "data", families=LISTS, n_train=n),
        "kb": lambda: world(root, round(n / FACTS)),
        "questions": lambda: of_a_world(root, n),
        "rl": lambda: of_a_model("rl", root, prompts_per_step=4, samples_per_prompt=2),
        "prefer": lambda: of_a_model(
            "prefer", root, rounds=[{}, {"pairs": "sampled"}], samples_per_prompt=2, include_families=False
        ),
        "preferences": lambda: stage("preferences", root, "data", files=["data/pairs.jsonl"]),
        "audit": command("audit", str(data / "pairs.jsonl"), "--processes", "1", "--out", str(root / "audit")),
        "clean": command("clean", str(data / "pairs.jsonl"), "--out", str(root / "cleaned")),
        "clean-forms": command("clean", str(data / "forms.jsonl"), "--out", str(root / "cleaned-forms")),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", default=list(SIZES))
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    for n in args.rows:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "data").mkdir()
            chosen = {name: measure for name, measure in cases(root, n).items() if name in (args.only or [name])}
            if chosen.keys() & {"demonstrations", "sft"}:
                conversations(root / "data" / "chats.jsonl", n)
            if chosen.keys() & {"preferences", "audit", "clean"}:
                pairs(root / "data" / "pairs.jsonl", n)
            if "clean-forms" in chosen:
                of_a_form(root / "data" / "forms.jsonl", n)
            if chosen.keys() & {"rl", "prefer"}:
                run(MADE.format(n=n, root=str(root)))
            for name, measure in chosen.items():
                seconds, memory = measure()
                case = f"{name} of {n:,} rows"
                print(f"{case}: {seconds:,.1f} CPU s, {memory:.2f} GB", flush=True)
                new = [
                    result_row(
                        case, metric, round(value, 3), unit, COMMAND, n, better="lower", pyarrow=pyarrow.__version__
                    )
                    for metric, value, unit in (("CPU seconds", seconds, "s"), ("memory", memory, "GB"))
                ]
                known = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
                known = [r for r in known if r["case"] != case] + new
                order = list(cases(root, n))
                known.sort(key=lambda r: (order.index(r["case"].partition(" ")[0]), r["n"]))
                args.out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
