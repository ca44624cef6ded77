"""Does self-play hold the success rate that it aims at, and does it find a weak skill? `make bench-control-law`

A scripted solver has a known curve of success: a logistic function of level and skill. It learns with practice in all
families but one, the
planted weak skill. ROUNDS rounds of PROPOSALS certified problems, ATTEMPTS at each, for each of SEEDS:
- deviation: the largest distance of the mean success over WINDOW rounds from the target, from round WARM on; peers:
  levels drawn uniformly, and by success_band
- weak found: the share of rounds from WARM on in which the planted family is called weak; false: in which any other is
- rounds to reach: the first round from which WINDOW rounds lie within 0.05 of the target
The plot (docs/images/control-law.svg) is the first seed.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.rows import result_row
from synth.selfplay.ledger import Ledger
from synth.selfplay.loop import Loop, cells
from synth.selfplay.propose.ladder import ladder
from synth.selfplay.solve.scripted import scripted
from tasks.pages.plots import lines
from tasks.planning.pieces import bind
from tasks.problems.selfplay import registry
from training.rl.curriculum.learnability import learnability
from training.rl.curriculum.success_band import success_band

ROOT = Path(__file__).resolve().parents[1]
SEEDS, ROUNDS, PROPOSALS, ATTEMPTS, WINDOW, WARM, WEAK = (11, 12, 13, 14, 15), 40, 96, 8, 5, 8, "countdown"
FAMILIES = (
    "countdown",
    "integer_arithmetic",
    "linear_equations",
    "list_sorting",
    "modular_arithmetic",
    "base_conversion",
)
COMMAND = "make bench-control-law"


def anywhere(problems, state, rng, n):
    """Levels drawn uniformly."""
    return [int(i) for i in rng.integers(len(problems), size=n)]


def play(families, known, choose, seed: int, gain: float) -> list[dict]:
    """The rounds of one run."""
    running = Loop(
        families=families,
        cells=known,
        ledger=Ledger(":memory:", {}),
        propose=ladder,
        solve=scripted(gain=gain, weak=[WEAK], seed=seed),
        choose=choose,
        pay=lambda proposals: [0.0] * len(proposals),
        seed=seed,
        rounds=ROUNDS,
        proposals=PROPOSALS,
        attempts=ATTEMPTS,
    )
    return list(running.run())


def windows(rounds: list[dict]) -> np.ndarray:
    """Mean success of every WINDOW rounds."""
    success = np.array([r["success"] for r in rounds])
    return np.convolve(success, np.ones(WINDOW) / WINDOW, mode="valid")


def result(case: str, metric: str, values: list[float], unit: str, better: str, peers: dict[str, list[float]]) -> dict:
    mean = float(np.mean(values))
    means = {k: float(np.mean(v)) for k, v in peers.items()}
    best = min(means.values()) if means else None
    return result_row(
        case,
        metric,
        mean,
        unit,
        COMMAND,
        len(values),
        better=better,
        low=min(values),
        high=max(values),
        one_core=True,
        peers=means,
        ratio=best / mean if best is not None and mean else None,
        numpy=np.__version__,
    )


def main() -> int:
    families = registry([bind("family", {"piece": name}) for name in FAMILIES])
    known = cells(families, 0)
    results, shown = [], []
    for target, gain in ((0.5, 0.0), (0.5, 0.15), (0.7, 0.15)):
        case = f"target {target:.0%}, solver that {'learns' if gain else 'does not learn'}"
        ours = [play(families, known, partial(learnability, target=target), s, gain) for s in SEEDS]
        peers = {"levels at random": anywhere, "success_band": success_band}
        others = {k: [play(families, known, choose, s, gain) for s in SEEDS] for k, choose in peers.items()}
        far = lambda runs: [float(abs(windows(r)[WARM:] - target).max()) for r in runs]  # noqa: E731, B023
        calls = [[f for r in run[WARM:] for f in r["weak"]] for run in ours]
        rounds = ROUNDS - WARM
        reached = [float(next((i for i, w in enumerate(windows(r)) if abs(w - target) <= 0.05), ROUNDS)) for r in ours]
        results += [
            result(case, "largest deviation", far(ours), "", "lower", {k: far(v) for k, v in others.items()}),
            result(case, "weak skill found", [100 * c.count(WEAK) / rounds for c in calls], "%", "higher", {}),
            result(
                case, "others called weak", [100 * sum(f != WEAK for f in c) / rounds for c in calls], "%", "lower", {}
            ),
            result(case, "rounds to reach it", reached, "rounds", "lower", {}),
        ]
        print(
            "  ".join(
                [case, *(f"{r['metric']} {r['value']:.3g} [{r['low']:.3g}, {r['high']:.3g}]" for r in results[-4:])]
            ),
            flush=True,
        )
        if gain and target == 0.5:
            shown = [ours[0], others["levels at random"][0]]
    (ROOT / "benchmarks" / "results" / "control-law.json").write_text(
        json.dumps(results, indent=1) + "\n", encoding="utf-8"
    )
    at = [float(i) for i in range(ROUNDS)]
    series = {
        "rl": (at, [r["success"] for r in shown[0]]),
        "prefer": (at, [r["success"] for r in shown[1]]),
        "base": (at, [0.5] * ROUNDS),
    }
    names = {"rl": "control law", "prefer": "levels at random", "base": "target"}
    drawn = lines(series, x="round", y="share of right answers", width=620, height=280, legend=names)
    (ROOT / "docs" / "images" / "control-law.svg").write_text(drawn + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
