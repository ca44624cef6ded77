"""A million preference pairs of two 200-word sides through `espalier audit`, and what it is compared with: `make
bench-pairs`

The file: N pairs over a vocabulary of 30,000 words drawn by Zipf's law, prompts of 20 words, sides of 200; five pairs
to a prompt, whose answers are drawn from six, so that labels can contradict each other and go in circles; 5 % of rows
are exact copies of an earlier one, 5 % near copies (one word in twenty of each side exchanged), 1 % are copies with the
sides swapped. It is written once, outside the measurement.

- audit: schema check, exact and near duplicates, contradictions, cycles and length report on two processes: seconds on
  the clock, greatest resident memory of the main process and of all its children at once, and the share of planted
  faults that were found
- MinHash: signatures a second of this project's and of datasketch's (64 permutations, the same word pairs, given as
  bytes), interleaved, on the same texts; and recall of near duplicates by both on 10,000 texts against an exact
  comparison of all couples with a rare word pair in common
- confident learning: 100,000 pairs of 24 given features, five folds, from features to decisions
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.rows import result_row
from synth.preferences.cleaners._grams import densified, hashed
from synth.preferences.imported import Reader
from tasks.rows.audit import Audit, audit

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "pairs.json"
PAIRS, ORACLE, FEATURES = 1_000_000, 10_000, 100_000
COPY = {"exact": 0.05, "near": 0.05, "swapped": 0.01}
COMMAND = "make bench-pairs"
DEVICE = f"{os.cpu_count()} cores, {platform.machine()}, load average {os.getloadavg()[1]:.1f} when it began"


def write(path: Path, n: int, seed: int = 0) -> dict[str, set[int]]:
    """Write the file; the numbers of the lines (from 1) of each kind of copy."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, size)) for size in rng.integers(2, 10, 30_000)], dtype=object)
    planted: dict[str, set[int]] = {kind: set() for kind in COPY}
    kept: list[tuple[str, list[str], list[str]]] = []
    line, answers, prompt = 0, [], ""

    def text(size: int) -> list[str]:
        return words[np.minimum(rng.zipf(1.2, size), 29_999)].tolist()

    with path.open("w", encoding="utf-8") as file:
        while line < n:
            line += 1
            u = rng.random()
            kind = "exact" if u < 0.05 else "near" if u < 0.1 else "swapped" if u < 0.11 else ""
            if kind and len(kept) > 100:
                asked_prompt, chosen, rejected = kept[int(rng.integers(0, len(kept)))]
                planted[kind].add(line)
                if kind == "near":
                    chosen, rejected = (
                        [w if rng.random() > 0.05 else words[rng.integers(30_000)] for w in side]
                        for side in (chosen, rejected)
                    )
                elif kind == "swapped":
                    chosen, rejected = rejected, chosen
            else:
                if line % 5 == 1 or not answers:
                    prompt, answers = " ".join(text(20)), [text(200) for _ in range(6)]
                i, j = rng.choice(6, 2, replace=False)
                asked_prompt, chosen, rejected = prompt, answers[i], answers[j]
                if len(kept) < 200_000:
                    kept.append((asked_prompt, chosen, rejected))
            file.write(
                json.dumps({"prompt": asked_prompt, "chosen": " ".join(chosen), "rejected": " ".join(rejected)}) + "\n"
            )
    return planted


class Peak:
    """The greatest sum of resident memory of this process and its children, looked at four times a second."""

    def __enter__(self) -> Peak:
        self.bytes, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        import psutil

        me = psutil.Process()
        while not self._stop.wait(0.25):
            total = 0
            for p in [me, *me.children(recursive=True)]:
                try:
                    total += p.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, total)


