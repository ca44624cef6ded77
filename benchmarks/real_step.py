"""What an SFT step of a pretrained model costs beside the matrix products in it: `make bench-real-step`

SmolLM2-135M-Instruct (`make smollm`), 8 rows of 128 tokens, AdamW, one thread, in float32 and bfloat16. `step` is the
CPU time of a step, the least of two after a first one; CPU time, since other work on the machine takes the clock's.
`products` is what the step's matrix products take by themselves (per layer seven weights, and the head; one product
forward, two backward), each the least of three, by the fastest way that torch has to them: MKL or oneDNN in float32,
oneDNN in bfloat16. What attention multiplies is not among them. `unpacked` is what it takes to take all weights of the
layers out of NF4 once, which QLoRA adds to each pass.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from benchmarks.learner import RESULTS
from benchmarks.real import smollm2

COMMAND = "make bench-real-step"
ROWS, LENGTH = 8, 128


def least(run: Callable[[], object], times: int = 3) -> float:
    """CPU seconds."""
    out = []
    for _ in range(times):
        began = time.process_time()
        run()
        out.append(time.process_time() - began)
    return min(out)


def products(weights: list[tuple[int, int]], dtype) -> float:
    """CPU seconds of the three products of each weight [out, in] with the tokens of a step."""
    import torch

    def of(n: int, m: int) -> float:
        x, w, g = (torch.randn(*s).to(dtype) for s in ((ROWS * LENGTH, m), (n, m), (ROWS * LENGTH, n)))
        plain = sum(least(run) for run in (lambda: x @ w.T, lambda: g @ w, lambda: g.T @ x))
        if dtype != torch.float32:
            return plain
        wt, gt, xt = (y.T.contiguous() for y in (w, g, x))
        dnn = torch.ops.mkldnn._linear_pointwise
        pairs = ((x, w), (g, wt), (gt, xt))
        return min(plain, sum(least(partial(dnn, a, b, None, "none", [], "")) for a, b in pairs))

    taken = {shape: of(*shape) for shape in set(weights)}
    return sum(taken[shape] for shape in weights)


def main() -> None:
    import numpy as np
    import torch
    from torch import nn

    from training.learner.learner import Learner, Optim, nll
    from training.learner.pack import Row, pack
    from training.model import quantised
    from training.model.model import load_model

    torch.set_num_threads(1)
    rng, results = np.random.default_rng(0), []
    for dtype in (torch.float32, torch.bfloat16):
        before = len(results)
        model, _ = load_model(smollm2(), dtype=str(dtype).removeprefix("torch."))
        inner = [tuple(m.weight.shape) for m in model.base_model.modules() if isinstance(m, nn.Linear)]
        head = tuple(model.get_output_embeddings().weight.shape)
        name, alone = str(dtype).removeprefix("torch."), products([*inner, head], dtype)
        learner = Learner(model, Optim(lr=1e-6, warmup=0))

        ids = [rng.integers(0, head[0], LENGTH) for _ in range(ROWS)]
        batch = pack([Row(ids=x, trainable=np.arange(LENGTH) > 0) for x in ids])
        step = partial(learner.step, batch, nll)
        step()
        taken = least(step, 2)
        results += [(name, "step", taken, "CPU s"), (name, "products", alone, "CPU s")]
        results.append((name, "products of the step", alone / taken, "share"))
        del learner, step
        if dtype == torch.float32:
            quantised.quantise(model, "nf4")
            packed = [m for _, m in quantised.layers(model)]
            whole = least(partial(lambda layers: [m.unpacked() for m in layers], packed))
            results.append((name, "unpacked", whole, "CPU s"))
        for row in results[before:]:
            print(*row, flush=True)
    cpu = torch.backends.cpu.get_cpu_capability()
    amx = " with amx_bf16" if getattr(torch.cpu, "_is_amx_tile_supported", bool)() else ""
    common = {
        "n": 1,
        "peers": {},
        "ratio_to_best_peer": None,
        "device": f"one thread of {os.cpu_count()} CPU cores, {platform.machine()} {cpu}{amx}",
        "versions": {"python": platform.python_version()}
        | {n: version(n) for n in ("torch", "transformers", "bitsandbytes")},
        "command": COMMAND,
    }
    rows = [
        {
            "case": case,
            "metric": metric,
            "value": round(v, 3),
            "low": round(v, 3),
            "high": round(v, 3),
            "unit": unit,
            "better": "higher" if unit == "share" else "lower",
            **common,
        }
        for case, metric, v, unit in results
    ]
    (RESULTS / "real-step.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
