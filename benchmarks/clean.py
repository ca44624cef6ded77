"""`espalier clean` on 1,000 to a million pairs, and on labels that are right: `make bench-clean`

The files are those of `make bench-pairs` (benchmarks/pairs.py): prompts of 20 words, sides of 200, five pairs to a prompt,
with planted exact, near and swapped copies. Each size is one run of the command with its defaults, in a process of its own:
CPU seconds and greatest memory of that process, and the share of planted copies that were removed, themselves or the pair
that they copy (of swapped sides either may go).

cleanlab finds wrong labels and no copies, and knows rows and not pairs: it is compared on that part alone. Of n pairs of 24
features, 20 % of labels swapped, five folds of a logistic regression and the decision: CPU seconds on one thread, and the
share of what is called wrong that is. cleanlab 2.9 (`CleanLearning` around scikit-learn's regression, each pair in both orders)
runs under the interpreter that the variable CLEANLAB_PYTHON names; without it that part is left out.

Gold: what the command does to labels that are right. Four real sets, whose labels their authors checked
(LLMBar Natural, LLMBar Adversarial but for Neighbor, which is not shipped) or a reference answer decides (GSM8K: a right
and a wrong solution by the models of Cobbe et al. 2021 to each of 731 questions; the authors' own solution over a wrong one
to each of 1,163), as they are: the share that is removed
or flipped although it is right, and the share that is asked about; and, with 5, 10 and 20 % of labels swapped, drawn five
times each, the share of those that is found: removed, flipped or asked about. The sets together are one case more.

A size is written when it is done; `--pairs N ...` runs these sizes without gold, `--gold` gold alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import sklearn

from benchmarks.pairs import write
from benchmarks.rows import result_row
from synth.preferences.cleaners._noise import wilson
from synth.preferences.cleaners.confident_learning import prune_by_noise_rate, symmetric
from synth.preferences.cleaning import margins
from synth.preferences.imported import Reader
from synth.types import digest, seed_for
from tasks.rows.clean import clean_rows

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "clean.json"
PEERS = ROOT / "benchmarks" / "results" / "clean-labels.json"
GOLD = ROOT / "benchmarks" / "results" / "clean-gold.json"
DATA = ROOT.parent / "shared" / "data"
SWAPPED, DRAWS = (0.05, 0.1, 0.2), 5
SIZES = (1_000, 10_000, 100_000, 1_000_000)
COMMAND = "make bench-clean"


def cleaned(n: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "pairs.jsonl", Path(folder) / "out"
        planted = write(path, n)
        code = "import sys; from flows.cli import main; sys.exit(main())"
        argv = [sys.executable, "-c", code, "clean", str(path), "--out", str(out)]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        child = os.posix_spawn(sys.executable, argv, env)
        _, status, used = os.wait4(child, 0)
        if status:
            raise SystemExit(f"espalier clean ended with {os.waitstatus_to_exitcode(status)}")
        with (out / "removed.jsonl").open(encoding="utf-8") as file:
            removed = {key(json.loads(line)) for line in file}
        kind_of = {at: kind for kind, rows in planted.items() for at in rows}
        removed_of: Counter[str] = Counter()
        with path.open(encoding="utf-8") as file:
            for at, line in enumerate(file, start=1):
                if at in kind_of:
                    removed_of[kind_of[at]] += key(json.loads(line)) in removed
    case = f"clean of {n:,} pairs"
    values = [
        ("CPU seconds", used.ru_utime + used.ru_stime, "s", "lower", n),
        ("memory", used.ru_maxrss / 1e6, "GB", "lower", n),
        *(
            (f"{kind} copies removed", 100 * removed_of[kind] / max(1, len(rows)), "%", "higher", len(rows))
            for kind, rows in planted.items()
        ),
    ]
    return [result(case, *value) for value in values]


PEER = """
import sys, time, numpy as np
from cleanlab.classification import CleanLearning
from sklearn.linear_model import LogisticRegression
x, wrong = np.load(sys.argv[1]).values()
both, labels = np.concatenate([x, -x]), np.repeat([1, 0], len(x))
start = time.process_time()
found = CleanLearning(LogisticRegression(fit_intercept=False), seed=0).find_label_issues(both, labels)
seconds, acts = time.process_time() - start, found["is_label_issue"].to_numpy()[: len(x)]
print(seconds, 100 * wrong[acts].mean())
"""


def labels(n: int, d: int = 24) -> list[dict]:
    """Wrong labels among n pairs of features, here and by cleanlab."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(n, d)), rng.normal(size=d)
    wrong = rng.random(n) < 0.2
    x *= np.where((x @ w > 0) ^ wrong, 1, -1)[:, None]
    start = time.process_time()
    right = margins(x, [str(i) for i in range(n)], folds=5, c=1.0)
    acts = prune_by_noise_rate(*symmetric(right))[:n]
    here = (time.process_time() - start, 100 * float(wrong[acts].mean()))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "rows.npz", x=x, wrong=wrong)
        argv = [os.environ["CLEANLAB_PYTHON"], "-c", PEER, str(Path(folder) / "rows.npz")]
        told = subprocess.run(
            argv, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    peer = [float(v) for v in told.stdout.split()[-2:]]
    case = f"wrong labels of {n:,} pairs of {d} features"
    out = []
    for (metric, unit, better), mine, theirs in zip(
        (("CPU seconds", "s", "lower"), ("precision", "%", "higher")), here, peer, strict=True
    ):
        ratio = theirs / mine if better == "lower" else mine / theirs
        out.append(
            result(case, metric, mine, unit, better, n)
            | {"peers": {"cleanlab": round(theirs, 3)}, "ratio_to_best_peer": round(ratio, 3)}
        )
    return out


def gold_sets() -> dict[str, list[tuple[str, str, str]]]:
    """Name -> (prompt, better side, worse side)."""

    def llmbar(*names: str) -> list[tuple[str, str, str]]:
        rows = [
            r for n in names for r in json.loads((DATA / "llmbar" / n / "dataset.json").read_text(encoding="utf-8"))
        ]
        return [(r["input"], r[f"output_{r['label']}"], r[f"output_{3 - r['label']}"]) for r in rows]

    solved, written = [], []
    for line in (DATA / "gsm8k" / "example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        by = {
            right: [v["solution"] for v in row.values() if isinstance(v, dict) and v["is_correct"] is right]
            for right in (True, False)
        }
        if by[True] and by[False]:
            solved.append((row["question"], by[True][0], by[False][0]))
        if by[False]:
            written.append((row["question"], row["ground_truth"], by[False][-1]))
    return {
        "LLMBar Natural": llmbar("Natural"),
        "LLMBar Adversarial": llmbar("Adversarial/GPTInst", "Adversarial/GPTOut", "Adversarial/Manual"),
        "GSM8K solutions": solved,
        "GSM8K references": written,
    }


def judged(rows: list[tuple[str, str, str]], swapped: set[int]) -> tuple[set[int], set[int]]:
    """(rows removed or flipped, rows asked about) by the defaults of the command."""
    items = [
        (f"row {i}", {"prompt": p, "chosen": b if i in swapped else a, "rejected": a if i in swapped else b})
        for i, (p, a, b) in enumerate(rows)
    ]
    cleaned = clean_rows(items, Reader(name="gold"))
    acted, to_review = (
        {int(p.source.split()[-1]) for p in pairs} for pairs in ((*cleaned.removed, *cleaned.flipped), cleaned.asked)
    )
    return acted, to_review


def gold() -> list[dict]:
    counted: dict[str, dict[tuple[str, str], np.ndarray]] = {}  # set -> (metric, better) -> [k, n]
    for name, rows in gold_sets().items():
        acted, to_review = judged(rows, set())
        mine = counted[name] = {
            ("right pairs removed or flipped", "lower"): np.array([len(acted), len(rows)]),
            ("right pairs asked about", "lower"): np.array([len(to_review), len(rows)]),
        }
        for rate in SWAPPED:
            caught = np.zeros(2, int)
            for seed in range(DRAWS):
                rng = np.random.default_rng(seed_for("clean gold", name, rate, seed))
                swapped = set(rng.choice(len(rows), round(rate * len(rows)), replace=False).tolist())
                caught += [len(swapped & set.union(*judged(rows, swapped))), len(swapped)]
            mine[f"found of {rate:.0%} swapped", "higher"] = caught
    counted["all four"] = {m: np.sum([c[m] for c in counted.values()], axis=0) for m in counted["GSM8K solutions"]}
    out = []
    for name, metrics in counted.items():
        for (metric, better), (k, n) in metrics.items():
            low, high = (round(100 * x, 3) for x in wilson(int(k), int(n)))
            out.append(result(name, metric, 100 * k / n, "%", better, int(n)) | {"low": low, "high": high})
    return out


def key(row: dict) -> str:
    """Of a pair whichever way its sides stand."""
    prompt = row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][0]["content"]
    return digest(
        prompt, sorted(s if isinstance(s, str) else s[0]["content"] for s in (row["chosen"], row["rejected"]))
    )


