"""Where the time of one GRPO step goes at a vocabulary of 512, prompts shared and each on its own: `make
bench-learner-profile`

The case `grpo` of benchmarks/learner.py (4 prompts x 8 samples x 16 new tokens, a Qwen3 of 4 layers, width 64,
float32). Metrics: `milliseconds` of sampling and of each part of the learner as it reports them (the head's backward
pass is in `backward`), `tokens` that the model computes in a step; peers: the same step when every row computes its own
prompt (`apart`), with torch alone (`uncompiled`), and both (`neither`): before and after. `self time` is the share of
the learner's time that torch's profiler finds in one operation, and its `calls` a step: what is left when the large
products are small.

Every measurement is a process of its own, they take turns; the value is the median of the turns' medians, the first
five steps left out.
"""

from __future__ import annotations

import argparse
import json
import statistics

from benchmarks.learner import RESULTS, child, result, whole
from benchmarks.learner_plot import plot

COMMAND = "make bench-learner-profile"
PARTS = ("rollout", "forward", "head", "backward", "optimizer", "sync", "learn", "step")
CASE, SIZES, STEPS, SHOWN = "grpo", (512, 64), 40, 8


def parts(how: str) -> dict:
    """Medians over the steps: seconds of each part, and tokens computed."""
    from training.learner.learner import Learner
    from training.learner.pack import Stream
    from training.model.native.build import turn_off

    if how in ("uncompiled", "neither"):
        turn_off("the benchmark does without")
    seen: list[dict] = []
    tokens: list[int] = []

    class Counting(Learner):
        def step(self, batch, *args, **kwargs):
            tokens.append(len(Stream.of(batch).ids))
            return super().step(batch, *args, **kwargs)

    shared = how not in ("apart", "neither")
    whole("here", CASE, *SIZES, STEPS, learner=Counting, shared=shared, seen=seen.append)
    seconds = {p: statistics.median(m[f"{p}_seconds"] for m in seen[5:]) for p in PARTS}
    return {"seconds": [seconds["step"]], "parts": seconds, "tokens": statistics.median(tokens[5:])}


def operations() -> dict:
    """Operations of the learner's steps by their own time: name -> (share, calls a step)."""
    from collections import Counter

    from torch.profiler import ProfilerActivity, profile

    from training.learner.learner import Learner

    taken, n = [0], 5
    own, calls = Counter(), Counter()

    class Profiled(Learner):
        def step(self, *args, **kwargs):
            taken[0] += 1
            if taken[0] <= 5:
                return super().step(*args, **kwargs)
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                out = super().step(*args, **kwargs)
            for e in profiler.key_averages():
                own[e.key] += e.self_cpu_time_total
                calls[e.key] += e.count
            return out

    whole("here", CASE, *SIZES, 5 + n, learner=Profiled)
    total = sum(own.values())
    return {"seconds": [total / 1e6], "operations": [(k, t / total, calls[k] / n) for k, t in own.most_common(SHOWN)]}


def main() -> None:
    parser = argparse.ArgumentParser(description="where a GRPO step's time goes")
    parser.add_argument("--child", nargs="+", help="one measurement: what the benchmark starts for each")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(operations() if args.child[0] == "operations" else parts(args.child[0])))
        return
    measured: dict[str, list[dict]] = {how: [] for how in ("here", "apart", "uncompiled", "neither")}
    for turn in range(args.turns):
        for how, into in measured.items():
            out = child(how, module="benchmarks.learner_profile")
            if isinstance(out, str):
                raise SystemExit(f"{how}: {out}")
            into.append(out)
            print(f"turn {turn + 1}, {how}: {out['seconds'][0]:.4f} s a step", flush=True)
    name = f"{CASE}, {SIZES[0]} ids"
    cases = [
        result(
            f"{name}: {p}",
            "milliseconds",
            "ms",
            "lower",
            {h: [1e3 * x["parts"][p] for x in xs] for h, xs in measured.items()},
            2,
        )
        for p in PARTS
    ]
    cases.append(
        result(
            name, "tokens", "tokens computed", "lower", {h: [x["tokens"] for x in xs] for h, xs in measured.items()}, 0
        )
    )
    out = child("operations", module="benchmarks.learner_profile")
    if isinstance(out, str):
        raise SystemExit(f"operations: {out}")
    for operation, share, calls in out["operations"]:
        cases.append(result(f"{name}: {operation}", "self time", "share", "lower", {"here": [share]}, 3))
        cases.append(result(f"{name}: {operation}", "calls", "a step", "lower", {"here": [calls]}, 1))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "learner-profile.json").write_text(
        json.dumps([c | {"command": COMMAND} for c in cases], indent=1) + "\n", encoding="utf-8"
    )
    plot()


if __name__ == "__main__":
    main()
