"""The time model of `espalier estimate` against measured steps of 1, 2 and 4 processes on this machine: `make bench-scaling`

SFT steps of a model of some million parameters, all rows of one length, without compiled layers (a model that is split runs none),
the processes talking over gloo. What a data sheet says of a GPU is measured here, in all processes at the same time: operations a second
of a large product, bytes a second of memory, bytes a second of a sum over the processes of another size than the gradients', and for
split weights of two gathers and a scattered sum between products, as in a step: over gloo they take several times what a sum of as many
bytes does, and the processes wait for each other. A core moves these bytes itself, so nothing is hidden behind compute.
The model's shares of a data sheet (0.4 and 0.7) are replaced: the product by what training is known to reach of it on a CPU
(`estimate.LEARNING`), bytes by all that was measured. Each case is a group of processes of its own; cases take turns.

It does not say that several processes are faster: they share the cores that one process with as many threads uses alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":  # the processes of each case inherit it; whoever imports this must not
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as a stage does on a busy machine

import numpy as np  # noqa: E402
import torch  # noqa: E402

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE / "tests" / "support")]

import ranks  # noqa: E402
import tiny  # noqa: E402

from benchmarks.rows import result_row  # noqa: E402
from tasks.planning import estimate  # noqa: E402
from tasks.planning.devices import Device, Machines  # noqa: E402
from training.learner.learner import Learner, Optim, nll  # noqa: E402
from training.learner.pack import Row  # noqa: E402
from training.learner.rows import weighted  # noqa: E402
from training.model.model import new_model  # noqa: E402
from training.model.native.build import turn_off  # noqa: E402
from training.model.size import Size  # noqa: E402

RESULT = HERE / "benchmarks" / "results" / "scaling.json"
SHAPE = {"hidden": 384, "layers": 4, "heads": 6, "kv_heads": 6, "intermediate": 1024}
ROWS, LENGTH, BUDGET, STEPS = 8, 128, 256, 4
CASES = {  # name -> (processes, threads of each, processes that share one copy of the weights)
    "1 process of 2 threads": (1, 2, 1),
    "1 process of 1 thread": (1, 1, 1),
    "2 processes of 1 thread": (2, 1, 1),
    "2 processes of 1 thread, weights split": (2, 1, 2),
    "4 processes of 1 thread": (4, 1, 1),
    "4 processes of 1 thread, weights split": (4, 1, 4),
}


def measured(world: Any, threads: int, vocabulary: int) -> dict[str, float]:
    """Seconds of a step, the first left out, and what this process reaches while the others do the same."""
    torch.set_num_threads(threads)
    turn_off("a model that is split runs none")
    torch.manual_seed(0)
    model = new_model(tiny.tokenizer(), max_length=2 * LENGTH, seed=0, init_range=0.02, **SHAPE)
    learner = Learner(model, Optim(warmup=1), world=world)
    rng = np.random.default_rng(0)
    world.gather(0)
    product, seconds = _product(), []
    for _ in range(STEPS + 1):
        rows = [
            Row(ids=rng.integers(0, vocabulary, LENGTH), trainable=np.arange(LENGTH) > 0, group=i, columns={"loss_weight": np.ones(LENGTH)})
            for i in range(ROWS)
        ]  # fmt: skip
        batch = weighted(rows, "cpu")
        world.gather(0)
        begin = time.perf_counter()
        learner.step(batch, nll, tokens_per_microbatch=BUDGET)
        world.gather(0)
        seconds.append(time.perf_counter() - begin)
    world.gather(0)
    product = median([product, _product()])
    a, b = torch.ones(2, 4_000_000)
    copies = []
    for _ in range(5):
        begin = time.perf_counter()
        a.add_(b)
        copies.append(3 * a.nbytes / (time.perf_counter() - begin))
    world.gather(0)
    return {
        "step": median(seconds[1:]),
        "product": product,
        "memory": median(copies),
        "link": _scattered(world) if world.mesh is not None else _summed(world),
    }


def _summed(world: Any) -> float:
    """Bytes a second of a sum over the processes; 1 if there is one."""
    sums = [0.0]
    part = torch.ones(1_000_000)
    for _ in range(5 if world.size > 1 else 0):
        begin = time.perf_counter()
        world.sum([part])
        sums.append(2 * part.nbytes * (world.size - 1) / world.size / (time.perf_counter() - begin))
    return median(sums[1:] or [1.0])


def _scattered(world: Any) -> float:
    """Bytes a second of what a layer of split weights sends in a pass, between products as in a pass: two gathers and a scattered sum."""
    from torch import distributed

    a = torch.ones(512, 512) / 3
    whole = torch.ones(1_000_000)
    part = torch.ones(len(whole) // world.size)
    seconds = []
    for _ in range(16):
        for _ in range(4):
            torch.mm(a, a)
        begin = time.perf_counter()
        for _ in range(2):
            distributed.all_gather_into_tensor(whole, part)
        distributed.reduce_scatter_tensor(part, whole)
        seconds.append(time.perf_counter() - begin)
        part.fill_(1.0)
    return 3 * (whole.nbytes - part.nbytes) * (len(seconds) - 1) / sum(seconds[1:])


def _product(seconds: float = 1.0) -> float:
    """Operations a second of a product of 512 x 512, for so long: what is left of the machine, not the best moment."""
    a = torch.ones(512, 512) / 3
    begin, n = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        torch.mm(a, a)
        n += 1
    return 2 * 512**3 * n / (time.perf_counter() - begin)


def predicted(measured_parts: list[dict[str, float]], processes: int, shards: int, model: Size) -> dict[str, float]:
    """Part of a step -> seconds, by `estimate.step`, for devices that reach what was measured."""
    product, memory, link = (min(f[k] for f in measured_parts) for k in ("product", "memory", "link"))
    single = product * estimate.LEARNING / estimate.OF_SHEET
    bandwidth, link = memory / estimate.OF_LINK, link / estimate.OF_LINK
    device = Device(memory=2**34, half=single, single=single, bandwidth=bandwidth, link=link, overlaps=False)
    p = {"dtype": "float32", "rows_per_step": ROWS, "max_length": LENGTH, "tokens_per_microbatch": BUDGET}
    return estimate.step("sft", p, (), model, Machines(1, processes, "CPU", device), processes, shards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    vocabulary = len(tiny.tokenizer())
    heads = SHAPE["heads"]
    network = new_model(tiny.tokenizer(), max_length=2 * LENGTH, seed=0, init_range=0.02, **SHAPE)
    model = Size(
        parameters=sum(p.numel() for p in network.parameters()),
        layers=SHAPE["layers"], hidden=SHAPE["hidden"], intermediate=SHAPE["intermediate"], heads=heads, kv_heads=heads,
        head_dim=SHAPE["hidden"] // heads, vocabulary=vocabulary, head_norms=True, tied=True,
    )  # fmt: skip
    print(f"{model.parameters} parameters, {ROWS} rows of {LENGTH} tokens", flush=True)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    parts: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for name, (processes, threads, shards) in CASES.items():
                by_process = ranks.together(
                    processes, measured, threads, vocabulary, folder=Path(folder), shards=shards
                )
                if wrong := [f for f in by_process if not isinstance(f, dict)]:
                    raise SystemExit(f"{name}: {wrong[0]}")
                parts[name] = predicted(by_process, processes, shards, model)
                took[name].append((max(f["step"] for f in by_process), sum(parts[name].values())))
                print(f"{name:40} measured {took[name][-1][0]:.3f} s, predicted {took[name][-1][1]:.3f} s", flush=True)
    rows = []
    for name, pairs in took.items():
        for metric, values, unit in (
            ("measured", [m for m, _ in pairs], "s"),
            ("predicted", [p for _, p in pairs], "s"),
            ("predicted / measured", [p / m for m, p in pairs], ""),
        ):
            value, low, high = (round(x, 3) for x in (median(values), min(values), max(values)))
            rows.append(
                result_row(
                    name,
                    metric,
                    value,
                    unit,
                    "make bench-scaling",
                    turns,
                    better="lower",
                    low=low,
                    high=high,
                    torch=torch.__version__,
                )
            )
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
