"""Do cleaners find wrong labels, and does what is trained on the rest get better? `make bench-cleaning`

PROTOCOL, committed before the first run.

Data. (1) `simulated`: 4,000 pairs of answers with 24 features, standard normal; the truth is linear in all but the
features `length` and `style`, without label randomness (so figures are upper bounds). 2,000 clean pairs and 500 prompts
of 8 answers are held out. (2) `length tells`: the same, but length has the weight of an average feature in the truth:
where blindness should cost. (3) `gsm8k`: right and wrong solutions that four real models wrote to the same problem,
correctness known; surface features (`synth/preferences/cleaners/_features.py`); half of the problems are held out. (4)
`llmbar`: real judges, in its own table. Noise. Each kind of `synth/preferences/noise_kinds.py` at 5, 10, 20 and 35 %
(gsm8k: random and length at 20 %). Seeds 11, 22, 33, 44, 55; no setting of any cleaner was chosen on them. The mask
stays in the memory of this process: cleaners run in a process of their own that is handed the noisy pairs alone, and is
given no seed. Cleaners: benchmarks/cleaning_methods.py, with defaults; what they know beside the labels is in the
column `knows`. Detection, on pairs that are no anchors (50 are, drawn at random; only methods that name them read
them). AUROC, AUPRC, precision at the true rate, all of the rank of suspicion; precision and recall of what the cleaner
acts on; calibration (ECE, ten bins) where its score is a probability; estimated rate and whether its interval holds the
true one. Downstream. Reward model: Bradley-Terry, linear in the features, on what the cleaner leaves (weighted where it
weighs), accuracy on the held-out pairs; all rates. Policy: a network of 32 hidden units over the answers of a prompt,
trained with this project's DPO loss from a uniform reference, share of held-out prompts whose first choice the verifier
calls right (simulated: the best of eight); for random, length and adversarial noise at 20 %.
Baselines: no cleaning, removal of the true flips (oracle), of the longest chosen sides (as many as are wrong), and for
every cleaner a random removal of as many pairs as it removes (reward model).
Statistics. Differences to no cleaning and to random removal of equal size, paired by seed and held-out pair, with a
bootstrap interval over seeds and pairs (1,000 draws); p-values two-sided from it, Holm over the cleaners within a kind
of noise. A cleaner `loses` where the interval of its difference to random removal lies below zero.
Expected before the run (and checked here): at 20 % random noise precision at the true rate >= 0.90 for confident
learning on `simulated`; at 20 % length noise the blind detector recovers at least 80 % of the gap between no cleaning
and oracle there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.cleaning_data import DATA, Trial, trial
from benchmarks.cleaning_methods import KNOWS, decide
from benchmarks.rows import result_row
from synth.types import digest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RAW = ROOT / "benchmarks" / "runs" / "cleaning.json"
SEEDS, RATES, MAIN = (11, 22, 33, 44, 55), (0.05, 0.1, 0.2, 0.35), 0.2
DRAWS = 1000
BITS = ("held_out", "policy", "random_held_out")  # per held-out item, whether it came out right
COMMAND = "make bench-cleaning"


def conditions(quick: bool = False) -> list[tuple[str, str, float]]:
    """(data, kind of noise, rate) in the order of the protocol."""
    from synth.preferences.noise_kinds import KINDS

    rows = [("simulated", kind, MAIN) for kind in KINDS]
    rows += [("length tells", kind, MAIN) for kind in ("random", "length")]
    rows += [("gsm8k", kind, MAIN) for kind in ("random", "length")] if DATA["gsm8k"].available() else []
    return (
        rows[::3] if quick else rows + [("simulated", kind, rate) for rate in RATES if rate != MAIN for kind in KINDS]
    )


def kept_path(data: str, kind: str, rate: float) -> Path:
    """Where the rows of a condition lie while no source that they came from has changed."""
    sources = [
        *sorted((ROOT / "benchmarks").glob("cleaning_[dm]*.py")),
        *sorted((ROOT / "synth" / "clean").glob("*.py")),
    ]
    name = digest([data, kind, rate, SEEDS, [p.read_text(encoding="utf-8") for p in sources]])[:16]
    return ROOT / ".espalier" / "bench-cleaning" / f"{name}.json"


def kept(data: str, kind: str, rate: float, make: Callable[[], list[dict]]) -> list[dict]:
    """The rows of one condition, made once: a run that was cut off goes on behind the last that it finished."""
    path = kept_path(data, kind, rate)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(make(), default=lambda bits: "".join(map(str, bits.astype(int))))
        path.with_suffix(".tmp").write_text(text, encoding="utf-8")
        path.with_suffix(".tmp").rename(path)
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [{k: np.array(list(v), int) if k in BITS and v is not None else v for k, v in r.items()} for r in rows]


def run_one(data: str, kind: str, rate: float, seed: int, pool: multiprocessing.pool.Pool) -> list[dict]:
    """A row per method: detection and downstream figures, and correctness per held-out pair."""
    outcome = trial(data, kind, rate, seed)
    decisions = pool.apply(decide, (outcome.visible,))
    random = np.random.default_rng([seed, 7])
    out = []
    models = {"none": (np.ones(outcome.n), np.zeros(outcome.n, bool))}
    models["oracle"] = (np.where(outcome.wrong, 0.0, 1.0), np.zeros(outcome.n, bool))
    longest = np.argsort(-outcome.chosen_length, kind="stable")[: outcome.wrong.sum()]
    models["longest first"] = (np.where(np.isin(np.arange(outcome.n), longest), 0.0, 1.0), np.zeros(outcome.n, bool))
    for name, judged in decisions.items():
        models[name] = (judged["weight"], judged["flip"])
    policy = rate == MAIN and kind in ("random", "length", "adversarial")
    for name, (weight, flip) in models.items():
        row = {"data": data, "noise": kind, "rate": rate, "seed": seed, "method": name, "knows": KNOWS.get(name, "")}
        row |= detection(outcome, decisions[name]) if name in decisions else {}
        row["held_out"] = outcome.held_out(weight, flip)
        row["policy"] = outcome.policy(weight, flip) if policy else None
        left = int((weight <= 0).sum())
        if name not in ("none", "oracle"):
            keep = np.where(np.isin(np.arange(outcome.n), random.permutation(outcome.n)[:left]), 0.0, 1.0)
            row["random_held_out"] = outcome.held_out(keep, np.zeros(outcome.n, bool))
        out.append(row)
    return out


def detection(decided: Trial, judged_as: dict) -> dict:
    """Of one method: figures of its ranking, of what it acts on, of its probabilities and its estimate."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    wrong, suspicion, acts = (
        v[decided.scored]
        for v in (decided.wrong, judged_as["suspicion"], (judged_as["weight"] <= 0) | judged_as["flip"])
    )
    k = int(wrong.sum())
    top = np.argsort(-suspicion, kind="stable")[:k]
    row = {
        "auroc": float(roc_auc_score(wrong, suspicion)),
        "auprc": float(average_precision_score(wrong, suspicion)),
        "precision_at_rate": float(wrong[top].mean()),
        "acts": float(acts.mean()),
        "precision": float(wrong[acts].mean()) if acts.any() else None,
        "recall": float(acts[wrong].mean()),
    }
    if judged_as["probability"]:
        p = 1 - suspicion
        bins = np.minimum((p * 10).astype(int), 9)
        row["ece"] = float(
            sum(abs(p[bins == b].mean() - (~wrong)[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins))
        )
    if judged_as["estimate"]:
        rate = float(decided.wrong.mean())
        row |= {
            "estimated": judged_as["estimate"]["rate"],
            "covered": judged_as["estimate"]["low"] <= rate <= judged_as["estimate"]["high"],
        }
    return row


def difference(
    rows: list[dict], key: str, other: list[dict] | str, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """(mean, low, high, p) of the paired difference in share right, by bootstrap over seeds and held-out items."""
    mine = [np.asarray(r[key], float) for r in rows]
    beside = rows if isinstance(other, str) else other
    theirs = [np.asarray(o[other if isinstance(other, str) else key], float) for o in beside]
    gaps = [a - b for a, b in zip(mine, theirs, strict=True)]
    draws = np.empty(DRAWS)
    for d in range(DRAWS):
        picked = rng.integers(0, len(gaps), len(gaps))
        draws[d] = np.mean([gaps[s][rng.integers(0, len(gaps[s]), len(gaps[s]))].mean() for s in picked])
    low, high = np.quantile(draws, [0.025, 0.975])
    p = min(1.0, 2 * min((draws <= 0).mean(), (draws >= 0).mean()) + 1 / DRAWS)
    return float(np.mean([g.mean() for g in gaps])), float(low), float(high), float(p)


def holm(ps: dict[str, float]) -> dict[str, float]:
    """Adjusted p-values (Holm 1979)."""
    out, running = {}, 0.0
    for i, name in enumerate(sorted(ps, key=lambda n: (ps[n], n))):
        running = max(running, min(1.0, (len(ps) - i) * ps[name]))
        out[name] = running
    return out


def summarise(rows: list[dict]) -> dict[str, list[dict]]:
    """The tables of the documents: name -> results."""
    cells: dict[tuple, list[dict]] = defaultdict(list)
    for r in rows:
        cells[r["data"], r["noise"], r["rate"], r["method"]].append(r)
    rng = np.random.default_rng(0)
    detected, effect, against, real = [], [], [], []
    for data, noise, rate in dict.fromkeys(key[:3] for key in cells):
        names = [m for d, n, r, m in cells if (d, n, r) == (data, noise, rate)]
        none = cells[data, noise, rate, "none"]
        others = [m for m in names if m != "none" and rate == MAIN]
        compared = {m: difference(cells[data, noise, rate, m], "held_out", none, rng) for m in others}
        adjusted = holm({m: c[3] for m, c in compared.items() if m not in ("oracle", "longest first")})
        for m in names:
            mine = cells[data, noise, rate, m]
            if rate == MAIN and data != "gsm8k":
                label = f"{noise}, 20 %" if data == "simulated" else f"{noise}, {data}"
                if "precision_at_rate" in mine[0]:
                    detected.append(result(m, label, [r["precision_at_rate"] for r in mine], "higher"))
                effect.append(result(m, label, [100 * np.mean(r["held_out"]) for r in mine], "higher", "%"))
                if "random_held_out" in mine[0]:
                    gap, low, high, _ = difference(mine, "held_out", "random_held_out", rng)
                    against.append(result(m, label, [100 * gap], "higher", "points", 100 * low, 100 * high, len(mine)))
            if data == "gsm8k":
                for metric, key in (
                    ("AUROC", "auroc"),
                    ("precision at rate", "precision_at_rate"),
                    ("recall", "recall"),
                    ("ECE", "ece"),
                ):
                    if key in mine[0]:
                        real.append(
                            result(
                                f"{m}, {noise}", metric, [r[key] for r in mine], "lower" if key == "ece" else "higher"
                            )
                        )
                real.append(
                    result(f"{m}, {noise}", "reward model", [100 * np.mean(r["held_out"]) for r in mine], "higher", "%")
                )
                real.append(
                    result(f"{m}, {noise}", "policy", [100 * np.mean(r["policy"]) for r in mine], "higher", "%")
                )
            for r in mine:
                r["holm_p"] = adjusted.get(m)
    return {
        "cleaning": effect,
        "cleaning-detection": detected,
        "cleaning-against-random": against,
        "cleaning-gsm8k": real,
    }


def plain(small: list[dict]) -> dict[str, list[dict]]:
    """The tables that need no differences: the policy's first choices, and estimated rates of noise beside the true
    ones."""
    choices, rates = [], []
    cells: dict[tuple, list[dict]] = defaultdict(list)
    for r in small:
        cells[r["data"], r["noise"], r["rate"], r["method"]].append(r)
    for (data, noise, rate, method), mine in cells.items():
        if data == "simulated" and mine[0]["policy"] is not None:
            choices.append(result(method, f"{noise}, 20 %", [r["policy"] for r in mine], "higher", "%"))
        if "estimated" in mine[0]:
            covered = sum(r["covered"] for r in mine)
            case = f"{data}, {noise}, {100 * rate:.0f} % wrong"
            off = [100 * abs(r["estimated"] - rate) for r in mine]
            rates.append(result(case, f"{method}: estimate off by", off, "lower", "points"))
            rates.append(
                result(case, f"{method}: intervals that hold", [covered], "higher", f"of {len(mine)}", n=len(mine))
            )
    return {"cleaning-policy": choices, "cleaning-noise": rates}


def result(case, metric, values, better, unit="", low=None, high=None, n=None) -> dict:  # noqa: ANN001
    if low is None and len(values) > 1:
        low, high = min(values), max(values)
    mean, n = statistics.fmean(values), n or len(values)
    return result_row(case, metric, mean, unit, COMMAND, n, better=better, low=low, high=high, numpy=np.__version__)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a few conditions, a seed of their own: does it run at all; nothing is written",
    )
    parser.add_argument(
        "--finished", action="store_true", help="run nothing: the tables of the conditions that were finished before"
    )
    args = parser.parse_args()
    rows = []
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for data, kind, rate in conditions(args.quick):
            if args.finished and not kept_path(data, kind, rate).exists():
                continue
            start = time.perf_counter()
            if args.quick:
                rows += run_one(data, kind, rate, 1, pool)
            else:
                rows += kept(
                    data,
                    kind,
                    rate,
                    lambda c=(data, kind, rate): [r for seed in SEEDS for r in run_one(*c, seed, pool)],
                )
            mine = [r for r in rows if (r["data"], r["noise"], r["rate"]) == (data, kind, rate)]
            best = {
                m: np.mean([np.mean(r["held_out"]) for r in mine if r["method"] == m])
                for m in dict.fromkeys(r["method"] for r in mine)
            }
            best_of = ", ".join(f"{m} {100 * x:.1f}" for m, x in sorted(best.items(), key=lambda kv: -kv[1])[:6])
            print(
                f"{data}, {kind} {rate:.0%} ({time.perf_counter() - start:.0f} s): {best_of}; none {100 * best['none']:.1f}",
                flush=True,
            )
    tables = summarise(rows)
    if args.quick:
        return 0
    from benchmarks.judges import judges, warnings

    tables |= {"cleaning-judges": judges(), "cleaning-warning": warnings()}
    for name, per_kind in tables.items():
        if per_kind:
            (RESULTS / f"{name}.json").write_text(json.dumps(per_kind, indent=1) + "\n", encoding="utf-8")
    small = [{k: 100 * float(np.mean(v)) if k in BITS and v is not None else v for k, v in r.items()} for r in rows]
    for name, per_kind in plain(small).items():
        (RESULTS / f"{name}.json").write_text(json.dumps(per_kind, indent=1) + "\n", encoding="utf-8")
    RAW.write_text("[\n" + ",\n".join(json.dumps(r) for r in small) + "\n]\n", encoding="utf-8")
    from benchmarks.cleaning_plot import plot

    plot(small, ROOT / "docs" / "images" / "cleaning.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