def audited(n: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        planted = write(path, n)
        size = path.stat().st_size
        start = time.perf_counter()
        before = os.times()
        with Peak() as peak:
            report = audit(path, Reader(name=path.name), processes=2)
        seconds = time.perf_counter() - start
        after = os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    case = f"audit of {n:,} pairs, {size / 1e9:.2f} GB, {sum(report.card['words'].values()) / 1e6:,.0f} M words"
    out = [
        result(case, "seconds", seconds, "s", "lower", n),
        result(case, "CPU seconds", cpu, "s", "lower", n),
        result(case, "memory", peak.bytes / 1e9, "GB", "lower", n),
        result(case, "rate", n / seconds, "pairs/s", "higher", n),
    ]
    return out + [
        result(case, f"{kind} found", 100 * share, "%", "higher", len(planted[kind]))
        for kind, share in recall(report, planted).items()
    ]


def recall(pairs_seen: Audit, planted: dict[str, set[int]]) -> dict[str, float]:
    codes = {
        "exact": {"exact_duplicate"},
        "near": {"near_duplicate", "near_contradiction"},
        "swapped": {"contradiction", "exact_duplicate"},
    }
    named = {kind: {line for line, code, _ in pairs_seen.faults if code in codes[kind]} for kind in codes}
    copies = {line for line, code, _ in pairs_seen.faults if code.endswith("duplicate")}
    return {kind: len(lines & (named[kind] | copies)) / max(1, len(lines)) for kind, lines in planted.items()}


def minhash(n: int) -> list[dict]:
    """Speed and recall beside datasketch."""
    from datasketch import MinHash, MinHashLSH

    rng = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, size)) for size in rng.integers(2, 10, 30_000)], dtype=object)
    texts = []
    while len(texts) < n:
        base = words[np.minimum(rng.zipf(1.2, 200), 29_999)]
        texts.append(" ".join(base))
        if len(texts) < n and rng.random() < 0.2:
            share = rng.choice([0.02, 0.05, 0.08, 0.12])
            texts.append(" ".join(np.where(rng.random(200) < share, rng.choice(words, 200), base)))
    sets = [{f"{a} {b}".encode() for a, b in zip(w, w[1:], strict=False)} for w in (t.split() for t in texts)]

    def theirs(part: list[set[bytes]]) -> list[MinHash]:
        return MinHash.bulk(part, num_perm=64)

    chunk, rates = max(1, n // 5), {"here": [], "datasketch": []}
    signatures: list[MinHash] = []
    for k in range(0, n, chunk):
        start = time.process_time()
        densified(hashed(texts[k : k + chunk]).bins)
        rates["here"].append(len(texts[k : k + chunk]) / (time.process_time() - start))
        start = time.process_time()
        signatures += theirs(sets[k : k + chunk])
        rates["datasketch"].append(len(sets[k : k + chunk]) / (time.process_time() - start))
    exact = {(i, j) for i, j in _couples(sets) if len(sets[i] & sets[j]) >= 0.7 * len(sets[i] | sets[j])}
    from synth.preferences.cleaners._grams import bands

    keys = bands(densified(hashed(texts).bins))
    mine = {(i, j) for i, j in exact if (keys[i] == keys[j]).any()}
    lsh = MinHashLSH(num_perm=64, params=(16, 4))
    for i, s in enumerate(signatures):
        lsh.insert(i, s)
    peer = {(i, j) for i, j in exact if j in lsh.query(signatures[i])}
    one = result(f"MinHash of {n:,} texts", "rate", statistics.median(rates["here"]), "texts/s of CPU", "higher", n)
    one["low"], one["high"] = min(rates["here"]), max(rates["here"])
    one["peers"] = {"datasketch": statistics.median(rates["datasketch"])}
    one["ratio_to_best_peer"] = one["value"] / one["peers"]["datasketch"]
    two = result(f"MinHash of {n:,} texts", "recall at 0.7", 100 * len(mine) / len(exact), "%", "higher", len(exact))
    two["peers"] = {"datasketch": 100 * len(peer) / len(exact)}
    two["ratio_to_best_peer"] = two["value"] / two["peers"]["datasketch"]
    return [one, two]


def _couples(sets: list[set[bytes]]) -> set[tuple[int, int]]:
    """All couples that share a rare word pair (in at most 50 texts): every couple of similarity 0.7 has one."""
    where: dict[bytes, list[int]] = {}
    for i, grams in enumerate(sets):
        for gram in grams:
            where.setdefault(gram, []).append(i)
    return {(i, j) for rows in where.values() if len(rows) <= 50 for k, j in enumerate(rows) for i in rows[k + 1 :]}


def confident(n: int, d: int = 24) -> list[dict]:
    from synth.preferences.cleaners.confident_learning import noise_rate, prune_by_noise_rate, symmetric
    from synth.preferences.cleaning import margins

    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(n, d)), rng.normal(size=d)
    wrong = rng.random(n) < 0.2
    x *= np.where((x @ w > 0) ^ wrong, 1, -1)[:, None]
    start = time.perf_counter()
    right = margins(x, [str(i // 2) for i in range(n)], folds=5, c=1.0)
    acts = prune_by_noise_rate(*symmetric(right))[:n]
    seconds = time.perf_counter() - start
    case = f"confident learning on {n:,} pairs of {d} features"
    return [
        result(case, "seconds", seconds, "s", "lower", n),
        result(case, "precision", 100 * float(wrong[acts].mean()), "%", "higher", n),
        result(case, "estimated noise (true: 20)", 100 * noise_rate(*symmetric(right)), "%", "higher", n),
    ]


def result(case: str, metric: str, value: float, unit: str, better: str, n: int) -> dict:
    row = result_row(
        case, metric, value, unit, COMMAND, n, better=better, numpy=np.__version__, datasketch=version("datasketch")
    )
    return row | {"device": DEVICE}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--try", dest="trial", action="store_true", help="small sizes, nothing is written")
    args = parser.parse_args()
    sizes = (args.pairs // 100, ORACLE // 10, FEATURES // 10) if args.trial else (args.pairs, ORACLE, FEATURES)
    results = [*minhash(sizes[1]), *confident(sizes[2]), *audited(sizes[0])]
    for r in results:
        print(f"{r['case']}: {r['metric']} {r['value']:,.4g} {r['unit']} {r['peers'] or ''}")
    print(f"greatest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    if not args.trial:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