def result(case: str, metric: str, value: float, unit: str, better: str, n: int) -> dict:
    versions = {"numpy": np.__version__, "scikit-learn": sklearn.__version__}
    return result_row(case, metric, round(value, 3), unit, COMMAND, n, better=better, **versions)


def size(r: dict) -> int:
    """The number of pairs of a case."""
    return int("".join(filter(str.isdigit, r["case"].partition(" pairs")[0])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", metavar="N")
    parser.add_argument("--gold", action="store_true")
    args = parser.parse_args()
    if args.gold or not args.pairs:
        for r in (measured := gold()):
            print(
                f"{r['case']}: {r['metric']} {r['value']:,.4g} {r['unit']} [{r['low']}, {r['high']}] of {r['n']}",
                flush=True,
            )
        GOLD.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    for n in args.pairs or (() if args.gold else SIZES):
        for measure, file in ((cleaned, RESULTS), *([(labels, PEERS)] if "CLEANLAB_PYTHON" in os.environ else [])):
            new = measure(n)
            for r in new:
                print(f"{r['case']}: {r['metric']} {r['value']:,.4g} {r['unit']} {r['peers'] or ''}", flush=True)
            known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
            known = sorted([r for r in known if r["case"] != new[0]["case"]] + new, key=size)
            file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
